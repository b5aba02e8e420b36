// Package service shows what an agent with a shell can do to the wallet's service where that runs as another
// user (docs/service.md): use it within its limits, and nothing else. The service and its agents
// are the program that was built, each as a user of its own, so the tests need root.
package service

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "attack" {
		attack(os.Args[2])
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "seize" {
		seize(os.Args[2], os.Args[3])
		return
	}
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}

// The users: the service's, its agent's, one who is neither, and a person whose commands the service runs.
const (
	owner  = 65533
	nobody = 65534
	other  = 65532
	person = 65531
)

// house is a machine with a service, its agents and a seller. What the system would make is made here: the
// home, and the socket's directory. The users have no names.
type house struct {
	*sandbox.Sandbox
	t      *testing.T
	dir    string   // everything, which anybody may enter
	home   string   // the service's, 0700
	socket string   // in a directory of its own, which anybody may enter
	secret string   // the passphrase's file: the service's alone
	agent  string   // the agent's directory
	wallet string   // the program
	played string   // this program
	under  []string // what the service is started by; nil: nothing
	flags  []string // more of serve's
}

func newHouse(t *testing.T, rules sandbox.Rules) *house {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED HERE: only root can run the service and its agents as two users")
	}
	dir := must.Get(os.MkdirTemp("", "service-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	at := func(name string) string { return filepath.Join(dir, name) }
	h := &house{t: t, dir: dir, home: at("var/lib/x402-wallet"), socket: at("run/x402-wallet/service.sock"),
		secret: at("etc/secret"), agent: at("agent"), wallet: at("usr/local/bin/x402-wallet"),
		played: at("played")}
	install := exec.Command(testworld.Build(t), "service", "install", "--yes", "--root", dir)
	out, err := install.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, path := range []string{filepath.Dir(h.home), filepath.Dir(h.socket), h.agent} {
		require.NoError(t, os.MkdirAll(path, 0o755))
	}
	own := must.Get(os.Executable())(t)
	text := must.Get(os.ReadFile(own))(t)
	require.NoError(t, os.WriteFile(h.played, text, 0o755))
	h.Sandbox = must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { _ = h.Close() })
	require.NoError(t, os.WriteFile(h.secret, []byte(testworld.Passphrase+"\n"), 0o600))
	evm, _, err := testworld.MakeHome(h.home, strings.ReplaceAll(h.Config(rules), "HOUSE", dir),
		testworld.Passphrase)
	require.NoError(t, err)
	h.Fund(evm, sandbox.USDC)
	h.give(owner, h.home, filepath.Dir(h.socket), h.secret)
	h.give(nobody, h.agent)
	return h
}

func (h *house) give(user int, dirs ...string) {
	for _, dir := range dirs {
		require.NoError(h.t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				err = os.Lchown(path, user, user)
			}
			return err
		}))
	}
}

// as is a program of a user's; env is all of its environment besides what every program has.
func (h *house) as(user uint32, env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), program, args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C", "LOG_LEVEL=warn"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

func (h *house) ownersEnv(more ...string) []string {
	return append([]string{"HOME=" + h.home, "X402_WALLET_HOME=" + h.home}, more...)
}

// passphrase lets the service unlock itself.
func (h *house) passphrase() string { return "X402_WALLET_PASSPHRASE_FILE=" + h.secret }

func (h *house) owner(args ...string) string {
	h.t.Helper()
	out, err := h.as(owner, h.ownersEnv(h.passphrase()), h.wallet, args...).CombinedOutput()
	require.NoError(h.t, err, "%s", out)
	return string(out)
}

func (h *house) serve(env ...string) *os.Process {
	h.t.Helper()
	argv := append(slices.Clone(h.under), h.wallet, "serve", "--socket", h.socket)
	argv = append(argv, h.flags...)
	cmd := h.as(owner, h.ownersEnv(env...), argv[0], argv[1:]...)
	return testworld.RunService(h.t, cmd, h.socket, false).Cmd.Process
}

func (h *house) agentsEnv(token string, more ...string) []string {
	env := append([]string{"HOME=" + h.agent, "X402_WALLET_SERVICE=" + h.socket}, more...)
	if token != "" {
		env = append(env, "X402_WALLET_TOKEN="+token)
	}
	return env
}

// connects starts mcp as a user's host does; the error is why there is no session, with what mcp said.
func (h *house) connects(user uint32, env []string) (*mcp.ClientSession, error) {
	h.t.Helper()
	cmd := h.as(user, env, h.wallet, "mcp")
	var said strings.Builder
	cmd.Stderr = &said
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	h.t.Cleanup(func() { _ = session.Close() })
	return session, nil
}

func (h *house) agentOf(user uint32, env []string) *mcp.ClientSession {
	h.t.Helper()
	return must.Get(h.connects(user, env))(h.t)
}

// pays buys once, and gives the answer's status or error.
func (h *house) pays(agent *mcp.ClientSession, query string) string {
	h.t.Helper()
	result := must.Get(agent.CallTool(h.t.Context(), &mcp.CallToolParams{Name: "x402_pay",
		Arguments: map[string]any{"url": h.SellerURL + "/weather?" + query}}))(h.t)
	text := must.Get(json.Marshal(result.StructuredContent))(h.t)
	var answer struct{ Status, Error string }
	require.NoError(h.t, json.Unmarshal(text, &answer), "%s", text)
	return answer.Status + answer.Error
}

var (
	alice   = "x402w_" + strings.Repeat("a", 43)
	mallory = "x402w_" + strings.Repeat("m", 43)
)

func knows(name, token string) string {
	return fmt.Sprintf("[agents.%s]\ntoken = %q\n", name, callers.TokenHash(token))
}
