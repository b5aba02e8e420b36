// Package passkeytest is a browser with an authenticator in software, for tests: it signs what a real one
// would, and on demand what a real one would never.
package passkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/go-webauthn/webauthn/protocol/webauthncbor"
)

// Flags of a person who was there and whom the authenticator verified.
const Verified = 1<<0 | 1<<2

// Authenticator has one passkey (ES256), and counts its signatures.
type Authenticator struct {
	Origin string // of the page
	Flags  byte
	RPID   string // "": the one that it is asked for
	Type   string // of the ceremony; "": the right one
	Count  uint32 // of the last signature
	Still  bool   // it does not count
	Framed bool   // the page is in another's frame
	ID     []byte

	key *ecdsa.PrivateKey
}

// New is an authenticator at an origin's page.
func New(origin string) *Authenticator {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	id := make([]byte, 32)
	rand.Read(id)
	return &Authenticator{Origin: origin, Flags: Verified, ID: id, key: key}
}

// options are what is read of either kind.
type options struct {
	Challenge string `json:"challenge"`
	RPID      string `json:"rpId"`
	RP        struct {
		ID string `json:"id"`
	} `json:"rp"`
}

type response struct {
	ClientDataJSON    string `json:"clientDataJSON"`
	AttestationObject string `json:"attestationObject,omitempty"`
	AuthenticatorData string `json:"authenticatorData,omitempty"`
	Signature         string `json:"signature,omitempty"`
}

// Create is what navigator.credentials.create answers, as its toJSON writes it.
func (a *Authenticator) Create(asked []byte) []byte {
	o := read(asked)
	client := a.client("webauthn.create", o.Challenge)
	point, err := a.key.PublicKey.Bytes()
	must(err)
	cose, err := webauthncbor.Marshal(map[int]any{1: 2, 3: -7, -1: 1, -2: point[1:33], -3: point[33:]})
	must(err)
	credential := binary.BigEndian.AppendUint16(make([]byte, 16), uint16(len(a.ID))) //nolint:gosec // short
	data := slices.Concat(a.data(o.RP.ID, 1<<6), credential, a.ID, cose)
	object, err := webauthncbor.Marshal(map[string]any{"fmt": "none", "attStmt": map[string]any{},
		"authData": data})
	must(err)
	return a.answer(response{ClientDataJSON: encode(client), AttestationObject: encode(object)})
}

// Get is what navigator.credentials.get answers.
func (a *Authenticator) Get(asked []byte) []byte {
	o := read(asked)
	client := a.client("webauthn.get", o.Challenge)
	if !a.Still {
		a.Count++
	}
	data := a.data(o.RPID, 0)
	clientHash := sha256.Sum256(client)
	hash := sha256.Sum256(slices.Concat(data, clientHash[:]))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, hash[:])
	must(err)
	return a.answer(response{ClientDataJSON: encode(client), AuthenticatorData: encode(data),
		Signature: encode(signature)})
}

func (a *Authenticator) client(ceremony, challenge string) []byte {
	if a.Type != "" {
		ceremony = a.Type
	}
	text, err := json.Marshal(map[string]any{"type": ceremony, "challenge": challenge, "origin": a.Origin,
		"crossOrigin": a.Framed})
	must(err)
	return text
}

func (a *Authenticator) data(rpID string, flags byte) []byte {
	if a.RPID != "" {
		rpID = a.RPID
	}
	name := sha256.Sum256([]byte(rpID))
	return binary.BigEndian.AppendUint32(append(name[:], a.Flags|flags), a.Count)
}

func (a *Authenticator) answer(r response) []byte {
	text, err := json.Marshal(map[string]any{"id": encode(a.ID), "rawId": encode(a.ID), "type": "public-key",
		"clientExtensionResults": map[string]any{}, "response": r})
	must(err)
	return text
}

func read(asked []byte) (o options) {
	must(json.Unmarshal(asked, &o))
	return o
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
