package wire

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
)

// The Machine Payments Protocol (MPP, draft-ryan-httpauth-payment): a challenge in WWW-Authenticate with the
// scheme Payment, or in the error of an MCP server, is answered with a credential. Of its methods and
// intents evm/charge and solana/charge are paid by what x402's "exact" signs: an option of a challenge is
// a Requirement with a Charge. Everything that is not said here is as in x402.

// The dialects of MPP.
const (
	dialectMPP    x402.Dialect = "mpp"     // WWW-Authenticate: Payment → Authorization: Payment
	dialectMCPMPP x402.Dialect = "mcp-mpp" // error -32042 → _meta["org.paymentauth/credential"]
)

const (
	headerAuthenticate  = "WWW-Authenticate"
	headerAuthorization = "Authorization"
	authScheme          = "Payment"
	mppReceiptHeader    = "Payment-Receipt"
	metaCredential      = "org.paymentauth/credential" //nolint:gosec // a key's name
	metaMPPReceipt      = "org.paymentauth/receipt"

	// An MCP server asks with the first, and refuses a credential with the second.
	codeMPPRequired = -32042
	codeMPPRefused  = -32043

	// maxChargeRequest is the longest request of a challenge, in characters of base64url (mppx 0.11).
	maxChargeRequest = 16 << 10
	// chargeTimeout is how long an authorization lives where the challenge does not end before (mppx 0.11).
	chargeTimeout = 5 * time.Minute
)

// chargeRequest is the request of a charge, as far as both methods have it.
type chargeRequest struct {
	Amount     string `json:"amount"`
	Currency   string `json:"currency"`
	Recipient  string `json:"recipient"`
	ExternalID string `json:"externalId"`
	Details    struct {
		ChainID         json.RawMessage   `json:"chainId"`
		CredentialTypes []string          `json:"credentialTypes"`
		Network         string            `json:"network"`
		FeePayer        bool              `json:"feePayer"`
		FeePayerKey     string            `json:"feePayerKey"`
		RecentBlockhash string            `json:"recentBlockhash"`
		Splits          []json.RawMessage `json:"splits"`
		SupportedModes  []string          `json:"supportedModes"`
		Memo            string            `json:"memo"`
	} `json:"methodDetails"`
}

// headerCharges reads the challenges of MPP in an answer's WWW-Authenticate.
func headerCharges(header http.Header) (list chargeList) {
	for _, c := range authChallenges(header.Values(headerAuthenticate)) {
		if !strings.EqualFold(c.scheme, authScheme) {
			continue
		}
		r, err := x402.Requirement{Dialect: dialectMPP}, c.err
		if err == nil {
			r, err = headerCharge(c.parameters)
		}
		list.add(r, err)
	}
	return list
}

// chargeList are the options of a challenge in MPP.
type chargeList struct {
	readable   []x402.Requirement
	unreadable []Unreadable
}

func (l *chargeList) add(r x402.Requirement, err error) {
	index := len(l.readable) + len(l.unreadable)
	if err != nil {
		l.unreadable = append(l.unreadable, Unreadable{Index: index, Why: err})
		return
	}
	r.Index = index
	l.readable = append(l.readable, r)
}

func (l chargeList) isEmpty() bool { return len(l.readable)+len(l.unreadable) == 0 }

// joined are the options of a challenge with those of MPP after them; of MPP alone where c is nil.
func (l chargeList) joined(c *Challenge, alone x402.Dialect) *Challenge {
	if l.isEmpty() {
		return c
	}
	if c == nil {
		c = &Challenge{Version: 2, Dialect: alone}
	}
	already := len(c.Accepts) + len(c.Unreadable)
	for _, r := range l.readable {
		r.Index += already
		c.Accepts = append(c.Accepts, r)
	}
	for _, u := range l.unreadable {
		u.Index += already
		c.Unreadable = append(c.Unreadable, u)
	}
	return c
}

// headerCharge reads one challenge's parameters.
func headerCharge(parameters map[string]string) (r x402.Requirement, err error) {
	entry := x402.Object{}
	for name, value := range parameters {
		entry[name] = jsonString(value)
	}
	r, err = charge(entry)
	if err != nil {
		return r, err
	}
	r.Dialect = dialectMPP
	r.Charge.Header = cmp.Or(parameters["header"], headerAuthorization)
	if !mayCarry(r.Charge.Header) {
		return r, fmt.Errorf("MPP: the credential is wanted in the header %s, which is not for one",
			x402.QuoteName(r.Charge.Header))
	}
	return r, nil
}

// mayCarry reports whether a credential may be sent in a header: in none by which HTTP does something else.
func mayCarry(header string) bool {
	lower := strings.ToLower(header)
	isToken := strings.IndexFunc(header, func(c rune) bool { return c > 0x7e || !isTokenByte(byte(c)) }) < 0
	return isToken && (lower == "authorization" || strings.HasPrefix(lower, "payment") ||
		strings.HasPrefix(lower, "x-"))
}

// requestIn is the request of a challenge in JSON: over HTTP it is base64url of that, over MCP the
// object itself.
func requestIn(entry x402.Object) (json.RawMessage, error) {
	text, err := entry.Text("request")
	if err != nil {
		return entry["request"], nil //nolint:nilerr // no text: the object
	}
	if len(text) > maxChargeRequest {
		return nil, fmt.Errorf("MPP: the request is longer than %d characters", maxChargeRequest)
	}
	request, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, errors.New("MPP: the request is not base64url")
	}
	return request, nil
}

// charge reads a challenge. entry is what is echoed of it.
func charge(entry x402.Object) (r x402.Requirement, err error) {
	c := &x402.Charge{}
	for _, field := range []struct {
		key  string
		into *string
	}{{"id", &c.ID}, {"realm", &c.Realm}, {"method", &c.Method}, {"intent", &c.Intent}} {
		*field.into, err = entry.Text(field.key)
		if err != nil || *field.into == "" {
			return r, fmt.Errorf("MPP: the challenge has no %s", field.key)
		}
	}
	if words := foreignCharge(c.Method, c.Intent); words != "" {
		return r, errors.New(words)
	}
	c.Digest, err = entry.Text("digest")
	if err != nil {
		return r, fmt.Errorf("MPP: %w", err)
	}
	expires, err := entry.Text("expires")
	if err == nil && expires != "" {
		c.Expires, err = time.Parse(time.RFC3339, expires)
	}
	if err != nil {
		return r, errors.New("MPP: expires is not a time (RFC 3339)")
	}
	request, err := requestIn(entry)
	if err != nil {
		return r, err
	}
	r, err = readCharge(c, request)
	if err != nil {
		return r, fmt.Errorf("MPP %s/%s: %w", c.Method, c.Intent, err)
	}
	r.Charge, r.Raw = c, echoed(entry)
	return r, nil
}

// echoed is a challenge as mppx says it back, byte for byte: sorted, but for opaque, which is before the
// request.
func echoed(entry x402.Object) json.RawMessage {
	last := func(m member) bool { return m.key == "opaque" || m.key == "request" }
	list := slices.DeleteFunc(sorted(entry), last)
	for _, key := range []string{"opaque", "request"} {
		if value, there := entry[key]; there {
			list = append(list, member{key: key, value: value})
		}
	}
	return list.object()
}

// solanaNetworks are the names of Solana's networks in MPP.
var solanaNetworks = map[string]string{"": "solana", "mainnet": "solana", "mainnet-beta": "solana",
	"devnet": "solana-devnet", "testnet": "solana-testnet"}

// readCharge reads the request of a charge into what x402 calls it. What x402 has no words for goes into c.
func readCharge(c *x402.Charge, request []byte) (r x402.Requirement, err error) {
	var said chargeRequest
	if err := x402.DecodeStrict(request, maxChargeRequest, &said); err != nil {
		return r, errors.New("the request cannot be read")
	}
	if len(said.Details.Splits) > 0 {
		return r, errors.New("the payment is split among several payees, and this wallet pays one")
	}
	entry := x402.Object{"scheme": jsonString(x402.MPP), "amount": jsonString(said.Amount),
		"asset": jsonString(said.Currency), "payTo": jsonString(said.Recipient),
		"maxTimeoutSeconds": strconv.AppendInt(nil, int64(chargeTimeout/time.Second), 10)}
	extra := map[string]json.RawMessage{}
	put := func(key, value string) {
		if value != "" {
			extra[key] = jsonString(value)
		}
	}
	switch details := said.Details; c.Method {
	case methodTempo:
		entry["scheme"] = jsonString(x402.Tempo)
		entry["network"], err = readTempo(c, said)
		if err != nil {
			return r, err
		}
	case "evm":
		if types := details.CredentialTypes; types != nil && !slices.Contains(types, "authorization") {
			return r, errors.New("it is not paid by an authorization (EIP-3009): this wallet signs no other")
		}
		entry["network"] = jsonString("eip155:" + string(details.ChainID))
	case "solana":
		network, known := solanaNetworks[details.Network]
		if !known {
			return r, fmt.Errorf("the network %s is not known", x402.QuoteName(details.Network))
		}
		if !details.FeePayer {
			return r, errors.New("the buyer would pay the transaction's fee, and this wallet holds no SOL")
		}
		entry["network"] = jsonString(network)
		put("feePayer", details.FeePayerKey)
		put("memo", said.ExternalID)
		put("recentBlockhash", details.RecentBlockhash)
	}
	r, err = x402.ReadRequirement(entry, 2)
	r.Extra = extra
	return r, err
}

// methodTempo is a method of MPP: a transfer of a TIP-20 token on Tempo (draft-tempo-charge-00).
const methodTempo = "tempo"

// readTempo reads what tempo/charge has of its own.
func readTempo(c *x402.Charge, said chargeRequest) (network json.RawMessage, err error) {
	details := said.Details
	name := "eip155:" + string(details.ChainID)
	modes := details.SupportedModes
	c.SellerPaysFee, c.Memo = details.FeePayer, strings.ToLower(details.Memo)
	c.Pull = modes == nil || slices.Contains(modes, "pull")
	c.Push = modes == nil || slices.Contains(modes, "push")
	switch {
	case details.ChainID == nil || x402.IsNull(details.ChainID):
		return nil, errors.New("the request has no chainId: it must be 4217 (Tempo) or 42431 (its test net)")
	case !x402.IsTempo(name):
		return nil, fmt.Errorf("the chainId is %s: it must be 4217 (Tempo) or 42431 (its test net)",
			x402.QuoteName(string(details.ChainID)))
	case c.Expires.IsZero():
		return nil, errors.New("the challenge does not say when it expires")
	case !c.Pull && !c.Push:
		return nil, errors.New("supportedModes has neither pull nor push")
	case c.Memo != "" && !memoForm().MatchString(c.Memo):
		return nil, errors.New("the memo is not 0x and 64 hex digits")
	}
	return jsonString(name), nil
}

var memoForm = pattern.Lazy(`^0x[0-9a-f]{64}$`)

// mcpCharges reads the challenges in the error of an MCP server, whose requests are objects.
func mcpCharges(m MCPMessage) (list chargeList) {
	var data x402.Object
	var entries []x402.Object
	isAsking := m.Result == nil && (m.Code == codeMPPRequired || m.Code == codeMPPRefused)
	if !isAsking || len(m.Data) > x402.MaxBody || x402.DecodeStrict(m.Data, x402.MaxBody, &data) != nil ||
		json.Unmarshal(data["challenges"], &entries) != nil {
		return list
	}
	for _, entry := range entries[:min(len(entries), maxAuthChallenges)] {
		r, err := charge(entry)
		r.Dialect = dialectMCPMPP
		list.add(r, err)
	}
	return list
}

// encodeCredential wraps what a chain's scheme signed into the credential that answers r's challenge, in
// RFC 8785's order of keys.
func encodeCredential(r x402.Requirement, payload json.RawMessage) (json.RawMessage, error) {
	if r.Charge.Method == methodTempo {
		return tempoCredential(r, payload)
	}
	var signed struct {
		Authorization map[string]json.RawMessage `json:"authorization"`
		Signature     json.RawMessage            `json:"signature"`
		Transaction   json.RawMessage            `json:"transaction"`
	}
	if err := json.Unmarshal(payload, &signed); err != nil {
		return nil, fmt.Errorf("encode credential: %w", err)
	}
	credential := x402.Object{"challenge": r.Raw}
	if signed.Authorization == nil {
		credential["payload"] = sorted(x402.Object{"type": jsonString("transaction"),
			"transaction": signed.Transaction}).object()
		return sorted(credential).object(), nil
	}
	payer, err := x402.Object(signed.Authorization).Text("from")
	if err != nil {
		return nil, fmt.Errorf("encode credential: %w", err)
	}
	signed.Authorization["type"] = jsonString("authorization")
	signed.Authorization["signature"] = signed.Signature
	credential["payload"] = sorted(signed.Authorization).object()
	credential["source"] = jsonString("did:pkh:" + r.Network + ":" + payer)
	return sorted(credential).object(), nil
}

// TempoPayment is the payload of the scheme Tempo.
type TempoPayment struct {
	From        string `json:"from"`        // EIP-55
	Transaction string `json:"transaction"` // signed, of type 0x76, in hex
}

// tempoCredential shows a signed transaction. What the payload has is draft-tempo-charge-00's.
func tempoCredential(r x402.Requirement, payload json.RawMessage) (json.RawMessage, error) {
	var signed TempoPayment
	if err := json.Unmarshal(payload, &signed); err != nil {
		return nil, fmt.Errorf("encode credential: %w", err)
	}
	shown := x402.Object{"type": jsonString("transaction"), "signature": jsonString(signed.Transaction)}
	return sorted(x402.Object{"challenge": r.Raw, "payload": sorted(shown).object(),
		"source": jsonString("did:pkh:" + r.Network + ":" + signed.From)}).object(), nil
}

// TempoTransaction is the signed transaction, in hex, of a credential for tempo/charge.
func TempoTransaction(credential json.RawMessage) (string, error) {
	var c struct {
		Payload struct {
			Type      string `json:"type"`
			Signature string `json:"signature"`
		} `json:"payload"`
	}
	err := json.Unmarshal(credential, &c)
	if err != nil || c.Payload.Type != "transaction" || c.Payload.Signature == "" {
		return "", x402.Malformed("a credential without a transaction of Tempo")
	}
	return c.Payload.Signature, nil
}

// WithHash is a credential for tempo/charge that shows the hash of its transaction instead (push).
func WithHash(credential json.RawMessage, hash string) (json.RawMessage, error) {
	var all x402.Object
	if err := json.Unmarshal(credential, &all); err != nil {
		return nil, err
	}
	all["payload"] = sorted(x402.Object{"hash": jsonString(hash), "type": jsonString("hash")}).object()
	return sorted(all).object(), nil
}

// ReadTerms reads the option of a payment as it is kept with the payment, of either protocol.
func ReadTerms(raw json.RawMessage) (r x402.Requirement, err error) {
	var entry x402.Object
	if err := x402.DecodeStrict(raw, x402.MaxBody, &entry); err != nil {
		return r, err
	}
	switch {
	case entry.Has("intent"):
		return charge(entry)
	case entry.Has("maxAmountRequired") && !entry.Has("amount"):
		return x402.DecodeRequirement(raw, 1)
	}
	return x402.DecodeRequirement(raw, 2)
}

// DecodeAnswer reads what a payer sent to be served, of either protocol: what the chain's scheme signed, and
// the option that it says it is for, which version 1 of x402 does not say.
func DecodeAnswer(sent json.RawMessage) (payload, accepted json.RawMessage, err error) {
	var top, signed x402.Object
	if err := x402.DecodeStrict(sent, x402.MaxBody, &top); err != nil {
		return nil, nil, err
	}
	if !top.Has("challenge") {
		return top["payload"], top["accepted"], nil
	}
	if json.Unmarshal(top["payload"], &signed) != nil || signed == nil {
		return nil, nil, x402.Malformed("a credential without a payload")
	}
	kind, _ := signed.Text("type")
	signature, isSigned := signed["signature"]
	isAuthorization := kind == "authorization" && isSigned
	if !isAuthorization && kind != "transaction" { // on Tempo it has a signature, too, which is all of it
		return nil, nil, x402.Malformed("a credential of an unknown type")
	}
	delete(signed, "type")
	if isAuthorization {
		delete(signed, "signature")
		signed = x402.Object{"authorization": sorted(signed).object(), "signature": signature}
	}
	return sorted(signed).object(), top["challenge"], nil
}

// attachCredential puts a credential where its challenge wants it.
func attachCredential(d x402.Dialect, credential json.RawMessage) Attachment {
	if d == dialectMCPMPP {
		return Attachment{Meta: map[string]json.RawMessage{metaCredential: credential}}
	}
	var wanted struct {
		Challenge struct {
			Header string `json:"header"`
		} `json:"challenge"`
	}
	_ = json.Unmarshal(credential, &wanted) // encodeCredential made it
	return Attachment{Header: cmp.Or(wanted.Challenge.Header, headerAuthorization),
		Value: authScheme + " " + base64.RawURLEncoding.EncodeToString(credential)}
}

// headerReceipt reads the receipt of MPP in an answer's header; nil: there is none.
func headerReceipt(header http.Header) (*Settlement, error) {
	value, err := singleHeader(header, mppReceiptHeader)
	if value == "" || err != nil {
		return nil, err
	}
	data, err := Unwrap(mppReceiptHeader, value)
	if err != nil {
		return nil, err
	}
	return chargeReceipt(data)
}

// DecodeReceipt reads a receipt as it is kept with a payment, of either protocol: SettleResponse, or MPP's.
func DecodeReceipt(raw []byte) (*Settlement, error) {
	var top x402.Object
	if json.Unmarshal(raw, &top) == nil && top.Has("status") && !top.Has("success") {
		return chargeReceipt(raw)
	}
	return DecodeSettlement(raw)
}

// chargeReceipt reads {"method","reference","status":"success","timestamp"}: reference is the transaction.
func chargeReceipt(data []byte) (*Settlement, error) {
	var top x402.Object
	if err := x402.DecodeStrict(data, x402.MaxHeader, &top); err != nil {
		return nil, err
	}
	status, err := top.Text("status")
	if err != nil || status == "" {
		return nil, x402.Malformed("a receipt without a status")
	}
	s := &Settlement{Success: status == "success", Raw: data}
	s.Transaction, err = optionalIdentifier(top, "reference")
	if err != nil {
		return nil, x402.Malformed("a receipt in which " + err.Error())
	}
	return s, nil
}
