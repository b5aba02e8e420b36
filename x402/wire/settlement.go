package wire

import (
	"encoding/json"
	"errors"
	"net/http"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Settlement is what a seller (PAYMENT-RESPONSE) or a facilitator (/settle) says became of a
// payment. It is a claim, not a proof.
type Settlement struct {
	Success      bool
	Transaction  string // "" when there is none
	Network      string
	Payer        string
	Amount       string // atomic units really charged, where the scheme lets it differ; "" otherwise
	ErrorReason  string
	ErrorMessage string
	Raw          json.RawMessage
}

// ReceiptHeader is the header a seller's receipt stands in, in a version of the protocol.
func ReceiptHeader(version int) string {
	if version == 1 {
		return "X-PAYMENT-RESPONSE"
	}
	return "PAYMENT-RESPONSE"
}

// ReadSettlement reads a seller's receipt: the header PAYMENT-RESPONSE (V2), X-PAYMENT-RESPONSE (V1), or
// where neither is there, Payment-Receipt (MPP). It is nil, without error, when there is none. A receipt
// that cannot be read, or two that differ, is an error: no receipt, and worth a note.
func ReadSettlement(header http.Header) (*Settlement, error) {
	var found *Settlement
	for _, name := range []string{ReceiptHeader(2), ReceiptHeader(1)} {
		value, err := singleHeader(header, name)
		if err != nil {
			return nil, err
		}
		if value == "" {
			continue
		}
		data, err := Unwrap(name, value)
		if err != nil {
			return nil, err
		}
		if found, err = nextReceipt(found, data); err != nil {
			return nil, err
		}
	}
	if found == nil {
		return headerReceipt(header)
	}
	return found, nil
}

// nextReceipt reads a receipt; found came before it, and has to say the same.
func nextReceipt(found *Settlement, text []byte) (*Settlement, error) {
	s, err := decodeSettlement(text, x402.MaxHeader)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return s, nil
	case found.Success != s.Success || found.Transaction != s.Transaction:
		return nil, x402.Malformed("two receipts that contradict each other")
	}
	return found, nil
}

// DecodeSettlement reads a facilitator's answer to /settle, whatever its HTTP status: refusals come
// as 200, 4xx and 5xx. Errors are *Error with codes RESPONSE_MALFORMED and
// RESPONSE_TOO_LARGE.
func DecodeSettlement(raw []byte) (*Settlement, error) {
	return decodeSettlement(raw, x402.MaxBody)
}

// decodeSettlement is strict about what decides (success, transaction, network, amount) and takes
// words as they are.
func decodeSettlement(data []byte, limit int) (*Settlement, error) {
	var top x402.Object
	err := x402.DecodeStrict(data, limit, &top)
	if err != nil {
		return nil, err
	}
	s := &Settlement{Raw: data}
	switch string(top["success"]) {
	case "true":
		s.Success = true
	case "false":
	default:
		return nil, x402.Malformed("a settlement without success, true or false")
	}
	for _, field := range []struct {
		key  string
		into *string
	}{{"transaction", &s.Transaction}, {"network", &s.Network}, {"payer", &s.Payer}, {"amount", &s.Amount}} {
		*field.into, err = optionalIdentifier(top, field.key)
		if err != nil {
			return nil, x402.Malformed("a settlement in which " + err.Error())
		}
	}
	if caip2, ok := x402.Network(s.Network); ok {
		s.Network = caip2
	}
	if s.Amount != "" {
		if _, err := money.ParseAmount(s.Amount); err != nil {
			return nil, x402.Malformed("a settlement with an amount that is none")
		}
	}
	s.ErrorReason, _ = top.Text("errorReason")
	s.ErrorMessage, _ = top.Text("errorMessage")
	return s, nil
}

// optionalIdentifier is an identifier, or "" where it is absent or empty.
func optionalIdentifier(o x402.Object, key string) (string, error) {
	if s, ok := x402.Text(o[key]); ok && s == "" {
		return "", nil
	}
	if s, err := o.Identifier(key); err == nil {
		return s, nil
	}
	return "", errors.New(key + " is not an identifier") // not its text: that is a stranger's
}
