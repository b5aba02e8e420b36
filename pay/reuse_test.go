package pay

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// jobSeller is a seller whose answer to a payment is the address of a job, which it settles when that is
// done. It wants the job's own payment on each question.
type jobSeller struct {
	*scriptedSeller
	mu     sync.Mutex
	owner  map[string]string // of each job: the payment that began it
	asks   map[string]int    // how often each was asked for
	status int               // of the first answer
	body   string            // of the first answer, with %s for the job's address
	header string            // of the first answer, likewise: its Location
	takes  int               // how many questions a job takes
}

func (j *jobSeller) Present(_ context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.payments = append(j.payments, with.Value)
	path := strings.TrimPrefix(r.URL, strings.TrimSuffix(testURL, "/weather"))
	if r.Method == http.MethodPost {
		path = fmt.Sprintf("/weather/j%d", len(j.owner)+1)
		j.owner[path] = with.Value
		header := http.Header{}
		if j.header != "" {
			header.Set("Location", fmt.Sprintf(j.header, path))
		}
		body := j.body
		if strings.Contains(body, "%s") {
			body = fmt.Sprintf(body, path)
		}
		return &seller.Answer{Status: j.status, Content: []byte(body), Header: header,
			ContentType: "application/json"}, nil
	}
	path, _, _ = strings.Cut(path, "?")
	j.asks[path]++
	switch {
	case j.owner[path] != with.Value:
		return j.scriptedSeller.asks(), nil
	case j.asks[path] < j.takes:
		return &seller.Answer{Status: 202, Content: []byte(`{"status":"in_progress"}`)}, nil
	}
	a := must.Get(honest(j.scriptedSeller, nonceOf(j.t, with.Value), 10000))(j.t)
	if a.Challenge != nil { // settled before: what was made is given again
		a = served(nonceOf(j.t, with.Value))
	}
	a.Content = []byte("the video of " + path)
	return a, nil
}

func jobBench(t *testing.T, j *jobSeller) *bench {
	b := newBench(t, "10000", nil)
	j.scriptedSeller, j.owner, j.asks = b.seller, map[string]string{}, map[string]int{}
	b.Transport = j
	b.Rules.Agents = map[string]budget.Agent{"bob": {}}
	return b
}

func post(body string) Request {
	q := get(testURL)
	q.Method, q.Body = "POST", []byte(body)
	return q
}

// A job is asked about with the payment that began it, until it is done and afterwards; jobs that run beside
// each other each with their own; nothing else is signed.
func TestReuse_Job(t *testing.T) {
	origin := strings.TrimSuffix(testURL, "/weather")
	for name, j := range map[string]*jobSeller{
		"an address in the body": {status: 202, body: `{"id":1,"poll_url":"` + origin + `%s"}`, takes: 3},
		"a path":                 {status: 202, body: `{"poll":"%s"}`, takes: 1},
		"escaped slashes":        {status: 202, body: `{"u":"` + strings.ReplaceAll(origin, "/", `\/`) + `%s"}`, takes: 2},
		"Location of 202":        {status: 202, body: `{}`, header: "%s", takes: 2},
		"Location of 201":        {status: 201, body: `{}`, header: origin + "%s", takes: 2},
		"Location of 200":        {status: 200, body: ``, header: "%s", takes: 4},
	} {
		t.Run(name, func(t *testing.T) {
			b := jobBench(t, j)
			first := must.Get(b.Pay(t.Context(), post("a cat")))(t)
			second := must.Get(b.Pay(t.Context(), post("a dog")))(t)
			require.NotEqual(t, first.PaymentID, second.PaymentID)
			for i, r := range []Result{first, second} {
				wanted := map[bool]x402.Step{true: x402.Change, false: x402.Done}[j.status == 202]
				require.Equal(t, wanted, r.Next.Do)
				path := fmt.Sprintf("/weather/j%d", i+1)
				for n := 1; n <= j.takes+2; n++ {
					if n == 2 { // another process
						c := openBench(t, b.home, b.chain, "10000", nil)
						c.Transport, b = j, c
					}
					got := must.Get(b.Pay(t.Context(), get(origin+path)))(t)
					require.Equal(t, r.PaymentID, got.PaymentID)
					if n < j.takes {
						require.Equal(t, 202, got.HTTPStatus)
						require.Equal(t, x402.Wait, got.Next.Do)
						require.Equal(t, RepeatIs, got.Repeat)
						continue
					}
					require.Equal(t, "the video of "+path, got.Content)
					require.Equal(t, n > j.takes, got.Status == StatusReplayed, got.Status)
				}
				p := must.Get(b.store.Payment(t.Context(), r.PaymentID))(t)
				require.Equal(t, history.Settled, p.State)
			}
			require.Equal(t, 2, b.chain.signed)
			require.Equal(t, 2, b.chain.settlements())
		})
	}
}

// Addresses that an answer has for another reason, of other sellers and of other callers are bought as ever.
func TestReuse_NoJob(t *testing.T) {
	origin := strings.TrimSuffix(testURL, "/weather")
	for name, j := range map[string]*jobSeller{
		"a link in an answer":       {status: 200, body: `{"next":"%s"}`},
		"a part of another address": {status: 202, body: `{"poll":"%s0"}`},
		"a word in a text":          {status: 202, body: `see %s for more`},
		"the first page":            {status: 202, body: `{"home":"/"}`},
	} {
		b := jobBench(t, j)
		must.Get(b.Pay(t.Context(), post("a cat")))(t)
		_, _ = b.Pay(t.Context(), get(origin+"/weather/j1"))
		assert.Equal(t, 2, b.chain.signed, name)
	}
	b := jobBench(t, &jobSeller{status: 202, body: `{"poll":"%s"}`})
	must.Get(b.Pay(t.Context(), post("a cat")))(t)
	_, _ = b.Pay(WithAgent(t.Context(), "bob"), get(origin+"/weather/j1"))
	assert.Equal(t, 2, b.chain.signed, "another agent's job")
	_, _ = b.Pay(t.Context(), get("https://other.example/weather/j1"))
	assert.Equal(t, 3, b.chain.signed, "another host")
}

// A job that is not settled is not asked about for less than it costs, nor from what is frozen.
func TestReuse_JobIsRefused(t *testing.T) {
	origin := strings.TrimSuffix(testURL, "/weather")
	b := jobBench(t, &jobSeller{status: 202, body: `{"poll":"%s"}`})
	must.Get(b.Pay(t.Context(), post("a cat")))(t)
	q := get(origin + "/weather/j1")
	q.MaxAmount = "9999"
	_, err := b.Pay(t.Context(), q)
	code(t, x402.AmountExceedsMax, err)
	require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{}))
	_, err = b.Pay(t.Context(), get(origin+"/weather/j1"))
	code(t, x402.WalletFrozen, err)
	require.Equal(t, 1, b.chain.signed)
}

// A settled payment at a host that takes credit is shown until the seller asks for another one.
func TestReuse_Credit(t *testing.T) {
	credit := map[string]int{}
	sells := func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		if s.chain.settle(nonce, amount) {
			credit[nonce] = 4
		} else if credit[nonce] == 0 {
			return s.asks(), nil
		}
		credit[nonce]--
		a := served(nonce)
		a.Content, a.Header = []byte(s.paid), http.Header{"X-Credits": {fmt.Sprint(credit[nonce])}}
		return a, nil
	}
	b := newBench(t, "10000", sells)
	b.Rules.Agents = map[string]budget.Agent{"bob": {}}
	b.Policy.TakesCredit = func(host string) bool { return host == "api.example" }
	for n := range 10 {
		at := fmt.Sprintf("%s?n=%d", testURL, n)
		r := b.mustPay(t, at)
		require.Equal(t, at, r.Content)
		require.NotEmpty(t, r.PaymentID)
		if n%4 == 0 {
			require.Equal(t, StatusPaid, r.Status)
			continue
		}
		require.Equal(t, StatusFree, r.Status)
		require.Nil(t, r.AmountPaid)
		require.Contains(t, r.Next.Why, "nothing paid now")
		require.Equal(t, fmt.Sprint(3-n%4), r.Headers["X-Credits"])
	}
	require.Equal(t, 3, b.chain.signed)

	_, err := b.Pay(WithAgent(t.Context(), "bob"), get(testURL))
	require.NoError(t, err)
	require.Equal(t, 4, b.chain.signed, "of another agent's credit nothing is used")

	b.Policy.TakesCredit = nil
	b.mustBuy(t, testURL+"?n=11")
	require.Equal(t, 5, b.chain.signed, "the owner does not say so")
}

// nonceOf is the nonce of a payment that the bench's chain signed.
func nonceOf(t testing.TB, value string) string {
	raw := must.Get(base64.StdEncoding.DecodeString(value))(t)
	return must.JSON[struct{ Payload struct{ Nonce string } }](raw)(t).Payload.Nonce
}

// What is frozen uses no credit; and no secret of a job's address is kept.
func TestReuse_FrozenAndSecret(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Policy.TakesCredit = func(string) bool { return true }
	b.mustBuy(t, testURL)
	require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{}))
	b.mustRefuse(t, x402.WalletFrozen, testURL+"?n=1")
	require.Len(t, b.seller.sent(), 1)

	origin := strings.TrimSuffix(testURL, "/weather")
	j := &jobSeller{status: 202, body: `{"poll":"%s?api_key=hunter2"}`, takes: 2}
	b = jobBench(t, j)
	p := must.Get(b.Pay(t.Context(), post("a cat")))(t)
	r := must.Get(b.Pay(t.Context(), get(origin+"/weather/j1?api_key=hunter2")))(t)
	require.Equal(t, p.PaymentID, r.PaymentID)
	c := must.Get(b.store.Content(t.Context(), p.PaymentID))(t)
	require.NotContains(t, c.Headers, "hunter2")
}

// However much other agents buy meanwhile, a job is asked about with its own payment.
func TestReuse_JobAmongManyPayments(t *testing.T) {
	origin := strings.TrimSuffix(testURL, "/weather")
	b := jobBench(t, &jobSeller{status: 202, body: `{"poll":"%s"}`})
	first := must.Get(b.Pay(t.Context(), post("a cat")))(t)
	for n := range reusable {
		must.Get(b.Pay(WithAgent(t.Context(), "bob"), post(fmt.Sprint(n))))(t)
	}
	r := must.Get(b.Pay(t.Context(), get(origin+"/weather/j1")))(t)
	require.Equal(t, first.PaymentID, r.PaymentID)
	require.Equal(t, 1+reusable, b.chain.signed)
}

// What was signed for a seller reached by TLS is not shown to anybody without.
func TestReuse_CreditIsOfOneOrigin(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Policy.TakesCredit = func(string) bool { return true }
	b.mustBuy(t, testURL)
	b.mustBuy(t, strings.Replace(testURL, "https:", "http:", 1)+"?n=1")
	sent := b.seller.sent()
	require.Len(t, sent, 2)
	require.NotEqual(t, sent[0], sent[1])
}

// What is remembered of answers is bounded, however long they are.
func TestReuse_MemoryIsBounded(t *testing.T) {
	var j jobs
	long := strings.Repeat("x", maxMention)
	for n := range maxKnown {
		j.keep(fmt.Sprint(n), long+fmt.Sprint(n))
	}
	size := 0
	for _, named := range j.named {
		size += len(named)
	}
	require.LessOrEqual(t, size, 32<<20)
	named, known := j.get(fmt.Sprint(maxKnown - 1))
	require.True(t, known)
	require.Equal(t, long+fmt.Sprint(maxKnown-1), named)
}

// What the owner allowed until a time that is past uses no credit.
func TestReuse_EndedUsesNoCredit(t *testing.T) {
	past := time.Now().Add(-time.Hour)
	for name, end := range map[string]func(r *budget.Rules, p history.Payment){
		"a network": func(r *budget.Rules, p history.Payment) {
			r.NetworkEnds = map[string]time.Time{p.Network: past}
		},
		"a host": func(r *budget.Rules, p history.Payment) {
			r.AllowHosts, r.Ends = []string{p.Host}, map[string]time.Time{p.Host: past}
		},
		"an agent": func(r *budget.Rules, _ history.Payment) {
			r.Agents = map[string]budget.Agent{"bob": {Until: past}}
		},
	} {
		b := newBench(t, "10000", honest)
		b.Policy.TakesCredit = func(string) bool { return true }
		b.Rules.Agents = map[string]budget.Agent{"bob": {}}
		ctx := WithAgent(t.Context(), "bob")
		r := must.Get(b.Pay(ctx, get(testURL)))(t)
		end(&b.Rules, must.Get(b.store.Payment(ctx, r.PaymentID))(t))
		_, err := b.Pay(ctx, get(testURL+"?n=1"))
		assert.True(t, x402.HasCode(err, x402.PolicyDenied), "%s: %v", name, err)
		assert.Len(t, b.seller.sent(), 1, name)
	}
}

// An answer on credit that breaks off is no answer, and nothing is signed.
func TestReuse_CreditBreaksOff(t *testing.T) {
	b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		if s.chain.settle(nonce, amount) {
			return served(nonce), nil
		}
		return &seller.Answer{Status: 200, Content: []byte("the"), Truncated: true},
			&seller.SendError{Sent: true, Err: errors.New("reset")}
	})
	b.Policy.TakesCredit = func(string) bool { return true }
	b.mustBuy(t, testURL)
	b.mustRefuse(t, x402.NetworkError, testURL+"?n=1")
	require.Equal(t, 1, b.chain.signed)
}

// What is wrong with a job that was paid for is said, and not hidden behind the answer that named it.
func TestReuse_JobFails(t *testing.T) {
	origin := strings.TrimSuffix(testURL, "/weather")
	settles := func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		if !s.chain.settle(nonce, amount) {
			return nil, nil
		}
		a := served(nonce)
		a.Status, a.Content = 202, []byte(`{"poll":"/weather/j1"}`)
		return a, nil
	}
	broken := &seller.SendError{Sent: true, Err: errors.New("reset")}
	for name, fails := range map[string]struct {
		answer *seller.Answer
		err    error
		code   x402.Code
	}{
		"it is gone":     {answer: &seller.Answer{Status: 410, Content: []byte("the job failed")}},
		"it broke":       {answer: &seller.Answer{Status: 500, Content: []byte("the job failed")}},
		"nobody answers": {err: broken, code: x402.NetworkError},
		"it breaks off": {answer: &seller.Answer{Status: 200, Content: []byte("the"), Truncated: true},
			err: broken, code: x402.NetworkError},
	} {
		b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer,
			error) {
			if a, err := settles(s, nonce, amount); a != nil {
				return a, err
			}
			return fails.answer, fails.err
		})
		first := must.Get(b.Pay(t.Context(), post("a cat")))(t)
		require.Equal(t, StatusPaid, first.Status)
		for range 2 {
			r, err := b.Pay(t.Context(), get(origin+"/weather/j1"))
			if fails.code != "" {
				assert.True(t, x402.HasCode(err, fails.code), "%s: %v, %s", name, err, r.Content)
				continue
			}
			require.NoError(t, err, name)
			assert.Equal(t, "the job failed", r.Content, name)
			assert.Equal(t, fails.answer.Status, r.HTTPStatus, name)
			assert.Equal(t, StatusNotPaid, r.Status, name)
		}
		assert.Equal(t, 1, b.chain.signed, name)
		c := must.Get(b.store.Content(t.Context(), first.PaymentID))(t)
		assert.Contains(t, string(c.Body), "poll", name)
	}
}
