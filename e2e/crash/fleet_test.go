//go:build crash && linux

package crash

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"x402-wallet/budget"
	"x402-wallet/e2e/schemes"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/postgres"
	"x402-wallet/internal/config"
	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
	"x402-wallet/wallet/seal"
)

// A fleet: its ledger is in a real PostgreSQL, which nobody kills here, and there are three homes: the
// owner's, and those of two machines of one agent, of which the first is broken. Who died is taken for alive
// for half a minute more, which the server's clock passes over before each restart.

const agentName, teamName = "research-1", "research"

// database is a fleet's ledger for one run after the other.
type database struct {
	url string // as config.toml and join.json have it
	id  string // the ledger's
	own *postgres.Pool
}

// owner is the home of a fleet's owner, made once, and what they sign with.
var owner struct {
	once     sync.Once
	dir      string
	key      *wallet.OwnerKey
	keystore []byte // a machine's
	err      error
}

// servers has the PostgreSQL server of these tests, and the databases in it that no run has.
var servers struct {
	mu      sync.Mutex
	cluster *pgtest.Cluster
	t       *testing.T
	free    []*database
}

// startServer starts the server for a test, which nothing has to outlive.
func startServer(t *testing.T) {
	servers.cluster, servers.t = pgtest.Start(t, "fsync = off", "max_connections = 200"), t
	t.Cleanup(func() {
		for _, d := range servers.free {
			d.own.Close()
		}
		servers.cluster, servers.free = nil, nil
	})
}

func makeOwner() {
	owner.once.Do(func() {
		owner.dir, owner.err = os.MkdirTemp(scratch(), "x402-crash-owner-")
		if owner.err == nil {
			owner.err = copyKeystore(template.dir, owner.dir)
		}
		if owner.err != nil {
			return
		}
		keys, err := wallet.Open(owner.dir)
		if err != nil {
			owner.err = err
			return
		}
		defer keys.Close()
		typed := wallet.FromValue(passphrase)
		owner.key, _, owner.err = keys.MakeOwnerKey(context.Background(), typed)
		if owner.err == nil {
			owner.keystore, owner.err = keys.WithoutOwnerKey(context.Background(), typed)
		}
	})
}

func copyKeystore(from, to string) error {
	const name = "keystore.json"
	return copyFile(filepath.Join(from, name), filepath.Join(to, name))
}

// fleetWorld is what a world has of a fleet.
type fleetWorld struct {
	*database
	owner    string // the owner's home
	machines [2]string
	bundle   fleet.Signed
}

// takeDatabase is one that nobody has, with an empty ledger or without any.
func takeDatabase(isMade bool) (*database, error) {
	servers.mu.Lock()
	if last := len(servers.free) - 1; isMade && last >= 0 {
		d := servers.free[last]
		servers.free = servers.free[:last]
		servers.mu.Unlock()
		return d, d.run(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid();
			SELECT x402.empty_ledger(); UPDATE x402.test_shift SET us = 0`)
	}
	socket := servers.cluster.Database(servers.t)
	servers.mu.Unlock()
	at, err := url.Parse(socket)
	if err != nil {
		return nil, err
	}
	d := &database{url: fmt.Sprintf("postgres://%s@%s?host=%s&port=%s", at.Query().Get("user"), at.Path,
		at.Query().Get("host"), at.Query().Get("port"))}
	d.own, err = postgres.New(postgres.Options{URL: d.url})
	if err != nil || !isMade {
		return d, err
	}
	d.id, err = history.CreateFleet(context.Background(), history.Fleet{URL: d.url})
	if err == nil {
		err = d.run(historytest.EmptyLedger + shiftedClock)
	}
	return d, err
}

// shiftedClock lets the clock by which processes live be set ahead.
const shiftedClock = `; CREATE TABLE x402.test_shift (us BIGINT); INSERT INTO x402.test_shift VALUES (0);
	CREATE OR REPLACE FUNCTION x402.real_clock() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
		SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
			+ (SELECT us FROM x402.test_shift) $$`

func (d *database) run(words string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return d.own.With(ctx, func(c *postgres.Conn) error { return c.Run(ctx, words) })
}

// number is what a query answers.
func (d *database) number(query string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = d.own.With(ctx, func(c *postgres.Conn) error {
		rows, err := c.Query(ctx, postgres.Statement{Query: query})
		if err != nil {
			return err
		}
		row := make([]driver.Value, 1)
		err = rows.Next(row)
		n, _ = row[0].(int64)
		return err
	})
	return n, err
}

// giveBack is the end of a run.
func (d *database) giveBack() {
	if d.id == "" { // made by the wallet, or not at all
		d.own.Close()
		return
	}
	servers.mu.Lock()
	defer servers.mu.Unlock()
	servers.free = append(servers.free, d)
}

// ledgerOf is the fleet's ledger, as somebody writes to it.
func (f *fleetWorld) ledgerOf(writer string) (*history.Store, error) {
	return history.OpenFleet(history.Fleet{URL: f.url, Writer: writer}, history.Options{})
}

// fleetRules is the owner's config.toml.
func fleetRules(rules, deadline, url string) string {
	return strings.Replace(rules, "[policy]\n", "[policy]\ndeadline = \""+deadline+"\"\n", 1) + fmt.Sprintf(
		"[ledger]\nurl = %q\nreplication = \"none\"\nkeys = \"shared\"\n"+
			"[budget.teams.%s]\nagents = [\"research-*\"]\n", url, teamName)
}

// newFleetWorld makes a sandbox, and a fleet in it whose owner has sealed its rules, unless the scenario
// does that; both machines have joined it, and neither has paid.
func (s scenario) newFleetWorld(rules schemes.Rules) (_ *world, _ *fleetWorld, err error) {
	if makeTemplate(); template.err != nil {
		return nil, nil, fmt.Errorf("make the template of a home: %w", template.err)
	}
	if makeOwner(); owner.err != nil {
		return nil, nil, fmt.Errorf("make the owner's home: %w", owner.err)
	}
	w := &world{}
	w.World, err = schemes.Start(sandbox.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	w.dir, err = os.MkdirTemp(scratch(), "x402-crash-")
	if err != nil {
		return nil, nil, err
	}
	d, err := takeDatabase(!s.founds)
	if err != nil {
		return nil, nil, err
	}
	f := &fleetWorld{database: d, owner: filepath.Join(w.dir, "owner")}
	w.done = append(w.done, d.giveBack)
	deadline := "30s"
	if s.hasty { // whoever waits for who is taken for alive waits so long
		deadline = "5s"
	}
	w.Fund(template.evm, sandbox.USDC)
	rules.TokenAccount = w.Delegate(template.solana, sandbox.USDC)
	err = errors.Join(os.Mkdir(f.owner, 0o700), os.Mkdir(filepath.Join(w.dir, "user"), 0o700),
		os.WriteFile(w.passphraseFile(), []byte(passphrase+"\n"), 0o600),
		config.WriteFile(filepath.Join(f.owner, config.FileName),
			[]byte(fleetRules(w.Config(rules), deadline, f.url))))
	if err != nil {
		return nil, nil, err
	}
	for i := range f.machines {
		f.machines[i] = filepath.Join(w.dir, fmt.Sprint("machine", i))
	}
	if s.founds {
		w.home = f.owner
		return w, f, copyKeystore(template.dir, f.owner)
	}
	w.home = f.machines[0]
	return w, f, errors.Join(copyKeystore(owner.dir, f.owner), f.sealRules(),
		f.join(owner.key, owner.keystore))
}

// sealRules makes the owner's config.toml the rules of the fleet, as policy seal --fleet does.
func (f *fleetWorld) sealRules() error {
	store, err := f.ledgerOf("owner")
	if err != nil {
		return err
	}
	defer store.Close()
	rules, err := config.Load(f.owner)
	if err != nil {
		return err
	}
	a := fleet.Anchor{Owner: fleet.Key(owner.key.Public()), Ledger: f.id}
	next := fleet.Bundle{}.Next(fleet.Hash{}, a, rules, time.Now(), 24*time.Hour)
	f.bundle, err = next.Sign(owner.key)
	if err != nil {
		return err
	}
	b := rules.Budget
	guard := &seal.Guard{Home: f.owner, Store: store, Fleet: &seal.Fleet{Anchor: a, Now: time.Now}}
	err = guard.Publish(context.Background(), f.bundle, history.BudgetsOf(budget.Rules{PerCall: b.PerCall,
		Session: b.Session, Day: b.Day, Month: b.Month, Rate: b.Rate, Teams: config.Tree(b.Teams)}))
	if err != nil {
		return err
	}
	bound, err := owner.key.Seal(fleet.PurposeAnchor, a.Bytes())
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"ledger": a.Ledger, "owner": a.Owner, "seal": bound})
	return errors.Join(err, config.WriteFile(filepath.Join(f.owner, "fleet.json"), append(text, '\n')))
}

// join enrols the agent, and gives both machines what they join by.
func (f *fleetWorld) join(key *wallet.OwnerKey, keystore []byte) error {
	a := fleet.Anchor{Owner: fleet.Key(key.Public()), Ledger: f.id}
	e := a.NewEnrolment(a.Owner, agentName, teamName, nil, time.Now(), time.Now().Add(24*time.Hour))
	signed, err := e.Sign(key)
	if err != nil {
		return err
	}
	join := fleet.Join{Format: e.Format, Ledger: fleet.JoinLedger{URL: f.url, ID: f.id}, Owner: a.Owner,
		Agent: agentName, Enrolment: signed}
	join.Seal, err = key.Seal(fleet.PurposeAnchor, a.Bytes())
	if err != nil {
		return err
	}
	text, err := join.Encode()
	for _, home := range f.machines {
		err = cmp.Or(err, os.Mkdir(home, 0o700))
		err = cmp.Or(err, config.WriteFile(filepath.Join(home, "join.json"), text))
		err = cmp.Or(err, config.WriteFile(filepath.Join(home, "keystore.json"), keystore))
	}
	return err
}

// nextMachine is where the next restart happens: the other one, and then where it was broken. Whoever died is
// taken for dead by then.
func (r *run) nextMachine() {
	if r.fleet == nil || r.scenario.alone {
		return
	}
	other := r.fleet.machines[0]
	if r.home == other {
		other = r.fleet.machines[1]
	}
	r.home = other
	if r.scenario.hasty && other == r.fleet.machines[1] {
		return
	}
	if err := r.fleet.pass(); err != nil {
		r.violation("the clock: %v", err)
	}
}

// pass sets the clock ahead by which processes live: whoever died is taken for dead.
func (f *fleetWorld) pass() error {
	return f.run(`DO $$ BEGIN IF to_regclass('x402.test_shift') IS NOT NULL THEN
		UPDATE x402.test_shift SET us = us + 31000000; END IF; END $$`)
}
