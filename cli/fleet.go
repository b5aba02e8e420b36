package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
	"x402-wallet/x402"
)

// Fleet is the ledger that wallets on several machines share, as far as its owner's word goes. Whoever has it
// closes it.
type Fleet interface {
	// LedgerID is the ledger's own name, which never changes.
	LedgerID(ctx context.Context) (string, error)
	// Newest is the newest bundle that was published; the zero value: none was.
	Newest(ctx context.Context) (fleet.Signed, error)
	// Publish puts a bundle behind the newest, or fails where that is another by now. seal ties this home's
	// keystore to the fleet (fleet.PurposeAnchor).
	Publish(ctx context.Context, signed fleet.Signed, seal []byte) error
	Close() error
}

// fleetSeal is policy seal --fleet.
type fleetSeal struct {
	fleet       bool
	expires     string
	out         string
	add, remove []string
}

// fleetFlags are its flags.
var fleetFlags = []string{"fleet", "expires", "out", "add", "remove"}

func (f *fleetSeal) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.fleet, "fleet", false, "for all machines of a fleet, with the owner's key")
	cmd.Flags().StringVar(&f.expires, "expires", "30d", "how `LONG` these rules hold: 12h, 30d")
	cmd.Flags().StringVar(&f.out, "out", "", "write the signed bundle into this `DIR`, too")
	cmd.Flags().StringArrayVar(&f.add, "add", nil, "`WHAT` the fleet gets: signer=KEY, "+
		"orchestrator=KEY,AGENTS,TEAM or payer=TEAM,ADDRESS; once for each")
	cmd.Flags().StringArrayVar(&f.remove, "remove", nil, "`WHAT` it loses: signer=KEY, orchestrator=KEY or "+
		"payer=TEAM,ADDRESS; once for each")
}

// isGiven reports whether one of its flags is.
func (f *fleetSeal) isGiven(cmd *cobra.Command) bool {
	return slices.ContainsFunc(fleetFlags, cmd.Flags().Changed)
}

// lifeOf reads how long something holds: days, or what Go writes.
func lifeOf(flag, text string) (life time.Duration, err error) {
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		life = time.Duration(n) * 24 * time.Hour
	} else {
		life, err = time.ParseDuration(text)
	}
	if err != nil || life < time.Hour || life > fleet.MaxLife {
		return 0, usagef("--%s %q is not a time from 1h to %dd", flag, text,
			int(fleet.MaxLife/(24*time.Hour)))
	}
	return life, nil
}

// atFleet is the fleet of the rules of this home, and what its newest bundle says, not yet believed.
type atFleet struct {
	Fleet
	rules  *config.Config
	ledger string
	newest fleet.Signed
	last   fleet.Bundle // Version 0: there is none
}

// seen is what follows on the newest bundle.
func (f *atFleet) seen() fleet.Seen {
	if f.last.Version == 0 {
		return fleet.Seen{}
	}
	return f.newest.Seen(f.last)
}

// openFleet opens the fleet; the caller closes it.
func (p *Program) openFleet(ctx context.Context) (*atFleet, error) {
	if err := p.haveWallet(); err != nil {
		return nil, err
	}
	rules, err := config.Load(p.Home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, config.Missing(p.Home)
	}
	if err != nil {
		return nil, err
	}
	opened, err := p.OpenFleet(ctx, rules)
	if err != nil {
		return nil, err
	}
	f := &atFleet{Fleet: opened, rules: rules}
	f.ledger, err = opened.LedgerID(ctx)
	if err == nil {
		f.newest, err = opened.Newest(ctx)
	}
	if err == nil && len(f.newest.Statement) > 0 {
		f.last, err = fleet.Peek(f.newest)
	}
	if err != nil {
		_ = opened.Close()
		return nil, err
	}
	return f, nil
}

// ownerKey takes the passphrase and is the owner's key, with what a machine of the fleet believes by it.
// mayMake: a keystore without one gets one. then, if not nil, is what else the passphrase is for. The newest
// bundle, if there is one, was signed by it. Close it.
func (p *Program) ownerKey(
	ctx context.Context,
	ui *ui,
	f *atFleet,
	l loosening,
	mayMake bool,
	then func(keys *wallet.Wallet, again wallet.Passphrase) error,
) (key *wallet.OwnerKey, a fleet.Anchor,
	err error) {
	keys, err := wallet.Open(p.Home)
	if err != nil {
		return nil, a, err
	}
	defer func() { _ = keys.Close() }()
	made := false
	err = ui.asked(ctx, l, func(given wallet.Passphrase) error {
		passphrase, err := given(ctx)
		if err != nil {
			return err
		}
		defer clear(passphrase)
		if mayMake {
			key, made, err = keys.MakeOwnerKey(ctx, typed(passphrase))
		} else {
			key, err = keys.OwnerKey(ctx, typed(passphrase))
		}
		if err == nil && then != nil {
			err = then(keys, typed(passphrase))
		}
		return err
	})
	if err != nil {
		return nil, a, err
	}
	a = fleet.Anchor{Owner: fleet.Key(key.Public()), Ledger: f.ledger}
	if made {
		ui.note("the keystore has the owner's key of this fleet now: keep a new copy of it, in a safe place")
	}
	if f.last.Version > 0 {
		if _, err := a.ReadBundle(f.newest); err != nil {
			key.Close()
			return nil, a, x402.Errorf(x402.PolicyUnsealed,
				"the newest bundle in the ledger was not signed by the owner's key of this keystore: %w",
				err).WithHint("use the keystore that has that key; if it is this one, somebody else wrote " +
				"to the ledger: nothing was signed")
		}
	}
	return key, a, nil
}

// sealFleet shows what differs from the newest bundle, signs the next one and publishes it.
func (p *Program) sealFleet(ctx context.Context, ui *ui, o fleetSeal) error {
	life, err := lifeOf("expires", o.expires)
	if err != nil {
		return err
	}
	f, err := p.openFleet(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	next := f.next(f.rules, life)
	if err := changeLists(&next, o.add, o.remove); err != nil {
		return err
	}
	signed, err := p.publish(ctx, ui, f, &next)
	if err != nil {
		return err
	}
	return ui.sealedFleet(next, signed, o.out)
}

// next is the bundle that follows the newest, and says nothing yet of who signs it.
func (f *atFleet) next(rules *config.Config, life time.Duration) fleet.Bundle {
	return f.last.Next(f.seen().Hash, fleet.Anchor{Ledger: f.ledger}, rules, time.Now(), life)
}

// publish shows what a bundle changes, and signs and publishes it once the owner has typed the passphrase.
func (p *Program) publish(ctx context.Context, ui *ui, f *atFleet, next *fleet.Bundle) (fleet.Signed, error) {
	lines, err := ui.fleetChange(f.last, *next)
	if err != nil {
		return fleet.Signed{}, err
	}
	key, a, err := p.ownerKey(ctx, ui, f, loosening{prompt: "Passphrase, to seal these rules for the fleet: ",
		title: "Seal the owner's rules for the fleet " + f.ledger, lines: lines}, f.last.Version == 0, nil)
	if err != nil {
		return fleet.Signed{}, err
	}
	defer key.Close()
	next.By = a.Owner
	signed, err := next.Sign(key)
	if err == nil {
		_, err = a.VerifyBundle(signed, f.seen(), time.Now()) // as every machine will
	}
	if err != nil {
		return fleet.Signed{}, err
	}
	seal, err := key.Seal(fleet.PurposeAnchor, a.Bytes())
	if err != nil {
		return fleet.Signed{}, err
	}
	return signed, f.Publish(ctx, signed, seal)
}

// ownsFleet reports whether the keystore has a fleet's owner's key.
func (p *Program) ownsFleet() (bool, error) {
	keys, err := wallet.Open(p.Home)
	if err != nil {
		return false, err
	}
	defer func() { _ = keys.Close() }()
	return keys.HasOwnerKey()
}

// inFleet is what changing the rules is in a fleet's home, before anything is edited: its owner's alone. On
// another machine policy seal ties the keystore to the fleet, and done says that it did.
func (p *Program) inFleet(ctx context.Context, ui *ui, a fleet.Anchor, seals bool) (done bool, err error) {
	isOwner, err := p.ownsFleet()
	switch {
	case err != nil:
		return false, err
	case seals && isOwner:
		return false, x402.Errorf(x402.SetupFailed, "the rules of a fleet are signed, and not sealed").
			WithHint("x402-wallet policy seal --fleet").
			WithCommand(x402.Command("policy", "seal", "--fleet"), "")
	case seals:
		return true, p.bindToFleet(ctx, ui, a)
	case !isOwner:
		return false, x402.Errorf(x402.PolicyDenied, "the rules are those of a fleet, and its owner's key "+
			"is not on this machine").
			WithHint("the owner changes them on their machine; to stop payments here and everywhere: " +
				"x402-wallet freeze")
	}
	return false, nil
}

// bindToFleet is the word of this keystore's owner that it pays in the fleet of the home's join.json.
func (p *Program) bindToFleet(ctx context.Context, ui *ui, a fleet.Anchor) error {
	lines := []string{"pay out of the fleet's ledger " + safe(a.Ledger),
		"by the rules of who has the key " + a.Owner.String()}
	for _, line := range lines {
		ui.note("  %s", line)
	}
	keys, err := p.owner(ctx, ui, loosening{prompt: "Passphrase, to pay in this fleet: ",
		title: "Pay in the fleet " + a.Ledger, lines: lines})
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	seal, err := keys.Seal(ctx, fleet.PurposeAnchor, a.Bytes())
	if err == nil {
		err = config.WriteFile(filepath.Join(p.Home, fleet.SealFile), []byte(hex.EncodeToString(seal)+"\n"))
	}
	return err
}

// changeFleet signs and publishes an edited config.toml, for as long as the rules before it were to hold.
// Also what only tightens takes the passphrase, for it has to be signed. The bundle comes first, as the seal
// does: what it allows is what was typed for.
func (p *Program) changeFleet(ctx context.Context, ui *ui, text []byte) (*config.Config, error) {
	rules, err := config.Parse(text)
	if err != nil {
		return nil, asInvalid(err)
	}
	f, err := p.openFleet(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	next := f.next(rules, f.last.Expires.Sub(f.last.NotBefore))
	if _, err := p.publish(ctx, ui, f, &next); err != nil {
		return nil, err
	}
	if err := config.WriteFile(filepath.Join(p.Home, config.FileName), text); err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "%w", err).
			WithHint("the fleet has these rules; once there is room, make the same change in config.toml " +
				"here")
	}
	return rules, nil
}

// fleetChange shows what a bundle changes of the one before, or all of it where it is the first.
func (u *ui) fleetChange(last, next fleet.Bundle) (lines []string, err error) {
	rules, err := next.Rules()
	if err != nil {
		return nil, err
	}
	if last.Version == 0 {
		lines = []string{"the first rules of this fleet; the owner's key is made in this keystore, if it " +
			"has none"}
		for _, line := range rules.Lines() {
			lines = append(lines, line.Key+" = "+safe(line.Value))
		}
		for _, list := range next.Lists() {
			lines = append(lines, list[0]+" = "+safe(list[1]))
		}
	} else {
		changes, err := fleet.Changes(last, next)
		if err != nil {
			return nil, err
		}
		lines = asLines(changes, nil)
		if len(changes) == 0 {
			lines = []string{"the rules are unchanged"}
		}
	}
	lines = append(lines, "they hold from "+moment(next.NotBefore.Format(time.RFC3339))+" UTC until "+
		moment(next.Expires.Format(time.RFC3339))+" UTC")
	lines = append(lines, weaker(next)...)
	for _, line := range lines {
		u.note("  %s", line)
	}
	u.warn(rules.Warnings)
	return append(lines, rules.Warnings...), nil
}

// weaker says what it means that a fleet has less than the strictest.
func weaker(b fleet.Bundle) (lines []string) {
	if b.Keys == "shared" {
		lines = append(lines, "keys = shared: any shell in an agent's container has the wallet's keys, and "+
			"only the balance or delegation bounds what it takes")
	}
	switch b.Replication {
	case "async":
		lines = append(lines, "replication = async: a server that is lost takes the newest payments with "+
			"it, and what they spent can be spent again")
	case "none":
		lines = append(lines, "replication = none: there is one server, and payments are lost with it")
	}
	return lines
}

// changeLists puts what was named into the bundle's lists, and takes out what was named.
func changeLists(b *fleet.Bundle, add, remove []string) error {
	for _, given := range remove {
		if !removeFrom(b, given) {
			return usagef("--remove %s: there is no such thing; it is like signer=KEY, orchestrator=KEY or "+
				"payer=TEAM,ADDRESS", given)
		}
	}
	for _, given := range add {
		if !addTo(b, given) {
			return usagef("--add %s is not like signer=KEY, orchestrator=KEY,AGENTS,TEAM or "+
				"payer=TEAM,ADDRESS", given)
		}
	}
	b.Sort()
	if err := b.Check(); err != nil {
		return x402.Errorf(x402.InvalidArgument, "this cannot be sealed: %w", err)
	}
	return nil
}

func addTo(b *fleet.Bundle, given string) bool {
	kind, value, _ := strings.Cut(given, "=")
	parts := strings.Split(value, ",")
	switch {
	case kind == "payer" && len(parts) == 2:
		b.Payers[parts[0]] = append(b.Payers[parts[0]], parts[1])
		return true
	case kind == "signer" && len(parts) == 1, kind == "orchestrator" && len(parts) == 3:
		key, err := fleet.ParseKey(parts[0])
		if err != nil {
			return false
		}
		if kind == "signer" {
			b.Signers = append(b.Signers, key)
			return true
		}
		b.Orchestrators = append(b.Orchestrators,
			fleet.Orchestrator{Key: key, Agents: parts[1], Team: parts[2]})
		return true
	}
	return false
}

// removeFrom reports whether it was there.
func removeFrom(b *fleet.Bundle, given string) bool {
	kind, value, _ := strings.Cut(given, "=")
	before := b.Lists()
	switch kind {
	case "signer":
		b.Signers = slices.DeleteFunc(b.Signers, func(k fleet.Key) bool { return k.String() == value })
	case "orchestrator":
		b.Orchestrators = slices.DeleteFunc(b.Orchestrators, func(o fleet.Orchestrator) bool {
			return o.Key.String() == value
		})
	case "payer":
		team, address, _ := strings.Cut(value, ",")
		b.Payers[team] = slices.DeleteFunc(b.Payers[team], func(a string) bool { return a == address })
	}
	return !slices.Equal(before, b.Lists())
}

// fleetOut is what policy seal --fleet did.
type fleetOut struct {
	Ledger  string     `json:"ledger"`
	Version int64      `json:"version"`
	Hash    fleet.Hash `json:"hash"`
	Owner   fleet.Key  `json:"owner"`
	Expires string     `json:"expires"`
	File    string     `json:"file,omitempty"`
}

func (u *ui) sealedFleet(b fleet.Bundle, signed fleet.Signed, dir string) error {
	out := fleetOut{Ledger: b.Ledger, Version: b.Version, Hash: signed.Hash(), Owner: b.By,
		Expires: b.Expires.Format(time.RFC3339)}
	if dir != "" {
		out.File = filepath.Join(dir, "bundle-"+strconv.FormatInt(b.Version, 10)+".json")
		if err := writeTo(out.File, func(w io.Writer) error { return encodeTo(w, signed) }); err != nil {
			return err
		}
	}
	return u.answerLine(out, "done: version %d of the rules applies to the fleet from now on, until %s UTC",
		out.Version, moment(out.Expires))
}

var _ fleet.Signer = (*wallet.OwnerKey)(nil)
