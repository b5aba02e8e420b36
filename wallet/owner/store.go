package owner

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
)

var errUnsynced = errors.New("it is written, but the disk did not confirm its name")

// writeNew puts data into dir as keystore.json, or leaves dir as it was. It never replaces a file,
// whoever else is creating one: link fails when the name is taken, on every system and also over
// NFS. verify gets the bytes read back from the disk and must succeed before the file has its name.
func writeNew(dir string, data []byte, verify func([]byte) error) error {
	keystore.RemoveStaleTemps(dir)
	temp, err := createTemp(dir)
	if err != nil {
		return err
	}
	if err = writeAndVerify(temp, data, verify); err == nil {
		err = os.Link(temp.Name(), filepath.Join(dir, keystore.Name))
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
	keystore.RemoveStaleTemps(dir)
	unlock, err := lockDir(dir) // two at once would each believe in their own passphrase
	if err != nil {
		return err
	}
	defer unlock()
	temp, err := createTemp(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, keystore.Name)
	if err = writeAndVerify(temp, data, verify); err == nil {
		var now []byte
		if now, err = coded.ReadFile(path, keystore.MaxSize); err == nil && !bytes.Equal(now, old) {
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
	back, err := coded.ReadFile(f.Name(), keystore.MaxSize)
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
		path := filepath.Join(dir, keystore.TempPrefix+rand.Text())
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		// Between create and lock another creator may be sweeping it away. A
		// file system without locks is fine: there nobody removes it.
		if err := keystore.TryLock(f); !errors.Is(err, keystore.ErrBusy) && stillNamed(f) {
			return f, nil
		}
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	return nil, keystore.ErrBusy
}

func stillNamed(f *os.File) bool {
	byName, err := os.Lstat(f.Name())
	if err != nil {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(byName, open)
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
