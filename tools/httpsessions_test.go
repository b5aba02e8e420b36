package tools

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// byName lets in whoever shows a name as token.
type byName struct{ tokensOnly }

func (byName) ByToken(token string) (string, bool) { return token, true }

type httpService struct {
	t   *testing.T
	url string
}

func serveHTTP(t *testing.T, s *Server, through ...mcp.Middleware) httpService {
	ctx, end := context.WithCancel(t.Context())
	url, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- s.Serve(ctx, func(ctx context.Context) error {
			s.server.AddReceivingMiddleware(through...)
			at := httptest.NewServer(s.HTTP(byName{}))
			defer at.Close()
			url <- at.URL + "/mcp"
			<-ctx.Done()
			at.CloseClientConnections()
			for session := range s.server.Sessions() {
				_ = session.Close()
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		end()
		require.NoError(t, <-ended)
		http.DefaultClient.CloseIdleConnections()
	})
	return httpService{t, <-url}
}

// send makes a request of an agent's; what comes of it is read to its end.
func (h httpService) send(method, agent, session, body string) (status int, header http.Header, text string) {
	h.t.Helper()
	r := must.Get(http.NewRequestWithContext(h.t.Context(), method, h.url, strings.NewReader(body)))(h.t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+agent)
	if session != "" {
		r.Header.Set(sessionHeader, session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	answer := must.Get(http.DefaultClient.Do(r))(h.t)
	defer answer.Body.Close()
	if method == http.MethodGet { // a stream, which goes on
		return answer.StatusCode, answer.Header, ""
	}
	all := must.Get(io.ReadAll(answer.Body))(h.t)
	return answer.StatusCode, answer.Header, string(all)
}

const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

func (h httpService) open(agent string) (session string) {
	h.t.Helper()
	status, header, text := h.send(http.MethodPost, agent, "", begin)
	require.Equal(h.t, http.StatusOK, status, text)
	return header.Get(sessionHeader)
}

func (h httpService) lives(agent, session string) bool {
	h.t.Helper()
	status, _, text := h.send(http.MethodPost, agent, session, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	require.Contains(h.t, []int{http.StatusOK, http.StatusNotFound}, status, text)
	return status == http.StatusOK
}

func (h httpService) gone(agent, session string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return !h.lives(agent, session) }, time.Minute, time.Millisecond)
}

// An agent's newest session takes the place of its own that is unused longest; where all places are taken,
// that of whoever has most. What a client ended has no place.
func TestSessionsOverHTTPAreBounded(t *testing.T) {
	h := serveHTTP(t, &Server{Open: noWallet, httpSessions: 8})
	var ann []string
	for range 4 {
		ann = append(ann, h.open("ann"))
	}
	bob := h.open("bob")
	require.True(t, h.lives("ann", ann[0]), "which makes it the newest in use")
	ann = append(ann, h.open("ann"))
	h.gone("ann", ann[1])
	for _, i := range []int{0, 2, 3, 4} {
		require.True(t, h.lives("ann", ann[i]))
	}
	require.True(t, h.lives("bob", bob))

	status, _, _ := h.send(http.MethodDelete, "ann", ann[0], "")
	require.Equal(t, http.StatusNoContent, status)
	ann = append(ann, h.open("ann"))
	for _, i := range []int{2, 3, 4, 5} {
		require.True(t, h.lives("ann", ann[i]))
	}
	cy := h.open("cy")
	for i := range 3 { // with ann's four and bob's and cy's, one too many
		h.open(fmt.Sprint("d", i))
	}
	h.gone("ann", ann[2])
	require.True(t, h.lives("bob", bob))
	require.True(t, h.lives("cy", cy))
}

// A session that its client listens to is ended after those that nobody does.
func TestAListenedSessionStaysLonger(t *testing.T) {
	h := serveHTTP(t, &Server{Open: noWallet, httpSessions: 4})
	listened := h.open("ann")
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, h.url, nil))(t)
	for name, value := range map[string]string{"Accept": "text/event-stream", "Authorization": "Bearer ann",
		sessionHeader: listened, "Mcp-Protocol-Version": "2025-11-25"} {
		r.Header.Set(name, value)
	}
	stream := must.Get(http.DefaultClient.Do(r))(t)
	defer stream.Body.Close()
	require.Equal(t, http.StatusOK, stream.StatusCode)
	silent := h.open("ann")
	h.open("ann")
	h.gone("ann", silent)
	require.True(t, h.lives("ann", listened))
}

// What is in use is not ended: one more has to wait, and others have their places.
func TestSessionsInUseStay(t *testing.T) {
	busy, release := make(chan struct{}, 2), make(chan struct{})
	blocks := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				busy <- struct{}{}
				<-release
			}
			return next(ctx, method, r)
		}
	}
	h := serveHTTP(t, &Server{httpSessions: 4, Open: noWallet}, blocks)
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo)
	var calls sync.WaitGroup
	for range 2 {
		session := h.open("ann")
		calls.Go(func() {
			status, _, _ := h.send(http.MethodPost, "ann", session, `{"jsonrpc":"2.0","id":2,`+
				`"method":"tools/call","params":{"name":"x402_check_balance","arguments":{}}}`)
			assert.Equal(t, http.StatusOK, status)
		})
		<-busy
	}
	status, header, text := h.send(http.MethodPost, "ann", "", begin)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Positive(t, must.Get(strconv.Atoi(header.Get("Retry-After")))(t))
	require.Contains(t, text, "2 of one agent, 4 of all")
	require.True(t, h.lives("bob", h.open("bob")))
	letGo()
	calls.Wait()
	require.True(t, h.lives("ann", h.open("ann")))
}

func of(t *testing.T, agent string) (ctx context.Context) {
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: agent, Expiration: time.Now().Add(time.Hour)}, nil
	}
	auth.RequireBearerToken(verify, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx = r.Context()
	})).ServeHTTP(httptest.NewRecorder(), visit("POST", "own"))
	require.NotNil(t, ctx)
	return ctx
}

// What one agent is answered pushes out nothing of another's.
func TestStoredEventsOfEachAgent(t *testing.T) {
	e, ann, bob := newEvents(), of(t, "ann"), of(t, "bob")
	kept := func(session string) (n int, err error) {
		for _, err = range e.After(t.Context(), session, "s", -1) {
			n++
		}
		return n, err
	}
	for session, ctx := range map[string]context.Context{"1": ann, "2": bob} {
		require.NoError(t, e.Open(ctx, session, ""))
		require.NoError(t, e.Open(t.Context(), session, "s"))
		require.NoError(t, e.Append(t.Context(), session, "s", []byte("first")))
	}
	for range 3 {
		require.NoError(t, e.Append(t.Context(), "1", "s", make([]byte, storedEvents)))
	}
	require.ErrorIs(t, must.Err(kept("1")), mcp.ErrEventsPurged, "her own go")
	require.Equal(t, 1, must.Get(kept("2"))(t))

	require.NoError(t, e.SessionClosed(t.Context(), "1"))
	require.ErrorIs(t, e.Append(t.Context(), "1", "s", nil), errSessionClosed)
	require.ErrorIs(t, e.Open(t.Context(), "1", "later"), errSessionClosed)
	require.Len(t, e.agents, 1)
	require.ErrorIs(t, e.SessionClosed(t.Context(), "1"), errSessionClosed)
	require.NoError(t, e.SessionClosed(t.Context(), "2"))
	require.Empty(t, e.agents)
	require.Empty(t, e.owners)
}

// An agent has so many calls at a time, and again when they are answered.
func TestCallsOfOneAgent(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	f := door(&gate{}, func(rw http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		<-goOn
		rw.WriteHeader(http.StatusAccepted)
	})
	var calls sync.WaitGroup
	for range f.calls.most {
		calls.Go(func() { answered(f, visit("POST", "own")) })
		<-began
	}
	require.Equal(t, http.StatusTooManyRequests, answered(f, visit("POST", "own")).Code)
	close(goOn)
	calls.Wait()
	require.Empty(t, f.calls.of)
	calls.Go(func() { <-began })
	require.Equal(t, http.StatusAccepted, answered(f, visit("POST", "own")).Code)
	calls.Wait()
}

// A client that does not read its answer is not waited for; one that is slow to be answered is.
func TestAnswersThatNobodyReads(t *testing.T) {
	for protocol, isSecond := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			failed := make(chan error)
			f := door(&gate{}, func(rw http.ResponseWriter, _ *http.Request) {
				var err error
				for err == nil {
					_, err = rw.Write(make([]byte, 1<<20))
				}
				failed <- err
			})
			f.writeTime = time.Second // as a busy machine needs for one
			web := httptest.NewUnstartedServer(f)
			web.EnableHTTP2 = isSecond
			web.StartTLS()
			defer web.Close()
			answer := asksAt(t, web)
			require.Equal(t, protocol, answer.Proto)
			require.Error(t, <-failed)
			require.NoError(t, answer.Body.Close())

			f.next = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(rw, "x")
				_ = http.NewResponseController(rw).Flush()
				time.Sleep(f.writeTime + 100*time.Millisecond)
				_, _ = io.WriteString(rw, "y")
			})
			answer = asksAt(t, web)
			require.Equal(t, "xy", string(must.Get(io.ReadAll(answer.Body))(t)))
			require.NoError(t, answer.Body.Close())
		})
	}
}

func asksAt(t *testing.T, web *httptest.Server) *http.Response {
	r := must.Get(http.NewRequestWithContext(t.Context(), "GET", web.URL+"/mcp", nil))(t)
	r.Header.Set("Authorization", "Bearer own")
	return must.Get(web.Client().Do(r))(t)
}
