// Package sell is how HTTP handlers sell in the Machine Payments Protocol (draft-ryan-httpauth-payment,
// evm/charge, solana/charge, tempo/charge): what the schemes exact and tempo are paid by, asked for in
// WWW-Authenticate and presented in Authorization.
//
// What must stay true: a challenge is not remembered and its id is not a secret. So what comes back has to
// ask for what the call costs now, and what is signed has a nonce made of id and realm. On EVM the token
// takes it once. On Solana it is the memo, by way of the challenge's externalId; likewise on Tempo.
package sell

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/signatures"
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

// nonce binds a payment to its challenge. On Tempo it is the memo of draft-tempo-charge-00, in which
// the ten bytes that name the buyer's program are left 0.
func (c challenge) nonce() (n [32]byte) {
	if c.Method != tempo {
		return signatures.Keccak256([]byte(c.ID + c.Realm))
	}
	finger := func(text string) []byte { hash := signatures.Keccak256([]byte(text)); return hash[:] }
	copy(n[:4], finger("mpp"))
	n[4] = 1
	copy(n[5:15], finger(c.Realm))
	copy(n[25:], finger(c.ID))
	return n
}

// clusters are Solana's networks in MPP, by their names in version 1 of x402.
var clusters = map[string]string{"solana": "mainnet-beta", "solana-devnet": "devnet",
	"solana-testnet": "testnet"}

// The methods of MPP.
const (
	evm    = "evm"
	solana = "solana"
	tempo  = "tempo"
)

func methodOn(network string) string {
	switch {
	case x402.IsSolana(network):
		return solana
	case x402.IsTempo(network):
		return tempo
	}
	return evm
}

// The token programs of Solana.
const (
	splProgram     = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"
	spl2022Program = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb"
)

// ask fills in what asks for an option, of which asked are the terms in x402. The request has RFC 8785's
// form. It is "" where MPP cannot.
func (c *challenge) ask(o selling.Option, asked x402.Requirement) {
	way := o.Way.Traits().Name
	if way != x402.Exact && way != x402.Tempo {
		return
	}
	c.Intent, c.Method = "charge", methodOn(o.Network)
	request, details := map[string]any{}, map[string]any{"decimals": o.Asset.Decimals}
	chain, _ := x402.ChainID(o.Network)
	switch c.Method {
	case evm:
		details["chainId"], details["credentialTypes"] = chain, []string{"authorization"}
	case tempo:
		details = map[string]any{"chainId": chain, "feePayer": false, "supportedModes": []string{"pull"}}
	case solana:
		name, _ := x402.V1Name(o.Network)
		nonce := c.nonce()
		request["externalId"] = hex.EncodeToString(nonce[:])
		details["network"] = clusters[name]
		details["feePayer"], details["feePayerKey"] = true, asked.ExtraString("feePayer")
		details["tokenProgram"] = splProgram
		if o.Asset.Token2022 {
			details["tokenProgram"] = spl2022Program
		}
	}
	request["amount"], request["currency"], request["recipient"] = o.Amount, o.Asset.Address, o.PayTo
	request["methodDetails"] = details
	c.Request = base64.RawURLEncoding.EncodeToString(selling.JSON(request))
}

// realmOf names who asks: the host, without its port.
func realmOf(host string) string {
	if bare, _, err := net.SplitHostPort(host); err == nil {
		return bare
	}
	return host
}

func (Protocol) Ask(o selling.Option, asked x402.Requirement, host string, until time.Time) string {
	c := challenge{ID: rand.Text(), Realm: realmOf(host)}
	c.ask(o, asked)
	if c.Request == "" {
		return ""
	}
	return fmt.Sprintf(`Payment id=%q, realm=%s, method=%q, intent=%q, request=%q, expires=%q`, c.ID,
		strconv.QuoteToASCII(c.Realm), c.Method, c.Intent, c.Request, until.UTC().Format(time.RFC3339))
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
	if c.ID == "" || c.Realm != realmOf(host) {
		return nil, fmt.Errorf("%w: it answers another server's challenge", selling.ErrInvalid)
	}
	kind := said.Payload["type"]
	delete(said.Payload, "type")
	payload := selling.JSON(said.Payload)
	switch c.Method + "/" + c.Intent + " " + kind {
	case "evm/charge authorization":
		signature := said.Payload["signature"]
		delete(said.Payload, "signature")
		payload = selling.JSON(map[string]any{"authorization": said.Payload, "signature": signature})
	case "solana/charge transaction":
	case "tempo/charge transaction":
		payload = selling.JSON(map[string]string{"transaction": said.Payload["signature"]})
	default:
		return nil, fmt.Errorf("%w: it is not an authorization for evm/charge, nor a transaction for "+
			"solana/charge or tempo/charge", selling.ErrInvalid)
	}
	return &selling.Answer{Payload: payload, Nonce: c.nonce(),
		IsFor: func(o selling.Option, asked x402.Requirement) bool {
			again := challenge{ID: c.ID, Realm: c.Realm}
			again.ask(o, asked)
			return c.Request != "" && c == again
		}}, nil
}

func (Protocol) Receipt(s *wire.Settlement, now time.Time) (name, value string) {
	return receiptHeader, base64.RawURLEncoding.EncodeToString(selling.JSON(map[string]string{
		"method": methodOn(s.Network), "reference": s.Transaction, "status": "success",
		"timestamp": now.UTC().Format(time.RFC3339)}))
}
