package wire

import (
	"bytes"
	"encoding/json"
	"slices"

	"x402-wallet/x402"
)

// The MCP dialects (x402 MCP transport v1 and v2, and what grew beside them). What a dialect
// decides is how it is paid: Attach has that table.
const (
	// tool result, version 2, or _meta["x402/payment-required"]
	dialectMCP x402.Dialect = "mcp"
	// tool result, version 1: x402's own servers and npm x402-mcp look alike
	dialectMCPV1         x402.Dialect = "mcp-v1"
	dialectMCPError      x402.Dialect = "mcp-error"      // JSON-RPC error, version 1 or 2
	dialectMCPCloudflare x402.Dialect = "mcp-cloudflare" // _meta["x402/error"]: takes base64 only
	// resultType "payment_required": MCP 2026-07-28, org.x402/payment
	dialectMCPExtension x402.Dialect = "mcp-extension"
)

// MCPExtension is the name under which a client says that it reads resultType "payment_required".
const MCPExtension = "org.x402/payment"

// MaxMCPMessage bounds one message of an MCP server. Content may be 32 MiB over HTTP; a
// tool's result is read by a model, and the SDKs themselves stop at 16 MiB a message.
const MaxMCPMessage = 16 << 20

// The keys of an MCP message's _meta: metaPayment in a request's, the others in an answer's.
const (
	metaPayment      = "x402/payment"
	metaPaymentMCPV1 = "x402.payment" // npm x402-mcp
	MetaReceipt      = "x402/payment-response"
	MetaReceiptMCPV1 = "x402.payment-response"
	metaRequired     = "x402/payment-required"
	MetaCloudflare   = "x402/error"
)

// PaymentKeys are the keys of a request's _meta that a server looks for a payment in.
func PaymentKeys() []string { return []string{metaPayment, metaPaymentMCPV1} }

// paymentCodes are the JSON-RPC codes that servers ask in, and those that other clients were seen to read.
// -32042 also asks for a URL to be opened, and -32803 says anything: without options they ask nothing. What
// MPP asks in an error is in mpp.go.
var paymentCodes = []int64{402, -402, -32402, -32042, -32803}

// MCPMessage is what a server answered to tools/call, resources/read, prompts/get or initialize, as
// it came: a result, or an error.
type MCPMessage struct {
	Result json.RawMessage
	Code   int64           // of a JSON-RPC error, where Result is nil
	Data   json.RawMessage // of that error
}

// ReadMCPChallenge reads what a server asks for. It is nil, without error, where nothing is asked.
// The first of these that is there is the challenge, and is read or refused:
//
//	result with resultType "payment_required"   paymentRequired             2026 extension
//	result's _meta["x402/error"]                JSON                        Cloudflare, also as text
//	result's _meta["x402/payment-required"]     JSON
//	result with isError                         structuredContent           x402 v1 and v2, npm x402-mcp
//	result with isError                         each text item that is it   where a schema forbids that
//	error -32042 or -32043                      data.challenges             MPP
//	error with a code of paymentCodes           data                        x402-go, x402 over MCP
//
// What comes after the first is compared with it, as ReadChallenge does. JSON without accepts is no
// challenge, so a tool's own error stays one; and what a tool gives without isError is its answer,
// whatever it looks like.
func ReadMCPChallenge(m MCPMessage) (*Challenge, error) {
	if m.Result == nil {
		return mcpErrorChallenge(m)
	}
	var chosen *Challenge
	for _, found := range mcpCandidates(m.Result) {
		c, err := decodeChallenge(found.text, x402.MaxBody, found.dialects)
		switch {
		case err != nil && chosen == nil:
			return nil, challengeError(err)
		case err != nil:
		case chosen == nil:
			chosen = c
		case pricesDiffer(chosen, c):
			return nil, x402.Errorf(x402.InvalidRequirement, "the server asks twice, at different prices").
				WithDetail("dialects", []x402.Dialect{chosen.Dialect, c.Dialect})
		}
	}
	if chosen == nil {
		return nil, nil
	}
	if err := x402.DecodeStrict(m.Result, MaxMCPMessage, nil); err != nil {
		// a key twice: what it asks depends on the reader
		return nil, challengeError(err)
	}
	return chosen, nil
}

func mcpErrorChallenge(m MCPMessage) (*Challenge, error) {
	isAsking := slices.Contains(paymentCodes, m.Code)
	charges := mcpCharges(m)
	switch {
	case !charges.isEmpty():
		return charges.joined(nil, dialectMCPMPP), nil
	case isAsking && looksLikeChallenge(m.Data):
		return decodeChallenge(m.Data, x402.MaxBody, dialects{1: dialectMCPError, 2: dialectMCPError})
	case m.Code == 402 || m.Code == -402:
		return nil, notX402(nil, nil)
	default:
		return nil, nil
	}
}

// candidate is a part of a result that looks like a challenge.
type candidate struct {
	text     json.RawMessage
	dialects dialects
}

// mcpCandidates finds every challenge in a result, in the order of ReadMCPChallenge.
func mcpCandidates(result json.RawMessage) (found []candidate) {
	var top, meta x402.Object
	if json.Unmarshal(result, &top) != nil {
		return nil
	}
	_ = json.Unmarshal(top["_meta"], &meta) // none is none
	add := func(text json.RawMessage, known dialects) {
		if looksLikeChallenge(text) {
			found = append(found, candidate{text: text, dialects: known})
		}
	}
	tool := dialects{1: dialectMCPV1, 2: dialectMCP}
	if kind, _ := top.Text("resultType"); kind == "payment_required" {
		found = append(found, candidate{text: top["paymentRequired"],
			dialects: dialects{1: dialectMCPExtension, 2: dialectMCPExtension}})
	}
	add(meta[MetaCloudflare], dialects{1: dialectMCPCloudflare, 2: dialectMCPCloudflare})
	add(meta[metaRequired], tool)
	if string(top["isError"]) != "true" {
		return found
	}
	add(top["structuredContent"], tool)
	var items []x402.Object
	_ = json.Unmarshal(top["content"], &items) // likewise
	for _, item := range items {
		if text, err := item.Text("text"); err == nil {
			add(json.RawMessage(text), tool)
		}
	}
	return found
}

// looksLikeChallenge reports whether text is meant as a challenge: a JSON object with accepts and a
// version. Then it is read strictly.
func looksLikeChallenge(text json.RawMessage) bool {
	var top x402.Object
	text = bytes.TrimLeft(text, " \t\r\n")
	return isObject(text) && json.Unmarshal(text, &top) == nil && top.Has("accepts") && top.Has("x402Version")
}

// ReadMCPSettlement reads a server's receipt: _meta of a result, or data of an error (a settlement
// that failed), under the key of the specification or of npm x402-mcp, as an object or in base64.
// It is nil, without error, when there is none. MPP's receipt is an object under a key of its own.
func ReadMCPSettlement(m MCPMessage) (*Settlement, error) {
	var top, holder x402.Object
	if m.Result == nil {
		_ = json.Unmarshal(m.Data, &holder) // none is none
	} else if json.Unmarshal(m.Result, &top) == nil {
		_ = json.Unmarshal(top["_meta"], &holder)
	}
	if holder.Has(metaMPPReceipt) {
		return chargeReceipt(holder[metaMPPReceipt])
	}
	var found *Settlement
	for _, key := range []string{MetaReceipt, MetaReceiptMCPV1} {
		if !holder.Has(key) {
			continue
		}
		text := []byte(holder[key])
		if !isObject(text) {
			wrapped, err := holder.Text(key)
			if err != nil {
				return nil, x402.Malformed("a receipt that is neither an object nor base64")
			}
			if text, err = Unwrap(key, wrapped); err != nil {
				return nil, err
			}
		}
		var err error
		if found, err = nextReceipt(found, text); err != nil {
			return nil, err
		}
	}
	return found, nil
}
