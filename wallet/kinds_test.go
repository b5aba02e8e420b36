package wallet

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

var kindsNow = time.Unix(1_740_672_089, 0)

const testVault = "0x5FbDB2315678afecb367f032d93F642f64180aa3"

func goodTransfer() TransferWithAuthorization {
	return TransferWithAuthorization{
		ChainID: 84532, Token: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Name: "USDC", Version: "2",
		From: keytest.EVM, To: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		Value:      [32]byte{31: 0x10, 30: 0x27},
		ValidAfter: 0, ValidBefore: uint64(kindsNow.Unix()) + 60, Nonce: [32]byte{1, 2, 3},
	}
}

// The digest and signature that viem makes of the same message
// (evm/testdata/x402-vectors-eip3009.json, v2_exact_eip3009).
func TestTransferDigest(t *testing.T) {
	good := goodTransfer()
	copy(good.Nonce[:], keytest.Unhex(t, "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"))
	require.NoError(t, good.check(keytest.EVM, kindsNow))
	digest := good.digest()
	require.Equal(t,
		keytest.Unhex(t, "c6409a40390d43f10c74a1cc3fe6d5268071946361ea70c40f24162154520e9d"), digest[:])

	w := goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	signature := must.Get(w.SignEVM(t.Context(), good))(t)
	require.Equal(t,
		keytest.Unhex(t, "8e86aee2647d211a069660fa609b5d7d5e38995434e72a09dbfbf2d88e2a668b4c"+
			"30e8b37c798af7000cb8547916bac3516ccd805eecbf83bceb9672e2e2d1af1b"), signature[:])
}

// Nothing but a transfer from this wallet that is good now and ends within a day.
func TestTransferRefused(t *testing.T) {
	now := uint64(kindsNow.Unix())
	for name, spoil := range map[string]func(*TransferWithAuthorization){
		"from another":                     func(m *TransferWithAuthorization) { m.From = m.To },
		"from a vault that is this wallet": func(m *TransferWithAuthorization) { m.OfVault = true },
		"from a vault that is nobody": func(m *TransferWithAuthorization) {
			m.From, m.OfVault = "0x"+strings.Repeat("0", 40), true
		},
		"from a vault to ourselves": func(m *TransferWithAuthorization) {
			m.From, m.To, m.OfVault = testVault, m.From, true
		},
		"from a vault to itself": func(m *TransferWithAuthorization) {
			m.From, m.To, m.OfVault = testVault, testVault, true
		},
		"from nobody":       func(m *TransferWithAuthorization) { m.From = "" },
		"to ourselves":      func(m *TransferWithAuthorization) { m.To = strings.ToLower(m.From) },
		"to zero":           func(m *TransferWithAuthorization) { m.To = "0x" + strings.Repeat("0", 40) },
		"to the token":      func(m *TransferWithAuthorization) { m.To = m.Token },
		"to a short one":    func(m *TransferWithAuthorization) { m.To = m.To[:41] },
		"to no hex":         func(m *TransferWithAuthorization) { m.To = "0xz" + m.To[3:] },
		"no token":          func(m *TransferWithAuthorization) { m.Token = "0x" + strings.Repeat("0", 40) },
		"nothing":           func(m *TransferWithAuthorization) { m.Value = [32]byte{} },
		"no chain":          func(m *TransferWithAuthorization) { m.ChainID = 0 },
		"no domain":         func(m *TransferWithAuthorization) { m.Name = "" },
		"no version":        func(m *TransferWithAuthorization) { m.Version = "" },
		"over":              func(m *TransferWithAuthorization) { m.ValidBefore = now },
		"Circle Gateway":    func(m *TransferWithAuthorization) { m.Name = "GatewayWalletBatched" },
		"for ever":          func(m *TransferWithAuthorization) { m.ValidBefore = 1<<64 - 1 },
		"a second too long": func(m *TransferWithAuthorization) { m.ValidBefore = now + 86401 },
		"not yet":           func(m *TransferWithAuthorization) { m.ValidAfter = now + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			m := goodTransfer()
			spoil(&m)
			require.ErrorIs(t, m.check(keytest.EVM, kindsNow), coded.ErrUnsupported, name)
		})
	}
	m := goodTransfer()
	m.ValidBefore = now + 86400
	require.NoError(t, m.check(keytest.EVM, kindsNow))
	ofVault := m
	ofVault.From, ofVault.OfVault = testVault, true
	require.NoError(t, ofVault.check(keytest.EVM, kindsNow))

	w := goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	m.From = m.To
	require.ErrorIs(t, must.Err(w.SignEVM(t.Context(), m)), coded.ErrUnsupported)
	require.True(t, w.Locked(), "it is not even unlocked for that")
	must.Get(w.SignEVM(t.Context(), goodTransfer()))(t)
}

// built makes messages with the Solana library.
func built(t testing.TB, payer solana.PublicKey, list ...solana.Instruction) []byte {
	tx := must.Get(solana.NewTransaction(list, solana.Hash{1}, solana.TransactionPayer(payer)))(t)
	tx.Message.SetVersion(solana.MessageVersionV0)
	return must.Get(tx.Message.MarshalBinary())(t)
}

func TestSolanaTransfer(t *testing.T) {
	self := solana.MustPublicKeyFromBase58(keytest.Solana)
	key := func(n byte) solana.PublicKey { return solana.PublicKeyFromBytes(bytes.Repeat([]byte{n}, 32)) }
	payer, source, mint, destination := key(1), key(2), key(3), key(4)
	meta := func(k solana.PublicKey, writes, signs bool) *solana.AccountMeta {
		return solana.NewAccountMeta(k, writes, signs)
	}
	instruction := func(program solana.PublicKey, data []byte,
		accounts ...*solana.AccountMeta) solana.Instruction {
		return solana.NewInstruction(program, accounts, data)
	}
	moved := func() []*solana.AccountMeta { // again each time: the library changes those that it is given
		return []*solana.AccountMeta{meta(source, true, false), meta(mint, false, false),
			meta(destination, true, false), meta(self, false, true)}
	}
	pay := []byte{12, 16, 39, 0, 0, 0, 0, 0, 0, 6}
	transfer := func() solana.Instruction { return instruction(solana.TokenProgramID, pay, moved()...) }
	limit, price := instruction(solana.ComputeBudget, []byte{2, 1, 2, 3, 4}),
		instruction(solana.ComputeBudget, []byte{3, 1, 2, 3, 4, 5, 6, 7, 8})
	memo := instruction(solana.MemoProgramID, []byte("hello"))
	good := built(t, payer, limit, price, transfer(), memo)
	require.NoError(t, checkTransfer(good, self[:]))
	require.NoError(t, checkTransfer(built(t, payer, limit, price, transfer()), self[:]))
	require.NoError(t,
		checkTransfer(built(t, payer, limit, price, instruction(solana.Token2022ProgramID, pay, moved()...),
			memo), self[:]))

	legacy := must.Get(solana.NewTransaction([]solana.Instruction{limit, price, transfer()}, solana.Hash{1},
		solana.TransactionPayer(payer)))(t)
	old := must.Get(legacy.Message.MarshalBinary())(t)
	tables := append(bytes.Clone(good[:len(good)-1]), 1)
	tables = append(append(tables, make([]byte, 32)...), 1, 0, 0)
	twice := bytes.Clone(good)
	copy(twice[5:], self[:]) // the first key, behind four bytes of header and their number
	for name, message := range map[string][]byte{
		"we are both signers": twice,
		"nothing":             {},
		"text":                []byte("sign in to example.com"),
		"legacy":              old,
		"something behind":    append(bytes.Clone(good), 0),
		"lookup tables":       tables,
		"too long":            append(bytes.Clone(good), make([]byte, 1300)...),
		"we pay the fee":      built(t, self, limit, price, transfer()),
		"no transfer":         built(t, payer, limit, price, memo),
		"two transfers": built(t, payer, limit, transfer(), instruction(solana.TokenProgramID,
			[]byte{12, 1, 0, 0, 0, 0, 0, 0, 0, 6}, moved()...)),
		"a plain transfer": built(t, payer, limit, price, instruction(solana.TokenProgramID,
			[]byte{3, 16, 39, 0, 0, 0, 0, 0, 0}, moved()[0], moved()[2], moved()[3])),
		"an approval": built(t, payer, transfer(), instruction(solana.TokenProgramID,
			[]byte{4, 16, 39, 0, 0, 0, 0, 0, 0}, moved()[0], moved()[2], moved()[3])),
		"a checked approval": built(t, payer, limit, price, instruction(solana.TokenProgramID,
			[]byte{13, 16, 39, 0, 0, 0, 0, 0, 0, 6}, moved()...)),
		"a checked mint": built(t, payer, limit, price, instruction(solana.TokenProgramID,
			[]byte{14, 16, 39, 0, 0, 0, 0, 0, 0, 6}, moved()...)),
		"a fee in the transfer": built(t, payer, limit, price, instruction(solana.Token2022ProgramID,
			[]byte{26, 1, 16, 39, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0}, moved()...)),
		"an authority": built(t, payer, transfer(), instruction(solana.TokenProgramID,
			append([]byte{6, 2, 1}, make([]byte, 32)...), moved()[0], moved()[3])),
		"an account closed": built(t, payer, transfer(), instruction(solana.TokenProgramID, []byte{9},
			moved()[0], moved()[2], moved()[3])),
		"SOL": built(t, payer, transfer(), instruction(solana.SystemProgramID,
			append([]byte{2, 0, 0, 0}, make([]byte, 8)...), meta(self, true, true),
			meta(destination, true, false))),
		"an account made": built(t, payer, transfer(),
			instruction(solana.SPLAssociatedTokenAccountProgramID, []byte{1}, meta(self, true, true))),
		"an unknown program": built(t, payer, transfer(), instruction(key(9), []byte{1})),
		"a third signer": built(t, payer, transfer(), instruction(solana.MemoProgramID, []byte("x"),
			meta(key(8), false, true))),
		"a memo with accounts": built(t, payer, transfer(), instruction(solana.MemoProgramID, []byte("x"),
			meta(source, false, false))),
		"a heap frame": built(t, payer, transfer(), instruction(solana.ComputeBudget,
			[]byte{1, 0, 0, 1, 0})),
		"the payer's own money": built(t, payer, limit, price, instruction(solana.TokenProgramID, pay,
			meta(payer, true, true), moved()[1], moved()[2], moved()[3])),
		"another's authority": built(t, self, limit, instruction(solana.TokenProgramID, pay, moved()[0],
			moved()[1], moved()[2], meta(payer, false, true))),
		"a multisig's authority": built(t, payer, instruction(solana.TokenProgramID, pay,
			append(append([]*solana.AccountMeta{}, moved()...), meta(key(8), false, false))...)),
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, checkTransfer(message, self[:]), coded.ErrUnsupported, name)
		})
	}
	for i := range good {
		require.ErrorIs(t, checkTransfer(good[:i], self[:]), coded.ErrUnsupported, "cut at %d", i)
		for bit := range 8 {
			flipped := bytes.Clone(good)
			flipped[i] ^= 1 << bit
			_ = checkTransfer(flipped, self[:]) // amounts and payees are not its business; it must not panic
		}
	}

	w := goldenWallet(t)
	_, err := w.SignSolana(t.Context(), []byte("sign in to example.com"))
	require.ErrorIs(t, err, coded.ErrUnsupported)
	require.True(t, w.Locked(), "it is not even unlocked for that")
	signature := must.Get(w.SignSolana(t.Context(), good))(t)
	require.True(t, ed25519.Verify(self[:], good, signature[:]))
}
