// Package passkey checks what the owner's passkeys say (WebAuthn level 3): that the owner signed in by one,
// or approved a payment by one.
//
// What must stay true: a passkey says yes to one thing. Its answer counts once, for the very question that
// this process asked, within minutes, at the origin where the passkey was made, and only where the
// authenticator verified its person. Nobody is told which passkeys there are. No secret of the owner's is
// here: a passkey's private key stays in its authenticator.
//
// The files: passkey.go (what a passkey is), checker.go (questions, and answers to them). Package answers
// has what is refused beyond go-webauthn, and package invitation is how the service's page and the owner's
// terminal make a passkey together. go-webauthn reads and verifies what a browser sends.
package passkey

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"x402-wallet/internal/passkey/internal/answers"
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
const MaxAnswer = answers.Max

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
