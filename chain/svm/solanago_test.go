package svm

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"testing"

	theirs "github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/chain/svm/solana"
	"x402-wallet/x402/money"
)

// solana-go is in tests only, as the other opinion: of what is signed and of what is read.

// theirMessage is what solana-go would have signed.
func theirMessage(t require.TestingT, payer solana.PublicKey, blockhash solana.Hash,
	instructions ...theirs.Instruction) []byte {
	tx, err := theirs.NewTransaction(instructions, theirs.Hash(blockhash),
		theirs.TransactionPayer(theirs.PublicKey(payer)),
		theirs.TransactionMessageVersion(theirs.MessageVersionV0))
	require.NoError(t, err)
	message, err := tx.Message.MarshalBinary()
	require.NoError(t, err)
	return message
}

func meta(key solana.PublicKey) *theirs.AccountMeta { return theirs.Meta(theirs.PublicKey(key)) }

func TestAPaymentIsSolanaGosToTheByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Custom(func(t *rapid.T) solana.PublicKey {
			return solana.PublicKey(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		})
		p := plan{agent: key.Draw(t, "agent"), source: key.Draw(t, "source"),
			destination: key.Draw(t, "destination"), program: programOf(rapid.Bool().Draw(t, "token2022")),
			amount: rapid.Uint64().Draw(t, "amount"), decimals: rapid.Uint8().Draw(t, "decimals"),
			limit: rapid.Uint32().Draw(t, "limit"), price: rapid.Uint64().Draw(t, "price"),
			blockhash: solana.Hash(key.Draw(t, "blockhash"))}
		p.mint, p.feePayer = key.Draw(t, "mint"), key.Draw(t, "feePayer")
		p.memo = rapid.StringN(0, -1, maxMemo).Draw(t, "memo")
		message, err := p.message()
		require.NoError(t, err)

		budget := func(data []byte) theirs.Instruction {
			return theirs.NewInstruction(theirs.ComputeBudget, nil, data)
		}
		instructions := []theirs.Instruction{
			budget(binary.LittleEndian.AppendUint32([]byte{2}, p.limit)),
			budget(binary.LittleEndian.AppendUint64([]byte{3}, p.price)),
			theirs.NewInstruction(theirs.PublicKey(p.program), theirs.AccountMetaSlice{meta(p.source).WRITE(),
				meta(p.mint), meta(p.destination).WRITE(), meta(p.agent).SIGNER()},
				append(binary.LittleEndian.AppendUint64([]byte{12}, p.amount), p.decimals)),
		}
		if p.memo != "" {
			instructions = append(instructions,
				theirs.NewInstruction(theirs.MemoProgramID, nil, []byte(p.memo)))
		}
		require.Equal(t, theirMessage(t, p.feePayer, p.blockhash, instructions...), message)
	})
}

func TestWhatAnOwnerSignsIsSolanaGosToTheByte(t *testing.T) {
	e, c, s := newWallet(t)
	account, blockhash := c.ata(owner), solana.Hash(solana.MustKey(c.blockhash))
	approve, err := e.Approve(t.Context(), devnet, account.String(), usdc, money.NewAmount(5_000_000))
	require.NoError(t, err)
	require.Equal(t, theirMessage(t, keyOf(owner), blockhash, theirs.NewInstruction(theirs.TokenProgramID,
		theirs.AccountMetaSlice{meta(account).WRITE(), meta(mint), meta(keyOf(s.private)),
			meta(keyOf(owner)).SIGNER()},
		append(binary.LittleEndian.AppendUint64([]byte{13}, 5_000_000), usdc.Decimals))), approve.Message)
	revoke, err := e.Revoke(t.Context(), devnet, account.String())
	require.NoError(t, err)
	require.Equal(t, theirMessage(t, keyOf(owner), blockhash, theirs.NewInstruction(theirs.TokenProgramID,
		theirs.AccountMetaSlice{meta(account).WRITE(), meta(keyOf(owner)).SIGNER()}, []byte{5})),
		revoke.Message)
}

func TestProgramsAreSolanaGos(t *testing.T) {
	var list []theirs.PublicKey
	for _, key := range programs {
		list = append(list, theirs.PublicKey(key))
	}
	require.Equal(t, []theirs.PublicKey{theirs.ComputeBudget, theirs.MemoProgramID, theirs.TokenProgramID,
		theirs.Token2022ProgramID, theirs.SPLAssociatedTokenAccountProgramID, theirs.SystemProgramID,
		theirs.MemoProgramIDV1, theirs.ConfigProgramID, theirs.StakeProgramID, theirs.VoteProgramID,
		theirs.FeatureProgramID, theirs.BPFLoaderDeprecatedProgramID, theirs.BPFLoaderProgramID,
		theirs.BPFLoaderUpgradeableProgramID, theirs.Secp256k1ProgramID}, list[:15])
	for _, key := range []theirs.PublicKey{theirs.AddressLookupTableProgramID, theirs.SysVarPubkey,
		theirs.TokenSwapProgramID, theirs.TokenLendingProgramID, theirs.TokenMetadataProgramID,
		theirs.WrappedSol} {
		require.Contains(t, list, key)
	}
	require.Equal(t, theirs.SysVarClockPubkey, theirs.PublicKey(clock))
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
func requireAsSolanaGo(t require.TestingT, wire []byte) {
	text := base64.StdEncoding.EncodeToString(wire)
	got, err := Decode(text)
	if err != nil {
		require.ErrorIs(t, err, errLayout)
		return
	}
	require.Equal(t, wire[129:], got.Message)
	tx, err := theirs.TransactionFromBase64(text)
	require.NoError(t, err)
	again, err := tx.ToBase64()
	require.NoError(t, err)
	require.Equal(t, text, again)
	message, err := tx.Message.MarshalBinary()
	require.NoError(t, err)
	require.Equal(t, message, got.Message)
	require.Equal(t, tx.Message.AccountKeys[0].String(), got.FeePayer)
	require.Equal(t, tx.Message.RecentBlockhash.String(), got.Blockhash)
	metas, err := tx.Message.Instructions[2].ResolveInstructionAccounts(&tx.Message)
	require.NoError(t, err)
	require.Equal(t, []string{metas[0].PublicKey.String(), metas[1].PublicKey.String(),
		metas[2].PublicKey.String(), metas[3].PublicKey.String()},
		[]string{got.Source, got.Mint, got.Destination, got.Authority})
	require.True(t, metas[0].IsWritable && !metas[1].IsWritable && metas[2].IsWritable &&
		metas[3].IsSigner)
	in := tx.Message.Instructions
	require.Equal(t, binary.LittleEndian.AppendUint32([]byte{2}, got.UnitLimit), []byte(in[0].Data))
	require.Equal(t, binary.LittleEndian.AppendUint64([]byte{3}, got.UnitPrice), []byte(in[1].Data))
	amount, _ := got.Amount.Uint64()
	require.Equal(t, append(binary.LittleEndian.AppendUint64([]byte{12}, amount), got.Decimals),
		[]byte(in[2].Data))
	require.Equal(t, got.HasMemo, len(in) == 4)
	require.True(t, len(in) == 3 || string(in[3].Data) == got.Memo)
	require.Equal(t, got.Signers[1].Verified, tx.Signatures[1].Verify(tx.Message.AccountKeys[1],
		message))
}
