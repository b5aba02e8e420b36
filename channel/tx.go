package channel

import (
	"crypto/sha3"
	"encoding/hex"

	"x402-wallet/x402/money"
)

// Transaction is a call of the module payment_channel by a DID's account (reference: nuwa §5).
type Transaction struct {
	Sender   Account
	Sequence uint64
	ChainID  uint64
	MaxGas   uint64 // units of RGas
	Function string
	TypeArgs bool     // the function is generic over the coin, which is RGas
	Args     [][]byte // each in BCS
}

// maxGas is what the kit asks for too: one RGas, a cent.
const maxGas = 100_000_000

// Functions of payment_channel.
const (
	fnOpen      = "open_channel_with_sub_channel_entry" // no more than nothing where the channel is open
	fnAuthorize = "authorize_sub_channel_entry"
	fnDeposit   = "deposit_to_hub_entry"
)

func openCall(payee Account, fragment string) (function string, args [][]byte) {
	return fnOpen, [][]byte{payee[:], bcsText(fragment)}
}

func authorizeCall(id ObjectID, fragment string) (function string, args [][]byte) {
	var e encoder
	e.bytes1(id)
	return fnAuthorize, [][]byte{e.b, bcsText(fragment)}
}

func depositCall(owner Account, amount money.Amount) (function string, args [][]byte) {
	var e encoder
	e.u256(amount)
	return fnDeposit, [][]byte{owner[:], e.b}
}

func bcsText(s string) []byte {
	var e encoder
	e.text(s)
	return e.b
}

// Data is what is hashed and signed.
func (t Transaction) Data() []byte {
	var e encoder
	var three Account
	three[31] = 3
	e.raw(t.Sender[:])
	e.u64(t.Sequence)
	e.u64(t.ChainID)
	e.u64(t.MaxGas)
	e.u8(1) // CallFunction
	e.raw(three[:])
	e.text("payment_channel")
	e.text(t.Function)
	if t.TypeArgs {
		e.length(1)
		e.u8(7) // a struct
		e.raw(three[:])
		e.text("gas_coin")
		e.text("RGas")
	}
	e.length(0) // type arguments of RGas, or of a function that has none
	e.length(len(t.Args))
	for _, arg := range t.Args {
		e.bytes(arg)
	}
	return e.b
}

// hash is what is signed, and the transaction's name.
func (t Transaction) hash() [32]byte { return sha3.Sum256(t.Data()) }

// raw is the transaction with its authenticator: the DID validator's (did_validator.move), by the
// key of the fragment.
func (t Transaction) raw(fragment string, signature []byte) string {
	var payload encoder
	payload.u8(0) // the hash itself was signed
	payload.text(fragment)
	payload.bytes(signature)
	payload.u8(0) // no message
	var e encoder
	e.raw(t.Data())
	e.u64(didValidator)
	e.bytes(payload.b)
	return "0x" + hex.EncodeToString(e.b)
}

const didValidator = 4
