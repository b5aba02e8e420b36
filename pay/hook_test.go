package pay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/x402"
)

type hook struct {
	b     *bench
	says  func(ctx context.Context, p history.Payment) error
	asked []history.Payment
	woken int
}

func (h *hook) MayPay(ctx context.Context, p history.Payment) error {
	h.asked = append(h.asked, p)
	return h.says(ctx, p)
}

func (h *hook) Wake() { h.woken++ }

// A payment that the owner's program refuses is not signed, its hold ends, and no other option is taken
// instead.
func TestAPaymentThatAHookRefuses(t *testing.T) {
	refusal := x402.Errorf(x402.PolicyDenied, "not on a Sunday")
	for name, row := range map[string]struct {
		says func(ctx context.Context, p history.Payment) error
		code x402.Code
	}{
		"refuses": {func(context.Context, history.Payment) error { return refusal }, x402.PolicyDenied},
		"hangs": {func(ctx context.Context, _ history.Payment) error { <-ctx.Done(); return ctx.Err() },
			x402.Timeout},
		"fails": {func(context.Context, history.Payment) error { return errors.New("x") }, x402.PayFailed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			whole := b.Policy.Deadline
			if name == "hangs" {
				b.Policy.Deadline = 2 * time.Second
			}
			h := &hook{b: b, says: row.says}
			b.Hooks, b.Transport = h, twoPrices{b.seller}
			e := b.mustRefuse(t, row.code, testURL)
			require.Empty(t, e.PaymentID, "nothing is spent")
			p := b.only(t)
			require.Equal(t, history.Failed, p.State, "the hold is gone")
			require.Zero(t, b.chain.signed)
			require.Empty(t, b.seller.sent())
			require.Len(t, h.asked, 1)
			require.Equal(t, p.ID, h.asked[0].ID)
			require.Equal(t, []any{history.Reserved, "api.example", "10000"}, []any{h.asked[0].State,
				h.asked[0].Host, h.asked[0].Amount.String()}, "it is asked while the money is held")

			h.says, b.Policy.Deadline = func(context.Context, history.Payment) error { return nil }, whole
			r := b.mustPay(t, testURL)
			require.Equal(t, StatusPaid, r.Status)
			require.Len(t, h.asked, 2, "once for each payment")
			require.Equal(t, 2, h.woken)
		})
	}
}

func TestNoHookOfUnsealedRules(t *testing.T) {
	b := newBench(t, "10000", honest)
	h := &hook{b: b, says: func(context.Context, history.Payment) error { return nil }}
	b.Hooks = h
	b.Guard = unsealed{b.Guard}
	b.mustRefuse(t, x402.PolicyUnsealed, testURL)
	require.Empty(t, h.asked)
}
