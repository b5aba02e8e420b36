package nuwa

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"x402-wallet/x402"
)

// Operations that DIDAuthV1 names.
const (
	opTool = "mcp_tool_call"
	opHTTP = "http_request"
)

// authObject is NIP1SignedObject, in the order in which the kit writes it.
type authObject struct {
	SignedData signedData `json:"signed_data"`
	Signature  struct {
		SignerDID string `json:"signer_did"`
		KeyID     string `json:"key_id"`
		Value     string `json:"value"`
	} `json:"signature"`
}

type signedData struct {
	Operation string          `json:"operation"`
	Params    json.RawMessage `json:"params"`
	Nonce     string          `json:"nonce"`
	Timestamp int64           `json:"timestamp"` // Unix seconds; the server allows 300 either way
}

type toolParams struct {
	Tool        string `json:"tool"`
	ClientTxRef string `json:"clientTxRef"`
}

type httpParams struct {
	URI    string `json:"uri"`
	Method string `json:"method"`
}

// message is what is signed. The kit canonicalises with JSON.stringify(data,
// Object.keys(data).sort()), whose list of names holds for nested objects too: params always comes
// out empty, and is not covered by the signature. Should a later kit correct that, this is the
// place.
func (d signedData) message() []byte {
	return fmt.Appendf(nil, `DIDAuthV1:{"nonce":"%s","operation":"%s","params":{},"timestamp":%d}`, d.Nonce,
		d.Operation, d.Timestamp)
}

// tokens makes a fresh authorization for each request, our signature over what is asked and when:
// the repetition of one has its own nonce too, because servers take each once.
func (m *Manager) tokens(s *service) authToken {
	return func(ctx context.Context, operation string, params any) (string, error) {
		text, err := compact(params)
		if err != nil {
			return "", err
		}
		data := signedData{Operation: operation, Params: text, Nonce: uuid(), Timestamp: m.Now().Unix()}
		signature, err := m.Keys.SignAuth(ctx, s.key, data.message())
		if err != nil {
			return "", err
		}
		return data.token(s.payer.did(), s.key.Fragment, signature)
	}
}

// token is the header's value, and the value of __nuwa_auth.
func (d signedData) token(did, fragment string, signature []byte) (string, error) {
	object := authObject{SignedData: d}
	object.Signature.SignerDID, object.Signature.KeyID = did, did+"#"+fragment
	object.Signature.Value = multibase(signature)
	text, err := compact(object)
	return "DIDAuthV1 " + multibase(text), err
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

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

// signedInfo is what was signed of what a service publishes; signature nil: nothing was. The
// signature is optional, and nothing is known to make one. Where one is, it has to be
// right: by a key of the service's DID document, over the fields it names (all others, when it
// names none) as JSON with sorted names and no spaces.
func signedInfo(text []byte) (message, signature []byte, err error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, nil, malformed("its description", err)
	}
	given, ok := all["signature"]
	if !ok || string(given) == "null" {
		return nil, nil, nil
	}
	var s struct {
		Value  string   `json:"value"`
		Fields []string `json:"signedFields"`
	}
	err = json.Unmarshal(given, &s)
	if err == nil {
		signature, err = unMultibase("u" + strings.TrimPrefix(s.Value, "u"))
	}
	if err != nil {
		return nil, nil, malformed("a signature", err)
	}
	delete(all, "signature")
	if len(s.Fields) > 0 {
		if !slices.Contains(s.Fields, "serviceDid") {
			return nil, nil, x402.Errorf(x402.InvalidRequirement,
				"the service signs its description without its own name")
		}
		maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
			return !slices.Contains(s.Fields, name)
		})
	}
	message, err = compact(all)
	return message, signature, err
}
