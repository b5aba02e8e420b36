package nuwa

import (
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"x402-wallet/x402"
)

// account is a Rooch account: 32 bytes, written as did:rooch:<bech32m> where it has a DID.
type account [32]byte

// objectID names an object on Rooch.
type objectID [32]byte

const didPrefix = "did:rooch:"

// parseDID reads a did:rooch. Other methods have no account on Rooch, and so no channel.
func parseDID(did string) (account, error) {
	text, ok := strings.CutPrefix(did, didPrefix)
	if !ok {
		return account{}, x402.Errorf(x402.InvalidRequirement,
			"%s is no did:rooch: only those have payment channels", x402.Quote(did))
	}
	a, ok := parseBech32m(text)
	if !ok {
		return account{}, x402.Errorf(x402.InvalidRequirement, "%s is no account on Rooch", x402.Quote(did))
	}
	return a, nil
}

// did is the account's name.
func (a account) did() string { return didPrefix + a.bech32m() }

// String is 0x and hex, as Rooch's nodes write accounts.
func (a account) String() string { return "0x" + hex.EncodeToString(a[:]) }

// String is 0x and hex.
func (id objectID) String() string { return "0x" + hex.EncodeToString(id[:]) }

func parseObjectID(s string) (objectID, error) {
	text, ok := strings.CutPrefix(s, "0x")
	id, err := hex.DecodeString(text)
	if !ok || err != nil || len(id) != len(objectID{}) {
		return objectID{}, fmt.Errorf("%s is no object's id", x402.Quote(s))
	}
	return objectID(id), nil
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
func documentOf(a account) objectID { return objectOf(encodeBCS(a.bech32m()), "did", "DIDDocument") }

// fieldKey names an entry of a table whose keys are strings.
func fieldKey(name string) objectID {
	const stringType = "0x0000000000000000000000000000000000000000000000000000000000000001::string::String"
	return sha3.Sum256(append(encodeBCS(name), stringType...))
}

const (
	humanPart      = "rooch1"
	bech32Alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
	bech32mFinal   = 0x2bc830a3
	checksumLength = 6
)

// expandedHumanPart is "rooch" as the checksum reads it: its letters' high bits, 0, their low bits.
var expandedHumanPart = []byte{3, 3, 3, 3, 3, 0, 18, 15, 15, 3, 8}

// bech32m is the DID without its method, as the chain's documents have it: BIP 350, in lower case,
// for the one human readable part.
func (a account) bech32m() string {
	values := regroup(a[:], 8, 5, true)
	sum := polymod(slices.Concat(expandedHumanPart, values, make([]byte, checksumLength))) ^ bech32mFinal
	for i := range checksumLength {
		values = append(values, byte(sum>>(5*(checksumLength-1-i)))&31)
	}
	text := []byte(humanPart)
	for _, v := range values {
		text = append(text, bech32Alphabet[v])
	}
	return string(text)
}

// parseBech32m reads an account's one spelling. What it makes of wrong letters, a wrong checksum or
// bits behind the end is an account with another spelling.
func parseBech32m(text string) (a account, ok bool) {
	if len(text) != len(a.bech32m()) {
		return a, false
	}
	values := []byte(text[len(humanPart) : len(text)-checksumLength])
	for i, letter := range values {
		values[i] = byte(strings.IndexByte(bech32Alphabet, letter)) & 31
	}
	copy(a[:], regroup(values, 5, 8, false))
	return a, a.bech32m() == text
}

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
