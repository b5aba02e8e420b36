// Package formtest answers the wallet's questions in tests, as a person who reads them.
package formtest

import (
	"encoding/json"

	"x402-wallet/internal/pattern"
)

var price = pattern.Lazy(`^Pay (\$[0-9.]+)`)

// Content fills in the form of a question by its message: the price that it asks for, where it asks for one.
func Content(message string) map[string]any {
	if found := price().FindStringSubmatch(message); found != nil {
		return map[string]any{"price": found[1]}
	}
	return map[string]any{}
}

// Answer is the result of elicitation/create with these parameters, by a person who accepts or declines.
func Answer(params json.RawMessage, action string) map[string]any {
	var asked struct{ Message string }
	_ = json.Unmarshal(params, &asked)
	if action != "accept" {
		return map[string]any{"action": action}
	}
	return map[string]any{"action": action, "content": Content(asked.Message)}
}
