package fleet

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"x402-wallet/budget"
	"x402-wallet/internal/pattern"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// Fault is what is wrong with a statement, as the "fault" of an error's details.
type Fault string

// The faults.
const (
	TooLarge      Fault = "too-large"
	Changed       Fault = "changed"        // the signature is not over these bytes
	AnotherOwner  Fault = "another-owner"  // signed by a key that is not believed here
	AnotherLedger Fault = "another-ledger" //
	Unreadable    Fault = "unreadable"     // signed, but no statement that this program knows
	Older         Fault = "older"          // than one that was met
	ChainBroken   Fault = "chain-broken"   // does not follow the one that was met
	NotYet        Fault = "not-yet"        // valid
	Expired       Fault = "expired"
	Outside       Fault = "outside" // what whoever signed it may enrol
)

// Error is the fault's name, for errors.Is.
func (f Fault) Error() string { return string(f) }

// kind is what all statements of a purpose have in common.
type kind struct {
	purpose wallet.Purpose
	name    string
	max     int // bytes
	code    x402.Code
	hint    string // what the owner does
	command []string
}

const maxSmall = 16 << 10 // of what is no bundle: a URL of 8 KiB and the rest

var (
	kindBundle = kind{wallet.FleetBundle, "the owner's bundle of rules", wallet.MaxStatement,
		x402.PolicyUnsealed, "the owner seals the rules anew, on their own machine: x402-wallet policy " +
			"seal --fleet; nothing is paid until then", []string{"policy", "seal", "--fleet"}}
	kindApproval = kind{wallet.FleetApproval, "the owner's approval", maxSmall, x402.ApprovalRequired,
		"the owner gives it again, if they mean to: x402-wallet approvals", []string{"approvals"}}
	kindLift = kind{wallet.FleetLift, "the owner's lift of the freeze", maxSmall, x402.WalletFrozen,
		"the owner lifts it again, on their own machine: x402-wallet unfreeze", []string{"unfreeze"}}
	kindSession = kind{wallet.FleetSession, "the owner's new session", maxSmall, x402.PolicyUnsealed,
		"the owner begins it again, on their own machine: x402-wallet session new",
		[]string{"session", "new"}}
	kindEnrolment = kind{wallet.FleetEnrolment, "the enrolment", maxSmall, x402.PolicyUnsealed,
		"the owner enrols the agent anew, on their own machine: x402-wallet agents enroll",
		[]string{"help", "agents", "enroll"}}
)

// refuse is the error for a statement of a kind.
func (k kind) refuse(fault Fault, format string, args ...any) *x402.Error {
	e := x402.Errorf(k.code, "%s %s", k.name, fmt.Sprintf(format, args...)).
		WithDetail("fault", string(fault)).WithHint("%s", k.hint).
		WithCommand(x402.Command(k.command...), "")
	e.Err = fault
	return e
}

// statement is a struct that is one.
type statement interface {
	head() Head
	check() error // what its members have to be, besides its head
}

// sign makes and signs the one spelling of s, which it reads again before it lets go of it.
func sign[S statement](k kind, s S, by Signer) (Signed, error) {
	if s.head().By != Key(by.Public()) {
		return Signed{}, k.refuse(AnotherOwner, "names another key than the one that would sign it")
	}
	data, err := encode(s)
	if err != nil {
		return Signed{}, err
	}
	if _, err := read[S](k, data); err != nil {
		return Signed{}, err
	}
	sig, err := by.Sign(k.purpose, data)
	return Signed{Statement: data, Signature: sig}, err
}

// encode is the one spelling of a statement.
func encode(s statement) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(s)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// read reads a statement that is signed, or is about to be. Only its one spelling is taken, so that whatever
// reads it reads the same: no member twice, unknown or in other letters.
func read[S statement](k kind, data []byte) (s S, err error) {
	if len(data) > k.max {
		return s, k.refuse(TooLarge, "has %d bytes; at most %d are read", len(data), k.max)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, k.refuse(Unreadable, "is not one that this program can read")
	}
	again, err := encode(s)
	if err != nil || !bytes.Equal(again, data) {
		return s, k.refuse(Unreadable, "is not written as this program writes it")
	}
	if h := s.head(); h.Format != format {
		return s, k.refuse(Unreadable, "is of format %d; this program reads format %d", h.Format, format)
	}
	if err := cmp.Or(checkText("ledger", s.head().Ledger, maxName), s.check()); err != nil {
		return s, k.refuse(Unreadable, "cannot be: %v", err)
	}
	return s, nil
}

// format is that of all statements.
const format = 1

// authentic reads a statement that owner, or a key of others, signed for a ledger.
func authentic[S statement](k kind, signed Signed, a Anchor, others ...Key) (s S, err error) {
	if len(signed.Statement) > k.max {
		return s, k.refuse(TooLarge, "has %d bytes; at most %d are read", len(signed.Statement), k.max)
	}
	message := k.purpose.Message(signed.Statement)
	for _, key := range append([]Key{a.Owner}, others...) {
		if !ed25519.Verify(key[:], message, signed.Signature) {
			continue
		}
		s, err := read[S](k, signed.Statement)
		switch {
		case err != nil:
			return s, err
		case s.head().By != key:
			return s, k.refuse(AnotherOwner, "names another key than the one that signed it")
		case s.head().Ledger != a.Ledger:
			return s, k.refuse(AnotherLedger, "is for another ledger, %s", x402.Quote(s.head().Ledger))
		}
		return s, nil
	}
	// Nothing of it is believed; what it says of itself tells two mistakes apart.
	s, err = read[S](k, signed.Statement)
	by := s.head().By
	if err == nil && by != a.Owner && ed25519.Verify(by[:], message, signed.Signature) {
		return s, k.refuse(AnotherOwner, "is signed by %s, which is not the key of this fleet's owner", by)
	}
	return s, k.refuse(Changed, "is not what the owner signed")
}

// inTime says whether a statement is valid at a time, with the tolerance that clocks have.
func (k kind) inTime(from, to, now time.Time) error {
	if early := now.Add(budget.ClockTolerance); early.Before(from) {
		e := k.refuse(NotYet, "is not valid before %s", from.Format(time.RFC3339))
		e.FixedBy = x402.ByTime
		return e.WaitUntil(from, "it is valid then")
	}
	if now.Add(-budget.ClockTolerance).After(to) {
		return k.refuse(Expired, "was valid up to %s", to.Format(time.RFC3339))
	}
	return nil
}

// Bounds of what is in statements.
const (
	maxName   = 128
	maxURL    = 8 << 10
	maxLabels = 16
	maxLabel  = 100
	maxGrant  = 31 * 24 * time.Hour // how long what is used once may wait for its use
)

// MaxLife is how long a bundle or an enrolment holds at most: a year, and some weeks to renew it.
const MaxLife = 400 * 24 * time.Hour

var (
	nameForm    = pattern.Lazy(`^[a-z][a-z0-9_-]{0,39}$`)
	patternForm = pattern.Lazy(`^[a-z][a-z0-9_-]{0,38}\*$`)
	numberForm  = pattern.Lazy(`^[0-9a-f]{32}$`)
)

// IsName reports whether a text is the name of an agent or a team.
func IsName(text string) bool { return nameForm().MatchString(text) }

// IsPattern reports whether a text is a pattern of agents' names: the beginning of names, and "*".
func IsPattern(text string) bool { return patternForm().MatchString(text) }

// covers reports whether a name or pattern means nobody whom another one does not.
func covers(pattern, name string) bool {
	begin, isPattern := strings.CutSuffix(pattern, "*")
	return pattern == name || (isPattern && strings.HasPrefix(name, begin))
}

// checkText refuses what is too long, empty, or would not show as it is.
func checkText(what, text string, most int) error {
	if text == "" {
		return fmt.Errorf("its %s is empty", what)
	}
	return checkOptional(what, text, most)
}

func checkOptional(what, text string, most int) error {
	unseen := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if len(text) > most || strings.ContainsFunc(text, unseen) {
		return fmt.Errorf("its %s is longer than %d bytes, or has characters that do not show", what, most)
	}
	return nil
}

func checkSpan(from, to time.Time, most time.Duration) error {
	if from.IsZero() || !from.Before(to) || to.Sub(from) > most {
		return fmt.Errorf("it is valid from a time to no later one, or for longer than %v", most)
	}
	for _, t := range []time.Time{from, to} {
		if t.Location() != time.UTC || t.Nanosecond() != 0 {
			return errors.New("a time of it is not in UTC and whole seconds")
		}
	}
	return nil
}

func (o Once) check() error {
	if !numberForm().MatchString(o.Number) {
		return errors.New("its number is not 32 hex digits in small letters")
	}
	return checkSpan(o.Made, o.Expires, maxGrant)
}

// NewOnce is a number that was never used, and the time in which it is.
func NewOnce(now time.Time, life time.Duration) Once {
	return Once{Number: newNumber(), Made: seconds(now), Expires: seconds(now.Add(life))}
}

func newNumber() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return hex.EncodeToString(random[:])
}

// seconds is a time as statements have it.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("it has more than %d labels", maxLabels)
	}
	for name, value := range labels {
		if !IsName(name) {
			return errors.New("a label's name is 1 to 40 of a-z, 0-9, - and _, and begins with a letter")
		}
		if err := checkText("label "+name, value, maxLabel); err != nil {
			return err
		}
	}
	return nil
}

// isSignedBy reports whether a key signed an enrolment.
func isSignedBy(key Key, signed Signed) bool {
	return ed25519.Verify(key[:], kindEnrolment.purpose.Message(signed.Statement), signed.Signature)
}
