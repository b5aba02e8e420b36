package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall"
)

// mppSellers are the reference servers of MPP (e2e/lab/mpp): mppx over HTTP and MCP, and @solana/mpp.
type mppSellers struct {
	HTTP    string `json:"http"`
	MCP     string `json:"mcp"`
	Control string `json:"control"`
}

func startMPP(t testing.TB, lab *Lab) *mppSellers {
	t.Helper()
	options := map[string]any{"evm": lab.EVM.URL, "svm": lab.SVM.URL,
		"payTo": map[string]string{"evm": lab.EVM.PayTo, "svm": lab.SVM.PayTo}}
	lab.SVMFund(lab.SVM.PayTo, "", 0) // a seller has a token account
	s := &mppSellers{}
	testlab.StartParty(t, "mpp/seller.mjs", options, s)
	return s
}

// control sets what the sellers do with the next paid answers, and gives how many payments they settled.
func (s *mppSellers) control(t *testing.T, state string) (settled int) {
	t.Helper()
	response := must.Get(http.Post(s.Control, "application/json", bytes.NewReader([]byte(state))))(t)
	now := must.JSON[struct{ Settled int }]([]byte(bodyOf(t, response)))(t)
	return now.Settled
}

func (s *mppSellers) hosts() []string {
	return []string{testlab.HostPort(s.HTTP), testlab.HostPort(s.MCP)}
}

func TestPaysByMPP(t *testing.T) {
	lab := Start(t)
	sellers := startMPP(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: sellers.hosts()})

	p := payFor(t, w, sellers.HTTP+"/evm-only")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(999_000), lab.EVMBalance(home.EVM))
	rows := history(t, w)
	require.Len(t, rows, 1)
	require.Equal(t, []EVMTransfer{{From: home.EVM, To: lab.EVM.PayTo, Amount: price}},
		lab.EVMTransfers(rows[0].TransactionSignature), "the receipt's reference is the transaction")

	p = call(t, w, "x402_call_tool", map[string]any{"server": sellers.MCP, "tool": "weather"})
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(998_000), lab.EVMBalance(home.EVM))
	require.Len(t, history(t, w), 2)
}

// The agent pays from the owner's token account, as with x402.
func TestPaysByMPPAsTheOwnersDelegate(t *testing.T) {
	lab := Start(t)
	sellers := startMPP(t, lab)
	home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty, Loopback: sellers.hosts()}))
	key := lab.SVMKey("owner-mpp")
	lab.SVMFund(key.Address, "", 500_000)
	account := lab.SVMDelegate("owner-mpp", home.Solana, "", 1_500)
	w := testworld.StartWallet(t, testworld.Build(t), home)
	p := payFor(t, w, sellers.HTTP+"/solana")
	require.Equal(t, "paid", p.Status, "%+v", p)
	got := lab.SVMTokenAccount(account)
	require.Equal(t, uint64(499_000), got.Amount)
	require.Equal(t, uint64(500), got.DelegatedAmount)
	p = payFor(t, w, sellers.HTTP+"/solana")
	require.Equal(t, "DELEGATION_EXHAUSTED", p.Error, "%+v", p)
}

// A 402 that asks in MPP and in x402 is paid once, also when the answer is lost after the seller settled.
func TestMPPIsPaidOnce(t *testing.T) {
	lab := Start(t)
	sellers := startMPP(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: sellers.hosts()})
	before := sellers.control(t, `{"lose":1}`)
	p := payFor(t, w, sellers.HTTP+"/evm")
	require.NotEqual(t, "paid", p.Status, "%+v", p)
	again := payFor(t, w, sellers.HTTP+"/evm")
	require.Equal(t, uint64(999_000), lab.EVMBalance(home.EVM), "%+v %+v", p, again)
	require.Equal(t, 1, sellers.control(t, `{}`)-before)
	require.Len(t, lab.EVMSpentNonces(home.EVM), 1)
	require.Len(t, history(t, w), 1)
}

func TestMPPOfAnotherSellerIsNotPaid(t *testing.T) {
	lab := Start(t)
	sellers := startMPP(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: sellers.hosts()})
	p := payFor(t, w, sellers.HTTP+"/foreign")
	require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
	require.Contains(t, p.Message, `bank.example`)
	require.Equal(t, "0", p.Spent)
	require.Empty(t, history(t, w))
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))

	exactOnly, own := funded(t, lab, ConfigOptions{Loopback: sellers.hosts(), Policy: `schemes = ["exact"]`})
	p = payFor(t, exactOnly, sellers.HTTP+"/evm-only")
	require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(own.EVM))
}

// mppShop is a handler of ours that sells in MPP for 1000 units, settled by a facilitator.
func mppShop(t *testing.T, facilitatorURL, network, payTo string) string {
	t.Helper()
	sells := must.Get(paywall.New(paywall.Options{MPP: true, Store: testworld.NewBook(t, t.TempDir()),
		Tools: []paywall.Tool{{Name: "report", Accepts: []paywall.Option{
			{Network: network, PayTo: payTo, Price: "0.001"}}}},
		Facilitators: facilitator.New(facilitator.Options{List: []facilitator.Facilitator{
			{Name: "lab", URL: facilitatorURL}}})}))(t)
	t.Cleanup(func() { require.NoError(t, sells.Close(context.Background())) })
	web := httptest.NewServer(sells.HTTP("report", http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("warmer")) })))
	t.Cleanup(func() { web.Close(); http.DefaultClient.CloseIdleConnections() })
	return web.URL
}

// mppPaid is a reference client's answer (e2e/lab/mpp/payer.mjs).
type mppPaid struct {
	Status           int
	Body, Credential string
	Receipt          struct{ Method, Reference, Status string }
}

// The reference client of MPP pays a handler of ours, which the reference facilitator settles for.
func TestMppxPaysOurPaywall(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 10_000)
	before := lab.EVMBalance(lab.EVM.Client.Address)
	options := map[string]string{"key": mppxKey,
		"url": mppShop(t, lab.Facilitators[0], lab.EVM.Network, lab.EVM.PayTo)}
	var paid mppPaid
	testlab.StartParty(t, "mpp/payer.mjs", options, &paid)
	require.Equal(t, 200, paid.Status, "%+v", paid)
	require.Equal(t, "warmer", paid.Body)
	require.Equal(t, "success", paid.Receipt.Status)
	require.Equal(t, []EVMTransfer{{From: lab.EVM.Client.Address, To: lab.EVM.PayTo, Amount: price}},
		lab.EVMTransfers(paid.Receipt.Reference))
	require.Equal(t, before-price, lab.EVMBalance(lab.EVM.Client.Address))
}

// mppxKey is of lab.EVM.Client: an account of the mnemonic that anvil and hardhat share, known to everybody.
const mppxKey = "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"

// @solana/mpp 0.6 writes the price of a compute unit before their limit. A facilitator that reads the layout
// of x402 alone refuses that, and nothing moves; one that finds the transfer by simulation settles it.
func TestSolanasMPPClientPaysOurPaywall(t *testing.T) {
	lab := Start(t)
	lab.SVMFund(lab.SVM.PayTo, "", 0) // a seller has a token account
	var simulating struct{ Ports []int }
	testlab.StartParty(t, "parties/facilitator.mjs", map[string]any{"doors": 1, "evm": lab.EVM.URL,
		"svm": lab.SVM.URL, "anyLayout": true}, &simulating)
	buyer := lab.SVMKey("mpp-buyer")
	lab.SVMFund(buyer.Address, "", 10_000)
	shop := func(facilitator string) map[string]any {
		return map[string]any{"svm": lab.SVM.URL, "keypair": buyer.Keypair,
			"url": mppShop(t, facilitator, lab.SVM.Network, lab.SVM.PayTo)}
	}

	var refused, paid mppPaid
	testlab.StartParty(t, "mpp/payer.mjs", shop(lab.Facilitators[0]), &refused)
	require.Equal(t, 402, refused.Status, "%+v", refused)
	require.Contains(t, refused.Body, "compute_limit_instruction")
	require.Equal(t, uint64(10_000), lab.SVMBalance(buyer.Address, ""))

	good := shop(fmt.Sprintf("http://127.0.0.1:%d", simulating.Ports[0]))
	address := good["url"].(string)
	testlab.StartParty(t, "mpp/payer.mjs", good, &paid)
	require.Equal(t, 200, paid.Status, "%+v", paid)
	require.Equal(t, "warmer", paid.Body)
	require.Equal(t, "success", paid.Receipt.Status)
	require.Equal(t, "solana", paid.Receipt.Method)
	require.Equal(t, uint64(10_000-price), lab.SVMBalance(buyer.Address, ""))

	// the same again, for another challenge, and for another price
	show := func(from, to string) int {
		text := must.Get(base64.RawURLEncoding.DecodeString(paid.Credential[len("Payment "):]))(t)
		require.Contains(t, string(text), from)
		text = bytes.Replace(text, []byte(from), []byte(to), 1)
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil))(t)
		request.Header.Set("Authorization", "Payment "+base64.RawURLEncoding.EncodeToString(text))
		answer := must.Get(http.DefaultClient.Do(request))(t)
		require.NotContains(t, bodyOf(t, answer), "warmer")
		return answer.StatusCode
	}
	require.Equal(t, 409, show("challenge", "challenge"))
	require.Equal(t, 402, show(`"id":"`, `"id":"X`))
	require.Equal(t, 402, show(`"request":"`, `"request":"e30`))
	require.Equal(t, uint64(10_000-price), lab.SVMBalance(buyer.Address, ""))
}

// A seller that asks in X-PAYMENT-REQUIRED with a whole challenge and settles itself, at the reference
// facilitator and on a real chain: it gets the payment, and settles once. The wallet brings nothing anywhere.
func TestASellerWithXPaymentRequiredSettlesAtTheReferenceFacilitator(t *testing.T) {
	lab := Start(t)
	const goods = `{"ok":true,"own":"header"}`
	offer := map[string]any{"scheme": "exact", "network": lab.EVM.Network, "amount": "1000",
		"asset": lab.EVM.Asset, "payTo": lab.EVM.PayTo, "maxTimeoutSeconds": 60,
		"extra": map[string]any{"name": "USDC", "version": "2"}}
	for _, c := range []struct {
		version int
		header  string
	}{{2, "PAYMENT-SIGNATURE"}, {1, "X-PAYMENT"}} {
		t.Run(fmt.Sprint(c.version), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked := offer
				if c.version == 1 {
					asked = map[string]any{"scheme": "exact", "network": "base-sepolia",
						"maxAmountRequired": "1000", "asset": offer["asset"], "payTo": offer["payTo"],
						"maxTimeoutSeconds": 60, "extra": offer["extra"], "description": "", "mimeType": "",
						"resource": "http://" + r.Host + "/own"}
				}
				if payment := r.Header.Get(c.header); payment != "" {
					payload, _ := base64.StdEncoding.DecodeString(payment)
					submission, _ := json.Marshal(map[string]any{"x402Version": c.version,
						"paymentPayload": json.RawMessage(payload), "paymentRequirements": asked})
					answer, err := http.Post(lab.Facilitators[0]+"/settle", "application/json",
						bytes.NewReader(submission))
					if err == nil {
						defer answer.Body.Close()
						receipt, _ := io.ReadAll(answer.Body)
						w.Header().Set("PAYMENT-RESPONSE", base64.StdEncoding.EncodeToString(receipt))
						if bytes.Contains(receipt, []byte(`"success":true`)) {
							_, _ = io.WriteString(w, goods)
							return
						}
					}
				}
				challenge, _ := json.Marshal(map[string]any{"x402Version": c.version,
					"resource": map[string]any{"url": "http://" + r.Host + "/own"}, "accepts": []any{asked}})
				w.Header().Set("X-PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString(challenge))
				w.WriteHeader(http.StatusPaymentRequired)
			}))
			defer server.Close()
			w, home := funded(t, lab, ConfigOptions{Loopback: []string{server.URL}})
			lab.ResetLogs()
			p := payFor(t, w, server.URL+"/own")
			require.Empty(t, p.Error, "%+v", p)
			require.Equal(t, "paid", p.Status)
			require.Equal(t, 1, settled(lab, 0))
			require.Zero(t, settled(lab, 1))
			require.Len(t, lab.EVMSpentNonces(home.EVM), 1)
			require.Equal(t, uint64(1_000_000-1000), lab.EVMBalance(home.EVM))
		})
	}
}
