//go:build unix

package childtest

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that is written while others are started can be started at once, also in the place of one that
// runs.
func TestWrittenProgramsAreNotBusy(t *testing.T) {
	var starting sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command("/bin/true").Run()
				}
			}
		})
	}
	defer starting.Wait()
	defer close(done)
	program := filepath.Join(t.TempDir(), "program")
	for range 100 {
		Write(t, program, "exit 3")
		var exit *exec.ExitError
		require.ErrorAs(t, exec.Command(program).Run(), &exit)
		require.Equal(t, 3, exit.ExitCode())
	}
}
