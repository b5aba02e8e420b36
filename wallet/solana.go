package wallet

import (
	"crypto/ed25519"
)

// maxSolanaMessage is the size of Solana's packets, in bytes.
const maxSolanaMessage = 1232

// solanaMessage is a version 0 message without lookup tables, read from its very bytes.
type solanaMessage struct {
	signers, readonlySigners byte
	keys                     [][]byte // the signers' first
	instructions             []solanaInstruction
}

// solanaInstruction is one instruction. Its accounts are indexes into the message's keys; each is in range.
type solanaInstruction struct {
	program  string // base58
	accounts []byte
	data     []byte
}

// readSolanaMessage reads a message strictly: nothing is left out, and nothing may stand behind its
// end. Errors: errUnsupported.
func readSolanaMessage(message []byte) (m solanaMessage, err error) {
	if len(message) > maxSolanaMessage {
		return m, unsupported("it is longer than %d bytes", maxSolanaMessage)
	}
	r := solanaReader{byteReader: byteReader{rest: message}}
	version := r.byte()
	m.signers = r.byte()
	m.readonlySigners = r.byte()
	_ = r.byte() // how many of the other accounts are read only: the token program sees to that itself
	for range r.count() {
		m.keys = append(m.keys, r.take(ed25519.PublicKeySize))
	}
	_ = r.take(ed25519.PublicKeySize) // the blockhash
	if r.truncated || version != 0x80 {
		return m, unsupported("it is not a version 0 message")
	}
	for range r.count() {
		in, err := r.instruction(m.keys)
		if err != nil {
			return m, err
		}
		m.instructions = append(m.instructions, in)
	}
	if tables := r.count(); r.truncated || tables != 0 || len(r.rest) != 0 {
		return m, unsupported("it is cut off, uses lookup tables, or something stands behind its end")
	}
	return m, nil
}

// byteReader reads the pieces of a message. Once it met the end too early, truncated is set and
// every answer is zero.
type byteReader struct {
	rest      []byte
	truncated bool
}

func (r *byteReader) take(n int) []byte {
	if n > len(r.rest) {
		r.rest, r.truncated = nil, true
		return make([]byte, n) // at most 65535: a count; the other sizes are ours
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *byteReader) byte() byte { return r.take(1)[0] }

// solanaReader reads Solana's encoding.
type solanaReader struct{ byteReader }

func (r *solanaReader) instruction(keys [][]byte) (in solanaInstruction, err error) {
	program := int(r.byte())
	in.accounts = r.take(r.count())
	in.data = r.take(r.count())
	if r.truncated || program >= len(keys) {
		return in, unsupported("it is cut off")
	}
	for _, account := range in.accounts {
		if int(account) >= len(keys) {
			return in, unsupported("an instruction names an account that is not there")
		}
	}
	in.program = base58(keys[program])
	return in, nil
}

// count is Solana's compact-u16, in its shortest form; 0 once the reader is truncated.
func (r *solanaReader) count() int {
	n := 0
	for shift := 0; shift < 21; shift += 7 {
		b := r.byte()
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			notShortest := shift > 0 && b == 0
			r.truncated = r.truncated || notShortest || n > 0xffff
			break
		}
		r.truncated = r.truncated || shift == 14
	}
	if r.truncated {
		return 0
	}
	return n
}
