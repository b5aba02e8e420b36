package paywall

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

func serverBehind(t *testing.T, o *mcp.StreamableHTTPOptions) (url string) {
	t.Helper()
	server := behind()
	at := httptest.NewServer(testworld.Streamable(t, server, o))
	t.Cleanup(at.Close)
	return at.URL
}

// bothErasBehind is a server that keeps sessions for clients of the versions that have them, and serves
// 2026-07-28 without.
func bothErasBehind(t *testing.T) (url string) {
	t.Helper()
	legacy, since := behind(), testworld.Streamable(t, behind(), &mcp.StreamableHTTPOptions{Stateless: true})
	before := testworld.Streamable(t, legacy, nil)
	at := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if isSessionless(r) {
			since.ServeHTTP(rw, r)
		} else {
			before.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(at.Close)
	return at.URL
}

type person struct {
	*mcp.ClientSession
	name    string
	mu      sync.Mutex
	said    []string // log messages
	updates chan string
}

func newPerson(t *testing.T, name, version string, transport mcp.Transport) *person {
	t.Helper()
	p := &person{name: name, updates: make(chan string, 100)}
	o := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{},
			Extensions: map[string]any{"example/x": map[string]any{}}},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"city": name}}, nil
		},
		CreateMessageHandler: func(context.Context,
			*mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant",
				Content: &mcp.TextContent{Text: "of " + name}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.said = append(p.said, fmt.Sprint(r.Params.Data))
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			p.updates <- r.Params.URI
		},
	}
	client := mcp.NewClient(&mcp.Implementation{Name: name}, o)
	client.AddRoots(&mcp.Root{URI: "file:///" + name})
	session := must.Get(client.Connect(t.Context(), transport,
		&mcp.ClientSessionOptions{ProtocolVersion: version}))(t)
	p.ClientSession = session
	t.Cleanup(func() { session.Close() })
	return p
}

func (p *person) text(t *testing.T, tool string, arguments any) string {
	t.Helper()
	given := must.Get(p.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments}))(t)
	require.False(t, given.IsError, "%+v", given.Content)
	return given.Content[0].(*mcp.TextContent).Text
}

// What a server before 2026-07-28 asks and logs reaches the buyer whose call it was, on whatever stream it
// arrives, and nobody else; also where the server speaks 2026-07-28 too, and the buyers do not.
func TestQuestionsReachWhoCalled(t *testing.T) {
	t.Run("legacy", func(t *testing.T) { testQuestions(t, serverBehind(t, nil)) })
	t.Run("both eras", func(t *testing.T) { testQuestions(t, bothErasBehind(t)) })
}

func testQuestions(t *testing.T, url string) {
	l := newLab(t, func(_ *lab, o *Options) {
		priced := o.Tools[0]
		priced.Name = "ask"
		o.Tools = append(o.Tools, priced)
	})
	f := &Proxy{URL: url}
	endpoint := overHTTP(t, l, f, Limits{})
	var persons []*person
	for _, name := range []string{"Oslo", "Rome", "Bonn"} {
		p := newPerson(t, name, "2025-11-25", &mcp.StreamableClientTransport{Endpoint: endpoint})
		require.NotNil(t, p.InitializeResult().Capabilities.Logging)
		require.NoError(t, p.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}))
		persons = append(persons, p)
	}
	for _, arguments := range []map[string]any{{}, {"apart": true}} {
		var all sync.WaitGroup
		for _, p := range persons {
			asked, err := p.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: arguments})
			c := read(t, asked, err).challenge()
			paid := meta(c, l.payer.sign(t, c, 0, nil))
			all.Go(func() {
				given, err := p.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: arguments,
					Meta: paid})
				if err != nil || given.IsError {
					t.Errorf("%v %+v", err, given)
					return
				}
				want := fmt.Sprintf("%[1]s of %[1]s file:///%[1]s", p.name)
				if got := given.Content[0].(*mcp.TextContent).Text; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
		all.Wait()
	}
	require.Len(t, l.Settlements(), 6)
	for _, p := range persons {
		require.Eventually(t, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.said) > 0
		}, time.Minute, 10*time.Millisecond)
		p.mu.Lock()
		for _, said := range p.said {
			require.Equal(t, p.name, said)
		}
		p.mu.Unlock()
	}
	f.buyersMu.Lock()
	require.Len(t, f.buyers, 3)
	f.buyersMu.Unlock()
	persons[0].Close()
	require.Eventually(t, func() bool {
		f.buyersMu.Lock()
		defer f.buyersMu.Unlock()
		return len(f.buyers) == 2
	}, time.Minute, 10*time.Millisecond, "a session ends with its buyer's")
}

// The only buyer over stdio is asked too, by a server of its era or of both.
func TestQuestionsOverStdio(t *testing.T) {
	for _, versions := range []string{"2025-11-25", "1"} {
		t.Run(versions, func(t *testing.T) {
			_, f := newProxy(t)
			f.Env = []string{"PAYWALL_TEST_BEHIND=" + versions}
			require.NoError(t, f.Open(t.Context()))
			client, server := stdioPipes(t, f)
			p := newPerson(t, "Oslo", "2025-11-25", &mcp.IOTransport{Reader: client, Writer: server})
			require.NoError(t, p.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}))
			require.Equal(t, "Oslo of Oslo file:///Oslo", p.text(t, "ask", map[string]any{}))
			require.NoError(t, p.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "weather://today"}))
			p.text(t, "touch", map[string]any{})
			require.Equal(t, "weather://today", <-p.updates)
		})
	}
}

// Upstream sees the caller's client capabilities, as far as they can be forwarded, and a question in a result
// comes back to the caller.
func TestCapabilitiesAreTheCallers(t *testing.T) {
	const all = `{"elicitation":{"form":{}},"roots":{},"sampling":{}}`
	for behindIs, o := range map[string]*mcp.StreamableHTTPOptions{"legacy": nil,
		"sessionless": {Stateless: true}} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(behindIs+" "+version, func(t *testing.T) {
				l := newLab(t, nil)
				endpoint := overHTTP(t, l, &Proxy{URL: serverBehind(t, o)}, Limits{})
				can := newPerson(t, "Oslo", version, &mcp.StreamableClientTransport{Endpoint: endpoint})
				want := all
				if behindIs == "legacy" && version == "2026-07-28" {
					want = `{}` // it could not be asked
				}
				require.JSONEq(t, want, can.text(t, "can", map[string]any{}))
				if behindIs == "sessionless" {
					require.Equal(t, "Oslo", can.text(t, "inquire", map[string]any{}))
				}
				plain := must.Get(mcp.NewClient(&mcp.Implementation{Name: "plain"}, &mcp.ClientOptions{
					Capabilities: &mcp.ClientCapabilities{}}).Connect(t.Context(),
					&mcp.StreamableClientTransport{Endpoint: endpoint},
					&mcp.ClientSessionOptions{ProtocolVersion: version}))(t)
				defer plain.Close()
				require.JSONEq(t, `{}`, (&person{ClientSession: plain}).text(t, "can", map[string]any{}))
			})
		}
	}
}

// What cannot be forwarded is neither advertised nor accepted: a program that serves many buyers has one
// session with all of them.
func TestWhatCannotBePassedIsNotAdvertised(t *testing.T) {
	l, f := newProxy(t)
	f.Env = []string{"PAYWALL_TEST_BEHIND=2025-11-25"}
	endpoint := overHTTP(t, l, f, Limits{})
	p := newPerson(t, "Oslo", "2025-11-25", &mcp.StreamableClientTransport{Endpoint: endpoint})
	require.Nil(t, p.InitializeResult().Capabilities.Logging)
	err := p.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"})
	var own *jsonrpc.Error
	require.ErrorAs(t, err, &own)
	require.EqualValues(t, -32601, own.Code)
	require.JSONEq(t, `{}`, p.text(t, "can", map[string]any{}))
	given, err := p.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{}})
	require.True(t, err != nil || given.IsError)
	since := newPerson(t, "Rome", "2026-07-28", &mcp.StreamableClientTransport{Endpoint: endpoint})
	require.Nil(t, since.InitializeResult().Capabilities.Logging)
}

// Updates of a resource reach its subscribers, in both protocol generations, for as long as they are
// subscribed.
func TestUpdatesReachSubscribers(t *testing.T) {
	_, f, endpoint := labOverHTTP(t, Limits{})
	before := newPerson(t, "Oslo", "2025-11-25", &mcp.StreamableClientTransport{Endpoint: endpoint})
	since := newPerson(t, "Rome", "2026-07-28", &mcp.StreamableClientTransport{Endpoint: endpoint})
	other := newPerson(t, "Bonn", "2025-11-25", &mcp.StreamableClientTransport{Endpoint: endpoint})
	require.True(t, before.InitializeResult().Capabilities.Resources.Subscribe)
	for _, p := range []*person{before, since} {
		require.NoError(t, p.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "weather://today"}))
	}
	require.Eventually(t, func() bool {
		f.subscribing.Lock()
		defer f.subscribing.Unlock()
		return len(f.subscribed["weather://today"]) == 2
	}, time.Minute, 10*time.Millisecond)
	other.text(t, "touch", map[string]any{})
	for _, p := range []*person{before, since} {
		require.Equal(t, "weather://today", <-p.updates)
	}
	require.Empty(t, other.updates)
	require.NoError(t, before.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "weather://today"}))
	require.NoError(t, since.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "weather://today"}))
	require.Eventually(t, func() bool {
		f.subscribing.Lock()
		defer f.subscribing.Unlock()
		return len(f.subscribed) == 0
	}, time.Minute, 10*time.Millisecond)
	for i := range maxSubscriptions {
		require.NoError(t, other.Subscribe(t.Context(),
			&mcp.SubscribeParams{URI: fmt.Sprintf("weather://%d", i)}))
	}
	require.ErrorContains(t, other.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "weather://more"}),
		"at most 32 subscriptions")
	other.Close()
	require.Eventually(t, func() bool {
		f.subscribing.Lock()
		defer f.subscribing.Unlock()
		return len(f.subscribed) == 0
	}, time.Minute, 10*time.Millisecond, "nothing is left of a session that ended")
}

// A buyer who does not answer, and a server that asks without end, cost themselves only.
func TestQuestionsAreBounded(t *testing.T) {
	b := &buyer{}
	for range maxQuestions {
		b.questions++
	}
	_, err := askBuyer(t.Context(), b, func(context.Context, int) (int, error) { return 1, nil }, 0)
	require.ErrorContains(t, err, "many questions")
	b.questions = 0
	taken, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = askBuyer(taken, b, func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}, 0)
	require.ErrorIs(t, err, context.Canceled, "the server behind took it back")
	require.Zero(t, b.questions)
}

// Buyers' upstream sessions are bounded; the least recently used one is closed, and opened again when needed.
func TestSessionsBehindAreBounded(t *testing.T) {
	_, f, endpoint := labOverHTTP(t, Limits{Sessions: 10})
	var persons []*person
	for _, name := range []string{"Oslo", "Rome", "Bonn"} {
		p := newPerson(t, name, "2025-11-25", &mcp.StreamableClientTransport{Endpoint: endpoint})
		require.Contains(t, p.text(t, "ask", map[string]any{}), name)
		persons = append(persons, p)
	}
	f.buyersMu.Lock()
	require.Len(t, f.buyers, 2, "a fourth of 10")
	f.buyersMu.Unlock()
	require.Contains(t, persons[0].text(t, "ask", map[string]any{}), "Oslo")
}
