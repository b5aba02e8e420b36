package pay

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// site is a seller with pages that are free beside what it sells.
type site struct {
	*scriptedSeller
	pages  map[string]seller.Answer // by URL
	visits []string                 // method and URL
}

func (s *site) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	page, is := s.pages[r.URL]
	if !is {
		return s.scriptedSeller.Ask(ctx, r)
	}
	s.visits = append(s.visits, strings.TrimSpace(r.Method+" "+r.URL+" "+string(r.Body)))
	page.FinalURL = r.URL
	return &page, nil
}

// answersWith is a seller that settles and answers with a status and headers. Without a receipt the
// answer does not say that it settled.
func answersWith(status int, receipt bool, body string, header http.Header) script {
	return func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		s.chain.settle(nonce, amount)
		a := served(nonce)
		a.Status, a.Content, a.Header, a.FinalURL = status, []byte(body), header, testURL
		if !receipt {
			a.Settlement = nil
		}
		return a, nil
	}
}

// A paid answer that redirects within its origin is followed with GET, without the payment. Elsewhere it
// leads nobody, and where it leads is told.
func TestPay_Redirect(t *testing.T) {
	origin := strings.TrimSuffix(testURL, "/weather")
	require.NotEqual(t, testURL, origin)
	ok := seller.Answer{Status: 200, Content: []byte("the report"), ContentType: "text/plain"}
	for _, row := range []struct {
		name, method, location string
		status                 int
		receipt                bool
		want                   string // the content; "": it is not followed
	}{
		{"303", "GET", "/done", 303, true, "the report"},
		{"302 without a receipt", "GET", "/done", 302, false, "the report"},
		{"301", "GET", "/done", 301, true, "the report"},
		{"303 after POST", "POST", "/done", 303, true, "the report"},
		{"307 after GET", "GET", "/done", 307, true, "the report"},
		{"a fragment", "GET", "/done#part", 303, true, "the report"},
		{"the whole address", "GET", origin + "/done", 303, true, "the report"},
		{"307 after POST", "POST", "/done", 307, true, ""},
		{"another origin", "GET", "https://cdn.example.com/done", 303, true, ""},
		{"another scheme", "GET", "http" + strings.TrimPrefix(origin, "https") + "/done", 303, true, ""},
		{"a page that asks for payment", "GET", "/paid", 303, true, ""},
		{"a page that is not there", "GET", "/gone", 303, true, ""},
		{"without an address", "GET", "", 303, true, ""},
		{"304", "GET", "/done", 304, true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			header := http.Header{}
			if row.location != "" {
				header.Set("Location", row.location)
			}
			b := newBench(t, "10000", answersWith(row.status, row.receipt, "", header))
			s := &site{scriptedSeller: b.seller, pages: map[string]seller.Answer{origin + "/done": ok,
				origin + "/gone": {Status: 404}}}
			b.Transport = s
			q := get(testURL)
			q.Method, q.Body = row.method, []byte("{}")
			r, err := b.Pay(t.Context(), q)
			require.NoError(t, err)
			assert.Len(t, s.sent(), 1, "the payment is shown once")
			if row.want != "" {
				assert.Equal(t, StatusPaid, r.Status)
				assert.Equal(t, row.want, r.Content)
				assert.Equal(t, []string{origin + "/done"}, s.visits, "neither method nor body are repeated")
				return
			}
			assert.Equal(t, StatusUnserved, r.Status)
			assert.Equal(t, row.location, r.Headers["Location"])
			assert.NotContains(t, s.visits, origin+"/done")
		})
	}
}

// Without a receipt, a redirect that leads nowhere leaves the outcome open and is told.
func TestPay_RedirectRefused(t *testing.T) {
	b := newBench(t, "10000", answersWith(303, false, "",
		http.Header{"Location": {"https://other.example.com/x"}}))
	e := b.mustRefuse(t, x402.RedirectRefused, testURL)
	require.Equal(t, `"https://other.example.com/x"`, e.Details["location"])
}

// Of an answer's headers those are shown that its reader needs, also when it is given again.
func TestPay_Headers(t *testing.T) {
	header := http.Header{"Location": {"/jobs/1"}, "Retry-After": {"5"},
		"Link":                {"</2>; rel=next", "</9>; rel=last"},
		"Content-Disposition": {`attachment; filename="a.pdf"`}, "X-Credits-Left": {"99"},
		"X-Long": {strings.Repeat("x", 2*maxHeader)}, "X-Bad": {"caf\xe9"},
		"Server": {"nginx"}, "Set-Cookie": {"id=1"}, "X-Powered-By": {"Express"},
		"X-Payment-Response": {"e30="}, "X-Frame-Options": {"DENY"}}
	want := Headers{"Location": "/jobs/1", "Retry-After": "5", "Link": "</2>; rel=next, </9>; rel=last",
		"Content-Disposition": `attachment; filename="a.pdf"`, "X-Credits-Left": "99",
		"X-Long": strings.Repeat("x", maxHeader) + "…", "X-Bad": "caf\ufffd"}
	for _, status := range []int{200, 201, 202} {
		b := newBench(t, "10000", answersWith(status, true, "", header))
		q := get(testURL)
		q.IdempotencyKey = "one"
		for _, status := range []string{StatusPaid, StatusReplayed} {
			r, err := b.Pay(t.Context(), q)
			require.NoError(t, err)
			assert.Equal(t, status, r.Status)
			assert.Equal(t, want, r.Headers)
			assert.NotEmpty(t, r.ContentBegin, "they are a stranger's words, as the content is")
		}
	}
	many := http.Header{}
	for c := 'A'; c <= 'Z'; c++ {
		many.Set("X-"+string(c), "1")
	}
	b := newBench(t, "10000", answersWith(200, true, "", many))
	assert.Len(t, b.mustBuy(t, testURL).Headers, maxHeaders)
}

// A seller that refuses a paid request says why, and what is wrong with the request is not repeated.
func TestPay_Reason(t *testing.T) {
	for _, row := range []struct {
		status int
		want   x402.Code
		next   x402.Step
	}{
		{400, x402.PaymentRejected, x402.Change}, {401, x402.PaymentRejected, x402.Change},
		{404, x402.PaymentRejected, x402.Change}, {405, x402.PaymentRejected, x402.Change},
		{413, x402.PaymentRejected, x402.Change}, {415, x402.PaymentRejected, x402.Change},
		{422, x402.PaymentRejected, x402.Change}, {409, x402.PaymentRejected, x402.Repeat},
		{429, x402.PaymentRejected, x402.Repeat},
		{500, x402.OutcomeUnknown, x402.Repeat}, {503, x402.OutcomeUnknown, x402.Repeat},
	} {
		b := newBench(t, "10000", answersWith(row.status, false, `{"detail":"city is missing"}`,
			http.Header{"Retry-After": {"120"}}))
		e := b.mustRefuse(t, row.want, testURL)
		assert.Equal(t, `{"detail":"city is missing"}`, e.Content, row.status)
		assert.Equal(t, row.next, e.NextStep().Do, row.status)
		assert.NotEmpty(t, e.Details["retryAfter"], row.status)
		assert.Equal(t, history.Unknown, b.only(t).State, "its money stays held")
	}
	for body, want := range map[string]string{"\x89PNG\x00": "", strings.Repeat("no ", maxFailure): "…"} {
		b := newBench(t, "10000", answersWith(422, false, body, nil))
		e := b.mustRefuse(t, x402.PaymentRejected, testURL)
		assert.LessOrEqual(t, len(e.Content), maxFailure+len("…"))
		assert.True(t, strings.HasSuffix(e.Content, want) && (want != "" || e.Content == ""))
	}
	b := newBench(t, "10000", answersWith(422, true, "city is missing", nil))
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusUnserved, r.Status)
	require.Equal(t, "city is missing", r.Content)
	require.Equal(t, x402.Change, r.Next.Do, r.Next.Why)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Time{
		"0": now, "120": now.Add(2 * time.Minute), " 5 ": now.Add(5 * time.Second),
		"Mon, 30 Nov 2026 13:00:00 GMT": now.Add(time.Hour),
		"":                              {}, "-1": {}, "soon": {}, "99999999999999999999": {}, "86401": {},
		"1.5":                           {},
		"Mon, 30 Nov 2020 13:00:00 GMT": {},
	} {
		a := &seller.Answer{Header: http.Header{"Retry-After": {value}}}
		assert.Equal(t, want, retryAfter(a, now), value)
	}
}

// The answer to a payment is waited for as long as the offer says, within the owner's bound.
func TestPatience(t *testing.T) {
	const second = time.Second
	for _, row := range []struct{ offered, deadline, most, want time.Duration }{
		{60 * second, 90 * second, 300 * second, 90 * second},
		{0, 90 * second, 300 * second, 90 * second},
		{200 * second, 90 * second, 300 * second, 200 * second},
		{3600 * second, 90 * second, 300 * second, 300 * second},
		{200 * second, 90 * second, 30 * second, 30 * second},
		{200 * second, 90 * second, 0, 90 * second},
	} {
		p := Policy{Deadline: row.deadline, MaxWait: row.most}
		assert.Equal(t, row.want, p.patience(row.offered), row)
	}
	for requirement, want := range map[string]time.Duration{
		`{"maxTimeoutSeconds":120}`: 120 * second, `{"maxTimeoutSeconds":1e99}`: 0, `{"maxTimeoutSeconds":-5}`: 0,
		`{"maxTimeoutSeconds":9000000000}`: 24 * time.Hour, `{}`: 0, ``: 0, `{"maxTimeoutSeconds":"60"}`: 0,
	} {
		assert.Equal(t, want, timeOffered(history.Payment{Requirement: []byte(requirement)}), requirement)
	}
}

// A seller that is slower than a call may be before it is paid is waited for; one that is slower than the
// owner allows is told as such, and the key is named. The money stays held, and the same call gets the goods.
func TestPay_SlowSeller(t *testing.T) {
	slow := func(takes time.Duration) *bench {
		b := newBench(t, "10000", nil)
		b.Policy.Deadline, b.Policy.MaxWait = 200*time.Millisecond, 2*time.Second
		b.Transport = slowly{b.seller, takes}
		b.seller.script = honest
		return b
	}
	r := slow(600*time.Millisecond).mustBuy(t, testURL)
	require.Equal(t, "sunny", r.Content)

	b := slow(time.Hour)
	e := b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	require.Contains(t, e.Message, "the wallet stopped waiting for the seller's answer after 2s")
	require.Contains(t, e.Message, "policy.max_wait is 2s; the offer's maxTimeoutSeconds is 60")
	require.Equal(t, history.Unknown, b.only(t).State)
	b.Transport = b.seller
	require.Equal(t, "sunny", b.mustPay(t, testURL).Content)
	require.Equal(t, 1, b.chain.signed)

	b = slow(time.Hour)
	b.seller.rewrite = strings.NewReplacer(`"maxTimeoutSeconds":60`, `"maxTimeoutSeconds":0`)
	b.Policy.MaxWait = time.Hour
	_, err := b.Pay(t.Context(), get(testURL))
	if err != nil && x402.AsError(err).Code == x402.OutcomeUnknown {
		require.Contains(t, err.Error(), "policy.deadline is 200ms")
	}
}

// slowly is a seller that answers a payment late.
type slowly struct {
	*scriptedSeller
	takes time.Duration
}

func (s slowly) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer, error) {
	select {
	case <-time.After(s.takes):
		return s.scriptedSeller.Present(ctx, r, with)
	case <-ctx.Done():
		return nil, &seller.SendError{Sent: true, Err: ctx.Err()}
	}
}

// Before anything is paid it is told that a seller may take longer than the wallet waits.
func TestEstimate_SlowSeller(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Policy.MaxWait = 30 * time.Second
	require.Contains(t, b.estimate(t, testURL).Next.Why, "may take up to 1m0s to answer a payment, and the "+
		"wallet waits 30s for it (policy.max_wait)")
	b.Policy.MaxWait = time.Minute
	out := b.estimate(t, testURL)
	require.Empty(t, out.Next.Why)
	require.Equal(t, time.Minute, out.Wait)
}

// A seller that is busy says when to come back.
func TestPay_RetryAfter(t *testing.T) {
	for _, status := range []int{429, 503} {
		a := &seller.Answer{Status: status, Header: http.Header{"Retry-After": {"90"}}}
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		next := notServed(a, now)
		require.Equal(t, x402.Wait, next.Do)
		require.Equal(t, "2026-11-30T12:01:30Z", next.At)
	}
}
