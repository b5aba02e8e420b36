package app

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/paywallfile"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// at returns an app on one home of a user whose other files lie in user.
func at(t *testing.T, user, home string) *app {
	t.Helper()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "AppData"} {
		t.Setenv(name, user)
	}
	return &app{version: "test", home: home, log: slog.New(slog.DiscardHandler),
		checkpoints: &seal.CheckpointCache{}}
}

const base = "eip155:8453"

var (
	shop = []paywall.Payee{{Network: base, Address: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"}}
	both = append(shop, paywall.Payee{Network: base, Address: "0x857b06519E91e3A54538791bDbb0E22373e36b66"})
)

// All paywalls of a user that are paid to one address share one book of sales, however the path of its home
// is spelt; the same address on another network is a different payee.
func TestOneBookForEachPayee(t *testing.T) {
	user, one, other := t.TempDir(), t.TempDir(), t.TempDir()
	sold := testworld.NewBook(t, one)
	testworld.NewBook(t, other)
	require.NoError(t, at(t, user, one).claimPayees(t.Context(), shop, sold))
	require.NoError(t, at(t, user, one).claimPayees(t.Context(), shop, sold), "again")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(one, link))
	require.NoError(t, at(t, user, link).claimPayees(t.Context(), shop, sold))
	require.NoError(t, at(t, user, other).claimPayees(t.Context(),
		[]paywall.Payee{{Network: "eip155:84532", Address: shop[0].Address}}, sold))

	err := at(t, user, other).claimPayees(t.Context(), both, sold)
	requireCode(t, err, x402.SetupFailed)
	require.ErrorContains(t, err, one)
	require.Contains(t, x402.AsError(err).Hint, "X402_WALLET_HOME="+one)

	require.NoError(t, os.Remove(filepath.Join(one, book.FileName)))
	err = at(t, user, other).claimPayees(t.Context(), shop, sold)
	require.True(t, x402.HasCode(err, x402.SetupFailed), "a home that is gone may be away only: %v", err)
	err = at(t, t.TempDir(), other).claimPayees(t.Context(), shop, sold)
	require.NoError(t, err, "another user cannot be seen")
}

// A start that is refused for one address, or that fails later, claims none.
func TestAFailedStartClaimsNothing(t *testing.T) {
	user, first, failed, right := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "failed"), t.TempDir()
	sold := testworld.NewBook(t, first)
	free, taken := both[1:], shop
	claim := func(home string, payees ...paywall.Payee) error {
		return at(t, user, home).claimPayees(t.Context(), payees, sold)
	}
	require.NoError(t, claim(first, taken...))
	requireCode(t, claim(failed, free[0], taken[0]), x402.SetupFailed)

	file := filepath.Join(t.TempDir(), "shop.toml")
	busy := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = busy.Close() }()
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		s := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
		s.AddTool(&mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"}}, nil)
		return s
	}, nil))
	defer server.Close()
	for why, behind := range map[string]string{
		"does not speak MCP": "command = ['" + filepath.Join(t.TempDir(), "missing") +
			"']\nsandbox = false\n",
		"nothing can be served": "url = '" + server.URL + "'\nlisten = '" + busy.Addr().String() + "'\n",
	} {
		require.NoError(t, os.WriteFile(file, []byte(behind+"network = 'base'\npay_to = '"+free[0].Address+
			"'\n[tools.search]\nprice = '0.01'\n"), 0o600))
		require.ErrorContains(t, at(t, user, failed).ServePaywall(t.Context(), file, ""), why)
	}
	require.NoError(t, claim(right, free...))
}

// Of several paywalls with the same payee that start at once in different homes, exactly one sells.
func TestOneBookInARace(t *testing.T) {
	user, homes := t.TempDir(), []string{t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()}
	var all sync.WaitGroup
	errs := make([]error, len(homes))
	for i, home := range homes {
		sold := testworld.NewBook(t, home)
		a := at(t, user, home)
		all.Go(func() { errs[i] = a.claimPayees(t.Context(), shop, sold) })
	}
	all.Wait()
	started := 0
	for _, err := range errs {
		if err == nil {
			started++
		}
	}
	require.Equal(t, 1, started, "%v", errs)
}

// A claim that cannot be found or read is an error, not permission.
func TestUnreadablePayeeClaims(t *testing.T) {
	home, user := t.TempDir(), t.TempDir()
	sold := testworld.NewBook(t, home)
	a := at(t, user, home)
	require.NoError(t, a.claimPayees(t.Context(), shop, sold))
	files, err := filepath.Glob(filepath.Join(user, "*", "payees", "*.json"))
	if len(files) == 0 { // Linux and macOS put a directory of their own between
		files, err = filepath.Glob(filepath.Join(user, "*", "*", "payees", "*.json"))
	}
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o600))
	err = a.claimPayees(t.Context(), shop, sold)
	requireCode(t, err, x402.SetupFailed)
	require.Contains(t, x402.AsError(err).Hint, files[0])

	a = at(t, "", home)
	err = a.claimPayees(t.Context(), shop, sold)
	requireCode(t, err, x402.SetupFailed)
	require.Contains(t, x402.AsError(err).Hint, "shared_pay_to")
}

// Homes with one database of PostgreSQL are one book of sales.
func TestOneBookOfSeveralHomes(t *testing.T) {
	user, server := t.TempDir(), pgtest.Start(t)
	open := func(database string) (*app, *book.Book) {
		a := at(t, user, t.TempDir())
		sold := must.Get(book.Make(t.Context(), book.Place{Server: &postgres.Server{URL: database}}))(t)
		t.Cleanup(func() { sold.Close() })
		return a, sold
	}
	database := server.Database(t)
	for range 2 {
		a, sold := open(database)
		require.NoError(t, a.claimPayees(t.Context(), shop, sold))
	}
	a, sold := open(server.Database(t))
	requireCode(t, a.claimPayees(t.Context(), shop, sold), x402.SetupFailed)
}

// A paywall with an explicit pay_to needs no wallet: it creates its book of sales and finds it again. One
// that is paid to the wallet needs one.
func TestAPaywallWithoutAWallet(t *testing.T) {
	home := filepath.Join(t.TempDir(), "new")
	a := at(t, t.TempDir(), home)
	file := filepath.Join(t.TempDir(), "shop.toml")
	load := func(payTo string) *paywallfile.File {
		require.NoError(t, os.WriteFile(file, []byte("command = ['server']\nnetwork = 'base'\n"+payTo+
			"[tools.search]\nprice = '0.01'\n"), 0o600))
		return must.Get(paywallfile.Load(file))(t)
	}
	requireCode(t, must.Err(a.openPaywallHome(t.Context(), load(""))), x402.WalletNotFound)
	require.NoDirExists(t, home)

	paid := load("pay_to = '" + shop[0].Address + "'\n")
	var sold book.Sale
	for i := range 2 {
		h := must.Get(a.openPaywallHome(t.Context(), paid))(t)
		options := must.Get(a.paywallOptions(paid, h))(t)
		require.Equal(t, shop, must.Get(paywall.New(options))(t).Payees())
		if i == 0 {
			sold = must.Get(h.book.OpenSale(t.Context(), book.Sale{UniqueKey: "a payment",
				Requirement: []byte("{}"), Payload: []byte("{}")}))(t)
		}
		require.Equal(t, sold.ID, must.Get(h.book.SaleByKey(t.Context(), "a payment"))(t).ID)
		require.NoError(t, h.Close())
	}
	require.NoFileExists(t, filepath.Join(home, history.FileName), "nothing is paid there")
}

// The book of sales lies where the ledger does, and is copied with it, unless a sale is under way.
func TestCopyLedger_WithItsBook(t *testing.T) {
	a := at(t, t.TempDir(), t.TempDir())
	testworld.NewStore(t, a.home)
	sold := testworld.NewBook(t, a.home)
	sale := must.Get(sold.OpenSale(t.Context(), book.Sale{UniqueKey: "a payment", Requirement: []byte("{}"),
		Payload: []byte("{}")}))(t)
	cluster := pgtest.Start(t, pgtest.TCP)
	server := cluster.TCPURL(t, cluster.Database(t))

	require.ErrorContains(t, must.Err(a.CopyLedger(t.Context(), server)), "1 sales are under way")
	store := must.Get(a.OpenLedger(t.Context()))(t)
	require.NoError(t, store.NotFrozen(t.Context(), "", ""))
	require.NoError(t, store.Close())

	sale.State = book.SaleFailed
	require.NoError(t, sold.MoveSale(t.Context(), sale))
	must.Get(a.CopyLedger(t.Context(), server))(t)
	require.NoError(t, os.WriteFile(filepath.Join(a.home, config.FileName),
		[]byte("[ledger]\nurl = '"+server+"'\n"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(a.home, book.FileName)))
	copied := must.Get(a.OpenBook(t.Context()))(t)
	defer copied.Close()
	require.Equal(t, sale.ID, must.Get(copied.SaleByKey(t.Context(), "a payment"))(t).ID)
}
