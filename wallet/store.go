package wallet

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet/internal/coded"
)

const (
	keystoreName = "keystore.json"
	tempPrefix   = keystoreName + ".tmp-"
)

// readKeystore reads and parses dir/keystore.json after checking who could have written to either.
func readKeystore(dir string) (ks *keystore, data []byte, err error) {
	if err := checkHome(dir); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, keystoreName)
	data, err = coded.ReadFile(path, maxKeystore)
	if errors.Is(err, ownfile.ErrSecondName) && removeStaleTemps(dir) {
		// A creator that ended, or still is, between link and remove. Once is enough:
		// it is microseconds from one to the other.
		time.Sleep(20 * time.Millisecond)
		data, err = coded.ReadFile(path, maxKeystore)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, notFound(dir)
	case errors.Is(err, ownfile.ErrTooLarge):
		return nil, nil, coded.Corrupt("it is larger than %d bytes", maxKeystore)
	case errors.Is(err, coded.Permissions):
		return nil, nil, err
	case err != nil:
		return nil, nil, coded.Denied(path, "cannot be read",
			"its disk, or this machine's limit of open files, "+
				"did not let it be read; the file was not touched", err)
	}
	ks, err = parse(data)
	return ks, data, err
}

func notFound(dir string) *coded.Error {
	return &coded.Error{As: coded.NotFound, Msg: "there is no wallet in " + dir,
		Advice: "the owner makes it in a terminal: x402-wallet init"}
}

func exists(dir string) *coded.Error {
	return &coded.Error{As: coded.Exists,
		Msg:    "there is a wallet in " + dir + " already, and it is never overwritten",
		Advice: "use another X402_WALLET_HOME, or move the old one to a safe place first"}
}

// checkHome says whether dir is a directory that only its owner, the caller, can enter.
func checkHome(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notFound(dir)
	case err != nil:
		return coded.Denied(dir, "cannot be looked at", "look at the permissions of the directories above it",
			err)
	case !info.IsDir():
		return coded.Denied(dir, "is not a directory", "set X402_WALLET_HOME to the wallet's directory", nil)
	}
	return coded.AsDenied(ownfile.CheckOwner(dir, info))
}

var (
	errBusy     = errors.New("another process is writing a keystore here")
	errUnsynced = errors.New("it is written, but the disk did not confirm its name")
)

// writeNew puts data into dir as keystore.json, or leaves dir as it was. It never replaces a file,
// whoever else is creating one: link fails when the name is taken, on every system and also over
// NFS. verify gets the bytes read back from the disk and must succeed before the file has its name.
func writeNew(dir string, data []byte, verify func([]byte) error) error {
	removeStaleTemps(dir)
	temp, err := createTemp(dir)
	if err != nil {
		return err
	}
	if err = writeAndVerify(temp, data, verify); err == nil {
		err = os.Link(temp.Name(), filepath.Join(dir, keystoreName))
	}
	_ = temp.Close() // and with it the lock, before Remove: Windows wants it so
	_ = os.Remove(temp.Name())
	switch {
	case errors.Is(err, fs.ErrExist):
		return exists(dir)
	case err != nil:
		return err
	}
	return ownfile.SyncDir(dir)
}

// replace puts data in the place of the keystore.json whose bytes are old, or
// leaves dir as it was: until the rename, which is atomic, the old file is the
// keystore, from then on the new one is, and verify has succeeded with it.
func replace(dir string, old, data []byte, verify func([]byte) error) error {
	removeStaleTemps(dir)
	unlock, err := lockDir(dir) // two at once would each believe in their own passphrase
	if err != nil {
		return err
	}
	defer unlock()
	temp, err := createTemp(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, keystoreName)
	if err = writeAndVerify(temp, data, verify); err == nil {
		var now []byte
		if now, err = coded.ReadFile(path, maxKeystore); err == nil && !bytes.Equal(now, old) {
			err = errors.New("another process has changed it meanwhile")
		}
	}
	if runtime.GOOS == "windows" { // which renames no open file; unix keeps the lock that sweep minds
		_ = temp.Close()
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	_ = temp.Close()
	if err != nil {
		_ = os.Remove(temp.Name())
		return err
	}
	if err := ownfile.SyncDir(dir); err != nil {
		return fmt.Errorf("%w: %w", errUnsynced, err)
	}
	return nil
}

// writeAndVerify writes data, waits for the disk, and has what can be read verified.
func writeAndVerify(f *os.File, data []byte, verify func([]byte) error) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	back, err := coded.ReadFile(f.Name(), maxKeystore)
	if err != nil {
		return err
	}
	if err := verify(back); err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	return nil
}

// createTemp makes a file beside the keystore, 0600 from its first byte, locked
// as long as it is open so that no other creator takes it for a leftover.
func createTemp(dir string) (*os.File, error) {
	for range 10 {
		path := filepath.Join(dir, tempPrefix+rand.Text())
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		// Between create and lock another creator may be sweeping it away. A
		// file system without locks is fine: there nobody removes it.
		if err := tryLock(f); !errors.Is(err, errBusy) && stillNamed(f) {
			return f, nil
		}
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	return nil, errBusy
}

func stillNamed(f *os.File) bool {
	byName, err := os.Lstat(f.Name())
	if err != nil {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(byName, open)
}

// removeStaleTemps removes what creators that ended early have left, and reports whether there
// was any temporary file. They are encrypted, complete or not.
func removeStaleTemps(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	found := false
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			found = true
			removeStale(filepath.Join(dir, e.Name()))
		}
	}
	return found
}

// makeHome makes dir and what is missing above it, 0700 and on the disk: a
// wallet whose directory a power loss takes away has lost the money sent to it.
func makeHome(dir string) error {
	err := os.Mkdir(dir, 0o700)
	parent := filepath.Dir(dir)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err = makeHome(parent); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := ownfile.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
