package x402

import "github.com/mr-tron/base58"

// DecodeBase58 reads exactly size bytes in their one spelling. It returns nil if the text is anything else. A
// text that is too long for so many bytes is not decoded, because that takes the square of its length.
func DecodeBase58(text string, size int) []byte {
	if len(text) > size*138/100+1 { // log 256 / log 58 < 1.38
		return nil
	}
	data, err := base58.Decode(text)
	if err != nil || len(data) != size {
		return nil
	}
	return data
}
