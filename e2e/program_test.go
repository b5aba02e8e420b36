package e2e

import (
	"debug/elf"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// The program is one file: it asks for no interpreter and no library, and starts in an empty directory
// without any variable.
func TestTheProgramNeedsNothingBeside(t *testing.T) {
	bin := testworld.Build(t)
	start := exec.CommandContext(t.Context(), bin, "version")
	start.Dir, start.Env = t.TempDir(), []string{"HOME=" + t.TempDir()}
	require.Contains(t, string(must.Get(start.CombinedOutput())(t)), "platform")

	if runtime.GOOS != "linux" {
		return
	}
	program := must.Get(elf.Open(bin))(t)
	defer func() { _ = program.Close() }()
	require.Empty(t, must.Get(program.ImportedLibraries())(t))
	for _, segment := range program.Progs {
		require.NotEqual(t, elf.PT_INTERP, segment.Type)
	}
}
