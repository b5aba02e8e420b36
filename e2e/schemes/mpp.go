package schemes

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"x402-wallet/internal/sandbox"
)

// The seller in MPP (WWW-Authenticate: Payment), under /mpp/. As mppx does, it takes a credential only for a
// challenge that it made, and on EVM only the authorization that the challenge fixes.

const inMPP = "mpp"

func (s *World) sellInMPP(w http.ResponseWriter, r *http.Request, path string) {
	core := s.NewSale(w, r, "v2", path)
	if core == nil {
		http.NotFound(w, r)
		return
	}
	one := &sale{Sale: core, world: s}
	core.Refuse, core.Receipt = one.askInMPP, one.receiptInMPP
	credential := strings.TrimPrefix(r.Header.Get("Authorization"), "Payment ")
	switch {
	case core.Price() == 0:
		core.Deliver("")
	case credential == "":
		core.Refuse("Payment required", 1)
	default:
		submission, payload, err := one.readCredential(credential)
		core.Take(submission, payload, err)
	}
}

// askInMPP answers 402 with a challenge of its own for each way to pay.
func (s *sale) askInMPP(_ string, times uint64) {
	at, _ := url.Parse(s.SellerURL)
	for _, offer := range s.Offers(2, times) {
		o := offer.(map[string]any)
		request := map[string]any{"amount": o["amount"], "currency": o["asset"], "recipient": o["payTo"]}
		method := "evm"
		if o["network"] == s.world.chain.Asset.Network {
			request["methodDetails"] = map[string]any{"chainId": s.world.chain.ID(), "decimals": 6,
				"credentialTypes": []string{"authorization"}}
		} else {
			method = "solana"
			cluster := map[bool]string{true: "mainnet-beta", false: "devnet"}[s.world.chain.ID() == 8453]
			request["methodDetails"] = map[string]any{"network": cluster, "decimals": 6, "feePayer": true,
				"feePayerKey": s.FeePayer}
		}
		text, _ := json.Marshal(request)
		encoded := base64.RawURLEncoding.EncodeToString(text)
		id := rand.Text()
		s.world.mu.Lock()
		s.world.challenges[id] = mppChallenge{realm: at.Hostname(), request: encoded, path: s.Path, offer: o}
		s.world.mu.Unlock()
		s.W.Header().Add("WWW-Authenticate", fmt.Sprintf(
			"Payment id=%q, realm=%q, method=%q, intent=\"charge\", request=%q, expires=%q", id,
			at.Hostname(), method, encoded, s.Now().Add(time.Minute).UTC().Format(time.RFC3339)))
	}
	s.Unpaid([]byte("{}"))
}

type mppChallenge struct {
	realm, request, path string
	offer                map[string]any
}

// readCredential decodes Authorization: Payment into what the facilitator is asked.
func (s *sale) readCredential(header string) (submission []byte, payload json.RawMessage, err error) {
	text, err := base64.RawURLEncoding.DecodeString(header)
	var c struct {
		Challenge struct{ ID, Realm, Request string }
		Payload   map[string]string
	}
	if err != nil || json.Unmarshal(text, &c) != nil {
		return nil, nil, sandbox.Reason("malformed-credential")
	}
	s.world.mu.Lock()
	asked, known := s.world.challenges[c.Challenge.ID]
	s.world.mu.Unlock()
	isOurs := known && asked.path == s.Path && asked.realm == c.Challenge.Realm &&
		asked.request == c.Challenge.Request
	if !isOurs {
		return nil, nil, sandbox.Reason("invalid-challenge")
	}
	kind, signature := c.Payload["type"], c.Payload["signature"]
	delete(c.Payload, "type")
	delete(c.Payload, "signature")
	signed := any(c.Payload)
	if kind == "authorization" {
		if c.Payload["nonce"] != "0x"+hex.EncodeToString(sandbox.Keccak(c.Challenge.ID+c.Challenge.Realm)) {
			return nil, nil, sandbox.Reason("verification-failed")
		}
		signed = map[string]any{"authorization": c.Payload, "signature": signature}
	}
	payload, _ = json.Marshal(signed)
	offer, _ := json.Marshal(asked.offer)
	return fmt.Appendf(nil, `{"x402Version":2,"paymentPayload":{"x402Version":2,"accepted":%s,"payload":%s},`+
		`"paymentRequirements":%s}`, offer, payload, offer), payload, nil
}

func (s *sale) receiptInMPP(encoded string) {
	text, _ := base64.StdEncoding.DecodeString(encoded)
	var said struct {
		Success              bool
		Transaction, Network string
	}
	_ = json.Unmarshal(text, &said) // the facilitator of this sandbox wrote it
	if !said.Success {
		return
	}
	method := "evm"
	if said.Network != s.world.chain.Asset.Network {
		method = "solana"
	}
	receipt, _ := json.Marshal(map[string]string{"method": method, "reference": said.Transaction,
		"status": "success", "timestamp": s.Now().UTC().Format(time.RFC3339)})
	s.W.Header().Set("Payment-Receipt", base64.RawURLEncoding.EncodeToString(receipt))
}
