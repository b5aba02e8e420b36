package x402test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/x402test/fault"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m) // also of the clients that pay: their connections end with the sandbox
}

// somebody is an address that nobody here has.
const somebody = "0x857b06519E91e3A54538791bDbb0E22373e36b66"

func buy(t *testing.T, s *Sandbox, a *Account, url string) (status int, body string, r *Receipt) {
	t.Helper()
	answer := must.Get(s.Client(a).Get(url))(t)
	defer answer.Body.Close()
	return answer.StatusCode, string(must.Get(io.ReadAll(answer.Body))(t)), ReceiptOf(answer)
}

// The client pays what is sold by each scheme, on each chain and in each dialect that a buyer pays in, and
// the books have it once.
func TestClientPays(t *testing.T) {
	for _, mainnet := range []bool{false, true} {
		s := New(t, Options{Mainnet: mainnet})
		onEVM, onSolana := s.NewAccount(t, "evm", "10.00"), s.NewAccount(t, "solana", "10.00")
		require.Equal(t, []string{s.EVM, s.Solana}, []string{onEVM.Network, onSolana.Network})
		require.Equal(t, []bool{mainnet, mainnet}, []bool{s.EVM != BaseSepolia, s.Solana != SolanaDevnet})
		for _, row := range []struct {
			path   string
			p      Product
			by     *Account
			amount uint64
		}{
			{"/exact", Product{Price: "0.02"}, onEVM, 20_000},
			{"/v1/exact", Product{}, onEVM, 20_000},
			{"/both", Product{Price: "0.03", Networks: []string{"evm", "solana"}}, onSolana, 30_000},
			{"/v1/both", Product{}, onSolana, 30_000},
			{"/named", Product{Price: "0.04", Networks: []string{s.Solana}}, onSolana, 40_000},
			{"/other", Product{Price: "0.07", PayTo: somebody}, onEVM, 70_000},
		} {
			name := fmt.Sprint(mainnet, row.path)
			url := s.SellerURL + row.path
			if row.p.Price != "" {
				row.p.Content, row.p.MimeType = name, "text/plain"
				require.Equal(t, url, s.Sell(t, row.path, row.p))
			}
			before := len(s.Payments())
			status, body, receipt := buy(t, s, row.by, url)
			require.Equal(t, 200, status, "%s %s", name, body)
			require.NotEmpty(t, body, name)
			require.True(t, receipt.Success, name)
			require.Len(t, s.Payments(), before+1, name)
			p := s.Payments()[before]
			require.Equal(t, []any{row.amount, row.by.Network, receipt.Transaction},
				[]any{p.Amount, p.Network, p.Transaction}, name)
			require.Equal(t, "/"+url[strings.LastIndex(url, "/")+1:], p.Path)
			require.Equal(t, row.path == "/v1/both", p.Nonce == "", name) // it has no memo
			s.AssertPaidOnce(t, Payment{Payer: row.by.Address, Nonce: p.Nonce, Transaction: p.Transaction})
		}
		s.AssertBalance(t, somebody, "0.07")
		s.AssertBalance(t, onSolana.Address, "9.90")
		s.AssertBalance(t, onSolana.TokenAccount, "9.90")
		s.AssertSignedOnce(t, 6)
		asked, served := s.Requests("/exact")
		require.Equal(t, []int{4, 2}, []int{asked, served})
	}
}

// What cannot be paid is an error that says why, and nothing is signed.
func TestClientCannotPay(t *testing.T) {
	s := New(t)
	onSolana, poor := s.NewAccount(t, "solana", "1.00"), s.NewAccount(t, "evm", "0")
	for _, row := range []struct {
		by   *Account
		p    Product
		want string
	}{
		{onSolana, Product{Price: "0.01"}, "the account is on solana:"},
		{poor, Product{Price: "0.01", Asset: somebody}, "has no token"},
	} {
		_, err := s.Client(row.by).Get(s.Sell(t, "/x", row.p))
		require.ErrorIs(t, err, ErrNotPaid)
		require.ErrorContains(t, err, row.want)
	}
	status, _, _ := buy(t, s, poor, s.Sell(t, "/x", Product{Price: "0.01"}))
	require.Equal(t, 402, status, "the chain has not the money")
	s.AssertNothingPaid(t)
	s.AssertSignedOnce(t, 1)
}

// What another scheme asks for is not signed.
func TestClientPaysByExactAlone(t *testing.T) {
	s := New(t)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprintf(w, `{"x402Version":2,"accepts":[{"scheme":"batch-settlement","network":%q,"amount":"1",
			"asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":%q,"maxTimeoutSeconds":60,
			"extra":{"receiverAuthorizer":%q,"withdrawDelay":900,"name":"USDC","version":"2"}}]}`, s.EVM,
			s.PayToEVM, s.PayToEVM)
	}))
	t.Cleanup(shop.Close)
	_, err := s.Client(s.NewAccount(t, "evm", "1.00")).Get(shop.URL)
	require.ErrorIs(t, err, ErrNotPaid)
	require.ErrorContains(t, err, "does not pay by batch-settlement")
}

// A request is sent again with its body and its headers.
func TestClientRepeatsTheRequest(t *testing.T) {
	s := New(t)
	a := s.NewAccount(t, "evm", "1.00")
	seen := []string{}
	plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.Header.Get("X-Mine")+" "+string(body))
		answer := must.Get(plain.Get(s.SellerURL + "/weather"))(t)
		answer.Body.Close()
		if r.Header.Get("PAYMENT-SIGNATURE") == "" {
			w.Header().Set("PAYMENT-REQUIRED", answer.Header.Get("PAYMENT-REQUIRED"))
			w.WriteHeader(http.StatusPaymentRequired)
		}
	}))
	t.Cleanup(shop.Close)
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, shop.URL,
		strings.NewReader("question")))(t)
	r.Header.Set("X-Mine", "yes")
	require.NoError(t, must.Get(s.Client(a).Do(r))(t).Body.Close())
	require.Equal(t, []string{"POST yes question", "POST yes question"}, seen)
}

// The constants are all the faults that there are, and each fault can be asked for.
func TestFaultsAreAll(t *testing.T) {
	source := must.Get(os.ReadFile("fault/fault.go"))(t)
	var names []string
	for _, m := range regexp.MustCompile(` = "([a-z0-9 ]+)"`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, m[1])
	}
	require.ElementsMatch(t, New(t).world.Faults(), names)
	s := New(t)
	for _, name := range names {
		s.Fail(t, name, 1)
	}
	s.Heal()
	status, _, _ := buy(t, s, s.NewAccount(t, "evm", "1.00"), s.SellerURL+"/weather")
	require.Equal(t, 200, status)
}

// A fault at one path leaves the others alone.
func TestFaultAtOnePath(t *testing.T) {
	s := New(t)
	a := s.NewAccount(t, "evm", "1.00")
	one, other := s.Sell(t, "/one", Product{Price: "0.01"}), s.Sell(t, "/other", Product{Price: "0.01"})
	s.FailAt(t, fault.FacilitatorCutsAfter, "/one", Always)
	for url, want := range map[string]int{one: 502, other: 200} {
		for range 2 {
			status, _, _ := buy(t, s, a, url)
			require.Equal(t, want, status, url)
		}
	}
	s.AssertPaid(t, 2, Payment{Path: "/one"}) // settled before the answer was lost
	s.AssertPaid(t, 2, Payment{Path: "/other"})
}

// recorded is a test that remembers how it failed.
type recorded struct {
	testing.TB
	said  []string
	ended []func()
}

func (r *recorded) Helper()          {}
func (r *recorded) Cleanup(f func()) { r.ended = append(r.ended, f) }
func (r *recorded) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}
func (r *recorded) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// failed is what a function said before it ended the test; "" where it did not.
func failed(f func(t testing.TB)) (said string) {
	r := &recorded{}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		said = strings.Join(r.said, "\n")
	}()
	f(r)
	return ""
}

// Each assertion fails where it should, and says what was paid.
func TestAssertionsFail(t *testing.T) {
	s := New(t)
	a := s.NewAccount(t, "evm", "1.00")
	require.Empty(t, failed(func(t testing.TB) { s.AssertNothingPaid(t) }))
	status, _, _ := buy(t, s, a, s.SellerURL+"/weather")
	require.Equal(t, 200, status)
	paid := s.Payments()[0]
	good := []Payment{{}, paid, {Payer: strings.ToLower(a.Address)}, {Amount: 1000, Path: "/weather"},
		{Nonce: paid.Nonce}, {PayTo: s.PayToEVM, Network: s.EVM}}
	for _, like := range good {
		require.Empty(t, failed(func(t testing.TB) { s.AssertPaidOnce(t, like) }), "%+v", like)
	}
	once := func(like Payment) func(testing.TB) bool {
		return func(t testing.TB) bool { _, ok := s.AssertPaidOnce(t, like); return ok }
	}
	for name, wrong := range map[string]func(t testing.TB) bool{
		"nothing": s.AssertNothingPaid,
		"twice":   func(t testing.TB) bool { _, ok := s.AssertPaid(t, 2, Payment{}); return ok },
		"amount":  once(Payment{Amount: 1001}), "payer": once(Payment{Payer: s.PayToEVM}),
		"payee": once(Payment{PayTo: a.Address}), "nonce": once(Payment{Nonce: "0x00"}),
		"path": once(Payment{Path: "/solana"}), "network": once(Payment{Network: s.Solana}),
		"signer": once(Payment{Signer: "0x1"}), "transaction": once(Payment{Transaction: "0x1"}),
		"balance": func(t testing.TB) bool { return s.AssertBalance(t, a.Address, "1.00") },
		"signed":  func(t testing.TB) bool { return s.AssertSignedOnce(t, 2) },
	} {
		said := failed(func(t testing.TB) { require.False(t, wrong(t), name) })
		require.Contains(t, said, paid.Transaction, name)
	}
	for name, wrong := range map[string]func(t testing.TB){
		"no dollars": func(t testing.TB) { s.AssertBalance(t, a.Address, "one") },
		"no fault":   func(t testing.TB) { s.Fail(t, "seller sleeps", 1) },
		"at a node":  func(t testing.TB) { s.FailAt(t, fault.EVMNodeDown, "/weather", 1) },
		"no path":    func(t testing.TB) { s.Sell(t, "premium", Product{}) },
		"no network": func(t testing.TB) { s.NewAccount(t, "eip155:1", "1.00") },
		"no address": func(t testing.TB) { s.Fund(t, "0x12", "1.00") },
		"no agent":   func(t testing.TB) { s.Delegate(t, a.Address, "1.00") },
	} {
		require.NotEmpty(t, failed(wrong), name)
	}
}

// What the chains are told by the test is what they say.
func TestChains(t *testing.T) {
	s := New(t, Options{Finality: time.Second})
	a := s.NewAccount(t, "solana", "1.00")
	stranger := s.NewAccount(t, "solana", "0")
	require.Equal(t, a.TokenAccount, s.Fund(t, a.Address, "0.50"))
	s.AssertBalance(t, a.Address, "1.50")
	require.NotEmpty(t, s.Delegate(t, stranger.Address, "0.25"))
	require.Equal(t, uint64(250_000), s.world.Delegated(s.world.OwnerAccount))
	require.Contains(t, s.WalletConfig(), s.EVMNodeURL)
	before := s.world.Now()
	s.Advance(time.Hour)
	require.WithinDuration(t, before.Add(time.Hour), s.world.Now(), time.Minute)
}
