//go:build unix

package wallet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func writeSecret(t *testing.T, content string, mode os.FileMode) string {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

func TestFromFile(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(writeSecret(t, "x", 0o600), link))
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for name, tc := range map[string]struct {
		path string
		want string
		code errorCode
		hint string
	}{
		"one line":      {writeSecret(t, "abc\n", 0o600), "abc", "", ""},
		"no line end":   {writeSecret(t, "abc", 0o400), "abc", "", ""},
		"CRLF":          {writeSecret(t, "abc\r\n", 0o600), "abc", "", ""},
		"two line ends": {writeSecret(t, "abc\n\n", 0o600), "abc\n", "", ""},
		"largest": {writeSecret(t, strings.Repeat("x", 1024)+"\r\n", 0o600), strings.Repeat("x", 1024),
			"", ""},
		"1 MB":        {writeSecret(t, strings.Repeat("x", 1<<20), 0o600), "", codeInvalidPassphrase, ""},
		"group reads": {writeSecret(t, "abc", 0o640), "", codePermissions, "chmod 600"},
		"others read": {writeSecret(t, "abc", 0o604), "", codePermissions, "chmod 600"},
		"symlink":     {link, "", codePermissions, ""},
		"FIFO":        {fifo, "", codePermissions, ""},
		"directory":   {t.TempDir(), "", codePermissions, "the file itself"},
		"missing": {"~/secret", "", codeLocked,
			"X402_WALLET_PASSPHRASE_FILE or keystore.passphrase_file; it takes the full path"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := FromFile(tc.path)(t.Context())
			if tc.code != "" {
				require.Empty(t, p)
				require.Contains(t, requireCode(t, err, tc.code).Hint(), tc.hint)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, string(p))
		})
	}
}

// Of systemd's directory root's file is taken, too, if nobody but root and who it is for can read it.
func TestFromCredential(t *testing.T) {
	given, err := FromCredential(writeSecret(t, "abc\n", 0o400))(t.Context())
	require.NoError(t, err)
	require.Equal(t, "abc", string(given))
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED HERE: only root has files of root's")
	}
	path := writeSecret(t, "abc\n", 0o440)
	_, err = FromCredential(path)(t.Context())
	require.NoError(t, err)
	_, err = FromFile(path)(t.Context())
	requireCode(t, err, codePermissions)
	for mode, group := range map[os.FileMode]int{0o444: 0, 0o460: 0, 0o440: 65534} {
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, os.Chown(path, 0, group))
		_, err = FromCredential(path)(t.Context())
		requireCode(t, err, codePermissions)
	}
}

// pipeFD is the reading end of a pipe that says this and ends. Nothing else in
// this process owns the number.
func pipeFD(t *testing.T, content string) int {
	var fds [2]int
	require.NoError(t, syscall.Pipe(fds[:]))
	go func() {
		w := os.NewFile(uintptr(fds[1]), "")
		_, _ = w.WriteString(content)
		_ = w.Close()
	}()
	return fds[0]
}

func TestFromFD(t *testing.T) {
	source := FromFD(pipeFD(t, testPassphrase+"\n"))
	p, err := source(t.Context())
	require.NoError(t, err)
	require.Equal(t, testPassphrase, string(p))
	_, err = source(t.Context())
	require.ErrorIs(t, err, ErrNoPassphrase, "it is read once")

	_, err = FromFD(pipeFD(t, strings.Repeat("x", 1<<20)))(t.Context())
	requireCode(t, err, codeInvalidPassphrase)
	for _, fd := range []int{-1, 1, 2} {
		_, err = FromFD(fd)(t.Context())
		requireCode(t, err, codeLocked)
	}
	_, err = FromFD(987654)(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNoPassphrase)
}

// A descriptor whose writer says nothing is not waited for longer than allowed.
func TestFromFDIsBounded(t *testing.T) {
	var fds [2]int
	require.NoError(t, syscall.Pipe(fds[:]))
	defer syscall.Close(fds[1])
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := FromFD(fds[0])(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestFromCommand(t *testing.T) {
	path := func(name string) string {
		found, err := exec.LookPath(name)
		require.NoError(t, err)
		return found
	}
	t.Setenv("SOME_SECRET", "canary")
	for name, tc := range map[string]struct {
		argv []string
		want string
		code errorCode
	}{
		"a line":            {[]string{path("printf"), `abc\n`}, "abc", ""},
		"no shell":          {[]string{path("printf"), "%s", "$HOME `id` ; x"}, "$HOME `id` ; x", ""},
		"stderr is dropped": {[]string{path("sh"), "-c", "echo noise >&2; echo abc"}, "abc", ""},
		"no stdin":          {[]string{path("sh"), "-c", "cat; echo abc"}, "abc", ""},
		"exit 1": {[]string{path("sh"), "-c", "echo " + testPassphrase + "; echo " + testPassphrase +
			" >&2; exit 1"}, "", codeLocked},
		"not there":                  {[]string{"/nowhere/pass"}, "", codeLocked},
		"in PATH":                    {[]string{"printf", "abc"}, "", codeLocked},
		"nothing of our environment": {[]string{path("sh"), "-c", `echo "<$SOME_SECRET$HOME>"`}, "<>", ""},
		"no pipe that others could open": {[]string{path("sh"), "-c",
			"test ! -p /proc/self/fd/1 && echo abc"}, "abc", ""},
		"too much": {[]string{path("yes")}, "", codeInvalidPassphrase},
		"largest":  {[]string{path("printf"), "%1024d\r\n", "1"}, fmt.Sprintf("%1024d", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := FromCommand(tc.argv, nil)(t.Context())
			if tc.code != "" {
				require.Empty(t, p)
				require.NotContains(t, requireCode(t, err, tc.code).Error(), testPassphrase)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, string(p))
		})
	}
	_, err := FromCommand(nil, nil)(t.Context())
	require.ErrorIs(t, err, ErrNoPassphrase)
}

// A command that hangs, and a child of it that keeps the output open.
func TestFromCommandIsBounded(t *testing.T) {
	w, _ := newTestWallet(t)
	for _, script := range []string{"exec sleep 600", "sleep 600 & sleep 600"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough to start it
		start := time.Now()
		err := w.Unlock(ctx,
			FromCommand([]string{"/bin/sh", "-c", script}, []string{"PATH=" + os.Getenv("PATH")}))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), commandWaitDelay+time.Minute)
		// it says which program had no answer, and by when it needs one
		e := requireCode(t, err, codeLocked)
		require.Contains(t, e.msg,
			"the passphrase command /bin/sh had not answered when the call's time was over")
		require.Contains(t, e.Hint(), "policy.deadline")
	}
	for _, tc := range []struct {
		caller, limit error
		says          string
	}{
		{nil, context.DeadlineExceeded, "had not answered after 1m0s"},
		{nil, nil, "failed"},
		{context.DeadlineExceeded, context.DeadlineExceeded,
			"had not answered when the call's time was over"},
	} {
		e := requireCode(t, commandFailed(tc.caller, tc.limit, "pass", errors.New("killed")), codeLocked)
		require.Equal(t, "the passphrase command pass "+tc.says,
			e.msg[:len("the passphrase command pass "+tc.says)], "%v", e)
	}
	require.Equal(t, context.Canceled, commandFailed(context.Canceled, context.Canceled, "pass", nil))
}
