// Package sameuser shows what another program of the same user gets of the wallet that was built:
// what it sees of a process that holds the key, and what a program that the wallet starts can do.
// Where the tests run as root, who may look everywhere, all of it runs as another user.
package sameuser

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "watch" {
		watch(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "look" {
		saw := map[string]bool{}
		testworld.Look(os.Args[2], os.Args[3], saw)
		fmt.Print(strings.Join(slices.Sorted(maps.Keys(saw)), "\n"))
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "serve" {
		serve(os.Args[2], os.Args[3:]...)
		return
	}
	if len(os.Args) > 5 && os.Args[1] == "raid" {
		raid(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "probe" {
		probe(os.Args[2], os.Args[3])
		return
	}
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}

const nobody = 65534

type testUser struct {
	t      *testing.T
	dir    string // everything
	home   string
	user   string // the user's home directory
	secret string // the file of the passphrase
	wallet string // the program
	self   string // this program
	// the wallet's addresses
	evm, solana string
}

const passphrase = testworld.Passphrase

func newTestUser(t *testing.T, rules string) testUser {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "sameuser-"))(t) // that others may enter
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	h := testUser{t: t, dir: dir, home: at("user/.config/wallet"), user: at("user"),
		secret: at("user/secret"), wallet: at("bin/x402-wallet"), self: at("bin/played")}
	own := must.Get(os.Executable())(t)
	require.NoError(t, os.MkdirAll(at("user/.config"), 0o700))
	require.NoError(t, os.Mkdir(at("user/out"), 0o700))
	require.NoError(t, os.Mkdir(at("bin"), 0o755))
	for from, to := range map[string]string{testworld.Build(t): h.wallet, own: h.self} {
		text := must.Get(os.ReadFile(from))(t)
		require.NoError(t, os.WriteFile(to, text, 0o755))
	}
	require.NoError(t, os.WriteFile(h.secret, []byte(passphrase+"\n"), 0o600))
	evm, solana, err := testworld.MakeHome(h.home, strings.ReplaceAll(rules, "HOUSE", dir), passphrase)
	require.NoError(t, err)
	h.evm, h.solana = evm, solana
	h.give()
	return h
}

func (h testUser) give() {
	require.NoError(h.t, os.Chmod(h.dir, 0o755))
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(h.t, filepath.WalkDir(h.dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, nobody, nobody)
		}
		return err
	}))
}

func (h testUser) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), program, args...)
	cmd.Dir = h.user
	cmd.Env = []string{"HOME=" + h.user, "PATH=" + os.Getenv("PATH"), "X402_WALLET_HOME=" + h.home,
		"TMPDIR=" + h.user, "LANG=C", "X402_WALLET_PASSPHRASE_FILE=" + h.secret, "CDP_API_KEY_SECRET=canary",
		"SOME_SECRET=canary"}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// watching starts the watcher; the function ends it and gives what it saw.
func (h testUser) watching(argument string) func() string {
	cmd := h.command(h.self, "watch", argument, passphrase)
	in := must.Get(cmd.StdinPipe())(h.t)
	out := must.Get(cmd.StdoutPipe())(h.t)
	cmd.Stderr = os.Stderr
	require.NoError(h.t, cmd.Start())
	first := make([]byte, len("watching\n"))
	must.Get(io.ReadFull(out, first))(h.t)
	return func() string {
		require.NoError(h.t, in.Close())
		text := must.Get(io.ReadAll(out))(h.t)
		require.NoError(h.t, cmd.Wait())
		list, whole := strings.CutSuffix(string(text), "watched\n")
		require.True(h.t, whole, "%s", text)
		return list
	}
}

// watch is a program of the same user that waits for processes with this argument, tries to look
// into each from its first moment on, and prints what it saw when its input ends. What it looks for
// besides is secret.
func watch(argument, secret string) {
	runtime.LockOSThread() // a tracer is a thread
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	saw := map[string]bool{}
	before := map[string]bool{}
	for _, pid := range processes() {
		before[pid] = true
	}
	fmt.Println("watching")
	for {
		select {
		case <-over:
			for _, what := range slices.Sorted(maps.Keys(saw)) {
				fmt.Println(what)
			}
			fmt.Println("watched")
			return
		default:
		}
		for _, pid := range processes() {
			if before[pid] {
				continue
			}
			text, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if strings.Contains(string(text), argument) {
				saw["a process"] = true
				testworld.Look(pid, secret, saw)
			}
		}
	}
}

// processes are the numbers of those that can be seen.
func processes() (pids []string) {
	proc, err := os.Open("/proc")
	if err != nil {
		panic(err)
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := strconv.Atoi(name)
		return err != nil
	})
}
