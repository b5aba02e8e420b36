package tools

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

const pixel = `iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==`

// servedBy is a result that was paid for and is kept.
func servedBy(body string) pay.Result {
	r := pay.Result{Status: pay.StatusPaid, PaymentID: "pay_1"}
	r.Whole.Type, r.Whole.Body, r.Whole.Status = seller.ContentType, []byte(body), http.StatusOK
	return r
}

// shapes writes what a client gets: types of blocks and texts, and "structured".
func shapes(r *mcp.CallToolResult) (all []string) {
	for _, block := range r.Content {
		switch b := block.(type) {
		case *mcp.TextContent:
			all = append(all, b.Text)
		case *mcp.EmbeddedResource:
			all = append(all, fmt.Sprintf("<resource %s %s %s%s>", b.Resource.URI, b.Resource.MIMEType,
				b.Resource.Text, b.Resource.Blob))
		default:
			all = append(all, strings.ToLower(fmt.Sprintf("<%T>", b)))
		}
	}
	if r.StructuredContent != nil {
		all = append(all, "structured "+string(r.StructuredContent.(json.RawMessage)))
	}
	return all
}

// A block in a form that some client drops is told in a text; the others stay.
func TestServerResults(t *testing.T) {
	const image, sound = "<*mcp.imagecontent>", "<*mcp.audiocontent>"
	const kept = `; it is bought and kept: x402_history with paymentId "pay_1" reads it`
	for given, want := range map[string][]string{
		`{"content":[{"type":"text","text":"hi"}]}`:           {"hi"},
		`{"content":[{"type":"text","text":""}]}`:             {""},
		`{"structuredContent":{"a":1}}`:                       {`{"a":1}`, `structured {"a":1}`},
		`{"content":null,"structuredContent":{"a":"\u202e"}}`: {`{"a":"\u202e"}`, `structured {"a":"\u202e"}`},
		`{"content":"hello"}`:                                 {"hello"},
		`{"content":{"type":"text","text":"alone"}}`:          {"alone"},
		`{"content":["a",5,null,{"type":"text","text":"b"}]}`: {"a", "5", "null", "b"},
		`{"content":[{"type":"text"}]}`:                       {`{"type":"text"}`},
		`{"content":[{"type":"text","text":5}]}`:              {`{"type":"text","text":5}`},
		`{"content":[{"type":"text","text":null}]}`:           {`{"type":"text","text":null}`},
		`{"content":[{"type":"image","data":"AAAA"}]}`:        {`{"type":"image","data":"AAAA"}`},
		`{"content":[{"type":"image","data":"data:image/png;base64,AAAA","mimeType":"image/png"}]}`: {
			`{"type":"image","data":"data:image/png;base64,AAAA","mimeType":"image/png"}`},
		`{"content":[{"type":"image","data":"","mimeType":"image/png"}]}`:     {`{"type":"image","data":"","mimeType":"image/png"}`},
		`{"content":[{"type":"image","data":"AAAA","mimeType":"audio/wav"}]}`: {`{"type":"image","data":"AAAA","mimeType":"audio/wav"}`},
		`{"content":[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png","annotations":{"audience":["system"]}}]}`: {
			"the server's answer has no text", image},
		`{"content":[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}],"structuredContent":{"a":1}}`: {`{"a":1}`, image,
			`structured {"a":1}`},
		`{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}`: {
			"image/png, 3 bytes: not a picture that models take" + kept},
		`{"content":[{"type":"image","data":"AAAA","mimeType":"image/tiff"},{"type":"text","text":"x"}]}`: {
			"image/tiff, 3 bytes: not a picture that models take" + kept, "x"},
		`{"content":[{"type":"text","text":"listen"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"}]}`: {"listen", sound},
		`{"content":[{"type":"resource","resource":{"text":"abc"}}]}`:                                         {`{"type":"resource","resource":{"text":"abc"}}`},
		`{"content":[{"type":"resource","resource":{"uri":"x://y"}}]}`:                                        {`{"type":"resource","resource":{"uri":"x://y"}}`},
		`{"content":[{"type":"resource","resource":{"uri":"no url","text":"abc"}}]}`:                          {`{"type":"resource","resource":{"uri":"no url","text":"abc"}}`},
		`{"content":[{"type":"resource"}]}`:                                                                   {`{"type":"resource"}`},
		`{"content":[{"type":"text","text":"a"},{"type":"resource","resource":{"uri":"x://y","text":"abc","blob":5,"mimeType":7}}]}`: {"a",
			"<resource x://y  abc>"},
		`{"content":[{"type":"text","text":"a"},{"type":"resource","resource":{"uri":"x://y","blob":"aWNvbg==","mimeType":"a/b"}}]}`: {"a",
			"<resource x://y a/b icon>"},
		`{"content":[{"type":"resource_link","uri":"https://cdn.example/x.png"}]}`:                            {"link to https://cdn.example/x.png"},
		`{"content":[{"type":"resource_link","uri":"ui://v","name":"v","mimeType":"text/html","size":12.5}]}`: {"link to ui://v; name: v; mimeType: text/html"},
		`{"content":[{"type":"resource_link","name":"v"}]}`:                                                   {`{"type":"resource_link","name":"v"}`},
		`{"content":[{"type":"text","text":"keep me"},{"type":"video","url":"https://x"}]}`:                   {"keep me", `{"type":"video","url":"https://x"}`},
		`{"content":[{"type":["text"],"text":"x"}]}`:                                                          {`{"type":["text"],"text":"x"}`},
		`{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1,2]}`:                                {"[1]", "[1,2]"},
		`{"content":[{"type":"text","text":"[1, 2]"}],"structuredContent":[1,2]}`:                             {"[1, 2]"},
		`{"content":[{"type":"text","text":"x"}],"structuredContent":"y"}`:                                    {"x", `"y"`},
		`{"content":[{"type":"text","text":"x"}],"structuredContent":null}`:                                   {"x"},
		`{"content":[{"type":"text","text":"hi","annotations":{"priority":5},"_meta":null}]}`:                 {"hi"},
		`{"content":[],"structuredContent":{"constructor":"Acme Racing"}}`:                                    {`{"constructor":"Acme Racing"}`},
		`{"content":[],"structuredContent":{"constructor":null}}`:                                             {`{"constructor":null}`},
		`{"content":[]}`: {"the server's answer has no text"},
		`{}`:             {"the server's answer has no text"},
		`{"content":[{"type":"text","text":"caf` + "\xe9" + `"}],"structuredContent":{"a":"` + "\xe9" + `"}}`: {"caf\ufffd",
			`structured {"a":"` + "\ufffd" + `"}`},
	} {
		r := mountedResult(servedBy(given), "2025-11-25")
		require.Equal(t, want, shapes(r), given)
		require.False(t, r.IsError, given)
		for _, block := range r.Content {
			require.NotContains(t, string(must.Get(json.Marshal(block))(t)), "annotations")
		}
	}
	for given, isError := range map[string]bool{`true`: true, `false`: false, `"false"`: false, `null`: false, `1`: false} {
		require.Equal(t, isError, mountedResult(servedBy(`{"isError":`+given+`,"content":[]}`), "2025-11-25").IsError, given)
	}
	meta := mountedResult(servedBy(`{"content":[],"_meta":{"a/b":1,"progressToken":{},"io.modelcontextprotocol/x":1,"a/\u200b":1}}`), "").Meta
	require.Len(t, meta, 2)
	require.Contains(t, meta, "a/b")
	require.Len(t, mountedResult(servedBy(`{"content":[],"_meta":[]}`), "").Meta, 1)
}

// A client gets no form that is newer than its protocol.
func TestServerResults_Versions(t *testing.T) {
	const all = `{"content":[{"type":"text","text":"see"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"}],"structuredContent":{"a":1}}`
	kept := `audio/wav, 3 bytes: this client's protocol has no sound; it is bought and kept: x402_history with paymentId "pay_1" reads it`
	for version, want := range map[string][]string{
		"2024-10-07": {"see", kept, `{"a":1}`},
		"2024-11-05": {"see", kept, `{"a":1}`},
		"2025-03-26": {"see", "<*mcp.audiocontent>", `{"a":1}`},
		"2025-06-18": {"see", "<*mcp.audiocontent>", `structured {"a":1}`},
		"2026-07-28": {"see", "<*mcp.audiocontent>", `structured {"a":1}`},
	} {
		require.Equal(t, want, shapes(mountedResult(servedBy(all), version)), version)
	}
	said := `{"content":[{"type":"text","text":"{ \"a\": 1 }"}],"structuredContent":{"a":1}}`
	require.Equal(t, []string{`{ "a": 1 }`}, shapes(mountedResult(servedBy(said), "2024-11-05")), "it is said")
}

// A picture, a sound and a file of a mebibyte are passed on; of a larger one the way to it is told.
func TestServerResults_Large(t *testing.T) {
	for kind, block := range map[string]string{
		"image/png": `{"type":"image","mimeType":"image/png","data":"%s"}`,
		"audio/wav": `{"type":"audio","mimeType":"audio/wav","data":"%s"}`,
		"a/b":       `{"type":"resource","resource":{"uri":"x://y","mimeType":"a/b","blob":"%s"}}`,
	} {
		for _, size := range []int{maxMedia, maxMedia + 1} {
			data := base64.StdEncoding.EncodeToString(append([]byte(icon), make([]byte, size-len(icon))...))
			paid := servedBy(`{"content":[` + fmt.Sprintf(block, data) + `]}`)
			paid.ContentURI = "x402://payments/pay_1/content"
			r := mountedResult(paid, "2025-11-25")
			require.False(t, r.IsError)
			last, isText := r.Content[len(r.Content)-1].(*mcp.TextContent)
			require.Equal(t, size > maxMedia, isText, kind)
			if isText {
				require.Equal(t, fmt.Sprintf("%s, %d bytes, is too large to be passed on; it is "+
					"bought and kept: "+
					`x402_history with paymentId "pay_1" and an offset reads it, as does %s`, kind, size, paid.ContentURI), last.Text)
			}
		}
	}
	free := servedBy(`{"content":[{"type":"image","mimeType":"image/png","data":"` +
		strings.Repeat("AAAA", 1<<19) + `"}]}`)
	free.Status, free.PaymentID = pay.StatusFree, ""
	require.NotContains(t, textOf(mountedResult(free, "")), "kept")
}

// A picture that x402_pay or x402_call_tool bought is shown where its first bytes are those of its type.
func TestPictures(t *testing.T) {
	png := must.Get(base64.StdEncoding.DecodeString(pixel))(t)
	jpeg, gif, webp := "\xff\xd8\xff\xe0", "GIF89a", "RIFF\x00\x00\x00\x00WEBPVP8 "
	of := func(kind, body string) pay.Result {
		r := servedBy(body)
		r.Whole.Type = kind
		return r
	}
	inResult := func(kind, data string) pay.Result {
		return servedBy(fmt.Sprintf(`{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":%q,"data":%q}]}`, kind, data))
	}
	cut, refused := of("image/png", string(png)), of("image/png", string(png))
	cut.Whole.Truncated, refused.Whole.Status = true, http.StatusBadGateway
	full := string(png) + strings.Repeat("x", maxMedia-len(png))
	for why, c := range map[string]struct {
		r    pay.Result
		kind string // "": none is shown
	}{
		"png":                 {of("image/png", string(png)), "image/png"},
		"jpeg":                {of("image/jpeg", jpeg), "image/jpeg"},
		"gif":                 {of("image/gif", gif), "image/gif"},
		"webp, and more said": {of("Image/WebP; q=1", webp), "image/webp"},
		"another's bytes":     {of("image/png", jpeg), ""},
		"a page":              {of("image/png", "<html>"), ""},
		"drawn in XML":        {of("image/svg+xml", "<svg/>"), ""},
		"said to be text":     {of("text/plain", string(png)), ""},
		"said to be nothing":  {of("", string(png)), ""},
		"empty":               {of("image/png", ""), ""},
		"largest":             {of("image/png", full), "image/png"},
		"too large":           {of("image/png", full+"x"), ""},
		"cut":                 {cut, ""},
		"refused":             {refused, ""},
		"a tool's":            {inResult("image/png", pixel), "image/png"},
		"a tool's page":       {inResult("image/png", "AAAA"), ""},
		"a tool's, no base64": {inResult("image/png", "!"), ""},
		"no tool's result":    {servedBy("no JSON"), ""},
	} {
		t.Run(why, func(t *testing.T) {
			shown := pictures(c.r)
			if c.kind == "" {
				require.Empty(t, shown)
				return
			}
			require.Len(t, shown, 1)
			require.Equal(t, c.kind, shown[0].(*mcp.ImageContent).MIMEType)
		})
	}
}

// A bought picture stands behind the answer's text, and nobody is asked to save it; pay_many shows none.
func TestABoughtPictureIsShown(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	png := string(must.Get(base64.StdEncoding.DecodeString(pixel))(t))
	picture := sandbox.Product{Price: "0.001", MimeType: "image/png", Content: png}
	require.NoError(t, w.Sell("/picture", picture))
	c := session(t, w.server(), "2025-11-25", nil)
	call := func(name string, arguments map[string]any) *mcp.CallToolResult {
		return must.Get(c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments}))(t)
	}
	r := call(payName, map[string]any{"url": w.SellerURL + "/picture"})
	require.Len(t, r.Content, 2)
	require.Equal(t, png, string(r.Content[1].(*mcp.ImageContent).Data))
	said := must.JSON[pay.Result]([]byte(textOf(r)))(t)
	require.Equal(t, []any{pay.StatusPaid, x402.Done}, []any{said.Status, said.Next.Do})
	require.Contains(t, said.Next.Why, "the picture is in this answer")
	many := call("x402_pay_many", map[string]any{"maxAmount": "$0.01",
		"requests": []map[string]any{{"url": w.SellerURL + "/picture?2"}}})
	require.Len(t, many.Content, 1)
	require.Len(t, w.Settlements(), 2)
}
