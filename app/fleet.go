package app

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/cli"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/pay"
	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// A home is a fleet's where it has a join.json, or X402_WALLET_JOIN names one; or it is the owner's, which
// sealed the rules. Then its ledger is the fleet's, its rules are those that the owner signed, and a
// config.toml of its own may only be tighter.

// The names of files in the home: join.json; what the owner's own home knows the fleet by; the name of the
// home's chain in the ledger.
const joinFile, ownerFile, writerFile = "join.json", "fleet.json", "chain"

// member is a home's part in a fleet.
type member struct {
	anchor    fleet.Anchor
	seals     [][]byte // over the anchor
	ledger    fleet.JoinLedger
	enrolment fleet.Signed
	covers    fleet.Enrolment // that one as it is written
	agent     string          // whose home it is; "": the owner's
	signer    string          // where join.json says that the keys are; "": in this home
	isOwner   bool            // config.toml is the one that is sealed for all
	writer    string
}

// ownerAnchor is fleet.json: what the owner's home believes of the fleet.
type ownerAnchor struct {
	Ledger string    `json:"ledger"` // its id
	Owner  fleet.Key `json:"owner"`
	Seal   []byte    `json:"seal"` // of its keystore over these two (fleet.PurposeAnchor)
}

// fleetMember is the part that this home has in a fleet; nil: it is in none.
func (a *app) fleetMember() (*member, error) {
	a.joining.Do(func() { a.joined, a.notJoined = a.readMember() })
	return a.joined, a.notJoined
}

func (a *app) readMember() (*member, error) {
	path := a.env.Join
	if path == "" {
		path = filepath.Join(a.home, joinFile)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return a.readOwner()
		}
	}
	join, err := fleet.ReadJoin(path)
	if err != nil {
		return nil, err
	}
	m := &member{anchor: join.Anchor(), seals: [][]byte{join.Seal}, ledger: join.Ledger,
		enrolment: join.Enrolment, signer: join.Signer}
	m.covers, err = join.Read()
	if err != nil {
		return nil, err
	}
	text, err := config.ReadFile(filepath.Join(a.home, fleet.SealFile), 200)
	switch seal, bad := hex.DecodeString(strings.TrimSpace(string(text))); {
	case err == nil && bad == nil:
		m.seals = append(m.seals, seal)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, x402.Errorf(x402.SetupFailed, "read %s: %w", fleet.SealFile, err)
	}
	host, _ := os.Hostname()
	m.agent, err = join.Name(strings.ToLower(host))
	if err == nil {
		m.writer, err = a.chainName()
	}
	return m, err
}

// readOwner is the part of the owner's own home; nil: it has sealed nothing for a fleet.
func (a *app) readOwner() (*member, error) {
	text, err := config.ReadTrusted(filepath.Join(a.home, ownerFile), 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var known ownerAnchor
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "read %s: %w", ownerFile, err).
			WithHint("x402-wallet policy seal --fleet makes it anew")
	}
	rules, err := config.Load(a.home)
	if err != nil || rules.Ledger.URL == "" {
		return nil, nil //nolint:nilerr // what is wrong with config.toml others say
	}
	m := &member{
		anchor:  fleet.Anchor{Owner: known.Owner, Ledger: known.Ledger},
		seals:   [][]byte{known.Seal},
		ledger:  ledgerIn(rules, known.Ledger),
		isOwner: true,
	}
	m.writer, err = a.chainName()
	return m, err
}

// ledgerIn is the ledger that config.toml names.
func ledgerIn(rules *config.Config, id string) fleet.JoinLedger {
	l := rules.Ledger
	return fleet.JoinLedger{URL: l.URL, ID: id, RootCert: l.RootCert,
		PasswordFile: l.PasswordFile, PasswordCommand: l.PasswordCommand}
}

// asMember makes the calls of this process, but for those of a service's sessions, those of the home's agent.
func (a *app) asMember(ctx context.Context) context.Context {
	if m, err := a.fleetMember(); err == nil && m != nil {
		return pay.WithAgent(ctx, m.agent)
	}
	return ctx
}

// mayHoldKeys refuses a wallet in the agent's own process where the fleet's keys are to be out of its reach.
func (a *app) mayHoldKeys(keys *wallet.Wallet, rules *config.Config) error {
	if a.joined == nil || a.joined.isOwner {
		return nil
	}
	if has, err := keys.HasOwnerKey(); err != nil || has {
		if err == nil {
			err = x402.Errorf(x402.PolicyDenied, "this machine's keystore has the owner's key of the fleet, "+
				"with which whoever has its passphrase makes the rules").
				WithHint("give it the one that the owner makes without: x402-wallet agents enroll with " +
					"--keystore FILE")
		}
		return err
	}
	if a.isService || rules.Ledger.Keys == config.KeysShared {
		return nil
	}
	return x402.Errorf(x402.PolicyDenied, "the owner of this fleet wants the keys where no agent's shell "+
		"is, and this wallet runs in the agent's own process").
		WithHint("run it as a service of a user of its own (x402-wallet service install); or the owner "+
			"seals ledger.keys = \"shared\", after which any shell of an agent has the keys").
		WithCommand(x402.Command("service", "install"), "The fleet's keys may not be in an agent's process: "+
			"please set up the wallet's service.")
}

// chainName is the name of this home's chain, made once.
func (a *app) chainName() (string, error) {
	path := filepath.Join(a.home, writerFile)
	known, err := config.ReadFile(path, 100)
	if err == nil {
		return strings.TrimSpace(string(known)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", x402.Errorf(x402.SetupFailed, "read the name of this home in the fleet's ledger: %w", err)
	}
	name := history.NewWriter()
	err = createExclusive(path, []byte(name+"\n"))
	if errors.Is(err, fs.ErrExist) { // another process of this home was faster
		return a.chainName()
	}
	if err != nil {
		return "", x402.Errorf(x402.SetupFailed, "name this home in the fleet's ledger: %w", err)
	}
	return name, nil
}

// ledgerOf is where a fleet's ledger is.
func (a *app) ledgerOf(at fleet.JoinLedger) history.Fleet {
	address := at.URL
	if at.RootCert != "" {
		mark := "?"
		if strings.Contains(address, "?") {
			mark = "&"
		}
		address += mark + "sslrootcert=" + url.QueryEscape(at.RootCert)
	}
	return history.Fleet{URL: address, LedgerID: at.ID,
		Password: func(ctx context.Context) (string, error) { return a.ledgerPassword(ctx, at) }}
}

// passwordTime bounds the command that tells the password, and maxPassword what it tells.
const passwordTime, maxPassword = 10 * time.Second, 8 << 10

// ledgerPassword is asked for before each connection, since tokens expire. "" is none.
func (a *app) ledgerPassword(ctx context.Context, at fleet.JoinLedger) (string, error) {
	var text []byte
	var err error
	switch {
	case a.env.LedgerPassword.Reveal() != "":
		return a.env.LedgerPassword.Reveal(), nil
	case at.PasswordFile != "":
		text, err = config.ReadTrusted(at.PasswordFile, maxPassword)
	case len(at.PasswordCommand) > 0:
		ctx, cancel := context.WithTimeout(ctx, passwordTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, at.PasswordCommand[0], at.PasswordCommand[1:]...)
		cmd.WaitDelay = time.Second
		text, err = cmd.Output()
	}
	if err != nil || len(text) > maxPassword {
		// nothing of it, or of what the command said
		return "", errors.New("the password of the fleet's ledger could not be had")
	}
	return string(bytes.TrimRight(text, "\r\n")), nil
}

// inFleet makes a guard that of a fleet, if this home is in one.
func (a *app) inFleet(g *seal.Guard) *seal.Guard {
	if m, err := a.fleetMember(); err == nil && m != nil {
		g.Fleet = &seal.Fleet{Anchor: m.anchor, Seals: m.seals, Now: time.Now, Enrolled: m.enrolled}
	}
	return g
}

// fleetRules are the owner's rules for the fleet as they are now, where this home's enrolment holds. A
// config.toml of its own stands for them: it has to be as tight (seal.Guard finds out).
func (a *app) fleetRules(ctx context.Context, store *history.Store) (*config.Config, error) {
	rules, err := a.Guard(store, nil, nil).FleetRules(ctx)
	if err != nil {
		return nil, err
	}
	if own, err := config.Load(a.home); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = keptLimits(own, rules)
		}
		if err != nil {
			return nil, err
		}
		rules = own
	}
	if err := checkAddresses(rules); err != nil {
		return nil, err
	}
	return environ.Over(rules, a.env)
}

// keptLimits refuses a machine's own rules where they limit what the fleet's ledger does not add up, because
// the owner's rules do not limit it.
func keptLimits(own, owners *config.Config) error {
	kept := map[string]history.Budget{}
	for _, b := range history.BudgetsOf(budgetRules(owners)) {
		kept[b.ID] = b
	}
	for _, b := range history.BudgetsOf(budgetRules(own)) {
		theirs := kept[b.ID]
		for _, limit := range []struct {
			name     string
			isUnkept bool
		}{
			{"session", b.Session != nil && theirs.Session == nil},
			{"day", b.Day != nil && theirs.Day == nil},
			{"month", b.Month != nil && theirs.Month == nil},
			{"rate", b.Rate > 0 && theirs.Rate == 0 && b.ID != history.Organisation},
		} {
			if limit.isUnkept {
				return x402.Errorf(x402.SetupFailed, "config.toml on this machine limits the %s of %s, "+
					"which the owner of the fleet does not limit, so that its ledger does not add it up",
					limit.name, b.ID).
					WithHint("take it out here, or the owner seals a limit for it, which may be higher: " +
						"x402-wallet policy seal --fleet")
			}
		}
	}
	return nil
}

// rulesOfFleet is rules in a fleet.
func (a *app) rulesOfFleet() (*config.Config, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fleetRulesTime)
	defer cancel()
	store, err := a.openLedger(ctx, history.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	return a.fleetRules(ctx, store)
}

// Rules implements cli.App.
func (a *app) Rules() (rules *config.Config, inFleet bool, err error) {
	m, err := a.fleetMember()
	switch {
	case err != nil:
		return nil, false, err
	case m != nil && !m.isOwner:
		rules, err = a.rulesOfFleet()
		return rules, true, err
	}
	rules, err = config.Load(a.home)
	return rules, m != nil, err
}

// fleetRulesTime bounds the question for the rules.
const fleetRulesTime = 20 * time.Second

// enrolled refuses a home whose enrolment does not hold, or not any more, by a bundle.
func (m *member) enrolled(b fleet.Bundle) error {
	if m.isOwner {
		return nil
	}
	rules, err := b.Rules()
	if err != nil {
		return err
	}
	teams := budgetRules(rules).Teams
	e, err := m.anchor.VerifyEnrolment(m.enrolment, b, teams.Up, time.Now())
	if err != nil {
		return err
	}
	if !slices.Contains(teams.Path(m.agent), e.Team) {
		return x402.Errorf(x402.PolicyUnsealed, "the agent %s is enrolled into the team %s, and the owner's "+
			"rules do not have it there", x402.Quote(m.agent), x402.Quote(e.Team)).
			WithHint("the owner names it, or a pattern of its name, in [budget.teams.%s] and signs that: "+
				"x402-wallet policy seal --fleet", e.Team)
	}
	return nil
}

// budgetRules are the owner's limits for what this home pays.
func (a *app) budgetRules(rules *config.Config) budget.Rules {
	r := budgetRules(rules)
	if m, err := a.fleetMember(); err == nil && m != nil {
		r.AgentsOpen = !m.isOwner // which has no agent of its own, and at its service those of the rules
		r.PaysFor = m.paysFor(r)
	}
	return r
}

// paysFor says for whom this home may pay: for its own agent; as a service for those that its enrolment
// covers, in the team that it names, as long as the rules have them, by whose entries they are known at its
// door.
func (m *member) paysFor(r budget.Rules) func(agent string) bool {
	if m.isOwner {
		return nil
	}
	return func(agent string) bool {
		_, isKnown := r.Agents[agent]
		isCovered := m.covers.Covers(agent) && slices.Contains(r.Teams.Path(agent), m.covers.Team)
		return agent == m.agent || (isKnown && isCovered)
	}
}

// ownersFleet is the fleet's ledger on its owner's machine. It implements cli.Fleet.
type ownersFleet struct {
	app   *app
	store *history.Store
}

// OpenFleet implements cli.App: as the owner's login of the ledger that config.toml names. Where there is
// none yet, it is made.
func (a *app) OpenFleet(ctx context.Context, rules *config.Config) (cli.Fleet, error) {
	if rules.Ledger.URL == "" {
		return nil, x402.Errorf(x402.SetupFailed, "config.toml names no ledger of a fleet").
			WithHint("write its address: [ledger] url = \"postgres://…\" (docs/fleet.md)")
	}
	f := a.ledgerOf(ledgerIn(rules, ""))
	f.Writer = "owner" // a chain of its own: no home's checkpoint is on it
	if err := history.MakeFleet(ctx, f); err != nil {
		return nil, err
	}
	store, err := history.OpenFleet(f, history.Options{})
	if err != nil {
		return nil, err
	}
	return &ownersFleet{app: a, store: store}, nil
}

func (f *ownersFleet) LedgerID(ctx context.Context) (string, error) { return f.store.LedgerID(ctx) }

func (f *ownersFleet) Newest(ctx context.Context) (fleet.Signed, error) {
	sealed, err := f.store.Rules(ctx)
	if err != nil || sealed.Version == 0 {
		return fleet.Signed{}, err
	}
	return fleet.Signed{Statement: sealed.Config, Signature: sealed.Seal}, nil
}

func (f *ownersFleet) Publish(ctx context.Context, signed fleet.Signed, keystoreSeal []byte) error {
	b, err := fleet.Peek(signed)
	if err != nil {
		return err
	}
	rules, err := b.Rules()
	if err != nil {
		return err
	}
	guard := &seal.Guard{Home: f.app.home, Store: f.store,
		Fleet: &seal.Fleet{Anchor: fleet.Anchor{Owner: b.By, Ledger: b.Ledger}, Now: time.Now}}
	if err := guard.Publish(ctx, signed, history.BudgetsOf(budgetRules(rules))); err != nil {
		return err
	}
	text, err := json.Marshal(ownerAnchor{Ledger: b.Ledger, Owner: b.By, Seal: keystoreSeal})
	if err != nil {
		return err
	}
	if err := config.WriteFile(filepath.Join(f.app.home, ownerFile), append(text, '\n')); err != nil {
		return x402.Errorf(x402.SetupFailed, "the rules are sealed for the fleet, but this home does not "+
			"know it yet: %w", err).
			WithHint("make room on the disk, then run it again")
	}
	return nil
}

func (f *ownersFleet) Close() error { return f.store.Close() }
