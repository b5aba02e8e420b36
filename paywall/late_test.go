package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/paywall/book"
)

// named is a buyer's name for its payment.
var named = map[string]json.RawMessage{
	"payment-identifier": json.RawMessage(`{"info":{"id":"pay_0123456789abcdef"}}`),
}

// A client that comes for a lost answer after the payment expired gets it, and is not asked to pay
// again; a payment that expired unused buys nothing.
func TestALostAnswerAfterTheExpiry(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	used, nameless, unused := l.payer.sign(t, c, 0, named), l.payer.sign(t, c, 0, nil),
		l.payer.sign(t, c, 0, named)
	require.Equal(t, product, l.call(t, nil, meta(c, used)).text)
	require.Equal(t, product, l.call(t, nil, meta(c, nameless)).text)
	l.paywall.now = func() time.Time { return time.Now().Add(10 * time.Minute) }
	require.Equal(t, product, l.call(t, nil, meta(c, used)).text)
	g := l.call(t, nil, meta(c, nameless))
	require.EqualValues(t, -32602, g.Code, "%s", g.Result)
	g.asksNothing()
	require.Contains(t, l.call(t, nil, meta(c, unused)).challenge().Error, "it has expired")
	require.EqualValues(t, 2, l.runs.Load())
	require.Len(t, l.Settlements(), 2)
}

// forgetful is a sale store whose process dies when a sale is settled.
type forgetful struct {
	SaleStore
	dies bool
}

func (f *forgetful) MoveSale(ctx context.Context, sale book.Sale) error {
	if f.dies && sale.State != book.SaleSettling {
		return errors.New("the process died")
	}
	return f.SaleStore.MoveSale(ctx, sale)
}

// A sale whose process died during the settlement is resolved on the chain when its buyer asks for the
// answer.
func TestASaleThatWasLeft(t *testing.T) {
	sales := &forgetful{SaleStore: testBook, dies: true}
	l := newLab(t, func(l *lab, o *Options) {
		asking(l, o)
		o.Store = sales
	})
	c := l.call(t, nil, nil).challenge()
	shown := meta(c, l.payer.sign(t, c, 0, named))
	l.call(t, nil, shown)
	require.Equal(t, book.SaleSettling, l.sales(t)[0].State)
	sales.dies = false
	g := l.call(t, nil, shown)
	require.Contains(t, g.text, "is being used by another call", "perhaps it is")
	l.paywall.abandonedAfter = 0
	require.Equal(t, product, l.call(t, nil, shown).text)
	require.Equal(t, book.SaleSettled, l.sales(t)[0].State)
	require.EqualValues(t, 1, l.runs.Load())
	require.Len(t, l.Settlements(), 1)
}

// A request without a payment is answered with a challenge before its body is read: strangers fill no
// memory.
func TestNobodysBody(t *testing.T) {
	l := newLab(t, nil)
	web := httptest.NewServer(l.paywall.HTTP("search", http.NotFoundHandler()))
	defer web.Close()
	stranger := must.Get(net.Dial("tcp", web.Listener.Addr().String()))(t)
	defer stranger.Close()
	require.NoError(t, stranger.SetDeadline(time.Now().Add(time.Minute)))
	go func() { // less than it says
		_, _ = io.WriteString(stranger, "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 8388608\r\n\r\n"+
			strings.Repeat("x", 1<<20))
	}()
	said := make([]byte, 12)
	must.Get(io.ReadFull(stranger, said))(t)
	require.Equal(t, "HTTP/1.1 402", string(said))
}

// A client that sends its request one byte at a time is disconnected.
func TestASlowClient(t *testing.T) {
	_, f := newProxy(t)
	require.NoError(t, f.Open(t.Context()))
	f.bodyTime = 100 * time.Millisecond
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- f.HTTP(ctx, listener) }()
	slow := must.Get(net.Dial("tcp", listener.Addr().String()))(t)
	defer slow.Close()
	require.NoError(t, slow.SetDeadline(time.Now().Add(time.Minute)))
	must.Get(io.WriteString(slow, "POST /mcp HTTP/1.1\r\nHost: "+listener.Addr().String()+
		"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"))(t)
	require.Contains(t, string(must.Get(io.ReadAll(slow))(t)), "HTTP/1.1 413")
	stop()
	require.NoError(t, <-done)
}
