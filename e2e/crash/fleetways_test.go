//go:build crash && linux

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
	"x402-wallet/wallet/seal"
)

// What is broken in a fleet besides its payments, and what must be so after that.

// longDead is what happened before, and whoever died in it is taken for dead.
func longDead(prepare func(*run) error) func(*run) error {
	return func(r *run) error { return errors.Join(prepare(r), r.fleet.pass()) }
}

// paysByCommand is the paying call by the command.
func paysByCommand(r *run) error {
	_, err := r.command("pay", r.SellerURL+r.scenario.path)
	if err != nil {
		return err
	}
	var a answer
	if json.Unmarshal([]byte(r.said), &a) == nil && a.got() {
		r.got++
		r.answers = append(r.answers, a)
	}
	r.bounded("the broken process")
	return nil
}

// freezes is the command that stops a fleet.
func freezes(r *run) error {
	_, err := r.command("freeze")
	return err
}

// frozen is the judgement of it: what was said to be stopped is, on the other machine, too; made again it
// is; the owner alone lets it go on, and then both pay.
func (r *run) frozen() {
	said := strings.Contains(r.said, `"frozen"`)
	for _, isAgain := range []bool{false, true} {
		if isAgain {
			p, err := r.start(r.bin, false, nil, "freeze")
			if err != nil {
				r.violation("freeze: %v", err)
				return
			}
			if text, err := p.output(); err != nil {
				r.violation("freeze again: %v: %s%s", err, text, p.stderr)
			}
			said = true
		}
		if !said {
			continue
		}
		r.restart("a machine of a frozen fleet", func(p *process) {
			a, err := p.pay(r.call(""))
			if err != nil || a.Error != "WALLET_FROZEN" {
				r.violation("a frozen fleet pays: %s %v", a, err)
			}
		})
	}
	if n := r.Signatures(); n > 0 {
		r.violation("a frozen fleet signed %d payments", n)
	}
	if err := r.fleet.lift(); err != nil {
		r.violation("unfreeze: %v", err)
	}
	r.payment()
}

// lift is unfreeze, on the owner's machine.
func (f *fleetWorld) lift() error {
	ctx := context.Background()
	store, err := f.ledgerOf("home_owner")
	if err != nil {
		return err
	}
	defer store.Close()
	keys, err := wallet.Open(f.owner)
	if err != nil {
		return err
	}
	defer keys.Close()
	at := &seal.Fleet{Anchor: fleet.Anchor{Owner: fleet.Key(owner.key.Public()), Ledger: f.id}, Now: time.Now}
	defer at.Close()
	if err := at.UnlockOwner(ctx, keys, wallet.FromValue(passphrase)); err != nil {
		return err
	}
	rules, err := config.Load(f.owner)
	if err != nil {
		return err
	}
	guard := &seal.Guard{Home: f.owner, Rules: rules, Store: store, Key: keys, Fleet: at}
	_, err = guard.Unfreeze(ctx)
	return err
}

// ownersCommand runs a command that asks the owner for the passphrase, on its page.
func (r *run) ownersCommand(watched bool, args ...string) (text []byte, err error) {
	machine := r.home
	r.home = r.fleet.owner
	defer func() { r.home = machine }()
	f := r.fault
	if !watched {
		f = nil
	}
	p, err := r.start(r.bin, watched, f, append(args, "--page")...)
	if err != nil {
		return nil, err
	}
	typing := make(chan error, 1)
	go func() { typing <- p.typePassphrase() }()
	text, err = p.output()
	typed := <-typing
	if watched {
		p.kill()
		r.calls, r.hit = p.watched()
		r.said, r.ended = string(text), err
	}
	r.note("%s: %v: %s %s; typed: %v", args[0], err, strings.TrimSpace(string(text)), p.stderr, typed)
	return text, err
}

// typePassphrase answers the page that a process asks its owner on, until it has ended.
func (p *process) typePassphrase() error {
	page := ""
	for page == "" {
		select {
		case <-p.waited:
			return nil
		case <-time.After(time.Millisecond):
			page = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S+`).FindString(p.stderr.String())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, page,
		strings.NewReader(url.Values{"passphrase": {passphrase}}.Encode()))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	at, err := url.Parse(page)
	if err != nil {
		return err
	}
	post.Header.Set("Origin", at.Scheme+"://"+at.Host)
	post.Close = true
	answer, err := http.DefaultClient.Do(post)
	if err != nil {
		return nil //nolint:nilerr // it was killed
	}
	return answer.Body.Close()
}

// breaksOwners breaks a command of the owner's.
func (r *run) breaksOwners(args ...string) error {
	_, err := r.ownersCommand(true, args...)
	if errors.Is(err, errHangs) || (err != nil && !r.hit) {
		r.violation("%s: %v; %s", args[0], err, r.notes)
	}
	return nil
}

// sealsFirst makes the ledger, the owner's key and the first rules.
func sealsFirst(r *run) error { return r.breaksOwners("policy", "seal", "--fleet") }

// sealed is the judgement of sealing: made again it is done, by the same key if there was one, and machines
// pay by these rules.
func (r *run) sealed() {
	type outcome struct {
		Ledger, Owner string
		Version       int64
	}
	var broken, again outcome
	_ = json.Unmarshal([]byte(r.said), &broken)
	text, err := r.ownersCommand(false, "policy", "seal", "--fleet")
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		r.violation("the same command: %v %s", err, text)
		return
	}
	if broken.Ledger != "" && (broken.Ledger != again.Ledger || broken.Owner != again.Owner ||
		broken.Version >= again.Version) {
		r.violation("it said %+v, and then %+v", broken, again)
	}
	n, err := r.fleet.number(`SELECT count(*) FROM x402.rules`)
	if err != nil || n != again.Version {
		r.violation("%d versions of the rules, it says %d: %v", n, again.Version, err)
	}
	r.joined(again.Ledger)
}

// joined enrols the machines with the key that the owner's keystore has, and they pay.
func (r *run) joined(ledger string) {
	keys, err := wallet.Open(r.fleet.owner)
	if err != nil {
		r.violation("the owner's keystore: %v", err)
		return
	}
	defer keys.Close()
	typed := wallet.FromValue(passphrase)
	key, err := keys.OwnerKey(context.Background(), typed)
	if err != nil {
		r.violation("the owner's key: %v", err)
		return
	}
	defer key.Close()
	f := *r.fleet
	db := *f.database
	db.id, f.database = ledger, &db
	if err := f.join(key, owner.keystore); err != nil {
		r.violation("enrol: %v", err)
		return
	}
	r.home = f.machines[1]
	r.payment()
}

// resealed: the owner lets more be spent in a session than was, while a machine pays.
func resealed(r *run) error {
	file := filepath.Join(r.fleet.owner, config.FileName)
	rules, err := config.ReadFile(file, 1<<20)
	if err != nil {
		return err
	}
	more := strings.Replace(string(rules), `day = "10.00"`, `day = "9.00"`, 1)
	if more == string(rules) {
		return errors.New("the rules have no such day")
	}
	if err := config.WriteFile(file, []byte(more)); err != nil {
		return err
	}
	return r.breaksOwners("policy", "seal", "--fleet")
}

// sealedAgain is the judgement of that: the old rules hold or the new ones, and after the same command the
// new.
func (r *run) sealedAgain() {
	// both at one moment: the server may commit what a killed command had sent
	const most = 1_000_000_000
	both, err := r.fleet.number(fmt.Sprintf(`SELECT (SELECT max(version) FROM x402.rules) * %d + day
		FROM x402.budgets WHERE id = 'org'`, most))
	versions, day := both/most, both%most
	want := map[int64]int64{1: 10_000_000, 2: 9_000_000}[versions]
	if err != nil || day != want {
		r.violation("version %d has a day of %d: %v", versions, day, err)
	}
	if strings.Contains(r.said, `"version"`) && versions != 2 {
		r.violation("it said %s, and there is version %d", r.said, versions)
	}
	if text, err := r.ownersCommand(false, "policy", "seal", "--fleet"); err != nil {
		r.violation("the same command: %v %s", err, text)
	}
	day, err = r.fleet.number(`SELECT day FROM x402.budgets WHERE id = 'org'`)
	if err != nil || day != 9_000_000 {
		r.violation("the day is %d: %v", day, err)
	}
	r.payment()
}

// enrols lets another machine join: with a join.json and a keystore.
func enrols(r *run) error { return r.breaksOwners(r.enrolment()...) }

func (r *run) enrolment() []string {
	return []string{"agents", "enroll", "research-2", "--team", teamName, "--until",
		time.Now().AddDate(0, 1, 0).Format(time.DateOnly), "--out", filepath.Join(r.dir, "join.json"),
		"--keystore", filepath.Join(r.dir, "keystore.json")}
}

// enrolled is the judgement of that: made again it is done, and the machine pays.
func (r *run) enrolled() {
	if text, err := r.ownersCommand(false, r.enrolment()...); err != nil {
		r.violation("the same command: %v %s", err, text)
		return
	}
	for i, home := range r.fleet.machines {
		err := errors.Join(copyFile(filepath.Join(r.dir, "join.json"), filepath.Join(home, "join.json")),
			copyFile(filepath.Join(r.dir, "keystore.json"), filepath.Join(home, "keystore.json")))
		if err != nil {
			r.violation("machine %d: %v", i, err)
		}
	}
	r.payment()
}

// openLedger is the ledger, for the judge.
func (r *run) openLedger(ctx context.Context) (*history.Store, error) {
	if r.fleet != nil {
		return r.fleet.ledgerOf("judge")
	}
	return history.Open(ctx, r.home, history.Options{})
}

// counted holds what a fleet's budget has used against its payments, by plain SQL, and looks for chains
// that are no home's.
func (r *run) counted() {
	if r.fleet == nil {
		return
	}
	nobodys, err := r.fleet.number(`SELECT count(*) FROM x402.writers
		WHERE name <> 'owner' AND name !~ '^home_.{5}'`)
	if err != nil || nobodys > 0 {
		r.violation("%d chains are no home's: %v", nobodys, err)
	}
	for _, win := range []string{"day", "month", "session"} {
		more, err := r.fleet.number(fmt.Sprintf(`SELECT (SELECT coalesce(sum(used), 0) FROM x402.counters
			WHERE budget = 'org' AND win = '%s') - (SELECT coalesce(sum(usd - returned), 0)
			FROM x402.payments WHERE state <> 'failed')`, win))
		if err != nil || more != 0 {
			r.violation("the %s's counter says %d more than its payments come to: %v", win, more, err)
		}
	}
}
