package pay

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

type readChain struct {
	*chain
	reads atomic.Int32
	begun chan struct{}             // gets one for each reading
	age   time.Duration             // of what is read
	hangs func(ctx context.Context) // nil: it answers at once
	after func()                    // is called, if not nil, when it was read
}

func (c *readChain) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	c.reads.Add(1)
	c.begun <- struct{}{}
	if c.hangs != nil {
		c.hangs(ctx)
	}
	if ctx.Err() != nil {
		return x402.Funds{}, ctx.Err()
	}
	funds, err := c.chain.Funds(ctx, network, asset)
	funds.ReadAt = funds.ReadAt.Add(-c.age)
	c.age = 0
	if c.after != nil {
		c.after()
	}
	return funds, err
}

func newReadBench(t *testing.T) (*bench, *readChain) {
	b := newBench(t, "10000", honest)
	c := &readChain{chain: b.chain, begun: make(chan struct{}, 100)}
	b.Schemes[exactEVM] = c
	return b, c
}

// Where a seller was paid before, the chain is read while it is asked: once for each purchase.
func TestTheChainIsReadWhileTheSellerIsAsked(t *testing.T) {
	b, c := newReadBench(t)
	b.mustPay(t, testURL)
	require.EqualValues(t, 1, c.reads.Load())
	<-c.begun
	for i := range 3 {
		b.Transport = beforeAsked{b.seller, func() { <-c.begun }} // or nobody is ever asked
		b.mustPay(t, testURL)
		require.EqualValues(t, 2+i, c.reads.Load())
	}
	require.Equal(t, 4, b.chain.settlements())
}

// A reading that is old is not gone by, because the seller took its time.
func TestAnOldReadingIsNotUsed(t *testing.T) {
	b, c := newReadBench(t)
	for _, reads := range []int32{1, 3} {
		c.age = aheadLife + time.Second
		b.mustPay(t, testURL)
		require.Equal(t, reads, c.reads.Load())
	}
}

// What was paid after a reading began counts as held. Where that is too much the chain is read again.
func TestWhatWasPaidMeanwhile(t *testing.T) {
	b, c := newReadBench(t)
	b.chain.balance = 20_000
	for range 2 {
		c.age = aheadLife / 2
		b.mustPay(t, testURL)
	}
}

// What money is there decides, whenever it is read: the node's no, and too little.
func TestTooLittleWasReadAhead(t *testing.T) {
	b, c := newReadBench(t)
	b.mustPay(t, testURL)
	b.chain.balance = 9_999
	b.mustRefuse(t, x402.InsufficientFunds, testURL)
	b.chain.down = true
	b.mustRefuse(t, x402.RPCError, testURL)
	require.EqualValues(t, 5, c.reads.Load(), "ahead, and once more before it is refused")
	b.chain.down, b.chain.balance = false, 9_999
	c.after = func() { b.chain.balance = 10_000 }
	require.NoError(t, must.Err(b.Pay(t.Context(), get(testURL))), "it came while the seller was asked")
}

// A seller that serves for nothing has nobody wait for the chain, and no node is asked under rules that
// nobody sealed.
func TestAReadingThatNobodyNeeds(t *testing.T) {
	b, c := newReadBench(t)
	b.mustPay(t, testURL)
	c.hangs = func(ctx context.Context) { <-ctx.Done() }
	b.seller.price = ""
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusFree, r.Status)
	require.EqualValues(t, 2, c.reads.Load())
	b.Guard = unsealed{historytest.Guard{Store: b.store}}
	b.mustPay(t, testURL)
	require.EqualValues(t, 2, c.reads.Load())
}

// The next process reads the chain while it asks where an earlier one paid, and begins to unlock the keys. Of
// a host that nobody paid it reads, at the first question alone, what was paid in last elsewhere, and unlocks
// nothing.
func TestTheNextProcessReadsAhead(t *testing.T) {
	b, _ := newReadBench(t)
	b.mustPay(t, testURL)

	next := openBench(t, b.home, b.chain, "10000", honest)
	c := &readChain{chain: b.chain, begun: make(chan struct{}, 100)}
	var unlocks atomic.Int32
	next.Schemes[exactEVM], next.UnlockAhead = c, func() { unlocks.Add(1) }
	next.seller.price = ""
	for i, call := range []struct {
		url            string
		reads, unlocks int32
	}{{"http://other.example/", 1, 0}, {"http://other.example/again", 1, 0}, {testURL, 2, 1}} {
		next.mustPay(t, call.url)
		require.Equal(t, call.reads, c.reads.Load(), i)
		require.Equal(t, call.unlocks, unlocks.Load(), i)
	}
}

// A wallet that never paid reads what its owner prefers while it asks for the first time.
func TestTheFirstCallReadsWhatTheOwnerPrefers(t *testing.T) {
	b, c := newReadBench(t)
	b.Policy.Prefer = []string{"solana:none", testNetwork}
	b.Transport = beforeAsked{b.seller, func() { <-c.begun }}
	b.mustPay(t, testURL)
	require.EqualValues(t, 1, c.reads.Load())
	require.Equal(t, 1, b.chain.settlements())
}

// At a host that nobody paid yet the keys are unlocked while the chain is read, when it asks for money.
func TestKeysAreUnlockedWhileTheChainIsRead(t *testing.T) {
	b, c := newReadBench(t)
	unlocked := make(chan struct{})
	b.UnlockAhead = func() { close(unlocked) }
	c.hangs = func(ctx context.Context) {
		select {
		case <-unlocked:
		case <-ctx.Done():
		}
	}
	b.mustPay(t, testURL)
}

// A node that says, with latest and finalized block in agreement, that a payment has expired which is
// alive, releases nothing: neither at once, nor for the call made again, nor when the machine's clock
// is set forward while the process runs, nor after a restart before its time.
func TestALyingNodeReleasesNothing(t *testing.T) {
	b := newBench(t, "10000", silent)
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	b.chain.dead[b.only(t).Evidence.Nonce] = true // by the node's word
	stays := func(e *Engine) {
		t.Helper()
		require.Equal(t, Report{Checked: 1, Open: 1}, must.Get(e.Reconcile(t.Context()))(t))
		require.Equal(t, history.Unknown, b.only(t).State)
	}
	stays(b.Engine)
	require.Error(t, must.Err(b.Pay(t.Context(), get(testURL))))
	require.Equal(t, 1, b.chain.signed, "the same bytes, and no others")
	stays(b.Engine)
	b.clockForward()
	stays(b.Engine)

	require.NoError(t, b.store.Close())
	again := openBench(t, b.home, b.chain, "10000", silent)
	b.store = again.store
	stays(again.Engine)
	end := b.only(t).Evidence.ExpiresAt
	var said bytes.Buffer
	again.Log = slog.New(slog.NewTextHandler(&said, nil))
	lies := map[time.Duration]bool{-time.Second: true, 0: false, maxSkew - time.Second: false}
	for early, isLie := range lies {
		said.Reset()
		again.Now = func() time.Time { return end.Add(early) }
		stays(again.Engine)
		require.Equal(t, isLie, strings.Contains(said.String(), "by this machine's clock it has not"), early)
	}
	again.Now = func() time.Time { return end.Add(maxSkew) }
	require.Equal(t, Report{Checked: 1, Failed: 1}, must.Get(again.Reconcile(t.Context()))(t))
	require.Equal(t, history.Failed, b.only(t).State)
}

// What this process signed is over when its time is, and only then; the list of them is bounded.
func TestLocalExpiries(t *testing.T) {
	var s localExpiries
	require.True(t, s.passed("another process's"))
	s.note("live", time.Hour)
	s.note("dead", -time.Nanosecond)
	require.False(t, s.passed("live"))
	require.True(t, s.passed("dead"))
	for range maxLocalExpiries {
		s.note(history.NewID(time.Now()), time.Hour)
	}
	require.LessOrEqual(t, len(s.until), maxLocalExpiries)
}
