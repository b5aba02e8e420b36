package signer

import (
	"bytes"
	"crypto/ecdsa"
	stded25519 "crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// apiOfCDP is Coinbase's: a token bound to each request, and for what signs another one over its body.
func apiOfCDP(api stded25519.PublicKey, walletKey *ecdsa.PublicKey) func(s *service, r *http.Request,
	body []byte) (int, any) {
	return func(s *service, r *http.Request, body []byte) (int, any) {
		uri := r.Method + " " + r.Host + r.URL.Path
		check := func(text string, key any, method string) (claims jwt.MapClaims, header map[string]any) {
			claims = jwt.MapClaims{}
			token, err := jwt.ParseWithClaims(text, claims, func(*jwt.Token) (any, error) { return key, nil },
				jwt.WithValidMethods([]string{method}), jwt.WithTimeFunc(func() time.Time { return now }))
			uris, _ := claims["uris"].([]any)
			s.must(err == nil && len(uris) == 1 && uris[0] == uri, "token is %v: %v", claims, err)
			if token == nil {
				return claims, nil
			}
			return claims, token.Header
		}
		bearer, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims, header := check(bearer, api, "EdDSA")
		s.must(isBearer && claims["sub"] == "key-1" && claims["iss"] == "cdp" && header["kid"] == "key-1" &&
			header["nonce"] != nil, "token is %v, %v", header, claims)
		path := "/v2/" + s.chain + "/accounts/" + s.address()
		if r.Method == http.MethodGet && r.URL.Path == path {
			return 200, map[string]string{"address": s.address(), "name": "agent"}
		}
		claims, _ = check(r.Header.Get("X-Wallet-Auth"), walletKey, "ES256")
		// as the service reads it and writes it again, in JavaScript
		var read map[string]string
		s.must(json.Unmarshal(body, &read) == nil, "body is %s", body)
		again := ""
		for key, value := range read {
			again = `{"` + key + `":"` + strings.ReplaceAll(value, "\n", `\n`) + `"}`
		}
		hash := sha256.Sum256([]byte(again))
		s.must(claims["reqHash"] == hex.EncodeToString(hash[:]) && claims["jti"] != nil, "proof is %v",
			claims)
		var ask map[string]string
		s.must(json.Unmarshal(body, &ask) == nil && len(ask) == 1, "body is %s", body)
		return s.signForCDP(r.URL.Path, path, ask, body)
	}
}

// signForCDP is what its signing endpoints answer.
func (s *service) signForCDP(asked, path string, ask map[string]string, body []byte) (int, any) {
	switch {
	case s.chain == "evm" && asked == path+"/sign":
		digest, err := hex.DecodeString(strings.TrimPrefix(ask["hash"], "0x"))
		s.must(err == nil && len(digest) == 32 && strings.HasPrefix(ask["hash"], "0x"), "body is %s",
			body)
		return 200, map[string]string{"signature": "0x" + hex.EncodeToString(s.sign(s.lying(), digest))}
	case s.chain == "solana" && asked == path+"/sign/message":
		return 200, map[string]string{"signature": base58.Encode(s.sign(s.lying(), []byte(ask["message"])))}
	case s.chain == "solana" && asked == path+"/sign/transaction":
		transaction, err := base64.StdEncoding.DecodeString(ask["transaction"])
		s.must(err == nil && len(transaction) > 129 && transaction[0] == 2, "transaction is %x",
			transaction)
		signed := bytes.Clone(transaction)
		copy(signed[65:], s.sign(s.lying(), transaction[129:]))
		if s.lying() == "another transaction" {
			signed[len(signed)-1] ^= 1
		}
		return 200, map[string]string{"signedTransaction": base64.StdEncoding.EncodeToString(signed)}
	}
	return 404, map[string]string{"errorType": "not_found"}
}

func TestCDP(t *testing.T) {
	public, private, err := stded25519.GenerateKey(nil)
	require.NoError(t, err)
	walletKey := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	pkcs8 := must.Get(x509.MarshalPKCS8PrivateKey(walletKey))(t)
	apiSecret, walletSecret := base64.StdEncoding.EncodeToString(private),
		base64.StdEncoding.EncodeToString(pkcs8)
	content := `{"id":"key-1","privateKey":"` + apiSecret + `","walletSecret":"` + walletSecret + `"}`
	for _, chain := range []string{wallet.ChainEVM, wallet.ChainSolana} {
		t.Run(chain, func(t *testing.T) {
			s := newService(t, chain, apiOfCDP(public, &walletKey.PublicKey))
			rules := config.Signer{Kind: config.SignerCDP, Key: s.address(), URL: s.URL, Chain: chain,
				SecretFile: secretFile(t, content), Address: s.address(), Timeout: time.Minute}
			if chain == wallet.ChainSolana {
				signsTransactions(t, s, New("hsm", rules, options()))
			}
			tries(t, s, rules, apiSecret, walletSecret)
		})
	}
}

// signsTransactions: a transaction whose second signer the account is, as payments are.
func signsTransactions(t *testing.T, s *service, signer *Signer) {
	message := append([]byte{0x80, 2, 1, 0, 2}, make([]byte, 32)...)
	message = append(append(message, x402.DecodeBase58(s.address(), 32)...), make([]byte, 34)...)
	order := wallet.Order{Chain: wallet.ChainSolana, Kind: wallet.Transaction, Payload: message}
	must.Get(wallet.SignBy(t.Context(), signer, order))(t)
	_, err := wallet.SignBy(t.Context(), signer, wallet.Order{Chain: wallet.ChainSolana, Kind: wallet.Text,
		Payload: []byte("URI: https://a.example/?a=1&b=<2>\nNonce: 1")})
	require.NoError(t, err, "as in a sign-in")
	for _, lie := range []string{"another transaction", "another key", "another order"} {
		s.toLie(lie)
		require.Error(t, must.Err(wallet.SignBy(t.Context(), signer, order)), lie)
	}
	s.toLie("")
	order.Payload = bytes.Replace(message, x402.DecodeBase58(s.address(), 32), make([]byte, 32), 1)
	require.ErrorContains(t, must.Err(wallet.SignBy(t.Context(), signer, order)), "does not sign")
	order.Payload = []byte{0x80}
	require.Error(t, must.Err(wallet.SignBy(t.Context(), signer, order)), "no message at all")
	order.Kind = wallet.Channel
	require.ErrorContains(t, must.Err(wallet.SignBy(t.Context(), signer, order)), "payment channels")
}
