package e2e

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/scheme/permit2"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// waysShop is a handler of ours that sells in every way, settled by the reference facilitator on a real
// chain.
type waysShop struct {
	url, origin string
	sales       func() []book.Sale
	served      func() int
	paywall     *paywall.Paywall
}

type visit struct {
	Status      int
	Body, Error string
	Receipt     struct {
		Success                             bool
		Transaction, Payer, Amount, Network string
	}
	Offers []struct {
		Signer  string
		Payload map[string]any
		IsAsked bool
	}
	Signed *struct {
		Signer    string
		Payload   map[string]any
		IsOfOffer bool
	}
}

// newWaysShop serves GET /<tool> for each tool; the body says which request it is.
func newWaysShop(t *testing.T, lab *Lab, change func(*paywall.Options), tools ...paywall.Tool) *waysShop {
	t.Helper()
	web := httptest.NewUnstartedServer(nil)
	origin := "http://" + web.Listener.Addr().String()
	store := testworld.NewBook(t, t.TempDir())
	chain := permit2.NewPayer(evm.New(evm.Options{RPC: map[string]string{lab.EVM.Network: lab.EVM.URL},
		Now: time.Now}), nil)
	o := paywall.Options{Tools: tools, Store: store, Origin: origin, Received: chain.Received,
		Facilitators: facilitator.New(facilitator.Options{List: []facilitator.Facilitator{
			{Name: "lab0", URL: lab.Facilitators[0]}}})}
	if change != nil {
		change(&o)
	}
	sells := must.Get(paywall.New(o))(t)
	t.Cleanup(func() { require.NoError(t, sells.Close(context.Background())) })
	served := 0
	mux := http.NewServeMux()
	for _, tool := range tools {
		mux.Handle("/"+tool.Name, sells.HTTP(tool.Name, http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				served++
				if charge := r.URL.Query().Get("charge"); charge != "" {
					_ = paywall.Charge(r.Context(), charge)
				}
				_, _ = fmt.Fprintf(w, "goods %d", served)
			})))
	}
	mux.Handle("/discovery/resources", sells.Resources())
	web.Config.Handler = mux
	web.Start()
	t.Cleanup(web.Close)
	return &waysShop{url: web.URL, origin: origin, paywall: sells, served: func() int { return served },
		sales: func() []book.Sale {
			list, _, _, err := store.Sales(t.Context(), book.SaleFilter{})
			require.NoError(t, err)
			return list
		}}
}

func (s *waysShop) buy(t *testing.T, lab *Lab, visits ...map[string]any) (all []visit) {
	t.Helper()
	options := map[string]any{"url": s.url, "node": lab.EVM.URL, "key": mppxKey,
		"visits": visits}
	testlab.StartParty(t, "parties/buyer.mjs", options, &all)
	require.Len(t, all, len(visits))
	return all
}

func at(lab *Lab, price string, change func(*paywall.Option)) []paywall.Option {
	o := paywall.Option{Network: lab.EVM.Network, PayTo: lab.EVM.PayTo, Price: price}
	if change != nil {
		change(&o)
	}
	return []paywall.Option{o}
}

func byPermit2(o *paywall.Option) { o.Permit2 = true }
func byUpto(o *paywall.Option)    { o.Scheme = x402.Upto }

// The reference client pays a handler of ours by Permit2, with an approval that it signs (EIP-2612), and the
// reference facilitator settles it.
func TestReferenceClientPaysOurPaywallByPermit2(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	lab.EVMApprovePermit2(lab.EVM.Client.Address, 0)
	before, earned := lab.EVMBalance(lab.EVM.Client.Address), lab.EVMBalance(lab.EVM.PayTo)
	s := newWaysShop(t, lab, nil, paywall.Tool{Name: "report", Accepts: at(lab, "0.001", byPermit2)})
	got := s.buy(t, lab, map[string]any{"path": "/report", "scheme": "exact"},
		map[string]any{"path": "/report", "again": true},
		map[string]any{"path": "/report", "scheme": "exact"})
	require.Equal(t, 200, got[0].Status, "%+v", got)
	require.Equal(t, "goods 1", got[0].Body)
	require.Equal(t, []EVMTransfer{{From: lab.EVM.Client.Address, To: lab.EVM.PayTo, Amount: 1000}},
		lab.EVMTransfers(got[0].Receipt.Transaction))
	require.Equal(t, http.StatusConflict, got[1].Status, "%+v", got[1])
	require.Equal(t, 200, got[2].Status, "%+v", got[2])
	require.Equal(t, before-2000, lab.EVMBalance(lab.EVM.Client.Address))
	require.Equal(t, earned+2000, lab.EVMBalance(lab.EVM.PayTo))
	require.Zero(t, lab.EVMAllowanceOfPermit2(lab.EVM.Client.Address))
	sales := s.sales()
	require.Len(t, sales, 2)
	require.Equal(t, []any{book.SaleSettled, x402.Permit2}, []any{sales[0].State, sales[0].Scheme})
}

// A metered handler takes what a call used, which may be nothing; the reference client pays at most that.
func TestReferenceClientPaysOurPaywallByUpto(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	before := lab.EVMBalance(lab.EVM.Client.Address)
	s := newWaysShop(t, lab, nil, paywall.Tool{Name: "metered", Accepts: at(lab, "0.02", byUpto)},
		paywall.Tool{Name: "sized", Accepts: at(lab, "0.02", byUpto), PerKilobyte: "0.003"})
	got := s.buy(t, lab, map[string]any{"path": "/metered?charge=0.0123", "scheme": "upto"},
		map[string]any{"path": "/metered?charge=0", "scheme": "upto"},
		map[string]any{"path": "/metered?charge=0", "again": true},
		map[string]any{"path": "/metered?charge=0.03", "scheme": "upto"}, map[string]any{"path": "/sized",
			"scheme": "upto"})
	for i, want := range []struct {
		status int
		amount string
	}{{200, "12300"}, {200, "0"}, {409, ""}, {200, "20000"}, {200, "3000"}} {
		require.Equal(t, want.status, got[i].Status, "%d: %+v", i, got[i])
		require.Equal(t, want.amount, got[i].Receipt.Amount, "%d", i)
	}
	require.Empty(t, got[1].Receipt.Transaction)
	require.Equal(t, []EVMTransfer{{From: lab.EVM.Client.Address, To: lab.EVM.PayTo, Amount: 12300}},
		lab.EVMTransfers(got[0].Receipt.Transaction))
	require.Equal(t, before-35_300, lab.EVMBalance(lab.EVM.Client.Address))
	require.Equal(t, 4, s.served())
}

// The reference client names its payments: the same payment again, and another one under the same name, get
// the first answer; another call under the name is refused.
func TestReferenceClientNamesItsPayments(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	before := lab.EVMBalance(lab.EVM.Client.Address)
	s := newWaysShop(t, lab, nil, paywall.Tool{Name: "report", Accepts: at(lab, "0.001", nil),
		RequireIdentifier: true})
	id := "order_0123456789abcdef"
	named := map[string]any{"path": "/report", "scheme": "exact", "id": id}
	got := s.buy(t, lab, named, map[string]any{"path": "/report", "again": true}, named,
		map[string]any{"path": "/report?other", "scheme": "exact", "id": id},
		map[string]any{"path": "/report", "scheme": "exact"})
	for i, want := range []int{200, 200, 200, 409, 400} {
		require.Equal(t, want, got[i].Status, "%d: %+v", i, got[i])
	}
	require.Equal(t, []string{"goods 1", "goods 1", "goods 1"}, []string{got[0].Body, got[1].Body,
		got[2].Body})
	require.Equal(t, before-1000, lab.EVMBalance(lab.EVM.Client.Address))
	require.Equal(t, 1, s.served())
}

// The reference client verifies our offers and receipts, and finds that they belong together.
func TestReferenceClientVerifiesOurStatements(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	s := newWaysShop(t, lab, func(o *paywall.Options) {
		o.StatementKey, o.ReceiptTransaction = key, true
	}, paywall.Tool{Name: "report", Accepts: append(at(lab, "0.001", nil), at(lab, "0.002", byUpto)...)})
	got := s.buy(t, lab, map[string]any{"path": "/report", "scheme": "exact"})[0]
	require.Equal(t, 200, got.Status, "%+v", got)
	require.Len(t, got.Offers, 2)
	for i, scheme := range []string{"exact", "upto"} {
		require.Equal(t, []any{paywall.KeyID(key), scheme, s.url + "/report", true}, []any{
			got.Offers[i].Signer, got.Offers[i].Payload["scheme"], got.Offers[i].Payload["resourceUrl"],
			got.Offers[i].IsAsked})
	}
	require.NotNil(t, got.Signed)
	require.True(t, got.Signed.IsOfOffer)
	require.Equal(t, []any{paywall.KeyID(key), lab.EVM.Client.Address, got.Receipt.Transaction},
		[]any{got.Signed.Signer, got.Signed.Payload["payer"], got.Signed.Payload["transaction"]})
}

// The reference client signs in for what it bought and gets it without paying; for another call it pays.
func TestReferenceClientSignsInAtOurPaywall(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	before := lab.EVMBalance(lab.EVM.Client.Address)
	s := newWaysShop(t, lab, nil, paywall.Tool{Name: "report", Accepts: at(lab, "0.001", nil),
		Access: time.Hour})
	in := map[string]any{"path": "/report?a", "scheme": "exact", "signIn": true}
	got := s.buy(t, lab, map[string]any{"path": "/report?a", "scheme": "exact"}, in, in,
		map[string]any{"path": "/report?b", "scheme": "exact", "signIn": true})
	for i, body := range []string{"goods 1", "goods 2", "goods 3", "goods 4"} {
		require.Equal(t, 200, got[i].Status, "%d: %+v", i, got[i])
		require.Equal(t, body, got[i].Body)
	}
	require.Empty(t, got[1].Receipt.Transaction)
	require.NotEmpty(t, got[3].Receipt.Transaction)
	require.Equal(t, before-2000, lab.EVMBalance(lab.EVM.Client.Address))
	schemes := map[string]int{}
	for _, sale := range s.sales() {
		schemes[sale.Scheme]++
	}
	require.Equal(t, map[string]int{"exact": 2, x402.ExtensionSignIn: 2}, schemes)
}

// The program sells the tools of a plain server in the new ways: by upto and the kilobyte, with offers and a
// receipt signed by a key that it makes in its home; another start signs by the same key.
func TestThePaywallProgramSellsByWhatIsUsed(t *testing.T) {
	lab := Start(t)
	shops := openShops(t, lab)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	p := newNPMPaywall(t, shops, "sign_offers = true\nreceipt_transaction = true",
		"[tools.echo]\nscheme = \"upto\"\nprice = \"0.02\"\nper_kilobyte = \"0.003\"\n")
	file := filepath.Join(p.Dir, "paywall-signing-key.pem")
	key := must.Get(os.ReadFile(file))(t)
	require.Equal(t, os.FileMode(0o600), must.Get(os.Stat(file))(t).Mode().Perm())
	earned := uint64(0)
	var kids []string
	for _, target := range []any{p.url, p.onStdio()} {
		paid := shops.payAs(t, "spec", p.url, "echo", map[string]any{"text": "a"},
			map[string]any{"target": target, "evmNode": lab.EVM.URL})
		require.Nil(t, paid.Error, "%+v", paid.Error)
		require.Equal(t, "echo: a", paid.Result.Content[0].Text, "%+v", paid)
		earned += 3000
		require.Equal(t, earned, lab.EVMBalance(p.EVM))
		receipt, _ := paid.Result.Meta[wire.MetaReceipt].(map[string]any)
		require.Equal(t, "3000", receipt["amount"])
		for _, extensions := range []any{paid.Challenge["extensions"], receipt["extensions"]} {
			text := must.Get(json.Marshal(extensions))(t)
			jws := regexp.MustCompile(`"signature":"([A-Za-z0-9_-]+)\.`).FindSubmatch(text)
			require.NotNil(t, jws, "%s", text)
			kids = append(kids, string(must.Get(base64.RawURLEncoding.DecodeString(string(jws[1])))(t)))
		}
	}
	require.Equal(t, []string{kids[0], kids[0], kids[0], kids[0]}, kids)
	require.Contains(t, kids[0], `"kid":"did:key:z6Mk`)
	require.Equal(t, key, must.Get(os.ReadFile(file))(t))
	out := p.sales(t)
	require.Len(t, out.Sales, 2)
	require.Equal(t, map[string]string{"USDC": "0.006"}, out.Totals)
	require.Equal(t, []string{"settled", "3000"}, []string{out.Sales[0].Status, out.Sales[0].Amount})
}
