package service

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

func ownersHouse(t *testing.T, rules sandbox.Rules) *house {
	t.Helper()
	h := newHouse(t, rules)
	h.flags = []string{"--owner", strconv.Itoa(person)}
	return h
}

func houseWithoutAWallet(t *testing.T) *house {
	t.Helper()
	h := ownersHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	for _, file := range []string{"keystore.json", "ledger.db", "ledger.db-wal", "ledger.db-shm",
		"ledger.mark"} {
		_ = os.Remove(filepath.Join(h.home, file)) // the rules stay
	}
	return h
}

type desk struct {
	t      *testing.T
	keys   *os.File // what they type goes in here, what they see comes out
	tty    *os.File
	cmd    *exec.Cmd
	closed chan struct{}

	mu   sync.Mutex
	seen strings.Builder
}

func (h *house) sits(user uint32, args ...string) *desk { return h.sitsAt(user, h.wallet, args...) }

func (h *house) sitsAt(user uint32, program string, args ...string) *desk {
	h.t.Helper()
	keys, tty, err := pty.Open()
	require.NoError(h.t, err)
	d := &desk{t: h.t, keys: keys, tty: tty, closed: make(chan struct{}),
		cmd: h.as(user, []string{"HOME=" + h.agent, "X402_WALLET_SERVICE=" + h.socket}, program, args...)}
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = tty, tty, tty
	d.cmd.SysProcAttr.Setsid, d.cmd.SysProcAttr.Setctty = true, true
	require.NoError(h.t, d.cmd.Start())
	go func() {
		defer close(d.closed)
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			d.mu.Lock()
			d.seen.Write(buffer[:n])
			d.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	h.t.Cleanup(func() { _ = tty.Close(); <-d.closed; _ = keys.Close() })
	return d
}

func (d *desk) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.ReplaceAll(d.seen.String(), "\r\n", "\n")
}

func (d *desk) sees(text string, times int) *desk {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return strings.Count(d.String(), text) >= times }, time.Minute,
		5*time.Millisecond, "%q in %s", text, d)
	return d
}

func (d *desk) types(text string) *desk {
	must.Get(io.WriteString(d.keys, text))(d.t)
	return d
}

// ends waits for the command's end and gives what was seen. The terminal is as it was then.
func (d *desk) ends(code int) string {
	d.t.Helper()
	_ = d.cmd.Wait()
	require.Equal(d.t, code, d.cmd.ProcessState.ExitCode(), "%s", d)
	require.True(d.t, d.echoes(), "%s", d)
	_ = d.tty.Close()
	<-d.closed // all of it was seen
	return d.String()
}

// echoes reports whether the terminal shows what is typed.
func (d *desk) echoes() bool {
	is := must.Get(unix.IoctlGetTermios(int(d.tty.Fd()), unix.TCGETS))(d.t)
	return is.Lflag&unix.ECHO != 0
}

func (d *desk) hides(prompt string) *desk {
	d.t.Helper()
	d.sees(prompt, 1)
	require.False(d.t, d.echoes())
	return d
}

// owns is a command of the person's for which they type the passphrase, and which succeeds.
func (h *house) owns(args ...string) string {
	h.t.Helper()
	return h.sits(person, args...).hides("Passphrase").types(testworld.Passphrase + "\n").ends(0)
}

func childrenOf(t *testing.T, pid int) (list []int) {
	t.Helper()
	threads := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)))(t)
	for _, thread := range threads {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		for _, child := range strings.Fields(string(text)) {
			list = append(list, must.Get(strconv.Atoi(child))(t))
		}
	}
	return list
}

// The owner makes the wallet at their own terminal, as their own user: they type the passphrase, and nobody
// shows it. It is the service's user's, and the service has it at once.
func TestAnOwnerMakesTheWallet(t *testing.T) {
	h := houseWithoutAWallet(t)
	h.serve()
	d := h.sits(person, "init").hides("New passphrase").types(testworld.Passphrase + "\n")
	said := d.sees("The same again", 1).types(testworld.Passphrase + "\n").ends(0)
	require.Contains(t, said, "at the service "+h.socket)
	require.Contains(t, said, "agents add NAME")
	require.NotContains(t, said, testworld.Passphrase)
	h.Fund(evmIn(said), sandbox.USDC)
	info := must.Get(os.Stat(filepath.Join(h.home, "keystore.json")))(t)
	require.Equal(t, uint32(owner), info.Sys().(*syscall.Stat_t).Uid)
	require.Equal(t, "WALLET_LOCKED", h.pays(h.agentOf(nobody, h.agentsEnv(alice)), "1"))
}

// A recovery phrase is typed there, too, and not shown; it comes out again at the service's own user alone.
func TestAnOwnerTypesAPhrase(t *testing.T) {
	h := houseWithoutAWallet(t)
	h.serve()
	d := h.sits(person, "init", "--import-phrase").hides("Word 1: ")
	d.types("test test test test test test test test test test test junk\n")
	d.hides("Word 13 (Enter").types("\n")
	d.hides("New passphrase").types(testworld.Passphrase + "\n")
	said := d.sees("The same again", 1).types(testworld.Passphrase + "\n").ends(0)
	require.Equal(t, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", evmIn(said))
	require.NotContains(t, said, "junk")
	require.NotContains(t, said, "export-phrase", "which is not run by the socket")
	code, text := h.tells(person, nil, "export-phrase")
	require.Equal(t, "INVALID_ARGUMENT", code)
	require.Contains(t, text, "sudo -u x402-wallet env X402_WALLET_HOME="+h.home)
}

// What only the owner decides, they decide so; and read what there is.
func TestAnOwnerDecidesByTheSocket(t *testing.T) {
	h := ownersHouse(t, sandbox.Rules{ApproveAbove: "0.0005",
		Extra: knows("alice", alice) + "day = \"0.001\"\n"})
	h.serve()
	agent := h.agentOf(nobody, h.agentsEnv(alice))
	require.Equal(t, "APPROVAL_REQUIRED", h.pays(agent, "1"))
	id := regexp.MustCompile(`apr_[0-9a-f]+`).FindString(h.sits(person, "approvals").ends(0))
	require.NotEmpty(t, id)
	require.NotContains(t, h.owns("approve", id), testworld.Passphrase)
	require.Equal(t, "WALLET_LOCKED", h.pays(agent, "1"))
	lock := h.as(owner, h.ownersEnv(), h.wallet, "lock") // beyond the test's context
	t.Cleanup(func() {
		_ = (&exec.Cmd{Path: lock.Path, Args: lock.Args, Env: lock.Env,
			SysProcAttr: lock.SysProcAttr}).Run()
	})
	h.owns("unlock")
	require.Equal(t, "paid", h.pays(agent, "1"))
	require.Equal(t, "BUDGET_EXCEEDED", h.pays(agent, "2"))
	h.owns("budget", "set", "day", "0.003", "--agent", "alice")

	h.sits(person, "freeze").ends(0)
	require.Equal(t, "WALLET_FROZEN", h.pays(agent, "2"))
	h.owns("unfreeze")
	rules := filepath.Join(h.home, "config.toml")
	text := must.Get(os.ReadFile(rules))(t)
	looser := strings.Replace(string(text), `approve_above = "0.0005"`, `approve_above = "5"`, 1)
	require.NotEqual(t, looser, string(text))
	require.NoError(t, os.WriteFile(rules, []byte(looser), 0o600))
	require.Contains(t, h.owns("policy", "seal"), "loosens")
	require.Equal(t, "paid", h.pays(agent, "2"))

	token := regexp.MustCompile(`x402w_\S+`).FindString(h.owns("agents", "add", "bob"))
	require.Equal(t, "paid", h.pays(h.agentOf(nobody, h.agentsEnv(token)), "3"))
	require.Contains(t, h.sits(person, "agents").ends(0), "bob")

	books := must.Get(os.Create(filepath.Join(h.dir, "books.csv")))(t) // opened by the person's shell
	defer books.Close()
	export := h.as(person, []string{"X402_WALLET_SERVICE=" + h.socket}, h.wallet, "export")
	export.Stdout = books
	require.NoError(t, export.Run())
	text = must.Get(os.ReadFile(books.Name()))(t)
	require.Equal(t, 3, strings.Count(string(text), ",settled,"), "%s", text)

	added := h.owns("account", "add", "travel", "--agent", "bob")
	evm := evmIn(added)
	require.Contains(t, h.sits(person, "address", "--account", "travel").ends(0), evm)
	h.Fund(evm, sandbox.USDC)
	bob := h.agentOf(nobody, h.agentsEnv(token))
	require.Equal(t, "WALLET_LOCKED", h.pays(bob, "4"), "the unlock agent does not know that account yet")
	h.sits(person, "lock").ends(0)
	h.owns("unlock")
	require.Equal(t, "paid", h.pays(bob, "4"))
	all := h.Settlements()
	require.Equal(t, evm, all[len(all)-1].Payer)
}

func (h *house) tells(user uint32, env []string, args ...string) (code string, text string) {
	h.t.Helper()
	env = append([]string{"HOME=" + h.agent, "X402_WALLET_SERVICE=" + h.socket}, env...)
	cmd := h.as(user, env, h.wallet, append(args, "--json")...)
	cmd.SysProcAttr.Setsid = true
	var said strings.Builder
	cmd.Stderr = &said
	out, _ := cmd.Output()
	var answer struct{ Error string }
	require.NoError(h.t, json.Unmarshal(out, &answer), "%s", out)
	isBegun := !slices.Contains([]string{"POLICY_DENIED", "INVALID_ARGUMENT"}, answer.Error)
	require.Equal(h.t, isBegun, strings.Contains(said.String(), "at the service"), "%s %s", args, &said)
	return answer.Error, string(out)
}

// Nobody else's commands are run: not another user's, not the agent's, whatever token it has, and not those
// of the service's user, who MCP servers are, too. Root's are.
func TestWhoseCommandsAreRun(t *testing.T) {
	h := ownersHouse(t, sandbox.Rules{Extra: knows("alice", alice) + "[agents.desk]\nuser = \"65532\"\n"})
	h.serve(h.passphrase())
	for _, user := range []uint32{other, nobody, owner} {
		for _, args := range [][]string{{"balance"}, {"approve", "x"}, {"history"}, {"freeze"}, {"lock"},
			{"pay", "x"}} {
			code, text := h.tells(user, []string{"X402_WALLET_TOKEN=" + alice}, args...)
			require.Equal(t, "POLICY_DENIED", code, "%d %s", user, text)
		}
	}
	for _, user := range []uint32{person, 0} {
		code, text := h.tells(user, nil, "budget")
		require.Empty(t, code, text)
		code, text = h.tells(user, nil, "unfreeze")
		require.Empty(t, code, "nothing is frozen: "+text)
		code, text = h.tells(user, nil, "agents", "add", "bob")
		require.Equal(t, "WALLET_LOCKED", code, "nobody can type: "+text)
	}
}

// No file is read or written for them as the service's user, and no process stays.
func TestWhatIsNotRunForAnOwner(t *testing.T) {
	h := ownersHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	h.serve(h.passphrase())
	written := filepath.Join(h.home, "written")
	for _, args := range [][]string{{"export", "-o", written}, {"unlock", "--passphrase-file", h.secret},
		{"unlock", "--passphrase-fd", "0"}, {"unlock", "--foreground"}, {"approve", "x", "--page"},
		{"history", "import", h.secret}, {"pay", h.SellerURL + "/weather", "-d", "@" + h.secret},
		{"dashboard"}, {"passphrase", "--new-passphrase-file", h.secret}, {"init", "--config", h.secret},
		{"export-phrase"}, {"init", "--import-phrase-file", h.secret},
		{"vault", "deploy", "--owner-keypair", h.secret}, {"estimate", "x"}} {
		code, text := h.tells(person, nil, args...)
		require.Equal(t, "INVALID_ARGUMENT", code, "%s %s", args, text)
		require.Contains(t, text, "sudo -u x402-wallet env X402_WALLET_HOME="+h.home, args)
		require.NotContains(t, text, testworld.Passphrase)
	}
	require.NoFileExists(t, written)
	require.Empty(t, h.Settlements())
}

// So many wrong passphrases are taken, and then not even the right one; what takes none goes on.
func TestWrongPassphrasesByTheSocket(t *testing.T) {
	h := ownersHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	h.serve(h.passphrase())
	first := h.sits(person, "unlock").hides("Passphrase")
	require.Contains(t, h.sits(person, "budget", "set", "day", "99").ends(4), "another command waits for one")
	first.types("a wrong passphrase\n").ends(4)
	for range 3 {
		require.Contains(t, h.sits(person, "agents", "add", "bob").hides("Passphrase").
			types("a wrong passphrase\n").ends(4), "INVALID_PASSPHRASE")
	}
	h.owns("budget", "set", "day", "90") // they were somebody who knows it
	for i := range 5 {
		d := h.sits(person, "unlock").hides("Passphrase").types("a wrong passphrase\n")
		if i == 4 { // who does not wait for the answer has guessed, too
			d.sees("\n", 2)
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
			continue
		}
		d.ends(4)
	}
	require.Eventually(t, func() bool {
		d := h.sits(person, "unlock")
		_ = d.cmd.Wait()
		return strings.Contains(d.String(), "5 that came by the service's socket were wrong")
	}, time.Minute, 100*time.Millisecond)
	h.sits(person, "history").ends(0)
	h.sits(person, "budget", "set", "day", "1").ends(0)
	h.owner("policy", "seal") // nothing of this is the service's user's
}

// However a command ends, the terminal shows again what is typed, and nothing is left of it.
func TestHowAnOwnersCommandEnds(t *testing.T) {
	h := ownersHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	service := h.serve(h.passphrase())
	before := must.Get(os.ReadFile(filepath.Join(h.home, "config.toml")))(t)
	begun := func() (d *desk, child int) {
		d = h.sits(person, "agents", "add", "bob").hides("Passphrase")
		children := childrenOf(t, service.Pid)
		require.Len(t, children, 1)
		return d, children[0]
	}
	gone := func(pid int) {
		ended := func() bool { return !slices.Contains(childrenOf(t, service.Pid), pid) }
		require.Eventually(t, ended, time.Minute, 5*time.Millisecond)
	}
	d, child := begun()
	require.NoError(t, unix.Kill(child, unix.SIGKILL)) // while the echo is off
	d.ends(255)

	d, child = begun()
	require.Contains(t, d.types("\x03").ends(1), "interrupted") // Ctrl-C
	gone(child)

	d, child = begun()
	d.types(testworld.Passphrase[:5])
	require.NoError(t, d.cmd.Process.Kill())
	_ = d.cmd.Wait()
	gone(child)
	require.Eventually(t, d.echoes, time.Minute, 5*time.Millisecond)

	after := must.Get(os.ReadFile(filepath.Join(h.home, "config.toml")))(t)
	require.Equal(t, string(before), string(after))
	h.owner("policy", "seal")
	h.owns("budget", "set", "day", "99")

	d, child = begun()
	require.NoError(t, service.Signal(syscall.SIGTERM))
	require.Contains(t, d.ends(1), "SERVER_UNAVAILABLE")
	require.ErrorIs(t, unix.Kill(child, 0), unix.ESRCH)
}

// A shell that has the terminal back does not read beside a command: Ctrl-Z does not stop it, and one in the
// background is not given the terminal.
func TestAnOwnersShell(t *testing.T) {
	h := ownersHouse(t, sandbox.Rules{Extra: knows("alice", alice)})
	h.serve(h.passphrase())
	sits := func(line, agent string) *desk {
		return h.sitsAt(person, "bash", "-c", "set -m; "+line+"; echo ended $?", "bash", h.wallet, "agents",
			"add", agent)
	}
	d := sits(`"$@"`, "bob").hides("Passphrase").types("\x1a")
	require.Contains(t, d.types(testworld.Passphrase+"\n").sees("ended", 1).ends(0), "ended 0")
	require.Contains(t, sits(`"$@" & wait $!`, "carol").sees("ended", 1).ends(0), "ended 4")
}
