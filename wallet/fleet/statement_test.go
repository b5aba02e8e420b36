package fleet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// anyKind is one kind of statement, by what it is checked with.
type anyKind struct {
	purpose wallet.Purpose
	code    x402.Code
	valid   time.Time
	verify  func(a Anchor, s Signed, at time.Time) error
	resign  func(t *testing.T, s Signed, edit func(map[string]any), by Signer) Signed
}

// kinds are all of them. The enrolment's orchestrator is believed as far as its bundle says.
func kinds(t testing.TB) []anyKind {
	g, a := golden(t)
	b, err := a.VerifyBundle(g.Signed["bundle"].Signed, Seen{}, noon)
	require.NoError(t, err)
	return []anyKind{
		{"bundle", x402.PolicyUnsealed, noon, func(a Anchor, s Signed, at time.Time) error {
			_, err := a.VerifyBundle(s, Seen{}, at)
			return err
		}, resign[Bundle]},
		{"approval", x402.ApprovalRequired, noon, func(a Anchor, s Signed, at time.Time) error {
			_, err := a.VerifyApproval(s, at)
			return err
		}, resign[Approval]},
		{"lift", x402.WalletFrozen, noon, func(a Anchor, s Signed, at time.Time) error {
			_, err := a.VerifyLift(s, at)
			return err
		}, resign[Lift]},
		{"session", x402.PolicyUnsealed, noon, func(a Anchor, s Signed, at time.Time) error {
			_, err := a.VerifySession(s, at)
			return err
		}, resign[Session]},
		{"enrolment", x402.PolicyUnsealed, noon, func(a Anchor, s Signed, at time.Time) error {
			_, err := a.VerifyEnrolment(s, b, nil, at)
			return err
		}, resign[Enrolment]},
	}
}

// resign changes members of a statement and signs it again, as whoever has the key could.
func resign[S statement](t *testing.T, signed Signed, edit func(map[string]any), by Signer) Signed {
	var members map[string]any
	require.NoError(t, json.Unmarshal(signed.Statement, &members))
	members["by"] = Key(by.Public()).String()
	edit(members)
	text, err := json.Marshal(members)
	require.NoError(t, err)
	var s S
	require.NoError(t, json.Unmarshal(text, &s))
	return signedRaw(t, signed, s, by)
}

// inNameOf signs with one key and names another.
type inNameOf struct {
	by   Signer
	name testKey
}

func (i inNameOf) Public() ed25519.PublicKey { return i.name.Public() }

func (i inNameOf) Sign(purpose wallet.Purpose, statement []byte) ([]byte, error) {
	return i.by.Sign(purpose, statement)
}

// signedRaw signs a statement without looking at it.
func signedRaw(t *testing.T, like Signed, s statement, by Signer) Signed {
	data, err := encode(s)
	require.NoError(t, err)
	return signedBytes(t, purposeOf(t, like), data, by)
}

func signedBytes(t *testing.T, purpose wallet.Purpose, data []byte, by Signer) Signed {
	sig, err := by.Sign(purpose, data)
	require.NoError(t, err)
	return Signed{Statement: data, Signature: sig}
}

func purposeOf(t *testing.T, s Signed) wallet.Purpose {
	g, _ := golden(t)
	for purpose, other := range g.Signed {
		if bytes.Equal(other.Statement, s.Statement) {
			return purpose
		}
	}
	t.Fatal("no golden statement")
	return ""
}

// What another program made is what this one reads, writes, signs and hashes, to the byte.
func TestGolden(t *testing.T) {
	g, a := golden(t)
	require.Len(t, g.Signed, 5)
	for _, k := range kinds(t) {
		t.Run(string(k.purpose), func(t *testing.T) {
			s := g.Signed[k.purpose]
			require.NoError(t, k.verify(a, s.Signed, k.valid))
			require.Equal(t, s.Hash, s.Signed.Hash())
			seed := ownerSeed
			if k.purpose == wallet.FleetEnrolment {
				seed = orchestratorSeed
			}
			again := k.resign(t, s.Signed, func(map[string]any) {}, keyOf(t, seed))
			require.Equal(t, string(s.Statement), string(again.Statement))
			require.Equal(t, s.Signature, again.Signature)
		})
	}
	b, err := a.VerifyBundle(g.Signed["bundle"].Signed, Seen{}, noon)
	require.NoError(t, err)
	require.Equal(t, "[budget]\nday = \"5.00\" # <ä> & \u2028\t'\\'\n", b.Config)
	again, err := sign(kindBundle, b, keyOf(t, ownerSeed))
	require.NoError(t, err)
	require.Equal(t, g.Signed["bundle"].Signed, again)
}

// Every kind of statement, each with everything that can be wrong with it, and its fault.
func TestHostileStatements(t *testing.T) {
	g, a := golden(t)
	owner, stranger := keyOf(t, ownerSeed), keyOf(t, strings.Repeat("07", 32))
	all := kinds(t)
	for i, k := range all {
		good := g.Signed[k.purpose].Signed
		by := owner
		if k.purpose == wallet.FleetEnrolment {
			by = keyOf(t, orchestratorSeed)
		}
		edited := func(name string, value any) Signed {
			return k.resign(t, good, func(m map[string]any) { m[name] = value }, by)
		}
		text := func(from, to string) Signed {
			changed := strings.Replace(string(good.Statement), from, to, 1)
			require.NotEqual(t, string(good.Statement), changed)
			return signedBytes(t, k.purpose, []byte(changed), by)
		}
		other := all[(i+1)%len(all)]
		for name, row := range map[string]struct {
			signed Signed
			fault  Fault
		}{
			"nothing":           {Signed{}, Changed},
			"no signature":      {Signed{Statement: good.Statement}, Changed},
			"a short signature": {Signed{good.Statement, good.Signature[:63]}, Changed},
			"a longer signature": {Signed{good.Statement, slices.Concat(good.Signature, []byte{0})},
				Changed},
			"another's signature": {Signed{good.Statement, g.Signed[other.purpose].Signature}, Changed},
			"of another purpose":  {signedBytes(t, other.purpose, good.Statement, by), Changed},
			"without a purpose": {Signed{good.Statement, ed25519.Sign(ed25519.PrivateKey(by),
				good.Statement)}, Changed},
			"another owner":        {k.resign(t, good, func(map[string]any) {}, stranger), AnotherOwner},
			"in another's name":    {signedBytes(t, k.purpose, good.Statement, stranger), Changed},
			"another ledger":       {edited("ledger", "OTHER"), AnotherLedger},
			"an empty ledger":      {edited("ledger", ""), Unreadable},
			"of the future":        {edited("format", 2), Unreadable},
			"format 0":             {edited("format", 0), Unreadable},
			"of another key by us": {text(`"by":"ed25519:`, `"by":"ed25519:AAAA`), Unreadable},
			"in another's name by us": {k.resign(t, good, func(map[string]any) {}, inNameOf{by, stranger}),
				AnotherOwner},
			"too large, unsigned": {Signed{Statement: make([]byte, wallet.MaxStatement+1)}, TooLarge},
			"a member more":       {text(`{"format":1,`, `{"format":1,"more":1,`), Unreadable},
			"a member twice":      {text(`{"format":1,`, `{"format":1,"format":1,`), Unreadable},
			"a case twin":         {text(`"ledger":`, `"Ledger":`), Unreadable},
			"a space":             {text(`{"format":1,`, `{"format": 1,`), Unreadable},
			"another order": {text(`{"format":1,"by":"`+Key(by.Public()).String()+`",`,
				`{"by":"`+Key(by.Public()).String()+`","format":1,`), Unreadable},
			"a number otherwise": {text(`"format":1`, `"format":1.0`), Unreadable},
			"a time otherwise":   {text(`2026-11-26T12:00:00Z`, `2026-11-26T12:00:00+00:00`), Unreadable},
			"a time by parts":    {text(`2026-11-26T12:00:00Z`, `2026-11-26T12:00:00.5Z`), Unreadable},
			"an escape":          {text(`LEDGER7`, `\u004cEDGER7`), Unreadable},
			"a line more": {signedBytes(t, k.purpose, slices.Concat(good.Statement, []byte("\n")), by),
				Unreadable},
			"no JSON": {signedBytes(t, k.purpose, []byte("{"), by), Unreadable},
			"null":    {signedBytes(t, k.purpose, []byte("null"), by), Unreadable},
			"a list":  {signedBytes(t, k.purpose, []byte("[]"), by), Unreadable},
			"too large": {signedBytes(t, k.purpose, bytes.Repeat([]byte("["), wallet.MaxStatement+1), by),
				TooLarge},
		} {
			t.Run(fmt.Sprintf("%s, %s", k.purpose, name), func(t *testing.T) {
				requireFault(t, k.verify(a, row.signed, k.valid), k.code, row.fault)
			})
		}
	}
}

// No byte of a statement or its signature can be another.
func TestEveryByteCounts(t *testing.T) {
	g, a := golden(t)
	for _, k := range kinds(t) {
		good := g.Signed[k.purpose].Signed
		for i := range good.Statement {
			bad := Signed{bytes.Clone(good.Statement), good.Signature}
			bad.Statement[i] ^= 1
			require.ErrorIs(t, k.verify(a, bad, k.valid), Changed, "%s, byte %d", k.purpose, i)
		}
		for i := range good.Signature {
			bad := Signed{good.Statement, bytes.Clone(good.Signature)}
			bad.Signature[i] ^= 1
			require.ErrorIs(t, k.verify(a, bad, k.valid), Changed, "%s, signature's byte %d", k.purpose, i)
		}
	}
}

// Up to the tolerance of clocks at either end, and not a second more.
func TestTimes(t *testing.T) {
	g, a := golden(t)
	ends := map[wallet.Purpose]time.Time{"bundle": time.Date(2026, 12, 26, 12, 0, 0, 0, time.UTC),
		"approval": noon.Add(10 * time.Minute), "lift": noon.Add(10 * time.Minute),
		"session": noon.Add(10 * time.Minute), "enrolment": time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, k := range kinds(t) {
		s, end := g.Signed[k.purpose].Signed, ends[k.purpose]
		require.NoError(t, k.verify(a, s, noon.Add(-budget.ClockTolerance)), k.purpose)
		e := requireFault(t, k.verify(a, s, noon.Add(-budget.ClockTolerance-time.Second)), k.code, NotYet)
		require.Equal(t, x402.ByTime, e.FixableBy())
		require.Equal(t, x402.Wait, e.NextStep().Do)
		require.NoError(t, k.verify(a, s, end.Add(budget.ClockTolerance)), k.purpose)
		requireFault(t, k.verify(a, s, end.Add(budget.ClockTolerance+time.Second)), k.code, Expired)
	}
}

func TestKeys(t *testing.T) {
	g, _ := golden(t)
	text := g.Owner.String()
	again, err := ParseKey(text)
	require.NoError(t, err)
	require.Equal(t, g.Owner, again)
	for _, bad := range []string{"", "ed25519:", text[:len(text)-1], text + "A", text + "=", " " + text,
		strings.TrimPrefix(text, "ed25519:"), strings.Replace(text, "ed", "Ed", 1),
		text[:20] + "\n" + text[20:], text[:len(text)-1] + "B"} { // its last bits are not zero
		_, err := ParseKey(bad)
		require.ErrorIs(t, err, errKey, "%q", bad)
	}
	var h Hash
	for _, bad := range []string{"", strings.Repeat("0", 63), strings.Repeat("0", 65),
		strings.Repeat("A", 64), strings.Repeat("g", 64)} {
		require.Error(t, h.UnmarshalText([]byte(bad)), bad)
	}
}

// A statement is not signed in another's name, and none that nobody would take.
func TestSignRefuses(t *testing.T) {
	_, a := golden(t)
	owner, stranger := keyOf(t, ownerSeed), keyOf(t, strings.Repeat("07", 32))
	lift := Lift{Head: a.NewHead(), UpTo: 1, Once: NewOnce(noon, time.Minute)}
	_, err := lift.Sign(owner)
	require.NoError(t, err)
	_, err = lift.Sign(stranger)
	require.ErrorIs(t, err, AnotherOwner)
	for name, edit := range map[string]func(*Lift){
		"nothing":             func(l *Lift) { l.UpTo = 0 },
		"no number":           func(l *Lift) { l.Number = "" },
		"for too long":        func(l *Lift) { l.Expires = l.Made.Add(maxGrant + time.Second) },
		"for no time":         func(l *Lift) { l.Expires = l.Made },
		"from no time":        func(l *Lift) { l.Made = time.Time{} },
		"parts of a second":   func(l *Lift) { l.Made = l.Made.Add(time.Millisecond) },
		"an unseen character": func(l *Lift) { l.Ledger = "A\u202eB" },
	} {
		bad := lift
		edit(&bad)
		_, err := bad.Sign(owner)
		require.ErrorIs(t, err, Unreadable, name)
	}
	require.NotEqual(t, NewOnce(noon, time.Minute).Number, NewOnce(noon, time.Minute).Number)
}
