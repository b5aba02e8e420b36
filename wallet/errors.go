package wallet

import (
	"errors"
	"fmt"
	"strings"
)

// errorCode says what stood in the way, which a person has to fix. Its value is the public code of
// docs/codes.md. It is an error for errors.Is only: a [codedError] is its code.
type errorCode string

const (
	codeNotFound          errorCode = "WALLET_NOT_FOUND"
	codeLocked            errorCode = "WALLET_LOCKED"
	codeInvalidPassphrase errorCode = "INVALID_PASSPHRASE"
	codeCorrupt           errorCode = "KEYSTORE_CORRUPT"
	codePermissions       errorCode = "KEYSTORE_PERMISSIONS"
	codeExists            errorCode = "KEYPAIR_EXISTS"
	codeSetup             errorCode = "SETUP_FAILED"
)

func (c errorCode) Error() string { return string(c) }

// codedError is every error of this package, except a context's own. It says what was attempted,
// never a secret.
type codedError struct {
	code errorCode
	msg  string
	hint string // what a person can do about it; may be empty
	err  error  // the cause, may be nil
}

func (e *codedError) Error() string {
	if e.err != nil {
		return e.msg + ": " + e.err.Error()
	}
	return e.msg
}

// Code is the public error code, such as "WALLET_LOCKED".
func (e *codedError) Code() string { return string(e.code) }

// Hint is one line for a person: what to do now. It may be empty.
func (e *codedError) Hint() string { return e.hint }

// Command is what the person types, where the hint says to run something; else "".
func (e *codedError) Command() string {
	if command, ok := strings.CutPrefix(e.hint, "run: "); ok {
		return command
	}
	return ""
}

func (e *codedError) Unwrap() error { return e.err }

func (e *codedError) Is(target error) bool { return target == e.code }

func corrupt(format string, args ...any) *codedError {
	return &codedError{code: codeCorrupt, msg: "the keystore is damaged",
		hint: "put keystore.json back from your backup", err: fmt.Errorf(format, args...)}
}

func locked(msg string) *codedError {
	return &codedError{code: codeLocked, msg: msg, hint: "the owner runs x402-wallet unlock in a terminal, " +
		"or names a passphrase file: X402_WALLET_PASSPHRASE_FILE"}
}

func setup(msg string, cause error) *codedError {
	return &codedError{code: codeSetup, msg: msg, err: cause}
}

// wrongPassphrase is one constant answer: with the commitment in place a wrong passphrase and a
// changed file cannot be distinguished, and should not be.
func wrongPassphrase() *codedError {
	return &codedError{code: codeInvalidPassphrase, msg: "wrong passphrase, or the file was changed",
		hint: "type it again, or correct the passphrase file; if it is right, put keystore.json back from " +
			"your backup"}
}

// denied is KEYSTORE_PERMISSIONS about path.
func denied(path, what, hint string, cause error) *codedError {
	return &codedError{code: codePermissions, msg: path + " " + what, hint: hint, err: cause}
}

// errUnsupported answers every request to sign anything but the kinds of messages above.
// Nothing was signed, and the passphrase was not asked for.
var errUnsupported = errors.New("the wallet does not sign this")

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUnsupported, fmt.Sprintf(format, args...))
}
