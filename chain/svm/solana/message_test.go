package solana

import (
	"encoding/base64"
	"slices"
	"testing"

	theirs "github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawn is a message's parts: few keys, so that they meet in several roles and places.
type drawn struct {
	payer        PublicKey
	blockhash    Hash
	instructions []Instruction
}

func drawMessage(t *rapid.T) drawn {
	keys := make([]PublicKey, rapid.IntRange(1, 12).Draw(t, "keys"))
	for i := range keys {
		copy(keys[i][:], rapid.SliceOfN(rapid.Byte(), 1, 32).Draw(t, "key"))
	}
	keys[0][31] = 1 // of zeros solana-go thinks that nobody is named
	key := rapid.SampledFrom(keys)
	account := rapid.Custom(func(t *rapid.T) Account {
		return Account{key.Draw(t, "account"), rapid.Bool().Draw(t, "signer"),
			rapid.Bool().Draw(t, "writable")}
	})
	in := rapid.Custom(func(t *rapid.T) Instruction {
		data := make([]byte, rapid.OneOf(rapid.IntRange(0, 130), rapid.IntRange(0, 0xffff)).Draw(t, "data"))
		for i := range data {
			data[i] = byte(i)
		}
		return Instruction{key.Draw(t, "program"), rapid.SliceOfN(account, 0, 8).Draw(t, "accounts"), data}
	})
	return drawn{keys[0], Hash(keys[len(keys)-1]), rapid.SliceOfN(in, 1, 6).Draw(t, "instructions")}
}

// theirs compiles it with solana-go.
func (d drawn) theirs(t require.TestingT) []byte {
	var list []theirs.Instruction
	for _, in := range d.instructions {
		var accounts theirs.AccountMetaSlice
		for _, a := range in.Accounts {
			accounts = append(accounts, theirs.NewAccountMeta(theirs.PublicKey(a.Key), a.Writable, a.Signer))
		}
		list = append(list, theirs.NewInstruction(theirs.PublicKey(in.Program), accounts, in.Data))
	}
	tx, err := theirs.NewTransaction(list, theirs.Hash(d.blockhash),
		theirs.TransactionPayer(theirs.PublicKey(d.payer)),
		theirs.TransactionMessageVersion(theirs.MessageVersionV0))
	require.NoError(t, err)
	message, err := tx.Message.MarshalBinary()
	require.NoError(t, err)
	return message
}

// roles are what the instructions together ask of each account.
func (d drawn) roles() map[PublicKey]Account {
	all := map[PublicKey]Account{}
	for _, in := range d.instructions {
		for _, a := range slices.Concat(in.Accounts, []Account{{Key: in.Program}}) {
			known := all[a.Key]
			all[a.Key] = Account{a.Key, a.Signer || known.Signer, a.Writable || known.Writable}
		}
	}
	all[d.payer] = Account{d.payer, true, true}
	return all
}

// unmixed is d without accounts that only read where they sign and are writable elsewhere: there
// solana-go's message is wrong, because it counts such an account as a writable signer and leaves it behind
// those that only read.
func (d drawn) unmixed() drawn {
	signs, writable := map[PublicKey]bool{}, map[PublicKey]bool{} // writable: where it signs
	for _, in := range d.instructions {
		for _, a := range in.Accounts {
			signs[a.Key] = signs[a.Key] || a.Signer
			writable[a.Key] = writable[a.Key] || (a.Signer && a.Writable)
		}
	}
	for _, in := range d.instructions {
		for i, a := range in.Accounts {
			if signs[a.Key] && !writable[a.Key] {
				in.Accounts[i].Writable = false
			}
		}
	}
	return d
}

func TestAMessageIsSolanaGosToTheByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawMessage(t).unmixed()
		message, err := Message(d.payer, d.blockhash, d.instructions...)
		require.NoError(t, err)
		require.Equal(t, d.theirs(t), message)
	})
}

// Whatever the instructions: solana-go reads in the message exactly them, and for each account what they
// together ask of it.
func TestAMessageSaysItsInstructions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawMessage(t)
		message, err := Message(d.payer, d.blockhash, d.instructions...)
		require.NoError(t, err)
		var m theirs.Message
		require.NoError(t, m.UnmarshalBase64(base64.StdEncoding.EncodeToString(message)))
		require.Equal(t, theirs.MessageVersionV0, m.GetVersion())
		require.Equal(t, theirs.PublicKey(d.payer), m.AccountKeys[0])
		require.Equal(t, theirs.Hash(d.blockhash), m.RecentBlockhash)
		require.Empty(t, m.AddressTableLookups)
		metas, err := m.AccountMetaList()
		require.NoError(t, err)
		got := map[PublicKey]Account{}
		for _, a := range metas {
			got[PublicKey(a.PublicKey)] = Account{PublicKey(a.PublicKey), a.IsSigner, a.IsWritable}
		}
		require.Len(t, metas, len(got), "an account twice")
		require.Equal(t, d.roles(), got)
		require.Len(t, m.Instructions, len(d.instructions))
		for i, in := range d.instructions {
			read := m.Instructions[i]
			require.Equal(t, in.Data, []byte(read.Data))
			require.Equal(t, theirs.PublicKey(in.Program), m.AccountKeys[read.ProgramIDIndex])
			var keys []PublicKey
			for _, at := range read.Accounts {
				keys = append(keys, PublicKey(m.AccountKeys[at]))
			}
			require.Equal(t, len(in.Accounts), len(keys))
			for at, a := range in.Accounts {
				require.Equal(t, a.Key, keys[at])
			}
		}
	})
}

// What a byte, or a compact-u16, cannot count is refused, and not cut.
func TestMessageBounds(t *testing.T) {
	accounts := func(n int) (list []Account) {
		for i := range n {
			list = append(list, Account{Key: PublicKey{1, byte(i), byte(i >> 8)}, Signer: true})
		}
		return list
	}
	payer, program := PublicKey{2}, PublicKey{3}
	build := func(list []Account, data int, times int) error {
		instructions := make([]Instruction, times)
		for i := range instructions {
			instructions[i] = Instruction{program, list, make([]byte, data)}
		}
		_, err := Message(payer, Hash{}, instructions...)
		return err
	}
	require.NoError(t, build(accounts(253), 0, 1))
	require.ErrorIs(t, build(accounts(254), 0, 1), errTooLong)
	require.NoError(t, build(nil, 0xffff, 1))
	require.ErrorIs(t, build(nil, 0x10000, 1), errTooLong)
	require.NoError(t, build(nil, 0, 0xffff))
	require.ErrorIs(t, build(nil, 0, 0x10000), errTooLong)
	require.NoError(t, build(make([]Account, 0xffff), 0, 1))
	require.ErrorIs(t, build(make([]Account, 0x10000), 0, 1), errTooLong)
}
