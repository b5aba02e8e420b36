package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall"
)

// The reference's validator takes what we declare, the reference facilitator lists what was paid for by it,
// and the reference's client reads our own list.
func TestReferenceFindsOurPaywall(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	s := newWaysShop(t, lab, nil,
		paywall.Tool{Name: "report", Description: "Tides", Accepts: at(lab, "0.001", nil),
			Discovery: &paywall.Discovery{URL: "https://shop.example/report", Method: http.MethodGet,
				Input: raw(`{"city":"Lisbon"}`), Output: raw(`{"tide":"high"}`),
				InputSchema: raw(`{"properties":{"city":{"type":"string"}},"required":["city"]}`)}},
		paywall.Tool{Name: "post", Accepts: at(lab, "0.002", nil), Discovery: &paywall.Discovery{
			URL: "https://shop.example/post", Method: http.MethodPost, Input: raw(`{"q":"x"}`)}},
		paywall.Tool{Name: "tool", Description: "A tool", Accepts: at(lab, "0.003", nil),
			Discovery: &paywall.Discovery{URL: "https://shop.example/mcp", Output: raw(`{"a":1}`),
				Input: raw(`{"q":"x"}`), InputSchema: raw(`{"type":"object"}`)}})
	got := s.buy(t, lab, map[string]any{"path": "/report?city=Faro", "scheme": "exact"})
	require.Equal(t, 200, got[0].Status, "%+v", got)

	declared := map[string]json.RawMessage{}
	for _, c := range facilitator.New(facilitator.Options{List: []facilitator.Facilitator{
		{Name: "ours", URL: s.url}}}).Discover(t.Context(), "", "") {
		require.NoError(t, c.Err)
		require.Len(t, c.Listings, 3)
		require.JSONEq(t, `{"tide":"high"}`, string(c.Listings[0].Example))
		require.Contains(t, string(c.Listings[0].InputSchema), `"required":["city"]`)
	}
	response := must.Get(http.Get(s.url + "/discovery/resources"))(t)
	page := must.JSON[struct {
		Items []struct {
			Resource   string
			Extensions map[string]json.RawMessage
		}
	}]([]byte(bodyOf(t, response)))(t)
	for _, item := range page.Items {
		declared[item.Resource] = item.Extensions["bazaar"]
	}
	require.Len(t, declared, 3)

	options := map[string]any{"declared": declared, "shop": s.url,
		"facilitator": lab.Facilitators[0]}
	var found struct {
		Judged map[string]struct {
			Valid  bool
			Errors []string
			Spec   struct {
				Valid  bool
				Errors []string
			}
			Info struct {
				Input struct{ Type, Method, ToolName string }
			}
		}
		Own []struct {
			X402Version int
			Items       []struct{ Resource, Type string }
			Pagination  struct{ Total int }
		}
		Facilitators []struct {
			Resource      string
			DiscoveryInfo struct{ Input struct{ Method string } }
		}
	}
	testlab.StartParty(t, "parties/bazaar.mjs", options, &found)
	require.Len(t, found.Judged, 3)
	for name, said := range found.Judged {
		require.True(t, said.Valid, "%s: %v", name, said.Errors)
		require.True(t, said.Spec.Valid, "%s: %v", name, said.Spec.Errors)
	}
	require.Equal(t, "tool", found.Judged["https://shop.example/mcp"].Info.Input.ToolName)
	require.Len(t, found.Own, 3)
	for i, path := range []string{"report", "post", "mcp"} {
		page := found.Own[i]
		require.Equal(t, []any{2, 3, "https://shop.example/" + path}, []any{page.X402Version,
			page.Pagination.Total, page.Items[0].Resource})
	}
	listed := map[string]string{}
	for _, item := range found.Facilitators {
		listed[item.Resource] = item.DiscoveryInfo.Input.Method
	}
	require.Equal(t, "GET", listed["https://shop.example/report"], "%v", listed)
}

// The command of a paywall declares what paywall.toml says, with the schema of the server behind it, and
// lists it where the file says so.
func TestPaywallListsWhatCanBeFound(t *testing.T) {
	s := newShop(t, "listen = \"127.0.0.1:0\"\norigin = \"https://shop.example\"\ndiscovery_list = true\n")
	text := must.Get(os.ReadFile(s.file))(t)
	writePrivate(t, s.file, string(text)+"discoverable = true\nexample_input = '{\"q\":\"Lisbon\"}'\n")
	base := strings.TrimSuffix(startPaywall(t, s.home, s.bin, s.file).url, "/mcp")
	list := facilitator.New(facilitator.Options{List: []facilitator.Facilitator{{Name: "shop", URL: base}}})
	found := list.Discover(t.Context(), "umbrella", "")[0]
	require.NoError(t, found.Err)
	require.Empty(t, found.Listings, "no such words")
	found = list.Discover(t.Context(), "search", "")[0]
	require.NoError(t, found.Err)
	require.Len(t, found.Listings, 1)
	l := found.Listings[0]
	require.Equal(t, []string{"https://shop.example/mcp", "mcp", "search", `{"type":"object"}`}, []string{l.URL,
		l.Type, l.Tool, string(l.InputSchema)})
	require.Equal(t, s.home.EVM, l.Accepts[0].PayTo)
}
