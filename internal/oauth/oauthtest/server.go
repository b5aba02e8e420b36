// Package oauthtest is an authorization server for tests: strict in what it gives out, with keys that it
// changes on command, and lies that it tells on command.
package oauthtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Key is one that the server signs with.
type Key struct {
	ID, Algorithm string
	Private       crypto.Signer
	JWK           map[string]any // as it is published
}

var algorithms = map[string]jwt.SigningMethod{"RS256": jwt.SigningMethodRS256,
	"PS256": jwt.SigningMethodPS256, "ES256": jwt.SigningMethodES256, "ES384": jwt.SigningMethodES384,
	"EdDSA": jwt.SigningMethodEdDSA}

// rsaKey is made once, because that takes long.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) {
	const bits = 2048
	return rsa.GenerateKey(rand.Reader, bits)
})

// NewKey makes a key for an algorithm. All RSA keys are the same one.
func NewKey(t testing.TB, id, algorithm string) *Key {
	t.Helper()
	k := &Key{ID: id, Algorithm: algorithm}
	var err error
	switch algorithm {
	case "RS256", "PS256":
		k.Private, err = rsaKey()
	case "ES256":
		k.Private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ES384":
		k.Private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "EdDSA":
		_, k.Private, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("no algorithm %s", algorithm)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.JWK = public(k.Private.Public())
	k.JWK["kid"], k.JWK["use"], k.JWK["alg"] = id, "sig", algorithm
	return k
}

func base64url(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// public is a public key as RFC 7518 and RFC 8037 write it.
func public(key crypto.PublicKey) map[string]any {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "n": base64url(key.N.Bytes()), "e": "AQAB"}
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			panic(err)
		}
		half := (len(point) - 1) / 2
		return map[string]any{"kty": "EC", "crv": key.Curve.Params().Name,
			"x": base64url(point[1 : 1+half]), "y": base64url(point[1+half:])}
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64url(key)}
	}
	panic(key)
}

// Claims are an access token's (RFC 9068), good for five minutes.
func (s *Server) Claims(subject, audience string) map[string]any {
	now := time.Now().Unix()
	const life = 300
	return map[string]any{"iss": s.Issuer, "sub": subject, "aud": audience, "exp": now + life, "iat": now,
		"client_id": subject, "jti": rand.Text()}
}

// Sign is a token with these claims, and more in its header: "typ", say. A nil takes a member out.
func (k *Key) Sign(t testing.TB, claims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(algorithms[k.Algorithm], jwt.MapClaims(claims))
	token.Header["kid"], token.Header["typ"] = k.ID, "at+jwt"
	for name, value := range header {
		token.Header[name] = value
		if value == nil {
			delete(token.Header, name)
		}
	}
	text, err := token.SignedString(k.Private)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// SignText is a token of exactly this header and these claims.
func (k *Key) SignText(t testing.TB, header, claims string) string {
	t.Helper()
	signed := base64url([]byte(header)) + "." + base64url([]byte(claims))
	signature, err := algorithms[k.Algorithm].Sign(signed, k.Private)
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64url(signature)
}

// Server is an authorization server. Its fields are changed under Change.
type Server struct {
	Issuer string
	Lies
	Keys []*Key
	// Clients may have tokens by client_credentials: their secrets, by ID, which is the sub.
	Clients map[string]string
	// Resource is the one that tokens are given out for.
	Resource string

	mu      sync.Mutex
	t       testing.TB
	fetched []string // paths
}

// Lies are what it tells instead of the truth.
type Lies struct {
	Issuer  string        // in its metadata
	KeysURL string        // in its metadata
	OpenID  bool          // it has no metadata but OpenID's, below the issuer
	Status  int           // of all that it answers
	To      string        // it redirects there
	Before  func()        // is called before it answers with its keys
	KeySet  func() []byte // instead of its keys
}

// New starts one, whose issuer has this path ("": none).
func New(t testing.TB, path string) *Server {
	t.Helper()
	s := &Server{t: t, Clients: map[string]string{}, Keys: []*Key{NewKey(t, "first", "ES256")}}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.Issuer = web.URL + path
	return s
}

// Change changes it while it runs.
func (s *Server) Change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Fetched counts the requests for a path.
func (s *Server) Fetched(path string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range s.fetched {
		if each == path {
			n++
		}
	}
	return n
}

// Paths are those that were asked for.
func (s *Server) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.fetched)
}

const KeysPath = "/keys"

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.fetched = append(s.fetched, r.URL.Path)
	lies, keys := s.Lies, slices.Clone(s.Keys)
	s.mu.Unlock()
	origin := "http://" + r.Host
	path := strings.TrimPrefix(s.Issuer, origin)
	metadata := "/.well-known/oauth-authorization-server" + strings.TrimRight(path, "/")
	if lies.OpenID {
		metadata = strings.TrimRight(path, "/") + "/.well-known/openid-configuration"
	}
	switch {
	case lies.To != "":
		w.Header().Set("Location", lies.To+r.URL.Path)
		w.WriteHeader(http.StatusFound)
	case lies.Status != 0:
		w.WriteHeader(lies.Status)
	case r.URL.Path == metadata:
		said := map[string]any{"issuer": s.Issuer, "jwks_uri": origin + KeysPath,
			"token_endpoint": origin + "/token", "authorization_endpoint": origin + "/authorize",
			"response_types_supported":         []string{"code"},
			"code_challenge_methods_supported": []string{"S256"}}
		if lies.Issuer != "" {
			said["issuer"] = lies.Issuer
		}
		if lies.KeysURL != "" {
			said["jwks_uri"] = lies.KeysURL
		}
		answer(w, said)
	case r.URL.Path == KeysPath:
		if lies.Before != nil {
			lies.Before()
		}
		if lies.KeySet != nil {
			_, _ = w.Write(lies.KeySet())
			return
		}
		set := []map[string]any{}
		for _, key := range keys {
			set = append(set, key.JWK)
		}
		answer(w, map[string]any{"keys": set})
	case r.URL.Path == "/token":
		s.token(w, r, keys[len(keys)-1])
	default:
		http.NotFound(w, r)
	}
}

// token gives a token to a client that shows its secret and names the resource (RFC 8707), or none: the only
// one is meant.
func (s *Server) token(w http.ResponseWriter, r *http.Request, key *Key) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	known := s.Clients[id]
	switch {
	case r.Method != http.MethodPost || r.PostFormValue("grant_type") != "client_credentials":
		http.Error(w, `{"error":"unsupported_grant_type"}`, http.StatusBadRequest)
	case known == "" || known != secret:
		http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
	case r.PostFormValue("resource") != "" && r.PostFormValue("resource") != s.Resource:
		http.Error(w, `{"error":"invalid_target"}`, http.StatusBadRequest)
	default:
		answer(w, map[string]any{"access_token": key.Sign(s.t, s.Claims(id, s.Resource), nil),
			"token_type": "Bearer", "expires_in": 300})
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v)
}
