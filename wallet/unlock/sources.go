// Package unlock has the sources of a passphrase that need no person: a file, a descriptor, a command, the
// system's keyring.
package unlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
)

const (
	// commandTimeout is how long a passphrase command may take: a person may have
	// to touch a fingerprint reader.
	commandTimeout = time.Minute
	// commandWaitDelay is for children that a command left behind with its output.
	commandWaitDelay = time.Second
)

// File is the content of a file without one line end. Only its owner may be
// able to read it, as with the keystore: KEYSTORE_PERMISSIONS otherwise.
func File(path string) wallet.Passphrase { return fromFile(path, ownfile.CheckOwner) }

// Credential is File for a file in systemd's directory of a service's credentials, which it keeps
// from everybody else.
func Credential(path string) wallet.Passphrase { return fromFile(path, checkCredential) }

func fromFile(path string, isOurs func(path string, info fs.FileInfo) error) wallet.Passphrase {
	return func(context.Context) ([]byte, error) {
		data, err := ownfile.ReadPrivate(path, wallet.MaxLine, isOurs)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, &coded.Error{As: coded.WalletLocked, Msg: "there is no passphrase file " + path,
				Advice: "check --passphrase-file, X402_WALLET_PASSPHRASE_FILE or keystore.passphrase_file; " +
					"it takes the full path, without ~"}
		case errors.Is(err, ownfile.ErrTooLarge):
			return nil, wallet.PassphraseTooLong()
		case err != nil:
			return nil, coded.AsDenied(err)
		}
		return ownfile.TrimLine(data), nil
	}
}

// FD is what can be read from an open descriptor (`--passphrase-fd N`) until
// its end, without one line end. It can be read once; later it has none, so a
// wallet that locked itself stays locked. 1 and 2 are refused.
func FD(fd int) wallet.Passphrase {
	var used atomic.Bool
	return func(ctx context.Context) ([]byte, error) {
		if fd < 0 || fd == 1 || fd == 2 {
			return nil, coded.Locked(fmt.Sprintf("descriptor %d cannot carry a passphrase", fd))
		}
		if used.Swap(true) {
			return nil, wallet.ErrNoPassphrase
		}
		return guarded.Await(ctx, func() ([]byte, error) {
			f := os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", fd))
			if f == nil {
				return nil, fs.ErrInvalid
			}
			defer f.Close()
			data, err := ownfile.ReadAll(f, wallet.MaxLine)
			if errors.Is(err, ownfile.ErrTooLarge) {
				return nil, wallet.PassphraseTooLong()
			}
			return ownfile.TrimLine(data), err
		})
	}
}

// Command is what a command prints, without one line end: argv[0] is the
// program, by its full path, and there is no shell. env is all of its environment.
// confine, optional, confines the command before it is started.
// It has a minute and [wallet.MaxPassphrase] bytes; its standard error is dropped, for it
// might repeat the secret.
func Command(argv, env []string, confine func(*exec.Cmd) error) wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		if len(argv) == 0 {
			return nil, wallet.ErrNoPassphrase
		}
		if !filepath.IsAbs(argv[0]) {
			return nil, coded.Locked("the passphrase command " + argv[0] + " is not a full path")
		}
		limited, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		out := &line{data: make([]byte, 0, wallet.MaxLine)}
		cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
		cmd.Env = append([]string{}, env...)
		cmd.WaitDelay = commandWaitDelay
		var err error
		if confine != nil {
			err = confine(cmd)
		}
		if err == nil {
			err = runInto(cmd, out)
		}
		switch {
		case out.full:
			clear(out.data)
			return nil, wallet.PassphraseTooLong()
		case err != nil:
			clear(out.data)
			return nil, commandFailed(ctx.Err(), limited.Err(), argv[0], err)
		}
		return ownfile.TrimLine(out.data), nil
	}
}

// commandFailed says which of three things went wrong: the call that needed the passphrase had no
// time left (caller), the command took longer than any may (limit), or it failed by itself. A call
// that was cancelled wants to know nothing.
func commandFailed(caller, limit error, program string, err error) error {
	if errors.Is(caller, context.Canceled) {
		return caller
	}
	e := coded.Locked("the passphrase command " + program + " failed")
	e.Advice = "run it by hand to see why; it must print the passphrase and exit with 0 within " +
		commandTimeout.String() + ", with no variables but PATH, HOME, LANG and TMPDIR (to give it others, " +
		"let it begin with /usr/bin/env NAME=value), and without the wallet's home (to give it that, write " +
		"keystore.sandbox = false)"
	e.Cause = errors.Join(limit, err)
	switch {
	case caller != nil:
		e.Msg = "the passphrase command " + program + " had not answered when the call's time was over, " +
			"and was ended"
		e.Advice = "run it by hand to see how long it takes: it has to answer within the call's deadline " +
			"(policy.deadline), and never may take longer than " + commandTimeout.String() + "; or unlock " +
			"before, with x402-wallet unlock"
		e.Cause = caller
	case limit != nil:
		e.Msg = "the passphrase command " + program + " had not answered after " + commandTimeout.String() +
			", and was ended"
		e.Cause = limit
	}
	return e
}

// line takes what fits into its capacity and then fails, which ends the command.
type line struct {
	data []byte
	full bool
}

func (l *line) Write(p []byte) (int, error) {
	if len(p) > cap(l.data)-len(l.data) {
		l.full = true
		return 0, ownfile.ErrTooLarge
	}
	l.data = append(l.data, p...)
	return len(p), nil
}
