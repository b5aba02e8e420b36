// Package doctor looks for what is wrong with a wallet and its surroundings, and says of each
// thing what to do.
//
// What must stay true: it changes nothing, it ends in bounded time, what it could not look at it
// says so, and no secret it comes across is ever printed.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/content"
	"x402-wallet/history/report"
	"x402-wallet/history/verify"
	"x402-wallet/internal/config"
	"x402-wallet/internal/install"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/wallet/unlock"
	"x402-wallet/x402"
)

// How a check ended: warn is what works and should be better, fail is what keeps the wallet from
// working, or endangers it.
const (
	ok   = "ok"
	warn = "warn"
	fail = "fail"
)

type Finding struct {
	Check   string `json:"check"`
	Status  string `json:"status"` // "ok", "warn" or "fail"
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Report is all of them; OK when nothing failed.
type Report struct {
	OK     bool      `json:"ok"`
	Checks []Finding `json:"checks"`
}

// Options say where to look.
type Options struct {
	Home           string
	System         install.System
	Entry          install.Entry // as this wallet would be written into a client
	Dir            string        // where the person is: projects have their own .env
	Keypair        string        // AGENT_KEYPAIR_PATH of the ozskr wallet; "" when not set
	OtherProxy     string        // a variable that names a proxy, which is not used; "": there is none
	PassphraseFile string        // X402_WALLET_PASSPHRASE_FILE; "" when not set
	Opener         Opener
	Sources        func(*config.Config) []string // ways to unlock that need no person, by name
	Full           bool                          // all of a long ledger, and not a sample
	Now            func() time.Time
	LockedMemory   func() error // why keys cannot be kept out of swap; nil means wallet.LockedMemory

	wallet *tools.Wallet // open
}

// Opener opens what the doctor looks at.
type Opener interface {
	OpenWallet(ctx context.Context, first, last wallet.Passphrase) (*tools.Wallet, error)
	OpenLedger(ctx context.Context) (*history.Store, error)
	Rules() (*config.Config, error)
	SignersByChain(rules *config.Config) map[string]wallet.Signer
	Guard(store *history.Store, rules seal.Rules, key seal.Key) *seal.Guard
}

// checkTimeout bounds each check. A node has ten seconds of its own; whoever waits at a terminal
// has not much more.
const checkTimeout = 15 * time.Second

// maxSkew is what a signature's life can bear; evm refuses beyond it.
const maxSkew = 120 * time.Second

// check is one thing to look at; its findings share a name.
type check struct {
	name string
	look func(context.Context) findings
	long bool // it takes the time that it takes
}

type findings []Finding

func (l *findings) add(status, remedy, format string, args ...any) {
	*l = append(*l, Finding{Status: status, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func found(status, remedy, format string, args ...any) (list findings) {
	list.add(status, remedy, format, args...)
	return list
}

func good(format string, args ...any) findings { return found(ok, "", format, args...) }

// or is what was found, or else that all is well.
func (l findings) or(format string, args ...any) findings {
	if len(l) == 0 {
		return good(format, args...)
	}
	return l
}

// failed is an error with its own remedy.
func failed(err error, otherwise string) findings {
	e := x402.AsError(err)
	message := e.Message
	if e.Code == x402.Internal { // to the person who owns the wallet the cause is no secret
		message = err.Error()
	}
	if said, there := e.Details["node"].(string); there { // why it did not answer, or what it said
		message += ": " + said
	}
	return found(fail, cmp.Or(e.Hint, otherwise), "%s", message)
}

// Examine looks at everything, at once where it waits.
func Examine(ctx context.Context, o Options) Report {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LockedMemory == nil {
		o.LockedMemory = wallet.LockedMemory
	}
	around := []check{{name: "clients", look: o.clients}, {name: "plain-text keys", look: o.keysAbout}}
	if o.empty() {
		return run(ctx, append([]check{{name: "home", look: o.home}}, around...))
	}
	checks := []check{{name: "home", look: o.home}, {name: "keystore", look: o.keystore},
		{name: "rules", look: o.rules}, {name: "seal", look: o.seal},
		{name: "ledger", look: o.ledger, long: o.Full}}
	w, err := o.Opener.OpenWallet(ctx, nil, nil)
	if err != nil {
		checks = append(checks, check{name: "network", look: func(context.Context) findings {
			return found(warn, "fix what is named above, then run this again",
				"nodes, funds and facilitators were not checked: the wallet does not open")
		}})
		return run(ctx, append(checks, around...))
	}
	defer func() { _ = w.Close() }()
	o.wallet = w
	checks = append(checks, check{name: "unlocking", look: o.unlocking},
		check{name: "signers", look: o.signers}, check{name: "servers", look: o.servers},
		check{name: "memory", look: o.memory})
	for _, network := range o.chosen() {
		title := x402.NetworkName(network)
		node := func(ctx context.Context) findings { return o.node(ctx, network) }
		funds := func(ctx context.Context) findings { return o.funds(ctx, network) }
		checks = append(checks, check{name: "node of " + title, look: node},
			check{name: "funds on " + title, look: funds})
	}
	checks = append(checks, check{name: "public nodes", look: o.publicNodes},
		check{name: "facilitators", look: o.facilitators},
		check{name: "environment", look: o.environment})
	return run(ctx, append(checks, around...))
}

// run makes the checks at the same time and reports them in their order.
func run(ctx context.Context, checks []check) Report {
	results := make([]findings, len(checks))
	var wait sync.WaitGroup
	for i, c := range checks {
		wait.Go(func() { results[i] = c.within(ctx) })
	}
	wait.Wait()
	report := Report{OK: true, Checks: findings{}}
	for i, list := range results {
		for _, f := range list {
			f.Check = checks[i].name
			report.OK = report.OK && f.Status != fail
			report.Checks = append(report.Checks, f)
		}
	}
	return report
}

// within is the check's findings, or that it did not end: whoever does not come back is left behind.
func (c check) within(ctx context.Context) findings {
	if !c.long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, checkTimeout)
		defer cancel()
	}
	done := make(chan findings, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- found(fail, "please report this", "the check failed with an internal error (%T)", p)
			}
		}()
		done <- c.look(ctx)
	}()
	select {
	case list := <-done:
		return list
	case <-ctx.Done():
	}
	select {
	case list := <-done: // what it says of running out of time is better than ours
		return list
	case <-time.After(time.Second):
		return found(fail, "run this again; if it stays so, the network or disk is too slow",
			"no result within %s", checkTimeout)
	}
}

func (o Options) seal(ctx context.Context) findings {
	rules, err := o.Opener.Rules()
	if err != nil {
		return found(warn, "fix config.toml first", "not checked: the rules cannot be read")
	}
	store, err := o.Opener.OpenLedger(ctx)
	if err != nil {
		return found(warn, "fix the ledger first", "not checked: the ledger does not open")
	}
	defer func() { _ = store.Close() }()
	if err := o.Opener.Guard(store, rules, nil).CheckConfig(ctx); err != nil {
		return failed(err, "x402-wallet policy shows the difference, x402-wallet policy seal accepts it")
	}
	return good("config.toml is what you sealed, or tighter")
}

func (o Options) ledger(ctx context.Context) (list findings) {
	store, err := o.Opener.OpenLedger(ctx)
	if err != nil {
		return failed(err, "see docs/operating.md, \"The ledger is missing or damaged\"")
	}
	defer func() { _ = store.Close() }()
	list = o.chain(ctx, store)
	if freezes, err := store.Freezes(ctx); err == nil {
		for _, f := range freezes {
			list.add(fail, "look at x402-wallet history, then x402-wallet unfreeze",
				"%s is frozen: %s", f.What(), f.Why)
		}
	}
	if latest, err := report.Ahead(ctx, store); err == nil && !latest.IsZero() {
		list.add(fail, "set the clock; if it is right now, look and accept it with x402-wallet policy seal",
			"payments are dated ahead of this computer's clock, the latest %s: the budgets do not "+
				"reset until then", latest.Format(time.RFC3339))
	}
	list = append(list, o.content(ctx, store)...)
	list = append(list, o.alerts(ctx, store)...)
	if open, err := store.Unfinished(ctx, "", 1000); err == nil && len(open) > 0 {
		list.add(warn, "x402-wallet reconcile asks the chains",
			"%d payments are unfinished; their money is held", len(open))
	}
	return list
}

// alerts complains of what the owner should have been told of within the last week, and could not be.
func (o Options) alerts(ctx context.Context, store *history.Store) (list findings) {
	newest, err := alerts.List(ctx, store, mostAlerts)
	if err != nil {
		return nil
	}
	n := 0
	for _, a := range newest {
		if a.State == alerts.Failed && o.Now().Sub(a.At) < 7*24*time.Hour {
			n++
		}
	}
	if n > 0 {
		list.add(warn, "x402-wallet notify test says why; x402-wallet alerts lists them",
			"of %d things within a week you could not be told", n)
	}
	return list
}

// mostAlerts is how many of the newest alerts are looked at.
const mostAlerts = 1000

// chain compares the ledger with its audit chain: a sample of a long one, unless all of it was asked for.
func (o Options) chain(ctx context.Context, store *history.Store) findings {
	var done verify.Sampled
	var err error
	if o.Full {
		var rows int
		rows, err = verify.Ledger(ctx, store, history.Head{})
		done.Rows, done.AllRows = int64(rows), int64(rows)
	} else {
		done, err = verify.Sample(ctx, store)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return found(warn, "x402-wallet history verify takes its time",
			"the audit chain could not be checked within %s", checkTimeout)
	case err != nil:
		return failed(err, "stop the wallet, keep a copy of the home, restore a backup")
	}
	return checked(done)
}

// checked says how much of a ledger without a fault was looked at.
func checked(done verify.Sampled) findings {
	if done.Whole() {
		return good("the audit chain is intact (%d rows)", done.Rows)
	}
	return good("no fault in a sample: %d of the audit chain's %d rows hold together, and %d of %d payments "+
		"are what it says; x402-wallet doctor --full checks all of them", done.Rows, done.AllRows,
		done.Payments, done.AllPayments)
}

// content says how much of the quota is used.
func (o Options) content(ctx context.Context, store *history.Store) findings {
	rules, err := o.Opener.Rules()
	if err != nil {
		return nil // rules says it
	}
	quota := rules.Policy.ContentQuota
	use, err := content.Keeper{Quota: int64(quota)}.Use(ctx, store)
	if err != nil {
		return nil // ledger says it
	}
	said := fmt.Sprintf("%s of stored content, %s of it not fetched yet, of a quota of %s",
		rounded(use.Stored), rounded(use.Owed), quota)
	const makeRoom = "repeat the calls whose answers were lost, raise policy.content_quota, or give it up: " +
		"x402-wallet ledger prune --before DATE --undelivered"
	switch {
	case use.Refusal() != nil:
		return found(fail, makeRoom, "nothing more is bought: %s", said)
	case use.Owed > use.Quota/2:
		return found(warn, makeRoom, "%s; when that is full, nothing more is bought", said)
	}
	return good("%s", said)
}

// rounded is a number of bytes for people.
func rounded(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1<<10-1)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}

func (o Options) unlocking(ctx context.Context) findings {
	rules, err := o.Opener.Rules()
	if err != nil {
		return nil // rules says it
	}
	if !o.wallet.Keys.Locked() {
		return good("the wallet is unlocked")
	}
	sources := o.Sources(rules)
	if len(sources) == 0 {
		return found(warn, "x402-wallet unlock, or x402-wallet install CLIENT --passphrase-file FILE",
			"locked, and no passphrase file, command or keyring unlocks it: an agent's first payment asks "+
				"you, or fails")
	}
	if file := cmp.Or(o.PassphraseFile, rules.Keystore.PassphraseFile); file != "" {
		passphrase, err := unlock.File(file)(ctx)
		clear(passphrase)
		if err != nil {
			return failed(err, "write the passphrase into it, mode 0600")
		}
	}
	return good("the first payment unlocks the wallet by: %s", sources[0])
}

// memory is whether the keys of an unlocked wallet are kept out of swap. It goes by this process: one
// that was started otherwise, by an agent say, may have another limit.
func (o Options) memory(context.Context) findings {
	if err := o.LockedMemory(); err != nil {
		return found(warn, "raise the limit of locked memory by 64 KiB or more: `ulimit -l`, LimitMEMLOCK= "+
			"of a systemd service, --ulimit memlock= of a container; or encrypt the swap",
			"the keys of an unlocked wallet can be written to the swap: the system refused (%v)", err)
	}
	return good("the keys of an unlocked wallet are kept out of the swap")
}

// environment is what the wallet warns of when it opens and no other check has said: variables that
// do not count, or should not be there.
func (o Options) environment(context.Context) (list findings) {
	var said []string
	if keys, err := wallet.Open(o.Home); err == nil {
		said = keys.Warnings
		_ = keys.Close()
	}
	if rules, err := o.Opener.Rules(); err == nil {
		said = append(said, rules.Warnings...)
		if o.OtherProxy != "" && rules.Network.Proxy == "" {
			list.add(warn,
				"if this machine needs it, write it as proxy under [network] in config.toml, and run "+
					"x402-wallet policy seal", "%s names a proxy, which is ignored", o.OtherProxy)
		}
	}
	for _, warning := range o.wallet.Warnings {
		if !slices.Contains(said, warning) {
			list.add(warn, "see docs/operating.md, \"The environment\"", "%s", warning)
		}
	}
	return list.or("nothing in the environment is ignored or unsafe")
}
