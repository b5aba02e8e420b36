package schemes

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// credential is presented to a path; change, where it is given, is made to it before.
func credential(t *testing.T, s *World, path string, c *wire.Challenge, payload json.RawMessage,
	change func(map[string]any)) (*http.Response, *wire.Settlement) {
	t.Helper()
	encoded := must.Get(wire.EncodePayload(c, c.Accepts[0], payload, nil))(t)
	if change != nil {
		members := must.JSON[map[string]any](encoded)(t)
		change(members)
		encoded = must.Get(json.Marshal(members))(t)
	}
	with := wire.Attach(c.Accepts[0].Dialect, encoded)
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, s.SellerURL+path, nil))(t)
	request.Header.Set(with.Header, with.Value)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response := must.Get(client.Do(request))(t)
	require.NoError(t, response.Body.Close())
	return response, must.Get(wire.ReadSettlement(response.Header))(t)
}

func TestMPPPayment(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newEVMPayer(t, s, sandbox.USDC)
	order := func(c *wire.Challenge) onchain.Authorization {
		return must.Get(payer.Authorize(t.Context(), onchain.Order{Requirement: c.Accepts[0],
			Asset:  s.chain.Asset,
			Source: payer.Address(), Validity: time.Minute, Now: s.Now()}))(t)
	}
	c := testworld.Challenge(t, s.SellerURL+"/mpp/weather")
	require.Equal(t, x402.MPP, c.Accepts[0].Scheme)
	a := order(c)
	for name, change := range map[string]func(map[string]any){
		"another challenge's id": func(m map[string]any) { m["challenge"].(map[string]any)["id"] = "x" },
		"another realm":          func(m map[string]any) { m["challenge"].(map[string]any)["realm"] = "x" },
		"another request":        func(m map[string]any) { m["challenge"].(map[string]any)["request"] = "x" },
		"another nonce":          func(m map[string]any) { m["payload"].(map[string]any)["nonce"] = "0x00" },
		"another amount":         func(m map[string]any) { m["payload"].(map[string]any)["value"] = "1" },
	} {
		response, _ := credential(t, s, "/mpp/weather", c, a.Payload, change)
		require.Equal(t, 402, response.StatusCode, name)
	}
	require.Empty(t, s.Settlements())

	response, receipt := credential(t, s, "/mpp/weather", c, a.Payload, nil)
	require.Equal(t, 200, response.StatusCode)
	require.True(t, receipt.Success)
	require.Equal(t, s.Settlements()[0].Transaction, receipt.Transaction)
	again, _ := credential(t, s, "/mpp/weather", c, order(c).Payload, nil)
	require.Equal(t, 402, again.StatusCode, "one challenge, one payment")
	require.Len(t, s.Settlements(), 1)
}

// signsText signs a message as it is, whatever it says.
func signsText(t *testing.T, key onchain.Signer, m x402.SignIn) x402.SignIn {
	text, _ := m.Text() // of what is no message: "", which nobody takes
	digest := crypto.Keccak256Hash([]byte("\x19Ethereum Signed Message:\n" + strconv.Itoa(len(text)) + text))
	signature := signDigest(t, key, digest)
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
		return wire.EncodeSignIn(signsText(t, key, m))
	}
	asIs := func(*x402.SignIn) {}
	signIn := func(header string) testworld.Answer {
		return testworld.Get(t, s.SellerURL+path, wire.HeaderSignIn, header)
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
	require.Equal(t, 402, testworld.Get(t, s.SellerURL+"/weather", wire.HeaderSignIn, signed(asIs)).Status)
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

// The wallet settles and shows the transaction, once.
func TestWalletSettles(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newEVMPayer(t, s, sandbox.USDC)
	for _, form := range []string{"/settle-first", "/settle-plain", "/ignores-payment"} {
		c := testworld.Challenge(t, s.SellerURL+form+"/weather")
		r := c.Accepts[0]
		require.Equal(t, form != "/ignores-payment", r.Dialect.WalletSettles())
		require.Equal(t, form == "/ignores-payment", r.Dialect.MayWantProof())
		if r.Extra == nil {
			r.Extra = map[string]json.RawMessage{"name": json.RawMessage(`"USDC"`),
				"version": json.RawMessage(`"2"`)}
			c.Accepts[0] = r
		}
		payload := payer.sign(t, s, r).Payload
		require.Equal(t, 402, pay(t, s, form+"/weather", c, payload).Status)
		status, settlement := testworld.Settle(t, s.FacilitatorURL, c, payload)
		require.Equal(t, 200, status)
		require.True(t, settlement.Success, settlement.ErrorReason)
		url := s.SellerURL + form
		for _, row := range []struct {
			path string
			want int
		}{{"/report", 402}, {"/weather", 200}, {"/weather", 402}, {"/free", 200}, {"/nowhere", 404}} {
			answer := testworld.Get(t, url+row.path, "X-Payment-Signature", settlement.Transaction)
			require.Equal(t, row.want, answer.Status, form+row.path)
		}
	}
}
