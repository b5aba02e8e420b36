package passkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// credential is a PublicKeyCredential as its toJSON writes it, of either kind.
type credential struct {
	ID       string `json:"id"`
	RawID    string `json:"rawId"`
	Type     string `json:"type"`
	Response struct {
		ClientDataJSON    string `json:"clientDataJSON"`
		AttestationObject string `json:"attestationObject"` // of a registration
		AuthenticatorData string `json:"authenticatorData"` // of an assertion, like the signature
		Signature         string `json:"signature"`
	} `json:"response"`
}

// readCredential reads what a browser sent, and what in it was said by the browser itself.
func readCredential(answer []byte) (c credential, said clientData, err error) {
	if len(answer) > MaxAnswer {
		return c, said, fmt.Errorf("%d bytes, more than an answer has", len(answer))
	}
	if err := json.Unmarshal(answer, &c); err != nil {
		return c, said, errors.New("not JSON of a credential")
	}
	if c.Type != "public-key" || c.ID == "" || (c.RawID != "" && c.RawID != c.ID) {
		return c, said, errors.New("not a public key's credential")
	}
	said.raw, err = decode(c.Response.ClientDataJSON)
	if err == nil {
		err = json.Unmarshal(said.raw, &said)
	}
	if err != nil {
		return c, said, errors.New("the client's data cannot be read")
	}
	return c, said, nil
}

// clientData is what the browser signs along (WebAuthn §5.8.1).
type clientData struct {
	Type        string `json:"type"`
	Challenge   string `json:"challenge"`
	Origin      string `json:"origin"`
	CrossOrigin bool   `json:"crossOrigin"`
	TopOrigin   string `json:"topOrigin"`

	raw []byte
}

// check refuses another ceremony than the one that was begun, and any other page than our own, framed by
// nobody.
func (c clientData) check(ceremony, origin string) error {
	switch {
	case c.Type != ceremony:
		return fmt.Errorf("it is %.40q, not %s", c.Type, ceremony)
	case c.Origin != origin:
		return fmt.Errorf("it was made at %.100q, not at %s", c.Origin, origin)
	case c.CrossOrigin || c.TopOrigin != "":
		return errors.New("it was made in another page's frame")
	}
	return nil
}

// authenticatorData is what the authenticator signs (WebAuthn §6.1).
type authenticatorData struct {
	flags   byte
	count   uint32
	further []byte // what follows
}

// Bits of authenticatorData's flags.
const (
	userPresent    = 1 << 0
	userVerified   = 1 << 2
	mayBeBackedUp  = 1 << 3
	isBackedUp     = 1 << 4
	hasCredential  = 1 << 6
	hasExtensions  = 1 << 7
	authDataLength = sha256.Size + 1 + 4
)

// readAuthenticatorData refuses what was made for another origin's name, and without a person whom the
// authenticator verified.
func readAuthenticatorData(raw []byte, rpID string) (d authenticatorData, err error) {
	if len(raw) < authDataLength {
		return d, errors.New("the authenticator's data is cut off")
	}
	d.flags = raw[sha256.Size]
	d.count = binary.BigEndian.Uint32(raw[sha256.Size+1:])
	d.further = raw[authDataLength:]
	name := sha256.Sum256([]byte(rpID))
	switch {
	case !bytes.Equal(raw[:sha256.Size], name[:]):
		return d, fmt.Errorf("it is for another name than %s", rpID)
	case d.flags&userPresent == 0:
		return d, errors.New("no person was there")
	case d.flags&userVerified == 0:
		return d, errors.New("the authenticator did not verify its person")
	case d.flags&isBackedUp != 0 && d.flags&mayBeBackedUp == 0:
		return d, errors.New("it is backed up and cannot be")
	}
	return d, nil
}
