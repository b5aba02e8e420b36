// Package curve signs with the keys of both chains, in constant time, and derives their addresses.
package curve

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"golang.org/x/crypto/sha3"

	"x402-wallet/wallet/internal/guarded"
)

func SolanaAddressOf(key ed25519.PrivateKey) string { return Base58(key[guarded.Size:]) }

func EVMAddressOf(public *secp256k1.PublicKey) string {
	return EVMAddress([20]byte(Keccak256(public.SerializeUncompressed()[1:])[12:]))
}

const base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// Base58 encodes with Bitcoin's alphabet, a leading 1 for each leading zero byte.
func Base58(data []byte) string {
	digits := make([]byte, 0, len(data)*138/100+1) // little endian; log 256 / log 58 < 1.38
	for _, b := range data {
		carry := int(b)
		for i := range digits {
			carry += int(digits[i]) << 8
			digits[i] = byte(carry % 58)
			carry /= 58
		}
		for ; carry > 0; carry /= 58 {
			digits = append(digits, byte(carry%58))
		}
	}
	var out strings.Builder
	for i := 0; i < len(data) && data[i] == 0; i++ {
		out.WriteByte(base58Alphabet[0])
	}
	for i := len(digits) - 1; i >= 0; i-- {
		out.WriteByte(base58Alphabet[digits[i]])
	}
	return out.String()
}

// Unbase58 decodes base58 of exactly size bytes in its one right spelling, or
// returns nil. It makes no copy of what it reads that it does not return.
func Unbase58[T ~string | ~[]byte](text T, size int) []byte {
	if len(text) > size*138/100+1 {
		return nil
	}
	out := make([]byte, size+1) // big endian; the first byte catches the overflow
	for i := range len(text) {
		carry := strings.IndexByte(base58Alphabet, text[i])
		for j := len(out) - 1; j >= 0 && carry >= 0; j-- {
			carry += int(out[j]) * 58
			out[j] = byte(carry)
			carry >>= 8
		}
		if carry != 0 || out[0] != 0 {
			clear(out)
			return nil
		}
	}
	ones, zeros := 0, 1 // out[0] is no byte of the answer
	for ones < len(text) && text[ones] == base58Alphabet[0] {
		ones++
	}
	for zeros < len(out) && out[zeros] == 0 {
		zeros++
	}
	if ones != zeros-1 {
		clear(out)
		return nil
	}
	return out[1:]
}

// IsSolanaAddress reports whether s is base58 of exactly 32 bytes.
func IsSolanaAddress(s string) bool { return Unbase58(s, 32) != nil }

// EVMAddress turns the last 20 bytes of a Keccak-256 hash into 0x… with the capitals of EIP-55.
func EVMAddress(account [20]byte) string {
	text := []byte(hex.EncodeToString(account[:]))
	sum := Keccak256(text)
	for i, c := range text {
		nibble := sum[i/2] >> (4 * (1 - i%2)) & 0xf
		if c >= 'a' && nibble >= 8 {
			text[i] = c - 'a' + 'A'
		}
	}
	return "0x" + string(text)
}

// IsEVMAddress reports whether s is an address with a right EIP-55 checksum.
func IsEVMAddress(s string) bool {
	word := AddressWord(s)
	return word != nil && EVMAddress([20]byte(word[12:])) == s
}

func Keccak256(data []byte) []byte {
	h := sha3.NewLegacyKeccak256()
	h.Write(data)
	return h.Sum(nil)
}

// AddressWord reads an address in any letter case into its 32 bytes, or returns nil.
func AddressWord(text string) []byte {
	if len(text) != 42 || text[:2] != "0x" {
		return nil
	}
	word := make([]byte, 32)
	if _, err := hex.Decode(word[12:], []byte(text[2:])); err != nil {
		return nil
	}
	return word
}

func HashWords(list ...[]byte) []byte { return Keccak256(slices.Concat(list...)) }

func UintWord(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24, 32), n) }
