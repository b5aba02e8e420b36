// Package sell is how HTTP handlers sell in the Machine Payments Protocol (draft-ryan-httpauth-payment,
// evm/charge): the same payment as of the scheme exact, asked for in WWW-Authenticate and presented in
// Authorization.
//
// What must stay true: a challenge is not remembered and its id is not a secret. So what comes back has to
// ask for what the call costs now, and the signed nonce is made of id and realm, which the token takes once.
package sell

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

const (
	scheme        = "Payment "
	receiptHeader = "Payment-Receipt"
)

// Protocol is a selling.Protocol.
type Protocol struct{}

// challenge has what a credential says of the one it answers.
type challenge struct {
	ID      string `json:"id"`
	Realm   string `json:"realm"`
	Method  string `json:"method"`
	Intent  string `json:"intent"`
	Request string `json:"request"`
}

// request asks for an option, in RFC 8785's form. It is "" where MPP cannot.
func request(o selling.Option) string {
	chain, isEVM := x402.ChainID(o.Network)
	if !isEVM || o.Way.Traits().Name != x402.Exact {
		return ""
	}
	text := selling.JSON(map[string]any{"amount": o.Amount, "currency": o.Asset.Address, "recipient": o.PayTo,
		"methodDetails": map[string]any{"chainId": chain, "credentialTypes": []string{"authorization"},
			"decimals": o.Asset.Decimals}})
	return base64.RawURLEncoding.EncodeToString(text)
}

// realmOf names who asks: the host, without its port.
func realmOf(host string) string {
	if bare, _, err := net.SplitHostPort(host); err == nil {
		return bare
	}
	return host
}

func (Protocol) Ask(o selling.Option, host string, until time.Time) string {
	asked := request(o)
	if asked == "" {
		return ""
	}
	return fmt.Sprintf(`Payment id=%q, realm=%s, method="evm", intent="charge", request=%q, expires=%q`,
		rand.Text(), strconv.QuoteToASCII(realmOf(host)), asked, until.UTC().Format(time.RFC3339))
}

// Read implements selling.Protocol: it reads the credential in Authorization.
func (Protocol) Read(header http.Header, host string) (*selling.Answer, error) {
	values := header.Values("Authorization")
	if len(values) != 1 || len(values[0]) < len(scheme) ||
		!strings.EqualFold(values[0][:len(scheme)], scheme) {
		return nil, nil
	}
	raw, err := selling.Unwrap("Authorization", strings.TrimSpace(values[0][len(scheme):]))
	if err != nil {
		return nil, err
	}
	var said struct {
		Challenge challenge         `json:"challenge"`
		Payload   map[string]string `json:"payload"`
	}
	if err := x402.DecodeStrict(raw, selling.MaxPayment, &said); err != nil {
		return nil, fmt.Errorf("%w: %w", selling.ErrInvalid, err)
	}
	c := said.Challenge
	if c.Method != "evm" || c.Intent != "charge" || said.Payload["type"] != "authorization" {
		return nil, fmt.Errorf("%w: it is not an authorization for evm/charge", selling.ErrInvalid)
	}
	if c.ID == "" || c.Realm != realmOf(host) {
		return nil, fmt.Errorf("%w: it answers another server's challenge", selling.ErrInvalid)
	}
	signature := said.Payload["signature"]
	delete(said.Payload, "type")
	delete(said.Payload, "signature")
	return &selling.Answer{
		Payload: selling.JSON(map[string]any{"authorization": said.Payload, "signature": signature}),
		Nonce:   x402.Keccak256([]byte(c.ID + c.Realm)),
		IsFor:   func(o selling.Option) bool { return c.Request != "" && c.Request == request(o) },
	}, nil
}

func (Protocol) Receipt(s *wire.Settlement, now time.Time) (name, value string) {
	return receiptHeader, base64.RawURLEncoding.EncodeToString(selling.JSON(map[string]string{"method": "evm",
		"reference": s.Transaction, "status": "success", "timestamp": now.UTC().Format(time.RFC3339)}))
}
