package pay

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// What a seller gets as one URL is one purchase, however it is written.
func TestOneURLIsOnePurchase(t *testing.T) {
	const folded = "https://api.example/w%C3%A9?q=M%C3%BCnchen%20a"
	want := must.Get(get(folded).parse(""))(t)
	for _, raw := range []string{"https://api.example/wé?q=München a",
		"HTTPS://API.example:443/wé?q=München%20a#top",
		" https://api.example/x/../wé?q=München a\n", `https:\\api.example\w%C3%A9?q=München a`,
		"https://api.exa\tmple/w%C3%A9?q=M%C3%BCnchen a"} {
		in := must.Get(get(raw).parse(""))(t)
		require.Equal(t, want.fingerprint, in.fingerprint, raw)
		require.Equal(t, []string{folded, "api.example", folded}, []string{in.URL, in.host, in.shownURL}, raw)
	}
	for _, other := range []string{"https://api.example/w%c3%a9?q=M%C3%BCnchen%20a",
		"https://api.example/we?q=München a"} {
		require.NotEqual(t, want.fingerprint, must.Get(get(other).parse(""))(t).fingerprint, other)
	}
	tool := Request{Request: seller.Request{Method: seller.CallTool, URL: "https://api.example/mcp#wé"}}
	require.Equal(t, tool.URL, must.Get(tool.parse(""))(t).URL, "the fragment names the tool")
}

// A secret is left out however its name is written.
func TestOneURL_NoSecretIsKept(t *testing.T) {
	in := must.Get(get("https://api.example/?é=1&API_KEY=hunter2#token=x").parse(""))(t)
	require.Equal(t, "https://api.example/?%C3%A9=1&API_KEY=***", in.shownURL)
}

// cookieWatch notes whose cookies a call's requests carry.
type cookieWatch struct {
	Transport
	seen []*seller.Cookies
}

func (w *cookieWatch) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	w.seen = append(w.seen, r.Cookies)
	return w.Transport.Ask(ctx, r)
}

func (w *cookieWatch) Present(ctx context.Context, r seller.Request, with wire.Attachment) (
	*seller.Answer, error) {
	w.seen = append(w.seen, r.Cookies)
	return w.Transport.Present(ctx, r, with)
}

// A call's question and payment share their cookies; another call, such as one that shows a lost payment
// again, has none of them.
func TestCookiesAreOfOneCall(t *testing.T) {
	b := newBench(t, "10000", silent)
	watch := &cookieWatch{Transport: b.seller}
	b.Transport = watch
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	b.seller.script = honest
	require.Equal(t, StatusPaid, b.mustPay(t, testURL).Status)
	require.Len(t, watch.seen, 3, "asked, paid, and shown again")
	require.NotNil(t, watch.seen[0])
	require.Same(t, watch.seen[0], watch.seen[1])
	require.NotSame(t, watch.seen[1], watch.seen[2])
}
