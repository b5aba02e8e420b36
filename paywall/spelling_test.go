package paywall

import (
	"context"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"x402-wallet/internal/sandbox"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readings are how servers find out what a URI names: as it is; without escapes, bad ones left as they are;
// and as the WHATWG URL standard has it, which takes an empty segment for one.
var readings = map[string]func(uri string) string{
	"as it is": func(uri string) string { return path.Clean("/" + strings.TrimPrefix(uri, "lib://")) },
	"without escapes": func(uri string) string {
		return path.Clean("/" + unescapedAll(strings.TrimPrefix(uri, "lib://")))
	},
	"as a URL": func(uri string) string {
		uri, _, _ = strings.Cut(uri, "#")
		uri, _, _ = strings.Cut(uri, "?")
		var kept []string
		for segment := range strings.SplitSeq(strings.TrimPrefix(uri, "lib://"), "/") {
			switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
			case ".":
			case "..":
				kept = kept[:max(0, len(kept)-1)]
			default:
				kept = append(kept, segment)
			}
		}
		return path.Clean("/" + unescapedAll(strings.Join(kept, "/")))
	},
	"as a file": func(uri string) string {
		at, err := url.Parse(uri)
		if err == nil && at.Scheme == "file" && at.Path == "/bill" {
			return "bill"
		}
		return ""
	},
	"with a host": func(uri string) string {
		at, err := url.Parse(uri)
		if err != nil {
			return ""
		}
		return "/" + strings.ToLower(at.Host) + path.Clean("/"+at.Path)
	},
	"by its query": func(uri string) string {
		at, err := url.Parse(uri)
		if err == nil && at.Host == "card" && at.Query().Get("id") == "1" {
			return "card 1"
		}
		return ""
	},
}

func unescapedAll(text string) string {
	return escape().ReplaceAllStringFunc(text, func(one string) string {
		plain, err := url.PathUnescape(one)
		if err != nil {
			return one
		}
		return plain
	})
}

// However a server reads a URI, what costs is not given away by another spelling of it.
func TestSpellingsAreNotFree(t *testing.T) {
	for how, read := range readings {
		l := newLab(t, func(l *lab, o *Options) {
			sellsWares(l, o)
			price := o.Tools[0].Accepts
			o.Tools = append(o.Tools, Tool{Kind: OfResource, Name: "lib://card?id=1", Accepts: price},
				Tool{Kind: OfResource, Name: "file:///bill", Accepts: price})
		})
		server := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, nil)
		server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "{+any}", Name: "any"},
			func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				text, name := "free", read(r.Params.URI)
				isSold := slices.Contains([]string{"/book", "card 1", "bill"}, name)
				if isSold || strings.HasPrefix(name, "/shelf/") {
					text = product
				}
				return &mcp.ReadResourceResult{
					Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: text}}}, nil
			})
		l.paywall.Protect(server)
		client, _ := connect(t, server, nil)
		for _, uri := range []string{"lib://%62ook/%zz/..", "lib://x%23/../book", "lib://x%23/%2e%2e/book#y",
			"lib://x%3F/../book", "lib://x?/../book", "lib://x#/../book", "lib://shelf/%2e%2e/../1",
			"lib://shelf/a%2f..%2f../../1", "lib://shelf/%20../../1", "lib://shelf/ ../../1",
			`lib://shelf/a\..\../../1`, "lib://shelf//../1", "lib://%73helf/1%", "lib://shelf/%zz%2f..%2f1",
			"lib://shelf/../1", "lib://Shelf/../x/../1", "lib://card?id=1&x=2", "lib://card?x=2&id=1",
			"lib://card?id=%31", "file://localhost/bill", "file://LOCALHOST/bill", "file:/bill"} {
			g := readBy(t, client, uri, nil)
			assert.NotContains(t, string(g.Result), product, "%s: %s", how, uri)
		}
		for _, uri := range []string{"lib://x/a%2Fb", "lib://x?id=1", "lib://a%20b/c..d", "lib://card?id=2"} {
			require.Contains(t, string(readBy(t, client, uri, nil).Result), `"free"`, "%s: %s", how, uri)
		}
	}
}

// What is dear is not sold at the price of what is cheap, where a URI can mean both.
func TestDearIsNotSoldAsCheap(t *testing.T) {
	l := newLab(t, func(l *lab, o *Options) {
		sellsWares(l, o)
		dear := []Option{{Network: sandbox.EVM, PayTo: l.PayToEVM, Price: "1"}}
		o.Tools = append(o.Tools, Tool{Kind: OfResource, Name: "lib://dear/*", Accepts: dear})
	})
	client := l.library(t)
	g := readBy(t, client, "lib://dear/../book", nil)
	require.EqualValues(t, jsonrpc.CodeInvalidParams, g.Code, "%s", g.Data)
	readBy(t, client, "lib://x/../book", nil).challenge()
}

// Nor is it given away by a tool that names it as its buyer does.
func TestUnclearSpellingsLeak(t *testing.T) {
	l := newLab(t, sellsWares)
	for uri, is := range map[string]bool{"lib://shelf//../1": true, "lib://x%23/../book": true,
		"lib://x/a%2Fb": false, "lib://x/..": false} {
		given := &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri}}}}
		require.Equal(t, is, l.paywall.leaked(given, nil) != "", uri)
	}
}
