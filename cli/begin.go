package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/internal/install"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// A new wallet is nothing yet: it has to be unlocked for the agent, written into the agent's client, and
// funded. On a terminal init offers each of these at once, until the first purchase (first.go); flags say
// the same for scripts. What goes wrong after the wallet was made is said, and does not undo it.

// How the agent's wallet is unlocked.
const (
	unlockAgent   = "agent"
	unlockKeyring = "keyring"
	unlockByFile  = "file"
	unlockNone    = "none"
)

type beginning struct {
	initFlags
	p    *Program
	ui   *ui
	talk *dialogue // nil: nobody is asked

	system   install.System
	unlocked bool // the unlock agent runs
	// the keystore keeps a phrase, and whether its owner has seen it
	hasPhrase, sawPhrase bool
	out                  initOut
}

func (p *Program) begin(ui *ui, f initFlags) (*beginning, error) {
	b := &beginning{initFlags: f, p: p, ui: ui}
	if f.keyring {
		if f.unlock != "" && f.unlock != unlockKeyring {
			return nil, usagef("--keyring and --unlock %s cannot be used together", f.unlock)
		}
		b.unlock = unlockKeyring
	}
	if !slices.Contains([]string{"", unlockAgent, unlockKeyring, unlockByFile, unlockNone}, b.unlock) {
		return nil, usageError{text: fmt.Sprintf("there is no way to unlock that is called %q", f.unlock),
			hint: "it is one of agent, keyring, file, none"}
	}
	b.keyring = b.unlock == unlockKeyring
	if err := f.phrase.check(f); err != nil {
		return nil, err
	}
	var err error
	b.system, err = p.system()
	if err != nil {
		return nil, err
	}
	for _, name := range f.clients {
		if name == "all" || name == "none" {
			continue
		}
		if _, err := clientNamed(b.system, name); err != nil {
			return nil, err
		}
	}
	asks := !f.yes && !f.askNobody && !ui.json
	if asks && isTerminal(p.Stdin) && ui.terminal && ui.errTerminal {
		b.talk = &dialogue{ui: ui, in: p.Stdin, lines: make(chan answer, 1)}
	}
	return b, nil
}

// takeOzskrKey asks whether the key of the ozskr wallet becomes this wallet's Solana key, so that its
// address stays. Its file is read as every imported one is: by its owner alone, and never changed.
func (b *beginning) takeOzskrKey(ctx context.Context, file string) error {
	if file == "" || b.importsSolana() {
		return nil
	}
	taken := b.yes
	if b.talk != nil {
		var err error
		taken, err = b.talk.yes(ctx, fmt.Sprintf("AGENT_KEYPAIR_PATH names %s.\nTake its key into this "+
			"wallet, so that its Solana address stays?", safe(file)), true)
		if err != nil {
			return err
		}
	}
	if !taken {
		// shown before there are new keys, while it can still be stopped
		b.ui.warn([]string{fmt.Sprintf("AGENT_KEYPAIR_PATH names %s, but its key is not imported: this "+
			"wallet gets a new one. To keep the address, stop here and run x402-wallet init %s %s", file,
			importFlag(file), shellWord(file))})
		return nil
	}
	if importFlag(file) == "--import-solana" {
		b.importSolana = file
	} else {
		b.importOzskr = file
	}
	return nil
}

// importFlag is how a file of the ozskr wallet is imported: a keystore of its SDK, or a key pair of the
// Solana command line, which is a JSON array.
func importFlag(file string) string {
	text, err := readBounded(file, 1<<10)
	if err == nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		clear(text)
		return "--import-solana"
	}
	clear(text)
	return "--import-ozskr"
}

// chooseUnlock asks how the agent's wallet will be unlocked, before the rules are sealed that say it.
func (b *beginning) chooseUnlock(ctx context.Context, rules *config.Config, isTheirs bool) error {
	switch {
	case b.unlock != "":
	case b.hasFile():
		b.unlock = unlockByFile
	case b.talk != nil:
		idle := strings.TrimSuffix(rules.Keystore.Idle.String(), "0s")
		list := []choice{
			{unlockAgent, "a process holds the key until nothing was paid for " + idle +
				"; then you type the passphrase again"},
			{unlockKeyring, "the system keeps the passphrase: nothing to type, but programs that run as " +
				"you can read it"},
			{unlockByFile, "a file of mode 0600 keeps it: as the keyring, also where no desktop runs"},
			{unlockNone, "decide later"},
		}
		if isTheirs && !rules.Keystore.Keyring { // the owner's own file says that it is not asked
			list = slices.Delete(list, 1, 2)
		}
		var err error
		b.unlock, err = b.talk.pick(ctx, "How will the agent's wallet be unlocked?", list)
		if err != nil {
			return err
		}
	}
	b.keyring = b.unlock == unlockKeyring
	return nil
}

// withWallet does what can be done with the new wallet.
func (b *beginning) withWallet(ctx context.Context, keys *wallet.Wallet, rules *config.Config,
	passphrase []byte) error {
	b.out = initOut{Home: b.p.Home, Addresses: addresses(&keys.Account),
		Config: filepath.Join(b.p.Home, config.FileName)}
	if !b.ui.json {
		b.ui.say("The wallet is in %s\n", b.p.Home)
		for _, a := range b.out.Addresses {
			b.ui.say("%s\n  %s\n", title(a.Chain), a.Address)
			if b.talk == nil { // else the one that is funded first, below
				b.ui.qr(a.Address)
				b.ui.say("")
			}
		}
	}
	b.showPhrase(ctx, keys, passphrase)
	b.setUpUnlock(ctx, keys, rules, passphrase)
	b.installAll(ctx)
	b.fund(ctx, rules)
	b.buy(ctx, passphrase)
	steps := b.nextSteps()
	b.out.NextSteps = each(steps, nextStep.String)
	return b.ui.answer(b.out, func() {
		if b.talk != nil {
			b.ui.say("")
		}
		b.ui.steps(steps)
	})
}

func (b *beginning) failed(what string, err error) {
	said := x402.AsError(err)
	if said.Code == x402.Internal { // to the owner its cause is no secret
		b.ui.warn([]string{what + ": " + err.Error()})
		return
	}
	b.ui.warn([]string{strings.TrimSuffix(what+": "+said.Message+"; "+said.Hint, "; ")})
}

// unlockFile is the passphrase file that the agent's wallet reads; "": none.
func (b *beginning) unlockFile() string {
	if b.unlock != unlockByFile {
		return ""
	}
	// beside the home, so that a copy of that does not hold it too
	file := b.p.Home + ".passphrase"
	if b.hasFile() {
		file = b.passphrase.file
	}
	if whole, err := filepath.Abs(file); err == nil {
		return whole
	}
	return file
}

func (b *beginning) hasFile() bool { return b.passphrase.file != "" && b.passphrase.fd < 0 }

func (b *beginning) setUpUnlock(ctx context.Context, keys *wallet.Wallet, rules *config.Config,
	passphrase []byte) {
	switch b.unlock {
	case unlockKeyring:
		b.ui.warn(intoKeyring(ctx, keys, passphrase, rules))
	case unlockByFile:
		if b.hasFile() {
			return
		}
		if err := b.writePassphrase(passphrase); err != nil {
			b.failed("the passphrase file was not written", err)
			b.unlock = unlockNone
			return
		}
	case unlockAgent:
		running, err := b.p.unlockBehind(ctx, b.ui, typed(passphrase))
		if err != nil {
			b.failed("the wallet was not unlocked", err)
			return
		}
		b.unlocked = true
		if !b.ui.json {
			_ = b.ui.unlocked(running) // text, on a terminal that is there
		}
	default:
		return
	}
	b.out.Unlock = b.unlock
}

func (b *beginning) writePassphrase(passphrase []byte) error {
	path := b.unlockFile()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already, and is not overwritten", path)
	}
	if err != nil {
		return err
	}
	line := append(bytes.Clone(passphrase), '\n')
	defer clear(line)
	_, err = file.Write(line)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil && !b.ui.json {
		b.ui.say("the passphrase is in %s, for nobody but you to read\n", path)
	}
	return err
}

func (b *beginning) installAll(ctx context.Context) {
	entry, err := b.p.entry(ctx, b.unlockFile(), nil)
	if err != nil {
		b.failed("the wallet was not written into a client", err)
		return
	}
	var here []install.Client
	for _, c := range install.Clients(b.system) {
		switch status, _, _ := c.Detect(entry); status {
		case "differs":
			c.Title += " (it has another entry)"
			here = append(here, c)
		case "not installed":
			here = append(here, c)
		}
	}
	for _, c := range b.chosenClients(ctx, here) {
		if err := b.installInto(c, entry); err != nil {
			b.failed("the wallet was not written into "+c.Title, err)
			continue
		}
		b.out.Installed = append(b.out.Installed, c.Name)
	}
}

func (b *beginning) chosenClients(ctx context.Context, here []install.Client) []install.Client {
	names := b.clients
	switch {
	case names != nil:
	case b.yes:
		names = []string{"all"}
	case b.talk != nil && len(here) > 0:
		var choices []choice
		for _, c := range here {
			choices = append(choices, choice{c.Name, c.Title})
		}
		picked, err := b.talk.pickMany(ctx, "Give the wallet to which of these?", choices)
		if err != nil {
			return nil
		}
		names = picked
	}
	if slices.Contains(names, "all") {
		return here
	}
	var list []install.Client
	for _, name := range names {
		if c, err := clientNamed(b.system, name); err == nil {
			list = append(list, c)
		}
	}
	return list
}

func (b *beginning) installInto(c install.Client, entry install.Entry) error {
	plan, err := c.Plan(&entry)
	if err != nil {
		return err
	}
	if _, err := plan.Apply(time.Now()); err != nil {
		return err
	}
	b.ui.warn(plan.Notes)
	if !b.ui.json {
		b.ui.say("%s: done. Now %s", c.Title, c.Restart)
	}
	return nil
}

// dialogue asks a person at a terminal. A line is only read when it is asked for: a passphrase may be typed
// on the same terminal.
type dialogue struct {
	ui      *ui
	in      io.Reader
	lines   chan answer
	reading bool
}

type answer struct {
	text string
	err  error
}

func (d *dialogue) line() <-chan answer {
	if !d.reading {
		d.reading = true
		go func() {
			var text []byte
			one := make([]byte, 1)
			for {
				n, err := d.in.Read(one)
				if err != nil || (n == 1 && one[0] == '\n') {
					d.lines <- answer{strings.TrimSpace(string(text)), err}
					return
				}
				text = append(text, one[:n]...)
			}
		}()
	}
	return d.lines
}

// ask prints a question and waits for a line. An error is the end of the conversation.
func (d *dialogue) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(d.ui.err, question+" ")
	select {
	case given := <-d.line():
		d.reading = false
		if errors.Is(given.err, io.EOF) { // Ctrl-D: the usual
			d.ui.note("")
			given.err = nil
		}
		return given.text, given.err
	case <-ctx.Done():
		d.ui.note("")
		return "", ctx.Err()
	}
}

// yes asks a question with two answers; an empty one is the usual.
func (d *dialogue) yes(ctx context.Context, question string, usual bool) (bool, error) {
	keys := map[bool]string{true: "[Y/n]", false: "[y/N]"}[usual]
	for {
		given, err := d.ask(ctx, question+" "+keys)
		switch strings.ToLower(given) {
		case "":
			return usual, err
		case "y", "yes":
			return true, err
		case "n", "no":
			return false, err
		}
		if err != nil {
			return false, err
		}
	}
}

type choice struct{ name, what string }

func (c choice) line() string { return fmt.Sprintf("%-8s %s", c.name, c.what) }

// pick asks for one of several; an empty answer is the first.
func (d *dialogue) pick(ctx context.Context, question string, list []choice) (string, error) {
	picked, err := d.choose(ctx, question, list, "Which (1)?")
	if len(picked) == 0 {
		return list[0].name, err
	}
	return picked[0], err
}

// pickMany asks for several; an empty answer is all, and 0 is none.
func (d *dialogue) pickMany(ctx context.Context, question string, list []choice) ([]string, error) {
	picked, err := d.choose(ctx, question, list, "Which (Enter: all, 0: none, or 1 2 …)?")
	if picked == nil {
		return []string{"all"}, err
	}
	return picked, err
}

// choose reads names or numbers until all of them are in the list; nil: the answer was empty.
func (d *dialogue) choose(ctx context.Context, question string, list []choice,
	prompt string) (picked []string, err error) {
	d.ui.note("\n%s", question)
	for i, c := range list {
		d.ui.note("  %d  %s", i+1, c.line())
	}
	for {
		given, err := d.ask(ctx, prompt)
		words := strings.FieldsFunc(given, func(r rune) bool { return r == ' ' || r == ',' })
		if err != nil || len(words) == 0 {
			return nil, err
		}
		picked = []string{}
		for _, word := range words {
			i, err := strconv.Atoi(word)
			if err != nil {
				i = 1 + slices.IndexFunc(list, func(c choice) bool { return c.name == word })
			}
			if i > 0 && i <= len(list) {
				picked = append(picked, list[i-1].name)
			}
		}
		if len(picked) == len(words) || given == "0" {
			return picked, nil
		}
	}
}
