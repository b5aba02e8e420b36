package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/config/paywallfile"
)

const alertRules = "docs/monitoring/alerts.yml"

// composed is compose.yaml, as far as it can be checked without containers.
type composed struct {
	Services map[string]struct {
		Image       string
		User        string
		NetworkMode string `yaml:"network_mode"`
		Command     []string
		Environment map[string]string
		Volumes     []string
	}
	Volumes map[string]any
}

func readCompose(t *testing.T) (c composed) {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &c))
	require.Len(t, c.Services, 10)
	return c
}

// commands are the wallet's command lines in compose.yaml and in the README.
func commands(t *testing.T) (list [][]string) {
	t.Helper()
	for _, s := range readCompose(t).Services {
		if len(s.Command) > 0 && s.Command[0] == "/x402-wallet" {
			list = append(list, s.Command[1:])
		}
	}
	require.Len(t, list, 8)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, found := range regexp.MustCompile("(?m)(?:^|`)x402-wallet ([^#`\n]+)").FindAllStringSubmatch(
		string(text), -1) {
		list = append(list, strings.Fields(strings.ReplaceAll(found[1], "'", "")))
	}
	require.Greater(t, len(list), 13)
	return list
}

// Each command line is one that the program takes: in an empty home it fails, but not because of its usage.
func TestItsCommandLines(t *testing.T) {
	t.Parallel()
	bin := testworld.Build(t)
	const usage = 2
	exit := func(args ...string) int {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, args...)
		home := t.TempDir()
		cmd.Dir, cmd.Env = home, []string{"X402_WALLET_HOME=" + filepath.Join(home, "none"), "HOME=" + home}
		said, err := cmd.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
			t.Fatal(err)
		}
		require.NotEqual(t, -1, cmd.ProcessState.ExitCode(), "%v: %s", args, said)
		return cmd.ProcessState.ExitCode()
	}
	require.Equal(t, usage, exit("serve", "--sockets", "x"))
	for _, line := range commands(t) {
		if line[0] == "init" {
			continue // it would make a wallet
		}
		for i, arg := range line { // nothing of this machine's is opened
			if filepath.IsAbs(arg) {
				line[i] = filepath.Join(t.TempDir(), "none", filepath.Base(arg))
			}
		}
		require.NotEqual(t, usage, exit(line...), "%v", line)
	}
}

// What compose.yaml names is there, and the agents' containers have neither keys nor ledger nor network.
func TestWhatComposeNames(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	known := variables()
	for name, s := range c.Services {
		require.NotEmpty(t, s.Image, name)
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "X402_") {
				require.Contains(t, known, variable)
			}
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			switch {
			case source == "../../bin/x402-wallet": // `make build` makes it
			case strings.HasPrefix(source, "."):
				require.FileExists(t, filepath.FromSlash(source), name)
			case !strings.HasPrefix(source, "/srv/x402/"):
				require.Contains(t, c.Volumes, source, name)
			}
		}
		if slices.Contains(s.Command, "mcp") {
			require.Equal(t, "none", s.NetworkMode, name)
			for _, volume := range s.Volumes {
				require.NotRegexp(t, "home|secrets|postgres", volume, name)
			}
		}
	}
}

// variables are those of the environment that the program reads.
func variables() (names []string) {
	of := reflect.TypeFor[environ.Env]()
	for i := range of.NumField() {
		names = append(names, of.Field(i).Tag.Get("env"))
	}
	return names
}

// The files belong together: users, ports, teams, logins; and each is one that its reader takes.
func TestTheFilesBelongTogether(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	rules, err := config.Parse([]byte(read("config.toml")))
	require.NoError(t, err)
	require.Equal(t, "signer", rules.Ledger.Keys)
	c := readCompose(t)
	for name, agent := range rules.Agents {
		require.Equal(t, c.Services[name].User, agent.User, name)
		require.Contains(t, c.Services, "signer-"+name)
	}
	require.Len(t, rules.Agents, 3)
	scraped := read("prometheus.yml")
	for name, s := range c.Services {
		i := slices.Index(s.Command, "--metrics")
		if i > 0 {
			require.Equal(t, 1, strings.Count(scraped, "'"+s.Command[i+1]+"'"), name)
			require.Equal(t, "service:prometheus", s.NetworkMode, name)
		}
	}
	for _, name := range []string{"shop-a.toml", "shop-b.toml"} {
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(read(name)), 0o600))
		shop, err := paywallfile.Load(file)
		require.NoError(t, err)
		require.False(t, shop.NeedsWallet())
		require.Contains(t, rules.Policy.Loopback, shop.Listen)
	}
	for team := range rules.Budget.Teams {
		require.Contains(t, read("ledger.sql"), "CREATE ROLE "+team+" LOGIN PASSWORD")
		require.Contains(t, read("let-in.sql"), "x402.let_in('"+team+"', 'team:"+team+"')")
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil && testing.Short() {
		return
	}
	require.NoError(t, err, "apt-get install -y --no-install-recommends prometheus")
	dir := t.TempDir()
	for to, from := range map[string]string{"prometheus.yml": "prometheus.yml",
		"alerts.yml": filepath.Join("..", "..", alertRules)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, to), []byte(read(from)), 0o600))
	}
	said, err := exec.CommandContext(t.Context(), promtool, "check", "config",
		filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	require.NoError(t, err, "%s", said)
}
