package child

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func TestMain(m *testing.M) {
	if ExecConfined(os.Args[1:], os.Environ()) {
		os.Exit(126)
	}
	if code, hasRole := runRole(os.Args); hasRole {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// What is open are the largest trees beside what is closed, and no link.
func TestTreesOutside(t *testing.T) {
	disk := fstest.MapFS{
		"bin":                                 {Mode: fs.ModeSymlink},
		"usr/bin/node":                        {},
		"etc/passwd":                          {},
		"home/other/file":                     {},
		"home/me/.bashrc":                     {},
		"home/me/.cache/npm/x":                {},
		"home/me/link":                        {Mode: fs.ModeSymlink},
		"home/me/secret":                      {},
		"home/me/secret2":                     {},
		"home/me/.config/tool/x":              {},
		"home/me/.config/wallet/keystore":     {},
		"home/me/.config/wallet-2/x":          {},
		"home/me/.config/wallet/run/1234.pid": {},
	}
	list := func(dir string) ([]fs.DirEntry, error) {
		name := strings.TrimPrefix(dir, "/")
		if name == "" {
			name = "."
		}
		return disk.ReadDir(name)
	}
	files := func(closed ...string) (open []string) {
		for _, t := range treesOutside(closed, list) {
			path := t.path
			if t.isDir {
				path += "/"
			}
			open = append(open, path)
		}
		slices.Sort(open)
		return open
	}
	require.Equal(t, []string{"/etc/", "/home/me/.bashrc", "/home/me/.cache/", "/home/me/.config/tool/",
		"/home/me/.config/wallet-2/", "/home/me/secret2", "/home/other/", "/usr/"},
		files("/home/me/.config/wallet", "/home/me/secret"))
	require.Equal(t, []string{"/etc/", "/home/", "/usr/"}, files("/gone"))
	require.Equal(t, []string{"/etc/", "/home/other/", "/usr/"}, files("/home/me", "/home/me/secret"))
	require.Empty(t, files("/"))
}

func TestWithin(t *testing.T) {
	require.True(t, within("/a/b", "/a/b"))
	require.True(t, within("/a/b/c", "/a/b"))
	require.True(t, within("/a", "/"))
	require.False(t, within("/a/bc", "/a/b"))
	require.False(t, within("/a", "/a/b"))
}

// A program without an environment has none, and not ours; one that is not there says so.
func TestCommand(t *testing.T) {
	t.Setenv("SOME_SECRET", "canary")
	env := must.Get(exec.LookPath("env"))(t)
	cmd := must.Get(Program{Argv: []string{env}}.Command())(t)
	require.NotContains(t, string(must.Get(cmd.Output())(t)), "canary")
	_, err := Program{Argv: []string{filepath.Join(t.TempDir(), "gone")}}.Command()
	if err == nil { // it is told when it starts
		cmd, _ = Program{Argv: []string{filepath.Join(t.TempDir(), "gone")}}.Command()
		err = cmd.Start()
	}
	require.Error(t, err)
	require.Error(t, must.Err(Program{}.Command()))
}
