package nuwa

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/locks"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402/money"
)

// crashPoint ends the process at one of its steps: before or after whatever reaches the disk, the
// key or the service.
type crashPoint struct{ at, steps int }

type crashed struct{}

func (d *crashPoint) step() {
	d.steps++
	if d.steps == d.at {
		panic(crashed{})
	}
}

type crashingStore struct {
	*locks.Book
	d *crashPoint
}

func (s crashingStore) SaveChannel(ctx context.Context, c history.Channel) error {
	s.d.step()
	defer s.d.step()
	return s.Store.SaveChannel(ctx, c)
}

type crashingGuard struct {
	*guardStub
	d *crashPoint
}

func (g crashingGuard) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (history.Payment, error) {
	g.d.step()
	defer g.d.step()
	return g.guardStub.RecordVoucher(ctx, p, signed, c, o, here)
}

func (s crashingStore) Reserve(ctx context.Context, h history.Hold) (history.Payment, error) {
	s.d.step()
	defer s.d.step()
	return s.Book.Reserve(ctx, h)
}

type crashingKeys struct {
	Keys
	d *crashPoint
}

func (k crashingKeys) SignSubRAV(ctx context.Context, key Key, message []byte, s SubRAV) ([]byte, error) {
	k.d.step()
	defer k.d.step()
	return k.Keys.SignSubRAV(ctx, key, message, s)
}

type crashingService struct {
	*fakeService
	d *crashPoint
}

func (w crashingService) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	w.d.step()
	defer w.d.step() // the service has served; nobody hears of it
	return w.fakeService.Ask(ctx, r)
}

// uncertainBook is a ledger whose channels can be locked.
type uncertainBook struct {
	*historytest.Uncertain
	locks *locks.Book
}

func (b uncertainBook) LockChannel(ctx context.Context, service, key string) (func(), error) {
	return b.locks.LockChannel(ctx, service, key)
}

// A wallet that dies at any step goes on with the same channel: every call that was served is signed
// for once, no nonce is signed for twice (the service looks), and the history is what was signed for.
func TestCrashAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.rules.Rate = 10_000
	w.start()
	w.open()
	crashes := 0
	for at := 1; ; at++ {
		d := &crashPoint{at: at}
		w.m.Store, w.m.Keys, w.m.Transport = crashingStore{locks.New(w.store), d}, crashingKeys{w.m.Keys, d},
			crashingService{w.service, d}
		w.m.Engine.Store = crashingStore{locks.New(w.store), d}
		w.m.Guard = crashingGuard{w.guard, d}
		w.m.services.Delete("nuwa") // what it found before holds the one that does not crash
		before := w.row().Nonce
		end := func() (end any) {
			defer func() { end = recover() }()
			require.NoError(t, must.Err(w.call("echo")), "step %d", at)
			return nil
		}()
		require.LessOrEqual(t, w.row().Nonce, before+2,
			"a call makes one SubRAV, or two with the one that was lost")
		w.start()
		require.NoError(t, must.Err(w.call("echo")), "after the crash at step %d", at)
		s := must.Get(w.m.Recover(t.Context(), "nuwa"))(t)
		require.Equal(t, money.NewAmount(uint64(len(w.service.calls))*price), s.Signed, "step %d", at)
		require.Equal(t, s.Signed, w.paidFor(), "step %d", at)
		must.Get(w.m.Engine.Reconcile(t.Context()))(t)
		unfinished := must.Get(w.store.Unfinished(t.Context(), "", 100))(t)
		require.Empty(t, unfinished, "what was only held is let go")
		if end == nil {
			break
		}
		require.Equal(t, crashed{}, end, "step %d", at)
		crashes++
	}
	require.Greater(t, crashes, 10)
	require.NoError(t, w.chain.claim(*w.service.stored))
	t.Logf("crashed at each of %d steps", crashes)
}

var _ pay.Transport = crashingService{}

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
				w.m.Store, w.m.Engine.Store = uncertainBook{ledger, locks.New(w.store)}, ledger
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
				require.NoError(t, must.Err(w.call("echo")), about)
				s, err := w.m.Recover(t.Context(), "nuwa")
				require.NoError(t, err, about)
				require.Equal(t, money.NewAmount(uint64(len(w.service.calls))*price), s.Signed, about)
				require.Equal(t, s.Signed, w.paidFor(), about)
				require.NoError(t, must.Err(w.m.Engine.Reconcile(t.Context())), about)
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
