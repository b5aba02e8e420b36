// Package passkey makes the owner's passkeys and checks what they say (WebAuthn level 3): that the owner
// registered one, signed in by one, or approved a payment by one.
//
// What must stay true: a passkey says yes to one thing. Its answer counts once, for the very question that
// this process asked, within minutes, at the origin where the passkey was made, and only where the
// authenticator verified its person. Nobody is told which passkeys there are. No secret of the owner's is
// here: a passkey's private key stays in its authenticator.
//
// The files: passkey.go (what a passkey is), register.go (making one), checker.go (questions, and answers
// to them), answer.go (what is refused beyond go-webauthn). Package invitation is how the service's page and
// the owner's terminal make one together. go-webauthn reads and verifies what a browser sends.
package passkey

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol/webauthncose"
)

// Key is a passkey, as the sealed rules have it.
type Key struct {
	ID        string // of the credential, base64url
	PublicKey string // COSE_Key, base64url
	Origin    string // where it was made, and alone is good
	Count     int64  // the authenticator's signature counter then
}

// Life is how long a question waits for its answer.
const Life = 5 * time.Minute

// MaxAnswer bounds what a browser sends, in bytes: a registration with an RSA key has under 3 KiB.
const MaxAnswer = 8 << 10

// RPID is the name that passkeys of an origin belong to. WebAuthn takes a host's name, over TLS or of this
// machine, and no IP address.
func RPID(origin string) (string, error) {
	u, err := url.Parse(origin)
	if err != nil {
		return "", err
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return "", fmt.Errorf("%s has no name, and passkeys are for names", origin)
	}
	if u.Scheme != "https" && !IsLocal(origin) {
		return "", fmt.Errorf("%s is not https, and browsers have passkeys there or at localhost", origin)
	}
	return host, nil
}

// IsLocal reports whether an origin's name is one that every browser takes for this machine itself.
func IsLocal(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost"))
}

// algorithms are those of the passkeys that are made: every authenticator has one of them.
var algorithms = []webauthncose.COSEAlgorithmIdentifier{webauthncose.AlgES256, webauthncose.AlgEdDSA,
	webauthncose.AlgRS256}

// minModulus is the shortest RSA key that is taken, in bytes.
const minModulus = 256

// checkKey refuses a COSE_Key that is not of one of the algorithms, or weak.
func checkKey(cose []byte) error {
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
	if !slices.Contains(algorithms, webauthncose.COSEAlgorithmIdentifier(algorithm)) {
		return fmt.Errorf("a key of the algorithm %d, which is none of those asked for", algorithm)
	}
	return nil
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func decode(text string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(text) }
