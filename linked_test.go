package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// The linker leaves out each method that nothing calls. It cannot where a function of the program looks up
// methods by a name that is known only when it runs (reflect.Value.MethodByName), as text/template does: then
// it keeps every exported method of every type, 3 MB of them. It marks such a function <ReflectMethod>.
func TestNoMethodIsLookedUpByName(t *testing.T) {
	build := exec.Command("go", "build", "-ldflags=-s -w -dumpdep", "-o",
		filepath.Join(t.TempDir(), "x402-wallet"), ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0") // as the program is built
	reached := must.Get(build.CombinedOutput())(t)
	require.Contains(t, string(reached), "\nmain.main -> ", "nothing is looked at")
	for line := range strings.Lines(string(reached)) {
		require.NotContains(t, line, "<ReflectMethod>", "who calls whom")
	}
}
