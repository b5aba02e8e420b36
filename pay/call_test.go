package pay

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

func TestCallEndsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		end       func(*Call)
		delivered bool
	}{
		"delivered":             {(*Call).Deliver, true},
		"cancelled":             {(*Call).Cancel, false},
		"cancelled after that":  {func(c *Call) { c.Deliver(); c.Cancel() }, true},
		"delivered after leave": {func(c *Call) { c.Cancel(); c.Deliver() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			call := new(Call)
			var delivered []bool
			call.OnEnd(func(d bool) { delivered = append(delivered, d) })
			ctx := WithCall(t.Context(), call)
			require.Same(t, call, CallFrom(ctx))
			require.NoError(t, ctx.Err())
			c.end(call)
			call.OnEnd(func(d bool) { delivered = append(delivered, d) })
			require.Equal(t, []bool{c.delivered, c.delivered}, delivered)
			require.Equal(t, !c.delivered, call.Cancelled())
			require.Equal(t, !c.delivered, ctx.Err() != nil, "Cancel has cancelled it before it returns")
			require.Error(t, WithCall(t.Context(), call).Err())
		})
	}
}

// leaving is what ends a call whose client is gone.
var leaving = map[string]func(*Call){"Cancel": (*Call).Cancel, "Leave": (*Call).Leave}

// Of a call whose client is gone either the payment is found, or it will not be made.
func TestInflightAfterACancellation(t *testing.T) {
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) { inflightAfter(t, leave) })
	}
}

func inflightAfter(t *testing.T, leave func(*Call)) {
	request, other := [32]byte{1}, [32]byte{2}
	t.Run("a payment that the ledger does not have yet is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var f inflight
			call := new(Call)
			written := must.Get(f.begin("pay_1", request, WithCall(t.Context(), call)))(t)
			f.awaitLeftBehind(t.Context(), request) // its client waits: another purchase
			leave(call)
			f.awaitLeftBehind(t.Context(), other)
			var order []string
			var waiting sync.WaitGroup
			waiting.Go(func() {
				f.awaitLeftBehind(t.Context(), request)
				order = append(order, "found")
			})
			synctest.Wait()
			order = append(order, "written")
			written()
			waiting.Wait()
			require.Equal(t, []string{"written", "found"}, order)
			f.awaitLeftBehind(t.Context(), request)
			require.Empty(t, f.unwritten)
		})
	})
	t.Run("one that was not begun is refused", func(t *testing.T) {
		var f inflight
		call := new(Call)
		ctx := WithCall(t.Context(), call)
		leave(call)
		_, err := f.begin("pay_1", request, ctx)
		require.ErrorIs(t, err, context.Canceled)
		code(t, x402.Timeout, err) // and not that the wallet failed
		require.Empty(t, f.payments)
	})
	t.Run("an answer that is on its way is waited for until the call is cancelled", func(t *testing.T) {
		var f inflight
		call := new(Call)
		ctx, cancel := context.WithCancel(WithCall(t.Context(), call))
		written := must.Get(f.begin("pay_1", request, ctx))(t)
		written()
		f.end("pay_1", true)
		cancel() // the handler has returned
		working, awaited := f.look("pay_1", nil)
		require.False(t, working)
		require.True(t, awaited)
		leave(call)
		_, awaited = f.look("pay_1", nil)
		require.False(t, awaited)
	})
}

// slowChain has a call wait when it reads the funds, just before money is held.
type slowChain struct {
	*chain
	reading chan struct{}
	proceed chan struct{}
}

func (c slowChain) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	c.reading <- struct{}{}
	<-c.proceed
	return c.chain.Funds(ctx, network, asset)
}

// A call whose client is gone before its money is held holds none, though nothing has told its
// goroutine yet: the same call right behind it buys, once.
func TestCallCancelledBeforeItsMoneyIsHeld(t *testing.T) {
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) { leftBeforeTheHold(t, leave) })
	}
}

func leftBeforeTheHold(t *testing.T, leave func(*Call)) {
	b := newBench(t, "10000", honest)
	slow := slowChain{b.chain, make(chan struct{}), make(chan struct{})}
	b.Schemes[exactEVM] = slow
	call := new(Call)
	first := make(chan error)
	go func() {
		_, err := b.Pay(WithCall(t.Context(), call), get(testURL))
		first <- err
	}()
	<-slow.reading
	leave(call)
	second := make(chan Result)
	go func() {
		r := must.Get(b.Pay(WithCall(t.Context(), new(Call)), get(testURL)))(t)
		second <- r
	}()
	<-slow.reading
	slow.proceed <- struct{}{}
	slow.proceed <- struct{}{}
	require.Error(t, <-first)
	require.Equal(t, StatusPaid, (<-second).Status)
	require.Equal(t, 1, b.chain.settlements())
	require.Eventually(t, func() bool { return b.only(t).Waiter != "" }, time.Minute, time.Millisecond)
}

// What a late answer bought goes to the calls that were read a while after it, until it is delivered.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := func() *Call { return &Call{Began: time.Now()} }
		first, waiting, quick := began(), began(), began()
		require.False(t, quick.answering())
		time.Sleep(LateAnswer)
		require.True(t, first.answering())
		require.True(t, first.Late())
		time.Sleep(reaction)
		atOnce := began()
		time.Sleep(time.Millisecond)
		later := began()
		for _, own := range []*Call{nil, waiting, atOnce} {
			require.False(t, first.isLeftTo(own))
		}
		require.True(t, first.isLeftTo(later))
		require.False(t, quick.isLeftTo(later))
		first.Deliver()
		require.False(t, first.isLeftTo(later))
		require.False(t, new(Call).answering(), "whose beginning is not known")

		first = began()
		time.Sleep(time.Second) // its client gives up
		again, third := began(), began()
		again.Repeats(first)
		third.Repeats(first)
		time.Sleep(time.Second - time.Millisecond)
		require.False(t, again.answering())
		time.Sleep(time.Millisecond)
		require.True(t, third.answering(), "this client does not wait longer than it did")
	})
}

// A call made again waits for its first, and no longer than its own client does.
func TestACallWaitsForTheOneItRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, again := &Call{}, &Call{}
		again.Repeats(first)
		ctx, cancel := context.WithTimeout(WithCall(t.Context(), again), time.Second)
		defer cancel()
		require.ErrorIs(t, awaitFirst(ctx), context.DeadlineExceeded)
		time.AfterFunc(time.Second, first.Cancel)
		require.NoError(t, awaitFirst(WithCall(t.Context(), again)))
		require.NoError(t, awaitFirst(WithCall(t.Context(), first)))
		require.NoError(t, awaitFirst(t.Context()))
	})
}

// Who left takes no turn that happens to be free, and nothing that was read ahead.
func TestWhoLeftTakesNoTurn(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	done := make(chan struct{})
	close(done)
	for range 100 { // which of two ready channels is picked is chance
		require.ErrorIs(t, must.Err(new(turns).begin(ctx, "a")), context.Canceled)
		_, ok := readings{{done: done}}.take(ctx, option{}, time.Time{})
		require.False(t, ok)
	}
}

// deferredSellers are those under /channel/; what is bought there is noted.
type deferredSellers struct {
	asked  int
	bought []Charge
}

func (d *deferredSellers) Serves(_ context.Context, r seller.Request) (string, bool) {
	d.asked++
	return "service", strings.Contains(r.URL, "/channel/")
}

func (d *deferredSellers) Buy(_ context.Context, service string, c Charge) (Result, error) {
	d.bought = append(d.bought, c)
	return Result{Status: StatusPaid, PaymentID: service}, nil
}

// The engine chooses who pays a seller: whoever calls it need not know which sellers have channels.
func TestDeferredSellersAreDispatched(t *testing.T) {
	b := newBench(t, "50000", nil)
	deferred := &deferredSellers{}
	b.Deferred = deferred
	q := get("https://api.example/channel/echo")
	q.Method, q.MaxAmount = "get", "$0.10"

	require.Equal(t, "service", must.Get(b.Pay(t.Context(), q))(t).PaymentID)
	require.Len(t, deferred.bought, 1)
	require.Equal(t, "GET", deferred.bought[0].Request().Method, "the request is normalized")
	require.Equal(t, "$0.10", deferred.bought[0].in.MaxAmount)

	_, err := b.Estimate(t.Context(), q)
	code(t, x402.EstimateFailed, err)

	entry := q
	entry.Method = seller.Initialize
	_, served := b.deferred(t.Context(), intent{Request: entry})
	require.False(t, served, "being let in is paid by x402, whoever lets in")

	b.Rules.DenyHosts = []string{"api.example"}
	asked := deferred.asked
	_, err = b.Pay(t.Context(), q)
	code(t, x402.PolicyDenied, err)
	require.Equal(t, asked, deferred.asked, "a forbidden host is not even asked whether it has channels")
	require.Len(t, deferred.bought, 1)
}
