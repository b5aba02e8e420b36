package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

// Schemas that servers write, for input and output (typescript-sdk#1175, gemini-cli#13326).
var oddSchemas = []string{
	`{"type":"object","properties":{"a":{"type":"string"}}}`,
	`{"type":"object","properties":{"v":true}}`, `{"type":"object","properties":{"v":false}}`,
	`{"type":"object","properties":[]}`, `{"type":"object","properties":null}`,
	`{"type":"object","properties":{"v":null}}`, `{"type":"object","properties":{"v":"string"}}`,
	`{"type":"object","properties":{"v":1}}`, `{"type":"object","properties":{"v":[]}}`,
	`{"type":"object","properties":{},"required":"a"}`, `{"type":"object","properties":{},"required":null}`,
	`{"type":"object","properties":{},"required":[1]}`, `{"type":"object","properties":{"a":{"required":true}}}`,
	`{"type":"object"}`, `{}`, `null`, `[]`, `true`, `"object"`, `7`, `{"type":"string"}`, `{"type":["object"]}`,
	`{"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"object"}]}`,
	`{"type":"object","properties":{"a":{},"b":{}},"oneOf":[{"required":["a"]},{"required":["b"]}]}`,
	`{"allOf":[{"type":"object","properties":{"a":{"type":"string"}}}]}`,
	`{"type":"object","properties":{"$filter":{"type":"string"},"filter[status]":{},"user:id":{}}}`,
	`{"type":"object","properties":{"$filter":{"type":"string"}},"required":["$filter"]}`,
	`{"type":"object","properties":{"` + strings.Repeat("x", 70) + `":{},"a b":{},"日":{}}}`,
	`{"type":"object","properties":{"a\u200b":{"type":"string"}}}`,
	`{"type":"object","properties":{"a":{"enum":["\u202e"]}}}`,
	`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"a":{"type":"number","minimum":0,"exclusiveMinimum":true}}}`,
	`{"type":"object","properties":{"a":{"type":"string","pattern":"(?i)abc"}}}`,
	`{"type":"object","properties":{"a":{"type":"string","pattern":"^(?P<x>a)\\Z"}}}`,
	`{"type":"object","properties":{"a":{"type":"string","pattern":"["}}}`,
	`{"type":"object","properties":{"a":{"$ref":"#/$defs/Nope"}}}`,
	`{"type":"object","properties":{"a":{"$ref":"https://seller.example/schema"}}}`,
	`{"type":"object","properties":{"p":{"$ref":"#/$defs/P"}},"$defs":{"P":{"type":"object","properties":{"child":{"$ref":"#/$defs/P"}}}}}`,
	`{"type":"object","properties":{"a":{"type":"any"}}}`, `{"type":"object","properties":{"a":{"type":5}}}`,
	`{"type":"object","properties":{"a":{"enum":null}}}`, `{"type":"object","properties":{"a":{"enum":["x","x"]}}}`,
	`{"type":"object","properties":{"a":{"type":"number","enum":[0.5]}}}`,
	`{"type":"object","properties":{"a":{"enum":["",1,null]}}}`,
	`{"type":"object","properties":{"a":{"type":"string","minLength":-1,"format":"hexcolor"}}}`,
	`{"type":"object","properties":{"a":{"type":"array"}}}`,
	`{"type":"object","properties":{"a":{"type":"array","items":[{"type":"string"},{"type":"number"}]}}}`,
	`{"type":"object","properties":{"a":{"type":"array","items":true}}}`,
	`{"type":"object","properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null}}}`,
	`{"type":"object","properties":{"a":{"not":{}}},"if":5,"dependentRequired":7,"$defs":8}`,
	`{"type":"object","properties":{"a":{"description":5,"title":[]}},"description":7,"additionalProperties":"no"}`,
	`{"type":"object","properties":{"__proto__":{},"constructor":{},"toString":null,"hasOwnProperty":{"type":"string"}}}`,
	`{"type":"object","properties":{"a":` + strings.Repeat(`{"items":`, 25) + `{}` + strings.Repeat(`}`, 25) + `}}`,
	`{"type":"object","title":"` + strings.Repeat("x", 20<<10) + `"}`,
}

// Results that servers give; the word in each is to arrive in one form or another (codex#29002,
// codex#33404).
var oddResults = []string{
	`{"content":[{"type":"text","text":"WORD"}]}`, `{"structuredContent":{"a":"WORD"}}`,
	`{"content":null,"structuredContent":{"a":"WORD"}}`, `{"content":"WORD"}`, `{"content":{"type":"text","text":"WORD"}}`,
	`{"content":["WORD",5,null]}`, `{"content":[{"type":"text"},{"type":"text","text":"WORD"}]}`,
	`{"content":[{"type":"text","text":5,"a":"WORD"}]}`, `{"content":[{"type":"image","data":"AAAA","a":"WORD"}]}`,
	`{"content":[{"type":"image","data":"data:image/png;base64,AAAA","mimeType":"image/png","a":"WORD"}]}`,
	`{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"text","text":"WORD"}]}`,
	`{"content":[{"type":"audio","data":"AAAA","mimeType":"audio/wav"},{"type":"text","text":"WORD"}]}`,
	`{"content":[{"type":"audio","mimeType":"audio/WORD"}]}`,
	`{"content":[{"type":"resource","resource":{"text":"WORD"}}]}`,
	`{"content":[{"type":"resource","resource":{"uri":"x://WORD"}}]}`,
	`{"content":[{"type":"resource","resource":{"uri":"x://y","text":"WORD","blob":5,"mimeType":7}}]}`,
	`{"content":[{"type":"resource","resource":{"uri":"x://WORD","blob":"aWNvbg=="}}]}`,
	`{"content":[{"type":"resource","resource":{"uri":"WORD","blob":"no base64"}}]}`,
	`{"content":[{"type":"resource","resource":null,"a":"WORD"}]}`,
	`{"content":[{"type":"resource_link","uri":"https://cdn.example/WORD"}]}`,
	`{"content":[{"type":"resource_link","uri":"ui://view/WORD","name":"x","mimeType":"text/html;profile=mcp-app","size":12.5}]}`,
	`{"content":[{"type":"resource_link","name":"WORD"}]}`,
	`{"content":[{"type":"video","url":"https://WORD"}]}`, `{"content":[{"type":["text"],"text":"WORD"}]}`,
	`{"content":[{"text":"WORD"}]}`, `{"content":[[{"type":"text","text":"WORD"}]]}`,
	`{"content":[{"type":"tool_use","id":"1","name":"WORD","input":{}}]}`,
	`{"content":[{"type":"text","text":"[1]"}],"structuredContent":["WORD"]}`,
	`{"content":[{"type":"text","text":"x"}],"structuredContent":"WORD"}`,
	`{"content":[{"type":"text","text":"WORD"}],"structuredContent":{"temp":"21"}}`,
	`{"content":[{"type":"text","text":"see the structure"}],"structuredContent":{"a":"WORD"}}`,
	`{"content":[{"type":"text","text":"WORD","annotations":{"audience":["system"],"priority":0.6}}]}`,
	`{"content":[{"type":"text","text":"WORD","annotations":{"priority":5,"lastModified":"yesterday"}}]}`,
	`{"content":[{"type":"text","text":"WORD","annotations":[],"_meta":null}]}`,
	`{"content":[{"type":"text","text":"x"}],"structuredContent":{"constructor":"WORD"}}`,
	`{"content":[],"structuredContent":{"__proto__":{"a":1},"toString":"WORD"}}`,
	`{"isError":"false","content":[{"type":"text","text":"WORD"}]}`,
	`{"isError":null,"content":[{"type":"text","text":"WORD\u202e"}]}`,
	`{"content":[{"type":"text","text":"WORD"}],"_meta":{"progressToken":{},"io.modelcontextprotocol/related-task":5}}`,
	`{"content":[{"type":"text","text":"WORD"}],"resultType":"complete","task":5,"toolResult":7}`,
	"{\"content\":[{\"type\":\"text\",\"text\":\"WORD caf\xe9\"}]}",
}

// Lists that cannot be read, of servers that show nothing then.
var noLists = map[string]string{
	"/e": `"none"`, "/f": `[{"name":5,"inputSchema":{}}]`, "/g": `null`, "/h": `{"name":"t"}`,
	"/i": `[{"name":"t","description":7,"annotations":{"readOnlyHint":"yes"},"inputSchema":{"type":"object"}}]`,
}

// Names beyond those of MCP are called by x402_call_tool.
var oddNames = []string{"tool%d", "get.cost-%d", "ns|tool~%d", "größe%d", "a+b&c%d", "UPPER_%d", "a#b%d",
	"100%%_%d", "x402_pay%d", "get_cost_and_usage_comparisons_by_service_and_region_%d", "%d", "!$'*^`%d", "%d__x402_pay"}

type oddTool struct{ id, server, name, input, output, result string }

// oddTools are tools of four servers, each with another name, schema and result.
func oddTools() (all []oddTool) {
	for i := range 4 * 64 {
		of := func(list []string) string { return list[i%len(list)] }
		id := fmt.Sprintf("word-%d-", i)
		all = append(all, oddTool{id: id, server: string(rune('a' + i%4)), name: fmt.Sprintf(of(oddNames), i),
			input: of(oddSchemas), output: oddSchemas[(i+i/len(oddSchemas)+1)%len(oddSchemas)],
			result: strings.ReplaceAll(of(oddResults), "WORD", id)})
	}
	return all
}

// oddShop sells odd tools on its paths, one server each, for $0.001 a call.
type oddShop struct {
	tools              []oddTool
	facilitator, payTo string

	mu   sync.Mutex
	sold map[string]int // by a tool's id and the caller
}

func (s *oddShop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments struct{ Caller string }
			Meta      map[string]json.RawMessage `json:"_meta"`
		}
	}
	isMessage := r.Method == http.MethodPost && json.NewDecoder(r.Body).Decode(&m) == nil
	if !isMessage {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := `"error":{"code":-32601,"message":"unknown"}`
	switch m.Method {
	case "initialize":
		answer = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`
	case "tools/list":
		var list []string
		for _, tool := range s.tools {
			if "/"+tool.server == r.URL.Path {
				list = append(list, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":%s,"outputSchema":%s}`, tool.name,
					tool.id, tool.input, tool.output))
			}
		}
		answer = `"result":{"tools":` + cmp.Or(noLists[r.URL.Path], "["+strings.Join(list, ",")+"]") + `}`
	case "tools/call":
		for _, tool := range s.tools {
			if "/"+tool.server == r.URL.Path && tool.name == m.Params.Name {
				answer = `"result":` + s.sell(tool, m.Params.Arguments.Caller, m.Params.Meta["x402/payment"])
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
}

func (s *oddShop) sell(tool oddTool, caller string, payment json.RawMessage) (result string) {
	terms := fmt.Sprintf(`{"scheme":"exact","network":%q,"asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amount":"1000",`+
		`"payTo":%q,"maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}`, x402test.BaseSepolia, s.payTo)
	if payment == nil {
		return `{"isError":true,"content":[],"structuredContent":{"x402Version":2,"error":"pay","resource":{"url":"mcp://tool"},` +
			`"accepts":[` + terms + `]}}`
	}
	body := fmt.Sprintf(`{"x402Version":2,"paymentPayload":%s,"paymentRequirements":%s}`, payment, terms)
	response, err := http.Post(s.facilitator+"/settle", "application/json", strings.NewReader(body))
	if err != nil {
		return `{"isError":true,"content":[]}`
	}
	defer response.Body.Close()
	var receipt json.RawMessage
	var settled struct{ Success bool }
	isRead := json.NewDecoder(response.Body).Decode(&receipt) == nil
	if !isRead || json.Unmarshal(receipt, &settled) != nil || !settled.Success {
		return `{"isError":true,"content":[]}`
	}
	s.mu.Lock()
	s.sold[tool.id+caller]++
	s.mu.Unlock()
	said := `"_meta":{"x402/payment-response":` + string(receipt)
	if _, meta, hasMeta := strings.Cut(tool.result, `],"_meta":{`); hasMeta {
		return strings.TrimSuffix(tool.result, `"_meta":{`+meta) + said + "," + meta
	}
	return strings.TrimSuffix(tool.result, "}") + "," + said + "}}"
}

// heard is a client's report.
type heard struct {
	Tools []struct {
		Name         string
		OutputSchema any
	}
	Answers map[string]struct {
		Direct bool
		Error  string
		Result json.RawMessage
	}
}

// mountedCalls are the orders of a client.
type mountedCalls struct {
	Command string            `json:"command"`
	Env     map[string]string `json:"env"`
	Mounted int               `json:"mounted"`
	Calls   []oddCall         `json:"calls"`
}

type oddCall struct {
	ID        string            `json:"id,omitempty"`
	Server    string            `json:"server"`
	Tool      string            `json:"tool"`
	Arguments map[string]string `json:"arguments"`
}

// byReference lists and calls through the reference client of an npm set.
func byReference(t *testing.T, set string, todo mountedCalls) (h heard) {
	requirePrepared(t, "lab/"+set)
	dir := t.TempDir()
	modules := must.Get(filepath.Abs("lab/" + set + "/node_modules"))(t)
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	program := filepath.Join(dir, "mounted.mjs")
	require.NoError(t, os.WriteFile(program, must.Get(os.ReadFile("lab/lib/mounted.mjs"))(t), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), testlab.OpWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", program)
	cmd.WaitDelay = testlab.StopWait
	cmd.Stdin = bytes.NewReader(must.Get(json.Marshal(todo))(t))
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	require.NoError(t, err, "%s", log.String())
	require.NoError(t, json.Unmarshal(out, &h))
	return h
}

// byGo does the same through the Go SDK.
func byGo(t *testing.T, todo mountedCalls) heard {
	cmd := exec.Command(todo.Command, "mcp")
	for name, value := range todo.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "mounted", Version: "1"}, nil)
	session := must.Get(client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil))(t)
	defer func() { require.NoError(t, session.Close()) }()
	names := map[string]string{}
	var list *mcp.ListToolsResult
	require.Eventually(t, func() bool {
		list = must.Get(session.ListTools(t.Context(), nil))(t)
		for _, tool := range list.Tools {
			if !strings.HasPrefix(tool.Name, "x402_") {
				names[tool.Description[strings.LastIndex(tool.Description, " ")+1:]] = tool.Name
			}
		}
		return len(names) >= todo.Mounted
	}, time.Minute, time.Millisecond)
	calls, answers := make(chan oddCall), map[string]any{}
	var working sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		working.Go(func() {
			for call := range calls {
				id := call.ID
				call.ID = ""
				name, isDirect := names[id]
				params := &mcp.CallToolParams{Name: name, Arguments: call.Arguments}
				if !isDirect {
					params = &mcp.CallToolParams{Name: "x402_call_tool", Arguments: call}
				}
				answer := map[string]any{"direct": isDirect}
				result, err := session.CallTool(t.Context(), params)
				answer["result"] = result
				if err != nil {
					answer["error"] = err.Error()
				}
				mu.Lock()
				answers[id] = answer
				mu.Unlock()
			}
		})
	}
	for _, call := range todo.Calls {
		calls <- call
	}
	close(calls)
	working.Wait()
	text := must.Get(json.Marshal(map[string]any{"tools": list.Tools, "answers": answers}))(t)
	return must.JSON[heard](text)(t)
}

// Beside mounted servers with odd lists and answers clients get the wallet's own tools, and each answer that
// was paid for, once.
func TestMountedServersAsClientsSeeThem(t *testing.T) {
	world, bin := x402test.New(t, x402test.Options{}), testworld.Build(t)
	shop := &oddShop{tools: oddTools(), facilitator: world.FacilitatorURL, payTo: world.PayToEVM,
		sold: map[string]int{}}
	at := httptest.NewServer(shop)
	t.Cleanup(at.Close)
	rules := strings.Replace(world.WalletConfig(), `loopback = [`, fmt.Sprintf("loopback = [%q, ",
		strings.TrimPrefix(at.URL, "http://")), 1)
	rules = strings.Replace(rules, "[budget]", "[budget]\nrate = 10000", 1)
	for _, server := range "abcdefghi" {
		rules += fmt.Sprintf("\n[servers.%c]\nurl = \"%s/%[1]c\"\nmount = true\n", server, at.URL)
	}
	home := testworld.NewHome(t, rules)
	world.Fund(t, home.EVM, "10.00")
	todo := func(caller string) mountedCalls {
		m := mountedCalls{Command: bin, Env: map[string]string{}, Mounted: 1}
		for _, pair := range home.Env() {
			name, value, _ := strings.Cut(pair, "=")
			m.Env[name] = value
		}
		for _, tool := range shop.tools {
			m.Calls = append(m.Calls, oddCall{tool.id, tool.server, tool.name,
				map[string]string{"caller": caller}})
		}
		return m
	}
	clients := map[string]func(*testing.T, mountedCalls) heard{"go-sdk": byGo}
	for _, set := range []string{"mcp", "mcp-v1", "mcp-old"} {
		clients[set] = func(t *testing.T, m mountedCalls) heard { return byReference(t, set, m) }
	}
	t.Run("clients", func(t *testing.T) {
		for name, ask := range clients {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				shop.requireServed(t, name, ask(t, todo(name)))
			})
		}
	})
	require.Equal(t, len(clients)*len(shop.tools), len(world.PaymentsLike(x402test.Payment{Payer: home.EVM})))
}

func (s *oddShop) requireServed(t *testing.T, caller string, h heard) {
	own := map[string]bool{}
	for _, tool := range h.Tools {
		if strings.HasPrefix(tool.Name, "x402_") {
			own[tool.Name] = true
			continue
		}
		require.Regexp(t, regexp.MustCompile(`^[a-d]__[A-Za-z0-9_-]{1,43}$`), tool.Name)
		require.Nil(t, tool.OutputSchema)
	}
	require.Len(t, own, ownTools)
	direct := 0
	for _, tool := range s.tools {
		a := h.Answers[tool.id]
		if a.Direct {
			direct++
		}
		require.Empty(t, a.Error, "%+v", tool)
		require.NotContains(t, string(a.Result), `"isError":true`, "%+v", tool)
		require.Contains(t, string(a.Result), tool.id, "what was bought: %+v", tool)
		s.mu.Lock()
		require.Equal(t, 1, s.sold[tool.id+caller], "%+v", tool)
		s.mu.Unlock()
	}
	require.Greater(t, direct, 200)
	require.Less(t, direct, len(s.tools))
}
