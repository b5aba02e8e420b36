package tools

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/history/historytest"
	"x402-wallet/internal/formtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

type lock struct {
	historytest.Guard
	open  atomic.Bool
	given []string
	mu    sync.Mutex
}

func (l *lock) VerifySeals(context.Context) error {
	if l.open.Load() {
		return nil
	}
	return x402.Errorf(x402.WalletLocked, "the wallet is locked").WithHint("run: x402-wallet unlock")
}

func (l *lock) unlock(_ context.Context, passphrase []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given = append(l.given, string(passphrase))
	if string(passphrase) != "correct horse" {
		return x402.Errorf(x402.InvalidPassphrase, "wrong passphrase, or the file was changed")
	}
	l.open.Store(true)
	return nil
}

type person func(t *testing.T, page string) (action string)

func types(t *testing.T, page string, fields url.Values) int {
	r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodPost, page,
		strings.NewReader(fields.Encode())))(t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+r.Host)
	answer := must.Get(http.DefaultClient.Do(r))(t)
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// lockedServer is a server whose wallet is locked, and a client of it. Without a person its client
// opens no pages.
func lockedServer(t *testing.T, version string, who person) (*lock, *mcp.ClientSession, *world,
	*[]*mcp.ElicitParams) {
	w := newWorld(t, rules{})
	w.Fund(w.keys.evm.Address(), sandbox.USDC)
	l := &lock{Guard: historytest.Guard{Store: w.wallet.Store}}
	w.wallet.Engine.Guard, w.keys.unlock = l, l.unlock
	s := &Server{Open: func(context.Context) (*Wallet, error) {
		return w.wallet, nil
	}, Log: slog.New(slog.DiscardHandler)}
	var asked []*mcp.ElicitParams
	forms := &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}
	options := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{Elicitation: forms}}
	options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		asked = append(asked, r.Params)
		return &mcp.ElicitResult{Action: who(t, r.Params.URL),
			Content: formtest.Content(r.Params.Message)}, nil
	}
	if who != nil {
		options.Capabilities.Elicitation.URL = &mcp.URLElicitationCapabilities{}
	}
	return l, session(t, s, version, options), w, &asked
}

func payLocked(t *testing.T, c *mcp.ClientSession, w *world) map[string]any {
	t.Helper()
	out := must.Get(c.CallTool(t.Context(), &mcp.CallToolParams{Name: payName,
		Arguments: map[string]any{"url": w.SellerURL + "/weather"}}))(t)
	answer, ok := out.StructuredContent.(map[string]any)
	require.True(t, ok, "%v", out)
	return answer
}

var eras = []string{"2025-11-25", "2026-07-28"}

func TestThePersonUnlocksOnAPage(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			l, client, w, asked := lockedServer(t, era, func(t *testing.T, page string) string {
				go func() { // accepting is not answering: the call waits for what is typed
					time.Sleep(50 * time.Millisecond)
					_ = types(t, page, url.Values{"passphrase": {"wrong"}})
					_ = types(t, page, url.Values{"passphrase": {"correct horse"}})
				}()
				return "accept"
			})
			answer := payLocked(t, client, w)
			require.Equal(t, "paid", answer["status"], "%v", answer)
			require.Len(t, *asked, 1)
			q := (*asked)[0]
			require.Equal(t, "url", q.Mode)
			require.Nil(t, q.RequestedSchema, "a passphrase is never asked for in a form")
			require.Regexp(t, `^http://127\.0\.0\.1:\d+/[A-Z2-7]{26}$`, q.URL)
			require.Equal(t, []string{"wrong", "correct horse"}, l.given)
			require.Len(t, w.Settlements(), 1)
			require.Equal(t, "paid", payLocked(t, client, w)["status"], "nobody is asked again")
			require.Len(t, *asked, 1)
		})
	}
}

func TestThePersonDoesNotUnlock(t *testing.T) {
	for name, who := range map[string]person{
		"declines in the client": func(*testing.T, string) string { return "decline" },
		"cancels in the client":  func(*testing.T, string) string { return "cancel" },
		"declines on the page": func(t *testing.T, page string) string {
			types(t, page, url.Values{"passphrase": {""}, "decline": {"1"}})
			return "accept"
		},
	} {
		for _, era := range eras {
			t.Run(name+" "+era, func(t *testing.T) {
				l, client, w, asked := lockedServer(t, era, who)
				answer := payLocked(t, client, w)
				require.Equal(t, "WALLET_LOCKED", answer["error"], "%v", answer)
				require.Equal(t, "person", answer["fixedBy"])
				require.Empty(t, l.given)
				require.Len(t, *asked, 1, "once a call")
				require.Zero(t, w.Signatures())
			})
		}
	}
	t.Run("does not know it", func(t *testing.T) {
		_, client, w, _ := lockedServer(t, eras[1], func(t *testing.T, page string) string {
			for range 3 {
				types(t, page, url.Values{"passphrase": {"wrong"}})
			}
			return "accept"
		})
		require.Equal(t, "INVALID_PASSPHRASE", payLocked(t, client, w)["error"])
	})
}

// A client that opens no pages gets the error; and while one page is open no second one is.
func TestNobodyToAsk(t *testing.T) {
	for _, era := range append(eras, "2025-06-18") {
		_, client, w, asked := lockedServer(t, era, nil)
		answer := payLocked(t, client, w)
		require.Equal(t, "WALLET_LOCKED", answer["error"], era)
		require.Equal(t, "run: x402-wallet unlock", answer["hint"])
		require.Empty(t, *asked)
	}
	opened, answer := make(chan struct{}), make(chan string)
	_, client, w, asked := lockedServer(t, eras[0], func(_ *testing.T, page string) string {
		close(opened)
		return <-answer
	})
	first := make(chan map[string]any)
	go func() { first <- payLocked(t, client, w) }()
	<-opened
	require.Contains(t, payLocked(t, client, w)["hint"], "is being asked")
	answer <- "decline"
	require.Equal(t, "WALLET_LOCKED", (<-first)["error"])
	require.Len(t, *asked, 1)
}

// When the owner changed the rules the wallet is opened again; the old one is closed when its last
// call has ended.
func TestLazyFollowsTheRules(t *testing.T) { synctest.Test(t, lazyFollowsTheRules) }

func lazyFollowsTheRules(t *testing.T) {
	var stale, broken atomic.Bool
	var opened, closed atomic.Int32
	open := func(context.Context) (*Wallet, error) {
		if broken.Load() {
			return nil, errors.New("config.toml line 1: no")
		}
		opened.Add(1)
		stale.Store(false)
		return &Wallet{Stale: stale.Load, Close: func() error { closed.Add(1); return nil }}, nil
	}
	var l lazy
	first, end, err := l.get(t.Context(), open)
	require.NoError(t, err)
	again, endAgain, err := l.get(t.Context(), open)
	require.NoError(t, err)
	require.Same(t, first, again)
	endAgain()

	stale.Store(true)
	broken.Store(true)
	_, _, err = l.get(t.Context(), open)
	require.ErrorContains(t, err, "line 1", "rules that cannot be read are nobody's: not the old ones")
	last, endLast := l.last()
	require.Same(t, first, last.Wallet, "but what became of an answer is noted")
	endLast()

	broken.Store(false)
	second, endSecond, err := l.get(t.Context(), open)
	require.NoError(t, err)
	require.NotSame(t, first, second)
	require.Zero(t, closed.Load(), "a call is under way with it")
	end()
	end()
	require.EqualValues(t, 1, closed.Load())
	require.NoError(t, l.close())
	require.EqualValues(t, 1, closed.Load())
	endSecond()
	require.EqualValues(t, 2, closed.Load())
	require.EqualValues(t, 2, opened.Load())
	_, _, err = l.get(t.Context(), open)
	require.Error(t, err)
}

// The end of the program is the end of its ledger: what runs in the background is waited for, and
// what closing reports is logged.
func TestLazyCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lazy
		_, done, err := l.get(t.Context(), func(context.Context) (*Wallet, error) {
			return &Wallet{Close: func() error {
				time.Sleep(2 * closeTimeout)
				return errors.New("no room")
			}}, nil
		})
		require.NoError(t, err)
		s, end := l.last()
		done()
		go func() {
			<-s.retired
			time.Sleep(closeTimeout / 2)
			end()
		}()
		require.ErrorContains(t, l.close(), "no room")
		require.NoError(t, l.close(), "once")
	})
}

func TestLazyWait(t *testing.T) {
	var l lazy
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	s, _ := l.wait(ctx)
	require.Nil(t, s)
	w := &Wallet{}
	go func() {
		_, done, err := l.get(context.Background(), func(context.Context) (*Wallet, error) { return w, nil })
		if err == nil {
			done()
		}
	}()
	s, done := l.wait(t.Context())
	require.Same(t, w, s.Wallet)
	done()
}
