//go:build crash && unix

package wallet

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// make crash runs these; they need strace, and say so instead of passing without it.
func needStrace(t *testing.T) string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	require.NoError(t, err, "apt-get install strace")
	return strace
}

// Killed at every call that changes the disk, or that call failing: afterwards
// either there is no wallet and one can be made, or it opens (security.md F8).
// strace counts calls per thread, so a run may be made twice; none is left out
// that this thread reaches.
func TestCrashWhileCreating(t *testing.T) {
	strace := needStrace(t)
	for _, fault := range []string{"signal=KILL", "error=EIO", "error=ENOSPC"} {
		for _, call := range []string{"mkdirat", "fsync", "linkat", "unlinkat", "write", "flock"} {
			t.Run(call+" "+fault, func(t *testing.T) {
				for when := 1; ; when++ {
					require.Less(t, when, 30)
					dir, log := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "log")
					cmd := helperCommand(t, "create", dir)
					cmd.Path = strace
					cmd.Args = []string{"strace", "-f", "-o", log, "-e", "trace=" + call,
						"-e", fmt.Sprintf("inject=%s:%s:when=%d", call, fault, when), os.Args[0]}
					out, _ := cmd.CombinedOutput()
					requireUsable(t, dir, string(out))
					trace, err := os.ReadFile(log)
					require.NoError(t, err)
					if !bytes.Contains(trace, []byte("INJECTED")) &&
						!bytes.Contains(trace, []byte("killed by")) {
						require.Greater(t, when, 1, "nothing was injected: %s %s", out, trace)
						return // the call is not made that often
					}
				}
			})
		}
	}
}

// requireUsable wants a home that the next start can live with.
func requireUsable(t *testing.T, dir, output string) {
	t.Helper()
	f := &fakeKDF{}
	w, err := Open(dir)
	if err != nil {
		requireCode(t, err, codeNotFound)
		require.NotContains(t, output, "0x", "it said that a wallet was made")
		_, err = Create(t.Context(), dir, value(testPassphrase), Options{derive: f.derive})
		require.NoError(t, err)
	} else {
		w.derive = f.derive
		require.NoError(t, w.Unlock(t.Context(), value(testPassphrase)))
	}
	requireOnlyKeystore(t, dir)
}

// Killed at every call of a change of the passphrase, or that call failing: there is always one
// keystore, it opens with the old passphrase or the new one, and what was said is true.
func TestCrashWhileChangingThePassphrase(t *testing.T) {
	strace := needStrace(t)
	for _, fault := range []string{"signal=KILL", "error=EIO", "error=ENOSPC"} {
		for _, call := range []string{"openat", "fsync", "renameat", "write", "flock", "read", "close"} {
			t.Run(call+" "+fault, func(t *testing.T) {
				if (call == "openat" || call == "close" || call == "read") && fault != "signal=KILL" {
					t.Skip("the Go runtime makes these too, and does not survive their failing")
				}
				for when := 1; ; when++ {
					require.Less(t, when, 300)
					dir, log := home(t), filepath.Join(t.TempDir(), "log")
					f := &fakeKDF{}
					_, err := Create(t.Context(), dir, value(testPassphrase), Options{derive: f.derive})
					require.NoError(t, err)
					cmd := helperCommand(t, "change", dir)
					cmd.Path = strace
					cmd.Args = []string{"strace", "-f", "-o", log, "-e", "trace=" + call,
						"-e", fmt.Sprintf("inject=%s:%s:when=%d", call, fault, when), os.Args[0]}
					out, _ := cmd.CombinedOutput()
					w, err := Open(dir)
					require.NoError(t, err, "%s", out)
					w.derive = f.derive
					old := w.Unlock(t.Context(), value(testPassphrase))
					w.Lock()
					fresh := w.Unlock(t.Context(), value(newPassphrase))
					require.True(t, (old == nil) != (fresh == nil), "old: %v, new: %v, %s", old, fresh, out)
					if bytes.HasPrefix(out, []byte("changed")) {
						require.NoError(t, fresh)
					}
					requireOnlyKeystore(t, dir)
					trace, err := os.ReadFile(log)
					require.NoError(t, err)
					if !bytes.Contains(trace, []byte("INJECTED")) &&
						!bytes.Contains(trace, []byte("killed by")) {
						require.Greater(t, when, 1, "nothing was injected: %s %s", out, trace)
						return
					}
				}
			})
		}
	}
}

// The order that makes a crash harmless: everything is on the disk before it has
// its name, and the name is before Create answers. Each call has returned before
// the next one begins.
func TestOrderOnDisk(t *testing.T) {
	strace := needStrace(t)
	dir, log := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "log")
	cmd := helperCommand(t, "create", dir)
	cmd.Path = strace
	cmd.Args = []string{"strace", "-f", "-y", "-o", log, "-e", "trace=mkdirat,write,fsync,linkat,unlinkat",
		os.Args[0]}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	trace, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, []string{"mkdirat", "fsync", "write temp", "fsync temp", "linkat temp", "unlinkat temp",
		"fsync home", "answer"},
		diskCalls(string(trace), dir), "%s", trace)
}

// What strace writes of a call that another thread's line interrupts is one call that ends where it
// is resumed.
func TestOrderOnDiskOfTwoThreads(t *testing.T) {
	require.Equal(t, []string{"fsync home", "answer"}, diskCalls(`7 fsync(7</h> <unfinished ...>
8 write(6<anon_inode:[eventfd]>, "\1", 8) = 8
7 <... fsync resumed>)              = 0
7 write(1<pipe:[1]>, "0xA2"..., 43) = 43
`, "/h"))
	require.Equal(t, []string{"fsync home began", "answer", "fsync home"},
		diskCalls(`7 fsync(7</h> <unfinished ...>
8 write(1<pipe:[1]>, "0xA2"..., 43) = 43
7 <... fsync resumed>)              = 0
`, "/h"))
}

var straceLine = regexp.MustCompile(`^(\d+) +(<\.\.\. )?(\w+)(?:\(| resumed>)(.*)`)

// diskCalls are the calls about dir, every fsync and what goes to the standard output, in the order
// in which they returned; "began" is put where one was still under way when another of them came.
func diskCalls(trace, dir string) []string {
	var got []string
	began := map[string]string{} // by thread
	for line := range strings.Lines(trace) {
		m := straceLine.FindStringSubmatch(line)
		if m == nil {
			continue // a signal, or a thread's end
		}
		thread, resumed, name, args := m[1], m[2] != "", m[3], m[4]
		switch {
		case resumed && began[thread] == "":
			continue
		case resumed:
			name = began[thread]
			delete(began, thread)
		case strings.Contains(args, tempPrefix):
			name += " temp"
		case strings.Contains(args, dir+">"):
			name += " home"
		case strings.HasPrefix(args, "1<"):
			name = "answer"
		case !strings.Contains(args, dir) && name != "fsync":
			continue
		}
		for _, other := range began {
			got = append(got, other+" began")
		}
		if strings.HasSuffix(args, "<unfinished ...>") {
			began[thread] = name
			continue
		}
		got = append(got, name)
	}
	return got
}
