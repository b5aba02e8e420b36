package wallet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
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

// DelegationChange is what an owner means to sign. Addresses are base58.
type DelegationChange struct {
	Account, Program string
	Mint, Delegate   string // "" both: the delegation is revoked
	Amount           uint64
	Decimals         uint8
}

// SignDelegation signs the message of a transaction that is read here and found to be exactly what
// is meant: version 0, the owner as its only signer, one instruction, ApproveChecked or Revoke,
// nothing else; any other is refused. i is the key of the account's owner, from their own file and
// never stored; the wallet's own key signs no such message.
func (i Imported) SignDelegation(message []byte, meant DelegationChange) (sig [64]byte, err error) {
	if i.secret == nil || i.Chain != ChainSolana {
		return sig, unsupported("it takes the owner's Solana key")
	}
	key := ed25519.NewKeyFromSeed(i.secret[:])
	defer clear(key)
	if err := checkDelegation(message, key[secretSize:], meant); err != nil {
		return sig, err
	}
	return signEd25519(key, message)
}

// signEd25519 verifies what it signed, as [signer] does: two signatures of one message, of which one
// is faulty, tell the key.
func signEd25519(key ed25519.PrivateKey, message []byte) (sig [64]byte, err error) {
	raw := ed25519.Sign(key, message)
	if !ed25519.Verify(ed25519.PublicKey(key[secretSize:]), message, raw) {
		return sig, errFaulty
	}
	return [64]byte(raw), nil
}

func checkDelegation(message, owner []byte, meant DelegationChange) error {
	m, err := readSolanaMessage(message)
	if err != nil {
		return err
	}
	if m.signers != 1 || m.readonlySigners != 0 || len(m.keys) == 0 || !bytes.Equal(m.keys[0], owner) {
		return unsupported("the owner is not its only signer")
	}
	if len(m.instructions) != 1 {
		return unsupported("it is not one instruction")
	}
	in := m.instructions[0]
	isTokenProgram := in.program == tokenProgram || in.program == token2022Program
	if in.program != meant.Program || !isTokenProgram {
		return unsupported("it names the program %s", in.program)
	}
	data, accounts := meant.instruction(base58(owner))
	if !bytes.Equal(in.data, data) || len(in.accounts) != len(accounts) {
		return unsupported("it is not the change that is meant")
	}
	for i, at := range in.accounts {
		if base58(m.keys[at]) != accounts[i] {
			return unsupported("its account %d is not the one that is meant", i)
		}
	}
	return nil
}

// instruction is the data and the accounts of c: Revoke of source and owner, or ApproveChecked of
// source, mint, delegate and owner.
func (c DelegationChange) instruction(owner string) (data []byte, accounts []string) {
	if c.Delegate == "" {
		return []byte{5}, []string{c.Account, owner}
	}
	data = append(binary.LittleEndian.AppendUint64([]byte{13}, c.Amount), c.Decimals)
	return data, []string{c.Account, c.Mint, c.Delegate, owner}
}
