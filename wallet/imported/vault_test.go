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

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
)

// What an owner signs is EIP-1559's hash of the transaction, as go-ethereum's encoder writes it.
func TestVaultTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path,
		[]byte("0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"), 0o600))
	owner := must.Get(Read(t.Context(), "key-file:evm", path, nil))(t)
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
			encoded := must.Get(rlp.EncodeToBytes([]any{uint64(chain), uint64(nonce), big.NewInt(tip),
				big.NewInt(most), uint64(gas), c.to, new(big.Int), c.data, []any{}}))(t)
			ours := VaultTransaction{ChainID: chain, Nonce: nonce, Gas: gas, Tip: [32]byte{31: tip},
				Data: c.data}
			big.NewInt(most).FillBytes(ours.MaxFee[:])
			if c.to != nil {
				ours.To = testVault
			}
			signature := must.Get(owner.SignVaultTransaction(ours))(t)
			signature[64] -= 27
			key := must.Get(crypto.SigToPub(crypto.Keccak256([]byte{2}, encoded), signature[:]))(t)
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
			require.ErrorIs(t, must.Err(owner.SignVaultTransaction(bad)), coded.ErrUnsupported)
		})
	}
	require.ErrorIs(t, must.Err(Key{}.SignVaultTransaction(good)), coded.ErrUnsupported)
}

const testVault = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
