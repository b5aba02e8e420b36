package imported

import (
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/coded"
)

// What an owner signs is EIP-1559's hash of the transaction, as go-ethereum's encoder writes it.
func TestVaultTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path,
		[]byte("0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"), 0o600))
	owner, err := Read(t.Context(), "key-file:evm", path, nil)
	require.NoError(t, err)
	defer owner.Wipe()
	to := common.FromHex(testVault)
	for name, c := range map[string]struct {
		to   []byte
		data []byte
	}{
		"a short call": {to, common.FromHex("b6549f75")},
		"a call":       {to, append(common.FromHex("b6b55f25"), make([]byte, 32)...)},
		"a deployment": {nil, make([]byte, 5000)},
		"one byte":     {nil, []byte{1}},
	} {
		t.Run(name, func(t *testing.T) {
			const chain, nonce, tip, most, gas = 84532, 0, 1, 2_000_000_000, 21_000
			encoded, err := rlp.EncodeToBytes([]any{uint64(chain), uint64(nonce), big.NewInt(tip),
				big.NewInt(most), uint64(gas), c.to, new(big.Int), c.data, []any{}})
			require.NoError(t, err)
			ours := VaultTransaction{ChainID: chain, Nonce: nonce, Gas: gas, Tip: [32]byte{31: tip},
				Data: c.data}
			big.NewInt(most).FillBytes(ours.MaxFee[:])
			if c.to != nil {
				ours.To = testVault
			}
			signature, err := owner.SignVaultTransaction(ours)
			require.NoError(t, err)
			signature[64] -= 27
			key, err := crypto.SigToPub(crypto.Keccak256([]byte{2}, encoded), signature[:])
			require.NoError(t, err)
			require.Equal(t, owner.Address, crypto.PubkeyToAddress(*key).Hex())
		})
	}
	good := VaultTransaction{ChainID: 1, To: testVault, Data: common.FromHex("b6549f75")}
	for name, spoil := range map[string]func(v *VaultTransaction){
		"a transfer":  func(v *VaultTransaction) { v.Data = common.FromHex("a9059cbb") },
		"no call":     func(v *VaultTransaction) { v.Data = nil },
		"no chain":    func(v *VaultTransaction) { v.ChainID = 0 },
		"no address":  func(v *VaultTransaction) { v.To = "0x12" },
		"no contract": func(v *VaultTransaction) { v.To, v.Data = "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			spoil(&bad)
			_, err := owner.SignVaultTransaction(bad)
			require.ErrorIs(t, err, coded.ErrUnsupported)
		})
	}
	_, err = Key{}.SignVaultTransaction(good)
	require.ErrorIs(t, err, coded.ErrUnsupported)
}

const testVault = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
