package testworld

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reference is what calls of the reference payer took, in milliseconds.
type Reference struct {
	Took []float64 `json:"took"` // of each
	CPU  float64   `json:"cpu"`  // of all together, without the start
}

// PayByReference pays a URL so many times with @x402/fetch, with a key of play money. lab is where e2e/lab
// lies, env what is added to the environment.
func PayByReference(t testing.TB, lab, url string, count int, key string, env ...string) (r Reference) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(lab, "parties", "paying.mjs"), url,
		strconv.Itoa(count), key)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	require.NoError(t, err, "is the lab prepared? (make prep) %s", out)
	require.NoError(t, json.Unmarshal(out, &r))
	return r
}

// CPUOf is what a process has computed so far, in milliseconds; 0 where the system does not tell.
func CPUOf(pid int) float64 {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 10 // Linux counts hundredths of a second
}
