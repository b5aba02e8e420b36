//go:build unix

package owner_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/wallettest"

	. "x402-wallet/wallet/owner"
)

// What can stand in the keystore's place, and what it is called.
func TestKeystorePath(t *testing.T) {
	data, _ := keytest.Golden(t)
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, dir, path string)
		code  coded.Code // empty: it opens
		says  string
		hint  string
	}{
		"0600":             {func(*testing.T, string, string) {}, "", "", ""},
		"0400":             {chmod(0o400), "", "", ""},
		"0644":             {chmod(0o644), coded.Permissions, "mode 0644", "chmod 600 "},
		"0640":             {chmod(0o640), coded.Permissions, "mode 0640", "chmod 600 "},
		"0604":             {chmod(0o604), coded.Permissions, "mode 0604", "chmod 600 "},
		"0620":             {chmod(0o620), coded.Permissions, "mode 0620", "chmod 600 "},
		"0601":             {chmod(0o601), coded.Permissions, "mode 0601", "chmod 600 "},
		"directory 0755":   {chmodDir(0o755), coded.Permissions, "mode 0755", "chmod 700 "},
		"directory 0777":   {chmodDir(0o777), coded.Permissions, "mode 0777", "chmod 700 "},
		"directory 0710":   {chmodDir(0o710), coded.Permissions, "mode 0710", "chmod 700 "},
		"directory 0702":   {chmodDir(0o702), coded.Permissions, "mode 0702", "chmod 700 "},
		"directory sticky": {chmodDir(0o777 | os.ModeSticky), coded.Permissions, "mode 0777", "chmod 700 "},
		"no file": {func(t *testing.T, _, path string) {
			require.NoError(t, os.Remove(path))
		}, coded.NotFound, "no wallet", "x402-wallet init"},
		"no directory": {func(t *testing.T, dir, _ string) {
			require.NoError(t, os.RemoveAll(dir))
		}, coded.NotFound, "no wallet", "x402-wallet init"},
		"empty file": {func(t *testing.T, _, path string) {
			require.NoError(t, os.Truncate(path, 0))
		}, coded.KeystoreCorrupt, "", ""},
		"100 MB file": {func(t *testing.T, _, path string) {
			require.NoError(t, os.Truncate(path, 100<<20))
		}, coded.KeystoreCorrupt, "larger than 65536", ""},
		"symlink":          {symlink, coded.Permissions, "symbolic link", ""},
		"dangling symlink": {danglingLink, coded.Permissions, "symbolic link", ""},
		"second name": {func(t *testing.T, dir, path string) {
			require.NoError(t, os.Link(path, dir+"/copy"))
		}, coded.Permissions, "one name", "-samefile"},
		"FIFO": {instead(func(path string) error {
			return syscall.Mkfifo(path, 0o600)
		}), coded.Permissions, "not a regular file", "put the file itself there"},
		"directory": {instead(func(path string) error {
			return os.Mkdir(path, 0o600)
		}), coded.Permissions, "not a regular file", "put the file itself there"},
		"socket": {instead(socket), coded.Permissions, "not a regular file",
			"put the file itself there"},
		"a file as home":    {fileAsHome, coded.Permissions, "not a directory", "X402_WALLET_HOME"},
		"linked home opens": {linkedHome, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := keytest.Put(t, data)
			path := filepath.Join(dir, keystore.Name)
			tc.spoil(t, dir, path)
			start := time.Now()
			w, err := wallet.Open(dir)
			require.Less(t, time.Since(start), 10*time.Second, "it must not hang")
			if tc.code == "" {
				require.NoError(t, err)
				return
			}
			require.Nil(t, w)
			e := keytest.RequireCode(t, err, tc.code)
			require.Contains(t, e.Error(), tc.says)
			require.Contains(t, e.Hint(), tc.hint)
			if strings.HasPrefix(tc.hint, "chmod") { // the advice is the cure
				out, err := exec.Command("sh", "-c", strings.TrimPrefix(e.Hint(), "run: ")).CombinedOutput()
				require.NoError(t, err, "%s", out)
				must.Get(wallet.Open(dir))(t)
			}
		})
	}
}

func chmod(mode os.FileMode) func(*testing.T, string, string) {
	return func(t *testing.T, _, path string) { require.NoError(t, os.Chmod(path, mode)) }
}

func chmodDir(mode os.FileMode) func(*testing.T, string, string) {
	return func(t *testing.T, dir, _ string) { require.NoError(t, os.Chmod(dir, mode)) }
}

func symlink(t *testing.T, dir, path string) {
	require.NoError(t, os.Rename(path, dir+"/real"))
	require.NoError(t, os.Symlink("real", path))
}

func danglingLink(t *testing.T, _, path string) {
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("nowhere", path))
}

func instead(make func(string) error) func(*testing.T, string, string) {
	return func(t *testing.T, _, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, make(path))
	}
}

// socket makes one elsewhere: the path that a socket is made at is short.
func socket(path string) error {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return err
	}
	defer l.Close()
	return os.Rename(filepath.Join(dir, "s"), path)
}

func fileAsHome(t *testing.T, dir, _ string) {
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
}

// A home may be reached by a link, as dotfile managers make them: what counts is
// who owns the directory at its end.
func linkedHome(t *testing.T, dir, _ string) {
	require.NoError(t, os.Rename(dir, dir+".real"))
	require.NoError(t, os.Symlink(dir+".real", dir))
}

func TestNewFilesAreTheOwnersOnly(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "a", "b")
	var temp os.FileMode
	f := &keytest.KDF{}
	look := func(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
		if found, _ := filepath.Glob(filepath.Join(dir, keystore.TempPrefix+"*")); len(found) == 1 {
			info := must.Get(os.Lstat(found[0]))(t)
			temp = info.Mode()
		}
		return f.Derive(passphrase, salt, n, r, p)
	}
	must.Get(Create(t.Context(), dir, value(keytest.Passphrase), Options{KDF: look}))(t)
	require.Equal(t, os.FileMode(0o600), temp)
	for path, want := range map[string]os.FileMode{
		dir: os.ModeDir | 0o700, filepath.Dir(dir): os.ModeDir | 0o700,
		filepath.Join(dir, keystore.Name): 0o600,
	} {
		require.Equal(t, want, must.Get(os.Lstat(path))(t).Mode(), path)
	}
	requireOnlyKeystore(t, dir)
}

func requireOnlyKeystore(t *testing.T, dir string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	require.Len(t, entries, 1)
	require.Equal(t, keystore.Name, entries[0].Name())
	info := must.Get(entries[0].Info())(t)
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	require.EqualValues(t, 1, stat.Nlink)
}

func TestCreateNeverOverwrites(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a wallet":         func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
		"an empty file":    func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"a dangling link":  func(path string) error { return os.Symlink("nowhere", path) },
		"even a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := keytest.Home(t)
			path := filepath.Join(dir, keystore.Name)
			require.NoError(t, put(path))
			before := must.Get(os.Lstat(path))(t)
			_, err := Create(t.Context(), dir, wallettest.Never(t), Options{})
			keytest.RequireCode(t, err, coded.Exists)
			after := must.Get(os.Lstat(path))(t)
			require.True(t, os.SameFile(before, after))
			require.Equal(t, before.ModTime(), after.ModTime())
		})
	}
}

func TestCreateWantsAClosedHome(t *testing.T) {
	dir := keytest.Home(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	_, err := Create(t.Context(), dir, wallettest.Never(t), Options{})
	keytest.RequireCode(t, err, coded.Permissions)
	requireEmpty(t, dir)
}

// A wallet that appears between the question and the answer is not overwritten.
func TestCreateRace(t *testing.T) {
	dir := keytest.Home(t)
	f := &keytest.KDF{}
	path := filepath.Join(dir, keystore.Name)
	late := func(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
		require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
		return f.Derive(passphrase, salt, n, r, p)
	}
	_, err := Create(t.Context(), dir, value(keytest.Passphrase), Options{KDF: late})
	keytest.RequireCode(t, err, coded.Exists)
	require.Equal(t, "mine", string(must.Get(os.ReadFile(path))(t)))
	requireOnlyKeystore(t, dir)
}

func TestConcurrentCreators(t *testing.T) {
	f := &keytest.KDF{}
	for range 40 {
		dir := filepath.Join(t.TempDir(), "home")
		var wg sync.WaitGroup
		var mu sync.Mutex
		var winners []*wallet.Wallet
		for range 4 {
			wg.Go(func() {
				w, err := Create(t.Context(), dir, value(keytest.Passphrase), Options{KDF: f.Derive})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, w)
				} else {
					keytest.ExpectCode(t, err, coded.Exists)
				}
			})
		}
		wg.Wait()
		require.Len(t, winners, 1)
		requireOnlyKeystore(t, dir)
		w := must.Get(wallet.Open(dir))(t)
		solana, evm := winners[0].Addresses()
		requireAddresses(t, w, solana, evm)
	}
}

func TestTwoProcessesCreate(t *testing.T) {
	for range 5 {
		dir := filepath.Join(t.TempDir(), "home")
		start, gate, err := os.Pipe()
		require.NoError(t, err)
		var cmds [2]*exec.Cmd
		var outs [2]bytes.Buffer
		for i := range cmds {
			cmds[i] = keytest.Command(t, "create", dir)
			cmds[i].Stdin, cmds[i].Stdout = start, &outs[i]
			require.NoError(t, cmds[i].Start())
		}
		require.NoError(t, start.Close())
		time.Sleep(50 * time.Millisecond) // both wait at the gate
		require.NoError(t, gate.Close())
		won := 0
		for i := range cmds {
			if cmds[i].Wait() == nil {
				won++
				w := must.Get(wallet.Open(dir))(t)
				_, evm := w.Addresses()
				require.Equal(t, evm, strings.TrimSpace(outs[i].String()))
			} else {
				require.Contains(t, outs[i].String(), "KEYPAIR_EXISTS")
			}
		}
		require.Equal(t, 1, won)
		requireOnlyKeystore(t, dir)
	}
}

// Leftovers of creators that died: before the link, and between link and remove.
func TestLeftovers(t *testing.T) {
	data, _ := keytest.Golden(t)
	f := &keytest.KDF{}

	dir := keytest.Home(t)
	stale := filepath.Join(dir, keystore.TempPrefix+"DEAD")
	require.NoError(t, os.WriteFile(stale, data[:100], 0o600))
	must.Get(Create(t.Context(), dir, value(keytest.Passphrase), Options{KDF: f.Derive}))(t)
	requireOnlyKeystore(t, dir)

	dir = keytest.Put(t, data)
	require.NoError(t, os.Link(filepath.Join(dir, keystore.Name),
		filepath.Join(dir, keystore.TempPrefix+"DEAD")))
	require.NoError(t, must.Err(wallet.Open(dir)), "a twin under a temporary name is healed")
	requireOnlyKeystore(t, dir)
}

// A creator that lives is not swept away.
func TestTempsOfLivingProcessesStay(t *testing.T) {
	dir := keytest.Home(t)
	temp := must.Get(CreateTemp(dir))(t)
	require.True(t, keystore.RemoveStaleTemps(dir))
	require.True(t, StillNamed(temp))
	require.NoError(t, temp.Close())
	require.True(t, keystore.RemoveStaleTemps(dir))
	requireEmpty(t, dir)
	require.False(t, keystore.RemoveStaleTemps(dir))
}

func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	data, _ := keytest.Golden(t)
	dir := keytest.Put(t, data)
	require.NoError(t, os.Chown(filepath.Join(dir, keystore.Name), 4242, -1))
	_, err := wallet.Open(dir)
	e := keytest.RequireCode(t, err, coded.Permissions)
	require.Contains(t, e.Error(), "belongs to user 4242")
	require.Contains(t, e.Hint(), "chown 0 ")

	dir = keytest.Put(t, data)
	require.NoError(t, os.Chown(dir, 4242, -1))
	keytest.RequireCode(t, must.Err(wallet.Open(dir)), coded.Permissions)
}
