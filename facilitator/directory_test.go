package facilitator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402/wire"
)

// The sample has made-up services in the form that tempoxyz/mpp's schemas/discovery.schema.json (2f8740e5)
// says, and was valid by that.
const sample = "testdata/mpp-services.json"

// mpp is a directory over real HTTP.
func mpp(t *testing.T, answer http.HandlerFunc) string {
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL + "/api/services"
}

func TestDirectoryReads(t *testing.T) {
	text := must.Get(os.ReadFile(sample))(t)
	var asked []string
	at := mpp(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		_, _ = w.Write(text)
	})
	file := filepath.Join(t.TempDir(), "services.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	c := New(Options{HTTP: http.DefaultClient, Directories: []string{at, "file://" + file}})
	found := c.Discover(t.Context(), "", "eip155:8453")
	require.Len(t, found, 2)
	require.Equal(t, []any{strings.Split(at, "/")[2], "services.json"}, []any{found[0].Name, found[1].Name})
	require.Equal(t, found[0].Listings, found[1].Listings)
	list := found[0].Listings
	require.Equal(t, []string{"https://api.tides.example/v1/tides/:harbour",
		"https://api.tides.example/v1/forecast",
		"https://maps.example/mpp/tile", "https://chat.example/v1/chat", "https://prints.example/letters",
		"https://news.example/search", "https://loud.example/"}, urls(found[0]))
	forecast, search := list[1], list[5]
	require.Equal(t, []any{"POST", "Tides: A forecast", "http", list[0].Service},
		[]any{forecast.Method, forecast.Description, forecast.Type, forecast.Service})
	require.JSONEq(t, `{"method":"POST","docs":"https://tides.example/docs?topic=POST%20%2Fv1%2Fforecast"}`,
		string(forecast.InputSchema))
	require.Equal(t, []wire.Offer{{Method: "tempo", Intent: "charge", Amount: "2000",
		Currency: "0x20C000000000000000000000b9537d11c60E8b50"}}, forecast.Offers)
	require.Equal(t, "News: Search articles ($0.01 – $0.03 each)", search.Description)
	require.Equal(t, []wire.Offer{{Method: "tempo", Intent: "charge",
		Currency: "0x20c000000000000000000000b9537d11c60e8b50"}, {Method: "stripe", Intent: "charge"}},
		search.Offers)

	require.Equal(t, []string{"https://api.tides.example/v1/forecast"},
		urls(c.Discover(t.Context(), "OCEAN forecast", "")[0]), "in the tags, and the endpoint")
	require.Len(t, c.Discover(t.Context(), "", "")[0].Listings, len(list), "the search took nothing away")
	require.Equal(t, []string{"GET /api/services"}, asked, "once in five minutes, whatever is searched")
}

// What is no service, or no endpoint, is left out. The others of the same list stay.
func TestDirectoryLeavesOut(t *testing.T) {
	const payment = `"payment":{"intent":"charge","method":"tempo","amount":"1","currency":"0x1"}`
	service := func(url, endpoints string) string {
		return fmt.Sprintf(`{"id":"a","name":"A","serviceUrl":%q,"endpoints":[%s],"methods":{}}`, url, endpoints)
	}
	endpoint := func(path, more string) string { return fmt.Sprintf(`{"method":"GET","path":%q,%s}`, path, more) }
	good := endpoint("/good", payment)
	read := func(t *testing.T, services string) []string {
		list, err := readDirectory([]byte(`{"version":1,"services":[` + services + `]}`))
		require.NoError(t, err)
		return urls(Catalogue{Listings: list})
	}
	other := service("https://b.example", good)
	for name, bad := range map[string]string{
		"script":   service("javascript:alert(1)", good),
		"file":     service("file:///etc", good),
		"query":    service("https://a.example/?x=", good),
		"fragment": service("https://a.example/#", good),
		"hidden":   service("https://a\u202e.example", good),
		"long URL": service("https://a.example/"+strings.Repeat("a", maxListedURL), good),
		"a key twice": strings.Replace(service("https://a.example", good), `"id"`,
			`"serviceUrl":"https://c.example","id"`, 1),
		"case twins": strings.Replace(service("https://a.example", good), `"id"`,
			`"serviceURL":"https://c.example","id"`, 1),
		"endpoints":   strings.Replace(service("https://a.example", ""), `[]`, `{}`, 1),
		"maintenance": strings.Replace(service("https://a.example", good), `"id"`, `"status":"maintenance","id"`, 1),
		"deprecated":  strings.Replace(service("https://a.example", good), `"id"`, `"status":"deprecated","id"`, 1),
		"deep": strings.Replace(service("https://a.example", good), `{}`,
			strings.Repeat("[", 80)+strings.Repeat("]", 80), 1),
		"huge":      strings.Replace(service("https://a.example", good), `"A"`, `"`+strings.Repeat("a", 300<<10)+`"`, 1),
		"no object": `7`, "null": `null`, "empty": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, []string{"https://b.example/good"}, read(t, bad+","+other))
		})
	}
	for name, bad := range map[string]string{
		"no path":    `{"method":"GET",` + payment + `}`,
		"other host": endpoint(".evil.example/x", payment), "user": endpoint("@evil.example/x", payment),
		"blank": endpoint("/a b", payment), "backslash": endpoint(`/\\evil.example`, payment), "fragment": endpoint("/a#b", payment),
		"method":       strings.Replace(endpoint("/a", payment), "GET", "tools/call", 1),
		"small method": strings.Replace(endpoint("/a", payment), "GET", "get", 1),
		"free":         endpoint("/a", `"payment":null`), "no payment": endpoint("/a", `"docs":""`),
		"number":      endpoint("/a", strings.Replace(payment, `"1"`, `1`, 1)),
		"letter case": endpoint("/a", strings.Replace(payment, `amount`, `Amount`, 1)),
		"list":        endpoint("/a", `"payment":[]`), "no object": `7`,
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, []string{"https://a.example/good"},
				read(t, service("https://a.example", bad+","+good)))
		})
	}
	dynamic := endpoint("/d", strings.Replace(payment, `"amount"`, `"dynamic":true,"amount"`, 1))
	priced := readService(json.RawMessage(service("https://a.example", dynamic)), 1)
	require.Empty(t, priced[0].Offers[0].Amount, "the least of a price is no price")
	many := strings.Repeat(good+",", maxEndpoints) + good
	require.Len(t, read(t, service("https://a.example", many)), maxEndpoints)
	require.Len(t, read(t, strings.Repeat(other+",", maxServices)+other), maxServices)
}

// A directory that cannot be read says why, and takes nothing from the others.
func TestDirectoryThatIsNone(t *testing.T) {
	answering := func(text string) string {
		return mpp(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	}
	followed := false
	target := mpp(t, func(w http.ResponseWriter, _ *http.Request) { followed = true })
	whole := `{"version":1,"services":[]`
	folder := t.TempDir()
	written := filepath.Join(folder, "w")
	require.NoError(t, os.WriteFile(written, []byte(whole+"}"), 0o600))
	require.NoError(t, os.Chmod(written, 0o666))
	long := filepath.Join(folder, "long")
	require.NoError(t, os.WriteFile(long, []byte(whole+strings.Repeat(" ", maxDirectory)+"}"), 0o600))
	for _, row := range []struct{ at, says string }{
		{answering("<html>"), "no list of services"}, {answering("[]"), "no list of services"},
		{answering(`{"version":2,"services":[]}`), "version 1"}, {answering(`{"version":1}`), "no list"},
		{answering(`{"version":"1","services":[]}`), "no list"}, {answering(`{"version":1,"services":{}}`), "no list"},
		{answering(whole + strings.Repeat(" ", maxDirectory) + "}"), "longer than"},
		{mpp(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target, http.StatusFound)
		}), "status 302"},
		{mpp(t, http.NotFound), "status 404"}, {"http://127.0.0.1:1", "refuses connections"},
		{"file://" + filepath.Join(folder, "none"), "cannot be read"}, {"file://" + folder, "cannot be read"},
		{"file://" + written, "cannot be read"}, {"file://" + long, "cannot be read"},
	} {
		t.Run(row.says, func(t *testing.T) {
			good := answering(whole + strings.Repeat(" ", 2*maxReply) + "}")
			c := New(Options{HTTP: http.DefaultClient, Directories: []string{row.at, good}})
			found := c.Discover(t.Context(), "", "")
			require.ErrorContains(t, found[0].Err, row.says)
			require.NoError(t, found[1].Err)
		})
	}
	require.False(t, followed)
}

func FuzzReadDirectory(f *testing.F) {
	text, err := os.ReadFile(sample)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		list, err := readDirectory([]byte(text))
		for _, l := range list {
			require.NoError(t, err)
			require.True(t, isWeb(l.URL) && isListable(l.URL) && len(l.Offers) > 0 &&
				json.Valid(l.InputSchema))
		}
	})
}
