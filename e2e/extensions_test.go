package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// extensionSeller is the reference seller with @x402/extensions 2.27: sign-in-with-x, payment-identifier and
// offer-receipt (e2e/lab/parties/seller-extensions.mjs).
type extensionSeller struct {
	HTTP    string `json:"http"`
	Control string `json:"control"`
	Signer  string `json:"signer"` // of offers and receipts, by EIP-712
	DID     string `json:"did"`    // and by JWS
}

type seenBySeller struct {
	Settled, Granted, Replayed, Held int
	IDs                              []string
}

func startExtensions(t testing.TB, lab *Lab) *extensionSeller {
	t.Helper()
	options := map[string]any{"facilitator": lab.Facilitators[0],
		"evmPayTo": lab.EVM.PayTo, "svmPayTo": lab.SVM.PayTo}
	lab.SVMFund(lab.SVM.PayTo, "", 0) // a seller has a token account
	s := &extensionSeller{}
	testlab.StartParty(t, "parties/seller-extensions.mjs", options, s)
	return s
}

func (s *extensionSeller) control(t *testing.T, state string) (seen seenBySeller) {
	t.Helper()
	response := must.Get(http.Post(s.Control, "application/json", bytes.NewReader([]byte(state))))(t)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, response)), &seen))
	return seen
}

var purchases atomic.Int64

// buyAnew is a purchase of its own, even where the answer of the one before came so late that the same call
// would be taken for it once more.
func buyAnew(t testing.TB, w *Wallet, url string) answer {
	t.Helper()
	return payFor(t, w, url, "idempotencyKey", fmt.Sprint("purchase ", purchases.Add(1)))
}

const signsIn = "sign_in = \"allow\""

// What was bought from the reference server is fetched again by signing in as its payer, which the server
// verifies and grants: the agent's EVM account, its Solana account, and as the owner's SPL delegate.
func TestSignsInForWhatItBought(t *testing.T) {
	lab := Start(t)
	shop := startExtensions(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{shop.HTTP}, Policy: signsIn})
	for i, path := range []string{"/evm", "/svm", "/jws/evm"} {
		p := buyAnew(t, w, shop.HTTP+path)
		require.Equal(t, "paid", p.Status, "%+v", p)
		for j := range 2 {
			p = buyAnew(t, w, shop.HTTP+path)
			require.Equal(t, "free", p.Status, "%+v", p)
			require.JSONEq(t, `{"ok":true,"path":"`+path+`"}`, p.Content)
			seen := shop.control(t, `{}`)
			require.Equal(t, []int{i + 1, 2*i + j + 1}, []int{seen.Settled, seen.Granted})
		}
	}
	require.Equal(t, uint64(998_000), lab.EVMBalance(home.EVM))
	require.Equal(t, uint64(999_000), lab.SVMBalance(home.Solana, ""))
	rows := history(t, w)
	require.Len(t, rows, 9)

	p := buyAnew(t, w, shop.HTTP+"/member")
	require.Equal(t, "free", p.Status, "%+v", p)

	shop.control(t, `{"signIn":false}`)
	p = buyAnew(t, w, shop.HTTP+"/evm")
	require.Equal(t, "paid", p.Status, "asked for payment all the same, it pays in the same call: %+v", p)
	shop.control(t, `{"signIn":true}`)
	require.NoError(t, w.Close())
	out, err := home.Command(t.Context(), testworld.Build(t), "history", "verify", "--seals").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The SPL delegate signs in as the agent, which is the payer that facilitators name. What the owner's vault
// bought only the contract could sign in for: it is paid again.
func TestSignsInAsThePayer(t *testing.T) {
	lab := Start(t)
	shop := startExtensions(t, lab)
	home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty, Loopback: []string{shop.HTTP},
		Policy: signsIn}))
	owner := lab.SVMKey("owner-siwx")
	lab.SVMFund(owner.Address, "", 500_000)
	account := lab.SVMDelegate("owner-siwx", home.Solana, "", 1_500)
	w := testworld.StartWallet(t, testworld.Build(t), home)
	require.Equal(t, "paid", buyAnew(t, w, shop.HTTP+"/svm").Status)
	p := buyAnew(t, w, shop.HTTP+"/svm")
	require.Equal(t, "free", p.Status, "%+v", p)
	require.Equal(t, uint64(500), lab.SVMTokenAccount(account).DelegatedAmount)
}

// attested is an offer or a receipt as x402_history shows it.
type attested struct {
	Format, Signer, Why, Payer, Transaction, ResourceURL string
	Verified                                             bool
}

func signedBySeller(t *testing.T, w *Wallet, id string) (offer, receipt attested) {
	t.Helper()
	r := must.Get(w.Call(t.Context(), "x402_history", map[string]any{"paymentId": id, "evidence": true}))(t)
	var h struct {
		Evidence struct{ Offer, SignedReceipt attested }
	}
	require.NoError(t, json.Unmarshal(r.Structured, &h), r.Text)
	return h.Evidence.Offer, h.Evidence.SignedReceipt
}

// Offers and receipts of the reference server are verified, kept with the payment and shown with who signed
// them, on both chains and in both forms; and one that was changed is noticed, because its signer changes.
func TestWhatTheSellerSignsIsEvidence(t *testing.T) {
	lab := Start(t)
	shop := startExtensions(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{shop.HTTP}, Policy: "sign_in = \"refuse\""})
	for path, signer := range map[string]string{"/jws/evm": shop.DID, "/jws/svm": shop.DID} {
		p := buyAnew(t, w, shop.HTTP+path)
		require.Equal(t, "paid", p.Status, "%+v", p)
		offer, receipt := signedBySeller(t, w, p.PaymentID)
		want := attested{Format: "jws", Signer: signer, Verified: true, ResourceURL: shop.HTTP + path}
		require.Equal(t, want, offer)
		want.Payer = map[string]string{"/jws/evm": home.EVM, "/jws/svm": home.Solana}[path]
		require.Equal(t, want, receipt)
		require.Empty(t, p.Next.Why)
	}
	p := buyAnew(t, w, shop.HTTP+"/evm")
	offer, receipt := signedBySeller(t, w, p.PaymentID)
	require.Equal(t, []any{"eip712", shop.Signer, true}, []any{offer.Format, offer.Signer, receipt.Verified})
	require.Contains(t, p.Next.Why, "at this host it was "+shop.DID[:12], "another one signed before")

	// At another shop, of EIP-712 alone.
	other := startExtensions(t, lab)
	w, home = funded(t, lab, ConfigOptions{Loopback: []string{other.HTTP}, Policy: "sign_in = \"refuse\""})
	for range 2 {
		p = buyAnew(t, w, other.HTTP+"/evm")
		offer, receipt = signedBySeller(t, w, p.PaymentID)
		require.Equal(t, []any{other.Signer, "", other.Signer, "", ""},
			[]any{offer.Signer, offer.Why, receipt.Signer, receipt.Why, p.Next.Why})
	}
	other.control(t, `{"tamper":true}`)
	p = buyAnew(t, w, other.HTTP+"/evm")
	require.Equal(t, "paid", p.Status, "it is a claim, and stops nothing")
	offer, receipt = signedBySeller(t, w, p.PaymentID)
	require.True(t, offer.Verified)
	require.NotEqual(t, other.Signer, offer.Signer)
	require.Contains(t, offer.Why, "it was "+other.Signer+" who signed before")
	require.Empty(t, receipt.Why)
	require.Contains(t, p.Next.Why, "who signed before")

	require.NoError(t, w.Close())
	bin := testworld.Build(t)
	out, err := home.Command(t.Context(), bin, "show", p.PaymentID, "--json=false").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "signed by "+other.Signer)
	out, err = home.Command(t.Context(), bin, "history", "verify", "--seals").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
