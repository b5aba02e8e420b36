package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fieldShop is a seller that does what sellers in the field do. It settles through the reference facilitator.
type fieldShop struct {
	t   *testing.T
	lab *Lab
	url string

	mu     sync.Mutex
	jobs   map[string]*videoJob // by path
	credit map[string]int       // calls left, by payment
}

// startFieldShop gives a wallet that has money and may spend it at the shop, under further rules.
func startFieldShop(t *testing.T, rules string) (s *fieldShop, w *Wallet, nonces func() int) {
	s = &fieldShop{t: t, lab: Start(t), jobs: map[string]*videoJob{}, credit: map[string]int{}}
	at := httptest.NewServer(s)
	t.Cleanup(at.Close)
	s.url = at.URL
	w, home := funded(t, s.lab, ConfigOptions{Loopback: []string{at.URL},
		More: strings.ReplaceAll(rules, "SHOP", strings.TrimPrefix(at.URL, "http://"))})
	return s, w, func() int { return len(s.lab.EVMSpentNonces(home.EVM)) }
}

// oneAnswer is an answer to a paid call.
type oneAnswer struct {
	status int
	header []string // NAME: value
	body   string
}

func (s *fieldShop) terms(more string) string {
	evm := s.lab.EVM
	return fmt.Sprintf(`{"scheme":"exact","network":%q,"asset":%q,"amount":"1000","payTo":%q,"maxTimeoutSeconds":60,`+
		`"extra":{"name":%q,"version":%q%s}}`, evm.Network, evm.Asset, evm.PayTo, evm.Name, evm.Version, more)
}

// charge answers a call without payment by the challenge, and settles the payment of another one.
func (s *fieldShop) charge(w http.ResponseWriter, r *http.Request, extensions string) (isPaid bool) {
	payment := r.Header.Get("PAYMENT-SIGNATURE")
	challenge := fmt.Sprintf(`{"x402Version":2,"error":"pay","resource":{"url":%q,"description":"d","mimeType":""},`+
		`"accepts":[%s]%s}`, s.url+r.URL.RequestURI(), s.terms(""), extensions)
	refuse := func() bool {
		w.Header().Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString([]byte(challenge)))
		w.WriteHeader(http.StatusPaymentRequired)
		return false
	}
	if payment == "" {
		return refuse()
	}
	payload, err := base64.StdEncoding.DecodeString(payment)
	if err != nil {
		return refuse()
	}
	response, err := http.Post(s.lab.Facilitators[0]+"/settle", "application/json", strings.NewReader(
		fmt.Sprintf(`{"x402Version":2,"paymentPayload":%s,"paymentRequirements":%s}`, payload, s.terms(""))))
	if err != nil {
		return refuse()
	}
	defer response.Body.Close()
	receipt, err := io.ReadAll(response.Body)
	var settled struct{ Success bool }
	if err != nil || json.Unmarshal(receipt, &settled) != nil || !settled.Success {
		return refuse()
	}
	w.Header().Set("PAYMENT-RESPONSE", base64.StdEncoding.EncodeToString(receipt))
	return true
}

func (s *fieldShop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	payment := r.Header.Get("PAYMENT-SIGNATURE")
	body, _ := io.ReadAll(r.Body)
	path := r.URL.Path
	switch answer, isSold := fieldAnswers[path]; {
	case isSold && s.charge(w, r, ""):
		answer.write(w)
	case isSold: // it asked for payment
	case path == "/plain":
		if assert.Empty(s.t, payment, "the payment followed a redirect") {
			_, _ = io.WriteString(w, "the file")
		}
	case path == "/refuses": // before it settles
		if payment == "" {
			s.charge(w, r, "")
			return
		}
		oneAnswer{422, []string{"Content-Type: application/problem+json"}, `{"detail":"use gpt-5"}`}.write(w)
	case path == "/cookie":
		_, err := r.Cookie("sid")
		if payment != "" && err != nil {
			http.Error(w, "no session", http.StatusBadRequest)
			return
		}
		w.Header().Set("Set-Cookie", "sid=abc; Path=/; HttpOnly")
		if s.charge(w, r, "") {
			_, _ = io.WriteString(w, "with the cookie")
		}
	case path == "/post":
		s.charge(w, r, `,"extensions":{"bazaar":{"info":{"input":{"type":"http","method":"POST","bodyType":"json",`+
			`"body":{"city":"Lisbon"}}},"schema":{}}}`)
	case path == "/echo" && s.charge(w, r, ""):
		_, _ = fmt.Fprintf(w, "%s %s %x", r.Method, r.RequestURI, body)
	case path == "/open" && s.charge(w, r, ""):
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"delta\":1}\n\ndata: [DONE]\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case strings.HasPrefix(path, "/video"):
		s.makeVideo(w, r, payment)
	case path == "/prepaid":
		s.prepaid(w, r, payment)
	case path == "/nothing":
		http.NotFound(w, r)
	}
}

// makeVideo begins a job for a payment, and settles that when it is asked about for the second time.
func (s *fieldShop) makeVideo(w http.ResponseWriter, r *http.Request, payment string) {
	s.mu.Lock()
	job := s.jobs[r.URL.Path]
	isBegun := r.URL.Path == "/video" && payment != ""
	if isBegun {
		job = &videoJob{payment: payment}
		s.jobs[fmt.Sprintf("/video/%d", len(s.jobs)+1)] = job
	}
	if job != nil && job.payment == payment {
		job.asked++
	}
	s.mu.Unlock()
	switch {
	case isBegun:
		oneAnswer{202, []string{"Content-Type: application/json", "Retry-After: 2"},
			fmt.Sprintf(`{"status":"queued","poll_url":"%s/video/%d"}`, s.url, len(s.jobs))}.write(w)
	case job == nil || job.payment != payment:
		r.Header.Del("PAYMENT-SIGNATURE") // another one is wanted
		s.charge(w, r, "")
	case job.asked == 2:
		oneAnswer{202, nil, `{"status":"in_progress"}`}.write(w)
	case job.asked > 3 || s.charge(w, r, ""):
		_, _ = io.WriteString(w, "the video of "+r.URL.Path)
	}
}

type videoJob struct {
	payment string
	asked   int
}

func (s *fieldShop) prepaid(w http.ResponseWriter, r *http.Request, payment string) {
	s.mu.Lock()
	left := s.credit[payment]
	s.mu.Unlock()
	if left == 0 {
		if !s.charge(w, r, "") {
			return
		}
		left = 4
	}
	s.mu.Lock()
	s.credit[payment] = left - 1
	s.mu.Unlock()
	_, _ = fmt.Fprintf(w, "%d calls left", left-1)
}

func (a oneAnswer) write(w http.ResponseWriter) {
	for _, line := range a.header {
		name, value, _ := strings.Cut(line, ": ")
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func text(contentType, body string) oneAnswer {
	return oneAnswer{200, []string{"Content-Type: " + contentType}, body}
}

func packed[W io.WriteCloser](encoding string, newWriter func(io.Writer) W) oneAnswer {
	var b bytes.Buffer
	w := newWriter(&b)
	_, _ = io.WriteString(w, "in "+encoding)
	_ = w.Close()
	return oneAnswer{200, []string{"Content-Encoding: " + encoding, "Content-Type: text/plain"}, b.String()}
}

func newZstd(w io.Writer) *zstd.Encoder {
	z, _ := zstd.NewWriter(w) // fails by its options alone
	return z
}

// fieldAnswers are answers of sellers in the field, by the paths that sell them.
var fieldAnswers = map[string]oneAnswer{
	"/latin1":  text("text/html; charset=ISO-8859-1", "caf\xe9"),
	"/win1252": text("text/plain; charset=windows-1252", "\x93hi\x94"),
	"/sjis":    text("text/html; charset=Shift_JIS", "\x93\xfa\x96\x7b"),
	"/gbk":     text("text/html; charset=gbk", "\xd6\xd0\xce\xc4"),
	"/utf16":   text("application/json; charset=utf-16", "\xff\xfe{\x00\xfc\x00}\x00"),
	"/meta":    text("text/html", "<meta charset=\"iso-8859-1\">caf\xe9"),
	"/bad":     text("application/json", "{\"a\":\"\xc3\"}"),
	"/gzip":    packed("gzip", gzip.NewWriter),
	"/br":      packed("br", brotli.NewWriter),
	"/deflate": packed("deflate", zlib.NewWriter),
	"/zstd":    packed("zstd", newZstd),
	"/303":     {303, []string{"Location: /plain"}, ""},
	"/302":     {302, []string{"Location: /plain"}, ""},
	"/away":    {302, []string{"Location: http://127.0.0.1:9/file"}, ""},
	"/201":     {201, []string{"Location: /things/42"}, ""},
	"/download": {200, []string{"Content-Disposition: attachment", "X-Token: tok_1",
		"Content-Type: text/csv"}, "a,b\n"},
	"/wrong": {422, []string{"Content-Type: text/plain"}, "city is required"},
}

// What sellers in the field do is paid once, and what was paid for is delivered: on a real chain, through the
// reference facilitator, by the built program.
func TestSellersOfTheField(t *testing.T) {
	shop, w, nonces := startFieldShop(t, "")
	for path, want := range map[string]struct {
		status, content, do string
		http                int
		headers             map[string]string
	}{
		"/latin1": {content: "café"}, "/win1252": {content: "“hi”"}, "/sjis": {content: "日本"},
		"/gbk": {content: "中文"}, "/utf16": {content: "{ü}"}, "/bad": {content: "{\"a\":\"\ufffd\"}"},
		"/meta": {content: `<meta charset="iso-8859-1">café`},
		"/gzip": {content: "in gzip"}, "/br": {content: "in br"}, "/deflate": {content: "in deflate"},
		"/zstd": {content: "in zstd"}, "/303": {content: "the file"}, "/302": {content: "the file"},
		"/away": {status: "paid_not_served", do: "repeat", http: 302,
			headers: map[string]string{"Location": "http://127.0.0.1:9/file"}},
		"/201": {http: 201, headers: map[string]string{"Location": "/things/42"}},
		"/download": {content: "a,b\n",
			headers: map[string]string{"Content-Disposition": "attachment", "X-Token": "tok_1"}},
		"/wrong": {status: "paid_not_served", content: "city is required", do: "change",
			http: 422},
		"/cookie":                  {content: "with the cookie"},
		"/open":                    {content: "data: {\"delta\":1}\n\ndata: [DONE]\n\n"},
		"/echo?city=München b#top": {content: "GET /echo?city=M%C3%BCnchen%20b "},
	} {
		before := nonces()
		p := payFor(t, w, shop.url+path)
		require.Equal(t, cmp.Or(want.status, "paid"), p.Status, "%s: %+v", path, p)
		require.Equal(t, want.content, p.Content, path)
		require.Equal(t, cmp.Or(want.do, "none"), p.Next.Do, path)
		require.Equal(t, cmp.Or(want.http, 200), p.HTTPStatus, path)
		require.Equal(t, want.headers, p.Headers, path)
		require.Equal(t, before+1, nonces(), path)
	}

	before := nonces()
	p := payFor(t, w, shop.url+"/post") // a POST with a body is what is sold
	require.Equal(t, []string{"INVALID_ARGUMENT", "change"}, []string{p.Error, p.Next.Do}, "%+v", p)
	p = payFor(t, w, shop.url+"/nothing")
	require.Equal(t, []string{"not_paid", "change"}, []string{p.Status, p.Next.Do}, "%+v", p)
	require.Equal(t, before, nonces())
	p = payFor(t, w, shop.url+"/refuses")
	require.Equal(t, []string{"PAYMENT_REJECTED", "change"}, []string{p.Error, p.Next.Do}, "%+v", p)
	require.Contains(t, p.Content, "use gpt-5")
	p = payFor(t, w, shop.url+"/echo", "method", "PUT", "bodyBase64", "AP8Q")
	require.Equal(t, "PUT /echo 00ff10", p.Content)
	require.Equal(t, before+1, nonces())
}

// A job is asked about with the payment that began it, and what was prepaid is used up before another payment
// is signed: by the chain's word.
func TestJobsAndCreditOnAChain(t *testing.T) {
	shop, w, nonces := startFieldShop(t, "\n[hosts.\"SHOP\"]\ncredit = true\n")
	began := payFor(t, w, shop.url+"/video", "method", "POST", "body", `{"prompt":"a cat"}`)
	require.Equal(t, []any{"paid", 202, "change"}, []any{began.Status, began.HTTPStatus, began.Next.Do},
		"%+v", began)
	require.Zero(t, nonces(), "it settles when the video is there")
	waits := payFor(t, w, shop.url+"/video/1")
	require.Equal(t, []any{202, "wait", began.PaymentID},
		[]any{waits.HTTPStatus, waits.Next.Do, waits.PaymentID})
	for _, status := range []string{"paid", "replayed"} {
		made := payFor(t, w, shop.url+"/video/1")
		require.Equal(t, []string{status, "the video of /video/1", began.PaymentID},
			[]string{made.Status, made.Content, made.PaymentID}, "%+v", made)
	}
	require.Equal(t, 1, nonces())

	var contents []string
	for n := range 10 {
		p := payFor(t, w, fmt.Sprintf("%s/prepaid?n=%d", shop.url, n))
		require.Empty(t, p.Error, "%+v", p)
		contents = append(contents, p.Content[:1])
	}
	require.Equal(t, "3210321032", strings.Join(contents, ""))
	require.Equal(t, 1+3, nonces())
}
