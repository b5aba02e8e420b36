package payload

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
)

func TestRecoverAgentIsStrict(t *testing.T) {
	made := vaultPayload(t)
	agent, _, err := RecoverAgent(sepolia, usdc, made)
	require.NoError(t, err)
	require.Equal(t, us, agent)
	a, wrapped, err := decodePayload(made)
	require.NoError(t, err)
	object := must.Get(message.EncodeAuthorization(a))(t)
	for i := range wrapped {
		if i >= signatureStart && i < signatureStart+65 {
			continue // the agent's signature itself: another one is another agent's, or none
		}
		bad := bytes.Clone(wrapped)
		bad[i] ^= 1
		payload := must.Get(Encode(object, bad))(t)
		_, _, err = RecoverAgent(sepolia, usdc, payload)
		require.Error(t, err, "byte %d", i)
	}
	for _, bad := range [][]byte{nil, wrapped[:319], append(bytes.Clone(wrapped), 0), wrapped[:65]} {
		payload := must.Get(Encode(object, bad))(t)
		_, _, err = RecoverAgent(sepolia, usdc, payload)
		require.Error(t, err)
	}
}
