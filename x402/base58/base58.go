// Package base58 writes and reads the numbers of Solana and of did:key: Bitcoin's alphabet, the highest
// digit first, and a 1 in front for each byte of zero that the data begins with. It is for what is public:
// nothing here is wiped, nor takes the same time for all data.
package base58

import (
	"bytes"
	"slices"
	"strings"
)

const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// So many digits are worked on at once: the most of which any number, times 256, is below 2^64.
const (
	group    = 9
	ofGroups = 58 * 58 * 58 * 58 * 58 * 58 * 58 * 58 * 58 // 58^group
)

// Encode writes data, which must be short: it takes the square of its length.
func Encode(data []byte) string {
	rest := bytes.Clone(bytes.TrimLeft(data, "\x00"))
	zeros := len(data) - len(rest)
	text := make([]byte, 0, len(data)*138/100+group) // log 256 / log 58 < 1.38
	for len(rest) > 0 {
		var digits uint64 // the lowest of rest
		for i, b := range rest {
			digits = digits<<8 | uint64(b)
			rest[i] = byte(digits / ofGroups)
			digits %= ofGroups
		}
		for range group {
			text = append(text, alphabet[digits%58])
			digits /= 58
		}
		rest = bytes.TrimLeft(rest, "\x00")
	}
	text = bytes.TrimRight(text, alphabet[:1]) // in front of the highest digit
	for range zeros {
		text = append(text, alphabet[0])
	}
	slices.Reverse(text)
	return string(text)
}

// Decode reads exactly size bytes in their one spelling; nil: the text is none. A text that is too long
// for that is not looked at.
func Decode(text string, size int) []byte {
	if len(text) > size*138/100+1 {
		return nil
	}
	data := make([]byte, size)
	for rest := text; rest != ""; {
		next := rest[:min(group, len(rest))]
		rest = rest[len(next):]
		var carry, scale uint64 = 0, 1
		for i := range len(next) {
			digit := strings.IndexByte(alphabet, next[i])
			if digit < 0 {
				return nil
			}
			carry, scale = carry*58+uint64(digit), scale*58
		}
		for i := size - 1; i >= 0; i-- { // data = data·scale + digits
			carry += uint64(data[i]) * scale
			data[i] = byte(carry)
			carry >>= 8
		}
		if carry != 0 {
			return nil
		}
	}
	ones := len(text) - len(strings.TrimLeft(text, alphabet[:1]))
	zeros := size - len(bytes.TrimLeft(data, "\x00"))
	if ones != zeros {
		return nil
	}
	return data
}
