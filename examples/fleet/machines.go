package main

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
)

//go:embed config.toml shop-a.toml shop-b.toml ledger.sql let-in.sql prometheus.yml
var files embed.FS

// machine is one of the fleet's: an agent's, with its signer, or a paywall's.
type machine struct {
	name, team string
	home       string // of what has the ledger: the signer, or the paywall
	socket     string // the signer's
	metrics    string // host:port
	agent      *agent
}

// begin makes the directory, the world of play money, and the ledger's server.
func (s *story) begin(ctx context.Context) (err error) {
	s.program, err = filepath.Abs(s.program)
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.program); err != nil {
		return fmt.Errorf("there is no wallet (make build): %w", err)
	}
	s.prometheus, err = exec.LookPath("prometheus")
	if err != nil {
		return errors.New("this needs Prometheus: apt-get install -y --no-install-recommends prometheus")
	}
	s.dir, err = os.MkdirTemp("", "x402-fleet-")
	if err != nil {
		return err
	}
	s.atEnd(func() error { return os.RemoveAll(s.dir) })
	s.world, err = sandbox.Start(sandbox.Options{})
	if err != nil {
		return err
	}
	s.atEnd(s.world.Close)
	s.ledger, err = pgtest.Open()
	if err != nil {
		return err
	}
	s.atEnd(func() error { s.ledger.Close(); return nil })
	random := make([]byte, 16)
	rand.Read(random) // never fails (crypto/rand)
	s.passphrase = hex.EncodeToString(random)
	return ctx.Err()
}

func (s *story) owner() string { return s.at("owner") }

// file is one of those beside the program, with what is another on this machine than in it.
func file(name string, changes ...string) (string, error) {
	text, err := files.ReadFile(name)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(string(text), changes[i]) {
			return "", fmt.Errorf("%s has no %q", name, changes[i])
		}
	}
	return strings.NewReplacer(changes...).Replace(string(text)), err
}

// url is the ledger's for a login, by the server's socket. There is no password: this server trusts who
// reaches its socket.
func (s *story) url(login string) string {
	return "postgres://" + login + "@/x402?host=" + s.ledger.Dir()
}

// makesLedger runs ledger.sql, without the passwords.
func (s *story) makesLedger() error {
	text, err := file("ledger.sql")
	if err != nil {
		return err
	}
	passwords := regexp.MustCompile(`(?m)^\\.*$| PASSWORD :'\w+'`)
	_, err = pgtest.Query(s.ledger.URL("postgres"), statements(passwords.ReplaceAllString(text, ""))...)
	return err
}

// letsIn runs let-in.sql as the owner.
func (s *story) letsIn() error {
	text, err := file("let-in.sql")
	if err != nil {
		return err
	}
	_, err = pgtest.Query(strings.Replace(s.ledger.URL("x402"), "user=postgres", "user=owner", 1),
		statements(text)...)
	return err
}

// statements are those of a file of SQL, which are sent one by one.
func statements(text string) (list []string) {
	comments := regexp.MustCompile(`(?m)^--.*$`)
	text = comments.ReplaceAllString(text, "")
	for one := range strings.SplitSeq(text, ";") {
		one = strings.TrimSpace(one)
		if one != "" {
			list = append(list, one)
		}
	}
	return list
}

// makesWallet makes the owner's wallet, and funds it.
func (s *story) makesWallet(ctx context.Context) error {
	if err := os.WriteFile(s.at("passphrase"), []byte(s.passphrase+"\n"), 0o600); err != nil {
		return err
	}
	if s.makes != nil {
		address, err := s.makes(s.owner(), s.passphrase)
		s.world.Fund(address, 100*sandbox.USDC)
		return err
	}
	said, err := s.does(ctx, s.owner(), "init", "--json", "--passphrase-file", s.at("passphrase"))
	if err != nil {
		return err
	}
	var made struct {
		Addresses []struct{ Chain, Address string }
	}
	if err := json.Unmarshal([]byte(said), &made); err != nil {
		return fmt.Errorf("x402-wallet init: %w", err)
	}
	for _, a := range made.Addresses {
		if a.Chain == "evm" {
			s.world.Fund(a.Address, 100*sandbox.USDC)
			return nil
		}
	}
	return errors.New("x402-wallet init named no address")
}

// writesRules puts config.toml into the owner's home, for this machine, with a budget for the day.
func (s *story) writesRules(day string) error {
	places := append([]string{s.shops[0].buyers, s.shops[1].buyers}, s.world.Loopback...)
	loopback := `"` + strings.Join(places, `", "`) + `"`
	text, err := file("config.toml", `day           = "0.55"`, fmt.Sprintf("day = %q", day),
		"postgres://owner@/x402?host=/srv/x402/postgres", s.url("owner"),
		`password_file = "/srv/x402/secrets/owner"`, "",
		`"127.0.0.1:4041", "127.0.0.1:4042"`, loopback,
		"https://sepolia.base.org", s.world.EVMNodeURL,
		"https://x402.org/facilitator", s.world.FacilitatorURL)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.owner(), "config.toml"), []byte(text), 0o600)
}

// enrols lets a pattern of names into a team: the join.json of all their machines, and their keystore.
func (s *story) enrols(ctx context.Context, pattern, team string, flags ...string) error {
	return s.types(ctx, append([]string{"agents", "enroll", pattern, "--team", team,
		"--until", time.Now().AddDate(0, 1, 0).Format(time.DateOnly), "--url", s.url(team),
		"--out", s.at(team + ".json")}, flags...)...)
}

// joins makes a home with the team's join.json. Members of it that nobody signed are the machine's own: its
// name, which would else be that of the host, and where its signer is.
func (s *story) joins(home, name, team, signer string) error {
	text, err := os.ReadFile(s.at(team + ".json"))
	if err != nil {
		return err
	}
	var join map[string]any
	if err := json.Unmarshal(text, &join); err != nil {
		return err
	}
	join["agent"] = name
	if signer != "" {
		join["signer"] = "unix:" + signer
	}
	text, err = json.MarshalIndent(join, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, "join.json"), text, 0o600)
}

// begins starts an agent's machine: the signer with the keystore, and the agent's host with none.
func (s *story) begins(ctx context.Context, m *machine) error {
	m.home, m.socket = s.at(m.name, "signer"), s.at(m.name, "s")
	keystore, err := os.ReadFile(s.at("keystore.json"))
	if err == nil {
		err = s.joins(m.home, m.name, m.team, m.socket)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(m.home, "keystore.json"), keystore, 0o600)
	}
	if err == nil {
		err = s.joins(s.at(m.name, "agent"), m.name, m.team, m.socket)
	}
	if err != nil {
		return err
	}
	signer, err := s.serve(m.name+"'s signer", s.wallet(ctx, m.home,
		[]string{"X402_WALLET_PASSPHRASE_FILE=" + s.at("passphrase"), "LOG_LEVEL=warn"},
		"serve", "--socket", m.socket, "--metrics", "127.0.0.1:0"))
	if err == nil {
		m.metrics, err = signer.says(ctx, `metrics are at http://([0-9.:]+)/metrics`)
	}
	if err == nil {
		m.agent, err = s.host(ctx, m.name, s.at(m.name, "agent"))
	}
	return err
}

// freePort is a port of 127.0.0.1 that was free a moment ago, below those that systems give to connections
// that leave.
func freePort(ctx context.Context) (string, error) {
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(12_000))
		if err != nil {
			return "", err
		}
		at := net.JoinHostPort("127.0.0.1", strconv.FormatInt(20_000+n.Int64(), 10))
		if l, err := new(net.ListenConfig).Listen(ctx, "tcp", at); err == nil {
			return at, l.Close()
		}
	}
	return "", errors.New("no free port was found")
}
