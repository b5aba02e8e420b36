package channel

import (
	"encoding/json"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What both transports carry: in a header over HTTP, in a reserved argument and a resource over MCP
// (reference: nuwa §3).
const (
	paymentHeader = "X-Payment-Channel-Data"
	authHeader    = "Authorization"
	authArgument  = "__nuwa_auth"
	payArgument   = "__nuwa_payment"
	resourceURI   = "nuwa:payment"
	resourceType  = "application/vnd.nuwa.payment+json"
	wellKnownPath = "/.well-known/nuwa-payment/info"
)

const payloadVersion = 1

// maxPayload bounds one payload: a real one is below 1 KiB.
const maxPayload = 64 << 10

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
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details"`
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

func (p requestPayload) header() (string, error) {
	text, err := compact(p)
	return multibase(text), err
}

// readPayload reads a service's payload strictly: what could be read in two ways is not read.
func readPayload(text []byte) (p responsePayload, err error) {
	if err := x402.Strict(text, maxPayload); err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		if coded := x402.AsError(err); coded.Code != x402.Internal {
			return p, coded
		}
		return p, malformed("a payment", err)
	}
	if p.Version != "1" {
		return p, x402.Errorf(x402.InvalidRequirement, "the payment has version %s, this wallet knows 1",
			x402.Quote(p.Version.String()))
	}
	return p, nil
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
	p, err := readPayload(text)
	return &p, err
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
	if c.Type != "resource" || c.Resource == nil {
		return false
	}
	return c.Resource.URI == resourceURI || c.Resource.MIMEType == resourceType
}

// splitContent takes the payment out of a result's content: a streaming tool may have sent several,
// and the last counts (seed 003, "Open Questions"). The rest is what was bought.
func splitContent(items []json.RawMessage) (rest []json.RawMessage, paid *responsePayload, err error) {
	for _, item := range items {
		var c content
		if json.Unmarshal(item, &c) != nil || !c.isPayment() {
			rest = append(rest, item)
			continue
		}
		p, err := readPayload([]byte(c.Resource.Text))
		if err != nil {
			return rest, nil, err
		}
		paid = &p
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
		if strings.HasPrefix(name, reservedPrefix) {
			return nil, x402.Errorf(x402.InvalidArgument, "the argument %s is the wallet's own",
				x402.Quote(name))
		}
	}
	var err error
	all[authArgument], err = compact(auth)
	if err != nil {
		return nil, err
	}
	if payment != nil {
		all[payArgument], err = compact(payment)
		if err != nil {
			return nil, err
		}
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
