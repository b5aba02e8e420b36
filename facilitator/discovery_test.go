package facilitator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

const (
	v2Option = `{"scheme":"exact","network":"eip155:84532","amount":"1000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":"0x1","maxTimeoutSeconds":60}`
	v1Option = `{"scheme":"exact","network":"base-sepolia","maxAmountRequired":"2000","resource":"https://old.example/x","description":"an old one","mimeType":"","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":"0x1","maxTimeoutSeconds":60,"outputSchema":{"input":{"type":"http","method":"GET","queryParams":{"q":"text"}}}}`
)

func listed(url, option, more string) string {
	return fmt.Sprintf(
		`{"resource":%q,"type":"http","x402Version":2,"accepts":[%s],"lastUpdated":"2026-01-01T00:00:00Z"%s}`,
		url, option, more)
}

// bazaar is a facilitator over real HTTP; the clock is the client's.
func bazaar(t *testing.T, name string, h http.HandlerFunc) Facilitator {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Facilitator{Name: name, URL: s.URL + "/v1/"}
}

func answers(items ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"x402Version":2,"items":[%s],"pagination":{"limit":100,"offset":0,"total":%d}}`,
			strings.Join(items, ","), len(items))
	}
}

func urls(c Catalogue) (list []string) {
	for _, l := range c.Listings {
		list = append(list, l.URL)
	}
	return list
}

// Items of both versions and kinds, with what they say of their call.
func TestDiscoveryReads(t *testing.T) {
	c := New(Options{HTTP: http.DefaultClient, List: []Facilitator{bazaar(t, "a", answers(
		listed("https://new.example/x", v2Option,
			`,"description":"a new one","extensions":{"bazaar":{"info":{"input":{"type":"http","method":"POST"}}}}`),
		listed("https://old.example/x", v1Option, ``),
		strings.Replace(listed("https://mcp.example/mcp", v2Option,
			`,"extensions":{"bazaar":{"info":{"input":{"type":"mcp","toolName":"find","inputSchema":{"type":"object"}}}}}`), `"http"`, `"mcp"`, 1),
	))}})
	found := c.Discover(t.Context(), "", "")
	require.NoError(t, found[0].Err)
	list := found[0].Listings
	require.Len(t, list, 3)
	require.Equal(t, []any{"a new one", "http", `{"type":"http","method":"POST"}`},
		[]any{list[0].Description, list[0].Type, string(list[0].InputSchema)})
	require.Equal(t, []any{"an old one", 1, "2000", sepolia},
		[]any{list[1].Description, list[1].Accepts[0].Version, list[1].Accepts[0].Amount.String(),
			list[1].Accepts[0].Network})
	require.Contains(t, string(list[1].InputSchema), "queryParams")
	require.Equal(t, []any{"mcp", "find", `{"type":"object"}`}, []any{list[2].Type, list[2].Tool,
		string(list[2].InputSchema)})
}

// What a seller says when it is asked is read as what a facilitator lists: how it is called, in either
// version's place.
func TestASellersOwnWords(t *testing.T) {
	post := `{"type":"http","method":"POST"}`
	v1 := `{"maxAmountRequired":"1","description":"tides","outputSchema":{"input":` + post + `}}`
	for name, c := range map[string]wire.Challenge{
		"v2": {Resource: wire.Resource{Description: "tides"},
			Accepts:    []x402.Requirement{{Raw: []byte(`{"amount":"1"}`)}},
			Extensions: map[string]json.RawMessage{"bazaar": []byte(`{"info":{"input":` + post + `}}`)}},
		"v1": {Accepts: []x402.Requirement{{Raw: []byte(v1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, Listing{Type: "http", Description: "tides", InputSchema: []byte(post)},
				Asked(&c))
		})
	}
	for name, extension := range map[string]string{"none": "", "no object": `[1]`,
		"no input": `{"info":{"input":[1]}}`} {
		t.Run(name, func(t *testing.T) {
			require.Nil(t, Asked(&wire.Challenge{Extensions: map[string]json.RawMessage{
				"bazaar": []byte(extension)}}).InputSchema)
		})
	}
}

// An item that is no offer is left out; the others of the same list stay.
func TestDiscoveryLeavesOut(t *testing.T) {
	good := listed("https://good.example/x", v2Option, "")
	for name, bad := range map[string]string{
		"script":     listed("javascript:alert(1)", v2Option, ""),
		"file":       listed("file:///etc/passwd", v2Option, ""),
		"own server": listed("mcp://shop", v2Option, `,"kind":"mcp"`),
		"fragment":   listed("https://a.example/#x", v2Option, ""),
		"long URL":   listed("https://a.example/"+strings.Repeat("a", maxListedURL), v2Option, ""),
		"twin keys": strings.Replace(listed("https://a.example/", v2Option, ""), `"type"`,
			`"resource":"https://b.example/","type"`, 1),
		"case twins": strings.Replace(listed("https://a.example/", v2Option, ""), `"type"`,
			`"Resource":"https://b.example/","type"`, 1),
		"negative price": listed("https://a.example/", strings.Replace(v2Option, `"1000"`, `"-1000"`, 1), ""),
		"number":         listed("https://a.example/", strings.Replace(v2Option, `"1000"`, `1e3`, 1), ""),
		"no options":     listed("https://a.example/", ``, ""),
		"33 options":     listed("https://a.example/", strings.Repeat(v2Option+",", 32)+v2Option, ""),
		"deep": listed("https://a.example/", v2Option, `,"x":`+
			strings.Repeat("[", 80)+strings.Repeat("]", 80)),
		"huge": listed("https://a.example/", v2Option, `,"description":"`+
			strings.Repeat("a", 300<<10)+`"`),
		"no object": `7`,
		"null":      `null`,
		"bidi payTo": listed("https://a.example/", strings.Replace(v2Option, `"0x1"`, "\"0x\u202e1\"", 1),
			""),
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{HTTP: http.DefaultClient,
				List: []Facilitator{bazaar(t, "a", answers(bad, good))}})
			found := c.Discover(t.Context(), "", "")
			require.NoError(t, found[0].Err, name)
			require.Equal(t, []string{"https://good.example/x"}, urls(found[0]), name)
		})
	}
}

// One that is dead, lies about its pages or floods takes nothing from the others,
// and ends.
func TestDiscoveryIsBounded(t *testing.T) {
	var pages atomic.Int32
	endless := func(w http.ResponseWriter, r *http.Request) {
		n := pages.Add(1)
		fmt.Fprintf(w, `{"items":[%s],"pagination":{"total":99999999999,"cursor":"c%d"}}`,
			listed("https://endless.example/"+strconv.Itoa(int(n)), v2Option, ""), n)
	}
	many := make([]string, 10_000)
	for i := range many {
		many[i] = `{"resource":"https://m.example/` + strconv.Itoa(i) + `"}`
	}
	many[0] = listed("https://first.example/", v2Option, "")
	c := New(Options{HTTP: http.DefaultClient, List: []Facilitator{
		{Name: "dead", URL: "http://127.0.0.1:1"},
		bazaar(t, "endless", endless),
		bazaar(t, "many", answers(many...)),
		bazaar(t, "long", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, maxReply+1))
		}),
		bazaar(t, "html", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }),
		bazaar(t, "moved", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
		}),
		bazaar(t, "none", http.NotFound),
		bazaar(t, "good", answers(listed("https://good.example/x", v2Option, ""))),
	}})
	found := c.Discover(t.Context(), "", "")
	for i, want := range []int{-1, listPages, listPages, -1, -1, -1, -1, 1} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			if want < 0 {
				require.Error(t, found[i].Err, found[i].Name)
				return
			}
			require.NoError(t, found[i].Err, found[i].Name)
			require.Len(t, found[i].Listings, want, found[i].Name)
		})
	}
	require.EqualValues(t, listPages, pages.Load())
	require.ErrorIs(t, found[6].Err, errNoDiscovery)
}

// Search where it is offered; where it is not, the list, in which the words are looked for. Pages
// by offset; the owner's networks.
func TestDiscoveryAsks(t *testing.T) {
	var asked []string
	search := true
	f := bazaar(t, "a", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?"+r.URL.RawQuery)
		if strings.HasSuffix(r.URL.Path, "search") {
			if !search {
				http.NotFound(w, r)
				return
			}
			fmt.Fprintf(w, `{"x402Version":2,"resources":[%s],"pagination":null}`,
				listed("https://found.example/", v2Option, ""))
			return
		}
		offset := r.URL.Query().Get("offset")
		fmt.Fprintf(w, `{"items":[%s,%s],"pagination":{"limit":100,"offset":0,"total":150}}`,
			listed("https://tides.example/"+offset, v2Option, `,"description":"Tides & more"`),
			listed("https://air.example/", v2Option, ""))
	})
	c := New(Options{HTTP: http.DefaultClient, List: []Facilitator{f}})
	require.Equal(t, []string{"https://found.example/"},
		urls(c.Discover(t.Context(), "tides more", sepolia)[0]))
	search = false
	require.Equal(t, []string{"https://tides.example/", "https://tides.example/100"},
		urls(c.Discover(t.Context(), "MORE tides", "")[0]))
	require.Equal(t, []string{
		"/v1/discovery/search?limit=100&network=eip155%3A84532&query=tides+more",
		"/v1/discovery/search?limit=100&query=MORE+tides", "/v1/discovery/resources?limit=100",
		"/v1/discovery/resources?limit=100&offset=100",
	}, asked)

	f.Networks = []string{mainnets}
	c = New(Options{HTTP: http.DefaultClient, List: []Facilitator{f}})
	require.Empty(t, c.Discover(t.Context(), "", sepolia), "the owner did not give it the network")
	require.Empty(t, c.Discover(t.Context(), "", "")[0].Listings, "nor for that")
	require.Len(t, asked, 6)
}

// Asked once in five minutes; for an hour an old answer stands in, with its age.
func TestDiscoveryCaches(t *testing.T) {
	now, down, asked := time.Unix(1_800_000_000, 0), false, 0
	began := now
	f := bazaar(t, "a", func(w http.ResponseWriter, r *http.Request) {
		asked++
		if down {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		answers(listed("https://good.example/x", v2Option, ""))(w, r)
	})
	c := New(Options{HTTP: http.DefaultClient, List: []Facilitator{f}, Now: func() time.Time { return now }})
	ask := func() Catalogue { return c.Discover(t.Context(), "", "")[0] }
	require.Equal(t, began, ask().At)
	now = now.Add(listingsFresh - 1)
	require.Equal(t, began, ask().At)
	require.Equal(t, 1, asked)
	down, now = true, now.Add(1)
	old := ask()
	require.Equal(t, 2, asked)
	require.Equal(t, []any{began, 1, nil}, []any{old.At, len(old.Listings), old.Err})
	down = false
	require.Equal(t, now, ask().At)
	down, now = true, now.Add(listingsStale)
	require.ErrorContains(t, ask().Err, "status 502")

	down = false
	for i := range 3 * listMemory {
		c.Discover(t.Context(), strconv.Itoa(i), "")
	}
	require.Len(t, c.list[0].listings.known, listMemory)
}

func FuzzReadListing(f *testing.F) {
	f.Add(listed("https://new.example/x", v2Option, `,"extensions":{"bazaar":{"info":{"input":{}}}}`))
	f.Add(listed("https://old.example/x", v1Option, ``))
	f.Fuzz(func(t *testing.T, text string) {
		l, ok := ReadListing(json.RawMessage(text))
		require.Equal(t, ok, len(l.Accepts) > 0 && l.URL != "")
	})
}

// What V2 says of a call is shown with the schema of its parameters, and with an example of its answer.
func TestASellersSchemaAndExample(t *testing.T) {
	declared := func(part, properties string) *wire.Challenge {
		return &wire.Challenge{Extensions: map[string]json.RawMessage{"bazaar": []byte(
			`{"info":{"input":{"type":"http","method":"GET"},"output":{"type":"json","example":{"sky":"clear"}}},` +
				`"schema":{"properties":{"input":{"properties":{"` + part + `":` + properties + `}}}}}`)}}
	}
	const city = `{"properties":{"city":{"type":"string"}}}`
	for _, part := range []string{"queryParams", "body"} {
		l := Asked(declared(part, city))
		require.JSONEq(t, `{"type":"http","method":"GET","schema":`+city+`}`, string(l.InputSchema))
		require.JSONEq(t, `{"sky":"clear"}`, string(l.Example))
	}
	for _, nothing := range []string{`{}`, `[]`, `{"properties":{}}`, `{"properties":7}`} {
		require.JSONEq(t, `{"type":"http","method":"GET"}`, string(Asked(declared("body", nothing)).InputSchema))
	}
}
