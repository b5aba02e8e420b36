// Package seal guards the owner's rules and the ledger against whoever else runs as the same user:
// an agent with a shell can edit config.toml, but it cannot make the seal over it, which takes a
// key from inside the keystore.
//
// What must stay true: no payment is signed under rules that let the agent do more than the rules
// that the owner sealed, nor on a ledger that knows less than it once did.
package seal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402"
)

// Key makes seals: wallet.Wallet. It may have to be unlocked for it.
type Key interface {
	Seal(ctx context.Context, purpose string, data []byte) ([]byte, error)
	Locked() bool
}

// Purposes keep one seal from passing for another.
const (
	purposeRules      = "x402-wallet rules v1"
	purposeCheckpoint = "x402-wallet ledger mark v1"

	purposeApproval = "x402-wallet approval v1"
	purposeLift     = "x402-wallet unfreeze v1"
	purposeSession  = "x402-wallet session v1"
	purposeChannel  = "x402-wallet owner's channel v1"

	purposeChain = "x402-wallet chain v1"
)

// Rules are the owner's rules in force in this process: *config.Config.
type Rules interface {
	// Text is what they were read from: what the owner seals.
	Text() []byte
	// LoosenedSince names the keys that they loosen of the rules that were sealed, and reports whether they
	// change any. A change loosens, unless it provably does not.
	LoosenedSince(sealed []byte) (loosened []string, changed bool, err error)
	// IsStale reports whether the file in the home is tighter by now, sealed or not.
	IsStale(home string) bool
	// Replace writes other rules into the file in the home, unless it was edited since these were read.
	Replace(home string, text []byte) error
}

// Guard stands between a payment and its signature. Its fields are set before its first use.
type Guard struct {
	Home  string
	Rules Rules // nil where none are compared or sealed
	Store *history.Store
	Key   Key

	// shared by the guards of a home in this process, so that opening the wallet again forgets
	// nothing; nil: its own
	Checkpoints *CheckpointCache
	own         CheckpointCache

	ownLines ownLines // of the checkpoint's file
	macs     macs     // of the ledger's chain

	sealedHome struct { // of sealedIn
		sync.Mutex
		version int64
		home    string
	}
}

// CheckpointCache is what a process knows of the ledger without reading it. It is used by whoever holds it.
type CheckpointCache struct {
	turn    chan struct{} // full while it is held, for marking, too; see hold
	made    sync.Once     // of turn
	last    checkpoint    // the newest that this process has met
	written bool          // by this process
}

// hold waits for its turn until ctx ends: whoever has it may be waiting for another process, or for a
// passphrase, in a call that has more time. The caller that gets it calls release.
func (a *CheckpointCache) hold(ctx context.Context) (release func(), err error) {
	a.made.Do(func() { a.turn = make(chan struct{}, 1) })
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		e := x402.Errorf(x402.LedgerUnavailable, "%w while another call renewed the ledger's checkpoint",
			ctx.Err())
		e.FixedBy = x402.ByTime
		return nil, e.WithHint("make the same call again")
	}
}

func (g *Guard) checkpoints() *CheckpointCache {
	if g.Checkpoints != nil {
		return g.Checkpoints
	}
	return &g.own
}

// CheckConfig refuses rules that the owner did not seal, and a home that was copied or moved since.
// It needs no key, so it can be asked before anything is held; only VerifySeals checks the seal
// itself. The ledger holds the text of every config.toml that was sealed. The rules in force may
// differ from the sealed text only in ways that provably tighten.
func (g *Guard) CheckConfig(ctx context.Context) error {
	return g.detectForeignLedger(ctx, g.checkConfig(ctx))
}

func (g *Guard) checkConfig(ctx context.Context) error {
	sealed, _, err := g.compare(ctx)
	if err != nil {
		return err
	}
	in, err := g.sealedIn(ctx, sealed.Version)
	if err != nil {
		return err
	}
	home, err := g.home()
	if err != nil || in == home {
		return err
	}
	return unsealed("the wallet's home was copied or moved since the owner sealed its rules")
}

// sealedIn is the home in which a version of the rules was sealed, asked of the ledger once: it
// looks for that among all that was ever decided.
func (g *Guard) sealedIn(ctx context.Context, version int64) (home string, err error) {
	g.sealedHome.Lock()
	known, home := g.sealedHome.version == version, g.sealedHome.home
	g.sealedHome.Unlock()
	if known {
		return home, nil
	}
	home, err = g.Store.SealedIn(ctx) // not under the lock, which waits for nobody's context
	if err == nil {
		g.sealedHome.Lock()
		g.sealedHome.version, g.sealedHome.home = version, home
		g.sealedHome.Unlock()
	}
	return home, err
}

// compare returns the sealed rules, and whether the rules in force tighten them. It refuses rules that
// loosen them.
func (g *Guard) compare(ctx context.Context) (sealed history.SealedRules, tightened bool, err error) {
	sealed, err = g.Store.Rules(ctx)
	if err != nil {
		return sealed, false, err
	}
	if sealed.Version == 0 {
		return sealed, false, unsealed("the owner's rules have never been sealed")
	}
	if sealed.Version < sealed.Newest {
		return sealed, false, rolledBack("the rules that were sealed last are not in it")
	}
	if g.Rules.IsStale(g.Home) { // a call under way ends here
		e := unsealed("the owner tightened the rules while this call was under way").
			WithHint("make the same call again: it goes by the new rules")
		e.FixedBy = x402.ByTime
		return sealed, false, e
	}
	if bytes.Equal(sealed.Config, g.Rules.Text()) {
		return sealed, false, nil
	}
	if older, err := g.isOlder(ctx); err != nil || older {
		return sealed, false, cmp.Or(err, superseded())
	}
	loosened, changed, err := g.Rules.LoosenedSince(sealed.Config)
	if err != nil {
		return sealed, false, unsealed("%v", err)
	}
	if len(loosened) > 0 {
		// Only the keys: an agent reads this, and values may hold the password of a node or a server.
		return sealed, false, unsealed("config.toml was loosened since the owner sealed it: %s",
			strings.Join(loosened, ", ")).WithDetail("keys", loosened)
	}
	return sealed, changed, nil
}

func unsealed(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.PolicyUnsealed, format, args...).
		WithHint("the owner looks at the difference and decides in a terminal: x402-wallet policy seal; " +
			"nothing is paid until then")
}

// VerifySeals is CheckConfig with the seals checked: to be asked before each signature. It unlocks
// the wallet. Rules that are only tighter than the sealed ones are sealed on the way, so that going
// back to the older ones is a loosening. On a ledger of several replicas, rules that were sealed at another
// one are put into config.toml, and the error is ErrSuperseded: the next call goes by them.
func (g *Guard) VerifySeals(ctx context.Context) error {
	return g.detectForeignLedger(ctx, g.verifySeals(ctx))
}

func (g *Guard) verifySeals(ctx context.Context) error {
	sealed, tightened, err := g.compare(ctx)
	isOlder := errors.Is(err, ErrSuperseded)
	if err != nil && !isOlder {
		return err
	}
	if err := g.authentic(ctx, sealed); err != nil {
		return err
	}
	if _, err := g.checkLedger(ctx, sealed); err != nil {
		return err
	}
	if isOlder {
		return g.takeOver(ctx, sealed)
	}
	if !tightened {
		return nil
	}
	err = g.SealFollowing(ctx)
	if errors.Is(err, history.ErrRulesMoved) { // another process sealed at this moment: look again
		return g.verifySeals(ctx)
	}
	return err
}

// Authentic refuses sealed rules that this wallet did not seal, for this ledger in this place: who
// writes to the ledger can put any text there, and what differs from that says nothing.
func (g *Guard) Authentic(ctx context.Context) error {
	sealed, err := g.Store.Rules(ctx)
	if err != nil {
		return err
	}
	return g.authentic(ctx, sealed)
}

func (g *Guard) authentic(ctx context.Context, sealed history.SealedRules) error {
	own, err := g.isOwnSeal(ctx, purposeRules, rulesData(sealed), sealed.Seal)
	if err == nil && !own {
		err = unsealed("the seal over the owner's rules is not this wallet's, for this ledger in this " +
			"place; a copied or moved home has to be sealed again")
	}
	return err
}

// Seal makes the rules in force the sealed ones, and checkpoints the ledger: the owner looked. accept
// is their word that the ledger is good as it is; without it, one whose budgets are not what this
// wallet sealed is LEDGER_CORRUPT. A lift that was not theirs they did not accept with it.
func (g *Guard) Seal(ctx context.Context, accept bool) error {
	lift, err := g.Store.Lifted(ctx)
	if err != nil {
		return err
	}
	own, err := g.ownLift(ctx, lift)
	if err != nil {
		return err
	}
	if !own {
		if err := g.Store.Unlift(ctx, lift.UpTo); err != nil {
			return err
		}
		return g.Seal(ctx, accept) // there may be another
	}
	k, err := g.keyholder(ctx)
	if err != nil {
		return err
	}
	if accept {
		g.Store.ForgetSealed()
	}
	return g.seal(ctx, accept, k, nil)
}

// SealFollowing is Seal on a ledger that goes on from the checkpoint: another is LEDGER_CORRUPT.
func (g *Guard) SealFollowing(ctx context.Context) error {
	k, err := g.Keyholder(ctx)
	if err != nil {
		return err
	}
	var after *history.Head
	if k.After.Seq > 0 {
		after = &k.After
	}
	return g.seal(ctx, false, k, after)
}

// CheckSealed refuses, as LEDGER_CORRUPT, a ledger whose budgets are not what this wallet sealed.
func (g *Guard) CheckSealed(ctx context.Context) error {
	k, err := g.keyholder(ctx)
	if err != nil {
		return err
	}
	return g.Store.CheckSealed(ctx, k)
}

// Keyholder is what seals a row of the ledger's audit chain: the key, and the newest checkpoint. The
// caller adds what it knows of the owner's rules.
func (g *Guard) Keyholder(ctx context.Context) (history.Keyholder, error) {
	m, err := g.latest(ctx)
	if err != nil {
		return history.Keyholder{}, err
	}
	k, err := g.keyholder(ctx)
	k.After, k.MAC = m.head(), g.macs.before(k.MAC)
	return k, err
}

// CheckLedger refuses a ledger that is behind its checkpoint, which the keyholder has. It is for reading the
// whole ledger.
func (g *Guard) CheckLedger(ctx context.Context) (k history.Keyholder, err error) {
	sealed, err := g.Store.Rules(ctx)
	if err != nil {
		return k, err
	}
	m, err := g.checkLedger(ctx, sealed)
	if err != nil {
		return k, err
	}
	k, err = g.keyholder(ctx)
	k.After = m.head()
	return k, err
}

func (g *Guard) keyholder(ctx context.Context) (k history.Keyholder, err error) {
	ledger, err := g.Store.LedgerID(ctx)
	about := texts(ledger) // wherever it lies: a home that was moved is the rules' seal's to find
	k.MAC = func(data []byte) ([]byte, error) {
		return g.Key.Seal(ctx, purposeChain, slices.Concat(about, data))
	}
	k.OwnSession = func(s budget.Session, seal []byte) (bool, error) { return g.OwnSession(ctx, s, seal) }
	k.OwnLift = func(l history.Lift) (bool, error) { return g.ownLift(ctx, l) }
	return k, err
}

// seal seals the rules in force, and what the ledger says of what was signed. after is as of write.
func (g *Guard) seal(ctx context.Context, accept bool, k history.Keyholder, after *history.Head) error {
	last, err := g.Store.Rules(ctx)
	if err != nil {
		return err
	}
	next := history.SealedRules{Version: last.Version + 1, Config: g.Rules.Text()}
	next.Seal, err = g.mac(ctx, purposeRules, rulesData(next))
	if err != nil {
		return err
	}
	home, err := g.home()
	if err != nil {
		return err
	}
	if err := g.Store.SealRules(ctx, next, home, accept, k); err != nil {
		return err
	}
	release, err := g.checkpoints().hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	return g.write(ctx, next.Version, after, g.replace)
}

// rulesData is what the owner seals of rules.
func rulesData(r history.SealedRules) []byte { return append(numbers(nil, r.Version), r.Config...) }

// sharedPlace is the place of rules that all replicas of a service go by, whatever their homes are.
const sharedPlace = "postgres"

// home is the wallet's home under its one name.
func (g *Guard) home() (string, error) {
	if g.Store.Shared() {
		return sharedPlace, nil
	}
	home, err := filepath.Abs(g.Home)
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		return "", fmt.Errorf("find the wallet's home: %w", err)
	}
	return home, nil
}

// sealer makes seals that hold for this ledger alone, and over rules in this place alone: over the home's
// path for rules, the ledger's id, each behind its length, and data, under a key from inside the keystore.
// Nothing is signed without the seal over the rules. It does not read the ledger, so that rows can be sealed
// while they are written.
func (g *Guard) sealer(ctx context.Context) (func(purpose string, data []byte) ([]byte, error), error) {
	home, err := g.home()
	if err != nil {
		return nil, err
	}
	ledger, err := g.Store.LedgerID(ctx)
	if err != nil {
		return nil, err
	}
	return func(purpose string, data []byte) ([]byte, error) {
		where := texts(ledger)
		if purpose == purposeRules {
			where = texts(home, ledger)
		}
		return g.Key.Seal(ctx, purpose, slices.Concat(where, data))
	}, nil
}

func (g *Guard) mac(ctx context.Context, purpose string, data []byte) ([]byte, error) {
	seal, err := g.sealer(ctx)
	if err != nil {
		return nil, err
	}
	return seal(purpose, data)
}

// isOwnSeal reports whether this wallet made a seal.
func (g *Guard) isOwnSeal(ctx context.Context, purpose string, data, seal []byte) (bool, error) {
	own, err := g.mac(ctx, purpose, data)
	return err == nil && hmac.Equal(own, seal), err
}

// texts puts texts together, each behind its length.
func texts(list ...string) (data []byte) {
	for _, text := range list {
		data = append(numbers(data, int64(len(text))), text...)
	}
	return data
}

// numbers appends numbers of eight bytes.
func numbers(data []byte, list ...int64) []byte {
	for _, n := range list {
		data = binary.BigEndian.AppendUint64(data, uint64(n))
	}
	return data
}
