package paywall

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mr-tron/base58"
	"golang.org/x/crypto/sha3"
)

// Signed offers and receipts (extension offer-receipt, version 1): what the paywall asks for, and that it was
// paid, in a form that its buyer can show to others. They are signed by a key of the seller's that can spend
// nothing, as a JWS (RFC 7515 over RFC 8785) or as EIP-712 typed data. The key stays outside of this package.

const extensionStatements = "offer-receipt"

// signTime bounds how long a buyer waits for a signature, which may be made elsewhere.
const signTime = 5 * time.Second

// StatementSigner signs offers and receipts: made by SignEd25519, SignJWS or SignEIP712. It is called
// concurrently.
type StatementSigner struct {
	format string
	sign   func(ctx context.Context, s statement) (string, error)
}

// SignJWS signs as a JWS: sign signs the bytes that it is given by the algorithm ("EdDSA", "ES256",
// "ES256K"), and answers in the form of RFC 7518. keyID is a DID URL by which buyers find the public key.
func SignJWS(algorithm, keyID string,
	sign func(ctx context.Context, input []byte) ([]byte, error)) *StatementSigner {
	header, _ := json.Marshal(struct { // texts: cannot fail
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}{algorithm, keyID})
	b64 := base64.RawURLEncoding.EncodeToString
	return &StatementSigner{format: "jws", sign: func(ctx context.Context, s statement) (string, error) {
		input := b64(header) + "." + b64(s.canonical())
		signature, err := sign(ctx, []byte(input))
		return input + "." + b64(signature), err
	}}
}

// SignEd25519 signs as a JWS by a key, of which the public half is in the key's name (did:key).
func SignEd25519(key ed25519.PrivateKey) *StatementSigner {
	return SignJWS("EdDSA", KeyID(key), func(_ context.Context, input []byte) ([]byte, error) {
		return ed25519.Sign(key, input), nil
	})
}

// KeyID is the name of a key, with its public half in it: did:key:z6Mk…#z6Mk….
func KeyID(key ed25519.PrivateKey) string {
	public, _ := key.Public().(ed25519.PublicKey)
	name := "z" + base58.Encode(append([]byte{0xed, 0x01}, public...)) // the multicodec of Ed25519
	return "did:key:" + name + "#" + name
}

// SignEIP712 signs as EIP-712 typed data: sign answers r ‖ s ‖ v, v 27 or 28. Buyers know the signer by the
// address that they recover.
func SignEIP712(sign func(ctx context.Context, digest [32]byte) ([65]byte, error)) *StatementSigner {
	return &StatementSigner{format: "eip712", sign: func(ctx context.Context, s statement) (string, error) {
		signature, err := sign(ctx, s.digest())
		return "0x" + hex.EncodeToString(signature[:]), err
	}}
}

// statement is an offer or a receipt: its members in the order of their EIP-712 type.
type statement struct {
	kind    string // "Offer" or "Receipt"
	members []statementMember
}

// statementMember has a text, or where that is nil a number.
type statementMember struct {
	name   string
	text   *string
	number int64
}

func textMember(name, value string) statementMember { return statementMember{name: name, text: &value} }

// offerStatement says what an offer asks for, and until when.
func offerStatement(o offer, resource string, until time.Time) statement {
	r := o.terms[2]
	return statement{"Offer", []statementMember{
		{name: "version", number: 1},
		textMember("resourceUrl", resource),
		textMember("scheme", r.Scheme),
		textMember("network", r.Network),
		textMember("asset", r.Asset),
		textMember("payTo", r.PayTo),
		textMember("amount", r.Amount.String()),
		{name: "validUntil", number: until.Unix()},
	}}
}

// receiptStatement says that payer paid for a resource; transaction may be "".
func receiptStatement(network, resource, payer, transaction string, now time.Time) statement {
	return statement{"Receipt", []statementMember{
		{name: "version", number: 1},
		textMember("network", network),
		textMember("resourceUrl", resource),
		textMember("payer", payer),
		{name: "issuedAt", number: now.Unix()},
		textMember("transaction", transaction),
	}}
}

// json writes the members in their order, without those that leaveOut names.
func (s statement) json(leaveOut func(statementMember) bool) json.RawMessage {
	var out bytes.Buffer
	write := json.NewEncoder(&out)
	write.SetEscapeHTML(false)
	for i, m := range slices.DeleteFunc(slices.Clone(s.members), leaveOut) {
		out.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		_ = write.Encode(m.name) // texts and numbers: cannot fail
		out.WriteByte(':')
		if m.text != nil {
			_ = write.Encode(*m.text)
		} else {
			_ = write.Encode(m.number)
		}
	}
	return append(bytes.ReplaceAll(out.Bytes(), []byte("\n"), nil), '}')
}

// canonical is the statement in RFC 8785's form, as JWS sign it: keys in order, a transaction that is not
// given left out, and no character escaped that need not be.
func (s statement) canonical() []byte {
	sorted := statement{s.kind, slices.Clone(s.members)}
	slices.SortFunc(sorted.members, func(a, b statementMember) int { return strings.Compare(a.name, b.name) })
	text := sorted.json(func(m statementMember) bool { return m.name == "transaction" && *m.text == "" })
	// U+2028 and U+2029, but not a backslash before "u2028"
	plain := strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")
	return []byte(plain.Replace(string(text)))
}

// digest is keccak256(0x1901 ‖ domainSeparator ‖ hashStruct), in the domain {"x402 offer" or "x402 receipt",
// "1", 1}: the chain id is 1 whatever network is paid on.
func (s statement) digest() [32]byte {
	word := func(n int64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24), uint64(n)) }
	kind, hashed := s.kind+"(", [][]byte{}
	for i, m := range s.members {
		kind += map[bool]string{true: "", false: ","}[i == 0]
		if m.text != nil {
			kind += "string " + m.name
			hashed = append(hashed, hashOf([]byte(*m.text)))
		} else {
			kind += "uint256 " + m.name
			hashed = append(hashed, word(m.number))
		}
	}
	message := hashOf(slices.Concat(append([][]byte{hashOf([]byte(kind + ")"))}, hashed...)...))
	domain := hashOf(slices.Concat(hashOf([]byte("EIP712Domain(string name,string version,uint256 chainId)")),
		hashOf([]byte("x402 "+strings.ToLower(s.kind))), hashOf([]byte("1")), word(1)))
	return [32]byte(hashOf(slices.Concat([]byte{0x19, 0x01}, domain, message)))
}

func hashOf(data []byte) []byte {
	hash := sha3.NewLegacyKeccak256()
	hash.Write(data)
	return hash.Sum(nil)
}

// signed is a statement as it is handed out; index, where it is not negative, is of the offer in accepts.
func (g *StatementSigner) signed(ctx context.Context, s statement, index int) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	signature, err := g.sign(ctx, s)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"format": g.format, "signature": signature}
	if g.format == "eip712" {
		out["payload"] = s.json(func(statementMember) bool { return false })
	}
	if index >= 0 {
		out["acceptIndex"] = index
	}
	return out, nil
}

// signOffers is the extension of a challenge: an offer for each of accepts. Without a signature it is nil.
func (w *Paywall) signOffers(ctx context.Context, t *tool, offers []offer, resource string) json.RawMessage {
	list, until := []any{}, w.now().Add(t.MaxTimeout)
	for i, o := range offers {
		made, err := w.options.Statements.signed(ctx, offerStatement(o, resource, until), i)
		if err != nil {
			w.log.Error("sign an offer", "tool", t.Name, "err", err)
			return nil
		}
		list = append(list, made)
	}
	return jsonOf(map[string]any{"info": map[string]any{"offers": list}, "schema": statementSchema("offers")})
}

// signReceipt makes the extension of the receipt of what is delivered. Without a signature there is none:
// what was paid for is delivered all the same.
func (s *saleRun) signReceipt(ctx context.Context) {
	payer := s.signed.payer
	if payer == "" && s.out.settlement != nil {
		payer = s.out.settlement.Payer
	}
	if s.options.Statements == nil || s.payment.Version != 2 || payer == "" || s.out.settlement == nil {
		return
	}
	transaction := ""
	if s.options.ReceiptTransaction {
		transaction = s.out.settlement.Transaction
	}
	made, err := s.options.Statements.signed(ctx, receiptStatement(s.offer.Network, s.resource, payer,
		transaction, s.now()), -1)
	if err != nil {
		s.log.Error("sign a receipt", "sale", s.row.ID, "err", err)
		return
	}
	s.out.statements = jsonOf(map[string]any{extensionStatements: map[string]any{
		"info": map[string]any{"receipt": made}, "schema": statementSchema("receipt")}})
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
