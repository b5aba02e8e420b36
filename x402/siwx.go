package x402

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Signing in with a wallet instead of paying (extension sign-in-with-x; CAIP-122): a text that names the
// site, the account and a nonce is signed as EIP-4361 has it on EVM (EIP-191), and as plain bytes (ed25519)
// on Solana. A seller that was paid gives what was bought to whoever signs in as the payer.

// ExtensionSignIn is the extension's key.
const ExtensionSignIn = "sign-in-with-x"

// SignInScheme is what the ledger calls a sign-in among the schemes of payments.
const SignInScheme = ExtensionSignIn

// Bounds of a sign-in message.
const (
	// MaxSignInAge is how long after its issuedAt a message is taken, as the reference server (2.27) has it.
	MaxSignInAge = 5 * time.Minute
	// maxSignInLife is the longest that a message may say it is good for.
	maxSignInLife = 24 * time.Hour
	// MaxSignIn bounds a message, and its header before base64, in bytes: nobody's is longer than 2 KiB.
	MaxSignIn = 4 << 10
	// signInSkew is how far issuedAt may be ahead of this machine's clock.
	signInSkew = 2 * time.Minute
)

// SignIn is a sign-in message with its signature, as it goes into the header. The members are in the
// reference client's order.
type SignIn struct {
	Domain          string   `json:"domain"`
	Address         string   `json:"address"`
	Statement       string   `json:"statement,omitempty"` // the seller's words
	URI             string   `json:"uri"`
	Version         string   `json:"version"`
	ChainID         string   `json:"chainId"` // CAIP-2
	Type            string   `json:"type"`    // "eip191" or "ed25519"
	Nonce           string   `json:"nonce"`
	IssuedAt        string   `json:"issuedAt"` // RFC 3339, as all times in it
	ExpirationTime  string   `json:"expirationTime,omitempty"`
	NotBefore       string   `json:"notBefore,omitempty"`
	RequestID       string   `json:"requestId,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	SignatureScheme string   `json:"signatureScheme,omitempty"`
	Signature       string   `json:"signature"` // 0x and hex, or base58
}

// SignInError says why a sign-in is not taken. Reason is the reference verifier's word for it,
// "invalid_siwx_…"; Message is our own, and has nothing in it that a stranger wrote.
type SignInError struct{ Reason, Message string }

func (e *SignInError) Error() string { return e.Reason + ": " + e.Message }

func signInError(reason, format string, args ...any) error {
	return &SignInError{Reason: "invalid_siwx_" + reason, Message: fmt.Sprintf(format, args...)}
}

// The kinds of signatures, and the accounts they are by, as the text names them.
const (
	signInEVM    = "eip191"
	signInSolana = "ed25519"
)

var signInAccounts = map[string]string{signInEVM: "Ethereum", signInSolana: "Solana"}

// SignInType is the kind of signature by which accounts of a network sign in; "": by none.
func SignInType(network string) string {
	switch Namespace(network) {
	case "eip155":
		return signInEVM
	case "solana":
		return signInSolana
	}
	return ""
}

// Text is what is signed. Its error is a *SignInError where a member could be read as another one, or is
// none.
func (s SignIn) Text() (string, error) {
	if err := s.checkForm(); err != nil {
		return "", err
	}
	_, reference, _ := strings.Cut(s.ChainID, ":")
	lines := []string{s.Domain + " wants you to sign in with your " + signInAccounts[s.Type] + " account:",
		s.Address, ""}
	switch {
	case s.Statement != "":
		lines = append(lines, s.Statement, "")
	case s.Type == signInEVM: // EIP-4361 keeps the place of the statement, Solana does not
		lines = append(lines, "")
	}
	lines = append(lines, "URI: "+s.URI, "Version: "+s.Version, "Chain ID: "+reference, "Nonce: "+s.Nonce,
		"Issued At: "+s.IssuedAt)
	for _, optional := range []struct{ name, value string }{{"Expiration Time: ", s.ExpirationTime},
		{"Not Before: ", s.NotBefore}, {"Request ID: ", s.RequestID}} {
		if optional.value != "" {
			lines = append(lines, optional.name+optional.value)
		}
	}
	if len(s.Resources) > 0 {
		lines = append(lines, "Resources:")
	}
	for _, r := range s.Resources {
		lines = append(lines, "- "+r)
	}
	text := strings.Join(lines, "\n")
	if len(text) > MaxSignIn {
		return "", signInError("message", "the message is longer than %d bytes", MaxSignIn)
	}
	return text, nil
}

// checkForm refuses members that are not what they are called, above all a line break in one, behind which
// others could be forged.
func (s SignIn) checkForm() error {
	for _, m := range append([]string{s.Domain, s.Address, s.Statement, s.URI, s.Version, s.Nonce, s.IssuedAt,
		s.ExpirationTime, s.NotBefore, s.RequestID}, s.Resources...) {
		if strings.IndexFunc(m, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
			return signInError("message", "a member has other than printable ASCII characters in it")
		}
	}
	switch {
	case s.Type == "" || s.Type != SignInType(s.ChainID):
		return signInError("unsupported_chain", "its chain is not one that accounts sign in on here")
	case !IsChainID(s.ChainID):
		return signInError("chain_id", "its chainId is no CAIP-2 name")
	case s.Version != "1":
		return signInError("version", "its version is not 1")
	case s.Domain == "" || strings.ContainsAny(s.Domain, " /?#@\\"):
		return signInError("domain_mismatch", "its domain is no host")
	case s.Address == "" || strings.Contains(s.Address, " "):
		return signInError("malformed_signature", "it names no account")
	case !isNonce(s.Nonce):
		return signInError("nonce", "its nonce is not 8 or more letters and digits")
	case strings.ContainsAny(s.URI, " "):
		return signInError("uri_mismatch", "its uri is none")
	}
	return nil
}

func IsChainID(name string) bool {
	network, ok := Network(name)
	return ok && network == name
}

func isNonce(nonce string) bool {
	other := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return len(nonce) >= 8 && len(nonce) <= 128 && strings.IndexFunc(nonce, other) < 0
}

// Evidence is what the ledger keeps of a signed message: who signed, its signature, and how long it is good.
func (s SignIn) Evidence() Evidence {
	e := Evidence{Network: s.ChainID, Payer: s.Address, Signature: s.Signature}
	if issued, err := time.Parse(time.RFC3339, s.IssuedAt); err == nil {
		e.ExpiresAt = issued.Add(MaxSignInAge).UTC()
	}
	if end, err := time.Parse(time.RFC3339, s.ExpirationTime); err == nil {
		e.ExpiresAt = end.UTC()
	}
	return e
}

// CheckBound refuses a message that is not for this origin ("https://host", with a port where it is not the
// scheme's own), or not good now. Errors: *SignInError.
func (s SignIn) CheckBound(origin string, now time.Time) error {
	asked, err := url.Parse(origin)
	if err != nil || asked.Host == "" {
		return signInError("domain_mismatch", "the origin that was asked is none")
	}
	if s.Domain != hostPortOf(asked) {
		return signInError("domain_mismatch", "it is for another domain than the one that was asked")
	}
	uri, err := url.Parse(s.URI)
	if err != nil || uri.User != nil || uri.Scheme != asked.Scheme || hostPortOf(uri) != hostPortOf(asked) {
		return signInError("uri_mismatch", "it is for another origin than the one that was asked")
	}
	return s.checkTimes(now)
}

// hostPortOf is a URL's host as a browser names it: lower case, with the port where it is not the scheme's.
func hostPortOf(u *url.URL) string {
	name, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	isOwn := (u.Scheme == "https" && port == "443") || (u.Scheme == "http" && port == "80")
	if port == "" || isOwn {
		return name
	}
	return name + ":" + port
}

// Origin is the origin of a web URL, as CheckBound takes it.
func Origin(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "", errors.New("no web URL")
	}
	return u.Scheme + "://" + hostPortOf(u), nil
}

func (s SignIn) checkTimes(now time.Time) error {
	issued, err := time.Parse(time.RFC3339, s.IssuedAt)
	switch {
	case err != nil:
		return signInError("issued_at", "its issuedAt is no time")
	case now.Sub(issued) > MaxSignInAge:
		return signInError("issued_at_too_old", "it was issued more than %s ago", MaxSignInAge)
	case issued.Sub(now) > signInSkew:
		return signInError("issued_at_in_future", "it was issued in the future")
	}
	if s.ExpirationTime != "" {
		end, err := time.Parse(time.RFC3339, s.ExpirationTime)
		switch {
		case err != nil:
			return signInError("expiration_time", "its expirationTime is no time")
		case !now.Before(end):
			return signInError("expired", "it has expired")
		case end.Sub(now) > maxSignInLife:
			return signInError("expiration_time", "it would be good for longer than %s", maxSignInLife)
		}
	}
	if s.NotBefore != "" {
		begin, err := time.Parse(time.RFC3339, s.NotBefore)
		switch {
		case err != nil:
			return signInError("not_before", "its notBefore is no time")
		case begin.Sub(now) > signInSkew:
			return signInError("not_yet_valid", "it is not good yet")
		}
	}
	return nil
}

// ReadSignInText reads a text of Text back, without a signature. What is not to the letter such a text is
// a *SignInError.
func ReadSignInText(text string) (s SignIn, err error) {
	other := signInError("message", "it is no sign-in message")
	lines := strings.Split(text, "\n")
	if len(text) > MaxSignIn || len(lines) < 8 {
		return s, other
	}
	namespace := "eip155:"
	s.Type = signInEVM
	if strings.HasSuffix(lines[0], " Solana account:") {
		s.Type, namespace = signInSolana, "solana:"
	}
	s.Domain = strings.TrimSuffix(lines[0],
		" wants you to sign in with your "+signInAccounts[s.Type]+" account:")
	s.Address = lines[1]
	lines = lines[3:]
	if !strings.HasPrefix(lines[0], "URI: ") || lines[1] == "" {
		s.Statement, lines = lines[0], lines[1:]
		if s.Statement != "" {
			lines = lines[1:]
		}
	}
	for _, m := range []struct {
		name string
		into *string
	}{{"URI: ", &s.URI}, {"Version: ", &s.Version}, {"Chain ID: ", &s.ChainID}, {"Nonce: ", &s.Nonce},
		{"Issued At: ", &s.IssuedAt}, {"Expiration Time: ", &s.ExpirationTime},
		{"Not Before: ", &s.NotBefore}, {"Request ID: ", &s.RequestID}} {
		if len(lines) == 0 {
			break
		}
		if value, is := strings.CutPrefix(lines[0], m.name); is {
			*m.into, lines = value, lines[1:]
		}
	}
	s.ChainID = namespace + s.ChainID
	if len(lines) > 1 && lines[0] == "Resources:" {
		for _, line := range lines[1:] {
			s.Resources = append(s.Resources, strings.TrimPrefix(line, "- "))
		}
	}
	if same, err := s.Text(); err != nil || same != text {
		return SignIn{}, other
	}
	return s, nil
}
