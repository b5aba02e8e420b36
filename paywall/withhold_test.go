package paywall

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// listener is a buyer that notes what a server says beside its answers.
type listener struct {
	server *mcp.ServerSession
	mu     sync.Mutex
	heard  []string
}

func (l *listener) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, fmt.Sprintf(format, args...))
}

// all is what came until now: the server says something more, and that is waited for.
func (l *listener) all(t *testing.T) (all string) {
	t.Helper()
	require.NoError(t, l.server.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{
		ProgressToken: "last", Message: "last"}))
	require.Eventually(t, func() (came bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		all, came = strings.CutSuffix("; "+strings.Join(l.heard, "; "), "; 0/0 last<nil>")
		all = strings.TrimPrefix(all, "; ")
		return came
	}, time.Minute, time.Millisecond)
	return all
}

func (l *listener) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			l.note("%v/%v %s%v", r.Params.Progress, r.Params.Total, r.Params.Message, r.Params.Meta["leak"])
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			l.note("%v", r.Params.Data)
		},
	}
}

// gossip is a tool that tells its product by progress and log before it returns it: with the call's
// context, and with another. With answered it goes on when its sale is over, until said.
func gossip(answered <-chan struct{}, said chan<- struct{}) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		tell(ctx, r, 1)
		tell(context.WithoutCancel(ctx), r, 2)
		tell(context.Background(), r, 3)
		if answered != nil {
			defer close(said)
			<-answered
			tell(context.WithoutCancel(ctx), r, 4)
			tell(context.Background(), r, 5)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: product}}}, nil
	}
}

func tell(ctx context.Context, r *mcp.CallToolRequest, n float64) {
	_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{Progress: n, Total: 9, Message: product,
		ProgressToken: r.Params.GetProgressToken(), Meta: mcp.Meta{"leak": product}})
	_ = r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: fmt.Sprint(n, product)})
}

func listening(t *testing.T, l *lab) *listener {
	t.Helper()
	ear := &listener{}
	l.client, ear.server = connect(t, l.server(), ear.options())
	require.NoError(t, l.client.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}))
	return ear
}

func (l *lab) shownWith(t *testing.T) map[string]any {
	t.Helper()
	c := l.call(t, nil, nil).challenge()
	all := meta(c, l.payer.sign(t, c, 0, nil))
	all["progressToken"], all[mcp.MetaKeyLogLevel] = "mine", "debug"
	return all
}

// Of a priced tool only numbers leave before it is paid; its log comes right before the answer, in
// order, and never where nothing was paid.
func TestNothingIsToldBeforeItIsPaid(t *testing.T) {
	const numbers = "1/9 <nil>; 2/9 <nil>; 3/9 <nil>"
	for name, c := range map[string]struct {
		fault, heard string
	}{
		"paid":     {"", numbers + "; 1" + product + "; 2" + product + "; 3" + product},
		"not paid": {"facilitator refuses", numbers},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			l.tool = gossip(nil, nil)
			ear := listening(t, l)
			shown := l.shownWith(t)
			if c.fault != "" {
				l.Inject(c.fault, math.MaxInt)
			}
			g := l.call(t, nil, shown)
			require.Equal(t, c.fault != "", g.isError)
			require.Equal(t, c.heard, ear.all(t))
		})
	}
}

// A tool that goes on after its time still tells nothing.
func TestNothingIsToldAfterwards(t *testing.T) {
	l := newLab(t, nil)
	answered, said := make(chan struct{}), make(chan struct{})
	l.tool = gossip(answered, said)
	l.paywall.options.Hooks.BeforeRun = l.leaves(200 * time.Millisecond)
	ear := listening(t, l)
	g := l.call(t, nil, l.shownWith(t))
	close(answered)
	require.Contains(t, string(g.Result), "the tool took longer")
	<-said
	require.NotContains(t, ear.all(t), product)
	require.Empty(t, l.Settlements())
}

// Two calls at once, of which one is paid: what the other says, with the first one's way to the buyer
// or with none, at once or late, does not come with what was paid, nor afterwards.
func TestOnePaidCallTellsNothingOfAnother(t *testing.T) {
	for name, way := range map[string]func(context.Context) context.Context{
		"of nobody": withoutCall,
		"apart":     func(context.Context) context.Context { return context.Background() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			both, failed := make(chan context.Context), make(chan struct{})
			l.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				tell := func(ctx context.Context, n int) {
					_ = r.Session.Log(way(ctx),
						&mcp.LoggingMessageParams{Level: "info", Data: fmt.Sprint(n, product)})
				}
				if strings.Contains(string(r.Params.Arguments), "pays") {
					both <- ctx
					<-failed
					tell(ctx, 2) // late: it is of the other
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "cheap"}}}, nil
				}
				tell(<-both, 1) // by the other's way
				return &mcp.CallToolResult{IsError: true}, nil
			}
			ear := listening(t, l)
			fails, pays := l.shownWith(t), l.shownWith(t)
			pays["progressToken"] = "other"
			paid := make(chan got, 1)
			go func() { paid <- l.call(t, map[string]any{"who": "pays"}, pays) }()
			require.True(t, l.call(t, map[string]any{"who": "fails"}, fails).isError)
			close(failed)
			require.Equal(t, "cheap", (<-paid).text)
			require.NotContains(t, ear.all(t), product)
		})
	}
}

// What was paid for before it runs is told as it runs; so is what costs nothing.
func TestWhatIsPaidForMaySpeak(t *testing.T) {
	l := newLab(t, func(_ *lab, o *Options) { o.Tools[0].Upfront = true })
	l.tool = gossip(nil, nil)
	ear := listening(t, l)
	require.Equal(t, product, l.call(t, nil, l.shownWith(t)).text)
	heard := ear.all(t)
	require.Contains(t, heard, "1/9 "+product)
	require.Contains(t, heard, "; 1"+product+"; 2/9")
}

// Over HTTP nothing of an answer leaves before it is paid either, however the handler hurries.
func TestNothingIsStreamedBeforeItIsPaid(t *testing.T) {
	l := newLab(t, nil)
	hurries := func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Link", product)
		rw.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(rw, product)
		require.Error(t, http.NewResponseController(rw).Flush())
		_, hijacks := rw.(http.Hijacker)
		require.False(t, hijacks)
	}
	web := httptest.NewServer(l.paywall.HTTP("search", http.HandlerFunc(hurries)))
	defer web.Close()
	c := l.call(t, nil, nil).challenge()
	l.Inject("facilitator refuses", math.MaxInt)
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			t.Errorf("%d %v came", code, header)
			return nil
		}}), http.MethodGet, web.URL, nil)
	require.NoError(t, err)
	request.Header.Set("PAYMENT-SIGNATURE", base64.StdEncoding.EncodeToString(l.payer.sign(t, c, 0, nil)))
	answer := must.Get(http.DefaultClient.Do(request))(t)
	defer answer.Body.Close()
	body := must.Get(io.ReadAll(answer.Body))(t)
	require.Equal(t, http.StatusBadGateway, answer.StatusCode)
	require.NotContains(t, fmt.Sprint(string(body), answer.Header), product)
	http.DefaultClient.CloseIdleConnections()
}
