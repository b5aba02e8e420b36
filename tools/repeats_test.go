package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402/wire"
)

// Which of a client's calls for the same are the same call again.
func TestRepeats(t *testing.T) {
	const quiet, busy = giveUp, giveUp - time.Millisecond
	read := func(r *repeats, silence time.Duration) *clientRequest {
		r.reading(true)
		time.Sleep(silence)
		r.reading(false)
		c := &clientRequest{call: &pay.Call{Began: time.Now()}}
		r.begin(c)
		return c
	}
	for name, play := range map[string]func(r *repeats){
		"two at once are two": func(r *repeats) {
			one := read(r, quiet)
			read(r, busy)
			require.False(t, r.answer(one))
		},
		"after a silence it is given up": func(r *repeats) {
			one := read(r, 0)
			two := read(r, quiet)
			require.True(t, r.answer(one))
			require.False(t, r.answer(two))
			require.Empty(t, r.open)
		},
		"and again": func(r *repeats) {
			one, two := read(r, 0), read(r, quiet)
			three := read(r, quiet)
			require.True(t, r.answer(one))
			require.True(t, r.answer(two))
			require.False(t, r.answer(three))
		},
		"each of many once, and one more is new": func(r *repeats) {
			one, two := read(r, 0), read(r, 0)
			again, more := read(r, quiet), read(r, 0)
			third := read(r, 0)
			require.True(t, r.answer(one))
			require.True(t, r.answer(two))
			for _, c := range []*clientRequest{again, more, third} {
				require.False(t, r.answer(c))
			}
		},
		"who has just read an answer buys again": func(r *repeats) {
			one, two := read(r, 0), read(r, 0)
			time.Sleep(time.Minute)
			require.False(t, r.answer(one))
			read(r, busy)
			require.False(t, r.answer(two))
		},
		"while the wallet reads nothing the client is not silent": func(r *repeats) {
			one := read(r, 0)
			time.Sleep(time.Minute)
			read(r, 0)
			require.False(t, r.answer(one))
		},
		"an answer while the client is silent": func(r *repeats) {
			one, two := read(r, 0), read(r, 0)
			r.reading(true)
			time.Sleep(time.Minute)
			require.False(t, r.answer(one))
			time.Sleep(busy)
			r.reading(false)
			r.begin(&clientRequest{call: &pay.Call{Began: time.Now()}})
			require.False(t, r.answer(two))
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(*testing.T) { play(&repeats{}) }) })
	}
}

type outcome struct {
	Status, Repeat, PaymentID string
}

func (c *client) begin(id int, url, key string) {
	c.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": map[string]any{
		"name": payName, "arguments": map[string]any{"url": url, "idempotencyKey": key}}})
}

func (c *client) heard() (list map[string]outcome) {
	c.t.Helper()
	a := must.JSON[rpcAnswer]([]byte(c.hear()))(c.t)
	var r struct{ StructuredContent outcome }
	require.NoError(c.t, json.Unmarshal(a.Result, &r), "%s", a.Result)
	return map[string]outcome{string(a.ID): r.StructuredContent}
}

// late keeps the seller's answers to payments back for a time, which begins with the first payment.
type late struct {
	pay.Transport
	wait  time.Duration
	first sync.Once
	until time.Time
}

func (l *late) Present(ctx context.Context, q seller.Request, with wire.Attachment) (*seller.Answer, error) {
	l.first.Do(func() { l.until = time.Now().Add(l.wait) })
	a, err := l.Transport.Present(ctx, q, with)
	time.Sleep(time.Until(l.until))
	return a, err
}

// A client that gives a call up without a word and makes it again pays once, however often; two
// purchases that were meant stay two.
func TestACallGivenUpWithoutAWordIsOnePurchase(t *testing.T) {
	start := func(t *testing.T, wait time.Duration) (*world, *client) {
		t.Parallel()
		w := richWorld(t)
		w.wallet.Engine.Transport = &late{Transport: w.wallet.Engine.Transport, wait: wait}
		return w, w.serve(t)
	}
	held := func(t *testing.T) (*world, *client, chan<- struct{}) {
		w, c := start(t, 0)
		answers := make(chan struct{}, 2)
		w.wallet.Engine.Transport = holding{w.wallet.Engine.Transport, answers}
		return w, c, answers
	}
	t.Run("while it waits", func(t *testing.T) {
		w, c, answers := held(t)
		for i := range 3 {
			c.begin(100+i, w.SellerURL+"/weather", "")
			time.Sleep(2 * giveUp)
		}
		answers <- struct{}{}
		seen := map[string]int{}
		for range 3 {
			for _, b := range c.heard() {
				seen[b.Status]++
			}
		}
		require.Equal(t, map[string]int{pay.StatusPaid: 1, pay.StatusReplayed: 2}, seen)
		require.Len(t, w.Settlements(), 1)
	})
	t.Run("two at once are two", func(t *testing.T) {
		w, c, answers := held(t)
		both := ""
		for id := range 2 {
			both += fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x402_pay",`+
				`"arguments":{"url":"%s/weather"}}}`+"\n", 100+id, w.SellerURL)
		}
		c.raw(both)
		require.Eventually(t, func() bool { return len(w.Settlements()) == 2 }, time.Minute, time.Millisecond)
		answers <- struct{}{}
		answers <- struct{}{}
		for range 2 {
			for _, b := range c.heard() {
				require.Equal(t, pay.StatusPaid, b.Status)
			}
		}
	})
	t.Run("quick ones, one after the other", func(t *testing.T) {
		w, c := start(t, 0)
		for i := range 3 {
			c.begin(100+i, w.SellerURL+"/weather", "")
			for _, b := range c.heard() {
				require.Equal(t, outcome{pay.StatusPaid, pay.RepeatBuys, b.PaymentID}, b)
			}
			time.Sleep(2 * giveUp)
		}
		require.Len(t, w.Settlements(), 3)
	})
	t.Run("when the answer came late", func(t *testing.T) {
		w, c := start(t, pay.LateAnswer+100*time.Millisecond)
		url := w.SellerURL + "/weather"
		c.begin(100, url, "")
		first := c.heard()["100"]
		require.Equal(t, outcome{pay.StatusPaid, pay.RepeatIs, first.PaymentID}, first)
		time.Sleep(2 * giveUp)
		c.begin(101, url, "")
		require.Equal(t, outcome{pay.StatusReplayed, pay.RepeatBuys, first.PaymentID}, c.heard()["101"])
		require.Len(t, w.Settlements(), 1)
		c.begin(110, url, "another")
		require.Equal(t, pay.StatusPaid, c.heard()["110"].Status, "another key is another purchase")
		require.Eventually(t, func() bool {
			p, err := w.wallet.Store.Payment(t.Context(), first.PaymentID)
			return err == nil && p.Delivered
		}, time.Minute, 20*time.Millisecond)
		c.begin(111, url, "")
		require.Equal(t, pay.StatusPaid, c.heard()["111"].Status, "its answer has been read")
		require.Len(t, w.Settlements(), 3)
	})
	t.Run("another key buys, however late the answer", func(t *testing.T) {
		w, c := start(t, pay.LateAnswer+100*time.Millisecond)
		c.begin(100, w.SellerURL+"/weather", "")
		c.heard()
		time.Sleep(2 * giveUp)
		for range 2 {
			c.begin(101, w.SellerURL+"/weather", "new")
			require.Equal(t, pay.RepeatIs, c.heard()["101"].Repeat)
		}
		require.Len(t, w.Settlements(), 2)
	})
}

// The answer to a call that was made again is written, and what it bought is left to the later call.
func TestTheAnswerToACallThatWasMadeAgainIsNotDelivered(t *testing.T) {
	in, client := io.Pipe()
	defer client.Close()
	out, e := &output{}, &ends{}
	l := start(t, in, out)
	for i, silence := range []time.Duration{0, 2 * giveUp} {
		time.AfterFunc(silence, func() { io.WriteString(client, payRequest(fmt.Sprint(1+i))+"\n") })
		m := must.Get(l.Read(t.Context()))(t)
		e.watch(m)
	}
	require.NoError(t, l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 1.0), Result: json.RawMessage("{}")}))
	require.Equal(t, []string{"cancelled"}, e.all())
	require.Contains(t, out.String(), `"id":1`)
}

// A call may end ten minutes after its answer. Till then its content is not kept for that.
func TestACallThatHasNotEndedHoldsNoContent(t *testing.T) {
	call, collected := new(pay.Call), make(chan struct{})
	func() {
		body := make([]byte, 1<<20)
		runtime.SetFinalizer(&body[0], func(*byte) { close(collected) })
		(&Server{}).noteDelivery(pay.WithCall(t.Context(), call), pay.Result{PaymentID: "pay_1",
			Whole: history.Content{Body: body}})
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			runtime.KeepAlive(call)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	runtime.KeepAlive(call)
	t.Fatal("the content is still held")
}
