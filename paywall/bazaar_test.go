package paywall

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
)

// A declaration has the very members that the reference's has, for each kind of call.
func TestDeclarations(t *testing.T) {
	const draft = `"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["input"]`
	const output = `"output":{"type":"object","properties":{"type":{"type":"string"},"example":{"type":"object"}},"required":["type"]}`
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	for name, row := range map[string]struct {
		d    Discovery
		want string
	}{
		"GET": {Discovery{Method: "GET", Input: raw(`{"q":"x"}`), InputSchema: raw(`{"type":"object"}`),
			Output: raw(`{"sky":"clear"}`)},
			`{"info":{"input":{"type":"http","method":"GET","queryParams":{"q":"x"}},"output":{"type":"json",` +
				`"example":{"sky":"clear"}}},"schema":{` + draft + `,"properties":{"input":{"type":"object",` +
				`"properties":{"type":{"type":"string","const":"http"},"method":{"type":"string","enum":["GET"]},` +
				`"queryParams":{"type":"object"}},"required":["type","method"],"additionalProperties":false},` +
				output + `}}}`},
		"POST": {Discovery{Method: "POST", Input: raw(`{"q":"x"}`), InputSchema: raw(`{"type":"object"}`)},
			`{"info":{"input":{"type":"http","method":"POST","bodyType":"json","body":{"q":"x"}}},"schema":{` + draft +
				`,"properties":{"input":{"type":"object","properties":{"type":{"type":"string","const":"http"},` +
				`"method":{"type":"string","enum":["POST"]},"bodyType":{"type":"string","enum":["json","form-data",` +
				`"text"]},"body":{"type":"object"}},"required":["type","method","bodyType","body"],` +
				`"additionalProperties":false}}}}`},
		"MCP": {Discovery{InputSchema: raw(`{"type":"object"}`), Input: raw(`{"q":"x"}`)},
			`{"info":{"input":{"type":"mcp","toolName":"search","description":"Weather","inputSchema":{"type":` +
				`"object"},"example":{"q":"x"}}},"schema":{` + draft + `,"properties":{"input":{"type":"object",` +
				`"properties":{"type":{"type":"string","const":"mcp"},"toolName":{"type":"string"},"description":` +
				`{"type":"string"},"inputSchema":{"type":"object"},"example":{"type":"object"}},"required":["type",` +
				`"toolName","inputSchema"],"additionalProperties":false}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := row.d.declare("search", "Weather")
			require.NoError(t, err)
			require.JSONEq(t, row.want, string(text))
		})
	}
}

// What could not be declared is refused when the paywall is made, with the reason.
func TestDeclarationsThatAreRefused(t *testing.T) {
	long := `{"x":"` + strings.Repeat("x", maxDeclared) + `"}`
	for want, d := range map[string]Discovery{
		"is no method":      {Method: "get"},
		"type of body is":   {Method: "GET", BodyType: "json"},
		"is no type of bod": {Method: "POST", BodyType: "xml"},
		"where it is found": {URL: "ftp://shop.example/"},
		"no http or https":  {URL: "https://user:secret@shop.example/"},
		"input for disc":    {Input: json.RawMessage(`{"a":1,"a":2}`)},
		"the input for":     {Input: json.RawMessage(`[1]`)},
		"refers to another": {InputSchema: json.RawMessage(`{"properties":{"a":{"$ref":"https://x.example/"}}}`)},
		"schema for disc":   {InputSchema: json.RawMessage(long)},
		"output for disc":   {Output: json.RawMessage(`"text"`)},
		"has to fit into":   {Input: json.RawMessage(long[:5000] + `"}`), Output: json.RawMessage(long[:5000] + `"}`)},
	} {
		t.Run(want, func(t *testing.T) {
			sold := Tool{Name: "search", Discovery: &d, Accepts: []Option{{Network: "base-sepolia",
				Price: "0.01", PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"}}}
			_, err := New(Options{Facilitators: facilitator.New(facilitator.Options{}), Tools: []Tool{sold}})
			require.ErrorContains(t, err, want)
		})
	}
}

// discoverable is a paywall with as many tools that are found, and one that is not.
func discoverable(t *testing.T, n int) (*lab, http.Handler) {
	l := newLab(t, func(l *lab, o *Options) {
		o.Tools[0].Discovery = &Discovery{URL: "https://shop.example/mcp"}
		o.Tools[0].Description = "Weather"
		for i := range n - 1 {
			o.Tools = append(o.Tools, Tool{Name: fmt.Sprint("t", i), Accepts: o.Tools[0].Accepts,
				Discovery: &Discovery{URL: fmt.Sprintf("https://shop.example/t%d", i), Method: "GET"}})
		}
		o.Tools = append(o.Tools, Tool{Name: "hidden", Accepts: o.Tools[0].Accepts})
	})
	return l, l.paywall.Resources()
}

type listPage struct {
	Version int                                `json:"x402Version"`
	Items   []json.RawMessage                  `json:"items"`
	Page    struct{ Limit, Offset, Total int } `json:"pagination"`
}

func getList(t *testing.T, h http.Handler, query string) (status int, p listPage) {
	t.Helper()
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/discovery/resources"+query, nil))
	if r.Code == http.StatusOK {
		require.NoError(t, json.Unmarshal(r.Body.Bytes(), &p))
	}
	return r.Code, p
}

// The list is read by our own client as any facilitator's, and by pages.
func TestTheListOfWhatCanBeFound(t *testing.T) {
	l, list := discoverable(t, 3)
	web := httptest.NewServer(http.StripPrefix("/shop", list))
	t.Cleanup(web.Close)
	found := facilitator.New(facilitator.Options{List: []facilitator.Facilitator{{Name: "shop",
		URL: web.URL + "/shop"}}}).Discover(t.Context(), "", "")
	require.NoError(t, found[0].Err)
	require.Len(t, found[0].Listings, 3)
	one := found[0].Listings[0]
	require.Equal(t, []any{"https://shop.example/mcp", "mcp", "search", "Weather"}, []any{one.URL, one.Type,
		one.Tool, one.Description})
	require.Len(t, one.Accepts, 2)
	require.Equal(t, l.PayToEVM, one.Accepts[0].PayTo)
	require.Equal(t, []string{"http", "https://shop.example/t0"}, []string{found[0].Listings[1].Type,
		found[0].Listings[1].URL})

	for query, want := range map[string][]int{
		"":                                      {3, 20, 0, 3},
		"?limit=2":                              {2, 2, 0, 3},
		"?limit=2&offset=2":                     {1, 2, 2, 3},
		"?offset=99999999999":                   {0, 20, 1 << 20, 3},
		"?type=mcp":                             {1, 20, 0, 1},
		"?type=http&limit=1":                    {1, 1, 0, 2},
		"?network=eip155:84532":                 {3, 20, 0, 3},
		"?network=eip155:1":                     {0, 20, 0, 0},
		"?scheme=upto":                          {0, 20, 0, 0},
		"?payTo=" + strings.ToLower(l.PayToEVM): {3, 20, 0, 3},
		"?payTo=0x1":                            {0, 20, 0, 0},
	} {
		status, p := getList(t, list, query)
		if strings.Contains(query, "999") {
			want[2] = p.Page.Offset // cut, or refused where a number has not so many bits
		}
		require.Equal(t, http.StatusOK, status, query)
		require.Equal(t, want, []int{len(p.Items), p.Page.Limit, p.Page.Offset, p.Page.Total}, query)
		require.NotNil(t, p.Items, query)
		require.Equal(t, 2, p.Version)
	}
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?offset=-1", "?limit=-5"} {
		status, _ := getList(t, list, query)
		require.Equal(t, http.StatusBadRequest, status, query)
	}
	r := httptest.NewRecorder()
	list.ServeHTTP(r, httptest.NewRequest(http.MethodPost, "/discovery/resources", nil))
	require.Equal(t, http.StatusMethodNotAllowed, r.Code)
}

// However many ask for the list, so many are answered at a time, and the facilitators are not asked each
// time.
func TestTheListIsBounded(t *testing.T) {
	l, list := discoverable(t, 150)
	status, p := getList(t, list, "?limit=100")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []int{100, 150}, []int{len(p.Items), p.Page.Total})
	for range maxReaders {
		l.paywall.list.readers <- struct{}{}
	}
	status, _ = getList(t, list, "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	for range maxReaders {
		<-l.paywall.list.readers
	}
	until := l.paywall.list.until
	_, _ = getList(t, list, "")
	require.Equal(t, until, l.paywall.list.until, "made once")
	require.LessOrEqual(t, until.Sub(l.paywall.now()), listFresh)
	require.Positive(t, until.Sub(l.paywall.now().Add(-time.Second)))
}

// A tool that can be found is named by its endpoint and its own name, so that no other tool's payment is for
// it; upstream's schema is declared, and one that cannot be is left out.
func TestADiscoverableToolsChallenge(t *testing.T) {
	l, _ := discoverable(t, 1)
	c := l.call(t, nil, nil).challenge()
	require.Equal(t, "https://shop.example/mcp#search", c.Resource.URL)
	require.Contains(t, string(c.Extensions["bazaar"]), `"toolName":"search"`)
	require.Equal(t, product, l.call(t, nil, meta(c, l.payer.sign(t, c, 0, nil))).text)

	tool := &mcp.Tool{Name: "search", Description: "Weather of the world", InputSchema: map[string]any{
		"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}
	l.paywall.describe(tool)
	c = l.call(t, nil, nil).challenge()
	require.Contains(t, string(c.Extensions["bazaar"]), `"city"`)
	for _, schema := range []map[string]any{{"$ref": "https://evil.example/"},
		{"description": strings.Repeat("x", 2*maxDeclared)}} {
		tool.InputSchema = schema
		l.paywall.describe(tool)
		text := string(l.call(t, nil, nil).challenge().Extensions["bazaar"])
		require.NotContains(t, text, "evil")
		require.Less(t, len(text), maxDeclared)
		require.Contains(t, text, `"inputSchema":{"type":"object"}`)
	}
	l.paywall.describe(&mcp.Tool{Name: "unknown"})
	require.NotContains(t, l.paywall.declaredExtensions(l.paywall.tools["hidden"], nil), extensionBazaar)
}
