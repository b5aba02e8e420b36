package schemes

import (
	"encoding/hex"
	"strconv"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// signsText signs a message as it is, whatever it says.
func signsText(t *testing.T, key evm.Signer, m x402.SignIn) x402.SignIn {
	text, _ := m.Text() // of what is no message: "", which nobody takes
	digest := crypto.Keccak256Hash([]byte("\x19Ethereum Signed Message:\n" + strconv.Itoa(len(text)) + text))
	signature := must.Get(key.SignTransfer(t.Context(), message.Transfer{Digest: digest}))(t)
	m.Signature = "0x" + hex.EncodeToString(signature[:])
	return m
}

// Who paid is let in by signing in, once a message; nobody else is, and not elsewhere.
func TestSignIn(t *testing.T) {
	s := start(t, sandbox.Options{})
	const path = "/archive"
	key := testworld.NewEVMKey(t)
	signed := func(change func(*x402.SignIn)) string {
		offer := testworld.Challenge(t, s.SellerURL+path).SignInOffer()
		require.NotNil(t, offer)
		m := must.Get(offer.Message(sandbox.EVM, key.Address(), s.SellerURL, s.Now()))(t)
		change(&m)
		return signsText(t, key, m).Header()
	}
	asIs := func(*x402.SignIn) {}
	signIn := func(header string) testworld.Answer {
		return testworld.Get(t, s.SellerURL+path, x402.HeaderSignIn, header)
	}

	require.Equal(t, "this account did not buy it", signIn(signed(asIs)).Why(t))
	payer := newEVMPayerOf(s, key, sandbox.USDC)
	c := testworld.Challenge(t, s.SellerURL+path)
	require.Equal(t, 200, pay(t, s, path, c, payer.sign(t, s, c.Accepts[0]).Payload).Status)

	header := signed(asIs)
	answer := signIn(header)
	require.Equal(t, 200, answer.Status, answer.Body)
	require.Equal(t, Content(path), answer.Body)
	require.Equal(t, "invalid_siwx_nonce", signIn(header).Why(t), "the same message again")
	require.Equal(t, 402, testworld.Get(t, s.SellerURL+"/weather", x402.HeaderSignIn, signed(asIs)).Status)
	for name, change := range map[string]func(*x402.SignIn){
		"invalid_siwx_nonce":             func(m *x402.SignIn) { m.Nonce = "0123456789abcdef" },
		"invalid_siwx_domain_mismatch":   func(m *x402.SignIn) { m.Domain = "other.example" },
		"invalid_siwx_uri_mismatch":      func(m *x402.SignIn) { m.URI = "https://other.example/" },
		"invalid_siwx_issued_at_too_old": func(m *x402.SignIn) { m.IssuedAt = "2026-01-01T00:00:00Z" },
		"invalid_siwx_unsupported_chain": func(m *x402.SignIn) { m.ChainID = sandbox.Solana },
	} {
		t.Run(name, func(t *testing.T) { require.Contains(t, signIn(signed(change)).Why(t), name) })
	}
	require.Equal(t, 1, s.SignIns())
	require.Len(t, s.Settlements(), 1)
	require.EqualValues(t, sandbox.USDC-mill, s.Balance(payer.Address()))
}
