package history

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func testChannel(nonce uint64) Channel {
	return Channel{Service: "did:rooch:payee", Key: "did:rooch:payer#key-1", Server: "nuwa",
		Network: "rooch:local", Source: "hub", ID: "0x01",
		Nonce: nonce, Amount: money.NewAmount(100 * nonce), Signed: json.RawMessage(`{"nonce":"` +
			string(rune('0'+nonce)) + `"}`)}
}

// byVoucher is one call of a channel from its hold to its voucher.
func byVoucher(t *testing.T, s *Store, c Channel) (Payment, error) {
	t.Helper()
	p := pay(t, s, testHold(100), Reserved)
	return s.RecordVoucher(t.Context(), p, Signed{Payload: c.Signed, Requirement: json.RawMessage("{}"),
		UniqueKey: "rooch " + c.ID + " " + string(c.Signed)}, c,
		Outcome{State: Settled, Proof: Claimed, Content: &Content{Status: 200, Body: []byte("bought")},
			ReleaseLease: true}, testKeyholder())
}

func TestVouchersOnlyGrow(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		_, err := s.Channel(t.Context(), "did:rooch:payee", "did:rooch:payer#key-1")
		require.ErrorIs(t, err, ErrNotFound)
		require.NoError(t, s.SaveChannel(t.Context(), testChannel(0)))

		p := must.Get(byVoucher(t, s, testChannel(1)))(t)
		require.Equal(t, Settled, p.State)
		require.Equal(t, Claimed, p.Proof)
		c := must.Get(s.Channel(t.Context(), "did:rooch:payee", "did:rooch:payer#key-1"))(t)
		require.EqualValues(t, 1, c.Nonce)
		require.Equal(t, money.NewAmount(100), c.Amount)
		require.JSONEq(t, `{"nonce":"1"}`, string(c.Signed))
		require.Equal(t, "bought", string(must.Get(s.Content(t.Context(), p.ID))(t).Body))

		p = must.Get(byVoucher(t, s, testChannel(2)))(t)
		for name, c := range map[string]Channel{
			"the same nonce":                {Nonce: 2, Amount: money.NewAmount(300)},
			"an older one":                  {Nonce: 1, Amount: money.NewAmount(300)},
			"less than was signed":          {Nonce: 3, Amount: money.NewAmount(199)},
			"a nonce of another open epoch": {Nonce: 2, Amount: money.NewAmount(300)},
		} {
			t.Run(name, func(t *testing.T) {
				bad := testChannel(2)
				bad.Nonce, bad.Amount, bad.Signed = c.Nonce, c.Amount, json.RawMessage(`"`+name+`"`)
				got, err := byVoucher(t, s, bad)
				require.ErrorIs(t, err, errVoucherConflict, name)
				require.Empty(t, got.ID, name)
			})
		}
		unfinished := must.Get(s.Unfinished(t.Context(), "", 10))(t)
		require.Len(t, unfinished, 4, "what was refused is as it was before: held, and not submitted")
		for _, p := range unfinished {
			require.Equal(t, Reserved, p.State)
		}

		// what is no voucher changes none
		c = testChannel(2)
		c.Delivered, c.PendingCall, c.Claimed = true, json.RawMessage(`{"url":"x"}`), money.NewAmount(50)
		require.NoError(t, s.SaveChannel(t.Context(), c))
		c.Nonce, c.Amount = 1, money.NewAmount(100)
		require.ErrorIs(t, s.SaveChannel(t.Context(), c), errVoucherConflict)
		c = testChannel(2)
		c.Signed = json.RawMessage(`{"nonce":"other"}`)
		require.ErrorIs(t, s.SaveChannel(t.Context(), c), errVoucherConflict)

		// a new epoch begins again, and the old one never comes back
		c = testChannel(0)
		c.Epoch, c.Signed = 1, nil
		require.NoError(t, s.SaveChannel(t.Context(), c))
		require.ErrorIs(t, must.Err(byVoucher(t, s, testChannel(3))), errVoucherConflict)

		c.Refused = json.RawMessage(`{"why":"nonce"}`)
		require.NoError(t, s.Refuse(t.Context(), c))
		list := must.Get(s.Channels(t.Context()))(t)
		require.Len(t, list, 1)
		require.JSONEq(t, `{"why":"nonce"}`, string(list[0].Refused))
		require.EqualValues(t, 1, list[0].Epoch)
		must.Get(s.Verify(t.Context(), Head{}))(t)
		require.Equal(t, Settled, p.State)
	})
}

// What was frozen between the hold and the voucher is signed for by nobody, and the channel
// stays where it was.
func TestNoVoucherWhileFrozen(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		require.NoError(t, s.SaveChannel(t.Context(), testChannel(0)))
		p := pay(t, s, testHold(100), Reserved)
		require.NoError(t, s.Freeze(t.Context(), Freeze{By: "owner"}))
		c := testChannel(1)
		requireCode(t, must.Err(s.RecordVoucher(t.Context(), p, Signed{Payload: c.Signed,
			Requirement: json.RawMessage("{}"), UniqueKey: "x"}, c,
			Outcome{State: Settled, Proof: Claimed}, testKeyholder())), x402.WalletFrozen)
		c = must.Get(s.Channel(t.Context(), c.Service, c.Key))(t)
		require.Zero(t, c.Nonce)
	})
}
