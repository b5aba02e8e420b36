//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// kiosk sells at one URL what the sandbox's seller sells at another, and can hang.
type kiosk struct {
	*httptest.Server
	sells atomic.Pointer[string] // the path at the sandbox's seller
	hangs atomic.Bool            // it takes payments, and does not answer
	paid  chan struct{}          // a payment came while it hung
	asked atomic.Int32
	payee string
}

func newKiosk(t *testing.T, w *world) *kiosk {
	k := &kiosk{paid: make(chan struct{}, 100), payee: w.PayToEVM}
	k.selling("/weather")
	seller := must.Get(url.Parse(w.SellerURL))(t)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(seller)
		r.Out.URL.Path = *k.sells.Load()
	}}
	k.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		k.asked.Add(1)
		isPaid := r.Header.Get("PAYMENT-SIGNATURE") != "" || r.Header.Get("X-PAYMENT") != ""
		if (k.hangs.Load() && isPaid) || r.URL.Path == "/hangs" {
			k.paid <- struct{}{}
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(k.Close)
	return k
}

func (k *kiosk) selling(path string) { k.sells.Store(&path) }

func (k *kiosk) order(name, path, more string) string {
	return fmt.Sprintf("\n[subscriptions.%s]\nurl = %q\nsince = %q\nevery = \"1d\"\nuntil = %q\n"+
		"max = \"0.01\"\ntotal = \"1.00\"\npay_to = [%q]\n%s", name, k.URL+path,
		time.Now().Add(-50*time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339),
		time.Now().AddDate(1, 0, 0).UTC().Format(time.DateOnly), k.payee, more)
}

func subscriber(t *testing.T, rules sandbox.Rules, orders func(*kiosk) string) (w *world, k *kiosk,
	env []string) {
	w, env = householdWith(t, sandbox.Options{}, func(w *world) string {
		k = newKiosk(t, w)
		host := strings.TrimPrefix(k.URL, "http://")
		rules.Extra = orders(k)
		text := strings.Replace(w.rules(rules), "loopback = [", fmt.Sprintf("loopback = [%q, ", host), 1)
		if strings.Contains(rules.Extra, "/hangs") {
			text = strings.Replace(text, "[policy]", "[policy]\ndeadline = \"10s\"", 1)
		}
		return text
	})
	return w, k, append(env, passphraseFile(t))
}

type pass struct {
	Ran []struct {
		Name, State, PaymentID, Price, ApprovalID, Error, Why string
		Free                                                  bool
	}
	Next string
}

func due(t *testing.T, code int, env []string) (p pass) {
	t.Helper()
	out, _ := runs(t, code, env, "subscriptions", "due")
	require.NoError(t, json.Unmarshal([]byte(out), &p), out)
	return p
}

// The owner makes a standing order with their passphrase; each of its slots is bought once, by however many
// processes, and the agent reads what came of it.
func TestASubscriptionIsBoughtOnceInASlot(t *testing.T) {
	t.Parallel()
	w, k, env := subscriber(t, sandbox.Rules{ApproveAbove: "0.0001"}, func(*kiosk) string { return "" })
	c := sit(t, nil, env, "subscribe", k.URL+"/news", "--every", "1d", "--max", "0.01", "--until",
		"2099-01-01", "--total", "0.05", "--name", "news")
	c.sees("Passphrase, to seal these rules: ", 1)
	require.Contains(t, c.text(), "loosens")
	c.types(testPassphrase + "\n")
	require.Contains(t, c.ends(0), "every 1d until 2099-01-01, $0.01 each time and $0.05 in all")

	var at sync.WaitGroup
	var ran atomic.Int32
	for range 4 {
		at.Go(func() { ran.Add(int32(len(due(t, 0, env).Ran))) })
	}
	at.Wait()
	require.Positive(t, ran.Load())
	require.Len(t, w.Settlements(), 1, "one slot is one purchase; above approve_above nobody was asked")
	nothing := due(t, 0, env)
	require.Empty(t, nothing.Ran)
	next := must.Get(time.Parse(time.RFC3339, nothing.Next))(t)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), next, 2*time.Minute)

	var list struct {
		Subscriptions []struct{ Name, Spent, Left, State, ContentURI string }
	}
	out, _ := runs(t, 0, env, "subscriptions")
	require.NoError(t, json.Unmarshal([]byte(out), &list), out)
	require.Equal(t, "0.001", list.Subscriptions[0].Spent)
	require.Equal(t, "0.049", list.Subscriptions[0].Left)

	a := serve(t, env...)
	require.Contains(t, string(a.ask("resources/read", `{"uri":"x402://status"}`)), "addresses")
	require.Contains(t, string(a.ask("resources/list", `{}`)), `"x402://subscriptions/news/content"`)
	require.Contains(t, string(a.ask("resources/read", `{"uri":"x402://subscriptions/news/content"}`)),
		"Lisbon")
	require.Contains(t, string(a.ask("resources/read", `{"uri":"x402://subscriptions/news"}`)), `spent`)
	a.leave()

	out, _ = runs(t, 0, env, "subscriptions", "pause", "news")
	require.Contains(t, out, "paused")
	asked := k.asked.Load()
	require.Empty(t, due(t, 0, env).Ran)
	runs(t, 0, env, "subscriptions", "cancel", "news")
	require.Empty(t, due(t, 0, env).Ran)
	require.Equal(t, asked, k.asked.Load())
}

// subscribe asks the seller once whom it wants to be paid, and pays nothing. Whoever else wants the first
// payment waits for a person.
func TestSubscribe_PinsThePayee(t *testing.T) {
	t.Parallel()
	const other = "0x00000000000000000000000000000000DeaDBeef"
	w, k, env := subscriber(t, sandbox.Rules{ApproveAbove: "0.0001"}, func(*kiosk) string { return "" })
	order := func(name string) string {
		return withPassphrase(t, 0, env, "subscribe", k.URL+"/"+name, "--every", "1d", "--max", "0.01",
			"--until", "2099-01-01", "--total", "0.05", "--name", name)
	}
	require.Contains(t, order("news"), "pays "+w.PayToEVM+" on Base Sepolia")
	require.EqualValues(t, 1, k.asked.Load())
	require.Contains(t, w.configText(t), fmt.Sprintf("pay_to = [%q]", w.PayToEVM))

	k.selling("/free")
	require.Contains(t, order("rates"), "the first payment asks you")
	require.Equal(t, 1, strings.Count(w.configText(t), "pay_to"))
	k.selling("/weather")
	require.Empty(t, w.Settlements())

	require.NoError(t, w.Sell("/weather", sandbox.Product{Price: "0.001", PayTo: other}))
	ran := due(t, 4, env).Ran
	require.Len(t, ran, 2)
	for _, run := range ran {
		require.Equal(t, "waiting", run.State)
		require.Contains(t, run.Why, "the subscription "+run.Name+" pays "+other+" for the first time")
	}
	require.Empty(t, w.Settlements())
	withPassphrase(t, 0, env, "approve", ran[0].ApprovalID)
	require.Equal(t, "done", due(t, 4, env).Ran[0].State)
	require.Len(t, w.Settlements(), 1)
}

// A subscription of an account is paid from its keys, beside the others of the wallet in one pass.
func TestASubscriptionOfAnAccount(t *testing.T) {
	t.Parallel()
	w, k, env := subscriber(t, sandbox.Rules{}, func(k *kiosk) string { return k.order("own", "/own", "") })
	added := withPassphrase(t, 0, env, "account", "add", "research", "--budget", "day=0.01")
	require.Contains(t, added, "the account research")
	var list struct{ Accounts []struct{ EVM string } }
	out, _ := runs(t, 0, env, "account")
	require.NoError(t, json.Unmarshal([]byte(out), &list), out)
	w.Fund(list.Accounts[0].EVM, sandbox.USDC)
	withPassphrase(t, 0, env, "subscribe", k.URL+"/news", "--every", "1d", "--max", "0.01", "--until",
		"2099-01-01", "--total", "0.05", "--name", "news", "--account", "research")
	require.Len(t, due(t, 0, env).Ran, 2)
	payers := map[string]bool{}
	for _, s := range w.Settlements() {
		payers[s.Payer] = true
	}
	require.Len(t, payers, 2, "each account once")
	require.True(t, payers[list.Accounts[0].EVM])
	require.Empty(t, due(t, 0, env).Ran)
}

// Who edited config.toml before the owner adds an account gets nothing sealed unseen: all that changes is
// shown before the passphrase is asked for. What is wrong is said without one.
func TestAnAccountSealsNothingUnseen(t *testing.T) {
	t.Parallel()
	w, _, env := subscriber(t, sandbox.Rules{}, func(*kiosk) string { return "" })
	rules := w.configText(t)
	edited := strings.Replace(rules, "[policy]", "[policy]\nmax_failures = 0", 1)
	require.NotEqual(t, rules, edited)
	w.setConfig(t, edited)
	c := sit(t, nil, env, "account", "add", "research")
	c.sees("Passphrase", 1)
	require.Contains(t, c.text(), "policy.max_failures")
	c.types("not the passphrase\n")
	require.Contains(t, c.ends(4), "INVALID_PASSPHRASE")
	out, _ := runs(t, 0, env, "account")
	require.JSONEq(t, `{"accounts":[]}`, out)

	w.setConfig(t, rules)
	for _, args := range [][]string{{"Research"}, {"research", "--index", "1"},
		{"research", "--budget", "week=1"}} {
		runs(t, 2, env, append([]string{"account", "add"}, args...)...)
	}
	withPassphrase(t, 0, env, "account", "add", "research")
	out, _ = runs(t, 2, env, "account", "add", "research")
	require.Contains(t, out, "there is an account research already")

	a := serve(t, env...)
	require.NotContains(t, string(a.ask("tools/call", `{"name":"x402_check_balance"}`)), `"isError":true`)
	b, ok := tryServe(t, command(t, env, "mcp", "--account", "nobody"))
	require.True(t, ok)
	require.Contains(t, string(b.ask("tools/call", `{"name":"x402_check_balance"}`)), "the wallet has no account")
}

// Whoever can write config.toml orders nothing: the owner sealed what is ordered.
func TestAnUnsealedSubscriptionBuysNothing(t *testing.T) {
	t.Parallel()
	w, k, env := subscriber(t, sandbox.Rules{}, func(k *kiosk) string { return k.order("news", "/news", "") })
	original := w.configText(t)
	for _, edit := range []func(string) string{
		func(text string) string { return text + k.order("mine", "/mine", "") },
		func(text string) string { return strings.Replace(text, `max = "0.01"`, `max = "0.02"`, 1) },
		func(text string) string { return strings.Replace(text, `total = "1.00"`, `total = "2.00"`, 1) },
		func(text string) string { return strings.Replace(text, "/news", "/other", 1) },
		func(text string) string { return strings.Replace(text, `every = "1d"`, `every = "1m"`, 1) },
	} {
		w.setConfig(t, edit(original))
		out, _ := runs(t, 4, env, "subscriptions", "due")
		require.Contains(t, out, "POLICY_UNSEALED")
	}
	require.Empty(t, w.Settlements())
	w.setConfig(t, original)
	require.Equal(t, "done", due(t, 0, env).Ran[0].State)
	require.Len(t, w.Settlements(), 1, "two slots that passed before were not made up for")
}

// An agent proposes; a person accepts, with their passphrase, and nobody else.
func TestAnAgentProposesAndAPersonAccepts(t *testing.T) {
	t.Parallel()
	w, k, env := subscriber(t, sandbox.Rules{}, func(*kiosk) string { return "" })
	a := serve(t, env...)
	propose := func(path string) string {
		return a.call("x402_propose_subscription", fmt.Sprintf(`{"url":%q,"every":"1d","maxAmount":"$0.01",`+
			`"until":%q,"reason":"\u001b[2Jplease accept this at once"}`, k.URL+path,
			time.Now().AddDate(0, 0, 10).UTC().Format(time.DateOnly)))
	}
	answer := propose("/news")
	require.Contains(t, answer, "ask_person")
	id := answer[strings.Index(answer, "prp_"):][:36]
	require.Contains(t, propose("/news"), id, "the very same one is the same")
	for i := range 4 {
		require.Contains(t, propose(fmt.Sprint("/more", i)), "prp_")
	}
	require.Contains(t, propose("/much"), "RATE_LIMITED")
	require.Contains(t, a.call("x402_pay",
		fmt.Sprintf(`{"url":%q,"idempotencyKey":"x402-subscription:news:x:y"}`,
			k.URL+"/news")), "INVALID_ARGUMENT")
	require.Empty(t, due(t, 0, env).Ran)
	require.Zero(t, k.asked.Load())

	c := sit(t, nil, env, "subscriptions", "accept", id, "--name", "news")
	c.sees("Passphrase, to seal these rules: ", 1)
	require.Contains(t, c.text(), `"\x1b[2Jplease accept this at once"`, "quoted, and what is hidden is seen")
	c.types(testPassphrase + "\n")
	c.ends(0)
	require.Equal(t, "done", due(t, 0, env).Ran[0].State)
	require.Len(t, w.Settlements(), 1)
	out, _ := runs(t, 0, env, "subscriptions")
	require.NotContains(t, out, id)
	require.Equal(t, 4, strings.Count(out, "prp_"))
}

// The service buys what is due by itself, and each agent is shown its own.
func TestTheServiceRunsSubscriptions(t *testing.T) {
	t.Parallel()
	alice, bob := "x402w_"+strings.Repeat("a", 43), "x402w_"+strings.Repeat("b", 43)
	w, _, env := subscriber(t, sandbox.Rules{}, func(k *kiosk) string {
		return k.order("news", "/news", "agent = \"alice\"\n") + fmt.Sprintf("[agents.alice]\ntoken = %q\n"+
			"[agents.bob]\ntoken = %q\n", callers.TokenHash(alice), callers.TokenHash(bob))
	})
	s := startService(t, env, "--http", "127.0.0.1:0")
	require.Eventually(t, func() bool { return len(w.Settlements()) == 1 }, time.Minute, 10*time.Millisecond)
	ask := func(token, method, params string) string {
		_, _, body := s.send(s.post(token, s.open(token), fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, lastID.Add(1), method, params)))
		return body
	}
	const read = `{"uri":"x402://subscriptions/news/content"}`
	require.Eventually(t, func() bool { // the answer is written down after it was settled
		return strings.Contains(ask(alice, "resources/read", read), "Lisbon")
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, ask(alice, "resources/list", `{}`), "x402://subscriptions/news")
	require.NotContains(t, ask(bob, "resources/list", `{}`), "x402://subscriptions/news")
	require.NotContains(t, ask(bob, "resources/read", read), "Lisbon")
	require.Contains(t, ask(bob, "resources/read", `{"uri":"x402://subscriptions/news"}`), "not found")
	require.Contains(t, ask(alice, "tools/call", `{"name":"x402_history","arguments":{}}`), `subscription`)
	require.Len(t, w.Settlements(), 1)
}

// A batch as a person makes it: a file, one ceiling, one yes, a line for each; and once more for what is
// missing.
func TestABatchAtATerminal(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{ApproveAbove: "0.0005"})
	file := filepath.Join(t.TempDir(), "pages.jsonl")
	text := `"SELLER/weather"
{"url": "SELLER/weather?city=Porto", "method": "GET", "headers": {"Accept": "text/plain"}}
"SELLER/weather"
"SELLER/free"
"SELLER/expensive"
`
	text = strings.ReplaceAll(text, "SELLER", w.SellerURL)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	buy := []string{"pay", "--batch", file, "--max", "0.01", "--idempotency-key", "tuesday"}

	said := sit(t, nil, env, buy...).ends(4)
	require.Contains(t, said, "2 payments, $0.002 in all")
	id := regexp.MustCompile(`apr_[0-9a-f]{32}`).FindString(said)
	require.Empty(t, w.Settlements())

	c := sit(t, nil, env, "approve", id)
	c.sees("Passphrase, to approve this payment: ", 1)
	require.Contains(t, c.text(), "$0.002 in all, for 2 payments")
	require.Contains(t, c.text(), "/weather?city=Porto")
	c.types(testPassphrase + "\n")
	c.ends(0)

	said = sit(t, nil, env, buy...).ends(3) // one costs more than all may
	t.Log(said)
	require.Regexp(t, `1 +paid +\$0\.001 +http`, said)
	require.Regexp(t, `3 +same as 1`, said)
	require.Regexp(t, `4 +free`, said)
	require.Regexp(t, `5 +AMOUNT_EXCEEDS_MAX`, said)
	require.Contains(t, said, "4 served, 1 not; $0.002 taken from the budgets")
	require.Len(t, w.Settlements(), 2)

	said = sit(t, nil, env, buy...).ends(3)
	require.Regexp(t, `2 +replayed`, said)
	require.Len(t, w.Settlements(), 2)
}

func TestABatchThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, env := household(t, sandbox.Options{}, sandbox.Rules{})
	for text, says := range map[string]string{
		``:                         "the batch is empty",
		`[]`:                       "the batch is empty",
		`"https://a.example" {`:    "request 2 of the batch",
		`{"url":"ftp://a"}`:        "request 1 of the batch",
		`{"uri":"https://a"}`:      "request 1 of the batch",
		`["https://a.example", 7]`: "request 2 of the batch",
	} {
		file := filepath.Join(t.TempDir(), "batch")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Contains(t, sit(t, nil, env, "pay", "--batch", file, "--max", "1").ends(2), says, "%s", text)
	}
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "none").ends(2), "needs --max")
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "none", "--max", "1").ends(2), "no such file")
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "-", "--max", "1", "--network", "base").ends(2),
		"--network is about one request")
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "-", "https://a.example").ends(2), "no argument")
}
