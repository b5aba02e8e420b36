//go:build unix

package notify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/alerts"
	"x402-wallet/internal/child"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
)

// script is a command that is a shell's script; $0 is a directory of the test's own.
func script(t *testing.T, text string) (c Command, dir string) {
	dir = t.TempDir()
	return Command{Program: child.Program{Argv: childtest.Script(dir, text),
		Env: []string{childtest.Env, "GIVEN=yes"}}}, dir
}

// A command has the notice on stdin and nothing of ours in its environment.
func TestACommandIsTold(t *testing.T) {
	t.Setenv("OURS", "canary")
	c, dir := script(t, `cat > "$0/line"; env > "$0/env"; pwd > "$0/pwd"`)
	n := notice(question(1), "")
	require.NoError(t, c.Tell(t.Context(), n))
	require.Equal(t, string(must.Get(n.line())(t)), childtest.Read(t, dir, "line"))
	require.Contains(t, childtest.Read(t, dir, "env"), "GIVEN=yes")
	require.NotContains(t, childtest.Read(t, dir, "env"), "canary")
	require.Equal(t, "/\n", childtest.Read(t, dir, "pwd"))
	_, to := c.Name()
	require.Equal(t, "/bin/sh", to)
}

// A command that reads nothing, prints much or leaves something behind has been told all the same.
func TestCommandsThatEnd(t *testing.T) {
	for name, text := range map[string]string{
		"reads nothing":                  "exit 0",
		"prints much":                    "head -c 50000000 /dev/zero; head -c 5000000 /dev/zero >&2",
		"leaves a child with its output": "sleep 3 & exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := script(t, text)
			n := test()
			n.Text = strings.Repeat("x", 1<<20) // more than a pipe holds
			require.NoError(t, c.Tell(t.Context(), n))
		})
	}
}

// What a command says of its failure is shown, bounded and in plain letters.
func TestACommandThatFails(t *testing.T) {
	c, _ := script(t, `printf 'no \033[2J mail' >&2; head -c 5000000 /dev/zero >&2; exit 3`)
	err := c.Tell(t.Context(), test())
	require.ErrorContains(t, err, `exit status 3; it said: no \x1b[2J mail`)
	require.Less(t, len(err.Error()), 2*maxComplaint)
	c.Program.Argv = []string{filepath.Join(t.TempDir(), "gone")}
	require.ErrorIs(t, c.Tell(t.Context(), test()), os.ErrNotExist)
}

// A command that hangs is killed in time, and with it what it started.
func TestACommandThatHangs(t *testing.T) {
	for name, text := range map[string]string{
		"itself":      `echo $$ > "$0/pid"; exec sleep 600`,
		"its child":   `sleep 600 & echo $! > "$0/pid"; wait`,
		"a flood":     `echo $$ > "$0/pid"; exec cat /dev/zero`,
		"many of it":  `for i in 1 2 3 4 5; do sleep 600 & done; sh -c 'sleep 600' & echo $! > "$0/pid"; wait`,
		"does not go": `trap "" TERM INT HUP; echo $$ > "$0/pid"; while :; do sleep 1; done`,
	} {
		for _, ends := range []string{"its time", "the wallet's end"} {
			t.Run(name+", "+ends, func(t *testing.T) {
				t.Parallel()
				c, dir := script(t, text)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.limit = time.Second
				if ends != "its time" {
					c.limit = time.Hour
					go func() {
						for read, _ := os.ReadFile(filepath.Join(dir, "pid")); len(read) == 0; {
							time.Sleep(time.Millisecond)
							read, _ = os.ReadFile(filepath.Join(dir, "pid"))
						}
						cancel()
					}()
				}
				err := c.Tell(ctx, test())
				if ends == "its time" {
					require.ErrorContains(t, err, "it had not ended after 1s, and was killed")
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
				text, err := os.ReadFile(filepath.Join(dir, "pid"))
				if err != nil { // on a busy machine its time was over before it began
					return
				}
				childtest.WaitGone(t, string(text))
			})
		}
	}
}

func TestACommandIsConfined(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "keystore.json"), []byte("canary"), 0o600))
	c, dir := script(t, fmt.Sprintf(`cat > "$0/line"; cat %s/keystore.json > "$0/stolen"; exit 0`, home))
	c.Program.Sandbox = child.Sandbox{Closed: []string{home}}
	require.NoError(t, c.Tell(t.Context(), test()))
	require.NotEmpty(t, childtest.Read(t, dir, "line"))
	if child.Unsupported() == "" {
		require.Empty(t, childtest.Read(t, dir, "stolen"))
	}
}

// The text of a notice is an argument of the script, whatever is in it.
func TestTheScriptsArguments(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "osascript")
	childtest.Write(t, program, `for a in "$@"; do printf '%s\n' "$a"; done > "$(dirname "$0")/arguments"`)
	a := question(1)
	a.Detail.Why = `x" with title "y" & (do shell script "id")`
	n := notice(a, "")
	require.NoError(t, Script{Program: program, Env: []string{childtest.Env}}.Tell(t.Context(), n))
	require.Equal(t, []string{"-e", "on run argv", "-e",
		"display notification (item 1 of argv) with title (item 2 of argv)", "-e", "end run",
		n.Text, title, ""}, strings.Split(childtest.Read(t, dir, "arguments"), "\n"))
	require.Contains(t, n.Text, `"y"`)
	for _, n := range []Notice{n, test(), more([]alerts.Alert{a, a})} {
		require.NotEqual(t, "-", n.Text[:1], "or it would be an option")
	}
}
