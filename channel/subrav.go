package channel

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// subRAV is the payer's voucher (SubRAV) as services and wallets exchange it, in JSON.
type subRAV SubRAV

const subRAVVersion = "1"

// maxFragment bounds a key's name; a longer one is none.
const maxFragment = 128

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

// MarshalJSON writes the form of messages.
func (s subRAV) MarshalJSON() ([]byte, error) {
	return compact(subRAVJSON{
		Version: subRAVVersion, ChainID: decimal(s.ChainID), ChannelID: objectID(s.Channel).String(),
		ChannelEpoch: decimal(s.Epoch), VMIDFragment: s.Fragment, AccumulatedAmount: s.Amount.String(),
		Nonce: decimal(s.Nonce),
	})
}

var (
	errFragment  = errors.New("the name of its key is empty or too long")
	errMultibase = errors.New("not multibase u")
)

// UnmarshalJSON reads the form of messages, and no other: numbers that are not strings could have
// lost digits.
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
		return malformed("a SubRAV", errFragment)
	}
	out := subRAV{Fragment: in.VMIDFragment}
	var err error
	for _, part := range []struct {
		into *uint64
		text string
	}{{&out.ChainID, in.ChainID}, {&out.Epoch, in.ChannelEpoch}, {&out.Nonce, in.Nonce}} {
		*part.into, err = parseDecimal(part.text)
		if err != nil {
			return malformed("a SubRAV", err)
		}
	}
	out.Channel, err = parseObjectID(in.ChannelID)
	if err != nil {
		return malformed("a SubRAV", err)
	}
	out.Amount, err = money.ParseAmount(in.AccumulatedAmount)
	if err != nil {
		return malformed("a SubRAV", err)
	}
	*s = out
	return nil
}

// signedSubRAV is a SubRAV with its signature.
type signedSubRAV struct {
	SubRAV    subRAV `json:"subRav"`
	Signature string `json:"signature"` // multibase
}

// multibase is base64url without padding behind its letter u.
func multibase(b []byte) string { return "u" + base64.RawURLEncoding.EncodeToString(b) }

func unMultibase(text string) ([]byte, error) {
	data, ok := strings.CutPrefix(text, "u")
	if !ok {
		return nil, errMultibase
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
	return x402.Errorf(x402.ResponseMalformed, "the service sent %s that cannot be read: %w", what, err)
}
