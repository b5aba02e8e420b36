//go:build crash && unix

package owner_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// make crash runs these; they need strace, and say so instead of passing without it.
func needStrace(t *testing.T) string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	require.NoError(t, err, "apt-get install strace")
	return strace
}

// The order that makes a crash harmless: everything is on the disk before it has
// its name, and the name is before Create answers. Each call has returned before
// the next one begins.
func TestOrderOnDisk(t *testing.T) {
	strace := needStrace(t)
	dir, log := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "log")
	cmd := keytest.Command(t, "create", dir)
	cmd.Path = strace
	cmd.Args = []string{"strace", "-f", "-y", "-o", log, "-e", "trace=mkdirat,write,fsync,linkat,unlinkat",
		os.Args[0]}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	trace := must.Get(os.ReadFile(log))(t)
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
		case strings.Contains(args, keystore.TempPrefix):
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
