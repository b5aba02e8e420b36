package wallet

import (
	"errors"
	"fmt"
)

// Kind says what stood in the way. Its value is the public code of SPEC §7.1.
type Kind string

// The kinds of [Error]; each of them is fixed by a person.
const (
	KindNotFound          Kind = "WALLET_NOT_FOUND"
	KindLocked            Kind = "WALLET_LOCKED"
	KindInvalidPassphrase Kind = "INVALID_PASSPHRASE"
	KindCorrupt           Kind = "KEYSTORE_CORRUPT"
	KindPermissions       Kind = "KEYSTORE_PERMISSIONS"
	KindExists            Kind = "KEYPAIR_EXISTS"
	KindSetup             Kind = "SETUP_FAILED"
)

// Sentinels for errors.Is: an [*Error] is each sentinel of its own kind.
var (
	ErrNotFound          = &Error{Kind: KindNotFound, msg: "there is no wallet here"}
	ErrLocked            = &Error{Kind: KindLocked, msg: "the wallet is locked"}
	ErrInvalidPassphrase = &Error{Kind: KindInvalidPassphrase,
		msg: "wrong passphrase, or the file was changed"}
	ErrCorrupt     = &Error{Kind: KindCorrupt, msg: "the keystore is damaged"}
	ErrPermissions = &Error{Kind: KindPermissions, msg: "others can reach the keystore"}
	ErrExists      = &Error{Kind: KindExists, msg: "a wallet exists already"}
	ErrSetup       = &Error{Kind: KindSetup, msg: "the wallet could not be set up"}
)

// ErrNoPassphrase is what a [Passphrase] answers when it has none to give, so
// that the next one is asked. Any other error ends the search.
var ErrNoPassphrase = errors.New("no passphrase from this source")

// Error is every error of this package, except a context's own. It says what
// was attempted, never a secret.
type Error struct {
	Kind Kind
	msg  string
	hint string // what a person can do about it; may be empty
	err  error  // the cause, may be nil
}

func (e *Error) Error() string {
	if e.err != nil {
		return e.msg + ": " + e.err.Error()
	}
	return e.msg
}

// Code is the public error code, such as "WALLET_LOCKED".
func (e *Error) Code() string { return string(e.Kind) }

// Hint is one line for a person: what to do now. It may be empty.
func (e *Error) Hint() string { return e.hint }

func (e *Error) Unwrap() error { return e.err }

// Is makes errors of one kind equal, which is what the sentinels are for.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

func corrupt(format string, args ...any) *Error {
	return &Error{
		Kind: KindCorrupt,
		msg:  ErrCorrupt.msg,
		hint: "put keystore.json back from your backup",
		err:  fmt.Errorf(format, args...),
	}
}

func locked(msg string) *Error {
	return &Error{
		Kind: KindLocked,
		msg:  msg,
		hint: "the owner runs x402-wallet unlock in a terminal, or names a passphrase file: " +
			"X402_WALLET_PASSPHRASE_FILE",
	}
}

func setup(msg string, cause error) *Error {
	return &Error{Kind: KindSetup, msg: msg, err: cause}
}

// wrongPassphrase is one constant answer: with the commitment in place a wrong
// passphrase and a changed file cannot be told apart, and should not be.
func wrongPassphrase() *Error {
	return &Error{
		Kind: KindInvalidPassphrase,
		msg:  ErrInvalidPassphrase.msg,
		hint: "type it again, or correct the passphrase file; if it is right, put keystore.json back from " +
			"your backup",
	}
}
