package schemes

import (
	"encoding/json"
	"strings"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// What sellers ask of the facilitator for themselves: that it claims by vouchers, as the authorizer that it
// names in /supported, and that a receiver is paid what was claimed (x402 2.27).

// sellersPayload is a payload of the types that sellers send.
type sellersPayload struct {
	Type             string         `json:"type"`
	Claims           []claimedBatch `json:"claims"`
	ClaimsAuthorized string         `json:"claimAuthorizerSignature"`
	Receiver         string         `json:"receiver"`
	Token            string         `json:"token"`
}

// settleForSeller settles a payload of a seller's own, if q is one.
func (s *World) settleForSeller(q *sandbox.Submission) (done sandbox.Settlement, isSellers bool, err error) {
	var p sellersPayload
	if x402.DecodeStrict(q.Payload, x402.MaxBody, &p) != nil || (p.Type != "claim" && p.Type != "settle") {
		return done, false, nil
	}
	s.chain.Lock()
	defer s.chain.Unlock()
	done = sandbox.Settlement{Network: s.chain.Asset.Network, PayTo: p.Receiver}
	if p.Type == "claim" {
		done.Transaction, err = s.claimBatch(p)
		return done, true, err
	}
	isOwed := s.chain.channels.owed[strings.ToLower(p.Receiver)] > 0
	if !isOwed || !strings.EqualFold(p.Token, s.chain.Asset.Address) {
		return done, true, refusesBatch("nothing_to_settle")
	}
	done.Transaction, done.Amount = s.chain.payOut(s.Settler, p.Receiver)
	return done, true, nil
}

func (s *World) claimBatch(p sellersPayload) (transaction string, err error) {
	var claims []channelClaim
	for _, c := range p.Claims {
		claim := channelClaim{config: c.Voucher.Channel, signature: c.Signature,
			id: s.chain.batchData().channelID(c.Voucher.Channel)}
		isRead := sandbox.IsUnits(c.Voucher.Ceiling, &claim.ceiling) && sandbox.IsUnits(c.Total, &claim.total)
		switch {
		case !isRead:
			return "", refusesBatch("payload_type")
		case p.ClaimsAuthorized == "" && claim.config.ReceiverAuthorizer != s.authorizer.Address:
			return "", refusesBatch("authorizer_address_mismatch")
		}
		claims = append(claims, claim)
	}
	signature := p.ClaimsAuthorized
	if signature == "" {
		signature = signedBy(s.authorizer, s.chain.batchData().claims(claims))
	}
	transaction, err = s.chain.executeClaims(s.Settler, claims, signature)
	if err != nil {
		return "", refusesBatch("claim_simulation_failed")
	}
	return transaction, nil
}

// sellersTerms are terms as they can be read: what sellers ask for themselves costs nothing and has no time.
func sellersTerms(terms json.RawMessage) json.RawMessage {
	var members map[string]any
	if json.Unmarshal(terms, &members) != nil || members["scheme"] != x402.BatchSettlement ||
		members["amount"] != "0" {
		return terms
	}
	members["amount"], members["maxTimeoutSeconds"] = "1", 60
	readable, _ := json.Marshal(members) // of what was JSON: cannot fail
	return readable
}
