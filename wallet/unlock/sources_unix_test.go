//go:build unix

package unlock

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

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/wallettest"
	"x402-wallet/wallet/owner"
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
		code coded.Code
		hint string
	}{
		"one line":      {writeSecret(t, "abc\n", 0o600), "abc", "", ""},
		"no line end":   {writeSecret(t, "abc", 0o400), "abc", "", ""},
		"CRLF":          {writeSecret(t, "abc\r\n", 0o600), "abc", "", ""},
		"two line ends": {writeSecret(t, "abc\n\n", 0o600), "abc\n", "", ""},
		"largest": {writeSecret(t, strings.Repeat("x", 1024)+"\r\n", 0o600), strings.Repeat("x", 1024),
			"", ""},
		"1 MB":        {writeSecret(t, strings.Repeat("x", 1<<20), 0o600), "", coded.InvalidPassphrase, ""},
		"group reads": {writeSecret(t, "abc", 0o640), "", coded.Permissions, "chmod 600"},
		"others read": {writeSecret(t, "abc", 0o604), "", coded.Permissions, "chmod 600"},
		"symlink":     {link, "", coded.Permissions, ""},
		"FIFO":        {fifo, "", coded.Permissions, ""},
		"directory":   {t.TempDir(), "", coded.Permissions, "the file itself"},
		"missing": {"~/secret", "", coded.WalletLocked,
			"X402_WALLET_PASSPHRASE_FILE or keystore.passphrase_file; it takes the full path"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := File(tc.path)(t.Context())
			if tc.code != "" {
				require.Empty(t, p)
				require.Contains(t, keytest.RequireCode(t, err, tc.code).Hint(), tc.hint)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, string(p))
		})
	}
}

// Of systemd's directory root's file is taken, too, if nobody but root and who it is for can read it.
func TestFromCredential(t *testing.T) {
	require.Equal(t, "abc", string(must.Get(Credential(writeSecret(t, "abc\n", 0o400))(t.Context()))(t)))
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED HERE: only root has files of root's")
	}
	path := writeSecret(t, "abc\n", 0o440)
	must.Get(Credential(path)(t.Context()))(t)
	keytest.RequireCode(t, must.Err(File(path)(t.Context())), coded.Permissions)
	for mode, group := range map[os.FileMode]int{0o444: 0, 0o460: 0, 0o440: 65534} {
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, os.Chown(path, 0, group))
		keytest.RequireCode(t, must.Err(Credential(path)(t.Context())), coded.Permissions)
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
	source := FD(pipeFD(t, keytest.Passphrase+"\n"))
	require.Equal(t, keytest.Passphrase, string(must.Get(source(t.Context()))(t)))
	require.ErrorIs(t, must.Err(source(t.Context())), wallet.ErrNoPassphrase, "it is read once")

	_, err := FD(pipeFD(t, strings.Repeat("x", 1<<20)))(t.Context())
	keytest.RequireCode(t, err, coded.InvalidPassphrase)
	for _, fd := range []int{-1, 1, 2} {
		keytest.RequireCode(t, must.Err(FD(fd)(t.Context())), coded.WalletLocked)
	}
	_, err = FD(987654)(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, wallet.ErrNoPassphrase)
}

// A descriptor whose writer says nothing is not waited for longer than allowed.
func TestFromFDIsBounded(t *testing.T) {
	var fds [2]int
	require.NoError(t, syscall.Pipe(fds[:]))
	defer syscall.Close(fds[1])
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, must.Err(FD(fds[0])(ctx)), context.DeadlineExceeded)
}

func TestFromCommand(t *testing.T) {
	path := func(name string) string {
		return must.Get(exec.LookPath(name))(t)
	}
	t.Setenv("SOME_SECRET", "canary")
	for name, tc := range map[string]struct {
		argv []string
		want string
		code coded.Code
	}{
		"a line":            {[]string{path("printf"), `abc\n`}, "abc", ""},
		"no shell":          {[]string{path("printf"), "%s", "$HOME `id` ; x"}, "$HOME `id` ; x", ""},
		"stderr is dropped": {[]string{path("sh"), "-c", "echo noise >&2; echo abc"}, "abc", ""},
		"no stdin":          {[]string{path("sh"), "-c", "cat; echo abc"}, "abc", ""},
		"exit 1": {[]string{path("sh"), "-c", "echo " + keytest.Passphrase + "; echo " +
			keytest.Passphrase +
			" >&2; exit 1"}, "", coded.WalletLocked},
		"not there":                  {[]string{"/nowhere/pass"}, "", coded.WalletLocked},
		"in PATH":                    {[]string{"printf", "abc"}, "", coded.WalletLocked},
		"nothing of our environment": {[]string{path("sh"), "-c", `echo "<$SOME_SECRET$HOME>"`}, "<>", ""},
		"no pipe that others could open": {[]string{path("sh"), "-c",
			"test ! -p /proc/self/fd/1 && echo abc"}, "abc", ""},
		"too much": {[]string{path("yes")}, "", coded.InvalidPassphrase},
		"largest":  {[]string{path("printf"), "%1024d\r\n", "1"}, fmt.Sprintf("%1024d", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Command(tc.argv, nil, nil)(t.Context())
			if tc.code != "" {
				require.Empty(t, p)
				require.NotContains(t, keytest.RequireCode(t, err, tc.code).Error(), keytest.Passphrase)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, string(p))
		})
	}
	require.ErrorIs(t, must.Err(Command(nil, nil, nil)(t.Context())), wallet.ErrNoPassphrase)
}

// A command that hangs, and a child of it that keeps the output open.
func TestFromCommandIsBounded(t *testing.T) {
	w := wallettest.Wallet(t, owner.Options{})
	for _, script := range []string{"exec sleep 600", "sleep 600 & sleep 600"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough to start it
		start := time.Now()
		err := w.Unlock(ctx,
			Command([]string{"/bin/sh", "-c", script}, []string{"PATH=" + os.Getenv("PATH")}, nil))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), commandWaitDelay+time.Minute)
		// it says which program had no answer, and by when it needs one
		e := keytest.RequireCode(t, err, coded.WalletLocked)
		require.Contains(t, e.Msg,
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
		e := keytest.RequireCode(t, commandFailed(tc.caller, tc.limit, "pass", errors.New("killed")),
			coded.WalletLocked)
		require.Equal(t, "the passphrase command pass "+tc.says,
			e.Msg[:len("the passphrase command pass "+tc.says)], "%v", e)
	}
	require.Equal(t, context.Canceled, commandFailed(context.Canceled, context.Canceled, "pass", nil))
}
