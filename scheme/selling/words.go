package selling

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// MaxPayment bounds a payment as it is presented: with extensions echoed the longest real one has 8 KiB.
const MaxPayment = x402.MaxHeader

// ErrNotJSON: the payment is no JSON at all, which JSON-RPC has a code of its own for.
var ErrNotJSON = errors.New("it is not JSON")

// Protocol is another one than x402 by which the same payments are asked for and shown over HTTP.
type Protocol interface {
	// Ask returns a WWW-Authenticate that asks for an option until then; asked are its terms of version 2. It
	// is "" where that cannot be asked.
	Ask(o Option, asked x402.Requirement, host string, until time.Time) string
	// Read reads the payment in a request's header. It returns nil, nil if there is none.
	Read(header http.Header, host string) (*Answer, error)
	// Receipt returns a header of the answer, with a settlement.
	Receipt(s *wire.Settlement, now time.Time) (name, value string)
}

// Answer is a payment that came by a Protocol.
type Answer struct {
	Payload json.RawMessage // as x402 has it
	Nonce   [32]byte        // of the only payment that answers
	IsFor   func(o Option, asked x402.Requirement) bool
}

func Unwrap(where, text string) ([]byte, error) {
	if len(text) > base64.StdEncoding.EncodedLen(MaxPayment) {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrInvalid, MaxPayment)
	}
	raw, err := wire.Unwrap(where, text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w, nor base64 of it", ErrInvalid, ErrNotJSON)
	}
	return raw, nil
}

// ReadPayload reads a payment's payload strictly.
func (p Shown) ReadPayload(into any) error {
	if err := x402.DecodeStrict(p.Payload, MaxPayment, into); err != nil {
		return fmt.Errorf("%w: its payload: %w", ErrInvalid, err)
	}
	return nil
}

// JSON is a value of our own types.
func JSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("not JSON: %T", v)) // of our own types: cannot happen
	}
	return text
}

// Domain adds a token's signing domain to an offer's extra.
func (o Option) Domain(extra map[string]json.RawMessage) {
	extra["name"], extra["version"] = JSON(o.Asset.Name), JSON(o.Asset.Version)
}

// WithExtra are terms with another extra.
func WithExtra(terms json.RawMessage, change func(extra map[string]json.RawMessage)) json.RawMessage {
	var entry, extra map[string]json.RawMessage
	if json.Unmarshal(terms, &entry) != nil || json.Unmarshal(entry["extra"], &extra) != nil {
		return terms // ours: cannot happen
	}
	change(extra)
	entry["extra"] = JSON(extra)
	return JSON(entry)
}

func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
