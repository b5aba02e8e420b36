package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
)

const fleetPassphrase = "correct horse battery staple"

// memoryFleet keeps what was published.
type memoryFleet struct {
	list   []fleet.Signed
	seals  [][]byte
	refuse error
}

func (m *memoryFleet) LedgerID(context.Context) (string, error) { return "LEDGER7", nil }
func (m *memoryFleet) Close() error                             { return nil }

func (m *memoryFleet) Newest(context.Context) (fleet.Signed, error) {
	if len(m.list) == 0 {
		return fleet.Signed{}, nil
	}
	return m.list[len(m.list)-1], nil
}

func (m *memoryFleet) Publish(_ context.Context, signed fleet.Signed, seal []byte) error {
	if m.refuse == nil {
		m.list, m.seals = append(m.list, signed), append(m.seals, seal)
	}
	return m.refuse
}

// fleetApp is an App that has a fleet and nothing else.
type fleetApp struct {
	App
	fleet *memoryFleet
}

func (a fleetApp) OpenFleet(context.Context, *config.Config) (Fleet, error) { return a.fleet, nil }

// fleetHome is the home of an owner, with these rules.
func fleetHome(t *testing.T, rules string) string {
	home := filepath.Join(t.TempDir(), "home")
	keys, err := wallet.Create(t.Context(), home, wallet.FromValue(fleetPassphrase),
		wallet.Options{N: 1 << 14})
	require.NoError(t, err)
	require.NoError(t, keys.Close())
	writeRules(t, home, rules)
	return home
}

func writeRules(t *testing.T, home, rules string) {
	require.NoError(t, config.WriteFile(filepath.Join(home, config.FileName), []byte(rules)))
}

// answered is what came of a command.
type answered struct {
	code        int
	out, stderr string
}

// owner runs a command of the owner's; types is what they type on its page, "": there is none, and no
// terminal.
func owner(t *testing.T, home string, f *memoryFleet, types string, args ...string) answered {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer out.Close()
	stdin, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer stdin.Close()
	read, stderr := io.Pipe()
	p := &Program{Home: home, App: fleetApp{fleet: f}, Stdin: stdin, Stdout: out, Stderr: stderr,
		Env: environ.Env{Passphrase: config.Secret(fleetPassphrase), Service: "off"}}
	if types != "" {
		args = append(args, "--page")
	}
	code := make(chan int, 1)
	go func() {
		code <- p.Run(t.Context(), args)
		_ = stderr.Close()
	}()
	var said strings.Builder
	for lines := bufio.NewScanner(read); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if page := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S+`).FindString(lines.Text()); page != "" {
			answerPage(t, page, types)
		}
	}
	text, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	return answered{code: <-code, out: string(text), stderr: said.String()}
}

func answerPage(t *testing.T, page, passphrase string) {
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, page,
		strings.NewReader(url.Values{"passphrase": {passphrase}}.Encode()))
	require.NoError(t, err)
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	post.Header.Set("Origin", "http://"+post.Host)
	post.Close = true
	for i := range 3 { // as often as the page takes a wrong one
		r, err := http.DefaultClient.Do(post)
		if err != nil && i > 0 {
			return // it went away, since another answer would not help
		}
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		if r.StatusCode == http.StatusOK {
			return
		}
		post.Body, err = post.GetBody()
		require.NoError(t, err)
	}
}

func TestPolicySealFleet(t *testing.T) {
	home, f := fleetHome(t, "[budget]\nday = '5.00'\n"), &memoryFleet{}
	signer := fleet.Key{7: 1}
	got := owner(t, home, f, fleetPassphrase, "policy", "seal", "--fleet", "--add", "signer="+signer.String(),
		"--add", "payer=research,0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	require.Zero(t, got.code, got.stderr+got.out)
	require.Contains(t, got.stderr, "budget.day = $5.00", "of the first all is shown")
	require.Contains(t, got.stderr, "signers = "+signer.String())
	require.Contains(t, got.stderr, "has the owner's key of this fleet now")
	var out fleetOut
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.EqualValues(t, 1, out.Version)
	a := fleet.Anchor{Owner: out.Owner, Ledger: "LEDGER7"}
	first, err := a.VerifyBundle(f.list[0], fleet.Seen{}, time.Now())
	require.NoError(t, err)
	require.Equal(t, "[budget]\nday = '5.00'\n", first.Config)
	require.InDelta(t, 30*24, time.Until(first.Expires).Hours(), 1)
	require.Equal(t, out.Hash, f.list[0].Hash())

	// The next one follows it, shows what changed alone, and keeps the lists.
	writeRules(t, home, "[budget]\nday = '6.00'\n")
	dir := t.TempDir()
	got = owner(t, home, f, fleetPassphrase, "policy", "seal", "--fleet", "--expires", "12h", "--out", dir)
	require.Zero(t, got.code, got.stderr+got.out)
	require.Contains(t, got.stderr, "loosens budget.day: $5.00 → $6.00")
	require.NotContains(t, got.stderr, "budget.month")
	require.NotContains(t, got.stderr, "now: keep", "the key is made once")
	second, err := a.VerifyBundle(f.list[1], f.list[0].Seen(first), time.Now())
	require.NoError(t, err)
	require.Equal(t, []fleet.Key{signer}, second.Signers)
	require.InDelta(t, 12, time.Until(second.Expires).Hours(), 1)
	_, err = a.VerifyBundles(f.list)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "bundle-2.json"))
	require.NoError(t, err)
	var kept fleet.Signed
	require.NoError(t, json.Unmarshal(text, &kept))
	require.Equal(t, f.list[1], kept)

	got = owner(t, home, f, fleetPassphrase, "policy", "seal", "--fleet", "--remove",
		"signer="+signer.String(), "--remove", "payer=research,0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	require.Zero(t, got.code, got.stderr+got.out)
	require.Contains(t, got.stderr, "loosens signers: "+signer.String()+" → none")
	third, err := a.VerifyBundle(f.list[2], f.list[1].Seen(second), time.Now())
	require.NoError(t, err)
	require.Empty(t, third.Payers)
}

// Nothing but a passphrase that is typed now signs, and what is refused leaves no bundle, key or file behind.
func TestPolicySealFleetRefuses(t *testing.T) {
	home, f := fleetHome(t, ""), &memoryFleet{}
	seal, none := []string{"policy", "seal", "--fleet"}, fleet.Key{}.String()
	before := ofHome(t, home)
	for name, row := range map[string]struct {
		types string
		args  []string
		code  int
		says  string
	}{
		"nobody types":       {"", nil, exitPerson, "WALLET_LOCKED"},
		"a wrong passphrase": {"incorrect horse battery", nil, exitPerson, "INVALID_PASSPHRASE"},
		"an unknown list":    {"", []string{"--add", "judge=x"}, exitUsage, "--add judge=x"},
		"a key that is none": {"", []string{"--add", "signer=x"}, exitUsage, "--add signer=x"},
		"an orchestrator for all": {"", []string{"--add", "orchestrator=" + none + ",*,a"}, exitUsage,
			"orchestrator"},
		"a payer that is none": {"", []string{"--add", "payer=a,0x1"}, exitUsage, "payer"},
		"nothing to remove":    {"", []string{"--remove", "signer=" + none}, exitUsage, "no such thing"},
		"for ever":             {"", []string{"--expires", "401d"}, exitUsage, "from 1h to 400d"},
		"for no time":          {"", []string{"--expires", "0d"}, exitUsage, "from 1h"},
		"no time":              {"", []string{"--expires", "soon"}, exitUsage, "from 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			got := owner(t, home, f, row.types, append(seal, row.args...)...)
			require.Equal(t, row.code, got.code, got.stderr+got.out)
			require.Contains(t, got.out+got.stderr, row.says)
			require.Empty(t, f.list)
			require.Equal(t, before, ofHome(t, home))
		})
	}
	got := owner(t, home, f, "", "policy", "seal", "--expires", "12h")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.out, "--fleet only")

	f.refuse = errors.New("the ledger is gone")
	dir := t.TempDir()
	got = owner(t, home, f, fleetPassphrase, append(seal, "--out", dir)...)
	require.Equal(t, exitFailed, got.code)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "what was not published is not written either")
}

// ofHome is what a home has, by name.
func ofHome(t *testing.T, home string) map[string]string {
	files := map[string]string{}
	entries, err := os.ReadDir(home)
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(home, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(text)
	}
	return files
}

// A bundle that somebody else put into the ledger, to hide a loosening behind it, is not followed: neither by
// who has the owner's key nor by a keystore without it, which gets none.
func TestAForgedBundleIsNotFollowed(t *testing.T) {
	home, f := fleetHome(t, ""), &memoryFleet{}
	got := owner(t, home, f, fleetPassphrase, "policy", "seal", "--fleet")
	require.Zero(t, got.code, got.stderr)

	other, forged := fleetHome(t, "[budget]\nday = '1000'\n"), &memoryFleet{}
	got = owner(t, other, forged, fleetPassphrase, "policy", "seal", "--fleet")
	require.Zero(t, got.code, got.stderr)

	writeRules(t, home, "[budget]\nday = '1000'\n")
	got = owner(t, home, forged, fleetPassphrase, "policy", "seal", "--fleet")
	require.Equal(t, exitPerson, got.code)
	require.Contains(t, got.out+got.stderr, "not signed by the owner's key of this keystore")
	require.Len(t, forged.list, 1)

	third := fleetHome(t, "")
	before := ofHome(t, third)
	got = owner(t, third, forged, fleetPassphrase, "policy", "seal", "--fleet")
	require.NotZero(t, got.code)
	require.Contains(t, got.out+got.stderr, "no owner's key")
	require.Equal(t, before, ofHome(t, third))
	require.Len(t, forged.list, 1)
}

func TestAgentsEnroll(t *testing.T) {
	home, f := fleetHome(t, "[budget.teams.research]\nagents = ['research-*']\n"), &memoryFleet{}
	const ledger = "postgres://research@db.example/x402?sslmode=verify-full"
	until := time.Now().AddDate(0, 1, 0).Format(time.DateOnly)
	enroll := func(types, agent string, more ...string) answered {
		return owner(t, home, f, types, append([]string{"agents", "enroll", agent, "--team", "research",
			"--until", until}, more...)...)
	}
	got := enroll("", "research-7", "--url", ledger)
	require.Equal(t, exitPerson, got.code)
	require.Contains(t, got.out, "policy seal --fleet", "rules come first")
	require.Zero(t, owner(t, home, f, fleetPassphrase, "policy", "seal", "--fleet").code)

	file := filepath.Join(t.TempDir(), "join.json")
	got = enroll(fleetPassphrase, "research-7", "--url", ledger, "--label", "env=prod", "--password-file",
		"/run/secrets/ledger", "--signer", "unix:/run/x402/signer.sock", "--out", file)
	require.Zero(t, got.code, got.stderr+got.out)
	require.Contains(t, got.stderr, "agents: research-7")
	require.Contains(t, got.stderr, "label: env=prod")
	join, err := fleet.ReadJoin(file)
	require.NoError(t, err)
	require.Equal(t, "research-7", join.Agent)
	require.Equal(t, "/run/secrets/ledger", join.Ledger.PasswordFile)
	newest, err := join.Anchor().VerifyBundle(f.list[0], fleet.Seen{}, time.Now())
	require.NoError(t, err, "it believes who sealed the rules")
	e, err := join.Anchor().VerifyEnrolment(join.Enrolment, newest, nil, time.Now())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"env": "prod"}, e.Labels)
	require.Equal(t, until, e.Until.Format(time.DateOnly))

	got = enroll(fleetPassphrase, "research-*", "--url", ledger)
	require.Zero(t, got.code, got.stderr+got.out)
	many, err := fleet.ParseJoin([]byte(got.out))
	require.NoError(t, err)
	name, err := many.Name("research-12")
	require.NoError(t, err)
	require.Equal(t, "research-12", name)

	require.Len(t, f.list, 1, "an enrolment changes no rules")
}

func TestAgentsEnrollRefuses(t *testing.T) {
	home, f := fleetHome(t, "[budget.teams.t]\nagents = ['a']\n"), &memoryFleet{}
	require.Zero(t, owner(t, home, f, fleetPassphrase, "policy", "seal", "--fleet").code)
	before := ofHome(t, home)
	const ledger = "postgres://research@db.example/x402?sslmode=verify-full"
	tomorrow := time.Now().AddDate(0, 0, 2).Format(time.DateOnly)
	good := "a --team t --until " + tomorrow + " --url " + ledger
	for name, row := range map[string]struct {
		types string
		code  int
		says  string
		args  string
	}{
		"nobody types":     {"", exitPerson, "WALLET_LOCKED", good},
		"wrong passphrase": {"incorrect horse battery", exitPerson, "INVALID_PASSPHRASE", good},
		"everybody":        {"", exitUsage, "pattern like research-*", "*" + good[1:]},
		"no team":          {"", exitUsage, "--team", "a --until " + tomorrow + " --url " + ledger},
		"no end":           {"", exitUsage, "--until", "a --team t --url " + ledger},
		"no date":          {"", exitUsage, "--until", good + " --until soon"},
		"the past":         {"", exitUsage, "cannot be enrolled", good + " --until 2020-01-01"},
		"for ever":         {"", exitUsage, "cannot be enrolled", good + " --until 2099-01-01"},
		"no ledger":        {"", exitUsage, "--url", "a --team t --until " + tomorrow},
		"a password": {"", exitUsage, "has a password", good + " --url " +
			"postgres://me:hunter2hunter2@db.example/x402?sslmode=verify-full"},
		"another team":  {"", exitUsage, "no team", good + " --team nobody"},
		"a label":       {"", exitUsage, "--label", good + " --label x"},
		"a label twice": {"", exitUsage, "twice", good + " --label x=1 --label x=2"},
		"its name":      {"", exitUsage, "label", good + " --label X=1"},
		"a signer":      {"", exitUsage, "--signer", good + " --signer x"},
		"two names":     {"", exitUsage, "argument", "b " + good},
	} {
		t.Run(name, func(t *testing.T) {
			got := owner(t, home, f, row.types, append([]string{"agents", "enroll"},
				strings.Fields(row.args)...)...)
			require.Equal(t, row.code, got.code, got.stderr+got.out)
			require.Contains(t, got.out+got.stderr, row.says)
			require.NotContains(t, got.out+got.stderr, "hunter2")
			require.Equal(t, before, ofHome(t, home))
		})
	}
}
