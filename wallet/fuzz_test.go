package wallet

import (
	"bytes"
	"encoding/base64"
	"testing"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/keystore/keytest"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
)

// What this key signs, another reader of Solana's messages reads as well, to the last byte: one
// TransferChecked, with this key as the second signer of two.
func FuzzCheckTransfer(f *testing.F) {
	self := solana.MustPublicKeyFromBase58(keytest.Solana)
	key := func(n byte) solana.PublicKey { return solana.PublicKeyFromBytes(bytes.Repeat([]byte{n}, 32)) }
	transfer := solana.NewInstruction(solana.TokenProgramID,
		[]*solana.AccountMeta{solana.NewAccountMeta(key(2), true, false), solana.NewAccountMeta(key(3), false,
			false),
			solana.NewAccountMeta(key(4), true, false), solana.NewAccountMeta(self, false, true)},
		[]byte{12, 16, 39, 0, 0, 0, 0, 0, 0, 6})
	memo, limit := solana.NewInstruction(solana.MemoProgramID, nil, []byte("hello")),
		solana.NewInstruction(solana.ComputeBudget, nil, []byte{2, 1, 2, 3, 4})
	f.Add(built(f, key(1), limit, transfer, memo))
	f.Add(built(f, key(1), transfer))
	f.Add(built(f, key(1), transfer, transfer))
	f.Add(built(f, key(1), memo))
	f.Add([]byte("sign in to example.com"))
	f.Fuzz(func(t *testing.T, message []byte) {
		if checkTransfer(message, self[:]) != nil {
			return
		}
		var m solana.Message
		require.NoError(t, m.UnmarshalBase64(base64.StdEncoding.EncodeToString(message)))
		require.Equal(t, message, must.Get(m.MarshalBinary())(t))
		require.EqualValues(t, 2, m.Header.NumRequiredSignatures)
		require.Equal(t, self, m.AccountKeys[1])
		require.Empty(t, m.AddressTableLookups)
		transfers := 0
		for _, i := range m.Instructions {
			switch m.AccountKeys[i.ProgramIDIndex] {
			case solana.TokenProgramID, solana.Token2022ProgramID:
				require.True(t, i.Data[0] == 12 && i.Accounts[3] == 1)
				transfers++
			case solana.MemoProgramID, solana.ComputeBudget:
				require.Empty(t, i.Accounts)
			default:
				t.Fatal("another program")
			}
		}
		require.Equal(t, 1, transfers)
	})
}
