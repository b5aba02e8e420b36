package curve

import (
	"encoding/hex"
	"testing"

	"x402-wallet/internal/must"
)

// The first account of anvil.
const (
	goldenEVMSecret = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	goldenEVM       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
)

func unhex(t testing.TB, s string) []byte {
	return must.Get(hex.DecodeString(s))(t)
}
