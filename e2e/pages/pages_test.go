//go:build chromium

// Package pages looks at the wallet's pages with a real browser: make screenshots.
package pages

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var pictures = flag.String("pictures", "", "where the screenshots go")

func TestMain(m *testing.M) {
	flag.Parse()
	if *pictures == "" {
		dir, err := os.MkdirTemp("", "x402-wallet-pictures-")
		if err != nil {
			panic(err)
		}
		*pictures = dir
	}
	if err := os.MkdirAll(*pictures, 0o700); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func serve(t *testing.T, home testworld.Home, bin string) *url.URL {
	t.Helper()
	cmd := home.Command(t.Context(), bin, "dashboard", "--json")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	var said struct{ URL string }
	require.NoError(t, json.NewDecoder(bufio.NewReader(out)).Decode(&said))
	return must.Get(url.Parse(said.URL))(t)
}

// From the empty wallet over the demo's purchases and an approval by keyboard alone to a month of
// an agent's work: each page in light, dark and narrow, by the rules of WCAG, without a complaint
// of the browser's and without a request to anybody else.
func TestDashboard(t *testing.T) {
	bin := testworld.Build(t)
	world := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { _ = world.Close() })
	home := testworld.NewHome(t,
		world.Config(sandbox.Rules{ApproveAbove: "0.10",
			Extra: "[budget.hosts.\"127.0.0.1\"]\nday = \"2.00\"\n"}))
	world.Fund(home.EVM, 10*sandbox.USDC)
	world.Delegate(home.Solana, sandbox.USDC)
	at := serve(t, home, bin)
	base := at.Scheme + "://" + at.Host + strings.TrimSuffix(at.Path, filepath.Base(at.Path))
	b := open(t)
	pays := func(path string) (string, error) {
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		out, err := home.Command(ctx, bin, "pay", "--json", world.SellerURL+path).Output()
		return string(out), err
	}

	b.visit(at.String())
	require.Contains(t, b.text(), "Nothing was paid yet")
	b.shoot("empty")
	b.visit(base + "history")
	b.glance("empty-history")
	b.visit(base + "money")
	require.Contains(t, b.text(), home.EVM)
	var selected string
	b.click(".copy")
	b.eval(`getSelection().toString()`, &selected)
	require.Equal(t, home.EVM, strings.TrimSpace(selected), "one click selects all of it")
	b.shoot("money")

	for _, path := range []string{"/weather", "/solana", "/weather?city=Oslo"} {
		t.Run(path, func(t *testing.T) { // the demo's
			must.Get(pays(path))(t)
		})
	}
	b.visit(base)
	require.Contains(t, b.text(), "Latest payments")
	require.Contains(t, b.text(), "All of it at one time")
	b.shoot("paid")

	asked, err := pays("/report")
	require.Error(t, err)
	require.Contains(t, asked, "APPROVAL_REQUIRED")
	b.visit(base)
	approve(t, b)
	bought, err := pays("/report")
	require.NoError(t, err, bought)
	verified := must.Get(home.Command(t.Context(), bin, "history", "verify", "--seals").Output())(t)
	require.Contains(t, string(verified), `"seals": true`)

	b.visit(base)
	b.tabTo("GET " + world.SellerURL)
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "What it bought")
	b.eval(`document.querySelectorAll("details").forEach(d => d.open = true)`, nil)
	b.shoot("payment")

	if day := earlierToday(t, home.Dir); day {
		b.visit(base)
		require.Contains(t, b.text(), "All of it on")
		b.shoot("one-day")
	}
	busy(t, home.Dir)
	deposits(t, home.Dir)
	for _, span := range []string{"24h", "30d", "12m"} {
		b.visit(base + "?range=" + span)
		b.glance("busy-" + span)
	}
	b.visit(base)                                             // thirty days
	b.eval(`document.querySelector(".alerts").remove()`, nil) // of the test's cheap keystore
	b.shoot("readme")
	b.tabTo("Stop all payments")
	b.leads(func() { b.press("Enter") })
	b.glance("freeze")
	b.tabTo("Stop all payments now")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "Every payment is stopped")
	b.glance("frozen")
	b.visit(base + "history?url=api&status=settled")
	require.Regexp(t, regexp.MustCompile(`Spent and held in all: \$[\d.]+ in USDC`), b.text())
	b.shoot("history")
	b.quiet(at.Host)

	b.visit(at.String())
	require.Contains(t, b.text(), "Overview", "who opened it may use its first address again")
	other := open(t)
	other.visit(at.String())
	require.Contains(t, other.text(), "was used already")
	other.glance("used")
}

// approve is what a person does, by keyboard alone: the wrong passphrase first.
func approve(t *testing.T, b *browser) {
	t.Helper()
	require.Contains(t, b.text(), "Waiting for you")
	b.shoot("pending")
	b.tabTo("Review and decide")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "Approve this payment?")
	b.shoot("approval")
	b.tabTo("Passphrase of the wallet")
	b.write("wrong horse battery")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "That was not the passphrase.")
	b.glance("approval-wrong")
	b.tabTo("Passphrase of the wallet")
	b.write(testworld.Passphrase)
	b.tabTo("Approve $0.50")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "You approved this payment")
	b.glance("approved")
}

// deposits has something lie with a seller.
func deposits(t *testing.T, home string) {
	t.Helper()
	store := must.Get(ledgers.Open(t.Context(), home, historytest.Options()))(t)
	defer store.Close()
	base := x402.NewRegistry(nil).Assets("eip155:8453")[0]
	row := history.Channel{Service: "0x01", Key: "0x02", Server: "mcp.research.example",
		Network: base.Network, Source: "0x02", ID: "0x01", Claimed: money.NewAmount(320_000)}
	require.NoError(t, store.SaveChannel(t.Context(), row.
		WithSigned(history.BatchSigned{Config: x402.ChannelConfig{Token: base.Address}}).
		WithBook(history.BatchBook{Funds: money.NewAmount(1_000_000)})))
}

const row = `INSERT INTO payments (id, session, state, proof, created_at, updated_at, fingerprint, method, url, target, host, network, scheme, dialect,
			asset, symbol, amount, usd, pay_to, source, delivered, requirement) VALUES (?, 's', ?, ?, ?, ?, x'00', 'GET', ?, '', ?, ?, 'exact', 'v2', '0x', 'USDC', ?, ?, '0xpayee', '', 1, '{}')`

func ledger(t *testing.T, home string) *sql.DB {
	t.Helper()
	return must.Get(sql.Open("sqlite", "file://"+filepath.ToSlash(filepath.Join(home, "ledger.db"))+
		"?_pragma=busy_timeout(5000)"))(t)
}

// earlierToday adds payments in other hours of this day, where it has any.
func earlierToday(t *testing.T, home string) bool {
	t.Helper()
	db := ledger(t, home)
	defer db.Close()
	now := time.Now().UTC()
	for hour := range now.Hour() {
		at := now.Truncate(24 * time.Hour).Add(time.Duration(hour) * time.Hour).UnixMicro()
		price := 1000 * (1 + hour*7%5)
		must.Get(db.Exec(row, fmt.Sprintf("pay_f%031x", hour), "settled", "chain", at, at,
			"https://maps.example/api/route", "maps.example", "eip155:8453", fmt.Sprint(price), price))(t)
	}
	return now.Hour() > 0
}

// busy is a year of an agent's work, put straight into the ledger: no sandbox lives that long.
func busy(t *testing.T, home string) {
	t.Helper()
	db := ledger(t, home)
	defer db.Close()
	tx := must.Get(db.Begin())(t)
	r := rand.New(rand.NewPCG(4, 2))
	sellers := []struct {
		host, path string
		price      int
	}{{"api.weather.example", "/v1/forecast?city=Lisbon", 4000},
		{"search.example", "/api/query?q=solar+panels", 10000}, {"pdf-tools.example", "/api/convert", 25000},
		{"maps.example", "/api/route?from=A&to=B", 2000}, {"news.example", "/api/article/48213", 15000},
		{"translate.example", "/api/v2/text", 1000}, {"images.example", "/render/api", 60000},
		{"data.market.example", "/api/prices/2026", 100000}, {"mcp.research.example", "/mcp#deep_search",
			40000}, {"dns.example", "/api/lookup", 500}}
	const n = 900
	now := time.Now()
	for i := range n {
		ago := time.Duration(float64(365*24*time.Hour) * (1 - float64(i)/n) * (1 - float64(i)/n))
		at := now.Add(-ago - time.Minute).UnixMicro()
		s := sellers[min(r.IntN(len(sellers)), r.IntN(len(sellers)))]
		state, proof := "settled", "chain"
		switch r.IntN(30) {
		case 0:
			state, proof = "failed", ""
		case 1, 2, 3:
			proof = "claimed"
		}
		if i > n-3 {
			state, proof = "unknown", ""
		}
		network := []string{"eip155:8453", "eip155:8453", "eip155:8453",
			"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "eip155:137"}[r.IntN(5)]
		must.Get(tx.Exec(row,
			fmt.Sprintf("pay_%032x", i), state, proof, at, at, "https://"+s.host+s.path, s.host, network,
			fmt.Sprint(s.price), s.price))(t)
	}
	require.NoError(t, tx.Commit())
}
