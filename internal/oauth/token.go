package oauth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
)

const (
	// maxToken bounds a token, in bytes: those of servers that put a user's groups into them have some 4 KiB.
	maxToken = 8 << 10
	// leeway is how far ahead the server's clock may be.
	leeway = time.Minute
	// maxLife is the longest that a token may be good.
	maxLife = 24 * time.Hour
)

// token is a JWT, taken apart and not verified.
type token struct {
	header    header
	claims    claims
	signed    string
	signature []byte
}

// header is of a token's header what is read. jwk, jku, x5c and x5u are not: they name a key that the token's
// maker chose.
type header struct {
	Alg  string          `json:"alg"`
	Kid  string          `json:"kid"`
	Typ  string          `json:"typ"`
	Crit json.RawMessage `json:"crit"`
}

// claims are of a token's claims those that are read. AtHash, CHash and Events are those of ID and logout
// tokens; Cnf binds a token to a key that its bearer has to show (DPoP, mutual TLS).
type claims struct {
	Iss    string          `json:"iss"`
	Sub    string          `json:"sub"`
	Aud    audience        `json:"aud"`
	Exp    seconds         `json:"exp"`
	Iat    seconds         `json:"iat"`
	Nbf    seconds         `json:"nbf"`
	AtHash json.RawMessage `json:"at_hash"`
	CHash  json.RawMessage `json:"c_hash"`
	Events json.RawMessage `json:"events"`
	Cnf    json.RawMessage `json:"cnf"`
}

// audience is one text or a list of them.
type audience []string

func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	var list []string
	err := json.Unmarshal(text, &list)
	*a = list
	return err
}

// seconds is a time as JWTs have it; 0: none.
type seconds float64

// maxSeconds is a time that no clock shows, and that a time.Time can have.
const maxSeconds = 1e11

func (s seconds) isTime() bool { return s > 0 && s < maxSeconds }

func (s seconds) time() time.Time { return time.Unix(int64(s), 0) }

var errForm = errors.New("it is no signed JWT")

// parse takes a token apart. It looks at no key, and reads JSON that has one meaning only.
func parse(text string) (t token, err error) {
	if len(text) > maxToken {
		return t, errors.New("it is too long")
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return t, errForm
	}
	for i, into := range []any{&t.header, &t.claims} {
		document, err := unbase64(parts[i])
		if err != nil || x402.DecodeStrict(document, maxToken, into) != nil {
			return t, errForm
		}
	}
	t.signed = text[:len(parts[0])+1+len(parts[1])]
	t.signature, err = unbase64(parts[2])
	if err != nil {
		return t, errForm
	}
	return t, nil
}

// unbase64 decodes base64url in its one spelling.
func unbase64(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") { // which the decoder would skip
		return nil, errForm
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}

// isFor says why a token is not one of this server's for this wallet, at this time.
func (t *token) isFor(s Server, now time.Time) error {
	c := &t.claims
	_, taken := methods[t.header.Alg]
	switch {
	case !taken:
		return errors.New("its algorithm is not taken")
	case t.header.Crit != nil:
		return errors.New("it has critical extensions")
	case !isAccessToken(t.header.Typ) || c.AtHash != nil || c.CHash != nil || c.Events != nil:
		return errors.New("it is no access token")
	case c.Cnf != nil:
		return errors.New("it is bound to a key, which is not looked at here")
	case c.Iss != s.Issuer:
		return errors.New("its issuer is another")
	case !slices.Contains(c.Aud, s.Audience):
		return errors.New("it is for somebody else")
	case c.Sub == "":
		return errors.New("it has no subject")
	case !c.Exp.isTime() || !c.Iat.isTime() || (c.Nbf != 0 && !c.Nbf.isTime()):
		return errors.New("it does not say from when to when it is good")
	case !now.Before(c.Exp.time()):
		return errors.New("it has expired")
	case c.Iat.time().After(now.Add(leeway)) || c.Nbf.time().After(now.Add(leeway)):
		return errors.New("it is not good yet")
	case c.Exp.time().Sub(c.Iat.time()) > maxLife:
		return errors.New("it is good for longer than a day")
	}
	return nil
}

// isAccessToken reports whether a header's typ is that of an access token, or says nothing about it.
func isAccessToken(typ string) bool {
	switch strings.ToLower(strings.TrimPrefix(typ, "application/")) {
	case "", "jwt", "at+jwt":
		return true
	}
	return false
}
