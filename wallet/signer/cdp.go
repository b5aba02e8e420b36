package signer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

const cdpURL = "https://api.cdp.coinbase.com/platform"

// cdpTokenLife is how long a token for one request is good.
const cdpTokenLife = 2 * time.Minute

// cdp is an account of Coinbase's server wallets (version 2), by its address. EVM orders are signed as
// hashes; of Solana it signs transactions and texts, so that a Nuwa payment channel's messages are refused.
type cdp struct {
	rules       config.Signer
	api         api
	credentials *credentials
	now         func() time.Time
}

// cdpKeys are a secret API key, as the portal downloads it, and the wallet secret, which signs what moves
// money.
type cdpKeys struct {
	ID           string `json:"id"`
	PrivateKey   string `json:"privateKey"` // Ed25519 in base64, or EC P-256 in PEM
	WalletSecret string `json:"walletSecret"`
}

func (c *cdp) path(operation string) string {
	return "/v2/" + c.rules.Chain + "/accounts/" + url.PathEscape(c.rules.Key) + operation
}

func (c *cdp) address(ctx context.Context) (string, error) {
	var out struct {
		Address string `json:"address"`
	}
	err := c.call(ctx, http.MethodGet, c.path(""), nil, &out)
	return out.Address, err
}

func (c *cdp) sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	var out struct {
		Signature   string `json:"signature"`
		Transaction string `json:"signedTransaction"`
	}
	if o.Chain == wallet.ChainEVM {
		err := c.call(ctx, http.MethodPost, c.path("/sign"), map[string]string{"hash": "0x" +
			hex.EncodeToString(o.Digest[:])}, &out)
		if err != nil {
			return nil, err
		}
		signature, err := hex.DecodeString(strings.TrimPrefix(out.Signature, "0x"))
		if err != nil {
			return nil, refused("answers with something else than a signature")
		}
		return signature, nil
	}
	switch o.Kind {
	case wallet.Text:
		err := c.call(ctx, http.MethodPost, c.path("/sign/message"),
			map[string]string{"message": string(o.Payload)}, &out)
		if err != nil {
			return nil, err
		}
		return x402.DecodeBase58(out.Signature, 64), nil // nil is none
	case wallet.Transaction:
		if len(o.Payload) < messageHeader {
			return nil, refused("was asked for a transaction that is none")
		}
		err := c.call(ctx, http.MethodPost, c.path("/sign/transaction"), map[string]string{
			"transaction": base64.StdEncoding.EncodeToString(unsigned(o.Payload))}, &out)
		if err != nil {
			return nil, err
		}
		signed, err := base64.StdEncoding.DecodeString(out.Transaction)
		if err != nil {
			return nil, refused("answers with something else than a transaction")
		}
		return signatureIn(signed, o.Payload, c.rules.Address)
	}
	return nil, refused("cannot sign messages of payment channels (Nuwa): its API takes transactions and " +
		"texts")
}

// plainJSON is JSON as JSON.stringify writes it of sorted keys, over which the API makes its own reqHash:
// Go's would have \u0026 for &. nil is none.
func plainJSON(ask map[string]string) ([]byte, error) {
	if ask == nil {
		return nil, nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(ask)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// messageHeader is what a Solana message begins with: its version, three counts, the first of which is that
// of its signers, and the number of its accounts, all less than 128.
const messageHeader = 5

// unsigned is a Solana transaction of a message, with room for its signatures.
func unsigned(message []byte) []byte {
	signers := int(message[1])
	return slices.Concat([]byte{byte(signers)}, make([]byte, 64*signers), message)
}

// signatureIn is the signature of an account in a signed transaction of the message.
func signatureIn(signed, message []byte, account string) ([]byte, error) {
	const key = 32
	signers := int(message[1])
	rest, isOurs := bytes.CutSuffix(signed, message)
	if !isOurs || len(rest) != 1+64*signers || int(rest[0]) != signers {
		return nil, refused("answers with another transaction")
	}
	self := x402.DecodeBase58(account, key)
	for i := range signers {
		at := messageHeader + key*i
		if at+key <= len(message) && bytes.Equal(message[at:at+key], self) {
			return rest[1+64*i : 1+64*(i+1)], nil
		}
	}
	return nil, refused("was asked for a transaction that its account does not sign")
}

// call asks for one operation (CDP REST API v2). What signs is proven by the wallet secret, over the body,
// too.
func (c *cdp) call(ctx context.Context, method, path string, ask map[string]string, result any) error {
	var keys cdpKeys
	if _, err := c.credentials.read(ctx, &keys); err != nil {
		return err
	}
	body, err := plainJSON(ask)
	if err != nil {
		return err
	}
	r, err := c.api.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	key := privateKey(keys.PrivateKey)
	if key == nil || keys.ID == "" {
		return refused(`has credentials without "id" or "privateKey" (Ed25519 in base64, or P-256 in PEM)`)
	}
	now := c.now()
	uris := []string{method + " " + r.URL.Host + r.URL.Path}
	nonce := rand.Text()
	bearer, err := token(key, map[string]any{"kid": keys.ID, "nonce": nonce}, jwt.MapClaims{"sub": keys.ID,
		"iss": "cdp", "uris": uris, "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(cdpTokenLife).Unix()})
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	if body == nil {
		return c.api.do(r, result)
	}
	secret, isP256 := privateKey(keys.WalletSecret).(*ecdsa.PrivateKey)
	if !isP256 {
		return refused(`has credentials without "walletSecret" (P-256 in base64)`)
	}
	proof, err := token(secret, nil, jwt.MapClaims{"uris": uris, "reqHash": hashHex(body), "iat": now.Unix(),
		"nbf": now.Unix(), "jti": rand.Text()})
	if err != nil {
		return err
	}
	r.Header.Set("X-Wallet-Auth", proof)
	return c.api.do(r, result)
}
