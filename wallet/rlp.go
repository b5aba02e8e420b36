package wallet

import (
	"bytes"
	"encoding/binary"
	"slices"

	"x402-wallet/wallet/internal/curve"
)

// Recursive Length Prefix (yellow paper, appendix B), as far as a transaction needs it. It shares no code
// with what made the transaction.

func rlpNumber(word []byte) []byte { return rlpString(bytes.TrimLeft(word, "\x00")) }

func rlpString(b []byte) []byte {
	if len(b) == 1 && b[0] < 0x80 {
		return b
	}
	return append(rlpLength(0x80, len(b)), b...)
}

func rlpList(items ...[]byte) []byte {
	all := slices.Concat(items...)
	return append(rlpLength(0xc0, len(all)), all...)
}

func rlpLength(kind byte, n int) []byte {
	if n < 56 {
		return []byte{kind + byte(n)}
	}
	length := bytes.TrimLeft(binary.BigEndian.AppendUint64(nil, uint64(n)), "\x00")
	return append([]byte{kind + 55 + byte(len(length))}, length...)
}

// EncodeTransaction is what is hashed and signed of a transaction of EIP-1559 that moves no coin; to is 20
// bytes, or nil where it makes a contract.
func EncodeTransaction(chainID, nonce, gas uint64, tip, maxFee [32]byte, to, data []byte) []byte {
	return append([]byte{2}, rlpList(
		rlpNumber(curve.UintWord(chainID)), rlpNumber(curve.UintWord(nonce)), rlpNumber(tip[:]),
		rlpNumber(maxFee[:]),
		rlpNumber(curve.UintWord(gas)), rlpString(to), rlpString(nil), rlpString(data), rlpList())...)
}
