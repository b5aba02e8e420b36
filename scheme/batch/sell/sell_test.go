package sell

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Whatever a buyer shows for a channel: no panic, and what is taken is a voucher of who signs for the channel
// that was asked for, with a deposit that is not below the least.
func FuzzReadChannel(f *testing.F) {
	text := must.Get(os.ReadFile("../../../chain/evm/testdata/batch-vectors.json"))(f)
	var vectors map[string]struct {
		PaymentRequired struct{ Accepts []json.RawMessage }
		Payload         struct{ Payload json.RawMessage }
	}
	require.NoError(f, json.Unmarshal(text, &vectors))
	asked, err := x402.DecodeRequirement(vectors["batch_deposit_eip3009"].PaymentRequired.Accepts[0], 2)
	require.NoError(f, err)
	asset, known := x402.NewRegistry(nil).Asset(asked.Network, asked.Asset)
	require.True(f, known)
	o := selling.Option{Network: asked.Network, PayTo: asked.PayTo, Asset: asset, Amount: asked.Amount,
		Way: Way{}, MinDeposit: money.NewAmount(5000)}
	shop := selling.Shop{Now: func() time.Time { return time.Unix(1740672089, 0) }}
	read := func(payload []byte) (selling.Signed, error) {
		return Way{}.Read(selling.Shown{Option: o, Asked: asked, Version: 2, Payload: payload}, shop)
	}
	taken := 0
	for _, v := range vectors {
		if len(v.Payload.Payload) == 0 {
			continue
		}
		f.Add([]byte(v.Payload.Payload))
		if _, err := read(v.Payload.Payload); err == nil {
			taken++
		}
	}
	require.Positive(f, taken, "the reference client's are taken")
	f.Fuzz(func(t *testing.T, payload []byte) {
		s, err := read(payload)
		if err != nil {
			return
		}
		c := s.Tab.(*tab).payment
		id := common.HexToHash(c.id)
		require.True(t, evm.IsOwnVoucher(o.Network, id, c.voucher(), c.Config.PayerAuthorizer))
		require.Equal(t, id, must.Get(evm.ChannelID(o.Network, c.Config))(t))
		require.True(t, strings.EqualFold(c.Config.Receiver, o.PayTo) &&
			strings.EqualFold(c.Config.Token, asset.Address))
		require.True(t, c.Deposit == nil || c.Deposit.Amount.Cmp(o.MinDeposit) >= 0)
		require.True(t, s.Expires.After(shop.Now()))
		require.Contains(t, s.UniqueKey, c.id)
	})
}
