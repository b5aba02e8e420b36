//go:build !unix

package unlock

import (
	"io"
	"os/exec"
)

// runInto runs a command, whose output goes into out.
func runInto(cmd *exec.Cmd, out io.Writer) error {
	cmd.Stdout = out
	return cmd.Run()
}
