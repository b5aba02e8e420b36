package paywall_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// The README offers this package to other Go programs by a clone and a workspace, because the
// module path cannot be fetched. A program of another module builds that way, with no go.sum of its
// own.
func TestBuildsInAWorkspace(t *testing.T) {
	clone := must.Get(filepath.Abs(".."))(t)
	program := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(program, name), []byte(text), 0o600))
	}
	version := must.Get(exec.Command("go", "list", "-m", "-f", "{{.GoVersion}}").Output())(t)
	write("go.mod", "module example.com/shop\n\ngo "+string(version))
	write("main.go", `package main

import (
	"fmt"

	"x402-wallet/paywall"
)

func main() {
	_, err := paywall.New(paywall.Options{Tools: []paywall.Tool{{Name: "unpriced"}}})
	fmt.Println(err != nil)
}
`)
	run := func(args ...string) string {
		c := exec.Command("go", args...)
		c.Dir = program
		c.Env = append(os.Environ(), "GOWORK="+filepath.Join(program, "go.work"), "GOFLAGS=-trimpath")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	run("work", "init", ".", clone)
	require.Equal(t, "true\n", run("run", "."))
}
