package service

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"x402-wallet/internal/child"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// copies are the files of the home as they are, in a directory of a user's.
func (h *house) copies(user int, name string) (dir string, files []string) {
	h.t.Helper()
	dir = filepath.Join(h.dir, name)
	require.NoError(h.t, os.Mkdir(dir, 0o755))
	list := must.Get(os.ReadDir(h.home))(h.t)
	for _, file := range list {
		if !file.Type().IsRegular() {
			continue
		}
		text := must.Get(os.ReadFile(filepath.Join(h.home, file.Name())))(h.t)
		require.NoError(h.t, os.WriteFile(filepath.Join(dir, file.Name()), text, 0o600))
		files = append(files, file.Name())
	}
	h.give(user, dir)
	return dir, files
}

func (h *house) attacks(user uint32, t target) (worked, failed []string) {
	h.t.Helper()
	text := must.Get(json.Marshal(t))(h.t)
	file := filepath.Join(t.Own, "target.json")
	require.NoError(h.t, os.WriteFile(file, text, 0o644))
	cmd := h.as(user, nil, h.played, "attack", file)
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.Output())(h.t)
	var came map[string]string
	require.NoError(h.t, json.Unmarshal(out, &came), "%s", out)
	for what, why := range came {
		if why == "" {
			worked = append(worked, what)
		} else {
			failed = append(failed, what+": "+why)
		}
	}
	return worked, failed
}

// sleeps is a process of a user's, which is not closed as the wallet's are.
func (h *house) sleeps(user uint32) int {
	cmd := h.as(user, nil, "sleep", "600")
	require.NoError(h.t, cmd.Start())
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func (h *house) unlocks() (pid int) {
	h.t.Helper()
	out := must.JSON[struct{ PID int }]([]byte(h.owner("unlock", "--passphrase-file", h.secret)))(h.t)
	h.t.Cleanup(func() { _ = unix.Kill(out.PID, unix.SIGTERM) })
	return out.PID
}

// An agent with a shell pays within its limits, and can do nothing else: what belongs to the service it
// cannot read, change, put back, stop or look into, and what it tries leaves the service as it was.
func TestAnAgentWithAShell(t *testing.T) {
	h := newHouse(t, sandbox.Rules{Extra: knows("alice", alice) + "day = \"0.003\"\n"})
	unlocker := h.unlocks()
	service := h.serve()
	agent := h.agentOf(nobody, h.agentsEnv(alice))
	older, _ := h.copies(nobody, "older")
	require.Equal(t, "paid", h.pays(agent, "1"))
	require.Equal(t, "paid", h.pays(agent, "2"))
	_, files := h.copies(owner, "before")
	require.Subset(t, files,
		[]string{"ledger.db", "ledger.db-wal", "config.toml", "keystore.json", "ledger.mark"})

	worked, failed := h.attacks(nobody, target{Home: h.home, Socket: h.socket, Files: files, Older: older,
		Own: h.agent, Processes: []int{service.Pid, unlocker, h.sleeps(owner)}})
	require.Empty(t, worked)
	require.Greater(t, len(failed), 100)
	permission := regexp.MustCompile(`permission denied|not permitted|` + regexp.QuoteMeta(errNothing.Error()) +
		`|moved: no such file|address already in use`)
	for _, what := range failed {
		require.Regexp(t, permission, what)
	}

	require.Equal(t, "paid", h.pays(agent, "3"))
	require.Equal(t, "BUDGET_EXCEEDED", h.pays(agent, "4"), "what it spent before counts")
	require.Len(t, h.Settlements(), 3)
	h.owner("history", "verify", "--seals")
	require.NoError(t, unix.Kill(service.Pid, 0))
}

// Each of these attacks works where the user is the service's own, so the test above shows something.
func TestTheSameUserCould(t *testing.T) {
	h := newHouse(t, sandbox.Rules{})
	h.owner("balance")
	h.owner("pay", "--json", h.SellerURL+"/weather")
	mine := filepath.Join(h.dir, "mine") // the attacker's, with the home and all
	home, files := h.copies(owner, "copied")
	older, _ := h.copies(owner, "older")
	for _, dir := range []string{mine, filepath.Join(mine, "own"), filepath.Join(mine, "run")} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	target := target{Home: filepath.Join(mine, "home"), Socket: filepath.Join(mine, "run/service.sock"),
		Files: files, Older: filepath.Join(mine, "older"), Own: filepath.Join(mine, "own"),
		Processes: []int{h.sleeps(owner)}}
	require.NoError(t, os.Rename(home, target.Home))
	require.NoError(t, os.Rename(older, target.Older))
	for _, path := range []string{target.Socket, filepath.Join(target.Home, "agent.sock")} {
		l := must.Get(net.Listen("unix", path))(t)
		defer l.Close()
	}
	h.give(owner, mine)
	_, failed := h.attacks(owner, target)
	require.Empty(t, failed)
}

// A confined program of the service's cannot listen in its place: agents would show it their tokens, and
// owners hand their terminals over to it.
func TestAConfinedProgram_TakesNoSocket(t *testing.T) {
	if why := child.Unsupported(); why != "" {
		t.Skip("NOT TESTED HERE, because of this kernel: " + why)
	}
	h := newHouse(t, sandbox.Rules{Extra: knows("alice", alice) + "[servers.shop]\nsandbox = true\n" +
		`command = ["HOUSE/played", "seize", "HOUSE/out/report", "HOUSE/run/x402-wallet/service.sock"]` +
		"\n"})
	out := filepath.Join(h.dir, "out")
	require.NoError(t, os.Mkdir(out, 0o755))
	h.give(owner, out)
	h.serve(h.passphrase())
	agent := h.agentOf(nobody, h.agentsEnv(alice))
	must.Get(agent.CallTool(t.Context(), &mcp.CallToolParams{Name: "x402_list_tools",
		Arguments: map[string]any{"server": "shop"}}))(t)
	for what, failed := range must.JSON[map[string]string](must.Get(os.ReadFile(out + "/report"))(t))(t) {
		require.NotEmpty(t, failed, what)
	}
	require.Eventually(t, func() bool { // it was made unreachable for a moment
		return must.Get(os.Stat(h.socket))(t).Mode().Perm() == 0o666
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, "paid", h.pays(h.agentOf(nobody, h.agentsEnv(alice)), "after"))
}

func (h *house) refusedWith(user uint32, env []string) string {
	h.t.Helper()
	_, err := h.connects(user, env)
	require.Error(h.t, err)
	return err.Error()
}

// Who comes without a token, with a wrong one or with one that was revoked is not let in, whatever else it
// brings; a user that the rules name needs none.
func TestWhoIsLetIn(t *testing.T) {
	h := newHouse(t, sandbox.Rules{Extra: knows("alice", alice) + knows("mallory", mallory) +
		"[agents.desk]\nuser = \"65532\"\n"})
	h.serve(h.passphrase())
	former := h.agentOf(nobody, h.agentsEnv(mallory))
	require.Equal(t, "paid", h.pays(former, "before"))

	rules := filepath.Join(h.home, "config.toml")
	text := must.Get(os.ReadFile(rules))(t)
	less := strings.Replace(string(text), knows("mallory", mallory), "", 1)
	require.NoError(t, os.WriteFile(rules, []byte(less), 0o600))
	h.owner("policy", "seal")

	for _, token := range []string{"", "x402w_wrong", mallory, alice + "a", alice[:len(alice)-1],
		strings.ToUpper(alice)} {
		require.Contains(t, h.refusedWith(nobody, h.agentsEnv(token)), "POLICY_DENIED", token)
	}
	require.Contains(t, h.refusedWith(other, h.agentsEnv(mallory)), "POLICY_DENIED",
		"its user does not help who shows a token that is none")
	require.Equal(t, "paid", h.pays(h.agentOf(other, h.agentsEnv("")), "by-user"))
	require.Equal(t, "paid", h.pays(h.agentOf(nobody, h.agentsEnv(alice)), "by-token"))
	require.Equal(t, "POLICY_DENIED", h.pays(former, "after"), "its session began before it was revoked")
}

// The owner's commands, with the service's home, are nobody else's, and say nothing of what is there.
func TestOwnersCommandsAsAnotherUser(t *testing.T) {
	h := newHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	service := h.serve(h.passphrase())
	agent := h.agentOf(nobody, h.agentsEnv(alice))
	require.Equal(t, "paid", h.pays(agent, "1"))
	evm := evmIn(h.owner("address"))
	require.NotEmpty(t, evm)
	env := []string{"HOME=" + h.agent, "X402_WALLET_HOME=" + h.home}
	for _, args := range [][]string{{"history"}, {"show", "pay_1"}, {"balance"}, {"address"}, {"budget"},
		{"budget", "set", "day", "99"}, {"policy"}, {"policy", "seal"}, {"approvals"}, {"approve", "pay_1"},
		{"freeze"}, {"unfreeze"}, {"lock"}, {"unlock"}, {"passphrase"}, {"export"}, {"init"}, {"session"},
		{"history", "verify"}, {"reconcile"}, {"serve", "--socket", h.socket}, {"mcp"}, {"doctor"},
		{"pay", "--json", h.SellerURL + "/weather"}} {
		out, err := h.as(nobody, env, h.wallet, args...).CombinedOutput()
		require.Error(t, err, "%s\n%s", args, out)
		require.NotContains(t, string(out), evm, args)
		require.NotContains(t, string(out), "panic", args)
	}
	require.Equal(t, "paid", h.pays(agent, "2"))
	require.Len(t, h.Settlements(), 2)
	require.NoError(t, unix.Kill(service.Pid, 0))
	h.owner("history", "verify", "--seals")
}

func evmIn(text string) string { return regexp.MustCompile(`0x[0-9a-fA-F]{40}`).FindString(text) }

// What an agent puts into the environment of mcp is its own affair: the service has its own.
func TestTheEnvironmentOfMCP(t *testing.T) {
	h := newHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	service := h.serve(h.passphrase())
	agent := h.agentOf(nobody, h.agentsEnv(alice, "LD_PRELOAD=/tmp/canary.so", "LD_LIBRARY_PATH=/tmp/canary",
		"GODEBUG=http2debug=2,inittrace=1", "GOTRACEBACK=crash", "SSL_CERT_FILE=/tmp/canary",
		"HTTPS_PROXY=http://canary", "HTTP_PROXY=http://127.0.0.1:1",
		"X402_FACILITATOR_URL=http://127.0.0.1:1", "X402_WALLET_PASSPHRASE_FILE=/tmp/canary",
		"X402_WALLET_HOME="+h.agent))
	require.Equal(t, "paid", h.pays(agent, "1"))
	env := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/environ", service.Pid)))(t)
	require.Contains(t, string(env), "X402_WALLET_HOME="+h.home)
	require.NotContains(t, string(env), "canary")
	require.NotContains(t, string(env), "GODEBUG")
}

// limitOf finds the limits of the unit (internal/ownuser).
var limitOf = regexp.MustCompile(`(?m)^Limit(MEMLOCK|NOFILE)=(\d+)(M?)$`)

// The keys lie in locked memory under the limit that the unit sets, and far below it while many pay at once.
func TestKeysAreLockedWithinTheUnitsLimit(t *testing.T) {
	h := newHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	unit := must.Get(exec.Command(h.wallet, "service", "install", "--print").Output())(t)
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("NOT TESTED HERE: there is no prlimit")
	}
	var locked uint64
	for _, found := range limitOf.FindAllStringSubmatch(string(unit), -1) {
		value := must.Get(strconv.ParseUint(found[2], 10, 64))(t)
		if found[1] == "MEMLOCK" {
			require.Equal(t, "M", found[3])
			value <<= 20
			locked = value
		}
		h.under = append(h.under, fmt.Sprintf("--%s=%d", strings.ToLower(found[1]), value))
	}
	h.under = append([]string{prlimit}, h.under...)
	require.Len(t, h.under, 3)
	service := h.serve(h.passphrase())
	agent := h.agentOf(nobody, h.agentsEnv(alice))
	require.Zero(t, lockedMemory(t, service.Pid))
	require.Equal(t, "paid", h.pays(agent, "unlocks"))
	most := lockedMemory(t, service.Pid)
	require.NotZero(t, most)
	paid := make(chan string)
	for i := range 40 {
		go func() { paid <- h.pays(agent, fmt.Sprint("many", i)) }()
	}
	for n := 0; n < 40; {
		select {
		case status := <-paid:
			require.Equal(t, "paid", status)
			n++
		case <-time.After(time.Millisecond):
		}
		most = max(most, lockedMemory(t, service.Pid))
	}
	t.Logf("at most %d KiB were locked, of %d KiB", most>>10, locked>>10)
	require.Less(t, most, locked/8)
}

func lockedMemory(t *testing.T, pid int) uint64 {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	i := slices.IndexFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "VmLck:")
	})
	require.GreaterOrEqual(t, i, 0)
	var kib uint64
	must.Get(fmt.Sscanf(strings.Split(string(text), "\n")[i], "VmLck: %d kB", &kib))(t)
	return kib << 10
}

// status is what service status says to a user; 0 is root.
func (h *house) status(user uint32, env ...string) (said map[string]any) {
	h.t.Helper()
	out := must.Get(h.as(user, env, h.wallet, "service", "status", "--root", h.dir).Output())(h.t)
	require.NoError(h.t, json.Unmarshal(out, &said), "%s", out)
	return said
}

func TestStatus(t *testing.T) {
	h := newHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	told := h.status(0)
	require.Equal(t, map[string]any{"installed": true, "running": false, "socket": h.socket, "home": h.home,
		"homeOwner": "65533", "homeMode": "0700", "wallet": true}, told)
	h.serve(h.passphrase())
	told = h.status(0)
	require.Equal(t, []any{true, false}, []any{told["running"], told["unlocked"]})
	require.NotEmpty(t, told["version"])
	require.Equal(t, "paid", h.pays(h.agentOf(nobody, h.agentsEnv(alice)), "unlocks"))
	require.Equal(t, true, h.status(0)["unlocked"])
	require.Equal(t, true, h.status(nobody, "X402_WALLET_TOKEN="+alice)["unlocked"])
	told = h.status(nobody)
	require.Equal(t, true, told["running"])
	require.Contains(t, told["note"], "does not let user 65534 in")
	for _, name := range []string{"version", "unlocked", "wallet"} {
		require.NotContains(t, told, name)
	}
}

// Whoever is not root is told how root does it, and changes nothing.
func TestOnlyRootInstalls(t *testing.T) {
	h := newHouse(t, sandbox.Rules{})
	for _, args := range [][]string{{"install", "--yes", "--http", "127.0.0.1:1"}, {"uninstall", "--yes"}} {
		out, err := h.as(nobody, nil, h.wallet, append([]string{"service"}, args...)...).Output()
		require.Error(t, err)
		require.Contains(t, string(out), "SETUP_FAILED")
		require.Contains(t, string(out), "run: sudo "+h.wallet+" service "+args[0])
	}
}
