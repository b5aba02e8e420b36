package channel

import (
	"crypto/sha3"
	"encoding/hex"

	"x402-wallet/x402/money"
)

// SubRAV is a payer's voucher for a channel, as struct SubRAV of payment_channel.move has it: the
// payee may take Amount in all. A later one replaces an earlier one.
type SubRAV struct {
	ChainID  uint64
	Channel  [32]byte // an object's id
	Epoch    uint64
	Fragment string       // names the key that signs it, and with that the sub-channel
	Amount   money.Amount // accumulated over all calls so far, in units of RGas
	Nonce    uint64
}

// bytes are what is signed.
func (s SubRAV) bytes() []byte {
	const version = 1
	return encodeBCS(subRAVLayout{
		Version: version, ChainID: s.ChainID, Channel: objectPath{s.Channel},
		Epoch: s.Epoch, Fragment: s.Fragment, Amount: s.Amount, Nonce: s.Nonce,
	})
}

type subRAVLayout struct {
	Version  byte
	ChainID  uint64
	Channel  objectPath
	Epoch    uint64
	Fragment string
	Amount   money.Amount
	Nonce    uint64
}

// objectPath is how Rooch writes an object's id: as a path, whose length is one.
type objectPath []objectID

// Transaction is a call of the module payment_channel by a DID's account (reference: nuwa §5).
type Transaction struct {
	Sender   [32]byte // the account
	Sequence uint64
	ChainID  uint64
	MaxGas   uint64 // units of RGas
	Function string
	TypeArgs bool     // the function is generic over the coin, which is RGas
	Args     [][]byte // each in BCS
}

// maxGas is the most that the chain may take as a transaction's fee, in units of RGas. The kit asks
// for as much: one RGas, a cent.
const maxGas = 100_000_000

// openChannel opens the channel to a payee and lets a key of the sender's DID document sign for it.
// Where the channel is open it does no more than that.
func openChannel(payee account, fragment string) Transaction {
	return Transaction{
		MaxGas: maxGas, Function: "open_channel_with_sub_channel_entry", TypeArgs: true,
		Args: [][]byte{payee[:], encodeBCS(fragment)},
	}
}

// authorizeKey lets another key of the sender's DID document sign for a channel that is open.
func authorizeKey(channel objectID, fragment string) Transaction {
	return Transaction{
		MaxGas: maxGas, Function: "authorize_sub_channel_entry",
		Args: [][]byte{encodeBCS(objectPath{channel}), encodeBCS(fragment)},
	}
}

// depositToHub puts an amount of RGas into an account's payment hub.
func depositToHub(owner account, amount money.Amount) Transaction {
	return Transaction{
		MaxGas: maxGas, Function: "deposit_to_hub_entry", TypeArgs: true,
		Args: [][]byte{owner[:], encodeBCS(amount)},
	}
}

// typeTag is a Move struct that takes no type arguments of its own.
type typeTag struct {
	Variant      byte
	Address      account
	Module, Name string
	TypeArgs     []typeTag
}

// data is what is hashed and signed.
func (t Transaction) data() []byte {
	const (
		callFunction  = 1
		structVariant = 7
	)
	three := account{31: 3}
	data := struct {
		Sender                    account
		Sequence, ChainID, MaxGas uint64
		Action                    byte
		Package                   account
		Module, Function          string
		TypeArgs                  []typeTag
		Args                      [][]byte
	}{
		Sender: t.Sender, Sequence: t.Sequence, ChainID: t.ChainID, MaxGas: t.MaxGas,
		Action: callFunction, Package: three, Module: "payment_channel", Function: t.Function, Args: t.Args,
	}
	if t.TypeArgs {
		data.TypeArgs = []typeTag{{Variant: structVariant, Address: three, Module: "gas_coin", Name: "RGas"}}
	}
	return encodeBCS(data)
}

// id is the hash that is signed, and the transaction's name on the chain.
func (t Transaction) id() objectID { return sha3.Sum256(t.data()) }

// raw is the transaction with its authenticator, in hex, as a node takes it: the authenticator of
// the DID validator (did_validator.move), made by the key of the fragment.
func (t Transaction) raw(fragment string, signature []byte) string {
	const didValidator = 4
	payload := encodeBCS(struct {
		Envelope  byte // 0: the hash itself was signed
		Fragment  string
		Signature []byte
		Message   byte // 0: there is none
	}{Fragment: fragment, Signature: signature})
	authenticator := encodeBCS(struct {
		Validator uint64
		Payload   []byte
	}{Validator: didValidator, Payload: payload})
	return "0x" + hex.EncodeToString(append(t.data(), authenticator...))
}
