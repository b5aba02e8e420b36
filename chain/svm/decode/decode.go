// Package decode reads payments on Solana from their very bytes: a transaction, or the message of one that
// nobody has signed yet.
//
// What must stay true: it shares no code with package svm, which builds payments, nor with solana-go, by
// which they are built. So whoever compares a message with the order before it is signed does not ask the
// builder what it built.
//
// The files: decode.go (the transaction), account.go (the token account that belongs to a payee).
package decode

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/mr-tron/base58"

	"x402-wallet/x402/money"
)

// Transfer is a payment transaction, read.
type Transfer struct {
	FeePayer string
	Signers  [2]struct { // in the message's order: the fee payer, the authority
		Address   string
		Signature string // base58; "" while nobody signed: 64 zero bytes
		Verified  bool   // it is the address's Ed25519 signature of the message
	}
	Token2022           bool // the mint's program: Token-2022 or SPL Token
	Mint                string
	Source, Destination string       // token accounts
	Authority           string       // who may take from Source: its owner or its delegate
	Amount              money.Amount // atomic units, at most 2^64-1
	Decimals            uint8
	HasMemo             bool
	Memo                string // UTF-8; a stranger's text, unless it is ours
	UnitLimit           uint32 // compute units
	UnitPrice           uint64 // micro-lamports per unit
	Blockhash           string
	Message             []byte // what is signed
}

// ErrLayout says that a transaction is not a payment in the one layout that is read.
var ErrLayout = errors.New("not an exact payment transaction")

// Programs that a payment is made of.
const (
	computeBudget  = "ComputeBudget111111111111111111111111111111"
	memoProgram    = "MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr"
	splProgram     = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"
	spl2022Program = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb"
)

// Instruction numbers of the compute-budget and token programs.
const (
	opUnitLimit       = 2
	opUnitPrice       = 3
	opTransferChecked = 12
)

// maxTransaction is the size of Solana's packets, the limit for a transaction, in bytes.
const maxTransaction = 1232

// Rules widen what is read.
type Rules struct {
	// AnyBudgetOrder reads SetComputeUnitPrice before SetComputeUnitLimit, too, as @solana/mpp 0.6 writes
	// them.
	AnyBudgetOrder bool
}

// Transaction reads a transaction by no further rules.
func Transaction(txBase64 string) (Transfer, error) { return Rules{}.Transaction(txBase64) }

// Transaction reads a transaction in base64, strictly: version 0, exactly the signers fee payer and
// authority, no lookup tables, the instructions SetComputeUnitLimit, SetComputeUnitPrice,
// TransferChecked and at most a Memo in this order, each with exactly the accounts, flags and data it
// takes, no account beyond those, numbers in their shortest form and nothing behind the end
// (specs/schemes/exact/scheme_exact_svm.md; the optional Lighthouse instructions of other wallets are
// not read). Signatures may be missing or wrong: see Signers. Every error is ErrLayout with the reason.
func (rules Rules) Transaction(txBase64 string) (Transfer, error) {
	if len(txBase64) > base64.StdEncoding.EncodedLen(maxTransaction) {
		return Transfer{}, layout("more than %d bytes", maxTransaction)
	}
	wire, err := base64.StdEncoding.Strict().DecodeString(txBase64)
	if err != nil || base64.StdEncoding.EncodeToString(wire) != txBase64 { // Go's decoder skips line breaks
		return Transfer{}, layout("not base64")
	}
	r := reader{data: wire}
	count := r.compact()
	if count != 2 {
		return Transfer{}, layout("%d signatures", count)
	}
	signatures := [2][64]byte{[64]byte(r.take(64)), [64]byte(r.take(64))}
	if r.truncated || len(wire) > maxTransaction {
		return Transfer{}, layout("cut off or too long")
	}
	t, signers, err := rules.decodeMessage(wire[r.at:])
	if err != nil {
		return Transfer{}, err
	}
	for i, key := range signers {
		t.Signers[i].Address = key.String()
		if signature := signatures[i]; signature != [64]byte{} {
			t.Signers[i].Signature = base58.Encode(signature[:])
			t.Signers[i].Verified = ed25519.Verify(key[:], t.Message, signature[:])
		}
	}
	return t, nil
}

// Message reads what is signed of such a transaction, as strictly.
func Message(message []byte) (Transfer, error) {
	wire := slices.Concat([]byte{2}, make([]byte, 2*64), message) // two signatures that nobody has made yet
	return Transaction(base64.StdEncoding.EncodeToString(wire))
}

func layout(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLayout, fmt.Sprintf(format, args...))
}

// publicKey is an address: an Ed25519 key, or 32 bytes that are none.
type publicKey [32]byte

func (k publicKey) String() string { return base58.Encode(k[:]) }

// message is the head of a version 0 message: who takes part, and how.
type message struct {
	// signers first, in both parts the writable ones first
	keys                               []publicKey
	signers, readonlySigners, readonly int
	used                               map[int]bool // by the instructions read so far
}

func (m message) writable(i int) bool {
	if i < m.signers {
		return i < m.signers-m.readonlySigners
	}
	return i < len(m.keys)-m.readonly
}

// decodeMessage reads a version 0 message and the keys of its two signers.
func (rules Rules) decodeMessage(data []byte) (t Transfer, signers [2]publicKey, err error) {
	r := reader{data: data}
	m, err := r.head()
	if err != nil {
		return t, signers, err
	}
	signers = [2]publicKey(m.keys)
	t.Message, t.FeePayer, t.Blockhash = data, m.keys[0].String(), base58.Encode(r.take(32))
	count := r.compact()
	if count != 3 && count != 4 {
		return t, signers, layout("%d instructions", count)
	}
	list := make([]instruction, count)
	for i := range list {
		list[i], err = r.instruction(m)
		if err != nil {
			return t, signers, err
		}
	}
	if rules.AnyBudgetOrder && list[0].isComputeBudget(opUnitPrice, 8) {
		list[0], list[1] = list[1], list[0]
	}
	for i, in := range list {
		if err := t.readInstruction(i, in, m); err != nil {
			return t, signers, err
		}
	}
	switch tables := r.compact(); {
	case r.truncated || r.at != len(data):
		return t, signers, layout("cut off, or something behind its end")
	case tables != 0:
		return t, signers, layout("it uses address lookup tables")
	case len(m.used) != len(m.keys):
		return t, signers, layout("it names accounts that it does not use")
	}
	return t, signers, nil
}

// head reads up to the keys.
func (r *reader) head() (m message, err error) {
	if r.byte() != 0x80 {
		return m, layout("not a version 0 message")
	}
	m.signers, m.readonlySigners, m.readonly = int(r.byte()), int(r.byte()), int(r.byte())
	m.used = map[int]bool{0: true} // the fee payer
	for range r.compact() {
		m.keys = append(m.keys, publicKey(r.take(32)))
		if r.truncated {
			return m, layout("cut off")
		}
	}
	if m.signers != 2 || m.readonlySigners != 1 || m.readonly > len(m.keys)-m.signers {
		return m, layout("other signers than a fee payer and an authority")
	}
	seen := map[publicKey]bool{}
	for _, key := range m.keys {
		seen[key] = true
	}
	if len(seen) != len(m.keys) {
		return m, layout("the same account twice")
	}
	return m, nil
}

// instruction is one of a message's: indexes into its keys.
type instruction struct {
	program  string // base58
	accounts []int
	data     []byte
}

// readInstruction reads the i-th instruction, which has to be the one that belongs there.
func (t *Transfer) readInstruction(i int, in instruction, m message) error {
	switch i {
	case 0:
		if !in.isComputeBudget(opUnitLimit, 4) {
			return layout("instruction 0 is not SetComputeUnitLimit")
		}
		t.UnitLimit = binary.LittleEndian.Uint32(in.data[1:])
	case 1:
		if !in.isComputeBudget(opUnitPrice, 8) {
			return layout("instruction 1 is not SetComputeUnitPrice")
		}
		t.UnitPrice = binary.LittleEndian.Uint64(in.data[1:])
	case 2:
		return t.readTransfer(in, m)
	case 3:
		if in.program != memoProgram || len(in.accounts) != 0 || !utf8.Valid(in.data) {
			return layout("instruction 3 is not a Memo of UTF-8 without signers")
		}
		t.HasMemo = true
		t.Memo = string(in.data)
	}
	return nil
}

// isComputeBudget reports whether it is op of the compute budget program, with a number of so many
// bytes and no accounts.
func (in instruction) isComputeBudget(op byte, size int) bool {
	return in.program == computeBudget && len(in.accounts) == 0 && len(in.data) == 1+size && in.data[0] == op
}

// readTransfer reads TransferChecked: [12, amount u64, decimals] with source, mint, destination, authority.
func (t *Transfer) readTransfer(in instruction, m message) error {
	if (in.program != splProgram && in.program != spl2022Program) || len(in.accounts) != 4 ||
		len(in.data) != 10 || in.data[0] != opTransferChecked {
		return layout("instruction 2 is not TransferChecked of a token program")
	}
	source, mint, destination, authority := in.accounts[0], in.accounts[1], in.accounts[2], in.accounts[3]
	switch {
	case authority != 1:
		return layout("the transfer's authority is not the second signer")
	case source < 2 || mint < 2 || destination < 2:
		return layout("a signer takes part in the transfer") // the fee payer pays the fee and nothing else
	case source == destination || !m.writable(source) || !m.writable(destination) || m.writable(mint):
		return layout("the transfer's accounts have other roles")
	}
	t.Token2022 = in.program == spl2022Program
	t.Source = m.keys[source].String()
	t.Mint = m.keys[mint].String()
	t.Destination = m.keys[destination].String()
	t.Authority = m.keys[authority].String()
	t.Amount = money.NewAmount(binary.LittleEndian.Uint64(in.data[1:]))
	t.Decimals = in.data[9]
	return nil
}

// reader reads with checked bounds. After the first step over the end, or a number that is not in
// its shortest form, truncated is set and every answer is zero.
type reader struct {
	data      []byte
	at        int
	truncated bool
}

func (r *reader) take(n int) []byte {
	if r.truncated || len(r.data)-r.at < n {
		r.truncated = true
		return make([]byte, n) // n is at most 65535: a compact-u16
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *reader) byte() byte { return r.take(1)[0] }

// compact reads Solana's compact-u16 ("short vec"), in its shortest form only: 7 bits a byte,
// the lowest first.
func (r *reader) compact() int {
	n := 0
	for shift := 0; shift < 21; shift += 7 {
		b := r.byte()
		n |= int(b&0x7f) << shift
		if b&0x80 == 0 {
			notShortest := b == 0 && shift > 0
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

// instruction reads the next one and resolves what it names.
func (r *reader) instruction(m message) (in instruction, err error) {
	program := int(r.byte())
	indexes := r.take(r.compact())
	in.data = r.take(r.compact())
	if r.truncated || program >= len(m.keys) || m.writable(program) {
		return in, layout("an instruction is cut off, or its program is no program")
	}
	in.program, m.used[program] = m.keys[program].String(), true
	for _, index := range indexes {
		if int(index) >= len(m.keys) {
			return in, layout("an instruction names an account that is not there")
		}
		m.used[int(index)] = true
		in.accounts = append(in.accounts, int(index))
	}
	return in, nil
}
