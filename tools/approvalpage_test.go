package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
)

func stubPage(id string) string { return "https://wallet.example/approvals/" + id }

// pageServer is a server of a wallet that has such a page, as a service or not.
func pageServer(w *world, isService bool) *Server {
	s := w.server()
	s.ApprovalPage, s.isShared = stubPage, isService
	return s
}

var opensPages = map[string]any{"url": map[string]any{}}

func (w *world) open(t *testing.T) history.Approval {
	t.Helper()
	list := must.Get(report.OpenApprovals(t.Context(), w.wallet.Store))(t)
	require.Len(t, list, 1)
	return list[0]
}

// approves is what happens on the page: the owner's sealed yes.
func (w *world) approves(t *testing.T, id string) {
	t.Helper()
	must.Get(w.wallet.Store.Approve(t.Context(), id, "owner",
		func(history.Approval) ([]byte, error) { return []byte("seal"), nil }))(t)
}

func (c *asker) ends() (r toolResult, notified []wireMessage) {
	c.t.Helper()
	for {
		m := c.next()
		if m.Method == "" {
			require.Nil(c.t, m.Error)
			require.NoError(c.t, json.Unmarshal(m.Result, &r))
			return r, notified
		}
		notified = append(notified, m)
	}
}

func onEveryPage(t *testing.T, test func(t *testing.T, w *world, s *Server, c *asker)) {
	for _, era := range eras {
		for _, isService := range []bool{false, true} {
			t.Run(fmt.Sprint(era, " service ", isService), func(t *testing.T) {
				w := askingWorld(t)
				s := pageServer(w, isService)
				test(t, w, s, serveAsker(t, s, era, opensPages))
			})
		}
	}
}

func weatherOf(w *world) map[string]any { return map[string]any{"url": w.SellerURL + "/weather"} }

func isPaid(t *testing.T, r toolResult) {
	t.Helper()
	paid := must.JSON[struct{ Status string }](r.StructuredContent)(t)
	require.Equal(t, "paid", paid.Status, "%s", r.StructuredContent)
}

// The client opens the owner's page, and the call goes on when the owner has decided there.
func TestTheOwnerApprovesOnAPage(t *testing.T) {
	onEveryPage(t, func(t *testing.T, w *world, _ *Server, c *asker) {
		q := c.startAsking(weatherOf(w))
		a := w.open(t)
		require.Equal(t, []string{"url", stubPage(a.ID)}, []string{q.Mode, q.URL})
		require.Empty(t, q.RequestedSchema)
		require.NotEmpty(t, q.ElicitationID)
		for _, part := range []string{"Pay $0.001 to ", w.PayToEVM, "Left before this payment",
			"Opening it decides nothing."} {
			require.Contains(t, q.Message, part)
		}
		c.answers(weatherOf(w), q, "accept")
		w.approves(t, w.open(t).ID)
		r, notified := c.ends()
		isPaid(t, r)
		require.Len(t, w.Settlements(), 1)
		if c.era < stateless {
			require.Len(t, notified, 1)
			require.Equal(t, "notifications/elicitation/complete", notified[0].Method)
			require.Contains(t, string(notified[0].Params), q.ElicitationID)
		}
	})
}

// Whatever the client says decides nothing: opened, declined, closed or anything else, the payment waits for
// its owner, and the refusal says where.
func TestAClientDecidesNothingOnAPage(t *testing.T) {
	for _, action := range []string{"accept", "decline", "cancel", "approve"} {
		t.Run(action, func(t *testing.T) {
			onEveryPage(t, func(t *testing.T, w *world, s *Server, c *asker) {
				s.patience = 20 * time.Millisecond
				q := c.startAsking(weatherOf(w))
				c.answers(weatherOf(w), q, action)
				r, notified := c.ends()
				f := r.code(t)
				require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
				require.Empty(t, notified)
				a := w.open(t)
				require.Equal(t, history.Pending, a.State)
				require.Equal(t, stubPage(a.ID), f.Details["page"])
				require.Contains(t, f.Details["command"], a.ID)
				require.EqualValues(t, "ask_person", f.Next.Do)
				require.Zero(t, w.Signatures())

				w.approves(t, w.open(t).ID)
				c.start(weatherOf(w), nil)
				r, _ = c.ends()
				isPaid(t, r)
			})
		})
	}
}

func TestTheOwnerDeniesOnAPage(t *testing.T) {
	onEveryPage(t, func(t *testing.T, w *world, _ *Server, c *asker) {
		q := c.startAsking(weatherOf(w))
		c.answers(weatherOf(w), q, "accept")
		must.Get(w.wallet.Store.Deny(t.Context(), w.open(t).ID, "owner"))(t)
		r, _ := c.ends()
		require.EqualValues(t, "APPROVAL_DECLINED", r.code(t).Error)
		require.Zero(t, w.Signatures())
	})
}

// Where the owner decides in another way, nobody has to answer the client.
func TestTheOwnerDecidesElsewhere(t *testing.T) {
	w := askingWorld(t)
	c := serveAsker(t, pageServer(w, true), "2025-11-25", opensPages)
	q := c.startAsking(weatherOf(w))
	w.approves(t, w.open(t).ID)
	r, notified := c.ends()
	isPaid(t, r)
	var methods []string
	for _, m := range notified {
		methods = append(methods, m.Method)
	}
	require.Contains(t, methods, "notifications/elicitation/complete")
	c.answers(nil, q, "decline") // too late
	again := c.startAsking(weatherOf(w))
	require.NotEqual(t, q.URL, again.URL, "one approval, one payment")
}

// Who closes the dialog each time is shown no more of them, for a while; others are.
func TestClosedPages(t *testing.T) {
	onEveryPage(t, func(t *testing.T, w *world, s *Server, c *asker) {
		for range maxUnanswered {
			q := c.startAsking(weatherOf(w))
			c.answers(weatherOf(w), q, "decline")
			_, _ = c.ends()
		}
		c.start(weatherOf(w), nil)
		r, _ := c.ends()
		f := r.code(t)
		require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
		require.Equal(t, stubPage(w.open(t).ID), f.Details["page"])
		require.Zero(t, f.Details["unanswered"], "it is no agent's to have others asked less")
	})
}

// Whoever opens no pages is asked as before: by a form where the answer counts, and at a service not at all.
func TestWhoOpensNoPages(t *testing.T) {
	for _, era := range eras {
		w := askingWorld(t)
		c := serveAsker(t, pageServer(w, false), era, map[string]any{})
		_, r := c.pay(weatherOf(w), "accept", nothing)
		isPaid(t, r)

		w = askingWorld(t)
		c = serveAsker(t, pageServer(w, true), era, map[string]any{"form": map[string]any{}})
		c.start(weatherOf(w), nil)
		f := c.result().code(t)
		require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
		require.Equal(t, stubPage(w.open(t).ID), f.Details["page"])

		for _, without := range []func(string) string{nil, func(string) string { return "" }} {
			w = askingWorld(t)
			s := pageServer(w, true)
			s.ApprovalPage = without
			c = serveAsker(t, s, era, opensPages)
			c.start(weatherOf(w), nil)
			f = c.result().code(t)
			require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
			require.NotContains(t, f.Details, "page")
		}
	}
}

// An embedded wallet without a page asks by a form, also a client that opens pages.
func TestAFormWhereThereIsNoPage(t *testing.T) {
	for _, era := range eras {
		w := askingWorld(t)
		c := serveAsker(t, w.server(), era, map[string]any{"form": map[string]any{}, "url": map[string]any{}})
		asked, r := c.pay(weatherOf(w), "accept", nothing)
		require.Equal(t, "form", asked.Mode)
		isPaid(t, r)
	}
}

// A page's size in a refusal is bounded by ours.
func TestARefusalWithAPageIsShort(t *testing.T) {
	w := askingWorld(t)
	c := serveAsker(t, pageServer(w, true), "2025-11-25", nil)
	c.start(weatherOf(w), nil)
	r := c.result()
	require.Less(t, len(r.StructuredContent), 1200, "%s", r.StructuredContent)
}

type oneAgent struct {
	tokensOnly
	token, name string
}

func (a oneAgent) ByToken(token string) (agent string, ok bool) { return a.name, token == a.token }

// tokensOnly lets nobody in by anything else than a token of the wallet's own.
type tokensOnly struct{}

func (tokensOnly) ByCertificate(string) (agent string, ok bool) { return "", false }
func (tokensOnly) Resource() Resource                           { return Resource{} }
func (tokensOnly) ByAccessToken(context.Context, string) (agent string, until time.Time, err error) {
	return "", time.Time{}, errors.New("no authorization server")
}

type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// Over HTTP, with the SDK's own client: the page is opened, the call pays; and however many calls an agent
// makes, one dialog is open, also where the protocol has no sessions.
func TestPagesOverHTTP(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			w.wallet.Engine.Rules.Agents = map[string]budget.Agent{"research": {}}
			s := pageServer(w, true)
			s.mcp()
			t.Cleanup(func() { _ = s.close() })
			front := httptest.NewServer(s.HTTP(oneAgent{token: "secret", name: "research"}))
			t.Cleanup(front.Close)
			var dialog func(*mcp.ElicitParams) string
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
				Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{
					URL: &mcp.URLElicitationCapabilities{}}},
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: dialog(r.Params)}, nil
				}})
			session := must.Get(client.Connect(t.Context(),
				&mcp.StreamableClientTransport{Endpoint: front.URL + "/mcp",
					HTTPClient: &http.Client{Transport: bearing("secret")}},
				&mcp.ClientSessionOptions{ProtocolVersion: era}))(t)
			t.Cleanup(func() { _ = session.Close() })
			pays := func(query string) map[string]any {
				out := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: payName,
					Arguments: map[string]any{"url": w.SellerURL + "/weather?" + query}}))(t)
				answer, ok := out.StructuredContent.(map[string]any)
				require.True(t, ok, "%v", out)
				return answer
			}
			var other map[string]any
			dialog = func(q *mcp.ElicitParams) string {
				id := w.open(t).ID
				require.Equal(t, stubPage(id), q.URL)
				dialog = func(*mcp.ElicitParams) string { t.Error("a second dialog"); return "decline" }
				other = pays("another")
				w.approves(t, id)
				return "accept"
			}
			given := pays("one")
			require.Equal(t, "paid", given["status"], "%v", given)
			require.Equal(t, "APPROVAL_REQUIRED", other["error"])
			require.Contains(t, other["hint"], "another payment's question is in front of the person")
			page, _ := other["details"].(map[string]any)["page"].(string)
			require.True(t, strings.HasPrefix(page, stubPage("apr_")), page)
		})
	}
}

// A hundred calls are one dialog: the others are answered at once, each with what to do.
func TestOneDialogAtATime(t *testing.T) {
	for _, era := range askingEras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			url := func(i int) map[string]any {
				return map[string]any{"url": fmt.Sprint(w.SellerURL, "/weather?", i)}
			}
			refused := func(r toolResult) {
				t.Helper()
				f := r.code(t)
				require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
				if f.Details["waiting"] == nil { // else the queue of this host is full
					require.Contains(t, f.Hint, "another payment's question is in front of the person")
					require.Contains(t, f.Hint, "x402-wallet approve apr_")
				}
			}
			others := func() {
				t.Helper()
				for i := range 100 {
					c.start(url(i), nil)
					refused(c.result())
				}
			}
			_, r := c.pay(url(0), "decline", others)
			require.EqualValues(t, "APPROVAL_DECLINED", r.code(t).Error)
			list := must.Get(report.OpenApprovals(t.Context(), w.wallet.Store))(t)
			require.Len(t, list, 5, "no more wait for one host")
			_, r = c.pay(url(1), "accept", nothing)
			require.False(t, r.IsError, "the next question may be asked: %s", r.StructuredContent)
			require.Len(t, w.Settlements(), 1)
		})
	}
}

func TestClosedDialogs(t *testing.T) {
	for _, era := range askingEras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			for i := range maxUnanswered {
				url := fmt.Sprint(w.SellerURL, "/weather?", i)
				_, r := c.pay(map[string]any{"url": url}, "cancel", nothing)
				require.EqualValues(t, "APPROVAL_REQUIRED", r.code(t).Error)
			}
			c.start(map[string]any{"url": w.SellerURL + "/weather"}, nil)
			f := c.result().code(t)
			require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
			require.Contains(t, f.Hint, "x402-wallet approve apr_", "the command line still can answer it")
			_, r := c.pay(map[string]any{"url": w.SellerURL + "/report"}, "accept", nothing)
			require.False(t, r.IsError, "%s", r.StructuredContent)
		})
	}
}

// Sessions do not stand in each other's way, and one that is gone is forgotten.
func TestDialogs(t *testing.T) {
	var d dialogs
	one, other := new(mcp.ServerSession), new(mcp.ServerSession)
	later := time.Now().Add(time.Hour)
	require.True(t, d.begin(one, "a", later))
	require.False(t, d.begin(one, "b", later))
	require.False(t, d.begin(one, "a", later), "the same question is one dialog, too")
	require.True(t, d.begin(other, "b", time.Now()))
	d.end(one, "b")
	require.False(t, d.begin(one, "b", later), "the answer to another question ends nothing")
	d.end(one, "a")
	require.True(t, d.begin(one, "b", later))
	require.Len(t, d.open, 1)
	require.True(t, d.begin(other, "c", later))
}
