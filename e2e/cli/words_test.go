//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// longest is how much of a stranger's word may stand at one place, in escaped characters.
const longest = 120

// words finds strangers' words in what the wallet says.
type words struct {
	*strangers
	long map[string]int // field and place → its longest word there, of those that are too long
	seen map[string]bool
}

var marks = regexp.MustCompile(`zq(\d+)z`)

func (w *words) text(place, text string) {
	for _, r := range text {
		isLayout := r == '\n' || r == '\t' || r == '\r'
		if (unicode.IsControl(r) && !isLayout) || unicode.Is(unicode.Cf, r) {
			w.long[fmt.Sprintf("%s: the raw character %U", place, r)] = 1
		}
	}
	const gap = 9 // what stands between two marks of one word, escaped, is no longer
	if strings.Contains(text, strings.Repeat("7", longest+1)) {
		w.long[place+": a number"] = longest + 1
	}
	field, begin, end := "", 0, -1
	for _, at := range marks.FindAllStringSubmatchIndex(text, -1) {
		if here := text[at[2]:at[3]]; here != field || at[0]-end > gap {
			field, begin = here, at[0]
		}
		end = at[1]
		n := must.Get(strconv.Atoi(field))(w.t)
		w.seen[w.fields[n]] = true
		if end-begin > longest {
			key := place + ": " + w.fields[n]
			w.long[key] = max(w.long[key], end-begin)
		}
	}
}

// log reads lines of a log, in which a word that was quoted before is quoted once more.
func (w *words) log(place, text string) {
	w.text(place, strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(text))
}

// json reads every text of a JSON document but what is there for a stranger's own: content, and what
// a service or tool is described by.
func (w *words) json(place string, document []byte) {
	w.control(place, string(document))
	d := json.NewDecoder(bytes.NewReader(document))
	for d.More() {
		var v any
		require.NoError(w.t, d.Decode(&v), "%s: %s", place, document)
		w.value(place, v)
	}
}

func (w *words) control(place, text string) {
	if i := strings.IndexFunc(text, func(r rune) bool {
		return (unicode.IsControl(r) && r != '\n') || unicode.Is(unicode.Cf, r)
	}); i >= 0 {
		w.long[fmt.Sprintf("%s: the raw character %q", place, text[i:i+1])] = 1
	}
}

// theirs are the members that are there for what a stranger sells, its name and address among it.
var theirs = []string{"content", "description", "title", "name", "url", "inputSchema", "outputSchema"}

func (w *words) value(place string, v any) {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, "{") { // a tool's answer, as text
			w.json(place, []byte(v))
			return
		}
		w.text(place, v)
	case []any:
		for _, item := range v {
			w.value(place, item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if slices.Contains(theirs, key) {
				if _, isText := v[key].(string); isText || strings.HasSuffix(key, "Schema") {
					continue
				}
			}
			w.text(place+" (a key)", key)
			w.value(place+"."+key, v[key])
		}
	}
}

// command logs as much as it does by default.
func (w *words) command(args ...string) *exec.Cmd {
	return command(w.t, append([]string{"LOG_LEVEL=info"}, w.env...), args...)
}

func (w *words) run(args ...string) {
	w.t.Helper()
	cmd := w.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	place := "x402-wallet " + args[0]
	w.json(place, stdout.Bytes())
	w.log(place+" on stderr", stderr.String())
}

func (w *words) watches(code int, args ...string) {
	w.t.Helper()
	w.text("x402-wallet "+args[0]+" at a terminal", sit(w.t, nil, w.env, args...).ends(code))
}

type agent struct {
	*words
	in  io.WriteCloser
	out *bufio.Scanner
	id  int
	end func() (log string)
}

func (w *words) agent(capabilities string) *agent {
	cmd := w.command("mcp")
	in := must.Get(cmd.StdinPipe())(w.t)
	out := must.Get(cmd.StdoutPipe())(w.t)
	log := must.Get(os.Create(filepath.Join(w.t.TempDir(), "log")))(w.t)
	cmd.Stderr = log
	require.NoError(w.t, cmd.Start())
	a := &agent{words: w, in: in, out: bufio.NewScanner(out), end: func() string {
		_ = in.Close()
		_ = cmd.Wait()
		_ = log.Close()
		text := must.Get(os.ReadFile(log.Name()))(w.t)
		return string(text)
	}}
	a.out.Buffer(nil, 4<<20)
	a.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+
		`,"clientInfo":{"name":"test","version":"1"}}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// ask makes a request, and reads all that comes up to its answer, or to a question.
func (a *agent) ask(method, params string) (answer string) {
	a.t.Helper()
	a.id++
	fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", a.id, method, params)
	for a.out.Scan() {
		a.json(method, a.out.Bytes())
		m := must.JSON[message](a.out.Bytes())(a.t)
		if string(m.ID) == strconv.Itoa(a.id) || m.Method == "elicitation/create" {
			return a.out.Text()
		}
	}
	require.Fail(a.t, "the server ended")
	return ""
}

func (a *agent) call(tool string, arguments map[string]any) string {
	a.t.Helper()
	text := must.Get(json.Marshal(map[string]any{"name": tool, "arguments": arguments}))(a.t)
	return a.ask("tools/call", string(text))
}

func (a *agent) buys(path string, seller http.HandlerFunc) {
	a.t.Helper()
	at := a.put(path, seller)
	a.call("x402_estimate_cost", map[string]any{"url": at})
	a.call("x402_pay", map[string]any{"url": at})
}

// heard are some of the fields that the wallet tells of, one of each stranger at least.
var heard = []string{"a host", "a scheme", "a key", "the status", "v1.accepts[0].asset",
	"v2.accepts[0].extra.paymentFlow", "solana.accepts[0].scheme", "asks again.error",
	"receipt false.errorReason", "settled.errorReason", "a node", "an MCP server", "mcp.error",
	"what a command prints", "channel.serviceDid", "approval.accepts[0].payTo"}

// No stranger gets more than 120 escaped characters at a time, and no control character, into an
// answer, a question, a log or a terminal, however the wallet meets him.
func TestNoStrangersWordIsLong(t *testing.T) {
	t.Parallel()
	w := &words{strangers: newStrangers(t), long: map[string]int{}, seen: map[string]bool{}}
	a := w.agent("{}")
	for _, meet := range []func(*agent){(*agent).meetsSellers, (*agent).meetsPaidSellers,
		(*agent).meetsFacilitators, (*agent).meetsNodes, (*agent).meetsServers, (*agent).meetsChannels,
		(*agent).repeats} {
		meet(a)
	}
	a.looksBack()
	w.log("the log", a.end())
	w.asksAPerson()
	w.opensTheDashboard()
	w.run("history")
	w.watches(0, "history")
	w.watches(0, "balance")

	w.reports(heard...)
}

// reports is the test's result. Who stands for some of the fields has to have been heard somewhere:
// otherwise nothing is known of how he is told of.
func (w *words) reports(heard ...string) {
	w.t.Helper()
	for _, place := range slices.Sorted(maps.Keys(w.long)) {
		w.t.Errorf("%s (%d)", place, w.long[place])
	}
	for _, field := range heard {
		require.True(w.t, w.seen[field], "%s: was heard nowhere", field)
	}
}

func (a *agent) meetsSellers() {
	for name, answer := range inOrder(a.broken()) {
		a.buys("/seller/"+name, answer)
	}
	for about, path := range inOrder(map[string]string{"v2": "/weather", "v1": "/v1/weather",
		"solana": "/solana"}) {
		challenge, _ := a.challenge(path)
		refused := says(http.StatusPaymentRequired, a.word("a refusal"))
		for name, text := range inOrder(a.variants(about, a.full(challenge))) {
			a.buys("/asks/"+name, asks(text, about != "v1", refused))
			a.buys("/asks in the body/"+name, asks(text, false, refused))
		}
		key := must.Get(json.Marshal(a.word("a key")))(a.t)
		twice := fmt.Sprintf(`{%s:1,%s:2,%s`, key, key, bytes.TrimSpace(challenge)[1:])
		a.buys("/asks twice/"+about, asks([]byte(twice), false, refused))
		many := bytes.Replace(challenge, []byte(`"accepts":[`),
			fmt.Appendf(nil, `"accepts":[{%s:1},7,`, key), 1)
		a.buys("/asks many/"+about, asks(many, false, refused))
	}
}

func (a *agent) meetsPaidSellers() {
	challenge, _ := a.challenge("/weather")
	for name, answer := range inOrder(a.broken()) {
		a.buys("/paid/"+name, asks(challenge, true, answer))
	}
	for _, success := range []bool{true, false} {
		text := must.Get(json.Marshal(map[string]any{"success": success, "transaction": "0x1", "payer": "0x2",
			"network": sandbox.EVM, "errorReason": "settlement_pending", "errorMessage": "x"}))(a.t)
		for name, text := range inOrder(a.variants(fmt.Sprint("receipt ", success), text)) {
			a.buys("/receipt/"+name, asks(challenge, true, receipt(http.StatusOK, text)))
			a.buys("/receipt refused/"+name, asks(challenge, true, receipt(http.StatusPaymentRequired, text)))
		}
	}
	for name, again := range inOrder(a.variants("asks again", a.full(challenge))) {
		a.buys("/again/"+name, asks(challenge, true, says(http.StatusPaymentRequired, string(again))))
	}
}

func (a *agent) meetsFacilitators() {
	_, header := a.challenge("/settle-plain/weather")
	shop := func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			if strings.HasPrefix(name, "X-Payment") {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(http.StatusPaymentRequired)
	}
	// what cannot be read is tried three times, with pauses
	text := []byte(`{"success":false,"errorReason":"x","errorMessage":"y"}`)
	answers := a.broken()
	maps.DeleteFunc(answers, func(name string, _ http.HandlerFunc) bool { return name != "no status" })
	for name, reply := range inOrder(a.variants("settled", text)) {
		answers[name] = says(http.StatusOK, string(reply))
		answers[name+", success"] = says(http.StatusOK, strings.Replace(string(reply), "false", "true", 1))
	}
	answers["refused"] = says(http.StatusBadRequest, a.word("a facilitator's page"))
	for name, answer := range inOrder(answers) {
		a.put("/facilitator/settle", answer)
		a.buys("/settled/"+name, shop)
	}
	var challenge struct{ Accepts json.RawMessage }
	asked, _ := a.challenge("/weather")
	require.NoError(a.t, json.Unmarshal(asked, &challenge))
	listed := fmt.Sprintf(`{"x402Version":2,"items":[{"resource":"https://a.example/x","type":"http",`+
		`"description":"d","accepts":%s,"extensions":{"bazaar":{"info":{"input":{"type":"x"}}}}}]}`,
		challenge.Accepts)
	lists := a.broken()
	for name, list := range inOrder(a.variants("listed", []byte(listed))) {
		lists[name] = says(http.StatusOK, string(list))
	}
	for name, list := range inOrder(lists) {
		a.put("/facilitator/discovery/resources", list)
		a.put("/facilitator/discovery/search", list)
		a.call("x402_discover_services", map[string]any{"query": name})
		a.put("/facilitator/supported", list)
		if name == "no status" {
			a.run("doctor")
		}
	}
	a.heal()
}

// nodes are chains' nodes that answer, and say nothing that is asked.
func (a *agent) nodes() map[string]http.HandlerFunc {
	word := a.word("a node")
	return map[string]http.HandlerFunc{
		"refuses": rpc(func(m message) []byte { return refuses(m, -32000, word) }),
		"a word":  rpc(func(m message) []byte { return results(m, word) }),
		"a list": rpc(func(m message) []byte {
			return results(m, []any{map[string]any{"value": word}, word})
		}),
		"objects": rpc(func(m message) []byte { return results(m, map[string]any{"value": word, word: 1}) }),
		"a number": rpc(func(m message) []byte {
			return results(m, json.Number(strings.Repeat("7", wordLength)))
		}),
	}
}

func (a *agent) meetsNodes() {
	challenge, _ := a.challenge("/solana")
	answers := a.broken()
	maps.Copy(answers, a.nodes())
	for name, answer := range inOrder(answers) {
		a.put("/evm/", answer)
		a.put("/solana/", answer)
		a.call("x402_check_balance", nil)
		a.call("x402_check_delegation", nil)
		a.buys("/node/"+name, asks(challenge, true, says(http.StatusOK, "")))
		if name == "refuses" {
			a.run("doctor")
			a.watches(1, "doctor")
			a.run("balance")
		}
	}
	a.heal()
}

func (a *agent) meetsServers() {
	servers := a.broken()
	maps.Copy(servers, a.refusingServers())
	challenge, _ := a.challenge("/weather")
	word := a.word("a server that asks for payment")
	for name, text := range inOrder(a.variants("mcp", a.full(challenge))) {
		servers[name] = rpc(mcpSays(word, map[string]func(message) []byte{
			"tools/call": func(m message) []byte {
				return results(m, map[string]any{"isError": true, "content": []any{},
					"structuredContent": json.RawMessage(text)})
			},
		}))
	}
	for name, server := range inOrder(servers) {
		at := a.put("/server/"+name+"/mcp", server)
		a.call("x402_list_tools", map[string]any{"server": at})
		a.call("x402_call_tool", map[string]any{"server": at, "tool": "tool"})
		a.call("x402_discover_services", map[string]any{"url": at})
	}
	a.call("x402_list_tools", map[string]any{"server": "loud"})
	a.call("x402_call_tool", map[string]any{"server": "loud", "tool": "tool"})
	a.ask("tools/list", `{}`)
}

// refusingServers are MCP servers that speak well up to one method, which they refuse in every way.
func (a *agent) refusingServers() map[string]http.HandlerFunc {
	all, word := map[string]http.HandlerFunc{}, a.word("an MCP server")
	answers := func(method string, answer func(message) []byte) http.HandlerFunc {
		return rpc(mcpSays(word, map[string]func(message) []byte{method: answer}))
	}
	honest := rpc(mcpSays(word, nil))
	for _, method := range []string{"initialize", "tools/list", "tools/call"} {
		for _, code := range []int{-32602, -32603, -32000, 402, -32042} {
			all[fmt.Sprint(method, code)] = answers(method, func(m message) []byte {
				return refuses(m, code, word)
			})
		}
		all[method+" as a word"] = answers(method, func(m message) []byte { return results(m, word) })
		all[method+" as a page"] = unless(method, honest, says(http.StatusInternalServerError, word))
	}
	all["another version"] = answers("initialize", func(m message) []byte {
		return results(m, map[string]any{"protocolVersion": word, "capabilities": map[string]any{}})
	})
	return all
}

func (a *agent) meetsChannels() {
	const did = "did:rooch:rooch1nrh26kpelln62u998d94tr0t6ly9xtksn2dch8mx2alttf506jpsc8q5yy"
	info := []byte(`{"serviceDid":"` + did + `","network":"main","defaultAssetId":"0x3::gas_coin::RGas",` +
		`"basePath":"/pay"}`)
	word := a.word("a channel's server")
	a.put("/channel/", rpc(mcpSays(word, nil)))
	calls := func(info, node http.HandlerFunc) {
		a.put("/.well-known/nuwa-payment/info", info)
		a.put("/rooch/", node)
		a.call("x402_call_tool", map[string]any{"server": "channel", "tool": "tool", "maxAmount": "$0.01"})
	}
	honest := rpc(func(m message) []byte { return results(m, 1) })
	for _, answer := range inOrder(a.broken()) {
		calls(answer, honest)
		calls(says(http.StatusOK, string(info)), answer)
	}
	for _, text := range inOrder(a.variants("channel", info)) {
		calls(says(http.StatusOK, string(text)), honest)
	}
	for _, answer := range inOrder(a.nodes()) {
		calls(says(http.StatusOK, string(info)), answer)
		calls(says(http.StatusOK, string(info)), unless("rooch_getChainID", answer, honest))
	}
}

// repeats is an agent who was talked into using a stranger's words as its own.
func (a *agent) repeats() {
	for _, host := range []string{"localhost", "internal:1", "example.", "é.example"} { // none is looked up
		label := a.plain("a host at "+host, 60) + "."
		long := "https://" + label + label + label
		a.call("x402_pay", map[string]any{"url": long + host})
		a.call("x402_list_tools", map[string]any{"server": long + "denied.example/mcp"})
	}
	for _, name := range []string{"url", "maxAmount", "network", "asset", "idempotencyKey", "method"} {
		arguments := map[string]any{"url": a.server.URL + "/nowhere"}
		arguments[name] = a.word("the argument " + name)
		a.call("x402_pay", arguments)
		a.call("x402_estimate_cost", arguments)
	}
	for _, tool := range []string{"x402_pay", "x402_history", "x402_check_balance", "x402_check_delegation",
		"x402_discover_services", "x402_list_tools", "x402_call_tool"} {
		for _, name := range []string{"network", "asset", "before", "paymentId", "status", "afterDate",
			"server", "tokenAccount", "maxPrice", "query", "url"} {
			a.call(tool, map[string]any{name: a.word(tool + "'s " + name)})
		}
		a.call(tool, map[string]any{a.word("an unknown argument"): 1})
		a.call(tool, map[string]any{"limit": json.Number(strings.Repeat("7", wordLength))})
	}
	for _, value := range []any{"x", 1} {
		headers := map[string]any{a.word("a header"): value}
		a.call("x402_pay", map[string]any{"url": a.server.URL, "headers": headers})
	}
	a.call(a.word("a tool"), nil)
}

func (a *agent) looksBack() {
	ids := regexp.MustCompile(`pay_\w+`)
	before, seen := "", map[string]bool{}
	for {
		arguments := map[string]any{"limit": 100}
		if before != "" {
			arguments["before"] = before
		}
		page := a.call("x402_history", arguments)
		more := false
		for _, id := range ids.FindAllString(page, -1) {
			if !seen[id] {
				seen[id], more, before = true, true, id
				a.call("x402_history", map[string]any{"paymentId": id})
			}
		}
		if !more {
			break
		}
	}
	require.NotEmpty(a.t, seen)
	a.watches(0, "show", before)
	a.run("show", before)
}

func (w *words) asksAPerson() {
	challenge, _ := w.challenge("/report")
	a := w.agent(`{"elicitation":{}}`)
	defer func() { w.log("the log", a.end()) }()
	asked := 0
	for name, text := range inOrder(w.variants("approval", w.full(challenge))) {
		at := w.put("/approval/"+name, asks(text, true, says(http.StatusPaymentRequired, "")))
		if strings.Contains(a.call("x402_pay", map[string]any{"url": at}), "elicitation/create") {
			asked++
			break // it waits for the answer
		}
	}
	require.NotZero(w.t, asked)
	w.run("approvals")
	w.watches(0, "approvals")
}

// opensTheDashboard reads the owner's pages, but for those that show what was bought.
func (w *words) opensTheDashboard() {
	cmd := w.command("dashboard", "--json")
	out := must.Get(cmd.StdoutPipe())(w.t)
	require.NoError(w.t, cmd.Start())
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	var said struct{ URL string }
	require.NoError(w.t, json.NewDecoder(out).Decode(&said))
	jar := must.Get(cookiejar.New(nil))(w.t)
	browser := &http.Client{Jar: jar}
	page := func(at string) string {
		answer := must.Get(browser.Get(at))(w.t)
		defer answer.Body.Close()
		text := must.Get(io.ReadAll(answer.Body))(w.t)
		require.Equal(w.t, http.StatusOK, answer.StatusCode, at)
		w.text("the dashboard", html.UnescapeString(string(text)))
		return string(text)
	}
	first, base := page(said.URL), said.URL[:strings.LastIndex(said.URL, "/")]
	page(base + "/history")
	id := regexp.MustCompile(`apr_\w+`).FindString(first)
	require.NotEmpty(w.t, id)
	page(base + "/approvals/" + id)
}
