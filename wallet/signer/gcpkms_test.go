package signer

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

const (
	googleKey   = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
	accessToken = "ya29.accessToken0123456789"
)

// google is Cloud KMS, and the token endpoint of a service account.
type google struct {
	account *rsa.PrivateKey
	grants  atomic.Int64
}

func (g *google) handle(s *service, r *http.Request, body []byte) (int, any) {
	if r.URL.Path == "/token" {
		g.grants.Add(1)
		form, err := url.ParseQuery(string(body))
		s.must(err == nil && r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" &&
			form.Get("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer", "grant is %s", body)
		claims := jwt.MapClaims{}
		_, err = jwt.ParseWithClaims(form.Get("assertion"), claims, func(t *jwt.Token) (any, error) {
			s.must(t.Header["kid"] == "kid-1" && t.Header["alg"] == "RS256", "assertion's head is %v",
				t.Header)
			return &g.account.PublicKey, nil
		}, jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithAudience(s.URL+"/token"),
			jwt.WithIssuer("wallet@p.iam.gserviceaccount.com"), jwt.WithExpirationRequired())
		s.must(err == nil && claims["scope"] == "https://www.googleapis.com/auth/cloudkms" &&
			len(claims) == 5,
			"assertion is %v: %v", claims, err)
		return 200, map[string]any{"access_token": accessToken, "expires_in": 3599, "token_type": "Bearer"}
	}
	s.must(r.Header.Get("Authorization") == "Bearer "+accessToken, "token is %s",
		r.Header.Get("Authorization"))
	crc := func(b []byte) string {
		return strconv.Itoa(int(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))))
	}
	algorithm := map[string]string{"evm": "EC_SIGN_SECP256K1_SHA256", "solana": "EC_SIGN_ED25519"}[s.chain]
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/" + googleKey + "/publicKey":
		text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: s.spki(s.t)}))
		return 200, map[string]any{"pem": text, "pemCrc32c": crc([]byte(text)), "algorithm": algorithm,
			"name": googleKey, "protectionLevel": "HSM"}
	case "POST /v1/" + googleKey + ":asymmetricSign":
		var ask struct {
			Digest                   struct{ SHA256 string }
			DigestCRC32C, DataCRC32C string
			Data                     string
		}
		s.must(json.Unmarshal(body, &ask) == nil, "body is %s", body)
		isEVM := s.chain == wallet.ChainEVM
		text, sum := ask.Data, ask.DataCRC32C
		if isEVM {
			text, sum = ask.Digest.SHA256, ask.DigestCRC32C
		}
		data, err := base64.StdEncoding.DecodeString(text)
		s.must(err == nil && len(data) > 0 && sum == crc(data), "checksum is another: %s", body)
		s.must(isEVM == (ask.Data == "") && isEVM == strings.Contains(string(body), "digest"), "body is %s",
			body)
		signature := s.sign(s.lying(), data)
		if isEVM {
			signature = der(signature, s.asked.Load()%2 == 0)
		}
		out := map[string]any{"signature": signature, "signatureCrc32c": crc(signature), "name": googleKey,
			"verifiedDigestCrc32c": isEVM, "verifiedDataCrc32c": !isEVM}
		switch s.lying() {
		case "checksum":
			out["signatureCrc32c"] = crc(data)
		case "unverified":
			delete(out, "verifiedDigestCrc32c")
			delete(out, "verifiedDataCrc32c")
		case "another version":
			out["name"] = strings.Replace(googleKey, "/1", "/2", 1)
		}
		return 200, out
	}
	return 404, map[string]any{"error": map[string]any{"status": "NOT_FOUND"}}
}

func TestGoogleKMS(t *testing.T) {
	account := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	pkcs8 := must.Get(x509.MarshalPKCS8PrivateKey(account))(t)
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	for _, chain := range []string{wallet.ChainEVM, wallet.ChainSolana} {
		t.Run(chain, func(t *testing.T) {
			g := &google{account: account}
			s := newService(t, chain, g.handle)
			content := must.Get(json.Marshal(map[string]string{"type": "service_account",
				"private_key_id": "kid-1",
				"client_email":   "wallet@p.iam.gserviceaccount.com", "private_key": private,
				"token_uri": s.URL + "/token"}))(t)
			rules := config.Signer{Kind: config.SignerGoogle, Key: googleKey, URL: s.URL, Chain: chain,
				SecretFile: secretFile(t, string(content)), Address: s.address(), Timeout: time.Minute}
			signer := New("hsm", rules, options())
			for range 3 {
				require.NoError(t, wallet.TestSigner(t.Context(), signer, chain, now))
			}
			require.Equal(t, int64(1), g.grants.Load(), "a token is used as long as it is good")
			for _, lie := range []string{"checksum", "unverified", "another version"} {
				s.toLie(lie)
				err := wallet.TestSigner(t.Context(), signer, chain, now)
				require.True(t, x402.HasCode(err, x402.SetupFailed), lie)
				require.ErrorContains(t, err, "other bytes", lie)
			}
			s.toLie("")
			byCommand := rules // as gcloud auth print-access-token
			byCommand.SecretFile, byCommand.SecretCommand = "", []string{"/bin/echo", accessToken}
			require.NoError(t, wallet.TestSigner(t.Context(), New("hsm", byCommand, options()), chain, now))
			require.Equal(t, int64(1), g.grants.Load())
			tries(t, s, rules, accessToken, "MIIE", strings.Split(private, "\n")[3])
		})
	}
}
