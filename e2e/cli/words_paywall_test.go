//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// The paywall meets strangers on three sides, and tells no more of their words in its log, to its
// buyers and in its book than a wallet does: the server behind it, its facilitator, and its buyers.
func TestThePaywallTellsNoLongWords(t *testing.T) {
	t.Parallel()
	w := &words{strangers: newStrangers(t), long: map[string]int{}, seen: map[string]bool{}}
	home := filepath.Join(t.TempDir(), "home")
	_, _, err := testworld.MakeHome(home, w.rules, testPassphrase)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "url = %q\nlisten = \"127.0.0.1:0\"\n"+
		"network = \"base-sepolia\"\npay_to = %q\n[tools.tool]\nprice = \"0.001\"\n",
		w.server.URL+"/behind", w.PayToEVM), 0o600))
	buyer := w.agent("{}")
	w.env = append(w.env, "X402_WALLET_HOME="+home)

	word := w.word("a server behind the paywall")
	refuse := func(m message) []byte { return refuses(m, -32603, word) }
	for _, behind := range inOrder(map[string]http.HandlerFunc{
		"refuses":      rpc(mcpSays(word, map[string]func(message) []byte{"initialize": refuse})),
		"lists":        rpc(mcpSays(word, map[string]func(message) []byte{"tools/list": refuse})),
		"has no tool":  rpc(mcpSays(word, map[string]func(message) []byte{"tools/list": listsWords(word)})),
		"is none":      w.broken()["no status"],
		"is a website": w.broken()["error page"],
	}) {
		w.put("/behind/", behind)
		w.put("/behind", behind)
		w.run("paywall", "--config", file)
	}

	w.put("/behind", rpc(mcpSays("shop", map[string]func(message) []byte{
		"tools/list": func(m message) []byte {
			return results(m, map[string]any{"tools": []any{map[string]any{"name": "tool",
				"inputSchema": map[string]any{"type": "object"}}}})
		},
		"tools/call": func(m message) []byte {
			fine := map[string]any{"type": "text", "text": "fine"}
			return results(m, map[string]any{"content": []any{fine}})
		},
	})))
	end := w.sells(file)
	w.judges(buyer)
	w.shows()
	w.log("the paywall's log", end())
	w.run("paywall", "earnings")
	w.log("the log", buyer.end())
	w.reports("a server behind the paywall", "verified.invalidReason", "settled.errorReason")
}

func listsWords(word string) func(message) []byte {
	return func(m message) []byte {
		name := strings.Repeat("x", 60)
		return results(m, map[string]any{"tools": []any{
			map[string]any{"name": word, "inputSchema": map[string]any{"type": "object"}},
			map[string]any{"name": name, "inputSchema": map[string]any{"type": word}}}})
	}
}

// sells starts the paywall, behind /shop/; end ends it, and gives its log.
func (w *words) sells(file string) (end func() string) {
	w.t.Helper()
	cmd := w.command("paywall", "--config", file)
	log := must.Get(os.Create(filepath.Join(w.t.TempDir(), "log")))(w.t)
	cmd.Stderr = log
	require.NoError(w.t, cmd.Start())
	said := func() string {
		text := must.Get(os.ReadFile(log.Name()))(w.t)
		return string(text)
	}
	address := regexp.MustCompile(`url=(http://[0-9.:]+)/mcp`)
	require.Eventually(w.t, func() bool { return address.MatchString(said()) }, time.Minute,
		20*time.Millisecond)
	at := must.Get(url.Parse(address.FindStringSubmatch(said())[1]))(w.t)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) },
		FlushInterval: -1}
	w.put("/shop/", http.StripPrefix("/shop", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// A proxy that still reads a request while its answer begins may cut the answer off.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(rw, r)
	})).ServeHTTP)
	return func() string {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		_ = log.Close()
		return said()
	}
}

// judges has the facilitator verify and settle a wallet's payments in all its words.
func (w *words) judges(buyer *agent) {
	n := 0
	buys := func(verified, settled http.HandlerFunc) {
		n++
		w.put("/facilitator/verify", verified)
		w.put("/facilitator/settle", settled)
		buyer.call("x402_call_tool", map[string]any{"server": w.server.URL + "/shop/mcp", "tool": "tool",
			"arguments": map[string]any{"n": n}})
	}
	valid := says(http.StatusOK, `{"isValid":true}`)
	no := []byte(`{"isValid":false,"invalidReason":"x","invalidMessage":"y","payer":"z"}`)
	for _, text := range inOrder(w.variants("verified", no)) {
		buys(says(http.StatusOK, string(text)), valid)
	}
	no = []byte(`{"success":false,"errorReason":"x","errorMessage":"y"}`)
	for _, text := range inOrder(w.variants("settled", no)) {
		buys(valid, says(http.StatusOK, string(text)))
		buys(valid, says(http.StatusBadRequest, string(text)))
	}
	buys(w.broken()["no status"], valid)
	buys(says(http.StatusBadRequest, w.word("a facilitator's page")), valid)
	buys(valid, says(http.StatusBadRequest, w.word("a facilitator's page")))
}

func (w *words) shows() {
	asks := func(session, method string, params any) (answer []byte, header http.Header) {
		text := must.Get(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method,
			"params": params}))(w.t)
		request := must.Get(http.NewRequestWithContext(w.t.Context(), http.MethodPost,
			w.server.URL+"/shop/mcp", bytes.NewReader(text)))(w.t)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			request.Header.Set("Mcp-Session-Id", session)
			request.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		response := must.Get(http.DefaultClient.Do(request))(w.t)
		defer response.Body.Close()
		answer = must.Get(io.ReadAll(response.Body))(w.t)
		return answer, response.Header
	}
	name := w.word("a buyer")
	_, header := asks("", "initialize", map[string]any{"protocolVersion": "2025-11-25",
		"capabilities": map[string]any{}, "clientInfo": map[string]any{"name": name, "version": name}})
	session := header.Get("Mcp-Session-Id")
	require.NotEmpty(w.t, session)
	challenge, _ := w.challenge("/weather")
	asked := must.JSON[struct{ Accepts []json.RawMessage }](challenge)(w.t)
	payment := fmt.Appendf(nil, `{"x402Version":2,"accepted":%s,"payload":{"signature":"0x1",`+
		`"authorization":{"from":"a","to":"b","value":"1","validAfter":"0","validBefore":"9","nonce":"c"}}}`,
		asked.Accepts[0])
	for field, shown := range inOrder(w.variants("a payment", payment)) {
		if strings.HasSuffix(field, "x402Version") || strings.HasSuffix(field, "maxTimeoutSeconds") {
			continue // over a number out of range the SDK tells a buyer all of his own request
		}
		for _, key := range []string{"x402/payment", "x402.payment"} {
			answer, _ := asks(session, "tools/call", map[string]any{"name": "tool",
				"arguments": map[string]any{}, "_meta": map[string]any{key: json.RawMessage(shown)}})
			require.NotEmpty(w.t, answer)
			w.log("the paywall's answer", string(answer))
		}
	}
}
