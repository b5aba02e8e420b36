package paywall

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// HTTP handlers sell in MPP too where Options.MPP says so (draft-ryan-httpauth-payment, evm/charge): the same
// payment, asked for in WWW-Authenticate and presented in Authorization. From here on it is a payment of
// version 2: verified, settled and recorded like any other.
//
// A challenge is not remembered and its id is not a secret: what comes back has to ask for what the call
// costs now, and the signed nonce is made of id and realm, which the token takes once.

const (
	mppScheme        = "Payment "
	mppReceiptHeader = "Payment-Receipt"
)

// mppChallenge is what a credential says it answers.
type mppChallenge struct {
	ID      string `json:"id"`
	Realm   string `json:"realm"`
	Method  string `json:"method"`
	Intent  string `json:"intent"`
	Request string `json:"request"`
}

// mppRequest is what an offer asks for, in RFC 8785's form; "" where it cannot be asked for in MPP.
func mppRequest(o offer) string {
	chain, isEVM := x402.ChainID(o.Network)
	if !isEVM || o.way != x402.Exact || o.terms[2].Raw == nil {
		return ""
	}
	text := jsonOf(map[string]any{"amount": o.Amount, "currency": o.Asset.Address, "recipient": o.PayTo,
		"methodDetails": map[string]any{"chainId": chain, "credentialTypes": []string{"authorization"},
			"decimals": o.Asset.Decimals}})
	return base64.RawURLEncoding.EncodeToString(text)
}

// mppRealm is who asks: the host, without its port.
func mppRealm(host string) string {
	if bare, _, err := net.SplitHostPort(host); err == nil {
		return bare
	}
	return host
}

// askInMPP adds a challenge for each offer to a 402.
func (w *Paywall) askInMPP(header http.Header, t *tool, r result, host string) {
	if t.RequireIdentifier { // which MPP has no place for
		return
	}
	for _, o := range r.offers {
		if request := mppRequest(o); request != "" {
			header.Add("WWW-Authenticate", fmt.Sprintf(
				`Payment id=%q, realm=%s, method="evm", intent="charge", request=%q, expires=%q`, rand.Text(),
				strconv.QuoteToASCII(mppRealm(host)), request,
				w.now().Add(t.MaxTimeout).UTC().Format(time.RFC3339)))
		}
	}
}

// mppCredential reads the credential in Authorization; nil: there is none.
func mppCredential(header http.Header, host string) (*payment, error) {
	values := header.Values("Authorization")
	if len(values) != 1 || len(values[0]) < len(mppScheme) ||
		!strings.EqualFold(values[0][:len(mppScheme)], mppScheme) {
		return nil, nil
	}
	raw, err := decodeBase64("Authorization", strings.TrimSpace(values[0][len(mppScheme):]))
	if err != nil {
		return nil, err
	}
	var said struct {
		Challenge mppChallenge      `json:"challenge"`
		Payload   map[string]string `json:"payload"`
	}
	if err := x402.DecodeStrict(raw, maxPayment, &said); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	c := said.Challenge
	if c.Method != "evm" || c.Intent != "charge" || said.Payload["type"] != "authorization" {
		return nil, fmt.Errorf("%w: it is not an authorization for evm/charge", ErrInvalidRequest)
	}
	if c.ID == "" || c.Realm != mppRealm(host) {
		return nil, fmt.Errorf("%w: it answers another server's challenge", ErrInvalidRequest)
	}
	signature := said.Payload["signature"]
	delete(said.Payload, "type")
	delete(said.Payload, "signature")
	return &payment{Version: 2, mpp: &c,
		Payload: jsonOf(map[string]any{"authorization": said.Payload, "signature": signature})}, nil
}

// accept makes a credential's payment one of version 2, for the offer that its challenge asked for.
func (p *payment) accept(r x402.Requirement) {
	if p.mpp == nil {
		return
	}
	p.Accepted = r.Raw
	p.raw = jsonOf(map[string]any{"x402Version": 2, "accepted": p.Accepted, "payload": p.Payload})
}

// isFor reports whether a challenge asked for an offer.
func (c *mppChallenge) isFor(o offer) bool { return c.Request != "" && c.Request == mppRequest(o) }

// nonce is that of the only authorization that answers the challenge.
func (c *mppChallenge) nonce() [32]byte { return x402.Keccak256([]byte(c.ID + c.Realm)) }

// mppReceipt is a settlement as MPP says it.
func mppReceipt(s *wire.Settlement, now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(jsonOf(map[string]string{"method": "evm",
		"reference": s.Transaction, "status": "success", "timestamp": now.UTC().Format(time.RFC3339)}))
}
