package wire

import (
	"encoding/json"
	"errors"

	jsonv2 "github.com/go-json-experiment/json"

	"x402-wallet/x402"
)

// DecodeExact is x402.DecodeStrict for a document in which every member must be known. v keeps what the
// document does not name.
func DecodeExact(data []byte, limit int, v any) error {
	var document json.RawMessage
	err := x402.DecodeStrict(data, limit, &document)
	if err != nil {
		return err
	}
	err = jsonv2.Unmarshal(data, v, jsonv2.RejectUnknownMembers(true))
	if unknown, ok := errors.AsType[*jsonv2.SemanticError](err); ok && errors.Is(err, jsonv2.ErrUnknownName) {
		return x402.Malformed("unknown field " + x402.QuoteName(unknown.JSONPointer.LastToken()))
	}
	if err != nil {
		return &x402.Error{Code: x402.ResponseMalformed, Message: "the JSON has another shape than expected",
			Err: err}
	}
	return nil
}
