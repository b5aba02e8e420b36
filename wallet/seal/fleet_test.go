package seal

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/internal/pgtest"
	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
	"x402-wallet/x402"
)

// ownerKey signs as the owner's keystore does.
type ownerKey ed25519.PrivateKey

func (k ownerKey) Public() ed25519.PublicKey {
	return ed25519.PrivateKey(k).Public().(ed25519.PublicKey)
}

func (k ownerKey) Sign(purpose wallet.Purpose, statement []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), purpose.Message(statement)), nil
}

// signedFleet is a fleet's ledger with an owner who signs its rules, and a machine of it.
type signedFleet struct {
	*Guard // of the machine

	t      *testing.T
	url    string
	owner  ownerKey
	now    time.Time
	bundle fleet.Bundle // the newest; the zero value: none yet
	signed fleet.Signed // the newest
	home   error        // what the machine's enrolment says
	asked  []int64      // versions of the bundles for which it was asked
	rules  budget.Rules // that the ledger keeps windows by
}

const fleetRules = "[budget]\nday = '%s'\n[ledger]\nurl = 'postgres://owner@localhost/x402'\n" +
	"replication = 'none'\nkeys = 'shared'\n"

func newSignedFleet(t *testing.T) *signedFleet {
	t.Helper()
	at := history.Fleet{URL: pgtest.Shared(t).Database(t), Writer: "home_a"}
	id, err := history.CreateFleet(t.Context(), at)
	require.NoError(t, err)
	store, err := history.OpenFleet(at, history.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	f := &signedFleet{t: t, url: at.URL, owner: ownerKey(ed25519.NewKeyFromSeed(make([]byte, 32))),
		now: time.Now(), rules: budget.Rules{Day: 1 << 40, Month: 1 << 40}}
	machine, anchor := key("the machine's"), fleet.Anchor{Owner: fleet.Key(f.owner.Public()), Ledger: id}
	bound, err := machine.Seal(t.Context(), fleet.PurposeAnchor, anchor.Bytes())
	require.NoError(t, err)
	f.Guard = &Guard{Home: t.TempDir(), Store: store, Key: machine, Fleet: &Fleet{
		Anchor: anchor, Seals: [][]byte{nil, bound},
		Now: func() time.Time { return f.now },
		Enrolled: func(b fleet.Bundle) error {
			f.asked = append(f.asked, b.Version)
			return f.home
		},
	}}
	f.publish("5")
	f.Rules = rules(t, fmt.Sprintf(fleetRules, "5"))
	return f
}

// next is the bundle that follows the newest, for ten days and with this budget for a day.
func (f *signedFleet) next(day string) (fleet.Bundle, fleet.Signed) {
	f.t.Helper()
	r, err := config.Parse(fmt.Appendf(nil, fleetRules, day))
	require.NoError(f.t, err)
	var hash fleet.Hash
	if f.bundle.Version > 0 {
		hash = f.signed.Hash()
	}
	b := f.bundle.Next(hash, f.Fleet.Anchor, r, f.now, 10*24*time.Hour)
	signed, err := b.Sign(f.owner)
	require.NoError(f.t, err)
	return b, signed
}

func (f *signedFleet) publish(day string) {
	f.t.Helper()
	f.bundle, f.signed = f.next(day)
	require.NoError(f.t, f.Publish(f.t.Context(), f.signed, history.BudgetsOf(f.rules)))
}

func (f *signedFleet) refuses(fault fleet.Fault) {
	f.t.Helper()
	err := f.VerifySeals(f.t.Context())
	var e *x402.Error
	require.ErrorAs(f.t, err, &e)
	require.Equal(f.t, x402.PolicyUnsealed, e.Code)
	if fault != "" {
		require.Equal(f.t, string(fault), e.Details["fault"], "%v", err)
	}
}

// What a machine signs it signs under the newest rules of the owner's, with an enrolment that holds: it is
// asked for each time.
func TestAMachineOfAFleetAsksBeforeEachSignature(t *testing.T) {
	f := newSignedFleet(t)
	ctx := t.Context()
	require.NoError(t, f.VerifySeals(ctx))
	require.NoError(t, f.VerifySeals(ctx))
	require.Equal(t, []int64{1, 1}, f.asked[:2])

	f.home = errors.New("enrolled no more")
	require.ErrorIs(t, f.VerifySeals(ctx), f.home)
	f.home = nil
	require.NoError(t, f.VerifySeals(ctx))

	then := f.now
	f.now = then.Add(11 * 24 * time.Hour)
	f.refuses(fleet.Expired)
	f.now = then
	require.NoError(t, f.VerifySeals(ctx))

	// The owner tightens: this process goes by looser rules until it reads the new ones.
	require.False(t, f.Fleet.Outdated())
	f.publish("4")
	f.refuses("")
	require.True(t, f.Fleet.Outdated())
	f.Rules = rules(t, fmt.Sprintf(fleetRules, "3"))
	require.NoError(t, f.VerifySeals(ctx), "tighter than the owner's")
}

// A join.json of somebody else's fleet makes nobody pay by their rules: the keystore's owner ties it to one.
func TestAKeystorePaysInItsFleetAlone(t *testing.T) {
	f := newSignedFleet(t)
	require.NoError(t, f.VerifySeals(t.Context()))
	bound := f.Fleet.Seals
	for name, seals := range map[string][][]byte{"none": nil, "empty": {nil, {}},
		"another": {make([]byte, 32)}} {
		f.Fleet.Seals = seals
		f.refuses("")
		require.NoError(t, f.CheckConfig(t.Context()), "%s: that needs no key", name)
	}
	f.Fleet.Seals, f.Key = bound, key("another wallet's")
	f.refuses("")
	other := newSignedFleet(t) // with the same owner, another ledger
	other.Fleet.Seals = bound
	other.refuses("")
}

// Who has the owner's login of the database, but not their key, makes no rules.
func TestRulesThatTheOwnerDidNotSign(t *testing.T) {
	for name, forgery := range map[string]string{
		"a budget":   `UPDATE rules SET config = convert_to(replace(convert_from(config, 'UTF8'), '''5''', '''9'''), 'UTF8')`,
		"a byte":     `UPDATE rules SET seal = set_byte(seal, 3, get_byte(seal, 3) # 1)`,
		"a version":  `UPDATE rules SET version = 7 WHERE version = 2`,
		"none":       `DELETE FROM rules`,
		"the oldest": `DELETE FROM rules WHERE version = 1`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newSignedFleet(t)
			f.publish("5")
			ctx := t.Context()
			require.NoError(t, f.VerifySeals(ctx))
			require.NoError(t, f.Verify(ctx))
			pgtest.SQL(t, f.url, `SET search_path = x402; `+forgery)
			err := f.Verify(ctx)
			require.True(t, x402.HasCode(err, x402.PolicyUnsealed), "%v", err)
			if name != "the oldest" { // that one is not gone by any more
				f.refuses("")
			}
		})
	}
	f := newSignedFleet(t)
	_, signed := f.next("9")
	f.Fleet.Anchor.Owner[0]++
	require.Error(t, f.Publish(t.Context(), signed, nil), "of another owner")
}
