//go:build unix

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/formtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/relay"
	"x402-wallet/internal/sandbox"
)

type service struct {
	*testworld.Service
	t    *testing.T
	home string
}

func startService(t *testing.T, env []string, flags ...string) *service {
	t.Helper()
	program := command(t, env)
	s := &service{Service: testworld.StartService(t, program.Path, program.Env, flags...), t: t}
	for _, variable := range env {
		if home, is := strings.CutPrefix(variable, "X402_WALLET_HOME="); is {
			s.home = home
		}
	}
	return s
}

// env is what a host of the service's own user is started with.
func (s *service) env() []string {
	return []string{"X402_WALLET_SERVICE=" + s.Socket, "X402_WALLET_HOME=" + s.home}
}

func weather(w *world, query string) string {
	return fmt.Sprintf(`{"url":"%s/weather?%s"}`, w.SellerURL, url.QueryEscape(query))
}

func paymentOf(t *testing.T, answer string) (id, status string) {
	t.Helper()
	var result struct{ PaymentID, Status string }
	require.NoError(t, json.Unmarshal([]byte(answer), &result), "%s", answer)
	return result.PaymentID, result.Status
}

// Agents of one service share its wallet: what one spends is gone for the others, and each has its answers.
func TestAgentsShareOneService(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	s := startService(t, append(env, passphraseFile(t)))
	var agents []*mcpClient
	for range 3 {
		agents = append(agents, serve(t, s.env()...))
	}
	var paying sync.WaitGroup
	for i, agent := range agents {
		paying.Go(func() {
			for n := range 4 {
				_, status := paymentOf(t, agent.call("x402_pay", weather(w, fmt.Sprintf("%d-%d", i, n))))
				require.Equal(t, "paid", status)
			}
		})
	}
	paying.Wait()
	require.Len(t, w.Settlements(), 12)
	require.Contains(t, agents[0].call("x402_check_balance", "{}"), `"spent":"0.012"`)
	agents[0].leave()
	require.Zero(t, agents[0].cmd.ProcessState.ExitCode())
	require.Contains(t, agents[1].call("x402_check_balance", "{}"), `"spent":"0.012"`, "the others go on")

	_, said := runs(t, 1, append(env, passphraseFile(t)), "serve", "--socket", s.Socket)
	require.Contains(t, said, "already")
	require.Zero(t, s.Stop())
	require.NoFileExists(t, s.Socket)
	agents[1].leave()
	require.Equal(t, 1, agents[1].cmd.ProcessState.ExitCode(), "its host hears that the service is gone")
	_, said = runs(t, 1, s.env(), "mcp")
	require.Contains(t, said, "SERVER_UNAVAILABLE")
}

// A host of the service's own user that cannot read its home comes in by a token, as another user's does.
func TestAHostWithoutTheHome(t *testing.T) {
	t.Parallel()
	w, s, alice, _ := named(t, "")
	s.home = t.TempDir()
	_, said := runs(t, 3, s.env(), "mcp")
	require.Contains(t, said, "POLICY_DENIED")
	require.Contains(t, said, "X402_WALLET_HOME")
	agent := serve(t, append(s.env(), "X402_WALLET_TOKEN="+alice)...)
	_, status := paymentOf(t, agent.call("x402_pay", weather(w, "token")))
	require.Equal(t, "paid", status)
}

// deaf is the output of a host that dies with an answer in front of it.
type deaf struct {
	heard chan string
	dies  string // with what contains this
}

func (d deaf) Write(p []byte) (int, error) {
	d.heard <- string(p)
	if strings.Contains(string(p), d.dies) {
		return 0, errors.New("it is gone")
	}
	return len(p), nil
}

// An answer that the host's side did not get goes to the next agent that makes the same call, and is not paid
// again; one that it got is over, and the same call buys again.
func TestAnAnswerIsDeliveredWhenTheHostHasIt(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	s := startService(t, append(env, passphraseFile(t)))
	in, says := io.Pipe()
	host := deaf{heard: make(chan string, 10), dies: `"paid`}
	ended := make(chan error, 1)
	go func() { ended <- relay.Pass(t.Context(), s.Socket, s.home, relay.Hello{}, in, host) }()
	fmt.Fprintln(says, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	require.Contains(t, <-host.heard, "protocolVersion")
	fmt.Fprintln(says, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintf(says, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x402_pay","arguments":%s}}`+
		"\n", weather(w, "lost"))
	require.Contains(t, <-host.heard, "paid")
	require.NoError(t, <-ended)
	require.NoError(t, says.Close())
	require.Len(t, w.Settlements(), 1)

	agent := serve(t, s.env()...)
	lost, status := paymentOf(t, agent.call("x402_pay", weather(w, "lost")))
	require.Equal(t, "replayed", status)
	require.Len(t, w.Settlements(), 1, "it is what was paid for")
	require.Eventually(t, func() bool { // a cancellation could come for two seconds
		again, _ := paymentOf(t, agent.call("x402_pay", weather(w, "lost")))
		return again != lost
	}, time.Minute, 500*time.Millisecond)
	require.Len(t, w.Settlements(), 2)
}

// A relay that is killed while its agent's payment is on its way loses nothing, and neither does a service.
// The service's end is the end of its agents' sessions; the same call in another session is the same
// purchase.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	s := startService(t, env)
	other := serve(t, s.env()...)
	other.call("x402_pay", weather(w, "unlocks"))
	for i, kill := range []func(agent *mcpClient){
		func(agent *mcpClient) {
			require.NoError(t, agent.cmd.Process.Kill())
			agent.leave()
			w.awaitNobody(t) // until then both calls wait, and both buy
			w.release(t)
		},
		func(agent *mcpClient) {
			require.NoError(t, s.Cmd.Process.Kill())
			s.Stop()
			require.False(t, agent.out.Scan(), "the session ended with the service")
			agent.leave()
			require.NotZero(t, agent.cmd.ProcessState.ExitCode())
			program := command(t, env)
			s.Service = testworld.StartServiceAt(t, program.Path, s.Socket, program.Env)
			other = serve(t, s.env()...)
		},
	} {
		call := fmt.Sprintf(`{"url":%q}`, w.atHeld(fmt.Sprint("killed ", i)))
		agent := serve(t, s.env()...)
		settled := len(w.Settlements())
		agent.send("tools/call", fmt.Sprintf(`{"name":"x402_pay","arguments":%s}`, call))
		w.awaitSettlements(t, settled+1)
		kill(agent)
		_, status := paymentOf(t, other.call("x402_pay", call))
		// a seller serves a payment once: of an answer to a service that was killed nothing is left
		require.Contains(t, []string{"paid", "replayed", "paid_not_served"}, status)
		require.Len(t, w.Settlements(), settled+1, "the same call is the same purchase")
	}
}

// awaitNobody waits until the ledger knows that nobody waits any more for the payment that is on its way.
func (w *world) awaitNobody(t *testing.T) {
	t.Helper()
	store := must.Get(ledgers.Open(t.Context(), w.home, historytest.Options()))(t)
	defer store.Close()
	require.Eventually(t, func() bool {
		list := must.Get(store.Unfinished(t.Context(), "", 10))(t)
		require.Len(t, list, 1)
		return list[0].Waiter == ""
	}, time.Minute, 10*time.Millisecond)
}

// named is a household whose rules know two agents, and the service of it over HTTP, which has these tokens.
func named(t *testing.T, limits string) (w *world, s *service, alice, bob string) {
	t.Helper()
	alice, bob = "x402w_"+strings.Repeat("a", 43), "x402w_"+strings.Repeat("b", 43)
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{}) + fmt.Sprintf("\n[agents.alice]\ntoken = %q\n%s\n"+
			"[agents.bob]\ntoken = %q\n", callers.TokenHash(alice), limits, callers.TokenHash(bob))
	})
	return w, startService(t, append(env, passphraseFile(t)), "--http", "127.0.0.1:0"), alice, bob
}

func (s *service) post(token, session, body string) *http.Request {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.URL, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	return r
}

func (s *service) send(r *http.Request) (status int, header http.Header, body string) {
	s.t.Helper()
	answer := must.Get(http.DefaultClient.Do(r))(s.t)
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(s.t)
	return answer.StatusCode, answer.Header, string(text)
}

func (s *service) open(token string) (session string) {
	s.t.Helper()
	status, header, body := s.send(s.post(token, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`))
	require.Equal(s.t, http.StatusOK, status, body)
	session = header.Get("Mcp-Session-Id")
	status, _, body = s.send(s.post(token, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	require.Equal(s.t, http.StatusAccepted, status, body)
	return session
}

var lastID atomic.Int64

func payOf(w *world, query string) string { return callOf("x402_pay", weather(w, query)) }

func callOf(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`,
		lastID.Add(1), tool, arguments)
}

func TestAgentsOverHTTP(t *testing.T) {
	t.Parallel()
	w, s, alice, bob := named(t, "")
	for _, token := range []string{"", "x402w_wrong", alice + "a"} {
		status, header, _ := s.send(s.post(token, "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		require.Equal(t, http.StatusUnauthorized, status, token)
		metadata := strings.TrimSuffix(s.URL, "/mcp") + "/.well-known/oauth-protected-resource/mcp"
		require.Contains(t, header.Get("Www-Authenticate"), metadata)
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, metadata, nil))(t)
		_, _, said := s.send(r)
		require.JSONEq(t, fmt.Sprintf(`{"resource":%q,"resource_name":"x402-wallet",`+
			`"bearer_methods_supported":["header"]}`, s.URL), said)
	}
	session := s.open(alice)
	_, _, body := s.send(s.post(alice, session, payOf(w, "one")))
	require.Contains(t, body, `"status":"paid"`)
	require.Eventually(t, func() bool { // that the answer before was delivered is noted behind it
		_, _, body = s.send(s.post(alice, session, payOf(w, "one")))
		return strings.Contains(body, `"status":"paid"`)
	}, time.Minute, 50*time.Millisecond)
	require.Len(t, w.Settlements(), 2)

	status, _, _ := s.send(s.post(bob, session, payOf(w, "two")))
	require.Equal(t, http.StatusForbidden, status, "a session is its agent's")
	r := s.post(alice, session, payOf(w, "three"))
	r.Header.Set("Origin", "https://evil.example")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	status, _, _ = s.send(r)
	require.Equal(t, http.StatusForbidden, status, "a web page")
	r = s.post(alice, session, payOf(w, "three"))
	r.Host = "evil.example"
	status, _, _ = s.send(r)
	require.Equal(t, http.StatusMisdirectedRequest, status, "a name that leads here")
	status, _, _ = s.send(s.post(alice, session, "["+payOf(w, "three")+"]"))
	require.Equal(t, http.StatusBadRequest, status)
	require.Len(t, w.Settlements(), 2)

	r = s.post(bob, "", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x402_pay","arguments":`+
		weather(w, "four")+`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`)
	for name, value := range map[string]string{"Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/call", "Mcp-Name": "x402_pay"} {
		r.Header.Set(name, value)
	}
	_, _, body = s.send(r)
	require.Contains(t, body, `"status":"paid"`, "a client of the later era has no session")

	for range 40 { // whoever guesses is not answered for long, and agents are
		status, _, _ = s.send(s.post("x402w_guess", "", payOf(w, "five")))
	}
	require.Equal(t, http.StatusTooManyRequests, status)
	_, _, body = s.send(s.post(alice, session, payOf(w, "six")))
	require.Contains(t, body, `"status":"paid"`)
}

// A connection that breaks in the middle of a paid call: the same call is the same purchase, and the answer
// can still be fetched from the session's stream.
func TestAConnectionThatBreaks(t *testing.T) {
	t.Parallel()
	w, s, alice, bob := named(t, "")
	session := s.open(alice)
	_, _, body := s.send(s.post(alice, session, payOf(w, "unlocks")))
	require.Contains(t, body, `"status":"paid"`)
	held := func(query string) string {
		return callOf("x402_pay", fmt.Sprintf(`{"url":%q}`, w.atHeld(query)))
	}
	breaks := func(query string) (event string) { // what a client needs to come back
		settled := len(w.Settlements())
		ctx, hangUp := context.WithCancel(t.Context())
		answer := must.Get(http.DefaultClient.Do(s.post(alice, session, held(query)).WithContext(ctx)))(t)
		for lines := bufio.NewScanner(answer.Body); event == "" && lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				event = id
			}
		}
		w.awaitSettlements(t, settled+1)
		hangUp()
		require.NoError(t, answer.Body.Close())
		time.Sleep(1500 * time.Millisecond) // a client that is silent for half of that has given the call up
		return event
	}
	breaks("repeated")
	go func() { w.held <- struct{}{} }()
	_, _, body = s.send(s.post(alice, session, held("repeated")))
	require.Contains(t, body, `"status":"`)
	require.Len(t, w.Settlements(), 2, "the same call is the same purchase while it is on its way, too")

	event := breaks("broken")
	w.release(t)
	r := s.post(alice, session, "")
	r.Method = http.MethodGet
	r.Header.Set("Last-Event-Id", event)
	_, _, resumed := s.send(r)
	require.Contains(t, resumed, `"status":"paid"`, "its answer is kept")
	_, _, body = s.send(s.post(alice, session, held("broken")))
	require.Contains(t, body, `"status":"replayed"`)
	require.Len(t, w.Settlements(), 3)
	go func() { w.held <- struct{}{} }()
	_, _, body = s.send(s.post(bob, s.open(bob), held("broken")))
	require.Contains(t, body, `"status":"paid"`, "another agent's purchase is its own")
	require.Len(t, w.Settlements(), 4)
}

// A dialog at an agent's client is answered by the agent: at a service it decides nothing.
func TestAnAgentApprovesNothingForItself(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{ApproveAbove: "0.0005"})
	s := startService(t, append(env, passphraseFile(t)))
	in, says := io.Pipe()
	hears, out := io.Pipe()
	go func() { _ = relay.Pass(t.Context(), s.Socket, s.home, relay.Hello{}, in, out) }()
	lines := bufio.NewScanner(hears)
	answer := func(id int) (text string) {
		for lines.Scan() {
			m := must.JSON[struct {
				ID     json.RawMessage
				Method string
				Params json.RawMessage
			}](lines.Bytes())(t)
			if m.Method == "elicitation/create" {
				result := must.Get(json.Marshal(formtest.Answer(m.Params, "accept")))(t)
				fmt.Fprintf(says, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
			} else if string(m.ID) == strconv.Itoa(id) {
				return lines.Text()
			}
		}
		return ""
	}
	fmt.Fprintln(says, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`)
	require.NotEmpty(t, answer(1))
	fmt.Fprintln(says, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintf(says, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x402_pay","arguments":%s}}`+
		"\n", weather(w, "asks"))
	require.Contains(t, answer(2), "APPROVAL_REQUIRED")
	require.NoError(t, says.Close())
	require.Empty(t, w.Settlements())
}

// Without TLS nothing listens where other machines could read tokens.
func TestNoTokensInTheClear(t *testing.T) {
	t.Parallel()
	_, env := household(t, sandbox.Options{}, sandbox.Rules{})
	_, said := runs(t, 2, env, "serve", "--socket", filepath.Join(t.TempDir(), "s"), "--http", "0.0.0.0:0")
	require.Contains(t, said, "--tls-certificate")
	_, said = runs(t, 2, env, "serve", "--tls-key", "key.pem")
	require.Contains(t, said, "belong together")
}
