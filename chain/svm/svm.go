// Package svm pays on Solana: the scheme "exact" (specs/schemes/exact/scheme_exact_svm.md), from
// the agent's own token account or as the SPL delegate of its owner's.
//
// What must stay true: the only thing ever signed is a transaction that was built here, read back
// byte by byte by a decoder that shares nothing with the builder, and found to be one
// TransferChecked of exactly the order's amount, from exactly the order's source, to exactly the
// order's payee. And a payment is called expired only on proof that it never can land.
//
// No clock matters to either: a transaction lives for blocks, and what became of it is searched for
// by slots. So there is no CLOCK_SUSPECT here as there is in evm (catalogue G13); a wrong clock
// only makes the engine ask too early or too late.
//
// The files: payable.go (why not), funds.go and account.go (token accounts), authorize.go (sign:
// plan, look at the accounts, build, check), build.go and decode.go (the transaction, made and
// read), status.go and search.go (what became of it), owner.go (what only an owner signs), node.go,
// address.go.
package svm

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

// Signer signs messages with the agent's Ed25519 key, or asks the process that has it. It is called
// concurrently. Address is base58, ""
// while there is no key.
type Signer interface {
	Address() string
	// SignTransfer signs the message of a payment's transaction; payment is its id in the ledger.
	SignTransfer(ctx context.Context, payment string, message []byte) ([64]byte, error)
}

// Options for New. Only Signer and RPC are needed.
type Options struct {
	Signer        Signer
	RPC           map[string]string // CAIP-2 network → URL of the owner's node
	TokenAccounts map[string]string // CAIP-2 network → the owner's token account, where the config names one
	HTTP          *http.Client      // nil: a plain one; its redirects are never followed
	Rand          io.Reader         // nil: crypto/rand
	Now           func() time.Time  // nil: time.Now
}

// Exact is the scheme. It is safe for concurrent use and asks no node before it must.
type Exact struct {
	options Options
	agent   solana.PublicKey // zero when there is no key

	mu    sync.Mutex
	nodes map[string]*node // by network, made at first use

	// tests only: what an attacker in our own process would do to a message
	tamper func(message []byte) []byte
}

// New makes the scheme.
func New(o Options) *Exact {
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Exact{options: o, nodes: map[string]*node{}}
	if o.Signer != nil {
		e.agent, _ = parseKey(o.Signer.Address())
	}
	return e
}

// Address is the agent's, "" when there is no key.
func (e *Exact) Address() string {
	if e.agent.IsZero() {
		return ""
	}
	return e.agent.String()
}

// self is the agent's key. Error: WALLET_NOT_FOUND.
func (e *Exact) self() (solana.PublicKey, error) {
	if e.agent.IsZero() {
		return e.agent, x402.Errorf(x402.WalletNotFound, "the wallet has no Solana key").WithHint(
			"the person runs: x402-wallet init")
	}
	return e.agent, nil
}

func invalid(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.InvalidRequirement, format, args...)
}
