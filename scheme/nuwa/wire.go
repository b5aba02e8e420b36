package nuwa

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What both transports carry: in a header over HTTP, in a reserved argument and a resource over MCP.
const (
	paymentHeader = "X-Payment-Channel-Data"
	authHeader    = "Authorization"
	authArgument  = "__nuwa_auth"
	payArgument   = "__nuwa_payment"
	resourceURI   = "nuwa:payment"
	resourceType  = "application/vnd.nuwa.payment+json"
	wellKnownPath = "/.well-known/nuwa-payment/info"
)

const (
	payloadVersion = 1
	subRAVVersion  = "1"
	maxPayload     = 64 << 10 // bytes; a real one is below 1 KiB
	maxFragment    = 128      // bytes of a key's name; a longer one is none
)

// requestPayload goes with each request.
type requestPayload struct {
	Version     int           `json:"version"`
	ClientTxRef string        `json:"clientTxRef"`
	MaxAmount   string        `json:"maxAmount,omitempty"` // absent: no limit
	Signed      *signedSubRAV `json:"signedSubRav,omitempty"`
}

// responsePayload comes with each answer of a paid call.
type responsePayload struct {
	Version      json.Number   `json:"version"`
	ClientTxRef  string        `json:"clientTxRef"`
	ServiceTxRef string        `json:"serviceTxRef"`
	SubRAV       *subRAV       `json:"subRav"` // to be signed with the next request
	Cost         *money.Amount `json:"cost"`   // of this request
	CostUSD      string        `json:"costUsd"`
	Error        *serviceError `json:"error"`
}

type serviceError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Codes of the service that mean something to this wallet (PaymentErrorCode); every other one is
// told as it is.
const (
	codePaymentRequired = "PAYMENT_REQUIRED"
	codeConflict        = "RAV_CONFLICT"
	codeMaxExceeded     = "BILLING_MAX_AMOUNT_EXCEEDED"
	codeHubFunds        = "HUB_INSUFFICIENT_FUNDS"
	codeContextMissing  = "CHANNEL_CONTEXT_MISSING"
)

// readStrict decodes what a service says: what could be read in two ways is not read, unknown
// members are no harm.
func readStrict(what string, text []byte, into any) error {
	if err := x402.DecodeStrict(text, maxPayload, nil); err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		if coded := x402.AsError(err); coded.Code != x402.Internal {
			return coded
		}
		return malformed(what, err)
	}
	return nil
}

func readPayload(text []byte) (*responsePayload, error) {
	var p responsePayload
	if err := readStrict("a payment", text, &p); err != nil {
		return nil, err
	}
	if p.Version != "1" {
		return nil, x402.Errorf(x402.InvalidRequirement, "the payment has version %s, this wallet knows 1",
			x402.Quote(p.Version.String()))
	}
	return &p, nil
}

// readHeader reads the payload of an HTTP answer; nil: there is none.
func readHeader(value string) (*responsePayload, error) {
	if value == "" {
		return nil, nil
	}
	text, err := unMultibase(value)
	if err != nil {
		return nil, malformed("a payment header", err)
	}
	return readPayload(text)
}

// content is an item of a tool's result, as much of it as is needed here.
type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Resource *struct {
		URI      string `json:"uri"`
		MIMEType string `json:"mimeType"`
		Text     string `json:"text"`
	} `json:"resource"`
}

func (c content) isPayment() bool {
	return c.Type == "resource" && c.Resource != nil &&
		(c.Resource.URI == resourceURI || c.Resource.MIMEType == resourceType)
}

// splitContent takes the payment out of a result's content: a streaming tool may have sent several,
// and the last counts. The rest, never nil, is what was bought.
func splitContent(items []json.RawMessage) (rest []json.RawMessage, paid *responsePayload, err error) {
	rest = []json.RawMessage{}
	for _, item := range items {
		var c content
		if json.Unmarshal(item, &c) != nil || !c.isPayment() {
			rest = append(rest, item)
			continue
		}
		paid, err = readPayload([]byte(c.Resource.Text))
		if err != nil {
			return rest, nil, err
		}
	}
	return rest, paid, nil
}

// withReserved puts the two reserved arguments to a tool's own, which may not hold them.
func withReserved(arguments json.RawMessage, auth string, payment *requestPayload) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &all); err != nil {
			return nil, x402.Errorf(x402.InvalidArgument, "the arguments are no JSON object")
		}
	}
	for name := range all {
		if IsReservedArgument(name) {
			return nil, x402.Errorf(x402.InvalidArgument, "the argument %s is the wallet's own",
				x402.Quote(name))
		}
	}
	var err error
	all[authArgument], err = compact(auth)
	if err == nil && payment != nil {
		all[payArgument], err = compact(payment)
	}
	if err != nil {
		return nil, err
	}
	return compact(all)
}

// What of a service's tools is the wallet's business and not the agent's.
const (
	reservedPrefix = "__nuwa"
	toolPrefix     = "nuwa."
	toolDiscovery  = "nuwa.discovery"
	toolRecovery   = "nuwa.recovery"
	toolCommit     = "nuwa.commit"
	toolQuery      = "nuwa.subrav.query"
)

// IsReservedTool reports whether a tool belongs to the channel itself.
func IsReservedTool(name string) bool { return strings.HasPrefix(name, toolPrefix) }

// IsReservedArgument reports whether an argument is the wallet's to fill.
func IsReservedArgument(name string) bool { return strings.HasPrefix(name, reservedPrefix) }

// subRAV is the payer's voucher (SubRAV) as services and wallets exchange it, in JSON.
type subRAV SubRAV

// subRAVJSON is its form in messages: every number a decimal string.
type subRAVJSON struct {
	Version           string `json:"version"`
	ChainID           string `json:"chainId"`
	ChannelID         string `json:"channelId"`
	ChannelEpoch      string `json:"channelEpoch"`
	VMIDFragment      string `json:"vmIdFragment"`
	AccumulatedAmount string `json:"accumulatedAmount"`
	Nonce             string `json:"nonce"`
}

func (s subRAV) MarshalJSON() ([]byte, error) {
	return compact(subRAVJSON{
		Version: subRAVVersion, ChainID: decimal(s.ChainID), ChannelID: objectID(s.Channel).String(),
		ChannelEpoch: decimal(s.Epoch), VMIDFragment: s.Fragment,
		AccumulatedAmount: s.Amount.String(), Nonce: decimal(s.Nonce),
	})
}

// UnmarshalJSON reads the form of messages, and no other: numbers that are not strings could
// have lost digits.
func (s *subRAV) UnmarshalJSON(data []byte) error {
	var in subRAVJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return malformed("a SubRAV", err)
	}
	if in.Version != subRAVVersion {
		return x402.Errorf(x402.InvalidRequirement,
			"the SubRAV has version %s, this wallet knows 1", x402.Quote(in.Version))
	}
	if in.VMIDFragment == "" || len(in.VMIDFragment) > maxFragment {
		return malformed("a SubRAV", errors.New("the name of its key is empty or too long"))
	}
	out := subRAV{Fragment: in.VMIDFragment}
	var errs [5]error
	out.ChainID, errs[0] = parseDecimal(in.ChainID)
	out.Epoch, errs[1] = parseDecimal(in.ChannelEpoch)
	out.Nonce, errs[2] = parseDecimal(in.Nonce)
	out.Channel, errs[3] = parseObjectID(in.ChannelID)
	out.Amount, errs[4] = money.ParseAmount(in.AccumulatedAmount)
	if err := cmp.Or(errs[:]...); err != nil {
		return malformed("a SubRAV", err)
	}
	*s = out
	return nil
}

type signedSubRAV struct {
	SubRAV    subRAV `json:"subRav"`
	Signature string `json:"signature"` // multibase
}

// multibase is base64url without padding behind its letter u.
func multibase(b []byte) string { return "u" + base64.RawURLEncoding.EncodeToString(b) }

func unMultibase(text string) ([]byte, error) {
	data, ok := strings.CutPrefix(text, "u")
	if !ok {
		return nil, errors.New("not multibase u")
	}
	return base64.RawURLEncoding.Strict().DecodeString(data)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// parseDecimal is the inverse of decimal: no signs, no leading zeros.
func parseDecimal(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && decimal(n) != text {
		err = strconv.ErrSyntax
	}
	return n, err
}

// compact is JSON as JavaScript writes it: nothing escaped that need not be, no newline behind it.
func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func malformed(what string, err error) *x402.Error {
	return x402.Errorf(x402.ResponseMalformed, "the service sent %s that cannot be read: %s", what,
		x402.Brief(err.Error())) // encoding/json repeats numbers, however long they are
}
