package paywall

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/mr-tron/base58"
)

// Signed offers and receipts (extension offer-receipt, version 1): what the paywall asks for, and that it was
// paid, in a form that its buyer can show to others. They are signed as a JWS (RFC 7515 over RFC 8785) by a
// key of the seller's that can spend nothing.

const extensionStatements = "offer-receipt"

// KeyID is the name of a key, with its public half in it: did:key:z6Mk…#z6Mk….
func KeyID(key ed25519.PrivateKey) string {
	public, _ := key.Public().(ed25519.PublicKey)
	name := "z" + base58.Encode(append([]byte{0xed, 0x01}, public...)) // the multicodec of Ed25519
	return "did:key:" + name + "#" + name
}

// statement is an offer or a receipt: texts and numbers.
type statement map[string]any

// offerStatement says what an offer asks for, and until when.
func offerStatement(o offer, resource string, until time.Time) statement {
	r := o.terms[2]
	return statement{"version": 1, "resourceUrl": resource, "scheme": r.Scheme, "network": r.Network,
		"asset": r.Asset, "payTo": r.PayTo, "amount": r.Amount.String(), "validUntil": until.Unix()}
}

// receiptStatement says that payer paid for a resource; transaction may be "".
func receiptStatement(network, resource, payer, transaction string, now time.Time) statement {
	s := statement{"version": 1, "network": network, "resourceUrl": resource, "payer": payer,
		"issuedAt": now.Unix()}
	if transaction != "" {
		s["transaction"] = transaction
	}
	return s
}

// canonical is the statement in RFC 8785's form: keys in order, and no character escaped that need not be.
func (s statement) canonical() []byte {
	var out bytes.Buffer
	write := json.NewEncoder(&out)
	write.SetEscapeHTML(false)
	_ = write.Encode(s) // texts and numbers: cannot fail
	// U+2028 and U+2029, but not a backslash before "u2028"
	plain := strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")
	return []byte(plain.Replace(strings.TrimSpace(out.String())))
}

// signed is a statement as it is handed out.
func (s statement) signed(key ed25519.PrivateKey) map[string]any {
	header, _ := json.Marshal(map[string]string{"alg": "EdDSA", "kid": KeyID(key)}) // texts: cannot fail
	b64 := base64.RawURLEncoding.EncodeToString
	input := b64(header) + "." + b64(s.canonical())
	return map[string]any{"format": "jws", "signature": input + "." + b64(ed25519.Sign(key, []byte(input)))}
}

// signOffers is the extension of a challenge: an offer for each of accepts.
func (w *Paywall) signOffers(t *tool, offers []offer, resource string) json.RawMessage {
	list, until := []any{}, w.now().Add(t.MaxTimeout)
	for i, o := range offers {
		made := offerStatement(o, resource, until).signed(w.options.StatementKey)
		made["acceptIndex"] = i
		list = append(list, made)
	}
	return jsonOf(map[string]any{"info": map[string]any{"offers": list}, "schema": statementSchema("offers")})
}

// signReceipt makes the extension of the receipt of what is delivered.
func (s *saleRun) signReceipt() {
	payer := s.signed.Payer
	if payer == "" && s.out.settlement != nil {
		payer = s.out.settlement.Payer
	}
	if s.options.StatementKey == nil || s.payment.Version != 2 || payer == "" || s.out.settlement == nil {
		return
	}
	transaction := ""
	if s.options.ReceiptTransaction {
		transaction = s.out.settlement.Transaction
	}
	receipt := receiptStatement(s.offer.Network, s.resource, payer, transaction, s.now())
	s.out.statements = jsonOf(map[string]any{extensionStatements: map[string]any{
		"info":   map[string]any{"receipt": receipt.signed(s.options.StatementKey)},
		"schema": statementSchema("receipt")}})
}

// statementSchema is the JSON schema of the extension's info, for offers or a receipt.
func statementSchema(member string) json.RawMessage {
	one := map[string]any{"type": "object", "required": []string{"format", "signature"},
		"properties": map[string]any{"format": map[string]string{"type": "string"},
			"acceptIndex": map[string]string{"type": "integer"},
			"payload":     map[string]string{"type": "object"},
			"signature":   map[string]string{"type": "string"}}}
	of := map[string]any{"offers": map[string]any{"type": "array", "items": one}, "receipt": one}
	return jsonOf(map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"properties": map[string]any{member: of[member]}, "required": []string{member}})
}
