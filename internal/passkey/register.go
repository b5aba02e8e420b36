package passkey

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-webauthn/webauthn/protocol/webauthncbor"
)

// creation is PublicKeyCredentialCreationOptionsJSON.
type creation struct {
	RP struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"rp"`
	User struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		DisplayName string `json:"displayName"`
	} `json:"user"`
	Challenge  string       `json:"challenge"`
	Parameters []parameters `json:"pubKeyCredParams"`
	Timeout    int64        `json:"timeout"` // ms
	Selection  struct {
		ResidentKey        string `json:"residentKey"`
		RequireResidentKey bool   `json:"requireResidentKey"`
		UserVerification   string `json:"userVerification"`
	} `json:"authenticatorSelection"`
	Attestation string `json:"attestation"`
}

type parameters struct {
	Type      string `json:"type"`
	Algorithm int64  `json:"alg"`
}

// creationOptions are what a browser makes a passkey by: one that is found without its id, and whose
// authenticator verifies its person each time. Which authenticator it is nobody asks.
func creationOptions(origin, name string, user, challenge []byte) ([]byte, error) {
	rpID, err := RPID(origin)
	if err != nil {
		return nil, err
	}
	o := creation{Challenge: encode(challenge), Timeout: Life.Milliseconds(), Attestation: "none"}
	o.RP.ID, o.RP.Name = rpID, "x402-wallet"
	o.User.ID, o.User.Name, o.User.DisplayName = encode(user), "x402-wallet "+name, "x402-wallet "+name
	for _, a := range algorithms {
		o.Parameters = append(o.Parameters, parameters{"public-key", int64(a)})
	}
	o.Selection.ResidentKey, o.Selection.RequireResidentKey = "required", true
	o.Selection.UserVerification = "required"
	return json.Marshal(o)
}

// registered is the passkey that a browser made for a challenge, at an origin (WebAuthn §7.1). What its
// authenticator says of its make is not looked at.
func registered(origin string, challenge, answer []byte) (k Key, err error) {
	rpID, err := RPID(origin)
	if err != nil {
		return k, err
	}
	c, said, err := readCredential(answer)
	if err != nil {
		return k, err
	}
	if err := said.check("webauthn.create", origin); err != nil {
		return k, err
	}
	if said.Challenge != encode(challenge) {
		return k, errors.New("it answers another question")
	}
	object, err := decode(c.Response.AttestationObject)
	var attested struct {
		AuthData []byte `cbor:"authData"`
	}
	if err == nil {
		err = webauthncbor.Unmarshal(object, &attested)
	}
	if err != nil {
		return k, errors.New("the attestation cannot be read")
	}
	d, err := readAuthenticatorData(attested.AuthData, rpID)
	if err != nil {
		return k, err
	}
	id, public, err := d.attestedCredential()
	if err != nil {
		return k, err
	}
	if c.ID != encode(id) {
		return k, errors.New("the browser names another credential than the authenticator")
	}
	return Key{ID: encode(id), PublicKey: encode(public), Origin: origin, Count: int64(d.count)}, nil
}

const (
	aaguidLength = 16
	// maxCredentialID is WebAuthn's bound (§6.5.1).
	maxCredentialID = 1023
)

// attestedCredential is the new credential's id and public key (WebAuthn §6.5.1).
func (d authenticatorData) attestedCredential() (id, public []byte, err error) {
	at := d.further
	if d.flags&hasCredential == 0 || len(at) < aaguidLength+2 {
		return nil, nil, errors.New("there is no credential in it")
	}
	length := int(binary.BigEndian.Uint16(at[aaguidLength:]))
	at = at[aaguidLength+2:]
	if length == 0 || length > maxCredentialID || length > len(at) {
		return nil, nil, fmt.Errorf("a credential's id of %d bytes", length)
	}
	id, at = at[:length], at[length:]
	var raw webauthncbor.RawMessage
	n, err := webauthncbor.UnmarshalFirst(at, &raw)
	if err != nil {
		return nil, nil, errors.New("the credential's key cannot be read")
	}
	if n != len(at) != (d.flags&hasExtensions != 0) {
		return nil, nil, errors.New("what follows the credential is not what its flags say")
	}
	public = bytes.Clone(at[:n])
	if _, err := readKey(public); err != nil {
		return nil, nil, err
	}
	return bytes.Clone(id), public, nil
}
