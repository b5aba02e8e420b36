// Package fleet has what the owner of a fleet signs, and checks it: the rules for all its wallets (the
// bundle), each yes, lift, session and enrolment; and the file that a machine joins by. It knows nothing of
// where these are kept.
//
// What must stay true: nothing is believed that the owner's key did not sign for this ledger and this
// purpose, to the byte; of an enrolment, that key or one that the owner's newest bundle names for
// such agents. Machines hold the public key only, so that none of them can make any of it.
//
// The files: statement.go (bytes, signatures, and what is wrong with them), bundle.go, grant.go
// (approvals, lifts, sessions), enrolment.go, join.go.
//
// # Bytes
//
// A statement is one JSON object in UTF-8: its members in the order of the Go struct, no space, what is
// empty left out where the field says omitempty or omitzero, maps by their keys, times as RFC 3339 in UTC
// with whole seconds, strings escaped as encoding/json does without HTML escaping. There is one spelling,
// and any other is refused. The bytes are signed, hashed (SHA-256) and kept as they are; what is signed is
// "x402-wallet fleet <purpose> v1\n" and the statement, by Ed25519. testdata/golden.json has one of each.
package fleet

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"x402-wallet/wallet"
)

// Key is a public Ed25519 key, as text "ed25519:" and its base64url.
type Key [ed25519.PublicKeySize]byte

const keyPrefix = "ed25519:"

var errKey = errors.New(`a key is written "ed25519:" and base64url of 32 bytes`)

// ParseKey reads a key in its one spelling.
func ParseKey(text string) (key Key, err error) {
	coded, found := strings.CutPrefix(text, keyPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	if !found || err != nil || len(raw) != len(key) || strings.ContainsAny(coded, "\r\n") {
		return key, errKey
	}
	return Key(raw), nil
}

// String is the key as ParseKey takes it.
func (k Key) String() string { return keyPrefix + base64.RawURLEncoding.EncodeToString(k[:]) }

// MarshalText is String.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is ParseKey.
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKey(string(text))
	return err
}

// Hash is SHA-256 of a statement's bytes, or of a quote; in hexadecimal as text.
type Hash [sha256.Size]byte

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText is String.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads 64 hex digits in small letters.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) || strings.ToLower(string(text)) != string(text) {
		return errors.New("a hash is 64 hex digits in small letters")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Signer signs statements: a wallet.OwnerKey, or an OrchestratorKey.
type Signer interface {
	Public() ed25519.PublicKey
	Sign(purpose wallet.Purpose, statement []byte) ([]byte, error)
}

// Signed is a statement and its signature, as they are kept.
type Signed struct {
	Statement []byte `json:"statement"`
	Signature []byte `json:"signature"`
}

// Hash is that of the statement.
func (s Signed) Hash() Hash { return sha256.Sum256(s.Statement) }

// Anchor is what a machine believes without being told by the ledger.
type Anchor struct {
	Owner  Key
	Ledger string // its id
}

// PurposeAnchor is what a keystore's seal over an anchor's Bytes is for: its owner's word that it pays in
// this fleet. Without it, whoever can write a join.json into a home would choose who makes the rules there.
const PurposeAnchor = "x402-wallet fleet anchor v1"

// SealFile is where a home keeps its keystore's seal over the anchor, in hexadecimal, where its join.json has
// not the right one.
const SealFile = "join.seal"

// Bytes are the owner's key ‖ the ledger's id.
func (a Anchor) Bytes() []byte { return append(a.Owner[:len(a.Owner):len(a.Owner)], a.Ledger...) }

// Head is what every statement begins with.
type Head struct {
	Format int    `json:"format"` // 1
	By     Key    `json:"by"`     // whoever signed it
	Ledger string `json:"ledger"` // the id of the ledger that it is for
}

// Once is what a statement has that is good for one use.
type Once struct {
	Number  string    `json:"number"` // 128 random bits in hexadecimal; the ledger takes each number once
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"` // it is not taken after this; what was taken stays
}
