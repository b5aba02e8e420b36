package pay

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// Hostile sellers and agents that no other test of this package has; docs/threat-model.md lists what
// is promised against them.

func offers(resource string, options ...string) *seller.Answer {
	text := fmt.Sprintf(`{"x402Version":2,"resource":{"url":%q},"accepts":[%s]}`, resource,
		strings.Join(options, ","))
	a := &seller.Answer{Status: 402,
		Header: http.Header{"Payment-Required": {base64.StdEncoding.EncodeToString([]byte(text))}}}
	a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, a.Header, nil)
	return a
}

func anOption(scheme, network, amount string) string {
	return fmt.Sprintf(`{"scheme":%q,"network":%q,"amount":%q,"asset":%q,"payTo":%q,"maxTimeoutSeconds":60,`+
		`"extra":{"name":"USDC","version":"2"}}`, scheme, network, amount, testUSDC, testPayee)
}

// menu is a seller whose challenge is written by hand.
type menu struct {
	*scriptedSeller
	resource string
	options  []string
}

func (m menu) Ask(context.Context, seller.Request) (*seller.Answer, error) {
	return offers(m.resource, m.options...), nil
}

// The cheapest of what can be paid, whatever the seller names first; the ledger has what was chosen.
func TestTheCheapestIsPaid(t *testing.T) {
	b := newBench(t, "10000", honest)
	price := func(amount string) string { return anOption("exact", testNetwork, amount) }
	b.Transport = menu{b.seller, testURL, []string{price("900000"), price("3000"), price("1000"),
		price("2000")}}
	r := b.mustPay(t, testURL)
	require.Equal(t, "1000", r.AmountPaid.String())
	require.Equal(t, uint64(999_000), b.chain.balance)
	require.Equal(t, "1000", b.only(t).Amount.String())
}

// Amounts at the end of their range are too much and no overflow, and an agent's
// maxAmount opens no window.
func TestEndlessAmounts(t *testing.T) {
	const all = "115792089237316195423570985008687907853269984665640564039457584007913129639935" // 2^256-1
	for name, c := range map[string]struct {
		amount, most string
		code         x402.Code
	}{
		"2^64-1":                    {"18446744073709551615", "", x402.BudgetExceeded},
		"2^256-1":                   {all, "", x402.BudgetExceeded},
		"2^256-1, all that is":      {all, all, x402.BudgetExceeded},
		"2^256-1, maxAmount":        {all, "10000", x402.AmountExceedsMax},
		"above per_call, any price": {"1000001", all, x402.BudgetExceeded},
		"above per_call, dollars":   {"1000001", "$999999", x402.BudgetExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			r := must.Get(b.Pay(t.Context(), get(testURL)))(t) // what is spent is in every sum
			b.Delivered(t.Context(), r.Status, r.PaymentID)
			b.seller.price = c.amount
			q := get(testURL + "?more")
			q.MaxAmount = c.most
			code(t, c.code, must.Err(b.Pay(t.Context(), q)))
			require.Equal(t, 1, b.chain.signed)
			require.Equal(t, money.Dollars(10_000), b.budgets(t.Context()).Day.Spent)
		})
	}
}

// One 402, one decision. A seller that changes its mind with every question is asked once, and
// gets what it said then.
func TestOneQuestionOneDecision(t *testing.T) {
	b := newBench(t, "10000", honest)
	fickle := &raises{scriptedSeller: b.seller}
	b.Transport = fickle
	r := b.mustPay(t, testURL)
	require.Equal(t, 1, b.seller.asked)
	require.Equal(t, "10001", r.AmountPaid.String())
	p := b.only(t)
	require.Equal(t, "10001", p.Evidence.Amount.String(), "held, signed and shown are one amount")
	require.Contains(t, string(p.Requirement), `"amount":"10001"`)
	require.Contains(t, string(p.Payload), string(p.Requirement), "the very bytes of the 402")
}

type raises struct{ *scriptedSeller }

func (s *raises) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	price, _ := strconv.Atoi(s.price)
	s.price = strconv.Itoa(price + 1)
	return s.scriptedSeller.Ask(ctx, r)
}

// A seller that takes a little more every time gets what the day has, and not one unit over it.
func TestSlowBurn(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Transport = &raises{scriptedSeller: b.seller}
	b.Rules.Day = 505_000 // the sum of 10001 … 10050 is 501275; the next would be 10051
	paid, refused := 0, 0
	for i := range 100 {
		r, err := b.Pay(t.Context(), get(testURL+"?"+strconv.Itoa(i)))
		if err != nil {
			code(t, x402.BudgetExceeded, err)
			refused++
			continue
		}
		b.Delivered(t.Context(), r.Status, r.PaymentID)
		paid++
	}
	require.Equal(t, []int{50, 50}, []int{paid, refused})
	require.Equal(t, money.Dollars(501_275), b.budgets(t.Context()).Day.Spent)
	require.Equal(t, 50, b.chain.settlements())
}

// The seller says that it was not settled, and it was. Nothing is released, nothing is
// signed again, and the same call ends with the chain's word.
func TestSettledAndDenied(t *testing.T) {
	for _, status := range []int{200, 402, 403, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer,
				error) {
				s.chain.settle(nonce, amount)
				return &seller.Answer{Status: status, Content: []byte("no"),
					Settlement: &wire.Settlement{ErrorReason: "insufficient_funds"}}, nil
			})
			_, err := b.Pay(t.Context(), get(testURL))
			require.Equal(t, "10000", code(t, x402.SettlementFailed, err).Spent, status)
			r, err := b.Pay(t.Context(), get(testURL))
			require.NoError(t, err, status)
			require.NotEqual(t, StatusFree, r.Status)
			require.Equal(t, []int{1, 1}, []int{b.chain.signed, b.chain.settlements()}, status)
			require.Equal(t, history.Chain, b.only(t).Proof)
			sent := b.seller.sent()
			require.Equal(t, sent[0], sent[len(sent)-1], "the same proof")
		})
	}
}

// What a seller writes as its resource is echoed to it and decides nothing: host,
// limits and record are those of the URL that was asked, and that URL, with whatever key stands in
// its query, is sent to nobody.
func TestTheResourceDecidesNothing(t *testing.T) {
	for _, resource := range []string{"http://api.example/weather", "https://other.example/",
		"file:///etc/passwd", testURL + "?api_key=hunter2"} {
		t.Run(resource, func(t *testing.T) {
			for _, header := range []string{"PAYMENT-REQUIRED", "X-Payment-Required"} {
				b := newBench(t, "10000", honest)
				b.Rules.DenyHosts = []string{"other.example"}
				b.Transport = menu{b.seller, resource, []string{anOption("exact", testNetwork, "10000")}}
				q := get(testURL + "?api_key=hunter2")
				require.NoError(t, must.Err(b.Pay(t.Context(), q)), header)
				p := b.only(t)
				require.Equal(t, []string{"api.example", testURL + "?api_key=***", ""},
					[]string{p.Host, p.URL, p.Target})
				require.NotContains(t, string(p.Payload)+string(p.Requirement), "hunter2")
			}
		})
	}
}

// sayback is a V1 seller that says the URL back, as the reference does.
type sayback struct{ *scriptedSeller }

func (s sayback) Ask(_ context.Context, r seller.Request) (*seller.Answer, error) {
	a := &seller.Answer{Status: 402}
	a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, nil,
		fmt.Appendf(nil, `{"x402Version":1,"accepts":[{"scheme":"exact","network":"base-sepolia",
		"maxAmountRequired":"10000","resource":%q,"asset":%q,"payTo":%q,"maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}]}`, r.URL, testUSDC, testPayee))
	return a, nil
}

// Nor are they kept where a V1 seller says them back.
func TestSecretsSaidBackAreNotKept(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Transport = sayback{b.seller}
	b.mustPay(t, testURL+"?city=Oslo&api_key=hunter2")
	p := b.only(t)
	require.NotContains(t, string(p.Payload)+string(p.Requirement), "hunter2")
	require.Contains(t, string(p.Requirement),
		`"resource":"https://api.example/weather?city=Oslo\u0026api_key=***"`)
	require.Contains(t, string(p.Requirement), `"maxAmountRequired":"10000"`)
}

// Secrets of a query are not kept; everything else of it is.
func TestSecretsOfAQueryAreNotKept(t *testing.T) {
	for url, kept := range map[string]string{
		"https://a.example/x":                          "https://a.example/x",
		"https://a.example/x?":                         "https://a.example/x?",
		"https://a.example/x?city=Oslo&q=a%20b&b":      "https://a.example/x?city=Oslo&q=a%20b&b",
		"https://a.example/x?api_key=s&city=Oslo":      "https://a.example/x?api_key=***&city=Oslo",
		"https://a.example/x?city=Oslo&X-API-Key=s#f":  "https://a.example/x?city=Oslo&X-API-Key=***#f",
		"https://a.example/x?%61pikey=s":               "https://a.example/x?%61pikey=***",
		"https://a.example/x?access_token=a=b&token=":  "https://a.example/x?access_token=***&token=",
		"https://a.example/x?X-Amz-Signature=s&sig=t":  "https://a.example/x?X-Amz-Signature=***&sig=***",
		"https://a.example/x?client-secret=s&%zz=t":    "https://a.example/x?client-secret=***&%zz=***",
		"https://a.example/x?keyword=tides&monkey=yes": "https://a.example/x?keyword=tides&monkey=yes",
	} {
		t.Run(url, func(t *testing.T) { require.Equal(t, kept, WithoutSecrets(url)) })
	}
	require.Empty(t, elsewhere("https://a.example/x?token=s", "HTTPS://A.Example/x?token=s#f"),
		"it led nowhere else, and is not kept whole")
	b := strict(t)
	q := get(testURL + "?token=hunter2")
	id := b.askedFor(t, q)
	require.Equal(t, testURL+"?token=***", must.Get(b.store.Approval(t.Context(), id))(t).URL)
	must.Get(b.store.Approve(t.Context(), id, "owner", sealed))(t)
	r := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, q.URL, b.seller.paid, "the seller gets the request as it was asked")
	other := q
	other.URL = testURL + "?token=hunter3"
	b.Delivered(t.Context(), r.Status, r.PaymentID)
	require.NotEqual(t, id, b.askedFor(t, other), "another secret is another request")
}

// A key names one purchase; another request under it is no purchase at all.
func TestAKeyIsForOneRequest(t *testing.T) {
	b := newBench(t, "10000", honest)
	q := get(testURL)
	q.IdempotencyKey = "order-1"
	must.Get(b.Pay(t.Context(), q))(t)
	for name, change := range map[string]func(*Request){
		"url":    func(q *Request) { q.URL += "?2" },
		"method": func(q *Request) { q.Method = "POST" },
		"body":   func(q *Request) { q.Body = []byte("x") },
		"header": func(q *Request) { q.Header = http.Header{"X-A": {"b"}} },
	} {
		t.Run(name, func(t *testing.T) {
			other := q
			change(&other)
			code(t, x402.InvalidArgument, must.Err(b.Pay(t.Context(), other)))
			require.Equal(t, 1, b.chain.signed, name)
		})
	}
}

// However many payments stay open, each is looked up, and none keeps a call waiting for the others.
func TestThousandsOfOpenPayments(t *testing.T) {
	const open = 3_000
	b := newBench(t, "10000", func(*scriptedSeller, string, uint64) (*seller.Answer, error) {
		return nil, &seller.SendError{Sent: true, Err: errors.New("cut")}
	})
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	first := b.only(t)
	for i := 1; i < open; i++ {
		p := history.Payment{Fingerprint: first.Fingerprint, Method: first.Method, URL: first.URL,
			Host: first.Host, Network: first.Network, Scheme: first.Scheme, Asset: first.Asset,
			Symbol: first.Symbol, Amount: money.NewAmount(1), Price: 1, PayTo: first.PayTo,
			Source: first.Source, Requirement: first.Requirement}
		p = must.Get(historytest.Reserve(t.Context(), b.store, history.Hold{Payment: p,
			Funds: x402.Funds{Source: "nobody's", Free: money.NewAmount(1 << 60)}}))(t)
		evidence := first.Evidence
		evidence.Nonce = fmt.Sprintf("0x%d", i)
		require.NoError(t, b.Guard.Submit(t.Context(), p, history.Signed{Payload: first.Payload,
			Requirement: first.Requirement, Evidence: evidence, UniqueKey: evidence.Unique()}, false))
		require.NoError(t, b.store.ReleaseLease(t.Context(), p.ID))
		require.NoError(t, b.store.ClearWaiter(t.Context(), p.ID))
	}

	b.chain.asked = 0
	require.Equal(t, Report{Checked: open, Open: open}, b.reconcile(t))
	require.Equal(t, open, b.chain.asked, "once each")

	// What is over the limit asks the chains, 200 at a time, and from where the last one stopped:
	// the expired one is found.
	b.chain.balance = 1 << 40
	b.Rules.Day = 10_000 + (open - 1) + 10_000 - 1
	b.chain.dead["0x500"] = true
	b.later()
	b.seller.script = honest
	for try := range 3 {
		b.chain.asked = 0
		_, err := b.Pay(t.Context(), get(testURL+"?other"))
		require.Equal(t, try == 2, err == nil, "%d: %v", try, err)
		require.LessOrEqual(t, b.chain.asked, reconcileBatch)
	}
}

// Another machine with the same key is not seen; the chain's own cap holds both.
func TestTwoMachinesOneKey(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.chain.balance = 35_000
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	other := openBench(t, home, b.chain, "10000", honest)
	paid := 0
	for i := range 10 {
		_, err := []*bench{b, other}[i%2].Pay(t.Context(), get(fmt.Sprint(testURL, "?", i)))
		if err == nil {
			paid++
		} else {
			code(t, x402.InsufficientFunds, err)
		}
	}
	require.Equal(t, 3, paid)
	require.EqualValues(t, 5_000, b.chain.balance)
}

// However small the payments, only so many a minute.
func TestTinyPaymentsAreRateLimited(t *testing.T) {
	b := newBench(t, "1", honest)
	b.Rules.Rate = 7
	for i := range 50 {
		_, err := b.Pay(t.Context(), get(fmt.Sprint(testURL, "?", i)))
		if i < 7 {
			require.NoError(t, err)
			continue
		}
		require.NotEmpty(t, code(t, x402.RateLimited, err).Details["resetsAt"])
	}
	require.Equal(t, 7, b.chain.settlements())
}

type fullDisk struct{ *history.Store }

func (fullDisk) Finish(context.Context, string, history.Outcome) (history.Payment, error) {
	return history.Payment{}, diskError()
}

// What was paid is reported although it could not be written down, and it stays counted.
func TestAnOutcomeThatCannotBeWritten(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Store = fullDisk{b.store}
	r := b.mustBuy(t, testURL)
	p := b.only(t)
	require.Equal(t, r.PaymentID, p.ID)
	require.Equal(t, history.Submitted, p.State)
	require.Equal(t, money.Dollars(10_000), b.budgets(t.Context()).Day.Held)
}

type silentNode struct{ *chain }

func (silentNode) Status(ctx context.Context, _ x402.Evidence) (x402.Status, error) {
	<-ctx.Done()
	return x402.Status{}, ctx.Err()
}

// A node that never answers keeps nobody from what was bought: the same bytes go to the seller
// while there is time.
func TestASilentNodeLeavesTimeForTheSeller(t *testing.T) {
	b := newBench(t, "10000", silent)
	b.Schemes = map[SchemeKey]Scheme{exactEVM: silentNode{b.chain}}
	b.Policy.Deadline = 3 * time.Second
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	b.seller.script = honest
	b.mustBuy(t, testURL)
	require.Equal(t, 1, b.chain.signed)
}

// shortDisk has room for outcomes, and for content only when some was made.
type shortDisk struct {
	*history.Store
	none bool // no room for anything
	room bool
}

func (d *shortDisk) Finish(ctx context.Context, id string, o history.Outcome) (history.Payment, error) {
	if !d.room && (d.none || o.Content != nil) {
		return history.Payment{}, diskError()
	}
	return d.Store.Finish(ctx, id, o)
}

// What was bought, does not fit into the answer and could not be written down is not lost, and not
// bought again: the same call gets it when there is room, and so does whoever asks the ledger.
func TestWhatWasBoughtOutlivesAFullDisk(t *testing.T) {
	picture := bytes.Repeat([]byte{0xff, 0xd8}, 100)
	book := bytes.Repeat([]byte("word "), 20_000)
	for name, content := range map[string][]byte{"binary": picture, "long": book} {
		for _, none := range []bool{false, true} {
			for _, byCall := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %t %t", name, none, byCall), func(t *testing.T) {
					b := newBench(t, "10000", func(s *scriptedSeller, nonce string,
						amount uint64) (*seller.Answer, error) {
						answer, err := honest(s, nonce, amount)
						answer.Content = content
						return answer, err
					})
					disk := &shortDisk{Store: b.store, none: none}
					b.Store = disk
					for range 2 {
						_, err := b.Pay(t.Context(), get(testURL))
						require.Equal(t, "10000", code(t, x402.LedgerUnavailable, err).Spent)
					}
					p := b.only(t)
					require.Equal(t, none, p.State == history.Submitted)
					require.Len(t, b.seller.sent(), 1, "what is in memory is not asked for again")
					disk.room = true
					if !byCall {
						b.reconcile(t)
					} else {
						r := b.mustPay(t, testURL)
						require.Equal(t, StatusReplayed, r.Status)
						require.Equal(t, content, r.Whole.Body)
					}
					require.Equal(t, content, must.Get(b.store.Content(t.Context(), p.ID))(t).Body)
					require.Equal(t, history.Settled, b.only(t).State)
					require.Len(t, b.seller.sent(), 1)
					require.Empty(t, b.pending.ids())
				})
			}
		}
	}
}

// Memory is bounded: what is too much for it is the seller's to give again, for the same signed bytes.
func TestWhatCannotBeKept(t *testing.T) {
	var u pendingWrites
	of := func(size int) history.Outcome {
		return history.Outcome{Content: &history.Content{Body: make([]byte, size)}}
	}
	require.True(t, u.keep("a", of(maxPending)))
	require.False(t, u.keep("b", of(1)))
	u.drop("a")
	require.True(t, u.keep("b", of(1)))
}

// Whoever writes a command into config.toml has not started it by calling it: its owner has to
// seal it first.
func TestUnsealedRulesStartNoServer(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Guard = unsealed{historytest.Guard{Store: b.store}}
	q := Request{Request: seller.Request{Method: seller.CallTool, URL: "mcp://planted#tool"}}
	code(t, x402.PolicyUnsealed, must.Err(b.Pay(t.Context(), q)))
	code(t, x402.PolicyUnsealed, must.Err(b.Estimate(t.Context(), q)))
	require.Zero(t, b.seller.asked)
	must.Get(b.Estimate(t.Context(), get(testURL)))(t) // a URL starts nothing
	require.Equal(t, 1, b.seller.asked)
}

// Whoever writes a node of theirs into config.toml has freed no budget by asking it: what it says
// is no evidence.
func TestUnsealedRulesAskNoNode(t *testing.T) {
	b := newBench(t, "10000", honest)
	r := b.mustPay(t, testURL+"?claimed")
	b.seller.script = silent
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	list := b.rows(t)

	b.chain.settled, b.chain.dead = nil, map[string]bool{} // their chain
	for _, p := range list {
		b.chain.dead[p.Evidence.Nonce] = true
		b.later()
	}
	b.Guard = unsealed{historytest.Guard{Store: b.store}}
	code(t, x402.PolicyUnsealed, must.Err(b.Reconcile(t.Context())))
	sent := len(b.seller.sent())
	b.mustRefuse(t, x402.PolicyUnsealed, testURL)
	require.Len(t, b.seller.sent(), sent, "and nothing that is signed goes out once more")
	require.Equal(t, history.Unknown, must.Get(b.store.Payment(t.Context(), list[0].ID))(t).State)
	require.Equal(t, history.Settled, must.Get(b.store.Payment(t.Context(), r.PaymentID))(t).State)

	b.Guard = historytest.Guard{Store: b.store}
	report := b.reconcile(t)
	require.Equal(t, Report{Checked: 2, Failed: 2}, report)
}

// One host has one name, however it is spelled: neither a denial nor a host's own budget is got
// round by another spelling.
func TestOneHostOneName(t *testing.T) {
	for url, want := range map[string]string{
		"https://API.Example:443/x": "api.example", "https://api.example:8443": "api.example:8443",
		"http://127.0.0.1:80/":                "127.0.0.1",
		"https://[2606:4700::1111]/":          "[2606:4700::1111]",
		"https://[2606:4700:0:0:0:0:0:1111]/": "[2606:4700::1111]",
		"https://[2606:4700::0.0.17.17]:8443": "[2606:4700::1111]:8443", "https://1.1.1.1/": "1.1.1.1",
		"https://[::ffff:1.1.1.1]/":     "1.1.1.1",
		"https://[::ffff:101:101]:444/": "1.1.1.1:444",
	} {
		t.Run(url, func(t *testing.T) { require.Equal(t, want, HostOf(url), url) })
	}
}

// A lost payment is found among any number of others for the same request that somebody waits for.
func TestALostPaymentAmongMany(t *testing.T) {
	b := newBench(t, "100", silent)
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	lost := b.only(t)
	funds := must.Get(b.chain.Funds(t.Context(), testNetwork, x402.AssetInfo{}))(t)
	other := openBench(t, b.home, b.chain, "100", silent) // another process, whose clients wait
	for range 101 {
		h := history.Hold{Payment: lost, Funds: funds}
		h.Payment.ID = ""
		must.Get(historytest.Reserve(t.Context(), other.store, h))(t)
	}
	require.Equal(t, lost.ID, b.mustRefuse(t, x402.OutcomeUnknown, testURL).PaymentID)
	require.Equal(t, 1, b.chain.signed)
}
