package channel

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/x402/money"
)

// uncertainGuard is the key's side of a ledger whose writes may fail.
type uncertainGuard struct {
	*guardStub
	ledger *historytest.Uncertain
}

func (g uncertainGuard) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (paid history.Payment, err error) {
	err = g.ledger.Write("RecordVoucher", func() error {
		paid, err = g.guardStub.RecordVoucher(ctx, p, signed, c, o, here)
		return err
	})
	if err != nil {
		return p, err
	}
	return paid, nil
}

// Whichever write of a channel answers with an error, whether or not it took effect, every call that was
// served is signed for once, here and in the process that goes on, and nothing stays held.
func TestEachWriteMayFail(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after it took effect: ", after), func(t *testing.T) {
			w := newWorld(t)
			w.rules.Rate = 10_000
			w.start()
			w.open()
			seen := map[string]bool{}
			for nth := 1; ; nth++ {
				ledger := &historytest.Uncertain{Store: w.store, Nth: nth, After: after}
				w.m.Store, w.m.Engine.Store = ledger, ledger
				w.m.Guard = uncertainGuard{w.guard, ledger}
				w.m.services.Delete("nuwa") // what it found before holds the ledger that does not fail
				for range 3 {
					_, err := w.call("echo")
					require.True(t, err == nil || ledger.Failed() != "", "%v", err)
				}
				about := fmt.Sprintf("write %d, %s", nth, ledger.Failed())
				open, err := w.store.Unfinished(t.Context(), "", 100)
				require.NoError(t, err, about)
				require.Empty(t, open, about)
				w.start()
				_, err = w.call("echo")
				require.NoError(t, err, about)
				s, err := w.m.Recover(t.Context(), "nuwa")
				require.NoError(t, err, about)
				require.Equal(t, money.NewAmount(uint64(len(w.service.calls))*price), s.Signed, about)
				require.Equal(t, s.Signed, w.paidFor(), about)
				_, err = w.m.Engine.Reconcile(t.Context())
				require.NoError(t, err, about)
				open, err = w.store.Unfinished(t.Context(), "", 100)
				require.NoError(t, err, about)
				require.Empty(t, open, about)
				if ledger.Failed() == "" {
					break
				}
				seen[ledger.Failed()] = true
			}
			require.NoError(t, w.chain.claim(*w.service.stored))
			require.Equal(t, map[string]bool{"Reserve": true, "RecordVoucher": true, "SaveChannel": true,
				"Deliver": true}, seen)
		})
	}
}
