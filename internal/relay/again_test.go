//go:build unix

package relay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

const (
	hostBegins = `{"jsonrpc":"2.0","id":"i\/1","method":"initialize",` +
		`"params":{"protocolVersion":"2025-11-25"}}`
	begun       = `{"jsonrpc":"2.0","id":"i/1","result":{"protocolVersion":"2025-11-25"}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// talking is a session's lines, on one side of the relay.
type talking struct {
	t     *testing.T
	in    io.Writer
	lines *bufio.Reader
}

func (c talking) says(line string) {
	c.t.Helper()
	_, err := io.WriteString(c.in, line+"\n")
	require.NoError(c.t, err)
}

func (c talking) hears() string {
	c.t.Helper()
	line, err := c.lines.ReadString('\n')
	require.NoError(c.t, err)
	return strings.TrimSuffix(line, "\n")
}

func at(t *testing.T, s *Session) talking { return talking{t, s, bufio.NewReader(s)} }

func (h host) talking(t *testing.T) talking { return talking{t, h.says, bufio.NewReader(h.hears)} }

// isAlone waits until the relay has heard that its service is gone.
func (h host) isAlone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		h.relay.mu.Lock()
		defer h.relay.mu.Unlock()
		return h.relay.link == nil
	}, 10*time.Second, time.Millisecond)
}

// begins is a host whose session has begun, at a service.
func begins(t *testing.T, h host, s *Session) (host, service talking) {
	t.Helper()
	host, service = h.talking(t), at(t, s)
	host.says(hostBegins)
	require.Equal(t, hostBegins, service.hears())
	service.says(begun)
	require.Equal(t, begun, host.hears())
	host.says(initialized)
	require.Equal(t, initialized, service.hears())
	return host, service
}

// The session goes on with the next service as it began with the first; what was not answered is answered
// with what to do, and nothing else is.
func TestASessionOutlivesItsService(t *testing.T) {
	path := socketPath(t)
	sessions, stop := listenAt(t, path, nil)
	h := relayed(t, path, Hello{Token: "x402w_token"})
	s := <-sessions
	host, service := begins(t, h, s)
	for _, id := range []string{"1", `"two"`, "3", "4"} {
		host.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call"}`, id))
		service.hears()
	}
	host.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	service.hears()
	service.says(`{"jsonrpc":"2.0","id":4,"result":{}}`)
	host.hears()
	service.says(`{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}`)
	host.hears()

	_, err := io.WriteString(s, `{"jsonrpc":"2.0","id":1,"result":{"cut":"of`) // in the middle of an answer
	require.NoError(t, err)
	half := noted(s)
	stop()
	require.NoError(t, s.Close())
	require.False(t, <-half)
	h.isAlone(t)
	host.says(`{"jsonrpc":"2.0","id":5,"method":"ping"}`) // while there is no service
	sessions, _ = listenAt(t, path, nil)
	s = <-sessions
	require.Equal(t, "x402w_token", s.Token)
	service = at(t, s)
	require.Equal(t, hostBegins, service.hears())
	service.says(begun)
	swallowed := noted(s)
	require.Equal(t, initialized, service.hears())
	require.True(t, <-swallowed)

	var failed []string
	for range 2 {
		var answer struct {
			ID    json.RawMessage
			Error struct {
				Code    int
				Message string
				Data    struct {
					Error       x402.Code
					SafeToRetry bool
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(host.hears()), &answer))
		failed = append(failed, string(answer.ID))
		require.Equal(t, codeBusy, answer.Error.Code)
		require.Contains(t, answer.Error.Message, "make the very same call again")
		require.Equal(t, x402.ServerUnavailable, answer.Error.Data.Error)
		require.True(t, answer.Error.Data.SafeToRetry)
	}
	require.ElementsMatch(t, []string{"1", `"two"`}, failed)
	require.JSONEq(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,
		"reason":"the wallet's service was restarted"}}`, host.hears())
	require.Equal(t, `{"jsonrpc":"2.0","id":5,"method":"ping"}`, service.hears())
	host.says(`{"jsonrpc":"2.0","id":9,"result":{"action":"accept"}}`) // this one never asked
	host.says(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	require.Equal(t, `{"jsonrpc":"2.0","id":6,"method":"ping"}`, service.hears())
	service.says(`{"jsonrpc":"2.0","id":5,"result":{}}`)
	require.Equal(t, `{"jsonrpc":"2.0","id":5,"result":{}}`, host.hears())
	require.True(t, <-noted(s))

	require.NoError(t, h.says.Close())
	_, err = s.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	go func() { _ = s.Close() }()
	_, err = host.lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-h.ended)
}

// A service that dies before it answered initialize is not the end either: the host gets the next one's
// answer.
func TestAServiceThatDiesAtTheBeginning(t *testing.T) {
	path := socketPath(t)
	sessions, stop := listenAt(t, path, nil)
	h := relayed(t, path, Hello{})
	s := <-sessions
	host, service := h.talking(t), at(t, s)
	host.says(hostBegins)
	require.Equal(t, hostBegins, service.hears())
	stop()
	require.NoError(t, s.Close())
	sessions, _ = listenAt(t, path, nil)
	s = <-sessions
	service = at(t, s)
	require.Equal(t, hostBegins, service.hears())
	service.says(begun)
	require.Equal(t, begun, host.hears())
	require.NoError(t, h.says.Close())
	_, err := s.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, s.Close())
	require.NoError(t, <-h.ended)
}

// In MCP without sessions there is nothing to begin.
func TestARestartWithoutInitialize(t *testing.T) {
	path, sessions := listening(t, nil)
	h := relayed(t, path, Hello{})
	require.NoError(t, (<-sessions).Close())
	host, service := h.talking(t), at(t, <-sessions)
	host.says(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, service.hears())
}

// What ends a session for good: a service that does not come back or never stays, one that refuses, one that
// speaks another version, and a host that leaves meanwhile.
func TestASessionThatCannotGoOn(t *testing.T) {
	const soon = 100 * time.Millisecond
	unavailable := func(t *testing.T, h host) {
		t.Helper()
		err := <-h.ended
		require.True(t, x402.HasCode(err, x402.ServerUnavailable), "%v", err)
	}
	t.Run("no service", func(t *testing.T) {
		path := socketPath(t)
		sessions, stop := listenAt(t, path, nil)
		h := relayedFor(t, path, Hello{}, soon)
		s := <-sessions
		stop()
		require.NoError(t, s.Close())
		unavailable(t, h)
	})
	t.Run("one that ends each session", func(t *testing.T) {
		path, sessions := listening(t, nil)
		h := relayedFor(t, path, Hello{}, time.Second)
		go func() {
			for {
				select {
				case s := <-sessions:
					_ = s.Close()
				case <-t.Context().Done():
					return
				}
			}
		}()
		unavailable(t, h)
	})
	t.Run("one that refuses", func(t *testing.T) {
		path := socketPath(t)
		sessions, stop := listenAt(t, path, nil)
		h := relayed(t, path, Hello{})
		s := <-sessions
		stop()
		require.NoError(t, s.Close())
		listenAt(t, path, x402.Errorf(x402.PolicyDenied, "not you"))
		require.True(t, x402.HasCode(<-h.ended, x402.PolicyDenied))
	})
	t.Run("another version", func(t *testing.T) {
		path, sessions := listening(t, nil)
		h := relayed(t, path, Hello{})
		s := <-sessions
		_, _ = begins(t, h, s)
		require.NoError(t, s.Close())
		service := at(t, <-sessions)
		service.hears()
		service.says(strings.ReplaceAll(begun, "2025-11-25", "2026-01-01"))
		require.True(t, x402.HasCode(<-h.ended, x402.SessionTerminated))
	})
	t.Run("the host leaves", func(t *testing.T) {
		path := socketPath(t)
		sessions, stop := listenAt(t, path, nil)
		h := relayed(t, path, Hello{})
		s := <-sessions
		stop()
		require.NoError(t, s.Close())
		require.NoError(t, h.says.Close())
		<-h.ended // at once, and not after half a minute
	})
}

// However an id is written, its answer is found; what is no message is nobody's.
func TestTalk(t *testing.T) {
	talk := newTalk()
	for _, line := range []string{`{"id":"\u0061","method":"ping"}`, `{"id":null,"method":"ping"}`,
		`[{"id":1}]`, `{`, ``, `{"id":{},"method":"ping"}`} {
		require.True(t, talk.hostSays([]byte(line)), line)
		talk.serviceSays([]byte(line))
	}
	require.Contains(t, talk.unanswered, `"a`)
	talk.serviceSays([]byte(`{"id":"a","result":{}}`))
	require.NotContains(t, talk.unanswered, `"a`)
	require.False(t, talk.hostSays([]byte(`{"id":7,"result":{}}`)))
	for _, line := range talk.restarted() {
		require.True(t, json.Valid(line), "%s", line)
	}
	require.Empty(t, talk.restarted())
}

// A line longer than any message is passed on in parts, not kept.
func TestLongLines(t *testing.T) {
	text := strings.Repeat("x", x402.MaxMCPMessage+2*maxFrame)
	from := newLines(strings.NewReader("short\n" + text + "\nlast"))
	line, err := from.next()
	require.NoError(t, err)
	require.Equal(t, "short\n", string(line))
	n := 0
	for !strings.HasSuffix(string(line), "x\n") {
		line, err = from.next()
		require.NoError(t, err)
		require.LessOrEqual(t, len(line), x402.MaxMCPMessage+maxFrame)
		n += len(line)
	}
	require.Equal(t, len(text)+1, n)
	line, err = from.next()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "last", string(line))
	require.LessOrEqual(t, cap(from.long), maxKept, "its room is given back")
}
