package tools

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

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
