package evm

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// maxPayload bounds a payload object that is read, in bytes: the longest honest one, with
// 78-digit numbers, is under 700.
const maxPayload = 4 << 10

// authorizationJSON is the message in JSON, its keys in the reference client's order.
type authorizationJSON struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"`
}

// payloadJSON is the scheme's `payload` object, ditto.
type payloadJSON struct {
	Authorization json.RawMessage `json:"authorization"`
	Signature     string          `json:"signature"`
}

// EncodeAuthorization writes the `authorization` object.
func EncodeAuthorization(a Authorization3009) ([]byte, error) {
	return json.Marshal(authorizationJSON{
		From: a.From, To: a.To, Value: a.Value.String(),
		ValidAfter: strconv.FormatInt(a.ValidAfter, 10), ValidBefore: strconv.FormatInt(a.ValidBefore, 10),
		Nonce: "0x" + hex.EncodeToString(a.Nonce[:]),
	})
}

// encodePayload joins the very bytes that were checked with the signature over them.
func encodePayload(authorization []byte, signature [65]byte) (json.RawMessage, error) {
	return json.Marshal(payloadJSON{
		Authorization: authorization, Signature: "0x" + hex.EncodeToString(signature[:]),
	})
}

// decodePayload reads {"authorization":{…},"signature":"0x…"}, in any order.
func decodePayload(payload []byte) (a Authorization3009, signature [65]byte, err error) {
	if len(payload) > maxPayload {
		return a, signature, fmt.Errorf("%w: longer than %d bytes", ErrPayload, maxPayload)
	}
	parts, err := members(payload, "authorization", "signature")
	if err != nil {
		return a, signature, err
	}
	if a, err = DecodeAuthorization(parts[0]); err != nil {
		return a, signature, err
	}
	text, err := stringOf(parts[1])
	if err == nil {
		err = fixedHex(signature[:], text)
	}
	if err != nil {
		return a, signature, fmt.Errorf("%w: signature: %w", ErrPayload, err)
	}
	return a, signature, nil
}

// DecodeAuthorization reads the `authorization` object: exactly its six strings.
func DecodeAuthorization(object []byte) (a Authorization3009, err error) {
	names := []string{"from", "to", "value", "validAfter", "validBefore", "nonce"}
	parts, err := members(object, names...)
	if err != nil {
		return a, err
	}
	var texts [6]string
	for i, part := range parts {
		texts[i], err = stringOf(part)
		if err != nil {
			return a, fmt.Errorf("%w: %s: %w", ErrPayload, names[i], err)
		}
	}
	from, errFrom := parseAddress(texts[0])
	to, errTo := parseAddress(texts[1])
	value, errValue := money.ParseAmount(texts[2])
	after, errAfter := parseSeconds(texts[3])
	before, errBefore := parseSeconds(texts[4])
	errNonce := fixedHex(a.Nonce[:], texts[5])
	for i, err := range []error{errFrom, errTo, errValue, errAfter, errBefore, errNonce} {
		if err != nil {
			return a, fmt.Errorf("%w: %s: %w", ErrPayload, names[i], err)
		}
	}
	a.From, a.To, a.Value, a.ValidAfter, a.ValidBefore = from.Hex(), to.Hex(), value, after, before
	return a, nil
}

// members reads a JSON object that has exactly the given keys, each once, in any order.
func members(object []byte, names ...string) ([]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := x402.DecodeStrict(object, maxPayload, &all); err != nil {
		return nil, fmt.Errorf("%w: not one JSON object: %w", ErrPayload, err)
	}
	values := make([]json.RawMessage, len(names))
	for i, name := range names {
		value, present := all[name]
		if !present {
			return nil, fmt.Errorf("%w: no %s", ErrPayload, name)
		}
		values[i] = value
	}
	if len(all) != len(names) {
		return nil, fmt.Errorf("%w: an unknown key", ErrPayload)
	}
	return values, nil
}

// stringOf reads a JSON string.
func stringOf(value json.RawMessage) (s string, err error) {
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", errors.New("not a string")
	}
	return s, nil
}

// fixedHex fills into from 0x and exactly two hex digits a byte.
func fixedHex(into []byte, text string) error {
	digits, found := strings.CutPrefix(text, "0x")
	if !found || len(digits) != 2*len(into) {
		return fmt.Errorf("not 0x and %d hex digits", 2*len(into))
	}
	_, err := hex.Decode(into, []byte(digits))
	return err
}

// parseSeconds reads Unix seconds, a canonical decimal up to 2^63-1.
func parseSeconds(text string) (int64, error) {
	amount, err := money.ParseAmount(text)
	if err != nil {
		return 0, err
	}
	seconds, fits := amount.Uint64()
	if !fits || seconds > 1<<63-1 {
		return 0, errors.New("more than 2^63-1 seconds")
	}
	return int64(seconds), nil
}
