package sandbox

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"golang.org/x/crypto/sha3"
)

// The seller in MPP (WWW-Authenticate: Payment), under /mpp/. As mppx does, it takes a credential only for a
// challenge that it made, and on EVM only the authorization that the challenge fixes.

const inMPP = "mpp"

// askInMPP writes a challenge of its own for each way to pay.
func (s *sale) askInMPP(offers []any) {
	at, _ := url.Parse(s.SellerURL)
	for _, offer := range offers {
		o := offer.(map[string]any)
		request := map[string]any{"amount": o["amount"], "currency": o["asset"], "recipient": o["payTo"]}
		method := "evm"
		if o["network"] == s.evm.asset.Network {
			request["methodDetails"] = map[string]any{"chainId": s.evm.chainID(), "decimals": 6,
				"credentialTypes": []string{"authorization"}}
		} else {
			method = "solana"
			cluster := map[bool]string{true: "mainnet-beta", false: "devnet"}[s.options.Mainnet]
			request["methodDetails"] = map[string]any{"network": cluster, "decimals": 6, "feePayer": true,
				"feePayerKey": s.FeePayer}
		}
		text, _ := json.Marshal(request)
		encoded := base64.RawURLEncoding.EncodeToString(text)
		id := rand.Text()
		s.mu.Lock()
		s.challenges.put(id, mppChallenge{realm: at.Hostname(), request: encoded, path: s.path, offer: o})
		s.mu.Unlock()
		s.w.Header().Add("WWW-Authenticate", fmt.Sprintf(
			"Payment id=%q, realm=%q, method=%q, intent=\"charge\", request=%q, expires=%q", id,
			at.Hostname(), method, encoded, s.now().Add(validity*time.Second).UTC().Format(time.RFC3339)))
	}
}

// mppChallenge is one that was made.
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
		return nil, nil, reason("malformed-credential")
	}
	s.mu.Lock()
	asked, known := s.challenges.get(c.Challenge.ID)
	s.mu.Unlock()
	isOurs := known && asked.path == s.path && asked.realm == c.Challenge.Realm &&
		asked.request == c.Challenge.Request
	if !isOurs {
		return nil, nil, reason("invalid-challenge")
	}
	kind, signature := c.Payload["type"], c.Payload["signature"]
	delete(c.Payload, "type")
	delete(c.Payload, "signature")
	signed := any(c.Payload)
	if kind == "authorization" {
		if c.Payload["nonce"] != "0x"+hex.EncodeToString(keccak(c.Challenge.ID+c.Challenge.Realm)) {
			return nil, nil, reason("verification-failed")
		}
		signed = map[string]any{"authorization": c.Payload, "signature": signature}
	}
	payload, _ = json.Marshal(signed)
	offer, _ := json.Marshal(asked.offer)
	return fmt.Appendf(nil, `{"x402Version":2,"paymentPayload":{"x402Version":2,"accepted":%s,"payload":%s},`+
		`"paymentRequirements":%s}`, offer, payload, offer), payload, nil
}

func keccak(text string) []byte {
	h := sha3.NewLegacyKeccak256()
	h.Write([]byte(text))
	return h.Sum(nil)
}

// receiptInMPP writes the facilitator's receipt as MPP has it.
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
	if said.Network != s.evm.asset.Network {
		method = "solana"
	}
	receipt, _ := json.Marshal(map[string]string{"method": method, "reference": said.Transaction,
		"status": "success", "timestamp": s.now().UTC().Format(time.RFC3339)})
	s.w.Header().Set("Payment-Receipt", base64.RawURLEncoding.EncodeToString(receipt))
}
