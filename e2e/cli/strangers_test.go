package cli

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// strangers are all whom a wallet deals with: sellers, MCP servers, a facilitator, the chains' nodes,
// a service with payment channels. Every text that they control is a word of 10,000 characters, made
// of a mark of its own, so that it is known wherever it turns up again.
type strangers struct {
	*world
	t      *testing.T
	server *httptest.Server
	other  *httptest.Server // the same at another port, where calls are paid through a channel
	env    []string
	rules  string

	mu     sync.Mutex
	fields []string                    // what each mark stands for
	pages  map[string]http.HandlerFunc // what is answered at a path, or below one that ends with /
}

// hostile are what a word has between its marks: what drives terminals, turns text around, and ends
// lines and strings.
var hostile = []string{"", "\x1b[m", "", `"`, "\n", "\u202e", `\`, "\r", "\u0085", "é"}

const (
	wordLength = 10_000
	nameLength = 128 // where the protocol has names and addresses, no more is read
)

// word is a text that somebody says in a field.
func (s *strangers) word(field string) string {
	var word strings.Builder
	for i, mark := 0, s.mark(field); word.Len() < wordLength; i++ {
		word.WriteString(mark + hostile[i%len(hostile)])
	}
	return word.String()
}

// plain is a word of visible letters, where others cannot stand: in a header, or in a name.
func (s *strangers) plain(field string, length int) string {
	return strings.Repeat(s.mark(field), length)[:length]
}

func (s *strangers) mark(field string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fields = append(s.fields, field)
	return fmt.Sprintf("zq%dz", len(s.fields)-1)
}

// newStrangers are in place of the sandbox's parties: until they are told what to answer, they pass
// on what those do.
func newStrangers(t *testing.T) *strangers {
	t.Helper()
	w, err := newWorld(sandbox.Options{})
	require.NoError(t, err)
	t.Cleanup(w.close)
	s := &strangers{world: w, t: t, pages: map[string]http.HandlerFunc{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	s.other = httptest.NewServer(s)
	t.Cleanup(s.other.Close)
	s.heal()
	s.rules = strings.NewReplacer(w.EVMNodeURL, s.server.URL+"/evm/", w.SolanaNodeURL,
		s.server.URL+"/solana/", w.FacilitatorURL, s.server.URL+"/facilitator/",
		"loopback = [", fmt.Sprintf("loopback = [%q, %q, ", s.server.Listener.Addr(),
			s.other.Listener.Addr()),
		"[policy]", "rate = 10000\n[policy]\nmax_failures = 0\ndeny_hosts = [\"*.denied.example\"]",
	).Replace(w.rules(sandbox.Rules{ApproveAbove: "0.10", Extra: fmt.Sprintf(`
[networks."rooch:main"]
rpc = "%[1]s/rooch/"
[channel]
did = "did:rooch:rooch19gqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqnvn7eg"
[servers.channel]
url = "%[2]s/channel/mcp"
channel = true
[servers.loud]
command = ["mcp-loud"]
env = ["MCP_WORD"]
mount = true
`, s.server.URL, s.other.URL)}))
	w.home = filepath.Join(t.TempDir(), "home")
	w.evm, _, err = testworld.MakeHome(w.home, s.rules, testPassphrase)
	require.NoError(t, err)
	w.Fund(w.evm, sandbox.USDC)
	s.env = []string{"X402_WALLET_HOME=" + w.home, passphraseFile(t), "LOG_LEVEL=debug", "NO_COLOR=1",
		"MCP_WORD=" + s.word("what a command prints")}
	return s
}

// heal makes those whom the wallet asks by itself as honest as the sandbox.
func (s *strangers) heal() {
	for path, at := range map[string]string{"/evm/": s.EVMNodeURL, "/solana/": s.SolanaNodeURL,
		"/facilitator/": s.FacilitatorURL} {
		honest := must.Get(url.Parse(at))(s.t)
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(honest) }}
		s.put(path, http.StripPrefix(strings.TrimSuffix(path, "/"), proxy).ServeHTTP)
	}
}

func (s *strangers) put(path string, answer http.HandlerFunc) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = answer
	return s.server.URL + (&url.URL{Path: path}).EscapedPath()
}

func (s *strangers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.Lock()
	answer, found := s.pages[r.URL.Path]
	if !found {
		answer, found = s.pages["/"+first+"/"]
	}
	s.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	answer(w, r)
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// writes is an answer byte for byte, its status line included.
func writes(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(connection, answer)
		_ = connection.Close()
	}
}

// broken are the answers that break HTTP itself, or stretch it, by what they do.
func (s *strangers) broken() map[string]http.HandlerFunc {
	word := func(field string) string { return s.plain(field, wordLength) }
	head := func(status, header string) http.HandlerFunc {
		return writes("HTTP/1.1 " + status + "\r\n" + header + "\r\nContent-Length: 0\r\n\r\n")
	}
	all := map[string]http.HandlerFunc{
		"garbage":     writes(s.word("garbage")),
		"no HTTP":     writes(word("the version") + " 200 OK\r\n\r\n"),
		"no status":   writes("HTTP/1.1 " + word("the status") + "\r\n\r\n"),
		"long status": head("402 "+word("the status's text"), "X: y"),
		"no header":   head("200 OK", word("a line that is no header")),
		"no length":   writes("HTTP/1.1 200 OK\r\nContent-Length: " + word("Content-Length") + "\r\n\r\n"),
		"no chunk": writes("HTTP/1.1 402 x\r\nTransfer-Encoding: chunked\r\n\r\n" +
			word("a chunk's size")),
		"encoding":        head("200 OK", "Transfer-Encoding: "+word("Transfer-Encoding")),
		"content's coded": head("200 OK", "Content-Encoding: "+word("Content-Encoding")),
		"type":            head("200 OK", "Content-Type: "+word("the type")+"/"+word("the subtype")),
		"charset":         head("200 OK", "Content-Type: text/plain; charset="+word("charset")),
		"date":            head("402 x", "Date: "+word("Date")),
		"other protocol":  head("402 x", "WWW-Authenticate: "+word("a scheme")+" realm="+word("a realm")),
		"switched":        head("101 x", "Upgrade: "+word("Upgrade")),
		"redirect":        head("302 x", "Location: https://"+word("a host")+".example/"),
		"no URL":          head("307 x", "Location: http://%zz"+word("no URL")),
		"same origin":     head("308 x", "Location: /"+word("a path")),
		"retry":           head("429 x", "Retry-After: "+word("Retry-After")),
		"error page":      says(500, s.word("an error page")),
	}
	for _, header := range []string{"PAYMENT-REQUIRED", "X-PAYMENT-REQUIRED", "X-PAYMENT-AMOUNT"} {
		all[header] = head("402 x", header+": "+word(header))
		twice := header + ": " + word(header) + "\r\n" + header + ": " + word(header)
		all[header+" twice"] = head("402 x", twice)
	}
	return all
}

// inOrder is a map in the order of its names, so that each run is like the other.
func inOrder[T any](m map[string]T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// variants are a JSON text with one of its strings or numbers replaced by a word, each in turn: by a
// long one, and by one that is no longer than a name. Their names say which.
func (s *strangers) variants(about string, text []byte) map[string][]byte {
	all := map[string][]byte{}
	for i := 0; ; i++ {
		var field string
		for _, kind := range []string{"", " (a name)"} {
			var v any
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber()
			require.NoError(s.t, d.Decode(&v))
			left := i
			v, field = replaced(v, about, &left, func(field string) string {
				if kind == "" {
					return s.word(field)
				}
				return s.plain(field, nameLength)
			})
			if field != "" {
				changed := must.Get(json.Marshal(v))(s.t)
				all[field+kind] = changed
			}
		}
		if field == "" {
			return all
		}
	}
}

// replaced is a value with one string or number in it replaced, the first after left others; field is
// which one that was.
func replaced(v any, at string, left *int, word func(field string) string) (made any, field string) {
	switch v := v.(type) {
	case string:
		*left--
		if *left == -1 {
			return word(at), at
		}
	case json.Number:
		*left--
		if *left == -1 {
			return json.Number(strings.Repeat("7", len(word(at)))), at
		}
	case []any:
		for i := range v {
			v[i], field = replaced(v[i], fmt.Sprintf("%s[%d]", at, i), left, word)
			if field != "" {
				return v, field
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			v[key], field = replaced(v[key], at+"."+key, left, word)
			if field != "" {
				return v, field
			}
		}
	}
	return v, ""
}

// challenge is what the sandbox's seller asks for at a path: in a header, or in the body.
func (s *strangers) challenge(path string) (text []byte, header http.Header) {
	answer := must.Get(http.Get(s.SellerURL + path))(s.t)
	defer answer.Body.Close()
	text = must.Get(io.ReadAll(answer.Body))(s.t)
	if value := answer.Header.Get("Payment-Required"); value != "" {
		text = must.Get(base64.StdEncoding.DecodeString(value))(s.t)
	}
	return text, answer.Header
}

// full is a challenge with every text in it that a seller may add.
func (s *strangers) full(challenge []byte) []byte {
	all := must.JSON[map[string]any](challenge)(s.t)
	all["error"] = "an error"
	option := all["accepts"].([]any)[0].(map[string]any)
	extra := option["extra"].(map[string]any)
	extra["paymentFlow"] = "authorization"
	if extra["feePayer"] == nil {
		extra["assetTransferMethod"] = "eip3009"
	} else { // on Solana
		extra["memo"] = "a memo"
	}
	return must.Get(json.Marshal(all))(s.t)
}

// asks is a seller: unpaid it answers with a challenge in the header or the body, paid as it is told.
func asks(challenge []byte, inHeader bool, paid http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		isPaid := r.Header.Get("Payment-Signature")+r.Header.Get("X-Payment") != ""
		switch {
		case isPaid:
			paid(w, r)
		case inHeader:
			w.Header()["PAYMENT-REQUIRED"] = []string{base64.StdEncoding.EncodeToString(challenge)}
			w.WriteHeader(http.StatusPaymentRequired)
		default:
			says(http.StatusPaymentRequired, string(challenge))(w, r)
		}
	}
}

func receipt(status int, text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["PAYMENT-RESPONSE"] = []string{base64.StdEncoding.EncodeToString(text)}
		says(status, "{}")(w, r)
	}
}

type message struct {
	ID     json.RawMessage
	Method string
}

func refuses(m message, code int, word string) []byte {
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID,
		"error": map[string]any{"code": code, "message": word, "data": word}})
	if err != nil {
		panic(err)
	}
	return text
}

func results(m message, result any) []byte {
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	if err != nil {
		panic(err)
	}
	return text
}

func rpc(answer func(message) []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var m message
		switch err := json.NewDecoder(r.Body).Decode(&m); {
		case err != nil || r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer(m))
		}
	}
}

// unless is one answer, and another to requests that name a method.
func unless(method string, answer, otherwise http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"`+method+`"`)) {
			otherwise(w, r)
			return
		}
		answer(w, r)
	}
}

// mcpSays is an MCP server whose methods answer as told; the others are honest and have little to say.
func mcpSays(word string, told map[string]func(message) []byte) func(message) []byte {
	return func(m message) []byte {
		switch answer := told[m.Method]; {
		case answer != nil:
			return answer(m)
		case m.Method == "initialize":
			return results(m, map[string]any{"protocolVersion": "2025-06-18",
				"capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo":   map[string]any{"name": word, "title": word, "version": word},
				"instructions": word})
		case m.Method == "tools/list":
			return results(m, map[string]any{"tools": hostileTools(word)})
		default:
			return refuses(m, -32601, word)
		}
	}
}

// hostileTools are what a server lists: names that are none, and schemas that cannot be.
func hostileTools(word string) (list []any) {
	schema := map[string]any{"type": "object"}
	visible := strings.Repeat(strings.SplitAfter(word, "z")[0], nameLength)[:nameLength]
	elsewhere := map[string]any{"x": map[string]any{"$ref": word}}
	for name, input := range inOrder(map[string]any{word: schema, visible: schema, "tool": schema,
		"typed": map[string]any{"type": word}, "hides": map[string]any{"type": "object", word: word},
		"refers": map[string]any{"type": "object", "properties": elsewhere}}) {
		list = append(list, map[string]any{"name": name, "title": word, "description": word,
			"inputSchema": input})
	}
	return list
}

// mcpLoud is an MCP server on stdio that says a word wherever it may: on stderr, between the messages,
// and in them.
func mcpLoud() {
	word := os.Getenv("MCP_WORD")
	answer, line := mcpSays(word, nil), strings.ReplaceAll(word, "\n", "")
	fmt.Fprintln(os.Stderr, line)
	fmt.Println(line)
	for lines := bufio.NewReader(os.Stdin); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line, &m) == nil && m.ID != nil {
			_, _ = os.Stdout.Write(append(bytes.TrimSpace(answer(m)), '\n'))
		}
	}
}
