package signer

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
)

const (
	googleURL   = "https://cloudkms.googleapis.com"
	googleScope = "https://www.googleapis.com/auth/cloudkms"
	// grantLife is how long the assertion for a token is good, and tokenSlack how long before its end a token
	// is not used any more.
	grantLife, tokenSlack = 10 * time.Minute, time.Minute
)

// googleKMS is a version of a key of Google Cloud KMS: EC_SIGN_SECP256K1_SHA256 for EVM (which Google has
// with the protection level HSM), EC_SIGN_ED25519 for Solana. It takes the roles cloudkms.signer and
// cloudkms.publicKeyViewer on that key.
type googleKMS struct {
	rules       config.Signer
	api         api
	credentials *credentials
	now         func() time.Time

	mu    sync.Mutex
	of    serviceAccount // whose token it is
	token string
	until time.Time
}

// serviceAccount is a service account's key, as Google's console downloads it.
type serviceAccount struct {
	Email      string `json:"client_email"`
	KeyID      string `json:"private_key_id"`
	PrivateKey string `json:"private_key"` // PEM
	TokenURI   string `json:"token_uri"`
}

// The algorithms of keys that can sign, by chain.
var googleAlgorithms = map[string]string{wallet.ChainEVM: "EC_SIGN_SECP256K1_SHA256",
	wallet.ChainSolana: "EC_SIGN_ED25519"}

func (k *googleKMS) address(ctx context.Context) (string, error) {
	var out struct {
		PEM       string `json:"pem"`
		CRC32C    string `json:"pemCrc32c"`
		Algorithm string `json:"algorithm"`
	}
	if err := k.call(ctx, http.MethodGet, "/publicKey", nil, &out); err != nil {
		return "", err
	}
	if out.Algorithm != googleAlgorithms[k.rules.Chain] {
		return "", refused("has a key of another algorithm than %s, which the chain %s takes",
			googleAlgorithms[k.rules.Chain], k.rules.Chain)
	}
	block, _ := pem.Decode([]byte(out.PEM))
	if block == nil || out.CRC32C != checksum([]byte(out.PEM)) {
		return "", refused("answers with a public key that is damaged")
	}
	return addressOfSPKI(block.Bytes, k.rules.Chain)
}

func (k *googleKMS) sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	ask := map[string]any{"digest": map[string]any{"sha256": o.Digest[:]},
		"digestCrc32c": checksum(o.Digest[:])}
	if o.Chain == wallet.ChainSolana {
		ask = map[string]any{"data": o.Payload, "dataCrc32c": checksum(o.Payload)}
	}
	var out struct {
		Signature      []byte `json:"signature"`
		CRC32C         string `json:"signatureCrc32c"`
		Name           string `json:"name"`
		VerifiedDigest bool   `json:"verifiedDigestCrc32c"`
		VerifiedData   bool   `json:"verifiedDataCrc32c"`
	}
	if err := k.call(ctx, http.MethodPost, ":asymmetricSign", ask, &out); err != nil {
		return nil, err
	}
	hasSeen := out.VerifiedDigest
	if o.Chain == wallet.ChainSolana {
		hasSeen = out.VerifiedData
	}
	if !hasSeen || out.CRC32C != checksum(out.Signature) || out.Name != k.rules.Key {
		return nil, refused("answers for other bytes, or for another key than were sent to it")
	}
	if o.Chain == wallet.ChainSolana {
		return out.Signature, nil
	}
	return fromDER(out.Signature)
}

// checksum is CRC-32C as the API writes it: a number in a text.
func checksum(b []byte) string {
	return strconv.FormatUint(uint64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))), 10)
}

// call asks for one operation of the key (Cloud KMS API v1).
func (k *googleKMS) call(ctx context.Context, method, operation string, ask, result any) error {
	var body []byte
	if ask != nil {
		var err error
		if body, err = json.Marshal(ask); err != nil {
			return err
		}
	}
	bearer, err := k.bearer(ctx)
	if err != nil {
		return err
	}
	r, err := k.api.request(ctx, method, "/v1/"+strings.Trim(k.rules.Key, "/")+operation, body)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	return k.api.do(r, result)
}

// bearer is an access token: the one that secret_command prints (`gcloud auth print-access-token`), or one
// for the service account's key (RFC 7523).
func (k *googleKMS) bearer(ctx context.Context) (string, error) {
	var account serviceAccount
	raw, err := k.credentials.read(ctx, &account)
	if err != nil || raw != "" {
		if strings.ContainsAny(raw, " \r\n\t") {
			return "", refused("has credentials that are neither a service account's key nor a token")
		}
		return raw, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == account && k.now().Before(k.until) {
		return k.token, nil
	}
	key, isRSA := privateKey(account.PrivateKey).(*rsa.PrivateKey)
	if !isRSA || account.Email == "" || account.TokenURI == "" {
		return "", refused(`has credentials without "client_email", "token_uri" or "private_key" (RSA, PEM)`)
	}
	now := k.now()
	grant, err := token(key, map[string]any{"kid": account.KeyID}, jwt.MapClaims{"iss": account.Email,
		"scope": googleScope, "aud": account.TokenURI, "iat": now.Unix(), "exp": now.Add(grantLife).Unix()})
	if err != nil {
		return "", err
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {grant}}
	tokens := api{base: account.TokenURI, http: k.api.http}
	r, err := tokens.request(ctx, http.MethodPost, "", []byte(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var out struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"` // seconds
		TokenType   string `json:"token_type"`
	}
	if err := tokens.do(r, &out); err != nil {
		return "", err
	}
	if out.AccessToken == "" || !strings.EqualFold(out.TokenType, "Bearer") {
		return "", refused("was given no token for its service account")
	}
	life := min(time.Duration(max(out.ExpiresIn, 0))*time.Second, time.Hour)
	k.of, k.token, k.until = account, out.AccessToken, now.Add(life-tokenSlack)
	return k.token, nil
}
