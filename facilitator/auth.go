package facilitator

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"x402-wallet/internal/pattern"
)

// The ways to prove who we are to a facilitator, as config.toml calls them.
const (
	authNone   = "none"
	authCDP    = "cdp"    // Coinbase Developer Platform
	authPayAI  = "payai"  // free without a key
	authHeader = "header" // a fixed header
)

// Times of the credentials, as cdp-sdk 1.57.0 and @payai/facilitator 2.4.1 have them.
const (
	tokenLife  = 2 * time.Minute
	tokenRenew = 30 * time.Second // before a token's end
)

// token remembers a facilitator's key, PayAI's token, which is good for any request, and a header's line.
type token struct {
	sync.Mutex
	key   crypto.Signer
	value string
	until time.Time
}

func (c *Client) authorize(f *remote, r *http.Request) error {
	switch f.Auth {
	case "", authNone:
		return nil
	case authPayAI:
		if f.KeyID == "" { // the free tier
			return nil
		}
		return c.bearer(f, r, c.payaiToken)
	case authCDP:
		return c.bearer(f, r, c.cdpToken)
	case authHeader:
		return c.fixedHeader(f, r)
	default:
		return fmt.Errorf("%q is no way to authorize", f.Auth)
	}
}

func (c *Client) bearer(f *remote, r *http.Request, make func(*remote, *http.Request) (string, error)) error {
	f.token.Lock()
	defer f.token.Unlock()
	value, err := make(f, r)
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+value)
	}
	return err
}

// cdpToken is a token for one method and path: CDP binds it to them by the claim uris.
func (c *Client) cdpToken(f *remote, r *http.Request) (string, error) {
	if f.KeyID == "" {
		return "", errors.New("CDP_API_KEY_ID and CDP_API_KEY_SECRET are not set")
	}
	if err := f.readKey(cdpKey); err != nil {
		return "", fmt.Errorf("CDP_API_KEY_SECRET %w", err)
	}
	now := c.now().Unix()
	id := random()
	return sign(f.token.key, map[string]any{"kid": f.KeyID, "nonce": hex.EncodeToString(id[:])},
		jwt.MapClaims{
			"sub": f.KeyID, "iss": "cdp", "uris": []string{r.Method + " " + r.URL.Host + r.URL.Path},
			"iat": now, "nbf": now, "exp": now + int64(tokenLife/time.Second),
		})
}

func (c *Client) payaiToken(f *remote, _ *http.Request) (string, error) {
	now := c.now()
	if now.Before(f.token.until) {
		return f.token.value, nil
	}
	if err := f.readKey(payaiKey); err != nil {
		return "", fmt.Errorf("PAYAI_API_KEY_SECRET %w", err)
	}
	id := random() // a UUID (RFC 9562 §5.4)
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	value, err := sign(f.token.key, map[string]any{"kid": f.KeyID}, jwt.MapClaims{
		"sub": f.KeyID, "iss": "payai-merchant", "iat": now.Unix(), "exp": now.Add(tokenLife).Unix(),
		"jti": fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
	})
	if err != nil {
		return "", err
	}
	f.token.value, f.token.until = value, now.Add(tokenLife-tokenRenew)
	return value, nil
}

func sign(key crypto.Signer, header map[string]any, claims jwt.MapClaims) (string, error) {
	var method jwt.SigningMethod = jwt.SigningMethodEdDSA
	if _, isEC := key.(*ecdsa.PrivateKey); isEC {
		method = jwt.SigningMethodES256
	}
	t := jwt.NewWithClaims(method, claims)
	maps.Copy(t.Header, header)
	return t.SignedString(key)
}

// readKey reads the secret once. Errors never hold any of it.
func (f *remote) readKey(parse func(string) (crypto.Signer, error)) error {
	if f.token.key != nil {
		return nil
	}
	if f.Secret == nil {
		return errors.New("is not set")
	}
	text, err := f.Secret()
	if err != nil {
		return fmt.Errorf("could not be read: %w", err)
	}
	if strings.TrimSpace(text) == "" {
		return errors.New("is not set")
	}
	f.token.key, err = parse(strings.TrimSpace(text))
	return err
}

var (
	errCDPKey   = errors.New("is neither base64 of a 64-byte Ed25519 key nor a PEM of an EC P-256 key")
	errPayAIKey = errors.New("is not base64 of a PKCS#8 Ed25519 key")
)

// cdpKey reads base64 of seed and public key, or PEM. In environment variables a PEM's line ends
// are often written as \n.
func cdpKey(text string) (crypto.Signer, error) {
	if strings.Contains(text, "-----BEGIN") {
		block, _ := pem.Decode([]byte(strings.ReplaceAll(text, `\n`, "\n")))
		if block == nil {
			return nil, errCDPKey
		}
		key, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil {
			parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
			key, _ = parsed.(*ecdsa.PrivateKey)
		}
		if key == nil || key.Curve != elliptic.P256() {
			return nil, errCDPKey
		}
		return key, nil
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != ed25519.PrivateKeySize {
		return nil, errCDPKey
	}
	key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !bytes.Equal(key, raw) {
		return nil, errors.New("is damaged: its two halves do not belong together")
	}
	return key, nil
}

func payaiKey(text string) (crypto.Signer, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "payai_sk_"))
	if err != nil {
		return nil, errPayAIKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(raw)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errPayAIKey
	}
	return key, nil
}

var headerName = pattern.Lazy(`^[A-Za-z0-9_-]+$`)

// header is the line "Name: value". Without a life it is read each time: the owner may change the file while
// we run.
func (c *Client) header(f *remote) (line string, err error) {
	if f.Secret == nil {
		return "", errors.New("no header is configured")
	}
	f.token.Lock()
	defer f.token.Unlock()
	if f.SecretLife > 0 && c.now().Before(f.token.until) {
		return f.token.value, nil
	}
	if line, err = f.Secret(); err != nil {
		return "", fmt.Errorf("could not be read: %w", err)
	}
	f.token.value, f.token.until = line, c.now().Add(f.SecretLife)
	return line, nil
}

// forget has the line asked for again that a facilitator did not take.
func (f *remote) forget() {
	f.token.Lock()
	defer f.token.Unlock()
	if f.Auth == authHeader {
		f.token.until = time.Time{}
	}
}

func (c *Client) fixedHeader(f *remote, r *http.Request) error {
	line, err := c.header(f)
	if err != nil {
		return err
	}
	name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
	value = textproto.TrimString(value)
	if !ok || !headerName().MatchString(name) || value == "" || strings.ContainsAny(value, "\r\n\x00") {
		return errors.New(`must be one line "Name: value"`)
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Content-Type":
		return errors.New("must not be a header that frames the message")
	}
	r.Header.Set(name, value)
	return nil
}

func random() (b [16]byte) {
	_, _ = rand.Read(b[:]) // never fails
	return b
}
