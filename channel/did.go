package channel

import (
	"crypto/sha3"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"x402-wallet/x402"
)

// account is a Rooch account: 32 bytes, written as did:rooch:<bech32m> where it has a DID.
type account [32]byte

// objectID names an object on Rooch.
type objectID [32]byte

// didPrefix is what the DID of a Rooch account begins with.
const didPrefix = "did:rooch:"

// parseDID reads a did:rooch. Other methods have no account on Rooch, and so no channel (reference:
// nuwa §8).
func parseDID(did string) (a account, err error) {
	text, ok := strings.CutPrefix(did, didPrefix)
	if !ok {
		return a, x402.Errorf(x402.InvalidRequirement,
			"%s is no did:rooch: only those have payment channels", x402.Quote(did))
	}
	payload, err := bech32m(text)
	if err != nil || len(payload) != len(a) {
		return a, x402.Errorf(x402.InvalidRequirement, "%s is no account on Rooch", x402.Quote(did))
	}
	return account(payload), nil
}

// did is the account's name.
func (a account) did() string { return didPrefix + a.identifier() }

// identifier is the DID without its method, as the chain's documents have it.
func (a account) identifier() string { return toBech32m(a[:]) }

// String is 0x and hex, as Rooch's nodes write accounts.
func (a account) String() string { return "0x" + hex.EncodeToString(a[:]) }

// String is 0x and hex.
func (id objectID) String() string { return "0x" + hex.EncodeToString(id[:]) }

// parseObjectID reads 0x and 64 hex digits.
func parseObjectID(s string) (id objectID, err error) {
	text, ok := strings.CutPrefix(s, "0x")
	if !ok || len(text) != hex.EncodedLen(len(id)) {
		return objectID{}, fmt.Errorf("%s is no object's id", x402.Quote(s))
	}
	if _, err := hex.Decode(id[:], []byte(text)); err != nil {
		return objectID{}, fmt.Errorf("%s is no object's id", x402.Quote(s))
	}
	return id, nil
}

// coinRGas is the one asset that services price in (payment-kit 0.7.0), as the wire and the registry
// write it. In the bytes that an object's id is made of it is canonicalRGas, with all the zeros.
const coinRGas = "0x3::gas_coin::RGas"

// Rooch's packages.
const (
	framework = "0x0000000000000000000000000000000000000000000000000000000000000003"
	// moveos is where accounts are.
	moveos = "0x0000000000000000000000000000000000000000000000000000000000000002"

	canonicalRGas = framework + "::gas_coin::RGas"
)

// isRGas accepts the asset with or without its zeros.
func isRGas(asset string) bool {
	address, rest, _ := strings.Cut(asset, "::")
	digits, ok := strings.CutPrefix(address, "0x")
	return ok && len(digits) <= 64 && strings.TrimLeft(digits, "0") == "3" && rest == "gas_coin::RGas"
}

// objectOf is the id of an object that the chain names by a key and a type:
// SHA3-256(bcs(key) ‖ type).
func objectOf(key []byte, module, name string) objectID {
	return sha3.Sum256(append(key, framework+"::"+module+"::"+name...))
}

// idOfChannel is the channel from one account to another, in RGas: there is one at most, and its id
// is known before it is open.
func idOfChannel(payer, payee account) objectID {
	key := encodeBCS(struct {
		Payer, Payee account
		Coin         string
	}{payer, payee, canonicalRGas})
	return objectOf(key, "payment_channel", "PaymentChannel")
}

// hubOf is where an account's deposits for all of its channels lie.
func hubOf(owner account) objectID { return objectOf(owner[:], "payment_channel", "PaymentHub") }

// documentOf is an account's DID document.
func documentOf(a account) objectID { return objectOf(encodeBCS(a.identifier()), "did", "DIDDocument") }

// fieldKey names an entry of a table whose keys are strings.
func fieldKey(name string) objectID {
	const stringType = "0x0000000000000000000000000000000000000000000000000000000000000001::string::String"
	return sha3.Sum256(append(encodeBCS(name), stringType...))
}

// bech32m is BIP 350 without the limit of 90 characters, lower case, for the one human readable
// part.

const (
	humanPart      = "rooch"
	bech32Alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
	bech32mFinal   = 0x2bc830a3
	checksumLength = 6
)

func polymod(values []byte) uint32 {
	sum := uint32(1)
	for _, v := range values {
		top := sum >> 25
		sum = sum&0x1ffffff<<5 ^ uint32(v)
		for i, g := range [5]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				sum ^= g
			}
		}
	}
	return sum
}

// expanded is the human readable part as the checksum reads it.
func expanded() (values []byte) {
	for _, c := range []byte(humanPart) {
		values = append(values, c>>5)
	}
	values = append(values, 0)
	for _, c := range []byte(humanPart) {
		values = append(values, c&31)
	}
	return values
}

func toBech32m(payload []byte) string {
	values := regroup(payload, 8, 5, true)
	padded := append(append(expanded(), values...), make([]byte, checksumLength)...)
	sum := polymod(padded) ^ bech32mFinal
	for i := range checksumLength {
		values = append(values, byte(sum>>(5*(checksumLength-1-i)))&31)
	}
	text := []byte(humanPart + "1")
	for _, v := range values {
		text = append(text, bech32Alphabet[v])
	}
	return string(text)
}

var errBech32m = errors.New("not bech32m")

func bech32m(text string) ([]byte, error) {
	data, ok := strings.CutPrefix(text, humanPart+"1")
	if !ok || len(data) < checksumLength || len(data) > 200 {
		return nil, errBech32m
	}
	values := make([]byte, len(data))
	for i := range len(data) {
		v := strings.IndexByte(bech32Alphabet, data[i])
		if v < 0 {
			return nil, errBech32m
		}
		values[i] = byte(v)
	}
	if polymod(append(expanded(), values...)) != bech32mFinal {
		return nil, errBech32m
	}
	payload := regroup(values[:len(values)-checksumLength], 5, 8, false)
	if payload == nil || toBech32m(payload) != text { // bits behind the end
		return nil, errBech32m
	}
	return payload, nil
}

// regroup turns groups of from bits into groups of to bits.
func regroup(in []byte, from, to uint, pad bool) (out []byte) {
	var bits uint
	var value uint32
	for _, b := range in {
		value = value<<from | uint32(b)
		bits += from
		for bits >= to {
			bits -= to
			out = append(out, byte(value>>bits)&byte(1<<to-1))
		}
		value &= 1<<bits - 1
	}
	if pad && bits > 0 {
		out = append(out, byte(value<<(to-bits))&byte(1<<to-1))
	}
	return out
}
