package decode

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	theirs "github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

const nodesHash = "EZ3rST5dvHmbanh75jc4PuLfV96vp9fEYBVeNk4FfM1k"

// person is a key pair made of one byte: all test keys are public.
func person(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
}

func keyOf(p ed25519.PrivateKey) theirs.PublicKey {
	return theirs.PublicKey(p.Public().(ed25519.PublicKey))
}

var (
	owner, payer, seller = person(2), person(3), person(4)
	mint                 = theirs.MPK("4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU")
)

// draft is a transaction in parts, good as it comes; tests break one part each.
type draft struct {
	version                            byte
	signatures                         [][]byte
	signers, readonlySigners, readonly byte
	keys                               []theirs.PublicKey
	blockhash                          theirs.PublicKey
	instructions                       []draftInstruction
	tables                             []byte // compact count and what follows
}

type draftInstruction struct {
	program        byte
	accounts, data []byte
}

func newDraft() *draft {
	return &draft{
		version: 0x80, signatures: [][]byte{make([]byte, 64), make([]byte, 64)}, signers: 2,
		readonlySigners: 1, readonly: 4,
		keys: []theirs.PublicKey{keyOf(payer), keyOf(person(1)), keyOf(owner), keyOf(seller), mint,
			theirs.ComputeBudget, theirs.MemoProgramID, theirs.TokenProgramID},
		blockhash: theirs.MPK(nodesHash),
		instructions: []draftInstruction{
			{5, nil, []byte{2, 0x20, 0x4e, 0, 0}}, {5, nil, []byte{3, 1, 0, 0, 0, 0, 0, 0, 0}},
			{7, []byte{2, 4, 3, 1}, []byte{12, 0xe8, 3, 0, 0, 0, 0, 0, 0, 6}}, {6, nil, []byte("memo")},
		},
		tables: []byte{0},
	}
}

func newDraftWithoutMemo() *draft {
	d := newDraft()
	d.instructions, d.keys, d.readonly = d.instructions[:3], slices.Delete(d.keys, 6, 7), 3
	d.instructions[2].program = 6
	return d
}

func (d *draft) message() []byte {
	m := []byte{d.version, d.signers, d.readonlySigners, d.readonly}
	m = append(m, compact(len(d.keys))...)
	for _, key := range d.keys {
		m = append(m, key[:]...)
	}
	m = append(m, d.blockhash[:]...)
	m = append(m, compact(len(d.instructions))...)
	for _, in := range d.instructions {
		m = append(append(append(m, in.program), compact(len(in.accounts))...), in.accounts...)
		m = append(append(m, compact(len(in.data))...), in.data...)
	}
	return append(m, d.tables...)
}

func (d *draft) wire() []byte {
	return append(append(compact(len(d.signatures)), bytes.Join(d.signatures, nil)...), d.message()...)
}

func compact(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) } // the same below 2^21

func TestDecode(t *testing.T) {
	d := newDraft()
	d.signatures[1] = ed25519.Sign(person(1), d.message())
	got := must.Get(Transaction(base64.StdEncoding.EncodeToString(d.wire())))(t)
	signers := got.Signers
	require.Equal(t, keyOf(payer).String(), signers[0].Address)
	require.Empty(t, signers[0].Signature)
	require.False(t, signers[0].Verified)
	require.Equal(t, keyOf(person(1)).String(), signers[1].Address)
	require.Equal(t, theirs.Signature(d.signatures[1]).String(), signers[1].Signature)
	require.True(t, signers[1].Verified)
	require.Equal(t, Transfer{
		FeePayer: keyOf(payer).String(), Signers: signers,
		Mint: mint.String(), Source: keyOf(owner).String(),
		Destination: keyOf(seller).String(),
		Authority:   keyOf(person(1)).String(), Amount: money.NewAmount(1000), Decimals: 6, HasMemo: true,
		Memo:      "memo",
		UnitLimit: 20_000, UnitPrice: 1,
		Blockhash: nodesHash, Message: d.message(),
	}, got)

	d.signatures[0] = d.signatures[1] // another's signature
	got = must.Get(Transaction(base64.StdEncoding.EncodeToString(d.wire())))(t)
	require.False(t, got.Signers[0].Verified)
	require.NotEmpty(t, got.Signers[0].Signature)
}

func TestBudgetInAnyOrder(t *testing.T) {
	d := newDraft()
	want := must.Get(Transaction(base64.StdEncoding.EncodeToString(d.wire())))(t)
	d.instructions[0], d.instructions[1] = d.instructions[1], d.instructions[0]
	swapped := base64.StdEncoding.EncodeToString(d.wire())
	got := must.Get(Rules{AnyBudgetOrder: true}.Transaction(swapped))(t)
	require.Equal(t, want.UnitLimit, got.UnitLimit)
	require.Equal(t, want.UnitPrice, got.UnitPrice)
	d.instructions[1] = d.instructions[0]
	_, err := Rules{AnyBudgetOrder: true}.Transaction(base64.StdEncoding.EncodeToString(d.wire()))
	require.ErrorIs(t, err, ErrLayout, "the price twice")
}

// because says why, where another rule would refuse it too.
var because = map[string]string{
	"fee payer is authority": "not the second signer", "authority does not sign": "not the second signer",
	"authority is source": "a signer takes part", "authority is mint": "a signer takes part",
	"the memo program writable": "no program",
	"fee payer is source":       "a signer takes part", "fee payer is destination": "a signer takes part",
	"to itself":             "other roles",
	"source alone readonly": "other roles", "destination readonly": "other roles",
	"a byte above a packet": "too long",
}

func TestDecodeRefuses(t *testing.T) {
	for name, damage := range map[string]func(d *draft){
		"legacy":                 func(d *draft) { d.version = 2 },
		"version 1":              func(d *draft) { d.version = 0x81 },
		"one signature":          func(d *draft) { d.signatures = d.signatures[1:] },
		"three signatures":       func(d *draft) { d.signatures = append(d.signatures, make([]byte, 64)) },
		"a third signer":         func(d *draft) { d.signers = 3 },
		"one signer":             func(d *draft) { d.signers = 1 },
		"authority writable":     func(d *draft) { d.readonlySigners = 0 },
		"fee payer readonly":     func(d *draft) { d.readonlySigners = 2 },
		"more readonly than are": func(d *draft) { d.readonly = 7 },
		"source readonly":        func(d *draft) { d.readonly = 6 },
		"source alone readonly": func(d *draft) {
			d.readonly = 5
			d.instructions[2].accounts = []byte{3, 4, 2, 1}
		},
		"destination readonly": func(d *draft) { d.readonly = 5 },
		"mint writable":        func(d *draft) { d.readonly = 3 },
		"programs writable":    func(d *draft) { d.readonly = 0 },
		"a key twice":          func(d *draft) { d.keys[3] = d.keys[2] },
		"payer twice":          func(d *draft) { d.keys[1] = d.keys[0] },
		"an unused key": func(d *draft) {
			d.keys = append(d.keys, keyOf(person(9)))
			d.readonly++
		},
		"no keys": func(d *draft) { d.keys = nil },
		"lookup table": func(d *draft) {
			d.tables = append(append([]byte{1}, make([]byte, 32)...), 1, 0, 0)
		},
		"half a lookup table":   func(d *draft) { d.tables = []byte{1} },
		"no tables' count":      func(d *draft) { d.tables = nil },
		"trailing byte":         func(d *draft) { d.tables = []byte{0, 0} },
		"long form of 0 tables": func(d *draft) { d.tables = []byte{0x80, 0} },
		"two instructions":      func(d *draft) { d.instructions = d.instructions[:2] },
		"five instructions": func(d *draft) {
			d.instructions = append(d.instructions, d.instructions[3])
		},
		"a second transfer": func(d *draft) { d.instructions[3] = d.instructions[2] },
		"a transfer first": func(d *draft) {
			d.instructions[0], d.instructions[2] = d.instructions[2], d.instructions[0]
		},
		"price and limit swapped": func(d *draft) {
			d.instructions[0], d.instructions[1] = d.instructions[1], d.instructions[0]
		},
		"limit short":              func(d *draft) { d.instructions[0].data = d.instructions[0].data[:4] },
		"limit with an account":    func(d *draft) { d.instructions[0].accounts = []byte{2} },
		"limit of another program": func(d *draft) { d.instructions[0].program = 6 },
		"price long": func(d *draft) {
			d.instructions[1].data = append(d.instructions[1].data, 0)
		},
		"price with an account": func(d *draft) { d.instructions[1].accounts = []byte{0} },
		"plain transfer":        func(d *draft) { d.instructions[2].data[0] = 3 },
		"approve":               func(d *draft) { d.instructions[2].data[0] = 13 },
		"set authority":         func(d *draft) { d.instructions[2].data = []byte{6, 2, 0} },
		"transfer's trailing byte": func(d *draft) {
			d.instructions[2].data = append(d.instructions[2].data, 0)
		},
		"transfer of the memo":     func(d *draft) { d.instructions[2].program = 6 },
		"multisig signers":         func(d *draft) { d.instructions[2].accounts = []byte{2, 4, 3, 1, 0} },
		"three accounts":           func(d *draft) { d.instructions[2].accounts = []byte{2, 4, 3} },
		"fee payer is authority":   func(d *draft) { d.instructions[2].accounts = []byte{2, 4, 3, 0} },
		"fee payer is source":      func(d *draft) { d.instructions[2].accounts = []byte{0, 4, 3, 1} },
		"fee payer is destination": func(d *draft) { d.instructions[2].accounts = []byte{2, 4, 0, 1} },
		"authority is source":      func(d *draft) { d.instructions[2].accounts = []byte{1, 4, 3, 1} },
		"to itself":                func(d *draft) { d.instructions[2].accounts = []byte{2, 4, 2, 1} },
		"authority does not sign":  func(d *draft) { d.instructions[2].accounts = []byte{2, 4, 1, 3} },
		"mint is the destination":  func(d *draft) { d.instructions[2].accounts = []byte{2, 3, 4, 1} },
		"authority is mint":        func(d *draft) { d.instructions[2].accounts = []byte{2, 1, 3, 1} },
		"mint 8 of 8":              func(d *draft) { d.instructions[2].accounts = []byte{2, 8, 3, 1} },
		"the memo program writable": func(d *draft) {
			d.keys[4], d.keys[6], d.readonly = d.keys[6], d.keys[4], 3
			d.instructions[2].accounts[1], d.instructions[3].program = 6, 4
		},
		"account 8 of 8":             func(d *draft) { d.instructions[2].accounts = []byte{8, 4, 3, 1} },
		"program 8 of 8":             func(d *draft) { d.instructions[3].program = 8 },
		"memo with a signer":         func(d *draft) { d.instructions[3].accounts = []byte{1} },
		"memo not UTF-8":             func(d *draft) { d.instructions[3].data = []byte{0xff} },
		"memo of another program":    func(d *draft) { d.keys[6] = theirs.MemoProgramIDV1 },
		"memo of the compute budget": func(d *draft) { d.instructions[3].program = 5 },
		"another token program":      func(d *draft) { d.keys[7] = theirs.TokenSwapProgramID },
		"above a packet": func(d *draft) {
			d.instructions[3].data = bytes.Repeat([]byte("x"), 900)
		},
		"a byte above a packet": func(d *draft) {
			d.instructions[3].data = bytes.Repeat([]byte("x"), 4+1232-len(d.wire()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDraft()
			must.Get(Transaction(base64.StdEncoding.EncodeToString(d.wire())))(t)
			damage(d)
			_, err := Transaction(base64.StdEncoding.EncodeToString(d.wire()))
			require.ErrorIs(t, err, ErrLayout, name)
			require.ErrorContains(t, err, because[name])
		})
	}
	whole := newDraft().wire()
	good := base64.StdEncoding.EncodeToString(whole)
	for n := range whole {
		_, err := Transaction(base64.StdEncoding.EncodeToString(whole[:n]))
		require.ErrorIs(t, err, ErrLayout, "cut at %d", n)
	}
	for n, long := range map[byte][]byte{3: {3}, 1: {1}, 2: {0x82, 0}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { // the count of signatures alone
			_, err := Transaction(base64.StdEncoding.EncodeToString(append(long, newDraft().wire()[1:]...)))
			require.ErrorIs(t, err, ErrLayout, "%d signatures", n)
		})
	}
	for _, bad := range []string{"", "?", good + "\n", " " + good, good[:40] + "\n" + good[40:],
		strings.TrimRight(good, "=") + "====", strings.Repeat("A", 1<<20)} {
		t.Run(bad, func(t *testing.T) {
			require.ErrorIs(t, must.Err(Transaction(bad)), ErrLayout)
		})
	}
}

func TestCompact(t *testing.T) {
	for text, want := range map[string]int{
		"\x00": 0, "\x7f": 127, "\x80\x01": 128, "\xff\x7f": 16383, "\x80\x80\x01": 16384,
		"\xff\xff\x03": 65535,
		"":             -1, "\x80": -1, "\x80\x00": -1, "\x80\x80\x00": -1, "\xff\xff\x04": -1,
		"\xff\xff\xff":     -1,
		"\x80\x80\x80\x01": -1,
	} {
		t.Run(text, func(t *testing.T) {
			r := reader{data: []byte(text)}
			got := r.compact()
			require.Equal(t, want == -1, r.truncated, "%x", text)
			require.Equal(t, max(want, 0), got, "%x", text)
		})
	}
}

// A transaction of ours with one place changed, whichever it is: a bit, a byte left out or put in, a number
// spelled longer, the end cut off.
func TestChangedTransactionsAreReadAsSolanaGoDoes(t *testing.T) {
	for _, d := range []*draft{newDraft(), newDraftWithoutMemo()} {
		wire := d.wire()
		requireAsSolanaGo(t, slices.Concat(wire, []byte{0}))
		for at, b := range wire {
			requireAsSolanaGo(t, wire[:at])
			for _, instead := range [][]byte{{b ^ 1}, {b ^ 0x80}, {}, {0, b}, {0xff, b}, {b, b},
				{b | 0x80, 0}, {b | 0x80, 0x80, 0}} {
				requireAsSolanaGo(t, slices.Concat(wire[:at], instead, wire[at+1:]))
			}
		}
	}
}

// requireAsSolanaGo fails unless what is read at all of a transaction is read by solana-go as the same, and
// has one spelling.
func requireAsSolanaGo(t must.T, wire []byte) {
	text := base64.StdEncoding.EncodeToString(wire)
	got, err := Transaction(text)
	if err != nil {
		require.ErrorIs(t, err, ErrLayout)
		return
	}
	require.Equal(t, wire[129:], got.Message)
	tx := must.Get(theirs.TransactionFromBase64(text))(t)
	require.Equal(t, text, must.Get(tx.ToBase64())(t))
	message := must.Get(tx.Message.MarshalBinary())(t)
	require.Equal(t, message, got.Message)
	require.Equal(t, tx.Message.AccountKeys[0].String(), got.FeePayer)
	require.Equal(t, tx.Message.RecentBlockhash.String(), got.Blockhash)
	metas := must.Get(tx.Message.Instructions[2].ResolveInstructionAccounts(&tx.Message))(t)
	require.Equal(t, []string{metas[0].PublicKey.String(), metas[1].PublicKey.String(),
		metas[2].PublicKey.String(), metas[3].PublicKey.String()},
		[]string{got.Source, got.Mint, got.Destination, got.Authority})
	require.True(t, metas[0].IsWritable && !metas[1].IsWritable && metas[2].IsWritable && metas[3].IsSigner)
	in := tx.Message.Instructions
	require.Equal(t, binary.LittleEndian.AppendUint32([]byte{2}, got.UnitLimit), []byte(in[0].Data))
	require.Equal(t, binary.LittleEndian.AppendUint64([]byte{3}, got.UnitPrice), []byte(in[1].Data))
	amount, _ := got.Amount.Uint64()
	require.Equal(t, append(binary.LittleEndian.AppendUint64([]byte{12}, amount), got.Decimals),
		[]byte(in[2].Data))
	require.Equal(t, got.HasMemo, len(in) == 4)
	require.True(t, len(in) == 3 || string(in[3].Data) == got.Memo)
	require.Equal(t, got.Signers[1].Verified, tx.Signatures[1].Verify(tx.Message.AccountKeys[1], message))
}

// Whatever is read at all, solana-go reads as the same transaction, and there is one spelling of
// it. The fuzzer changes the bytes; as a text they are read too.
func FuzzDecode(f *testing.F) {
	for _, transaction := range vectors(f) {
		wire := must.Get(base64.StdEncoding.DecodeString(transaction))(f)
		f.Add(wire)
		f.Add([]byte(transaction))
	}
	for _, wire := range [][]byte{newDraft().wire(), newDraftWithoutMemo().wire(), nil, {0x80}, {2},
		bytes.Repeat([]byte{0xff}, maxTransaction)} {
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if _, err := Transaction(string(wire)); err != nil {
			require.ErrorIs(t, err, ErrLayout)
		}
		requireAsSolanaGo(t, wire)
	})
}
