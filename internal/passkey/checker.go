package passkey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"x402-wallet/internal/passkey/internal/answers"

	"github.com/go-webauthn/webauthn/protocol"
)

// Checker asks questions of passkeys, and takes each answer once. Questions take no memory, so nobody can use
// them up: a challenge carries its own end, and a MAC over what it is about by a key of this Checker alone.
// So it is good for nothing else, and for nothing after the process has ended.
type Checker struct {
	Now func() time.Time // set before its first use

	begun time.Time
	key   []byte

	mu     sync.Mutex
	used   map[string]time.Duration // random part of a challenge that was answered → its end
	counts map[string]int64         // by credential: of its newest answer
}

// NewChecker is a Checker by the system's clock.
func NewChecker() *Checker {
	c := &Checker{Now: time.Now, begun: time.Now(), key: make([]byte, sha256.Size),
		used: map[string]time.Duration{}, counts: map[string]int64{}}
	rand.Read(c.key) // never fails (crypto/rand)
	return c
}

// About is what a question is about: everything that its answer is to be good for.
func About(parts ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// A challenge is random bytes, its end in milliseconds since the Checker began, and the MAC.
const (
	randomLength    = 32
	challengeLength = randomLength + 8 + sha256.Size
)

// maxUsed bounds the answered questions that are remembered: each took a person's finger.
const maxUsed = 10_000

// Challenge is a question about something, as bytes for a passkey to sign.
func (c *Checker) Challenge(about [sha256.Size]byte) []byte {
	challenge := make([]byte, randomLength, challengeLength)
	rand.Read(challenge)
	end := (c.Now().Sub(c.begun) + Life).Milliseconds()
	challenge = binary.BigEndian.AppendUint64(challenge, uint64(end))
	return append(challenge, c.mac(challenge, about)...)
}

func (c *Checker) mac(begin []byte, about [sha256.Size]byte) []byte {
	mac := hmac.New(sha256.New, c.key)
	mac.Write(begin)
	mac.Write(about[:])
	return mac.Sum(nil)
}

// ErrExpired is an answer that came too late.
var ErrExpired = errors.New("the question was asked too long ago")

// asked refuses a challenge that is none of ours about this, or over.
func (c *Checker) asked(challenge []byte, about [sha256.Size]byte) (end time.Duration, err error) {
	if len(challenge) != challengeLength {
		return 0, errors.New("it answers no question of this process")
	}
	begin, mac := challenge[:randomLength+8], challenge[randomLength+8:]
	if !hmac.Equal(mac, c.mac(begin, about)) {
		return 0, errors.New("it answers another question")
	}
	end = time.Duration(binary.BigEndian.Uint64(begin[randomLength:])) * time.Millisecond
	if c.Now().Sub(c.begun) >= end {
		return 0, ErrExpired
	}
	return end, nil
}

// RequestOptions is PublicKeyCredentialRequestOptionsJSON, by which a browser asks a passkey of an origin.
// It names no credential: whoever has a passkey's page learns nothing of which there are.
func RequestOptions(origin string, challenge []byte) ([]byte, error) {
	rpID, err := RPID(origin)
	if err != nil {
		return nil, err
	}
	return json.Marshal(protocol.PublicKeyCredentialRequestOptions{Challenge: challenge, RelyingPartyID: rpID,
		UserVerification: protocol.VerificationRequired, Timeout: int(Life.Milliseconds())})
}

// Check is the name of the passkey of keys which answered a question about this (WebAuthn §7.2). The same
// answer is good once. The error is for the log; ErrExpired may be told.
func (c *Checker) Check(keys map[string]Key, about [sha256.Size]byte, answer []byte) (name string,
	err error) {
	if err := answers.CheckSize(answer); err != nil {
		return "", err
	}
	given, err := protocol.ParseCredentialRequestResponseBytes(answer)
	if err != nil {
		return "", answers.WithReason(err)
	}
	challenge, err := answers.Decode(given.Response.CollectedClientData.Challenge)
	if err != nil {
		return "", errors.New("its challenge cannot be read")
	}
	end, err := c.asked(challenge, about)
	if err != nil {
		return "", err
	}
	name, key, known := find(keys, given.ID)
	if !known {
		return "", errors.New("the rules have no such passkey")
	}
	if err := key.verify(given); err != nil {
		return "", fmt.Errorf("the passkey %s: %w", name, err)
	}
	count := int64(given.Response.AuthenticatorData.Counter)
	if err := c.once(string(challenge[:randomLength]), end, key, count); err != nil {
		return "", fmt.Errorf("the passkey %s: %w", name, err)
	}
	return name, nil
}

func find(keys map[string]Key, id string) (name string, k Key, known bool) {
	for name, k := range keys {
		if k.ID == id {
			return name, k, true
		}
	}
	return "", Key{}, false
}

// verify checks that this passkey signed, at its own origin, and verified its person. Its challenge was
// checked by asked.
func (k Key) verify(given *protocol.ParsedCredentialAssertionData) error {
	client := given.Response.CollectedClientData
	if err := answers.CheckStricter(client, given.Response.AuthenticatorData, k.Origin); err != nil {
		return err
	}
	rpID, err := RPID(k.Origin)
	if err != nil {
		return err
	}
	public, err := answers.Decode(k.PublicKey)
	if err != nil {
		return errors.New("its public key cannot be read")
	}
	if err := answers.CheckKey(public); err != nil {
		return fmt.Errorf("its public key: %w", err)
	}
	err = given.Verify(client.Challenge, rpID, "", []string{k.Origin}, nil, nil, answers.TopOrigins,
		answers.AllowFrame, answers.Verified, answers.Present, public, protocol.SignaturePolicy{})
	return answers.WithReason(err)
}

// ErrCloned is a counter that did not go on: two authenticators have the same key. Most count nothing.
var ErrCloned = errors.New("its signature counter went back: another authenticator may have a copy of it")

// once takes a good answer, the first time. What the counter was before this process is what the rules say.
func (c *Checker) once(random string, end time.Duration, k Key, count int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now().Sub(c.begun)
	for old, over := range c.used {
		if over <= now {
			delete(c.used, old)
		}
	}
	if _, again := c.used[random]; again {
		return errors.New("this answer was given already")
	}
	if len(c.used) >= maxUsed {
		return errors.New("too many answers within minutes")
	}
	last, met := c.counts[k.ID]
	if !met {
		last = k.Count
	}
	if (last != 0 || count != 0) && count <= last {
		return ErrCloned
	}
	c.used[random], c.counts[k.ID] = end, count
	return nil
}
