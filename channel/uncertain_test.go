package channel

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// uncertain is a ledger whose nth write answers with an error: before it took effect, or after it.
type uncertain struct {
	*history.Store
	after      bool
	nth, count int
	failed     string // the write that did
}

func (u *uncertain) write(what string, do func() error) error {
	u.count++
	if u.count != u.nth {
		return do()
	}
	u.failed = what
	if u.after {
		_ = do()
	}
	return errors.New("disk I/O error")
}

func (u *uncertain) SaveChannel(ctx context.Context, c history.Channel) error {
	return u.write("SaveChannel", func() error { return u.Store.SaveChannel(ctx, c) })
}

func (u *uncertain) Reserve(ctx context.Context, h history.Hold) (p history.Payment, err error) {
	err = u.write("Reserve", func() error { p, err = u.Store.Reserve(ctx, h); return err })
	return p, err
}

func (u *uncertain) Release(ctx context.Context, id, why string) error {
	return u.write("Release", func() error { return u.Store.Release(ctx, id, why) })
}

type uncertainGuard struct {
	*guardStub
	ledger *uncertain
}

func (g uncertainGuard) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (paid history.Payment, err error) {
	err = g.ledger.write("RecordVoucher", func() error {
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
				ledger := &uncertain{Store: w.store, nth: nth, after: after}
				w.m.Store, w.m.Engine.Store = ledger, ledger
				w.m.Guard = uncertainGuard{w.guard, ledger}
				w.m.services.Delete("nuwa") // what it found before holds the ledger that does not fail
				for range 3 {
					_, err := w.call("echo")
					require.True(t, err == nil || ledger.failed != "", "%v", err)
				}
				about := fmt.Sprintf("write %d, %s", nth, ledger.failed)
				open, err := w.store.Unfinished(t.Context(), "", 100)
				require.NoError(t, err, about)
				if ledger.failed != "Reserve" { // what that has written unseen, another process or start ends
					require.Empty(t, open, about)
				}
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
				if ledger.failed == "" {
					break
				}
				seen[ledger.failed] = true
			}
			require.NoError(t, w.chain.claim(*w.service.stored))
			require.Equal(t, map[string]bool{"Reserve": true, "RecordVoucher": true, "SaveChannel": true},
				seen)
		})
	}
}
