//go:build crash && linux

package crash

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/content"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// scenario is something that the wallet is broken in the middle of.
type scenario struct {
	name string
	path string        // what is bought
	key  string        // its idempotency key; with one it is one purchase for ever
	more string        // what else is bought, with a query of its own; "": the same path
	cap  int           // the session's cap, in payments; 0: none that matters
	dead int           // signatures of before that the chain proves dead
	rule schemes.Rules //

	late    bool               // the ledger knows what was paid minutes later, and holds all of it until then
	signIn  bool               // what was bought is fetched again by signing in, and never paid again
	prepare func(*run) error   // what happened before
	broken  func(*run) error   // what is broken; nil: the paying call over MCP
	books   func(*run, string) // what else the others' books must show, at any time
	judge   func(*run)         // nil: (*run).payment
	slow    bool               // a key is derived at its full cost, several times: of 20 points 1 is tried
}

var scenarios = []scenario{
	{name: "pay-evm", path: "/weather"},
	{name: "pay-solana", path: "/solana"},
	{name: "pay-mpp", path: "/mpp/weather"},
	// the wallet brings the payment to the facilitator itself
	{name: "pay-settling", path: "/settle-first/weather"},
	// the seller is shown the payment and does not look at it, and then the wallet settles
	{name: "pay-ignored", path: "/ignores-payment/weather"},
	// the payer's approval of Permit2 comes with the payment
	{name: "pay-permit2", path: "/permit2", books: (*run).approvals},
	{name: "pay-upto", path: "/upto", late: true, books: (*run).approvals},
	// out of the owner's account, from which a float is taken first
	{name: "pay-float", path: "/weather", rule: schemes.Rules{Float: float}, prepare: approved,
		books: (*run).pulls},
	// and the node takes the float's transaction without a word
	{name: "pay-float-mute", path: "/weather", rule: schemes.Rules{Float: float}, prepare: muted,
		books: (*run).pulls},
	{name: "pay-vault", path: "/weather", rule: schemes.Rules{Vault: true}, prepare: opened,
		books: (*run).vault},
	{name: "sign-in", path: "/archive", signIn: true, more: "/weather",
		rule:    schemes.Rules{Rules: sandbox.Rules{SignIn: "allow"}},
		prepare: bought, books: (*run).signIns, judge: (*run).signedIn},
	// out of a deposit: the call that makes it, and one that shows a voucher alone
	{name: "pay-batch-deposit", path: batch, judge: (*run).channel},
	{name: "pay-batch-voucher", path: batch, prepare: deposited, judge: (*run).channel},
	{name: "resume-batch", path: batch, prepare: abandoned, judge: (*run).channel},
	// at a service that is broken, and by a relay that is
	{name: "pay-service", path: "/weather", broken: paysAtService},
	{name: "pay-relay", path: "/weather", broken: paysByRelay},
	// several at once
	{name: "pay-many", path: "/weather", key: "one", broken: paysMany, judge: (*run).many},
	{name: "pay-cap", path: "/weather", key: "one", cap: 2},
	{name: "replay", path: "/weather", key: "one", prepare: bought},
	// of a payment that was sent, and whose process died
	{name: "resume", path: "/weather", prepare: abandoned},
	{name: "resume-solana", path: "/solana", prepare: abandoned},
	// what it bought pushes two large old contents out of the quota
	{name: "pay-quota", path: "/weather", prepare: full, judge: (*run).withinQuota, slow: true},
	{name: "reconcile-settled", path: "/weather", prepare: settledUnseen, broken: reconcile},
	{name: "reconcile-dead", path: "/weather", dead: 1, rule: schemes.Rules{}, prepare: expired,
		broken: reconcile},
	{name: "rules", path: "/weather", broken: lowerBudget, judge: (*run).lowered},
	{name: "passphrase", path: "/weather", broken: changePassphrase, judge: (*run).changed, slow: true},
	{name: "init", path: "/weather", broken: initialize, judge: (*run).created, slow: true},
}

// run is one point: a scenario with a fault.
type run struct {
	*world
	scenario scenario
	fault    *fault
	bin      string

	calls   []call // what the broken process did
	hit     bool   // the fault struck
	said    string // what the broken process printed, for init
	ended   error  // how it ended
	got     int    // answers with what was bought that the client has read
	others  int    // different payments that were made besides
	owner   uint64 // what the owner, or their vault, had on EVM before
	answers []answer
	wrong   []string // what must not be
	notes   []string // what happened, for a report
}

func (r *run) violation(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// target is what the call was about that the fault struck.
func (r *run) target() string {
	for _, c := range r.calls {
		if r.fault != nil && c.kind == r.fault.call && c.n == r.fault.n {
			return c.target
		}
	}
	return "not reached"
}

func (r *run) call(query string) map[string]any {
	path := r.scenario.path
	if query != "" {
		path = cmp.Or(r.scenario.more, path) + query
	}
	args := map[string]any{"url": r.SellerURL + path}
	if r.scenario.key != "" && query == "" {
		args["idempotencyKey"] = r.scenario.key
	}
	return args
}

// execute runs the point: what was before, what is broken, two restarts, the judgement.
func (s scenario) execute(bin string, in *databases, f *fault) (*run, error) {
	rules := s.rule
	rules.PerCall, rules.ApproveAbove = "0.50", "0.50"
	if s.cap > 0 {
		rules.Session = fmt.Sprintf("0.%03d", s.cap) // everything here costs a tenth of a cent
	}
	w, err := newWorld(rules, in)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	r := &run{world: w, scenario: s, fault: f, bin: bin}
	if s.prepare != nil {
		if err := s.prepare(r); err != nil {
			return nil, fmt.Errorf("%s: prepare: %w", s.name, err)
		}
	}
	breaks := s.broken
	if breaks == nil {
		breaks = pays
	}
	if err := errors.Join(breaks(r), r.over()); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if f != nil && !r.hit {
		return r, nil // nothing was broken
	}
	judge := s.judge
	if judge == nil {
		judge = (*run).payment
	}
	judge(r)
	return r, nil
}

// pays is the paying call over MCP, from the process's start to its end.
func pays(r *run) error {
	p, err := r.start(r.bin, true, r.fault, "mcp")
	if err != nil {
		return err
	}
	defer func() {
		p.kill()
		r.calls, r.hit = p.watched()
	}()
	if err := p.initialize(); err != nil {
		r.broke("initialize", err, p)
		return nil
	}
	if !r.same(p, "the broken process") {
		return nil
	}
	if err := p.end(); err != nil && !r.died(p) {
		r.broke("end", err, p)
	}
	return nil
}

// died reports whether the fault is one that ends the process, and struck.
func (r *run) died(p *process) bool {
	_, hit := p.watched()
	return hit && (r.fault.act == kill || r.fault.act == killAfter)
}

// broke is called when the broken process did not do something: it may have been killed, and nothing else.
func (r *run) broke(doing string, err error, p *process) {
	if p.behind != nil {
		p = p.behind
	}
	if p.injector != nil {
		// the injector notes a hit before it kills; its end may be seen before that
		<-time.After(10 * time.Millisecond)
		if r.died(p) && !errors.Is(err, errHangs) {
			return
		}
	}
	r.violation("%s: %v; its log: %s", doing, err, p.stderr)
}

// same makes the same call once more, and holds the answer against what the seller and the chain
// saw. It is false when the process is gone.
func (r *run) same(p *process, who string) bool {
	before := r.Presentations()
	a, err := p.pay(r.call(""))
	if err != nil {
		r.broke(who, err, p)
		return false
	}
	r.answers = append(r.answers, a)
	r.note("%s: %s", who, a)
	sent := r.Presentations() - before
	if a.Error != "" && a.Spent == "0" && sent > 0 {
		r.violation("%s says that nothing was spent (%s), but a signed payment left during the call", who, a)
	}
	if a.paid() && len(r.Settlements()) == 0 {
		r.violation("%s says %s, but nothing was settled", who, a)
	}
	if r.served(a) && a.Content != schemes.Content(r.product()) {
		r.violation("%s has not the content: %q", who, a.Content)
	}
	r.bounded(who)
	if a.got() {
		r.got++
	}
	return true
}

// served reports whether an answer is what was bought, got in the way that the scenario gets it.
func (r *run) served(a answer) bool {
	return a.got() || (r.scenario.signIn && a.Error == "" && a.Status == "free")
}

// holdsAll reports whether an answer says that the price is held, where that is all that can be known yet:
// what settled for less than was signed for is booked when the wallet's own clock is past its end.
func (r *run) holdsAll(a answer) bool {
	return r.scenario.late && a.Error != "" && a.Spent == fmt.Sprint(schemes.Price(r.scenario.path)) &&
		len(r.Settlements()) > 0
}

// product is the path without the dialect.
func (r *run) product() string { return "/" + filepath.Base(r.scenario.path) }

// purchases is how many there may be by now.
func (r *run) purchases() int {
	if r.scenario.key == "" && !r.scenario.signIn {
		return 1 + r.got + r.others
	}
	return 1 + r.others
}

// bounded judges by the books of seller, facilitator and chains: one purchase, one settlement of its price
// at most, one signature. An answer that the client has read ends the purchase; the same call may then be
// another one, unless it has a key or signs in.
func (r *run) bounded(who string) {
	if r.scenario.path == batch {
		r.promised(who)
		return
	}
	allowed := r.purchases()
	if n := len(r.Settlements()); n > allowed {
		r.violation("%s: paid twice: %d settlements, %d allowed", who, n, allowed)
	}
	if n := r.Signatures(); n > allowed+r.scenario.dead {
		r.violation("%s: signed again: %d different payments were seen, %d allowed", who, n,
			allowed+r.scenario.dead)
	}
	for _, s := range r.Settlements() {
		if price := schemes.Price(r.scenario.path); s.Amount > price {
			r.violation("%s: a settlement of %d, the price is %d", who, s.Amount, price)
		}
	}
	if r.scenario.books != nil {
		r.scenario.books(r, who)
	}
}

// payment is the judgement of everything that pays: two restarts with the same call, then another payment.
func (r *run) payment() {
	r.bounded("the broken process")
	if r.restart("the first restart", func(p *process) {
		r.same(p, "the first restart")
		p.kill()
	}) {
		r.restart("the second restart", func(p *process) {
			if r.same(p, "the second restart") {
				last := r.answers[len(r.answers)-1]
				if !last.paid() && !r.served(last) && !r.holdsAll(last) {
					r.violation("after two restarts the same call still fails: %s", last)
				}
			}
			r.another(p)
			if err := p.end(); err != nil {
				r.violation("the second restart does not end well: %v; its log: %s", err, p.stderr)
			}
		})
	}
	r.ledger()
}

func (r *run) restart(who string, f func(*process)) bool {
	p, err := r.start(r.bin, false, nil, "mcp")
	if err == nil {
		err = p.initialize()
	}
	if err != nil {
		r.violation("%s: %v", who, err)
		return false
	}
	f(p)
	p.kill()
	if err := r.over(); err != nil {
		r.violation("%s: %v", who, err)
		return false
	}
	return true
}

// another is a different purchase, which must work; and one more, which must not if there is a cap.
func (r *run) another(p *process) {
	before := len(r.Settlements())
	a, err := p.pay(r.call("?another=1"))
	if err != nil || a.Status != "paid" {
		r.violation("a different payment fails after two restarts: %v %s; its log: %s", err, a, p.stderr)
		return
	}
	r.answers = append(r.answers, a)
	r.others++
	want := 1
	if r.scenario.path == batch {
		want = 0 // its deposit was there
	}
	if n := len(r.Settlements()) - before; n != want {
		r.violation("a different payment settled %d times", n)
	}
	r.bounded("a different payment")
	if r.scenario.cap == 0 {
		return
	}
	a, err = p.pay(r.call("?more=1"))
	if err != nil || a.Error != "BUDGET_EXCEEDED" {
		r.violation("beyond the session's cap: %v %s", err, a)
	}
	if n := len(r.Settlements()); n > r.scenario.cap {
		r.violation("over the session's cap: %d settlements, %d allowed", n, r.scenario.cap)
	}
}

// What happened before.

// before runs a wallet undisturbed.
func (r *run) before(f func(*process) error) error {
	p, err := r.start(r.bin, false, nil, "mcp")
	if err != nil {
		return err
	}
	err = p.initialize()
	if err == nil {
		err = f(p)
	}
	p.kill()
	return errors.Join(err, r.over())
}

// bought: the same call was made and answered.
func bought(r *run) error {
	return r.before(func(p *process) error {
		a, err := p.pay(r.call(""))
		if err == nil && a.Status != "paid" {
			err = errors.New(a.String())
		}
		r.answers = append(r.answers, a)
		return errors.Join(err, p.end())
	})
}

// abandoned: the payment reached the seller, which did nothing yet, and the wallet died.
func abandoned(r *run) error {
	r.Inject("seller hangs before", 1)
	err := r.before(func(p *process) error {
		go p.pay(r.call("")) //nolint:errcheck // never answered
		for until := time.Now().Add(patience); r.Presentations() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				return errHangs
			}
		}
		return nil
	})
	r.Heal()
	return err
}

// unknown: the seller failed, so that the outcome is open, and the wallet died.
func unknown(r *run, f string) error {
	r.Inject(f, 1)
	return r.before(func(p *process) error {
		a, err := p.pay(r.call(""))
		if err == nil && a.Error != "OUTCOME_UNKNOWN" {
			err = errors.New(a.String())
		}
		return err
	})
}

// settledUnseen: it was settled, but nobody told.
func settledUnseen(r *run) error { return unknown(r, "seller fails mute") }

// expired: it was never settled, and the chain is past its last moment. The wallet signs for ten
// seconds here, so that the chain has to be ahead of its clock by less than what later payments live.
func expired(r *run) error {
	file := filepath.Join(r.home, "config.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	short := strings.Replace(string(text), "[policy]\n", "[policy]\nmax_timeout_seconds = 10\n", 1)
	if err := r.rule(short); err != nil {
		return err
	}
	if err := unknown(r, "seller cuts before"); err != nil {
		return err
	}
	r.Advance(16 * time.Second)
	if err := r.longAgo(); err != nil {
		return err
	}
	return r.rule(string(text))
}

// quota is the least that an owner can set.
const quota = 64 << 20

// full: the quota is full of two old purchases, which their client has.
func full(r *run) error {
	text, err := os.ReadFile(filepath.Join(r.home, "config.toml"))
	if err != nil {
		return err
	}
	small := strings.Replace(string(text), "[policy]\n", "[policy]\ncontent_quota = \"64MiB\"\n", 1)
	err = errors.Join(r.rule(small), r.before(func(p *process) error {
		for _, query := range []string{"?old=1", "?old=2"} {
			a, err := p.pay(r.call(query))
			if err != nil || !a.got() {
				return errors.Join(err, errors.New(a.String()))
			}
			r.got++
			r.answers = append(r.answers, a)
		}
		return p.end()
	}))
	if err != nil {
		return err
	}
	ctx := context.Background()
	store, err := r.open(ctx, history.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	for _, a := range r.answers {
		// that it is settled stays
		_, err := store.Finish(ctx, a.PaymentID, history.Outcome{State: history.Unknown,
			Content: &history.Content{Status: 200, Type: "text/plain", Body: make([]byte, quota/2)}})
		if err != nil {
			return err
		}
	}
	return nil
}

// withinQuota is the judgement of a payment whose content took the place of others.
func (r *run) withinQuota() {
	r.payment() // which verifies the ledger, and how much of content there is
	store, err := r.open(context.Background(), history.Options{})
	if err != nil {
		r.violation("the ledger: %v", err)
		return
	}
	defer store.Close()
	use, err := content.Keeper{}.Use(context.Background(), store)
	if err != nil || use.Stored > quota || use.Stored == 0 {
		r.violation("%d bytes of content are stored, the quota is %d: %v", use.Stored, quota, err)
	}
}

// longAgo makes the one payment that was made one of ten minutes ago, signed for and sealed as it was:
// none is called expired before the wallet's own clock says so, and waiting for that would take
// minutes in each run.
func (r *run) longAgo() error {
	list, err := r.payments()
	if err != nil || len(list) != 1 {
		return errors.Join(err, fmt.Errorf("%d payments, not one", len(list)))
	}
	was := list[0]
	if err := errors.Join(r.newLedger(), testworld.SealHome(r.home, template.keys)); err != nil {
		return err
	}
	ctx, then := context.Background(), was.Created.Add(-10*time.Minute)
	store, err := r.open(ctx, history.Options{Now: func() time.Time { return then }})
	if err != nil {
		return err
	}
	defer store.Close()
	rules, err := config.Load(r.home)
	if err != nil {
		return err
	}
	guard := &seal.Guard{Home: r.home, Rules: rules, Store: store, Key: template.keys}
	key, err := guard.Keyholder(ctx)
	if err != nil {
		return err
	}
	free := historytest.Keyholder()
	key.Query, key.Permit = free.Query, free.Permit
	again, err := historytest.Reserve(ctx, store, history.Hold{Payment: was,
		Funds: x402.Funds{Source: was.Source, Free: was.Amount}})
	if err != nil {
		return err
	}
	evidence := was.Evidence
	evidence.ExpiresAt = evidence.ExpiresAt.Add(-10 * time.Minute)
	err = store.Submit(ctx, again, history.Signed{Payload: was.Payload, Requirement: was.Requirement,
		Evidence: evidence, UniqueKey: evidence.Unique()}, key)
	if err != nil {
		return err
	}
	_, err = store.Finish(ctx, again.ID, history.Outcome{State: history.Unknown, Note: was.Note,
		ReleaseLease: true, ClearWaiter: true})
	return errors.Join(err, guard.Checkpoint(ctx))
}

// reconcile is the command.
func reconcile(r *run) error {
	return must.Err(r.command("reconcile", "--json"))
}

// command runs one of the person's commands, broken.
func (r *run) command(args ...string) (ok bool, err error) {
	p, err := r.start(r.bin, true, r.fault, args...)
	if err != nil {
		return false, err
	}
	text, failed := p.output()
	p.kill()
	r.calls, r.hit = p.watched()
	r.said, r.ended = string(text), failed
	r.note("%s: %v: %s", args[0], failed, strings.TrimSpace(r.said+p.stderr.String()))
	if errors.Is(failed, errHangs) || (failed != nil && !r.hit) {
		r.violation("%s: %v; its log: %s", args[0], failed, p.stderr)
	}
	return failed == nil, nil
}

// lowerBudget changes a rule, which takes config.toml, its seal in the ledger, and the ledger's mark.
func lowerBudget(r *run) error {
	return must.Err(r.command("budget", "set", "day", "0.25", "--json"))
}

// lowered is the judgement of a changed rule: the old rules stand or the new ones, the command can
// be made again, and the wallet pays under them.
func (r *run) lowered() {
	p, err := r.start(r.bin, false, nil, "budget", "set", "day", "0.25", "--json")
	if err != nil {
		r.violation("the same command: %v", err)
		return
	}
	if text, err := p.output(); err != nil {
		r.violation("the same command: %v: %s%s", err, text, p.stderr)
	}
	rules, err := config.Load(r.home)
	if err != nil || rules.Budget.Day != 250_000 {
		r.violation("the rules: %+v %v", rules, err)
	}
	r.payment()
}

// newPassphrase is what passphrase changes it to.
const newPassphrase = "another horse battery staple"

func changePassphrase(r *run) error {
	file := filepath.Join(r.dir, "new")
	if err := os.WriteFile(file, []byte(newPassphrase+"\n"), 0o600); err != nil {
		return err
	}
	_, err := r.command("passphrase", "--passphrase-file", r.passphraseFile(), "--new-passphrase-file", file,
		"--json")
	return err
}

// changed is the judgement of a change: the old passphrase opens the wallet or the new one does,
// the new one if it was said, and it is the same wallet, which pays.
func (r *run) changed() {
	var opens []string
	for _, candidate := range []string{passphrase, newPassphrase} {
		w, err := wallet.Open(r.home)
		if err != nil {
			r.violation("the keystore: %v", err)
			return
		}
		if w.Unlock(context.Background(), wallet.FromValue(candidate)) == nil {
			opens = append(opens, candidate)
			if _, at := w.Addresses(); at != template.evm {
				r.violation("the address is %s, it was %s", at, template.evm)
			}
		}
		_ = w.Close()
	}
	said := strings.Contains(r.said, `"changed"`)
	if len(opens) != 1 || (said && opens[0] != newPassphrase) {
		r.violation("%d passphrases open the wallet; it said %q", len(opens), r.said)
		return
	}
	if err := os.WriteFile(r.passphraseFile(), []byte(opens[0]+"\n"), 0o600); err != nil {
		r.violation("%v", err)
	}
	r.payment()
}

// initialize makes a wallet where there is none.
func initialize(r *run) error {
	config, err := os.ReadFile(filepath.Join(r.home, "config.toml"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, "given.toml"), config, 0o600); err != nil {
		return err
	}
	if err := os.RemoveAll(r.home); err != nil {
		return err
	}
	if r.database != nil {
		if _, err := r.database.Exec(`DROP SCHEMA x402 CASCADE`); err != nil {
			return err
		}
	}
	return must.Err(r.command(r.initArgs()...))
}

func (r *run) initArgs() []string {
	return []string{"init", "--passphrase-file", r.passphraseFile(), "--config",
		filepath.Join(r.dir, "given.toml"), "--json"}
}

// created is the judgement of init: run again it makes a wallet or finds the one that is there, and
// that one pays.
func (r *run) created() {
	told := addresses([]byte(r.said))
	var last []byte
	for _, who := range []string{"the first restart", "the second restart"} {
		p, err := r.start(r.bin, false, nil, r.initArgs()...)
		if err != nil {
			r.violation("%s: %v", who, err)
			return
		}
		text, err := p.output()
		if err != nil && !strings.Contains(string(text)+p.stderr.String(), "KEYPAIR_EXISTS") {
			r.violation("%s of init: %v: %s%s", who, err, text, p.stderr)
			return
		}
		if err == nil && (who == "the second restart" || told != "") {
			r.violation("%s of init: made another wallet: %s", who, text)
		}
		if err == nil {
			last = text
		}
	}
	p, err := r.start(r.bin, false, nil, "address", "--json")
	if err != nil {
		r.violation("address: %v", err)
		return
	}
	text, err := p.output()
	now := addresses(text)
	if err != nil || now == "" {
		r.violation("address: %v: %s%s", err, text, p.stderr)
		return
	}
	for _, before := range []string{told, addresses(last)} {
		if before != "" && before != now {
			r.violation("init said %s, now it is %s", before, now)
		}
	}
	evm, _, _ := strings.Cut(now, " ")
	r.Fund(evm, sandbox.USDC)
	r.restart("the new wallet", func(p *process) { r.another(p) })
	r.ledger()
}

// addresses reads them out of what init and address print; "" when they are not there in full.
func addresses(text []byte) string {
	var out struct {
		Addresses []struct{ Chain, Address string }
	}
	if json.Unmarshal(text, &out) != nil || len(out.Addresses) < 2 {
		return ""
	}
	byChain := map[string]string{}
	for _, a := range out.Addresses {
		byChain[a.Chain] = a.Address
	}
	return byChain["evm"] + " " + byChain["solana"]
}
