package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"rsc.io/qr"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme/vault"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// funded is a chain on which the wallet has something, or whose node is silent.
type funded struct {
	*evm.Exact // for what is not called
	mu         sync.Mutex
	asked      int
	balance    map[string]uint64 // by network; the node of others is silent
	waits      bool
	vault      string            // the owner's, on every network
	delegated  uint64            // of the balance
	allowed    map[string]uint64 // by network: of the account of the owner
}

func (c *funded) Address() string                                  { return "0xEvmAddress" }
func (c *funded) VaultOn(string) string                            { return c.vault }
func (c *funded) Clock(context.Context, string) (time.Time, error) { return time.Time{}, nil }

func (c *funded) Funds(ctx context.Context, network string, _ x402.AssetInfo) (x402.Funds, error) {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
	balance, there := c.balance[network]
	if c.waits && !there {
		<-ctx.Done()
	}
	if !there {
		return x402.Funds{}, errors.New("silent")
	}
	amount := money.NewAmount(balance)
	funds := x402.Funds{Source: "0xEvmAddress", Balance: amount, Free: amount}
	if c.delegated > 0 {
		delegated := money.NewAmount(c.delegated)
		funds.Delegated, funds.Free = &delegated, delegated
	}
	if allowed, owned := c.allowed[network]; owned {
		funds.Allowance = &x402.OwnerAllowance{Owner: "0xOwner", Approved: money.NewAmount(allowed)}
	}
	return funds, nil
}

// vaultOf is the owner's vault on that chain: so much is in it, and so much of it may be spent.
type vaultOf struct {
	vault.Source
	evm.Exact   // for what is not called
	holds, free uint64
}

func (v *vaultOf) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	return x402.Funds{Source: "0xVault", Balance: money.NewAmount(v.holds),
		Free: money.NewAmount(v.free)}, nil
}

// What an owner lets the agent spend is shown as what it is: delegated of the balance, in a vault, or in
// their own account, also where the agent itself has nothing; and what lies with sellers as deposits.
func TestWhatOwnersLet(t *testing.T) {
	b := opened(t)
	c := &funded{delegated: 2_500_000, balance: map[string]uint64{"eip155:8453": 12_340_000}}
	b.wallet.Networks, b.wallet.EVM = []string{"eip155:8453"}, c
	page := b.get("/").body
	require.Contains(t, page, "The agent may spend 2.5 of it (delegated).")
	require.NotContains(t, page, "Deposits with sellers")

	c.delegated, c.allowed = 0, map[string]uint64{"eip155:8453": 7_000_000}
	c.balance["eip155:8453"] = 0
	c.vault, b.wallet.Engine.Owners = "0xVault", &vaultOf{holds: 50_000_000, free: 1_250_000}
	row := history.Channel{Service: "0x01", Key: "0xEvmAddress", Server: "deep.example",
		Network: "eip155:8453", Source: "0xEvmAddress", ID: "0x01", Claimed: money.NewAmount(30_000)}
	usdc := b.wallet.Engine.Assets.Assets("eip155:8453")[0]
	require.NoError(t, b.store.SaveChannel(t.Context(), row.
		WithSigned(history.BatchSigned{Config: x402.ChannelConfig{Token: usdc.Address}}).
		WithBook(history.BatchBook{Funds: money.NewAmount(100_000)})))
	_ = b.ask(1) // the ledger has come on: the chains are asked again
	page = b.get("/").body
	require.Regexp(t, `(?s)50 <small>USDC.*?In your vault, of which the agent may spend 1\.25 now`, page)
	require.Regexp(t, `(?s)>0 <small>USDC.*?The agent may take 7 of what is in your account .*0xOwner`, page)
	require.Regexp(t, `(?s)Deposits with sellers.*deep\.example.*\$0\.07.*On Base`, page)
	require.Contains(t, page, "x402-wallet channel refund deep.example")
}

// What lies on the chains is shown, nothing is not confused with no answer, and nodes are asked once a minute
// and after each payment.
func TestBalances(t *testing.T) {
	b := opened(t)
	c := &funded{waits: true, balance: map[string]uint64{"eip155:8453": 12_340_000, "eip155:137": 0}}
	b.wallet.Networks, b.wallet.EVM = []string{"eip155:8453", "eip155:137", "eip155:42161"}, c
	page := b.get("/").body
	require.Regexp(t, `(?s)<strong>Base</strong> <span class="sum">12\.34 <small>USDC`, page)
	require.Contains(t, page, "Nothing on Polygon")
	require.Contains(t, page, "no answer from Arbitrum")
	require.Equal(t, 3, c.asked)
	b.get("/")
	require.Equal(t, 3, c.asked)
	_ = b.ask(1) // the ledger has come on
	b.get("/")
	require.Equal(t, 6, c.asked)

	money := b.get("/money").body
	require.Contains(t, money, `<p class="copy mono">0xEvmAddress</p>`)
	require.Contains(t, money, "For Base, Polygon, Arbitrum")
	require.Contains(t, money, "SoLAddress")
}

// What is drawn is the code: module by module, with its margin.
func TestQRCode(t *testing.T) {
	code := must.Get(qr.Encode("0x036CbD53842c5426634e7929541eC2318f3dCF7e", qr.L))(t)
	dark := map[[2]int]bool{}
	runs := regexp.MustCompile(`M(\d+) (\d+)h(\d+)v1h-(\d+)z`)
	for _, run := range runs.FindAllStringSubmatch(drawn(code), -1) {
		var x, y, n, back int
		must.Get(fmt.Sscan(strings.Join(run[1:], " "), &x, &y, &n, &back))(t)
		require.Equal(t, n, back)
		for i := range n {
			dark[[2]int{x + i - quietZone, y - quietZone}] = true
		}
	}
	for y := range code.Size {
		for x := range code.Size {
			require.Equal(t, code.Black(x, y), dark[[2]int{x, y}])
		}
	}
}

// Stopping takes one click on the page's own form, and no passphrase; nobody else's form does it.
func TestFreezing(t *testing.T) {
	b := opened(t)
	require.Contains(t, b.get("/").body, "Stop all payments")
	shown := regexp.MustCompile(`name="shown" value="(\w+)"`).FindStringSubmatch(b.get("/freeze").body)
	form, at := url.Values{"shown": {shown[1]}}.Encode(), b.base+"/freeze"
	for name, post := range map[string]func() answer{
		"nothing shown": func() answer { return b.send("POST", at, "shown=", nil) },
		"another form":  func() answer { return b.send("POST", at, "shown=00"+shown[1], nil) },
		"another origin": func() answer {
			return b.send("POST", at, form, func(r *http.Request) {
				r.Header.Set("Origin", "https://evil.example")
			})
		},
		"by GET": func() answer { return b.send("GET", at+"?"+form, "", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			post()
			require.Empty(t, must.Get(b.store.Freezes(t.Context()))(t))
		})
	}
	done := b.send("POST", at, form, nil)
	require.Equal(t, http.StatusSeeOther, done.status)
	list := must.Get(b.store.Freezes(t.Context()))(t)
	require.Len(t, list, 1)
	want := history.Freeze{By: "owner", Why: "the owner stopped it on the dashboard", At: list[0].At}
	require.Equal(t, want, list[0])
	page := b.get("/").body
	require.Contains(t, page, "Every payment is stopped")
	require.NotContains(t, page, b.place+"/freeze")
	require.Contains(t, b.get("/freeze").body, "x402-wallet unfreeze")
}

// The first page loads itself again, pages with something to type do not, and nobody's being there is not
// somebody's looking.
func TestUpdatesByItself(t *testing.T) {
	b := openedFor(t, time.Hour)
	a := b.ask(1)
	page := b.get("/?range=12m")
	require.Equal(t, "20; url="+b.place+"/?range=12m&update=auto", page.header.Get("Refresh"))
	require.Contains(t, page.body, "updates itself every 20 seconds")
	for _, path := range []string{"/history", "/approvals/" + a.ID, "/money", "/freeze", "/?update=off"} {
		require.Empty(t, b.get(path).header.Get("Refresh"), path)
	}
	looked := func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.looked }
	before := looked()
	b.get("/?update=auto")
	require.Equal(t, before, looked())
	b.get("/")
	require.True(t, looked().After(before))

	b = openedFor(t, updateEvery) // it would have ended by then: the last page stays
	require.Empty(t, b.get("/").header.Get("Refresh"))
}

// One bar among empty days says less than its hours, and one hour less than a sentence.
func TestOneActiveDay(t *testing.T) {
	b := opened(t)
	now := time.Now().UTC()
	day := now.Truncate(24*time.Hour).AddDate(0, 0, -3)
	b.pays("pay_1", "https://api.example/a", "settled", 1000, day.Add(10*time.Hour))
	for _, span := range []string{"30d", "12m"} {
		page := b.get("/?range=" + span).body
		require.Contains(t, page, "All of it at one time: <strong>"+day.Format("Mon 2 Jan 2006")+
			", 10:00 to 11:00")
		require.NotContains(t, page, `class="plot"`)
	}
	b.pays("pay_2", "https://api.example/a", "settled", 3000, day.Add(13*time.Hour))
	page := b.get("/").body
	require.Contains(t, page, "All of it on <strong>"+day.Format("Mon 2 Jan 2006")+"</strong>")
	require.Equal(t, 24, strings.Count(page, " spent, $0"))
	require.Contains(t, page, "13:00: $0.003 spent")
	b.pays("pay_3", "https://api.example/a", "settled", 1000, day.AddDate(0, 0, -1))
	page = b.get("/").body
	require.NotContains(t, page, "All of it")
	require.Contains(t, page, `class="plot"`)
}

// Where agents share the wallet, the overview says what each spent, and the history and its exports can be
// those of one; nowhere else is anything said of agents.
func TestAgents(t *testing.T) {
	b := opened(t)
	now := time.Now().UTC()
	b.pays("pay_n", "https://api.example/nameless", "settled", 10_000, now)
	for _, page := range []string{"/", "/history"} {
		require.NotContains(t, b.get(page).body, "gent</", page)
	}

	b.wallet.Engine.Rules.Agents = map[string]budget.Agent{"ann": {}, "bob": {}}
	b.wallet.AgentLabels = map[string]string{"ann": "team=research"}
	b.paysAs("ann", "pay_a", "https://api.example/anns", "settled", 20_000, now)
	b.paysAs("bob", "pay_b", "https://api.example/bobs", "settled", 40_000, now)

	overview := b.get("/").body
	_, agents, found := strings.Cut(overview, "By agent")
	require.True(t, found)
	require.Regexp(t, `(?s)bob.*\$0\.04.*ann.*\$0\.02.*all others.*\$0\.01`, agents)

	list := b.get("/history?agent=ann").body
	require.Contains(t, list, "api.example/anns")
	require.NotContains(t, list, "api.example/bobs")
	require.NotContains(t, list, "api.example/nameless")
	require.Contains(t, list, "<option selected>ann</option>")
	require.Contains(t, list, "agent=ann&amp;format=csv", "what is exported is what is shown")
	all := b.get("/history").body
	require.Contains(t, all, "<small>ann</small>")

	written := b.get("/export?agent=ann&format=csv").body
	require.Equal(t, 2, strings.Count(written, "\n"), written)
	require.Contains(t, written, ",ann,team=research\n")
	require.Contains(t, b.get("/payments/pay_a").body, "<dt>Agent</dt>")
	require.NotContains(t, b.get("/payments/pay_n").body, "<dt>Agent</dt>")
}

// The owner sees what is left of each team's budgets.
func TestTeamsOnTheOverview(t *testing.T) {
	b := opened(t)
	b.wallet.Engine.Rules.Agents = map[string]budget.Agent{"ann": {}, "bob": {}}
	b.wallet.Engine.Rules.Teams = budget.Teams{"research": {Agents: []string{"a*"},
		Day: new(money.Dollars(50_000))}}
	now := time.Now().UTC()
	b.paysAs("ann", "pay_a", "https://api.example/anns", "settled", 20_000, now)
	b.paysAs("bob", "pay_b", "https://api.example/bobs", "settled", 40_000, now)
	_, team, found := strings.Cut(b.get("/").body, "Team research, day")
	require.True(t, found)
	team, _, _ = strings.Cut(team, "</li>")
	require.Contains(t, team, "$0.03", "what is left to it: %s", team)
	require.NotContains(t, b.get("/").body, "Team research, month")

	// Its payments alone, and those of agents that no rule names any more.
	b.wallet.Engine.Rules.Agents = nil
	list := b.get("/history?team=research").body
	require.Contains(t, list, "api.example/anns")
	require.NotContains(t, list, "api.example/bobs")
	require.Contains(t, list, "<option selected>research</option>")
	require.Contains(t, list, "<option>bob</option>")
	require.Contains(t, list, "format=csv&amp;team=research")
	require.Equal(t, 2, strings.Count(b.get("/export?team=research&format=csv").body, "\n"))
	require.Contains(t, b.get("/history?team=sales").body, "there is no team")
}

// Who asks is shown where a person decides, and a part of what they decide on.
func TestAnApprovalSaysWhoAsks(t *testing.T) {
	b := opened(t)
	a := b.askAs("ann", 1)
	require.Contains(t, b.get("/").body, "Asked by <strong>ann</strong>")
	require.Contains(t, b.get("/approvals/"+a.ID).body, "<dt>Asked by</dt><dd>ann</dd>")
	form := b.form(a.ID, "approve", "right")
	b.sql(`UPDATE approvals SET agent = 'eve' WHERE id = ?`, a.ID)
	got := b.send("POST", b.base+"/approvals/"+a.ID, form, nil)
	require.Equal(t, http.StatusConflict, got.status)
	require.Contains(t, got.body, "<dd>eve</dd>")
	nameless := b.ask(2)
	require.NotContains(t, b.get("/approvals/"+nameless.ID).body, "Asked by")
}
