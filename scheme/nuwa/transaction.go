package nuwa

import (
	"crypto/sha3"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"

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

// Transaction is a call of the module payment_channel by a DID's account.
type Transaction struct {
	Sender   [32]byte // the account
	Sequence uint64
	ChainID  uint64
	MaxGas   uint64 // units of RGas
	Function string
	TypeArgs bool     // the function is generic over the coin, which is RGas
	Args     [][]byte // each in BCS
}

// maxGas is the most that the chain may take as any transaction's fee, in units of RGas. The kit always
// lets it take as much: one RGas, a cent.
const maxGas = 100_000_000

// openChannel opens the channel to a payee and lets a key of the sender's DID document sign for it.
// Where the channel is open it does no more than that.
func openChannel(payee account, fragment string) Transaction {
	return Transaction{MaxGas: maxGas, Function: "open_channel_with_sub_channel_entry", TypeArgs: true,
		Args: [][]byte{payee[:], encodeBCS(fragment)}}
}

// authorizeKey lets another key of the sender's DID document sign for a channel that is open.
func authorizeKey(channel objectID, fragment string) Transaction {
	return Transaction{MaxGas: maxGas, Function: "authorize_sub_channel_entry",
		Args: [][]byte{encodeBCS(objectPath{channel}), encodeBCS(fragment)}}
}

// depositToHub puts an amount of RGas into an account's payment hub.
func depositToHub(owner account, amount money.Amount) Transaction {
	return Transaction{MaxGas: maxGas, Function: "deposit_to_hub_entry", TypeArgs: true,
		Args: [][]byte{owner[:], encodeBCS(amount)}}
}

// typeTag is a Move struct that takes no type arguments of its own.
type typeTag struct {
	Variant      byte
	Address      account
	Module, Name string
	TypeArgs     []typeTag
}

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

// Rooch's bytes are BCS: little endian, lengths as ULEB128, structs without any frame. A Go value
// is written as its Move counterpart: byte is u8, uint64 is u64, money.Amount is u256, a string or
// slice is a vector, an array is its elements, and a struct is its exported fields in their order.
// A Move option is a slice of none or one; an enum's variant is a byte.

var amountType = reflect.TypeFor[money.Amount]()

// encodeBCS writes a value of the types above; of any other it panics.
func encodeBCS(v any) []byte { return appendValue(nil, reflect.ValueOf(v)) }

func appendValue(b []byte, v reflect.Value) []byte {
	if v.Type() == amountType {
		number := v.Interface().(money.Amount).Bytes32()
		slices.Reverse(number[:])
		return append(b, number[:]...)
	}
	switch v.Kind() {
	case reflect.Uint8:
		return append(b, byte(v.Uint()))
	case reflect.Uint64:
		return binary.LittleEndian.AppendUint64(b, v.Uint())
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
	case reflect.Slice:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	default:
		panic(fmt.Sprintf("rooch: %s has no BCS form", v.Type()))
	}
}

// errLayout says that an object's bytes are not of the layout that payment_channel.move has.
var errLayout = errors.New("the object has another layout")

// decodeBCS reads a value of the types above into what v points to. rest is what follows it: of an
// object that is read to its end nothing may.
func decodeBCS(data []byte, v any) (rest []byte, err error) {
	d := decoder{rest: data}
	d.value(reflect.ValueOf(v).Elem())
	if d.bad {
		return nil, errLayout
	}
	return d.rest, nil
}

// decodeAllBCS is decodeBCS of data that ends with the value.
func decodeAllBCS(data []byte, v any) error {
	rest, err := decodeBCS(data, v)
	if err == nil && len(rest) > 0 {
		return errLayout
	}
	return err
}

// decoder reads; once something is missing, everything after it is zero and bad is set.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) value(v reflect.Value) {
	if v.Type() == amountType {
		number := d.take(len([32]byte{}))
		slices.Reverse(number)
		amount, _ := money.AmountFromBytes(number) // 32 bytes always are one
		v.Set(reflect.ValueOf(amount))
		return
	}
	switch v.Kind() {
	case reflect.Uint8:
		v.SetUint(uint64(d.take(1)[0]))
	case reflect.Uint64:
		v.SetUint(binary.LittleEndian.Uint64(d.take(8)))
	case reflect.String:
		v.SetString(string(d.take(d.length())))
	case reflect.Slice:
		for n := d.length(); n > 0 && !d.bad; n-- {
			element := reflect.New(v.Type().Elem()).Elem()
			d.value(element)
			v.Set(reflect.Append(v, element))
		}
	case reflect.Array:
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			d.value(v.Field(i))
		}
	default:
		panic(fmt.Sprintf("rooch: %s has no BCS form", v.Type()))
	}
}

// take is a copy of the next n bytes; zeros where there are not so many.
func (d *decoder) take(n int) []byte {
	taken := make([]byte, n)
	if n > len(d.rest) {
		d.rest, d.bad = nil, true
		return taken
	}
	copy(taken, d.rest)
	d.rest = d.rest[n:]
	return taken
}

// length is at most what is left, because every element takes a byte or more; and it is written in
// as few bytes as can be, as BCS asks for.
func (d *decoder) length() int {
	n, size := binary.Uvarint(d.rest)
	isLongForm := size > 1 && d.rest[size-1] == 0
	if size <= 0 || isLongForm || n > uint64(len(d.rest)-size) {
		d.rest, d.bad = nil, true
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}
