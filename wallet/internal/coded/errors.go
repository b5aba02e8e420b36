// Package coded has the errors of the wallet's packages.
package coded

import (
	"errors"
	"fmt"
	"strings"

	"x402-wallet/internal/ownfile"
)

// Code says what stood in the way, which a person has to fix. Its value is the public code of
// docs/codes.md. It is an error for errors.Is only: an [Error] is its code.
type Code string

const (
	NotFound          Code = "WALLET_NOT_FOUND"
	WalletLocked      Code = "WALLET_LOCKED"
	InvalidPassphrase Code = "INVALID_PASSPHRASE"
	KeystoreCorrupt   Code = "KEYSTORE_CORRUPT"
	Permissions       Code = "KEYSTORE_PERMISSIONS"
	Exists            Code = "KEYPAIR_EXISTS"
	SetupFailed       Code = "SETUP_FAILED"
)

func (c Code) Error() string { return string(c) }

// Error is every error of the wallet, except a context's own. It says what was attempted,
// never a secret.
type Error struct {
	As     Code
	Msg    string
	Advice string // what a person can do about it; may be empty
	Cause  error  // the cause, may be nil
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Msg + ": " + e.Cause.Error()
	}
	return e.Msg
}

// Code is the public error code, such as "WALLET_LOCKED".
func (e *Error) Code() string { return string(e.As) }

// Hint is one line for a person: what to do now. It may be empty.
func (e *Error) Hint() string { return e.Advice }

// Command is what the person types, where the hint says to run something; else "".
func (e *Error) Command() string {
	if command, ok := strings.CutPrefix(e.Advice, "run: "); ok {
		return command
	}
	return ""
}

func (e *Error) Unwrap() error { return e.Cause }

func (e *Error) Is(target error) bool { return target == e.As }

func Corrupt(format string, args ...any) *Error {
	return &Error{As: KeystoreCorrupt, Msg: "the keystore is damaged",
		Advice: "put keystore.json back from your backup", Cause: fmt.Errorf(format, args...)}
}

func Locked(msg string) *Error {
	return &Error{As: WalletLocked, Msg: msg, Advice: "the owner runs x402-wallet unlock in a terminal, " +
		"or names a passphrase file: X402_WALLET_PASSPHRASE_FILE"}
}

func Setup(msg string, cause error) *Error {
	return &Error{As: SetupFailed, Msg: msg, Cause: cause}
}

// WrongPassphrase is one constant answer: with the commitment in place a wrong passphrase and a
// changed file cannot be distinguished, and should not be.
func WrongPassphrase() *Error {
	return &Error{As: InvalidPassphrase, Msg: "wrong passphrase, or the file was changed",
		Advice: "type it again, or correct the passphrase file; if it is right, put keystore.json back " +
			"from your backup"}
}

// Denied is KEYSTORE_PERMISSIONS about path.
func Denied(path, what, hint string, cause error) *Error {
	return &Error{As: Permissions, Msg: path + " " + what, Advice: hint, Cause: cause}
}

// AsDenied makes a refusal of package ownfile KEYSTORE_PERMISSIONS.
func AsDenied(err error) error {
	if r, is := errors.AsType[*ownfile.Refusal](err); is {
		return Denied(r.Path, r.Problem, r.Remedy, r.Cause)
	}
	return err
}

// ReadFile reads a file that only its owner, the caller, can reach. KEYSTORE_PERMISSIONS: others can, too.
func ReadFile(path string, limit int) ([]byte, error) {
	data, err := ownfile.ReadPrivate(path, limit, ownfile.CheckOwner)
	return data, AsDenied(err)
}

// ErrUnsupported answers every request to sign anything but the kinds of messages above.
// Nothing was signed, and the passphrase was not asked for.
var ErrUnsupported = errors.New("the wallet does not sign this")

func Unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}
