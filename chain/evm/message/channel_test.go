package message

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

func TestChannelIDEqualsTheVector(t *testing.T) {
	content := must.Get(os.ReadFile("../testdata/batch-vectors.json"))(t)
	var all map[string]struct {
		ChannelConfig x402.ChannelConfig
		ChannelID     string `json:"channelId"`
		Erc3009Nonce  string
	}
	require.NoError(t, json.Unmarshal(content, &all))
	v := all["batch_channel_id"]
	id := must.Get(ChannelID("eip155:84532", v.ChannelConfig))(t)
	require.Equal(t, v.ChannelID, Hex(id[:]))
	salt := [32]byte{}
	for i := range salt {
		salt[i] = byte(i + 1)
	}
	require.Equal(t, v.Erc3009Nonce, Hex(crypto.Keccak256(id[:], salt[:])))
	v.ChannelConfig.WithdrawDelay++
	other := must.Get(ChannelID("eip155:84532", v.ChannelConfig))(t)
	require.NotEqual(t, id, other)
}
