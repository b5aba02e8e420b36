package imported

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func ownerFile(t *testing.T) (Key, solana.PublicKey) {
	pair := ed25519.NewKeyFromSeed(make([]byte, 32))
	numbers := make([]int, len(pair))
	for i, b := range pair {
		numbers[i] = int(b)
	}
	text := must.Get(json.Marshal(numbers))(t)
	path := filepath.Join(t.TempDir(), "id.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	key := must.Get(importSolana(path))(t)
	return key, solana.PublicKeyFromBytes(pair[32:])
}

// An owner's key signs the change that is meant, and nothing that differs from it in one thing.
func TestSignDelegation(t *testing.T) {
	key, owner := ownerFile(t)
	require.Equal(t, owner.String(), key.Address)
	account, mint, agent, program := solana.PublicKey{1}, solana.PublicKey{2}, solana.PublicKey{3},
		solana.TokenProgramID
	approve := func(code byte, amount uint64, decimals byte) []byte {
		return append(binary.LittleEndian.AppendUint64([]byte{code}, amount), decimals)
	}
	four := solana.AccountMetaSlice{solana.Meta(account).WRITE(), solana.Meta(mint), solana.Meta(agent),
		solana.Meta(owner).SIGNER()}
	two := solana.AccountMetaSlice{solana.Meta(account).WRITE(), solana.Meta(owner).SIGNER()}
	message := func(payer solana.PublicKey, version solana.MessageVersion,
		list ...solana.Instruction) []byte {
		tx := must.Get(solana.NewTransaction(list, solana.Hash{9}, solana.TransactionPayer(payer),
			solana.TransactionMessageVersion(version)))(t)
		return must.Get(tx.Message.MarshalBinary())(t)
	}
	const v0 = solana.MessageVersionV0
	grants := solana.NewInstruction(program, four, approve(13, 70, 6))
	revokes := solana.NewInstruction(program, two, []byte{5})
	meant := DelegationChange{Account: account.String(), Program: program.String(), Mint: mint.String(),
		Delegate: agent.String(), Amount: 70, Decimals: 6}
	end := DelegationChange{Account: account.String(), Program: program.String()}

	for _, good := range []struct {
		message []byte
		meant   DelegationChange
	}{{message(owner, v0, grants), meant}, {message(owner, v0, revokes), end}} {
		signature := must.Get(key.SignDelegation(good.message, good.meant))(t)
		require.True(t, ed25519.Verify(owner[:], good.message, signature[:]))
		for n := range good.message { // cut off anywhere
			_, err := key.SignDelegation(good.message[:n], good.meant)
			require.ErrorIs(t, err, coded.ErrUnsupported)
		}
	}
	swapped := solana.AccountMetaSlice{solana.Meta(account).WRITE(), solana.Meta(mint),
		solana.Meta(solana.PublicKey{4}), solana.Meta(owner).SIGNER()}
	other := solana.AccountMetaSlice{solana.Meta(solana.PublicKey{7}).WRITE(), solana.Meta(mint),
		solana.Meta(agent), solana.Meta(owner).SIGNER()}
	for name, bad := range map[string][]byte{
		"more":           message(owner, v0, solana.NewInstruction(program, four, approve(13, 71, 6))),
		"other decimals": message(owner, v0, solana.NewInstruction(program, four, approve(13, 70, 9))),
		"a transfer":     message(owner, v0, solana.NewInstruction(program, four, approve(12, 70, 6))),
		"another delegate": message(owner, v0, solana.NewInstruction(program, swapped,
			approve(13, 70, 6))),
		"another account": message(owner, v0, solana.NewInstruction(program, other, approve(13, 70, 6))),
		"another program": message(owner, v0, solana.NewInstruction(solana.Token2022ProgramID, four,
			approve(13, 70, 6))),
		"no token program": message(owner, v0, solana.NewInstruction(solana.SystemProgramID, four,
			approve(13, 70, 6))),
		"two instructions":    message(owner, v0, grants, grants),
		"a revocation":        message(owner, v0, revokes),
		"another payer":       message(solana.PublicKey{8}, v0, grants),
		"legacy":              message(owner, solana.MessageVersionLegacy, grants),
		"something behind it": append(message(owner, v0, grants), 0),
		"endless":             make([]byte, 1232+1),
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, must.Err(key.SignDelegation(bad, meant)), coded.ErrUnsupported, name)
		})
	}
	require.ErrorIs(t, must.Err(key.SignDelegation(message(owner, v0, grants), end)), coded.ErrUnsupported)

	evm := must.Get(newImported("", wallet.ChainEVM, keytest.Unhex(t, keytest.EVMSecret)))(t)
	for _, other := range []Key{{}, evm} { // no key of the owner's on Solana
		_, err := other.SignDelegation(message(owner, v0, grants), meant)
		require.ErrorIs(t, err, coded.ErrUnsupported)
	}
}
