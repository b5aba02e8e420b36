package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// extensionSeller is the reference seller with @x402/extensions 2.27: sign-in-with-x, payment-identifier and
// offer-receipt (e2e/lab/parties/seller-extensions.mjs).
type extensionSeller struct {
	HTTP    string `json:"http"`
	Control string `json:"control"`
	Signer  string `json:"signer"` // of offers and receipts, by EIP-712
	DID     string `json:"did"`    // and by JWS
}

// seenBySeller is what that seller counted.
type seenBySeller struct {
	Settled, Granted, Replayed int
	IDs                        []string
}

func startExtensions(t *testing.T, lab *Lab) *extensionSeller {
	t.Helper()
	options, err := json.Marshal(map[string]any{"facilitator": lab.Facilitators[0],
		"evmPayTo": lab.EVM.PayTo, "svmPayTo": lab.SVM.PayTo})
	require.NoError(t, err)
	lab.SVMFund(lab.SVM.PayTo, "", 0) // a seller has a token account
	s := &extensionSeller{}
	stop, err := startScript(filepath.Join("lab", "parties", "seller-extensions.mjs"), options, s)
	require.NoError(t, err, "run make test (or e2e/lab/prep.sh) first")
	t.Cleanup(stop)
	return s
}

func (s *extensionSeller) control(t *testing.T, state string) (seen seenBySeller) {
	t.Helper()
	response, err := http.Post(s.Control, "application/json", bytes.NewReader([]byte(state)))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, response)), &seen))
	return seen
}

const signsIn = "sign_in = \"allow\""

// What was bought from the reference server is fetched again by signing in as its payer, which the server
// verifies and grants: the agent's EVM account, its Solana account, and as the owner's SPL delegate.
func TestSignsInForWhatItBought(t *testing.T) {
	lab := Start(t)
	shop := startExtensions(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{shop.HTTP}, Policy: signsIn})
	for i, path := range []string{"/evm", "/svm", "/jws/evm"} {
		p := payFor(t, w, shop.HTTP+path)
		require.Equal(t, "paid", p.Status, "%+v", p)
		for j := range 2 {
			p = payFor(t, w, shop.HTTP+path)
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

	p := payFor(t, w, shop.HTTP+"/member")
	require.Equal(t, "free", p.Status, "%+v", p)

	shop.control(t, `{"signIn":false}`)
	p = payFor(t, w, shop.HTTP+"/evm")
	require.Equal(t, "paid", p.Status, "asked for payment in spite of the sign-in, it pays in the same call: %+v", p)
	shop.control(t, `{"signIn":true}`)
	require.NoError(t, w.Close())
	out, err := home.Command(t.Context(), testworld.Build(t), "history", "verify", "--seals").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
