package seller

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402/wire"
)

// Of many large answers at once only a few are in memory: the others are read on when one of those
// before them is released, and come whole. Free ones keep no paid one waiting.
func TestLargeBodiesTakeTurns(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	c := newClient(t, s.URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func() (*Answer, error) { return c.Ask(ctx, Request{URL: s.URL}) }
	pay := func() (*Answer, error) {
		return c.Present(ctx, Request{URL: s.URL}, wire.Attachment{Header: "X-PAYMENT", Value: "x"})
	}
	next := func(from chan *Answer, failed chan error) *Answer {
		select {
		case a := <-from:
			return a
		case err := <-failed:
			require.NoError(t, err)
			return nil
		}
	}
	for _, way := range []struct {
		slots int
		taken chan struct{}
		get   func() (*Answer, error)
	}{{slotsAsked, c.http.asked, ask}, {slotsPaid, c.http.paid, pay}} {
		var read atomic.Int32
		var kept []*Answer
		answers, failed := make(chan *Answer), make(chan error, 20)
		for range 20 {
			go func() {
				a, err := way.get()
				if err != nil {
					failed <- err
					return
				}
				read.Add(1)
				answers <- a
			}()
		}
		for range way.slots {
			kept = append(kept, next(answers, failed))
		}
		require.Len(t, way.taken, way.slots)
		for n := way.slots; n < 20; n++ {
			require.EqualValues(t, n, read.Load(), "nobody comes before one has left")
			kept[0].Release()
			kept[0].Release() // once more gives no second slot
			a := next(answers, failed)
			require.Equal(t, body, a.Content)
			require.False(t, a.Truncated)
			kept = append(kept[1:], a)
		}
		require.Empty(t, failed)
		defer runtime.KeepAlive(kept) // the slots of free answers are taken while paid ones are read
	}
	body = []byte("small")
	small := must.Get(ask())(t)
	require.Equal(t, body, small.Content, "what is small needs no slot")
}

// Whoever waits in vain has what came, and knows that it is not all; an answer that nobody released gives
// its slot back when it is garbage collected.
func TestWaitingForASlotEnds(t *testing.T) {
	body := bytes.Repeat([]byte{'x'}, 1<<20)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	c := newClient(t, s.URL)
	var kept []*Answer // else the garbage collector frees their slots
	for range slotsPaid {
		a := must.Get(c.Present(t.Context(), Request{URL: s.URL},
			wire.Attachment{Header: "X-PAYMENT", Value: "x"}))(t)
		kept = append(kept, a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	a, err := c.Present(ctx, Request{URL: s.URL}, wire.Attachment{Header: "X-PAYMENT", Value: "x"})
	var failed *SendError
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Sent)
	require.True(t, a.Truncated)
	require.NotEmpty(t, a.Content)
	runtime.KeepAlive(kept)
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(c.http.paid) == 0
	}, time.Minute, 10*time.Millisecond)
}

// A large body takes as much memory as its length says, if that is true, and no more than it has.
func TestAnnouncedBodies(t *testing.T) {
	const limit = 8 << 20
	for _, of := range []struct{ length, announced, most int64 }{
		{3 << 20, 3 << 20, 3<<20 + 1},
		{limit, limit, limit + 1},
		{limit + 5, limit + 5, limit + 1},
		{3 << 20, limit - 1, limit}, // it broke off
		{3 << 20, 1 << 20, limit + 1},
		{3 << 20, -1, limit + 1},
		{1000, limit, largeBody},
	} {
		body := bytes.Repeat([]byte{7}, int(of.length))
		isLarge := func() error { return nil }
		content, more, err := readLimited(bytes.NewReader(body), limit, of.announced, isLarge)
		require.NoError(t, err)
		require.Equal(t, of.length > limit, more)
		require.Equal(t, body[:min(of.length, limit)], content)
		require.LessOrEqual(t, int64(cap(content)), of.most)
	}
}
