// Package oauth verifies access tokens of the owner's authorization server: JWTs (RFC 9068) by the keys that
// the server publishes.
//
// What must stay true: a token is good only if it is signed with a key of the server that the owner's rules
// name, by an algorithm that belongs to that key, for the audience that the rules name, and for a day at
// most. No key, address or algorithm is taken out of a token. What a stranger's token costs is bounded: its
// size, one signature, and one fetch of the keys in a minute, whoever asks.
//
// Read in this order: oauth.go, token.go (what a token says), keys.go (the server's keys, kept), metadata.go
// (where they are published), jwk.go (one key).
package oauth

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Server is an authorization server as the owner's rules have it.
type Server struct {
	Issuer   string // what its tokens have as iss
	Audience string // what its tokens for this wallet have as aud
	KeysURL  string // where its keys are; "": where its metadata says
	// Proxy is what it is reached through where it is not on this machine, "http://…" or "socks5://…"; "":
	// nothing
	Proxy string
}

// Verifier verifies one server's tokens. It is safe for concurrent use.
type Verifier struct {
	Server
	keys *keys
	now  func() time.Time
}

// New makes a verifier. Nothing is fetched before the first token.
func New(s Server, log *slog.Logger) *Verifier {
	return &Verifier{Server: s, keys: newKeys(s, log), now: time.Now}
}

// methods are the algorithms that are taken: none with a shared secret, and no "none".
var methods = map[string]jwt.SigningMethod{
	"RS256": jwt.SigningMethodRS256, "PS256": jwt.SigningMethodPS256, "ES256": jwt.SigningMethodES256,
	"ES384": jwt.SigningMethodES384, "EdDSA": jwt.SigningMethodEdDSA,
}

var errSignature = errors.New("its signature is wrong")

// Verify says whose a token is (its sub) and until when it is good. The error is for the log, and repeats
// nothing of the token.
func (v *Verifier) Verify(ctx context.Context, token string) (subject string, until time.Time, err error) {
	t, err := parse(token)
	if err != nil {
		return "", time.Time{}, err
	}
	if err := t.isFor(v.Server, v.now()); err != nil {
		return "", time.Time{}, err
	}
	key, err := v.keys.find(ctx, t.header.Kid, v.now())
	if err != nil {
		return "", time.Time{}, err
	}
	if !key.isFor(t.header.Alg) {
		return "", time.Time{}, errors.New("its algorithm is not its key's")
	}
	if methods[t.header.Alg].Verify(t.signed, t.signature, key.public) != nil {
		return "", time.Time{}, errSignature
	}
	return t.claims.Sub, t.claims.Exp.time(), nil
}
