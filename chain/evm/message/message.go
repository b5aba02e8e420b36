// Package message has what is signed on EVM chains: the messages of EIP-712 that a payment is made of, their
// digests, their JSON, and what the chain is asked by, what became of one. It reads and compares; it asks no
// node, builds no payment, and imports nothing that does either (package evm). Who signs decodes with it.
//
// What must stay true: an object is read in one way only, with exactly its keys, every value in canonical
// form; and the EIP-712 domain comes from the registry and the network's CAIP-2 id.
//
// The files: message.go (words, addresses, domains, signatures), eip3009.go, permit2.go (with EIP-2612, and
// an approval by a transaction), channel.go (batch-settlement), transaction.go (EIP-1559, and pulls).
package message

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What is wrong with an object or a payload: ErrPayload when it is not exactly of its form, ErrSignature when
// it is, but its signature is not one of the account that it says is paying.
var (
	ErrPayload   = errors.New("not the payload of a payment")
	ErrSignature = errors.New("not a signature of the payer")
)

// MaxPayload bounds a payload object that is read, in bytes: the longest honest one, with
// 78-digit numbers, is under 700.
const MaxPayload = 4 << 10

// Word is an address in a 32-byte word of ABI and EIP-712.
func Word(address common.Address) []byte { return common.LeftPadBytes(address[:], 32) }

// WordOfUint is a number in such a word.
func WordOfUint(n uint64) []byte {
	return common.LeftPadBytes(binary.BigEndian.AppendUint64(nil, n), 32)
}

func AmountOf(word []byte) money.Amount {
	amount, _ := money.AmountFromBytes(word)
	return amount
}

// AmountOfBig is a number as an amount; false if it is negative, or has more than 256 bits.
func AmountOfBig(n *big.Int) (money.Amount, bool) {
	if n.Sign() < 0 || n.BitLen() > 256 {
		return money.Amount{}, false
	}
	return AmountOf(n.FillBytes(make([]byte, 32))), true
}

// Members reads a JSON object that has exactly the given keys, each once, in any order.
func Members(object []byte, names ...string) ([]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := x402.DecodeStrict(object, MaxPayload, &all); err != nil {
		return nil, fmt.Errorf("%w: not one JSON object: %w", ErrPayload, err)
	}
	values := make([]json.RawMessage, len(names))
	for i, name := range names {
		value, present := all[name]
		if !present {
			return nil, fmt.Errorf("%w: no %s", ErrPayload, name)
		}
		values[i] = value
	}
	if len(all) != len(names) {
		return nil, fmt.Errorf("%w: an unknown key", ErrPayload)
	}
	return values, nil
}

// textMembers is Members of an object of strings.
func textMembers(object []byte, names ...string) ([]string, error) {
	values, err := Members(object, names...)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(names))
	for i, value := range values {
		text, ok := x402.Text(value)
		if !ok {
			return nil, fmt.Errorf("%w: %s is no string", ErrPayload, names[i])
		}
		all[i] = text
	}
	return all, nil
}

// DecodeHex fills into from 0x and exactly two hex digits a byte.
func DecodeHex(into []byte, text string) error {
	digits, found := strings.CutPrefix(text, "0x")
	if !found || len(digits) != 2*len(into) {
		return fmt.Errorf("not 0x and %d hex digits", 2*len(into))
	}
	_, err := hex.Decode(into, []byte(digits))
	return err
}

// Hex writes 0x and two hex digits a byte.
func Hex(b []byte) string { return "0x" + hex.EncodeToString(b) }

// ParseSeconds reads Unix seconds, a canonical decimal up to 2^63-1.
func ParseSeconds(text string) (int64, error) {
	amount, err := money.ParseAmount(text)
	if err != nil {
		return 0, err
	}
	seconds, fits := amount.Uint64()
	if !fits || seconds > 1<<63-1 {
		return 0, errors.New("more than 2^63-1 seconds")
	}
	return int64(seconds), nil
}

// errAddress says that a text is not 0x and 40 hex digits, or that its EIP-55 checksum is wrong.
var errAddress = errors.New("not an EVM address")

// ParseAddress reads 0x and 40 hex digits. All lower or all upper case carries no checksum; mixed
// case does, and it must be right (EIP-55), because a wrong one is how a mistyped or tampered
// address shows itself.
func ParseAddress(text string) (common.Address, error) {
	digits, found := strings.CutPrefix(text, "0x")
	if !found || len(digits) != 2*common.AddressLength || !common.IsHexAddress(digits) {
		return common.Address{}, errAddress
	}
	address := common.HexToAddress(text)
	if digits != strings.ToLower(digits) && digits != strings.ToUpper(digits) && text != address.Hex() {
		return common.Address{}, fmt.Errorf("%w: its mixed case is a wrong EIP-55 checksum", errAddress)
	}
	return address, nil
}

// Address reads an address and gives its EIP-55 spelling; mixed case has to have the right
// checksum.
func Address(text string) (string, error) {
	address, err := ParseAddress(text)
	if err != nil {
		return "", err
	}
	return address.Hex(), nil
}

// SameAddress compares two spellings of an address.
func SameAddress(a, b string) bool { return strings.EqualFold(a, b) }

// ChainID reads the reference of an eip155 CAIP-2 id: a canonical decimal from 1 to 2^63-1.
func ChainID(network string) (uint64, error) {
	id, ok := x402.ChainID(network)
	if !ok || id > math.MaxInt64 {
		return 0, errors.New("not an eip155 network, or one with a chain id above 2^63-1")
	}
	return id, nil
}

// DomainType is the EIP-712 type of a domain, spelled as it is hashed (EIP-712 §encodeType).
const DomainType = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"

// DomainSeparator is hashStruct of the token's EIP-712 domain; a token's DOMAIN_SEPARATOR() answers
// the same.
func DomainSeparator(asset x402.AssetInfo) (common.Hash, error) {
	chain, err := ChainID(asset.Network)
	if err != nil {
		return common.Hash{}, err
	}
	token, err := ParseAddress(asset.Address)
	if err != nil {
		return common.Hash{}, err
	}
	if asset.Name == "" || asset.Version == "" {
		return common.Hash{}, errors.New("the asset has no EIP-712 name and version")
	}
	return crypto.Keccak256Hash(crypto.Keccak256([]byte(DomainType)), crypto.Keccak256([]byte(asset.Name)),
		crypto.Keccak256([]byte(asset.Version)), WordOfUint(chain), Word(token)), nil
}

// SignerOf is ecrecover with the rules of today's tokens: no malleable twin, v 27 or 28.
func SignerOf(digest [32]byte, signature [65]byte) (common.Address, error) {
	r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:64])
	v := signature[64] - 27
	if !crypto.ValidateSignatureValues(v, r, s, true) {
		return common.Address{}, fmt.Errorf("%w: r, s or v out of range", ErrSignature)
	}
	signature[64] = v
	key, err := crypto.SigToPub(digest[:], signature[:])
	if err != nil {
		return common.Address{}, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return crypto.PubkeyToAddress(*key), nil
}

func internal(what string, cause error) *x402.Error {
	return &x402.Error{Code: x402.Internal, Message: what, Err: cause}
}
