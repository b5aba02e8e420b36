package paywall

import (
	"bytes"
	"encoding/json"
	"fmt"

	"x402-wallet/internal/pattern"
)

// extensionIdentifier is the extension by which a buyer names a payment: the same call with the same payment
// is answered once more, and two payments with one name are not both taken (x402 payment-identifier).
const extensionIdentifier = "payment-identifier"

var identifierForm = pattern.Lazy(`^[A-Za-z0-9_-]{16,128}$`)

// identifierSchema is the JSON schema of the extension's info, as the reference declares it.
const identifierSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"properties":{"required":{"type":"boolean"},"id":{"type":"string","minLength":16,"maxLength":128,` +
	`"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}`

// declaredIdentifier is the extension as a challenge declares it.
func declaredIdentifier(isRequired bool) json.RawMessage {
	if isRequired {
		return json.RawMessage(`{"info":{"required":true},"schema":` + identifierSchema + `}`)
	}
	return json.RawMessage(`{"info":{"required":false},"schema":` + identifierSchema + `}`)
}

// identifier is the buyer's name for the payment; "" when there is none. One in another form is an error,
// because its buyer would rely on it.
func (p *payment) identifier() (string, error) {
	given := p.Extensions[extensionIdentifier]
	if len(given) == 0 || bytes.Equal(given, []byte("null")) {
		return "", nil
	}
	var said struct {
		Info struct {
			ID *string `json:"id"`
		} `json:"info"`
	}
	err := json.Unmarshal(given, &said)
	switch {
	case err == nil && said.Info.ID == nil:
		return "", nil
	case err != nil || !identifierForm().MatchString(*said.Info.ID):
		return "", fmt.Errorf("%w: its payment-identifier is not 16 to 128 of A-Z, a-z, 0-9, _ and -",
			ErrInvalidRequest)
	}
	return *said.Info.ID, nil
}

// readIdentifier takes the name from a payment for a tool.
func (p *payment) readIdentifier(t *tool) (err error) {
	// what is declared, and comes back unchanged, names nothing
	if !bytes.Equal(p.Extensions[extensionIdentifier], declaredIdentifier(t.RequireIdentifier)) {
		p.name, err = p.identifier()
	}
	if err == nil && p.name == "" && t.RequireIdentifier {
		err = fmt.Errorf("%w: it has no payment-identifier, which is required here", ErrInvalidRequest)
	}
	return err
}
