package sandbox

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/sha3"

	"x402-wallet/x402/money"
)

// Words and calls of EVM contracts, as hex with 0x.

func quantity(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

// Word is a number as a contract returns it: 32 bytes.
func Word(n uint64) string { return WordOf(money.NewAmount(n)) }

func WordOf(amount money.Amount) string {
	b := amount.Bytes32()
	return "0x" + hex.EncodeToString(b[:])
}

// TopicOf is an address as a word, in lower case.
func TopicOf(address string) string {
	return "0x" + strings.Repeat("0", 24) + strings.ToLower(strings.TrimPrefix(address, "0x"))
}

// Unhex decodes hex without 0x. It panics on anything else: use it for words made here or checked before.
func Unhex(text string) []byte {
	raw, err := hex.DecodeString(text)
	if err != nil {
		panic("sandbox: " + text + " is not hex")
	}
	return raw
}

func Keccak(text string) []byte {
	h := sha3.NewLegacyKeccak256()
	h.Write([]byte(text))
	return h.Sum(nil)
}

// CallData is a function's arguments in words, with one of variable length at the end.
type CallData struct{ Words strings.Builder }

func (d *CallData) Add(words ...string) {
	for _, w := range words {
		d.Words.WriteString(strings.TrimPrefix(w, "0x"))
	}
}

// End appends the argument of variable length, and returns the call of the function with that signature.
func (d *CallData) End(signature string, last []byte) string {
	d.Add(Word(uint64(d.Words.Len()/2+32)), Word(uint64(len(last))))
	padded := append(last[:len(last):len(last)], make([]byte, (32-len(last)%32)%32)...)
	return "0x" + hex.EncodeToString(Keccak(signature)[:4]) + d.Words.String() + hex.EncodeToString(padded)
}

// SignatureIn is the member "signature" of a JSON object that was read before.
func SignatureIn(object json.RawMessage) []byte {
	var said struct{ Signature string }
	_ = json.Unmarshal(object, &said) // its reader has checked it
	signature, _ := hex.DecodeString(strings.TrimPrefix(said.Signature, "0x"))
	return slices.Clip(signature)
}

// Reverted is a node's answer about a call that the contract reverts, with its reason as Solidity encodes it.
func Reverted(why string) error {
	e := &rpcError{Code: 3, Message: "execution reverted", Data: "0x"}
	if why != "" {
		in := &CallData{}
		e.Message, e.Data = e.Message+": "+why, in.End("Error(string)", []byte(why))
	}
	return e
}

func IsUnits(text string, into *uint64) (fits bool) {
	amount, err := money.ParseAmount(text)
	if err == nil {
		*into, fits = amount.Uint64()
	}
	return err == nil && fits
}
