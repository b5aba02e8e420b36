package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"x402-wallet/x402"
)

// ed25519Key is the type of the key that an owner is told to put into the document.
const ed25519Key = "Ed25519VerificationKey2020"

// Keys are the wallet's keys, as channels may use them: for three kinds of messages and nothing
// else.
type Keys interface {
	// Public is our Ed25519 key, for the owner to put into their DID document.
	Public() string
	// Owns reports whether a key of a DID document is ours.
	Owns(k Key) bool
	// Verify reports whether a signature is by a key, whoever's.
	Verify(k Key, message, signature []byte) bool
	// SignSubRAV and SignTransaction sign a message after reading it as what is meant.
	SignSubRAV(ctx context.Context, k Key, message []byte, meant SubRAV) ([]byte, error)
	SignTransaction(ctx context.Context, k Key, message []byte, meant Transaction) ([]byte, error)
	SignAuth(ctx context.Context, k Key, message []byte) ([]byte, error)
}

// infoSignature is seed 003's optional signature over what is published. Nothing is known to make
// one; where one is, it has to be right: by a key of the service's DID document, over the fields it
// names (all others, when it names none) as JSON with sorted names and no spaces.
type infoSignature struct {
	Alg    string   `json:"alg"`
	Value  string   `json:"value"`
	Fields []string `json:"signedFields"`
}

// signedInfo is what was signed; signature nil: nothing was.
func signedInfo(text []byte) (message, signature []byte, err error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, nil, malformed("its description", err)
	}
	given, ok := all["signature"]
	if !ok || string(given) == "null" {
		return nil, nil, nil
	}
	var s infoSignature
	if err := json.Unmarshal(given, &s); err != nil {
		return nil, nil, malformed("a signature", err)
	}
	if signature, err = unMultibase("u" + strings.TrimPrefix(s.Value, "u")); err != nil {
		return nil, nil, malformed("a signature", err)
	}
	delete(all, "signature")
	if len(s.Fields) > 0 {
		if !slices.Contains(s.Fields, "serviceDid") {
			return nil, nil, x402.Errorf(x402.InvalidRequirement,
				"the service signs its description without its own name")
		}
		for name := range all {
			if !slices.Contains(s.Fields, name) {
				delete(all, name)
			}
		}
	}
	for name, value := range all {
		var b bytes.Buffer
		if err := json.Compact(&b, value); err != nil {
			return nil, nil, malformed("its description", err)
		}
		all[name] = b.Bytes()
	}
	message, err = compact(all)
	return message, signature, err
}
