package sameuser

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Whoever watches as the same user for the process that unlock starts gets neither the passphrase
// nor a way into it: it cannot be looked into from its first moment on, and the passphrase goes to
// it over a socket that only it has.
func TestUnlockShowsNothing(t *testing.T) {
	h := newTestUser(t, "")
	seen := 0
	for range 10 {
		watched := h.watching("--foreground")
		out, err := h.command(h.wallet, "unlock", "--passphrase-file", h.secret).CombinedOutput()
		saw := watched()
		require.NoError(t, err, "%s", out)
		if saw != "" {
			seen++
			require.Equal(t, "a process\n", saw)
		}
		out, err = h.command(h.wallet, "lock").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.Positive(t, seen, "the watcher saw none of the processes at all")
}

// looksInto is what a program of the same user sees of a process that is there.
func (h testUser) looksInto(pid int) string {
	h.t.Helper()
	out, err := h.command(h.self, "look", strconv.Itoa(pid), passphrase).CombinedOutput()
	require.NoError(h.t, err, "%s", out)
	return string(out)
}

// Whoever looks as the same user at the process behind the one-time page, before, while and after the
// passphrase is typed there, gets nothing of it, and not the page's address either, which has the way in.
func TestThePageShowsNothing(t *testing.T) {
	h := newTestUser(t, "")
	other := h.command("sleep", "600")
	require.NoError(t, other.Start())
	require.Contains(t, h.looksInto(other.Process.Pid), "mem", "of other processes it sees something")

	rules := filepath.Join(h.home, "config.toml")
	text := must.Get(os.ReadFile(rules))(t)
	require.NoError(t, os.WriteFile(rules, append([]byte("[budget]\nday = \"99\"\n"), text...), 0o600))
	cmd := h.command(h.wallet, "policy", "seal", "--page")
	stderr := must.Get(cmd.StderrPipe())(t)
	require.NoError(t, cmd.Start())
	var page string
	for lines := bufio.NewScanner(stderr); page == "" && lines.Scan(); {
		page = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S+`).FindString(lines.Text())
	}
	require.NotEmpty(t, page)
	at := must.Get(url.Parse(page))(t)
	looks := func() {
		t.Helper()
		require.Empty(t, h.looksInto(cmd.Process.Pid))
		line := must.Get(os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "cmdline")))(t)
		require.NotContains(t, string(line), at.Path)
	}
	answers := func(path, origin, given string) int {
		t.Helper()
		post := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at.Host+path,
			strings.NewReader(url.Values{"passphrase": {given}}.Encode())))(t)
		post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		post.Header.Set("Origin", origin)
		r := must.Get(http.DefaultClient.Do(post))(t)
		require.NoError(t, r.Body.Close())
		return r.StatusCode
	}
	looks()
	require.Equal(t, http.StatusNotFound, answers("/", "http://"+at.Host, "guessed")) // it sees the port
	require.Equal(t, http.StatusForbidden, answers(at.Path, "http://evil.example", "guessed"))
	require.Equal(t, http.StatusForbidden, answers(at.Path, "http://"+at.Host, "a wrong passphrase"))
	looks()
	require.Equal(t, http.StatusOK, answers(at.Path, "http://"+at.Host, passphrase))
	require.NoError(t, cmd.Wait())
}

// Nothing is read from --passphrase-fd before the process is closed to its user's other programs.
func TestADescriptorIsReadByAClosedProcess(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("NOT TESTED HERE: there is no strace")
	}
	h := newTestUser(t, "")
	log := filepath.Join(h.user, "out", "log")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	must.Get(write.WriteString(passphrase + "\n"))(t)
	require.NoError(t, write.Close())
	cmd := h.command(strace, "-f", "-o", log, "-e", "trace=prctl,read", h.wallet, "unlock",
		"--passphrase-fd", "3")
	cmd.ExtraFiles = []*os.File{read}
	require.Error(t, cmd.Run(), "it is not handed on to a process that is watched in this way")
	text := must.Get(os.ReadFile(log))(t)
	closed := regexp.MustCompile(`PR_SET_DUMPABLE, SUID_DUMP_DISABLE.* = 0`).FindIndex(text)
	given := regexp.MustCompile(fmt.Sprintf(`read.* = %d\n`, len(passphrase)+1)).FindIndex(text)
	require.NotEmpty(t, closed, "%s", text)
	require.NotEmpty(t, given, "%s", text)
	require.Less(t, closed[1], given[0], "%s", text)
	require.NotContains(t, string(text), passphrase[:8], "nor can what was read be seen")
}
