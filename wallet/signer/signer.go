// Package signer asks whoever keeps a key of the wallet's itself for signatures: a program of the owner's,
// which may stand before an HSM or a device, or the API of a service. docs/rules.md is for their owners.
//
// What must stay true: nothing that a signer answers is believed here or later (package wallet verifies it);
// no credential leaves but to the service that it is for, and none is in an error; and every question has an
// end.
//
// The files: signer.go (what all have in common; the keychain), command.go (a program), api.go (a question by
// HTTPS) and credentials.go (by what), awskms.go with sigv4.go, turnkey.go, gcpkms.go, cdp.go, jwt.go.
package signer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/x402"
)

// Signer is one of the owner's rules, [signers.NAME]. It implements wallet.Signer.
type Signer struct {
	name   string
	rules  config.Signer
	keeper keeper
}

// keeper is who keeps the key.
type keeper interface {
	// address asks for the address of the key.
	address(ctx context.Context) (string, error)
	// sign asks for a signature, in a form that wallet.Signer has.
	sign(ctx context.Context, o wallet.Order) ([]byte, error)
}

// Options are what signers need of the wallet's surroundings.
type Options struct {
	HTTP *http.Client // to their APIs; it refuses http but to this machine
	// Program is how a program of the owner's is started.
	Program func(argv, env []string, sandbox *bool) child.Program
	// Secret reads an owner-only file.
	Secret func(path string) (config.Secret, error)
	Now    func() time.Time
	// Said hears what a command wrote to its standard error; nil: nobody does. It may say anything, so that
	// it is for the owner's terminal alone.
	Said func(text string)
}

// New is the signer of that name. It asks nobody.
func New(name string, rules config.Signer, o Options) *Signer {
	s := &Signer{name: name, rules: rules}
	creds := &credentials{rules: rules, options: o}
	switch rules.Kind {
	case config.SignerCommand:
		s.keeper = command{name: name, rules: rules, said: o.Said,
			program: o.Program(rules.Command, rules.Env, rules.Sandbox)}
	case config.SignerAWS:
		s.keeper = &awsKMS{rules: rules, api: newAPI(o, rules, awsURL(rules.Region)), credentials: creds,
			now: o.Now}
	case config.SignerTurnkey:
		s.keeper = &turnkey{rules: rules, api: newAPI(o, rules, turnkeyURL), credentials: creds, now: o.Now}
	case config.SignerGoogle:
		s.keeper = &googleKMS{rules: rules, api: newAPI(o, rules, googleURL), credentials: creds, now: o.Now}
	case config.SignerCDP:
		s.keeper = &cdp{rules: rules, api: newAPI(o, rules, cdpURL), credentials: creds, now: o.Now}
	case config.SignerKeychain:
		s.keeper = keychain{imported.KeychainKey{Chain: rules.Chain, Account: rules.Key}}
	default:
		s.keeper = unknown(rules.Kind)
	}
	return s
}

func (s *Signer) Account() (name, address string) { return s.name, s.rules.Address }

func (s *Signer) Sign(ctx context.Context, o wallet.Order) (signature []byte, err error) {
	err = s.ask(ctx, func(ctx context.Context) error {
		signature, err = s.keeper.sign(ctx, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return signature, nil
}

// Address asks for the address of the key, whatever the rules say.
func (s *Signer) Address(ctx context.Context) (address string, err error) {
	err = s.ask(ctx, func(ctx context.Context) error {
		address, err = s.keeper.address(ctx)
		return err
	})
	return address, err
}

func (s *Signer) Check(ctx context.Context) error {
	address, err := s.Address(ctx)
	if err == nil && address != s.rules.Address {
		err = s.coded(refused("has the key of %s, and the rules say %s", x402.Brief(address),
			s.rules.Address))
	}
	return err
}

// ask runs a question within the signer's time. What is answered later is dropped.
func (s *Signer) ask(ctx context.Context, question func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.rules.Timeout)
	defer cancel()
	err := question(limited)
	switch {
	case ctx.Err() != nil: // the call's time is over, and what to say of that is its caller's
		return ctx.Err()
	case limited.Err() != nil:
		return x402.Errorf(x402.Timeout, "the signer %s had not answered within %s; nothing was signed",
			s.name,
			s.rules.Timeout).WithHint("make the same call again; the owner's x402-wallet signer test %s "+
			"says how long it takes, and timeout under [signers.%s] how long it may", s.name, s.name)
	case err != nil:
		return s.coded(err)
	}
	return nil
}

// fault is why a signer did not sign.
type fault struct {
	code x402.Code
	text string // after "the signer NAME "
}

func (f fault) Error() string { return f.text }

// refused is the fault of a signer that answers, and not with what was asked for: its owner has to look.
func refused(format string, args ...any) error {
	return fault{code: x402.SetupFailed, text: fmt.Sprintf(format, args...)}
}

// unreachable is that of one that does not answer, or not now: it may be asked again.
func unreachable(format string, args ...any) error {
	return fault{code: x402.NetworkError, text: fmt.Sprintf(format, args...)}
}

// coded is a fault with the signer's name and its code. The cause of another error may hold anything, and is
// not repeated.
func (s *Signer) coded(err error) error {
	f, isOurs := errors.AsType[fault](err)
	if !isOurs {
		if coded, hasCode := errors.AsType[interface {
			error
			Code() string
		}](err); hasCode {
			return coded
		}
		f = fault{code: x402.SetupFailed, text: "could not be asked"}
	}
	return x402.Errorf(f.code, "the signer %s %s; nothing was signed", s.name, f.text).
		WithHint("the owner runs x402-wallet signer test %s", s.name)
}

// unknown is a kind that this version has not.
type unknown string

func (u unknown) address(context.Context) (string, error) {
	return "", refused("is of the kind %q, which this version does not know", string(u))
}

func (u unknown) sign(context.Context, wallet.Order) ([]byte, error) {
	_, err := u.address(context.Background())
	return nil, err
}

// keychain is a key that is an item of the system's keychain. Package wallet reads and uses it: no key is
// handed to this one.
type keychain struct{ key imported.KeychainKey }

func (k keychain) address(ctx context.Context) (string, error) { return k.key.Address(ctx) }

func (k keychain) sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	return k.key.Sign(ctx, o)
}
