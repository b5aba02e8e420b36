package wallet

import (
	"crypto/ed25519"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/piece"
)

// maxSolanaMessage is the size of Solana's packets, in bytes.
const maxSolanaMessage = 1232

// SolanaMessage is a version 0 message without lookup tables, read from its very bytes.
type SolanaMessage struct {
	Signers, ReadonlySigners byte
	Keys                     [][]byte // the signers' first
	Instructions             []SolanaInstruction
}

// SolanaInstruction is one instruction. Its accounts are indexes into the message's keys; each is in range.
type SolanaInstruction struct {
	Program  string // base58
	Accounts []byte
	Data     []byte
}

// ReadSolanaMessage reads a message strictly: nothing is left out, and nothing may stand behind its
// end. Errors: errUnsupported.
func ReadSolanaMessage(message []byte) (m SolanaMessage, err error) {
	if len(message) > maxSolanaMessage {
		return m, coded.Unsupported("it is longer than %d bytes", maxSolanaMessage)
	}
	r := solanaReader{Reader: piece.Reader{Rest: message}}
	version := r.Byte()
	m.Signers = r.Byte()
	m.ReadonlySigners = r.Byte()
	_ = r.Byte() // how many of the other accounts are read only: the token program sees to that itself
	for range r.count() {
		m.Keys = append(m.Keys, r.Take(ed25519.PublicKeySize))
	}
	_ = r.Take(ed25519.PublicKeySize) // the blockhash
	if r.Truncated || version != 0x80 {
		return m, coded.Unsupported("it is not a version 0 message")
	}
	for range r.count() {
		in, err := r.instruction(m.Keys)
		if err != nil {
			return m, err
		}
		m.Instructions = append(m.Instructions, in)
	}
	if tables := r.count(); r.Truncated || tables != 0 || len(r.Rest) != 0 {
		return m, coded.Unsupported("it is cut off, uses lookup tables, or something stands behind its end")
	}
	return m, nil
}

// solanaReader reads Solana's encoding.
type solanaReader struct{ piece.Reader }

func (r *solanaReader) instruction(keys [][]byte) (in SolanaInstruction, err error) {
	program := int(r.Byte())
	in.Accounts = r.Take(r.count())
	in.Data = r.Take(r.count())
	if r.Truncated || program >= len(keys) {
		return in, coded.Unsupported("it is cut off")
	}
	for _, account := range in.Accounts {
		if int(account) >= len(keys) {
			return in, coded.Unsupported("an instruction names an account that is not there")
		}
	}
	in.Program = curve.Base58(keys[program])
	return in, nil
}

// count is Solana's compact-u16, in its shortest form; 0 once the reader is truncated.
func (r *solanaReader) count() int {
	n := 0
	for shift := 0; shift < 21; shift += 7 {
		b := r.Byte()
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			notShortest := shift > 0 && b == 0
			r.Truncated = r.Truncated || notShortest || n > 0xffff
			break
		}
		r.Truncated = r.Truncated || shift == 14
	}
	if r.Truncated {
		return 0
	}
	return n
}
