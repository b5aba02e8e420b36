package sandbox

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// maxWire is the longest Solana transaction: what fits an IPv6 packet.
const maxWire = 1232

var errWire = errors.New("not a transaction")

// wireTx is a Solana transaction, read from its bytes: legacy or version 0, without lookup tables.
type wireTx struct {
	signatures [][]byte
	message    []byte
	versioned  bool

	signers, readonlySigners, readonlyOthers int

	keys         []key
	blockhash    key
	instructions []wireInstruction
}

type wireInstruction struct {
	program  key
	accounts []int // indexes into keys
	data     []byte
}

func decodeTransaction(base64Text string) (*wireTx, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(base64Text)
	if err != nil || len(raw) > maxWire {
		return nil, errWire
	}
	return parseTransaction(raw)
}

func parseTransaction(raw []byte) (*wireTx, error) {
	r := &wireReader{rest: raw}
	tx := &wireTx{}
	for range r.length() {
		tx.signatures = append(tx.signatures, r.take(ed25519.SignatureSize))
	}
	tx.message = r.rest
	if first := r.peek(); first&0x80 != 0 {
		tx.versioned = true
		if r.byte() != 0x80 {
			return nil, errWire // a version after 0
		}
	}
	tx.signers, tx.readonlySigners, tx.readonlyOthers = int(r.byte()), int(r.byte()), int(r.byte())
	for range r.length() {
		tx.keys = append(tx.keys, key(r.take(32)))
	}
	tx.blockhash = key(r.take(32))
	for range r.length() {
		tx.instructions = append(tx.instructions, r.instruction(tx.keys))
	}
	if tx.versioned && r.length() != 0 {
		return nil, errWire // lookup tables: what they hold is not in the transaction
	}
	if r.broken || len(r.rest) != 0 || !tx.sane() {
		return nil, errWire
	}
	return tx, nil
}

// sane is what a validator's sanitize checks.
func (tx *wireTx) sane() bool {
	seen := map[key]bool{}
	for _, k := range tx.keys {
		if seen[k] {
			return false
		}
		seen[k] = true
	}
	return tx.signers > 0 && len(tx.signatures) == tx.signers && tx.readonlySigners < tx.signers &&
		tx.signers+tx.readonlyOthers <= len(tx.keys)
}

func (tx *wireTx) isSigner(i int) bool { return i < tx.signers }

func (tx *wireTx) isWritable(i int) bool {
	if tx.isSigner(i) {
		return i < tx.signers-tx.readonlySigners
	}
	return i < len(tx.keys)-tx.readonlyOthers
}

// signed reports whether the i-th required signature is there and good.
func (tx *wireTx) signed(i int) bool {
	return ed25519.Verify(tx.keys[i][:], tx.message, tx.signatures[i])
}

func (tx *wireTx) bytes() []byte {
	raw := []byte{byte(len(tx.signatures))}
	for _, s := range tx.signatures {
		raw = append(raw, s...)
	}
	return append(raw, tx.message...)
}

// wireReader takes bytes off the front; after the first that is missing, everything is zero and
// broken is set.
type wireReader struct {
	rest   []byte
	broken bool
}

func (r *wireReader) take(n int) []byte {
	if n > len(r.rest) {
		r.broken, r.rest = true, nil
		return make([]byte, n)
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *wireReader) byte() byte { return r.take(1)[0] }

func (r *wireReader) peek() byte {
	if len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

// length reads a compact-u16, in its shortest form only.
func (r *wireReader) length() int {
	n := 0
	for shift := 0; shift < 21; shift += 7 {
		b := r.byte()
		n |= int(b&0x7f) << shift
		if b&0x80 == 0 {
			if (b == 0 && shift > 0) || n > len(r.rest) {
				break
			}
			return n
		}
	}
	r.broken = true
	return 0
}

func (r *wireReader) instruction(keys []key) (ix wireInstruction) {
	index := func() int {
		i := int(r.byte())
		if i >= len(keys) {
			r.broken = true
			return 0
		}
		return i
	}
	if program := index(); program < len(keys) {
		ix.program = keys[program]
	}
	for range r.length() {
		ix.accounts = append(ix.accounts, index())
	}
	ix.data = r.take(r.length())
	return ix
}

// u64 reads eight little-endian bytes.
func u64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
