package payload

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

const (
	sepolia  = "eip155:84532"
	payee    = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	stranger = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	us       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	vault    = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
)

var usdc = x402.AssetInfo{Network: sepolia, Address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
	Symbol: "USDC", Decimals: 6, Name: "USDC", Version: "2"}

func readJSON[T any](t testing.TB, path string) (v T) {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	require.NoError(t, json.Unmarshal(content, &v))
	return v
}

// vaultPayload is a payment out of a vault, signed by the vectors' key, which is its agent's.
func vaultPayload(t testing.TB) []byte {
	key := must.Get(crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))(t)
	a := message.Authorization3009{From: vault, To: payee, Value: money.NewAmount(10_000),
		ValidBefore: 1740672149, Nonce: [32]byte{1, 2, 3}}
	digest := must.Get(message.Digest(usdc, a))(t)
	signature := must.Get(crypto.Sign(digest[:], key))(t)
	signature[64] += 27
	wrapped := must.Get(Wrap(a, [65]byte(signature)))(t)
	object := must.Get(message.EncodeAuthorization(a))(t)
	made := must.Get(Encode(object, wrapped))(t)
	return made
}
