package channel

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// Operations that DIDAuthV1 names.
const (
	opTool = "mcp_tool_call"
	opHTTP = "http_request"
)

// authObject is NIP1SignedObject, in the order in which the kit writes it.
type authObject struct {
	SignedData signedData    `json:"signed_data"`
	Signature  authSignature `json:"signature"`
}

type signedData struct {
	Operation string          `json:"operation"`
	Params    json.RawMessage `json:"params"`
	Nonce     string          `json:"nonce"`
	Timestamp int64           `json:"timestamp"` // Unix seconds; the server allows 300 either way
}

type authSignature struct {
	SignerDID string `json:"signer_did"`
	KeyID     string `json:"key_id"`
	Value     string `json:"value"`
}

type toolParams struct {
	Tool        string `json:"tool"`
	ClientTxRef string `json:"clientTxRef"`
}

type httpParams struct {
	URI    string `json:"uri"`
	Method string `json:"method"`
}

// newAuth is a fresh one: each request has its own nonce, the repetition of one too, because
// servers take each once.
func newAuth(operation string, params any, now time.Time) (signedData, error) {
	text, err := compact(params)
	return signedData{Operation: operation, Params: text, Nonce: uuid(), Timestamp: now.Unix()}, err
}

// message is what is signed. The kit canonicalises with JSON.stringify(data,
// Object.keys(data).sort()), whose list of names holds for nested objects too: params always comes
// out empty, and is not covered by the signature (reference: nuwa §2). Should a later kit correct
// that, this is the place.
func (d signedData) message() []byte {
	return fmt.Appendf(nil, `DIDAuthV1:{"nonce":"%s","operation":"%s","params":{},"timestamp":%d}`, d.Nonce,
		d.Operation, d.Timestamp)
}

// token is the header's value, and the value of __nuwa_auth.
func (d signedData) token(did, fragment string, signature []byte) (string, error) {
	text, err := compact(authObject{
		SignedData: d,
		Signature:  authSignature{SignerDID: did, KeyID: did + "#" + fragment, Value: multibase(signature)},
	})
	return "DIDAuthV1 " + multibase(text), err
}

// uuid is a random one (RFC 9562, version 4).
func uuid() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
