package wallet

import (
	"errors"
	"fmt"
)

// errorCode says what stood in the way. Its value is the public code of SPEC §7.1.
type errorCode string

// The kinds of [Error]; each of them is fixed by a person.
const (
	codeNotFound          errorCode = "WALLET_NOT_FOUND"
	codeLocked            errorCode = "WALLET_LOCKED"
	codeInvalidPassphrase errorCode = "INVALID_PASSPHRASE"
	codeCorrupt           errorCode = "KEYSTORE_CORRUPT"
	codePermissions       errorCode = "KEYSTORE_PERMISSIONS"
	codeExists            errorCode = "KEYPAIR_EXISTS"
	codeSetup             errorCode = "SETUP_FAILED"
)

// Sentinels for errors.Is: an [*Error] is each sentinel of its own kind.
var (
	errNotFound          = &Error{code: codeNotFound, msg: "there is no wallet here"}
	errLocked            = &Error{code: codeLocked, msg: "the wallet is locked"}
	errInvalidPassphrase = &Error{code: codeInvalidPassphrase,
		msg: "wrong passphrase, or the file was changed"}
	errCorrupt     = &Error{code: codeCorrupt, msg: "the keystore is damaged"}
	errPermissions = &Error{code: codePermissions, msg: "others can reach the keystore"}
	errExists      = &Error{code: codeExists, msg: "a wallet exists already"}
	errSetup       = &Error{code: codeSetup, msg: "the wallet could not be set up"}
)

// ErrNoPassphrase is what a [Passphrase] returns when it has none to give, so
// that the next one is asked. Any other error ends the search.
var ErrNoPassphrase = errors.New("no passphrase from this source")

// Error is every error of this package, except a context's own. It says what
// was attempted, never a secret.
type Error struct {
	code errorCode
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
func (e *Error) Code() string { return string(e.code) }

// Hint is one line for a person: what to do now. It may be empty.
func (e *Error) Hint() string { return e.hint }

func (e *Error) Unwrap() error { return e.err }

// Is makes errors of one kind equal, which is what the sentinels are for.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.code == e.code
}

func corrupt(format string, args ...any) *Error {
	return &Error{
		code: codeCorrupt,
		msg:  errCorrupt.msg,
		hint: "put keystore.json back from your backup",
		err:  fmt.Errorf(format, args...),
	}
}

func locked(msg string) *Error {
	return &Error{
		code: codeLocked,
		msg:  msg,
		hint: "the owner runs x402-wallet unlock in a terminal, or names a passphrase file: " +
			"X402_WALLET_PASSPHRASE_FILE",
	}
}

func setup(msg string, cause error) *Error {
	return &Error{code: codeSetup, msg: msg, err: cause}
}

// wrongPassphrase is one constant answer: with the commitment in place a wrong
// passphrase and a changed file cannot be distinguished, and should not be.
func wrongPassphrase() *Error {
	return &Error{
		code: codeInvalidPassphrase,
		msg:  errInvalidPassphrase.msg,
		hint: "type it again, or correct the passphrase file; if it is right, put keystore.json back from " +
			"your backup",
	}
}
