//go:build crash && linux

package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/schemes"
	"x402-wallet/internal/must"
)

// The injector misses no kind of call: strace, which has nothing to do with it, counts as many of each, but
// for what depends on the scheduler. And it shows why strace itself is not the
// injector: its when=N counts in each thread alone.
func TestStraceSeesTheSame(t *testing.T) {
	strace, err := exec.LookPath("strace")
	require.NoError(t, err, "apt-get install strace")
	bin := binary(t)
	paying := scenarios[0]
	r := must.Get(paying.execute(bin, nil, nil))(t)
	require.Empty(t, r.wrong)
	ours := map[string]int{}
	for _, c := range r.calls {
		ours[c.kind]++
	}

	w := must.Get(newWorld(schemes.Rules{}, nil))(t)
	defer w.Close()
	file := filepath.Join(t.TempDir(), "log")
	p := must.Get(w.start(strace, false, nil, "-f", "-o", file, "-e",
		"trace=pwrite64,fsync,fdatasync,ftruncate,connect,unlinkat,mkdirat,flock", bin, "mcp"))(t)
	require.NoError(t, p.initialize())
	traced := &run{world: w, scenario: paying}
	a := must.Get(p.pay(traced.call("")))(t)
	require.Equal(t, "paid", a.Status, a)
	require.NoError(t, p.end())
	log := must.Get(os.ReadFile(file))(t)

	theirs, most, byThread := map[string]int{}, map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(log)) {
		m := regexp.MustCompile(`^(\d+) +(\w+)\(`).FindStringSubmatch(line)
		if m == nil {
			continue // the end of a call that another thread interrupted, or a signal
		}
		theirs[m[2]]++
		byThread[m[1]+m[2]]++
		most[m[2]] = max(most[m[2]], byThread[m[1]+m[2]])
	}
	all, named := 0, 0
	for kind, n := range theirs {
		differs := max(1, n/20)
		if kind == "fsync" { // who waits for the disk at the same time shares one
			differs = 4
		}
		require.InDelta(t, n, ours[kind], float64(differs), "%s: ours %v, strace's %v", kind, ours, theirs)
		all, named = all+n, named+most[kind]
	}
	fmt.Printf("crash: strace counts the same calls; of %d its when=N can name at most %d\n", all, named)
}
