package wallet

import (
	"bytes"
	"encoding/base64"
	"os"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
)

// What this key signs, another reader of Solana's messages reads as well, to the last byte: one
// TransferChecked, with this key as the second signer of two.
func FuzzCheckTransfer(f *testing.F) {
	self := solana.MustPublicKeyFromBase58(goldenSolana)
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
		again, err := m.MarshalBinary()
		require.NoError(t, err)
		require.Equal(t, message, again)
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

// Whatever is imported: no panic, and no key derivation that takes more memory or time than the
// limits.
func FuzzImport(f *testing.F) {
	for _, file := range []string{"testdata/ozskr-keystore-v1.json", "testdata/ozskr-keystore-v2.json"} {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"version":3,"crypto":{"cipher":"aes-128-ctr","ciphertext":"` +
		string(bytes.Repeat([]byte("ab"), 32)) + `","cipherparams":{"iv":"` +
		string(bytes.Repeat([]byte("01"), 16)) +
		`"},"kdf":"scrypt","kdfparams":{"n":262144,"r":8,"p":1,"dklen":32,"salt":"00"},"mac":"` +
		string(bytes.Repeat([]byte("02"), 32)) + `"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := parseGeth(data); err == nil {
			require.Len(t, g.ciphertext, secretSize)
			require.LessOrEqual(t, 128*g.n*g.r, uint64(importMaxMemory))
			require.LessOrEqual(t, g.rounds, uint64(importMaxRounds))
			require.NotEqual(t, g.n == 0, g.rounds == 0)
		}
		if o, err := parseOzskr(data); err == nil {
			require.Len(t, o.sealed, 64+gcmTagSize)
			for _, cost := range o.costs {
				require.LessOrEqual(t, 128*cost[0]*cost[1], uint64(importMaxMemory))
			}
		}
	})
}

// Whatever is typed for a phrase, or lies in a keystore as one: no panic, no word of it in an error, and what
// is taken is what is written again.
func FuzzPhrase(f *testing.F) {
	f.Add([]byte(knownPhrase))
	f.Add([]byte("zoo\u3000Zoo\u00a0wrong ﷺ"))
	f.Add(bytes.Repeat([]byte{1}, phraseSize))
	golden := make(phraseRecord, phraseSize)
	golden.set(bytes.Repeat([]byte{7}, 16), true, nil, derivation{hardenedStep + 44, 0})
	f.Add([]byte(golden))
	f.Fuzz(func(t *testing.T, data []byte) {
		words, near, err := readWords(data)
		require.LessOrEqual(t, len(words), mostWords)
		require.LessOrEqual(t, len(near), mostNear)
		if entropy, wrong := entropyOf(words); err == nil && wrong == nil {
			require.Equal(t, words, wordsOf(entropy))
			again, _, err := readWords(spell(words))
			require.NoError(t, err)
			require.Equal(t, words, again)
		}
		if path, err := parsePath(string(data)); err == nil {
			again, err := parsePath(path.String())
			require.NoError(t, err)
			require.Equal(t, path, again)
		}
		if len(data) == phraseSize && phraseRecord(data).isRight() {
			again := make(phraseRecord, phraseSize)
			r := phraseRecord(data)
			again.set(r.entropy(), r.hasPassphrase(), r.solanaPath(), r.evmPath())
			require.Equal(t, data, []byte(again))
		}
	})
}
