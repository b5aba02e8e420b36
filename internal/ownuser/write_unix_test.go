//go:build unix

package ownuser

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func nothing(Action) {}

// Below another root all files are written, and no command is run.
func TestApplyBelowARoot(t *testing.T) {
	root := t.TempDir()
	program := filepath.Join(root, "program")
	require.NoError(t, os.WriteFile(program, []byte("v1"), 0o600))
	plan := Install(Setup{Program: program, Credential: program})
	isRun := func(a Action) bool { return a.Run != nil }
	require.True(t, slices.ContainsFunc(plan, isRun))
	ran := filepath.Join(root, "ran")
	// the plan's own would change this machine
	plan = append(slices.DeleteFunc(plan, isRun), run("touch", ran))
	var said []Action
	require.NoError(t, plan.Apply(t.Context(), root, func(a Action) { said = append(said, a) }))
	require.NoFileExists(t, ran)
	for _, a := range said {
		require.NotNil(t, a.Write)
		info := must.Get(os.Stat(filepath.Join(root, a.Write.Path)))(t)
		require.Equal(t, a.Write.Mode, info.Mode().Perm(), a.Write.Path)
	}
	require.Len(t, said, 4)
	text := must.Get(os.ReadFile(filepath.Join(root, Service().Unit)))(t)
	require.Equal(t, Setup{Credential: program}.systemdUnit(), string(text))

	placed := filepath.Join(root, Service().Program)
	before := must.Get(os.Stat(placed))(t)
	require.NoError(t, plan.Apply(t.Context(), root, nothing))
	kept := must.Get(os.Stat(placed))(t)
	require.True(t, os.SameFile(before, kept), "the same program stays")
	require.NoError(t, os.WriteFile(program, []byte("v2"), 0o600))
	require.NoError(t, plan.Apply(t.Context(), root, nothing))
	text = must.Get(os.ReadFile(placed))(t)
	require.Equal(t, "v2", string(text))

	require.NoError(t, slices.DeleteFunc(Uninstall(), isRun).Apply(t.Context(), root, nothing))
	require.NoFileExists(t, filepath.Join(root, Service().Unit))
	require.FileExists(t, placed)
}

// A command that fails ends the plan, unless it may; nothing after it is done.
func TestApplyRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made")
	require.NoError(t, Plan{tryTo("false"), run("touch", file)}.Apply(t.Context(), "", nothing))
	require.FileExists(t, file)
	err := Plan{run("sh", "-c", "echo why >&2; exit 3"), remove(file)}.Apply(t.Context(), "", nothing)
	require.ErrorContains(t, err, "why")
	require.FileExists(t, file)
	require.NoError(t, Plan{remove(file), remove(file)}.Apply(t.Context(), "", nothing))
	require.NoFileExists(t, file)
}

// Where somebody else could put another file, nothing of root's is written.
func TestPathsThatOthersCanWriteTo(t *testing.T) {
	top := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	dir := filepath.Join(top, "usr", "bin")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "x402-wallet")
	require.NoError(t, checkPath(path, top))
	for _, open := range []string{dir, filepath.Dir(dir)} {
		for _, mode := range []os.FileMode{0o775, 0o757, 0o777 | os.ModeSticky} {
			require.NoError(t, os.Chmod(open, mode))
			require.ErrorContains(t, checkPath(path, top), "chmod go-w "+open)
		}
		require.NoError(t, os.Chmod(open, 0o755))
	}
	require.NoError(t, os.WriteFile(path, nil, 0o755))
	require.NoError(t, checkPath(path, top))
	require.NoError(t, os.Chmod(path, 0o777))
	require.ErrorContains(t, checkPath(path, top), "can be written by others")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("elsewhere", path))
	require.ErrorContains(t, checkPath(path, top), "no regular file")
	require.NoError(t, os.Remove(path))

	require.NoError(t, os.Mkdir(filepath.Join(top, "open"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(top, "open"), 0o777))
	link := filepath.Join(top, "link")
	require.NoError(t, os.Symlink(filepath.Join(top, "open"), link))
	require.ErrorContains(t, checkPath(filepath.Join(link, "x402-wallet"), top), "is not safe",
		"what counts is where a link leads")
	if os.Geteuid() != 0 {
		t.Log("NOT TESTED HERE: only root can give a directory away")
		return
	}
	require.NoError(t, os.Chown(filepath.Dir(dir), 65534, 65534))
	require.ErrorContains(t, checkPath(path, top), "belongs to user 65534")
}
