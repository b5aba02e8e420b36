package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// What Token-2022 mints and accounts can do to a payment, on the real token program with the reference
// facilitator and seller: where the payee would not get exactly the price, or the chain would refuse the
// transfer, no signature leaves, and the reason is in words. What does not touch a transfer is paid.
func TestToken2022Extensions(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	const hook = "MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr"
	type extensions map[string]any
	for _, c := range []struct {
		name, why  string // no reason: it is paid
		extensions extensions
		before     func(t *testing.T, lab *Lab, mint, payee, ours string)
	}{
		{name: "none", extensions: extensions{}},
		{name: "as PYUSD has them", extensions: extensions{"transferFee": 0, "transferHook": "",
			"permanentDelegate": true, "mintCloseAuthority": true, "confidential": true,
			"confidentialFee": true}},
		{name: "pausable", extensions: extensions{"pausable": false}},
		{name: "fee", why: "fee of 1.5 %", extensions: extensions{"transferFee": 150}},
		{name: "a fee to come", why: "fee of 1 %", extensions: extensions{"transferFee": 0},
			before: func(_ *testing.T, lab *Lab, mint, _, _ string) { lab.SVMSetFee(mint, 100) }},
		{name: "paused", why: "paused", extensions: extensions{"pausable": false},
			before: func(_ *testing.T, lab *Lab, mint, _, _ string) { lab.SVMPause(mint) }},
		{name: "hook", why: "program of its issuer", extensions: extensions{"transferHook": hook}},
		{name: "not transferable", why: "cannot be transferred",
			extensions: extensions{"nonTransferable": true}},
		{name: "the payee's account wants a memo", why: "memo", extensions: extensions{},
			before: func(_ *testing.T, lab *Lab, mint, payee, _ string) { lab.SVMRequireMemo(payee, mint) }},
		{name: "the payee's account was born frozen", why: "frozen",
			extensions: extensions{"bornFrozen": true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := lab.For(t)
			mint := lab.SVMNewMint(c.extensions)
			payee := "payee-" + c.name
			payTo := lab.SVMKey(payee).Address
			home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty, More: fmt.Sprintf(
				"[[assets]]\nnetwork = %q\naddress = %q\nsymbol = \"TEST\"\ndecimals = 6\n"+
					"usd = \"1.00\"\ntoken2022 = true\n", lab.SVM.Network, mint)}))
			account := lab.SVMFund(home.Solana, mint, 0)
			lab.SVMFund(payTo, mint, 0)
			if c.extensions["bornFrozen"] != nil {
				lab.SVMThaw(account)
			}
			lab.SVMFund(home.Solana, mint, 1_000_000)
			lab.EVMMint(home.EVM, 1_000_000)
			if c.before != nil {
				c.before(t, lab, mint, payee, home.Solana)
			}
			query := "?" + url.Values{"mint": {mint}, "payTo": {payTo}}.Encode()
			w := testworld.StartWallet(t, bin, home)
			lab.ResetLogs()
			p := payFor(t, w, lab.Seller+"/svm2022/any"+query)
			if c.why == "" {
				require.Equal(t, "paid", p.Status, "%+v", p)
				require.Equal(t, uint64(1000), lab.SVMBalance(payTo, mint))
				return
			}
			require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
			require.Contains(t, p.Message, c.why)
			t.Log(p.Message)
			require.Equal(t, "0", p.Spent)
			require.Zero(t, lab.SVMBalance(payTo, mint))

			// Another option is paid instead.
			p = payFor(t, w, lab.Seller+"/svm2022/orEvm"+query)
			require.Equal(t, "paid", p.Status, "%+v", p)
			require.Equal(t, lab.EVM.Network, p.Network)

			signed := 0
			for _, r := range lab.SellerLog(testlab.PartSeller) {
				if r.Headers["payment-signature"] != "" {
					signed++
				}
			}
			require.Equal(t, 1, signed, "only the EVM payment left")
			for _, f := range lab.FacilitatorLog(0) {
				require.NotContains(t, string(f.Request), lab.SVM.Network, "no facilitator heard of it")
			}
		})
	}
}

// recordingNode passes questions on to the lab's Solana node and keeps their methods; the one that it
// refuses it does not know.
type recordingNode struct {
	url    string
	mu     sync.Mutex
	asked  map[string]int
	refuse string
}

func record(t *testing.T, node string) *recordingNode {
	n := &recordingNode{asked: map[string]int{}}
	at := must.Get(url.Parse(node))(t)
	proxy := httputil.NewSingleHostReverseProxy(at)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var q struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(body, &q)
		n.mu.Lock()
		n.asked[q.Method]++
		refused := q.Method == n.refuse
		n.mu.Unlock()
		if refused {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not found"}}`, q.ID)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	n.url = server.URL
	return n
}

func (n *recordingNode) take() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = map[string]int{}
	return asked
}

// The simulation costs one question for Token-2022 and none for plain SPL tokens, which are paid also where
// the node cannot simulate; Token-2022 is not. What only a run shows, as a fee payer without SOL, it finds.
func TestSimulationBeforeTheSignature(t *testing.T) {
	lab := Start(t)
	node := record(t, lab.SVM.URL)
	var signed int
	poor := lab.SVMKey("fee payer without SOL").Address
	seller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Payment-Signature") != "" {
			signed++
		}
		w.Header().Set("Payment-Required", base64.StdEncoding.EncodeToString(fmt.Appendf(nil,
			`{"x402Version":2,"resource":{"url":"http://%s/"},"accepts":[{"scheme":"exact","network":%q,`+
				`"asset":%q,"amount":"1000","payTo":%q,"maxTimeoutSeconds":60,"extra":{"feePayer":%q}}]}`,
			r.Host, lab.SVM.Network, lab.SVM.Mint2022, lab.SVM.PayTo, poor)))
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	defer seller.Close()

	behind := *lab
	behind.SVM.URL = node.url
	w, home := funded(t, &behind, ConfigOptions{Loopback: []string{seller.URL}})
	lab.SVMFund(home.Solana, lab.SVM.Mint2022, 1_000_000)
	lab.SVMFund(lab.SVM.PayTo, lab.SVM.Mint2022, 0)
	paid := func(path string) map[string]int {
		node.take()
		p := buyAnew(t, w, lab.Seller+path)
		require.Equal(t, "paid", p.Status, "%+v", p)
		return node.take()
	}
	paid("/svm") // getGenesisHash, once for each node
	for path, simulations := range map[string]int{"/svm": 0, "/svm2022": 1} {
		paid(path)          // the next time it is known what this seller is paid in
		asked := paid(path) // what happened to earlier payments may be asked as well
		require.Equal(t, []int{1, 2, simulations}, []int{asked["getTokenAccountsByDelegate"],
			asked["getMultipleAccounts"], asked["simulateTransaction"]}, path)
	}

	p := payFor(t, w, seller.URL+"/")
	require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
	require.Contains(t, p.Message, "has no SOL")
	require.Zero(t, signed)

	node.refuse = "simulateTransaction"
	paid("/svm")
	p = buyAnew(t, w, lab.Seller+"/svm2022")
	require.Equal(t, "RPC_ERROR", p.Error, "%+v", p)
	require.Equal(t, "0", p.Spent)
}

// A facilitator that refuses more than 50,000 compute units, as hosted ones do, settles each of many payments
// that say the same: a seller's own memo leaves only the compute budget to tell them apart.
func TestPaysWithASellersMemo_FacilitatorLimitsComputeUnits(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})
	const purchases = 20
	lab.ResetLogs()
	for range purchases {
		p := buyAnew(t, w, lab.Seller+"/svm/memo")
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	require.Equal(t, purchases, settled(lab, 0))
	require.Equal(t, uint64(1_000_000-purchases*1000), lab.SVMBalance(home.Solana, ""))
}

// The owner delegates, and takes it back, by our commands on the real token programs; the agent spends in
// between from the owner's token account, in V2 and V1, and the chain keeps the cap.
func TestTheOwnerDelegates(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty}))
	for _, c := range []struct{ name, path, mint string }{
		{"SPL Token", lab.Seller + "/svm", lab.SVM.Mint}, {"V1", lab.SellerV1 + "/v1/svm", lab.SVM.Mint},
		{"Token-2022", lab.Seller + "/svm2022", lab.SVM.Mint2022},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := lab.For(t)
			lab.SVMFund(lab.SVM.PayTo, c.mint, 0)
			owner := lab.SVMKey("delegating " + c.name)
			file := filepath.Join(t.TempDir(), "id.json")
			writePrivate(t, file, string(owner.Keypair))
			account := lab.SVMFund(owner.Address, c.mint, 500_000)
			run := func(code int, args ...string) (out struct {
				Error, TransactionSignature,
				Transaction string
			}) {
				t.Helper()
				endWallet(t, home, bin, code, &out, append([]string{"delegation"}, args...)...)
				return out
			}
			approve := []string{"approve", "--owner-keypair", file, "--asset", c.mint, "--amount", "0.0025"}
			require.Equal(t, "CHECK_FAILED", run(1, approve...).Error,
				"the owner has no SOL for the fee, and nothing is sent")
			lab.SVMAirdrop(owner.Address, 1_000_000_000)
			require.NotEmpty(t, run(0, approve...).TransactionSignature)
			got := lab.SVMTokenAccount(account)
			require.Equal(t, home.Solana, got.Delegate)
			require.Equal(t, uint64(2_500), got.DelegatedAmount)

			w := testworld.StartWallet(t, bin, home)
			for _, left := range []uint64{1_500, 500} {
				p := buyAnew(t, w, c.path)
				require.Equal(t, "paid", p.Status, "%+v", p)
				require.Equal(t, left, lab.SVMTokenAccount(account).DelegatedAmount)
			}
			require.Zero(t, lab.SVMBalance(home.Solana, c.mint), "the agent itself owns nothing")
			p := buyAnew(t, w, c.path)
			require.Equal(t, []string{"DELEGATION_EXHAUSTED", "0"}, []string{p.Error, p.Spent}, "%+v", p)

			require.NotEmpty(t, run(0, "revoke", "--unsigned", "--token-account", account).Transaction)
			require.Equal(t, home.Solana, lab.SVMTokenAccount(account).Delegate, "nobody signed that")
			require.NotEmpty(t, run(0, "revoke", "--owner-keypair", file, "--asset",
				c.mint).TransactionSignature)
			require.Empty(t, lab.SVMTokenAccount(account).Delegate)
			require.NotEmpty(t, buyAnew(t, w, c.path).Error)
			require.Equal(t, uint64(498_000), lab.SVMTokenAccount(account).Amount)
		})
	}
}
