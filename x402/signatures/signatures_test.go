package signatures

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// The signatures of the reference client (@x402/extensions 2.27) are verified, and over another text refused.
func TestSignInsOfTheReference(t *testing.T) {
	all := must.JSON[struct{ Vectors map[string]json.RawMessage }](
		must.Get(os.ReadFile("../testdata/extension-vectors.json"))(t))(t)
	for _, name := range []string{"siwx_evm_minimal", "siwx_evm_full", "siwx_evm_agent_key",
		"siwx_solana_minimal", "siwx_solana_full", "siwx_too_old"} {
		good := must.JSON[struct{ Payload x402.SignIn }](all.Vectors[name])(t).Payload
		require.NoError(t, VerifySignIn(good), name)
		bad := good
		bad.Nonce = strings.ToUpper(bad.Nonce)
		require.ErrorContains(t, VerifySignIn(bad), "invalid_siwx_signature", name)
		bad = good
		bad.Signature = bad.Signature[:len(bad.Signature)-2]
		require.ErrorContains(t, VerifySignIn(bad), "malformed_signature", name)
	}
}

// Keys of small order are nobody's: for the neutral element one signature fits every message.
func TestKeysOfSmallOrderSignNothing(t *testing.T) {
	neutral := make([]byte, 32)
	neutral[0] = 1
	signature := make([]byte, 64)
	signature[0] = 1
	require.True(t, ed25519.Verify(neutral, []byte("anything"), signature), "Go takes it")
	require.False(t, VerifyEd25519(neutral, []byte("anything"), signature))
	for _, point := range smallOrder {
		for _, sign := range []byte{0, 0x80} {
			key := must.Get(hex.DecodeString(point))(t)
			key[31] |= sign
			require.False(t, VerifyEd25519(key, []byte("anything"), signature))
		}
	}
}
