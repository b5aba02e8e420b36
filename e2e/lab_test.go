// Package e2e proves the wallet against programs that are not ours: real chains, reference
// facilitators, sellers and payers, started from e2e/lab on this machine's loopback, and the real
// wallet binary driven through its standard input and output.
//
// What must stay true: the wallet is judged by the others' records (package testlab), never by anything
// that the wallet says of itself.
package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/internal/must"
)

const price = 1000 // of everything in the lab that is not dear on purpose

// TestLabEnds proves that a lab leaves no process behind, not even when it is killed.
func TestLabEnds(t *testing.T) {
	var facts testlab.Facts
	lab := must.Get(testlab.Run("up.mjs", &facts))(t)
	t.Cleanup(lab.Stop)
	require.Contains(t, facts.PIDs, "anvil")
	require.NoError(t, lab.Process.Kill())
	for name, pid := range facts.PIDs {
		assert.Eventually(t, func() bool { return !alive(pid) }, time.Minute, 20*time.Millisecond, name)
	}
}

// TestLockFilesNameNoRegistry: a lock file with download addresses would bind everybody to the
// registry of whoever wrote it.
func TestLockFilesNameNoRegistry(t *testing.T) {
	// a path, as of a package that lies beside, is none
	address := regexp.MustCompile(`"resolved": "[a-z+]+:`)
	seen := 0
	require.NoError(t, filepath.WalkDir("lab", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err == nil && entry.Name() == "package-lock.json" {
			seen++
			assert.NotRegexp(t, address, string(must.Get(os.ReadFile(path))(t)), path)
		}
		return err
	}))
	assert.NotZero(t, seen)
}

func evmTime(t *testing.T, l *Lab, tag string) int64 {
	t.Helper()
	var block struct{ Result struct{ Timestamp string } }
	call := `{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["` + tag + `",false]}`
	response := must.Get(http.Post(l.EVM.URL, "application/json", strings.NewReader(call)))(t)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, response)), &block))
	return must.Get(strconv.ParseInt(block.Result.Timestamp, 0, 64))(t)
}

// alive tells whether a process runs. One that has ended and that nobody waited for, as in a
// container without an init, does not.
func alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		return !strings.Contains(string(stat), ") Z ")
	}
	process, err := os.FindProcess(pid)
	return err == nil && process.Signal(syscall.Signal(0)) == nil
}

type ozskrOffer struct{ Network, Amount, Asset, PayTo string }

func challenge(t *testing.T, header string) []ozskrOffer {
	t.Helper()
	decoded := must.Get(base64.StdEncoding.DecodeString(header))(t)
	required := must.JSON[struct {
		X402Version int
		Accepts     []ozskrOffer
	}](decoded)(t)
	require.Equal(t, 2, required.X402Version)
	require.NotEmpty(t, required.Accepts)
	return required.Accepts
}

func get(t *testing.T, at string, headers ...string) *http.Response {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil))(t)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	bodyOf(t, response)
	return response
}

func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	return string(must.Get(io.ReadAll(response.Body))(t))
}

func opsOf(calls []testlab.FacilitatorCall) []string {
	ops := []string{}
	for _, call := range calls {
		ops = append(ops, call.Op)
	}
	return ops
}
