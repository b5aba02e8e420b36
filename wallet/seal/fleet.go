package seal

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
	"x402-wallet/x402"
)

// In a fleet the owner's word is a signature by a key that no machine has (package fleet), and the rules are
// the newest bundle of the ledger. What a guard otherwise makes and checks by a key of its own keystore it
// checks by the owner's public key, from join.json. The checkpoint stays its own: it is on the chain of this
// home.

// Fleet makes a guard one of a fleet.
type Fleet struct {
	Anchor fleet.Anchor
	// Seals are over the anchor (fleet.PurposeAnchor), as they were found in the home: one has to be its
	// keystore's.
	Seals [][]byte
	Now   func() time.Time
	// Enrolled refuses a home that may not pay by a bundle, before each signature; nil: every home may.
	Enrolled func(fleet.Bundle) error

	// signs what the owner says; nil: on all machines but the owner's, and there until the passphrase is
	// typed
	owner *wallet.OwnerKey

	version   atomic.Int64 // of the first bundle that was met; 0: none was yet
	outdated  atomic.Bool
	witnessed atomic.Bool // the ledger was frozen because of this wallet's checkpoint
}

// UnlockOwner unlocks keys with the owner's key of the fleet, which only their own keystore has. Close wipes
// it.
func (f *Fleet) UnlockOwner(ctx context.Context, keys *wallet.Wallet, typed wallet.Passphrase) error {
	key, err := keys.OwnerKey(ctx, typed)
	if err != nil {
		return err
	}
	if fleet.Key(key.Public()) != f.Anchor.Owner {
		key.Close()
		return x402.Errorf(x402.PolicyDenied, "the owner's key of this keystore is not that of this fleet").
			WithHint("use the keystore that sealed the fleet's rules")
	}
	f.owner = key
	return keys.Unlock(ctx, typed)
}

// Close wipes the owner's key.
func (f *Fleet) Close() {
	if f.owner != nil {
		f.owner.Close()
		f.owner = nil
	}
}

// Outdated reports whether a signature met rules that came after those that this process goes by: it has to
// read them anew. A refusal meets them by Store.RulesMoved.
func (f *Fleet) Outdated() bool { return f.outdated.Load() }

// wordLife bounds how long what the owner signed may wait to be written down.
const wordLife = time.Hour

// bundle is the newest bundle of the ledger, which has to be the owner's and hold now.
func (g *Guard) bundle(sealed history.SealedRules) (fleet.Bundle, error) {
	if sealed.Version == 0 {
		return fleet.Bundle{}, unsealed("the owner has signed no rules for this fleet").
			WithHint("the owner signs them: x402-wallet policy seal --fleet")
	}
	// that it is no older than one that was met the checkpoint says
	b, err := g.Fleet.Anchor.VerifyBundle(signedRules(sealed), fleet.Seen{}, g.Fleet.Now())
	if err == nil && b.Version != sealed.Version {
		err = unsealed("the fleet's rules are version %d in the ledger, and were signed as %d",
			sealed.Version, b.Version)
	}
	if err == nil && g.Fleet.Enrolled != nil {
		err = g.Fleet.Enrolled(b)
	}
	return b, err
}

// isBound refuses a fleet that the owner of this home's keystore has not tied it to.
func (g *Guard) isBound(ctx context.Context) error {
	own, err := g.Key.Seal(ctx, fleet.PurposeAnchor, g.Fleet.Anchor.Bytes())
	isOwn := func(s []byte) bool { return hmac.Equal(own, s) }
	if err != nil || slices.ContainsFunc(g.Fleet.Seals, isOwn) {
		return err
	}
	return unsealed("the owner of this wallet's keys has not said that they pay in the fleet %s of the "+
		"owner %s", g.Fleet.Anchor.Ledger, g.Fleet.Anchor.Owner).
		WithHint("where that is right, the owner types the passphrase on this machine: x402-wallet policy " +
			"seal; where it is not, somebody else put join.json there")
}

// signedRules is what the owner signed, as the ledger has it.
func signedRules(r history.SealedRules) fleet.Signed {
	return fleet.Signed{Statement: r.Config, Signature: r.Seal}
}

// verifyBundles compares all rules that the ledger has with the owner's key, and each with the one before.
func (g *Guard) verifyBundles(ctx context.Context) error {
	every, err := g.Store.EveryRules(ctx)
	if err != nil {
		return err
	}
	list := make([]fleet.Signed, len(every))
	for i, r := range every {
		list[i] = signedRules(r)
	}
	_, err = g.Fleet.Anchor.VerifyBundles(list)
	return err
}

// FleetRules are the rules of the newest bundle, by which the store is told to go.
func (g *Guard) FleetRules(ctx context.Context) (*config.Config, error) {
	sealed, err := g.Store.Rules(ctx)
	if err != nil {
		return nil, err
	}
	b, err := g.bundle(sealed)
	if err != nil {
		return nil, err
	}
	g.Store.GoBy(b.Version)
	return b.Rules()
}

// compareFleet is compare for a fleet: this machine's rules may be tighter than the bundle's.
func (g *Guard) compareFleet(ctx context.Context) (history.SealedRules, []config.Change, error) {
	sealed, err := g.Store.Rules(ctx)
	if err != nil {
		return sealed, nil, err
	}
	b, err := g.bundle(sealed)
	if err != nil {
		return sealed, nil, err
	}
	g.Store.Demand(b.Replication)
	if !g.Fleet.version.CompareAndSwap(0, b.Version) && g.Fleet.version.Load() != b.Version {
		g.Fleet.outdated.Store(true)
	}
	if b.Config == string(g.Rules.Raw) {
		return sealed, nil, nil
	}
	then, err := b.Rules()
	if err != nil {
		return sealed, nil, err
	}
	changes := config.Compare(then, g.Rules)
	// who is an agent its enrolment says, so an entry that is gone is a limit that is gone
	for i, c := range changes {
		changes[i].Loosens = c.Loosens || strings.HasPrefix(c.Key, "agents")
	}
	if !config.Loosens(changes) {
		return sealed, changes, nil
	}
	e := unsealed("the owner signed other rules for the fleet (version %d), or this machine's config.toml "+
		"allows more", b.Version).
		WithHint("make the same call again: it goes by the new rules; where it stays so, the owner looks " +
			"at config.toml on this machine, which may only be tighter")
	e.FixedBy = x402.ByTime
	return sealed, changes, e
}

// word is a statement of the owner's as a row's seal holds it.
func word(signed fleet.Signed, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(signed)
}

func readWord(seal []byte) (signed fleet.Signed) {
	_ = json.Unmarshal(seal, &signed) // what cannot be read is signed by nobody
	return signed
}

func (g *Guard) once() fleet.Once { return fleet.NewOnce(g.Fleet.Now(), wordLife) }

// needOwner refuses on all machines but the owner's, and there until the passphrase was typed.
func (g *Guard) needOwner() error {
	if g.Fleet.owner == nil {
		return x402.Errorf(x402.WalletLocked, "this takes the owner's key of the fleet, which is not on "+
			"this machine").
			WithHint("the owner does it on their machine, or from there for this ledger")
	}
	return nil
}

func (g *Guard) fleetApproval(a history.Approval) fleet.Approval {
	return fleet.Approval{Head: g.Fleet.Anchor.NewHead(), ID: a.ID, Quote: fleet.Hash(a.Quote),
		Agent: a.Agent, Host: a.Host, Method: a.Method, URL: a.URL, Network: a.Network, Asset: a.Asset,
		Amount: a.Amount.String(), Price: a.Price.String(), PayTo: a.PayTo}
}

// signApproval is the owner's word on an approval.
func (g *Guard) signApproval(a history.Approval) ([]byte, error) {
	if err := g.needOwner(); err != nil {
		return nil, err
	}
	said := g.fleetApproval(a)
	said.Once = g.once()
	return word(said.Sign(g.Fleet.owner))
}

// ownApproval reports whether the owner gave an approval, for exactly what it says.
func (g *Guard) ownApproval(a history.Approval) bool {
	signed := readWord(a.Seal)
	said, err := g.Fleet.Anchor.VerifyApproval(signed, madeAt(signed))
	if err != nil {
		return false
	}
	want := g.fleetApproval(a)
	want.Once = said.Once
	return said == want
}

// madeAt is when a statement was made, by its own word: that it was taken in time the ledger's row says.
func madeAt(signed fleet.Signed) time.Time {
	var once fleet.Once
	_ = json.Unmarshal(signed.Statement, &once)
	return once.Made
}

func (g *Guard) signLift(l history.Lift) ([]byte, error) {
	if err := g.needOwner(); err != nil {
		return nil, err
	}
	return word(fleet.Lift{Head: g.Fleet.Anchor.NewHead(), UpTo: l.UpTo, Once: g.once()}.Sign(g.Fleet.owner))
}

func (g *Guard) ownFleetLift(l history.Lift) bool {
	signed := readWord(l.Seal)
	said, err := g.Fleet.Anchor.VerifyLift(signed, madeAt(signed))
	return err == nil && said.UpTo == l.UpTo
}

func (g *Guard) signSession(s budget.Session) ([]byte, error) {
	if err := g.needOwner(); err != nil {
		return nil, err
	}
	return word(fleet.Session{Head: g.Fleet.Anchor.NewHead(), ID: s.ID, Once: g.once()}.Sign(g.Fleet.owner))
}

func (g *Guard) ownFleetSession(s budget.Session, seal []byte) bool {
	signed := readWord(seal)
	said, err := g.Fleet.Anchor.VerifySession(signed, madeAt(signed))
	return err == nil && said.ID == s.ID
}

// isSameBundle reports whether a bundle is the one that a row holds.
func isSameBundle(sealed history.SealedRules, signed fleet.Signed) bool {
	return bytes.Equal(sealed.Config, signed.Statement) && bytes.Equal(sealed.Seal, signed.Signature)
}

// Publish makes a bundle the rules of the fleet, with its budgets. Only the owner's login may.
func (g *Guard) Publish(ctx context.Context, signed fleet.Signed, budgets []history.Budget) error {
	b, err := g.Fleet.Anchor.VerifyBundle(signed, fleet.Seen{}, g.Fleet.Now())
	if err != nil {
		return err
	}
	r := history.SealedRules{Version: b.Version, Config: signed.Statement, Seal: signed.Signature}
	if err := g.Store.ApplyRules(ctx, r, budgets); err != nil {
		return err
	}
	sealed, err := g.Store.Rules(ctx)
	if err == nil && !isSameBundle(sealed, signed) {
		err = history.ErrRulesMoved
	}
	return err
}
