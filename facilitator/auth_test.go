package facilitator

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

func secret(text string) func() (string, error) { return func() (string, error) { return text, nil } }

func base64PKCS8(t *testing.T, key any) string {
	t.Helper()
	der := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	return base64.StdEncoding.EncodeToString(der)
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func posted(t *testing.T, f Facilitator) (string, Result) {
	t.Helper()
	w := newWire(map[string]script{"api.cdp.coinbase.com": {yes}})
	f.URL = "https://api.cdp.coinbase.com/platform/v2/x402"
	r := w.clientOf(f).Settle(t.Context(), evm)
	if len(w.posts) == 0 {
		return "", r
	}
	return w.posts[0].header.Get("Authorization"), r
}

// The tokens of cdp-sdk 1.57.0, auth/utils/jwt.ts.
func TestCDP(t *testing.T) {
	edPublic, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ec := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	sec1 := must.Get(x509.MarshalECPrivateKey(ec))(t)
	pkcs8 := must.Get(x509.MarshalPKCS8PrivateKey(ec))(t)
	sec1PEM := pemOf("EC PRIVATE KEY", sec1)
	for name, row := range map[string]struct {
		secret, alg string
		public      any
	}{
		"Ed25519":                  {base64.StdEncoding.EncodeToString(ed), "EdDSA", edPublic},
		"EC PEM":                   {sec1PEM, "ES256", &ec.PublicKey},
		"EC PEM as one line":       {strings.ReplaceAll(sec1PEM, "\n", `\n`), "ES256", &ec.PublicKey},
		"EC PEM as PKCS#8":         {pemOf("PRIVATE KEY", pkcs8), "ES256", &ec.PublicKey},
		"Ed25519, blanks about it": {" " + base64.StdEncoding.EncodeToString(ed) + "\n", "EdDSA", edPublic},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now().Unix()
			header, r := posted(t, Facilitator{Auth: authCDP, KeyID: "organizations/x/apiKeys/y",
				Secret: secret(row.secret)})
			require.Equal(t, Settled, r.Outcome, r.Err)
			parsed := must.Get(jwt.Parse(strings.TrimPrefix(header, "Bearer "),
				func(*jwt.Token) (any, error) { return row.public, nil },
				jwt.WithValidMethods([]string{row.alg})))(t)
			assert.Equal(t, "JWT", parsed.Header["typ"])
			assert.Equal(t, "organizations/x/apiKeys/y", parsed.Header["kid"])
			assert.Regexp(t, "^[0-9a-f]{32}$", parsed.Header["nonce"])
			claims := parsed.Claims.(jwt.MapClaims)
			assert.Equal(t, "organizations/x/apiKeys/y", claims["sub"])
			assert.Equal(t, "cdp", claims["iss"])
			assert.Equal(t, []any{"POST api.cdp.coinbase.com/platform/v2/x402/settle"}, claims["uris"])
			assert.GreaterOrEqual(t, claims["iat"], float64(began))
			assert.LessOrEqual(t, claims["iat"], float64(time.Now().Unix()))
			assert.Equal(t, claims["iat"], claims["nbf"])
			assert.InDelta(t, claims["iat"].(float64)+120, claims["exp"], 0)
			assert.Len(t, claims, 6)
			assert.Len(t, parsed.Header, 4)
		})
	}
}

// One token for each method and path.
func TestCDPTokensAreBoundToTheRequest(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	w := newWire(map[string]script{"f": {`200 {"isValid":true}`, yes}})
	c := w.clientOf(Facilitator{Auth: authCDP, KeyID: "k",
		Secret: secret(base64.StdEncoding.EncodeToString(ed))})
	_, err = c.Verify(t.Context(), evm)
	require.NoError(t, err)
	require.Equal(t, Settled, c.Settle(t.Context(), evm).Outcome)
	for i, path := range []string{"verify", "settle"} {
		token, _, err := jwt.NewParser().ParseUnverified(
			strings.TrimPrefix(w.posts[i].header.Get("Authorization"), "Bearer "), jwt.MapClaims{})
		require.NoError(t, err)
		assert.Equal(t, []any{"POST f/" + path}, token.Claims.(jwt.MapClaims)["uris"])
	}
}

// The tokens of @payai/facilitator 2.4.1.
func TestPayAI(t *testing.T) {
	public, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key := base64PKCS8(t, ed)
	for _, text := range []string{key, "payai_sk_" + key} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(map[string]script{"f": {yes}})
			c := w.clientOf(Facilitator{Auth: authPayAI, KeyID: "k1", Secret: secret(text)})
			for _, pause := range []time.Duration{0, 89 * time.Second, time.Second} {
				// renewed 30 s before its end
				time.Sleep(pause)
				require.Equal(t, Settled, c.Settle(t.Context(), evm).Outcome)
			}
			tokens := []string{}
			for _, p := range w.posts {
				tokens = append(tokens, strings.TrimPrefix(p.header.Get("Authorization"), "Bearer "))
			}
			assert.Equal(t, tokens[0], tokens[1])
			assert.NotEqual(t, tokens[1], tokens[2])
			parsed := must.Get(jwt.Parse(tokens[0], func(*jwt.Token) (any, error) {
				return public, nil
			}, jwt.WithValidMethods([]string{"EdDSA"})))(t)
			claims := parsed.Claims.(jwt.MapClaims)
			assert.Equal(t, map[string]any{"alg": "EdDSA", "typ": "JWT", "kid": "k1"}, parsed.Header)
			assert.Equal(t, "k1", claims["sub"])
			assert.Equal(t, "payai-merchant", claims["iss"])
			assert.InDelta(t, claims["iat"].(float64)+120, claims["exp"], 0)
			assert.Regexp(t, "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
				claims["jti"])
			assert.Len(t, claims, 5)
		})
	}
	header, r := posted(t, Facilitator{Auth: authPayAI})
	assert.Equal(t, Settled, r.Outcome, "the free tier needs no key")
	assert.Empty(t, header)
}

func TestFixedHeader(t *testing.T) {
	header, r := posted(t, Facilitator{Auth: authHeader, Secret: secret("Authorization:  Basic abc\n")})
	require.Equal(t, Settled, r.Outcome)
	assert.Equal(t, "Basic abc", header)
	for _, line := range []string{"", "Authorization", "Authorization:", ": x", "A b: c", "A: b\nHost: evil",
		"Host: evil", "content-length: 5"} {
		_, r := posted(t, Facilitator{Auth: authHeader, Secret: secret(line)})
		assert.Equal(t, NotSent, r.Outcome, line)
	}
}

// A facilitator that says our credentials back does not say them to an agent, nor into the ledger.
func TestEchoedCredentialsAreRedacted(t *testing.T) {
	w := newWire(map[string]script{"f": {`401 {"success":false,"errorReason":"no key hunter2hunter2hunter2","transaction":"","network":"base-sepolia"}`}})
	c := w.clientOf(Facilitator{Auth: authHeader, Secret: secret("X-Api-Key: Key hunter2hunter2hunter2")})
	r := c.Settle(t.Context(), evm)
	require.Equal(t, Refused, r.Outcome)
	assert.Equal(t, "no key ***", r.Settlement.ErrorReason)
	assert.NotContains(t, fmt.Sprint(string(r.Settlement.Raw), r.Err, x402.AsError(r.Err).Details), "hunter2")
	assert.Equal(t, "Key hunter2hunter2hunter2", w.posts[0].header.Get("X-Api-Key"))
}

// Credentials that cannot be used are reported at once, without a retry, and never shown; the next
// facilitator is asked.
func TestBadCredentials(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	mixed := append(append([]byte{}, ed[:32]...), make([]byte, 32)...)
	rsaKey := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	p384 := must.Get(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	p384DER := must.Get(x509.MarshalECPrivateKey(p384))(t)
	rsaDER := must.Get(x509.MarshalPKCS8PrivateKey(rsaKey))(t)
	for i, row := range []struct {
		auth Facilitator
		says string
	}{
		{Facilitator{Auth: authCDP}, "CDP_API_KEY_ID and CDP_API_KEY_SECRET are not set"},
		{Facilitator{Auth: authCDP, KeyID: "k"}, "CDP_API_KEY_SECRET is not set"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: secret(" ")}, "CDP_API_KEY_SECRET is not set"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: secret("sekret")}, "neither base64"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: secret(base64.StdEncoding.EncodeToString(ed[:32]))},
			"neither base64"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: secret(base64.StdEncoding.EncodeToString(mixed))},
			"halves"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: secret("-----BEGIN sekret")}, "neither base64"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: secret(pemOf("EC PRIVATE KEY", p384DER))}, "P-256"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: secret(pemOf("PRIVATE KEY", rsaDER))}, "P-256"},
		{Facilitator{Auth: authCDP, KeyID: "k", Secret: func() (string, error) {
			return "", errors.New("no such file")
		}}, "no such file"},
		{Facilitator{Auth: authPayAI, KeyID: "k", Secret: secret("payai_sk_sekret!")}, "PKCS#8"},
		{Facilitator{Auth: authPayAI, KeyID: "k", Secret: secret(base64PKCS8(t, rsaKey))}, "PKCS#8"},
		{Facilitator{Auth: "oauth"}, `"oauth" is no way`},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := newWire(map[string]script{"a": {yes}, "b": {yes}})
			c := w.client("a", "b")
			f := c.list[0]
			f.Auth, f.KeyID, f.Secret = row.auth.Auth, row.auth.KeyID, row.auth.Secret
			r := c.Settle(t.Context(), evm)
			assert.Equal(t, Settled, r.Outcome)
			assert.Equal(t, "b", r.Facilitator)
			require.Len(t, r.Tries, 2, row.says)
			assert.ErrorContains(t, r.Tries[0].Err, row.says)
			assert.NotContains(t, r.Tries[0].Err.Error(), "sekret")
			assert.Equal(t, "b", strings.Join(w.asked(), " "))
		})
	}
}

func TestAuthDoesNotShowItsSecret(t *testing.T) {
	f := Facilitator{Name: "f", Auth: authCDP, KeyID: "k", Secret: secret("hunter2")}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "f", f)
	coded := must.Get(json.Marshal(f))(t)
	assert.NotContains(t, log.String()+string(coded)+fmt.Sprintf("%v %+v %#v", f, f, f), "hunter2")
}

// A line with a life is asked for once in it, and again at once when a facilitator does not take it.
func TestAHeaderThatExpires(t *testing.T) {
	now, asked := time.Now(), 0
	w := newWire(map[string]script{"f": {no, no, `401 {}`, no}})
	c := New(Options{HTTP: &http.Client{Transport: w}, Now: func() time.Time { return now },
		List: []Facilitator{{Name: "f", URL: "https://f", Networks: []string{sepolia}, Auth: authHeader,
			SecretLife: time.Minute, Secret: func() (string, error) {
				asked++
				return fmt.Sprint("X-Api-Key: token", asked), nil
			}}}})
	for i, want := range []string{"token1", "token1", "token2", "token3"} {
		if i == 2 {
			now = now.Add(time.Minute)
		}
		c.Settle(t.Context(), evm)
		require.Equal(t, want, w.posts[i].header.Get("X-Api-Key"))
	}
}
