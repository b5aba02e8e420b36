package payload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is read as a payload of a channel: no panic, and written again it is read as the same.
func FuzzDecodeChannel(f *testing.F) {
	for name, v := range readJSON[map[string]struct {
		Payload struct{ Payload json.RawMessage }
	}](f, "../testdata/batch-vectors.json") {
		if strings.HasPrefix(name, "batch_deposit") || strings.Contains(name, "voucher") {
			f.Add([]byte(v.Payload.Payload))
		}
	}
	f.Add([]byte(`{"type":"voucher","channelConfig":{},"voucher":{}}`))
	f.Add([]byte(`{"type":"deposit","deposit":{"amount":"1","authorization":{}}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, s, err := DecodeChannel(usdc, payload)
		if err != nil {
			return
		}
		again, err := EncodeChannel(m, s)
		require.NoError(t, err)
		n, s2, err := DecodeChannel(usdc, again)
		require.NoError(t, err)
		require.Equal(t, m, n)
		require.Equal(t, s, s2)
	})
}
