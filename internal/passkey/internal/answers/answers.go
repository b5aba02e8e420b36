// Package answers says what is refused of a browser's answer beyond what go-webauthn refuses, for those who
// make a passkey and those who ask one. What must stay true: both refuse the same.
package answers

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
)

// Max bounds what a browser sends, in bytes: a registration with an RSA key has under 3 KiB.
const Max = 8 << 10

// What go-webauthn is asked to verify of every answer: that no other page framed ours, and that a person was
// present and verified.
const (
	TopOrigins                    = protocol.TopOriginExplicitVerificationMode
	AllowFrame, Verified, Present = false, true, true
)

// CheckSize refuses an answer that is longer than any browser's.
func CheckSize(answer []byte) error {
	if len(answer) > Max {
		return fmt.Errorf("%d bytes, more than an answer has", len(answer))
	}
	return nil
}

// CheckStricter refuses two things that the library accepts: an origin that is spelled otherwise than ours,
// and a passkey that is backed up although its flags say that it cannot be.
func CheckStricter(client protocol.CollectedClientData, data protocol.AuthenticatorData,
	origin string) error {
	if client.Origin != origin {
		return fmt.Errorf("it was made at %.100q, not at %s", client.Origin, origin)
	}
	if data.Flags.HasBackupState() && !data.Flags.HasBackupEligible() {
		return errors.New("it is backed up and cannot be")
	}
	return nil
}

// WithReason adds the reason to an error of the library, whose text leaves it out. The reason may quote a
// browser.
func WithReason(err error) error {
	var refused *protocol.Error
	if errors.As(err, &refused) && refused.DevInfo != "" {
		return fmt.Errorf("%w: %.200q", err, refused.DevInfo)
	}
	return err
}

// Algorithms are those of the passkeys that are made: every authenticator has one of them.
var Algorithms = []webauthncose.COSEAlgorithmIdentifier{webauthncose.AlgES256, webauthncose.AlgEdDSA,
	webauthncose.AlgRS256}

// minModulus is the shortest RSA key that is taken, in bytes.
const minModulus = 256

// CheckKey refuses a COSE_Key that is not of one of the algorithms, or weak.
func CheckKey(cose []byte) error {
	parsed, err := webauthncose.ParsePublicKey(cose)
	if err != nil {
		return err
	}
	var algorithm int64
	switch k := parsed.(type) {
	case webauthncose.EC2PublicKeyData:
		algorithm = k.Algorithm
	case webauthncose.OKPPublicKeyData:
		algorithm = k.Algorithm
	case webauthncose.RSAPublicKeyData:
		algorithm = k.Algorithm
		if len(k.Modulus) < minModulus || k.Modulus[0] == 0 {
			return errors.New("an RSA key of under 2048 bits")
		}
	}
	if !slices.Contains(Algorithms, webauthncose.COSEAlgorithmIdentifier(algorithm)) {
		return fmt.Errorf("a key of the algorithm %d, which is none of those asked for", algorithm)
	}
	return nil
}

// Encode writes bytes as the rules and browsers do.
func Encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// Decode reads what Encode writes.
func Decode(text string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(text) }
