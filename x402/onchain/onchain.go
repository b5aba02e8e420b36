// Package onchain has the words by which the engine and the chains' packages speak of a payment to be
// signed, and of what lies on a chain. Whoever signs needs none of them; what is signed, and what became of
// it, package x402 has.
package onchain

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Order is what to authorize: one option, within the owner's limits.
type Order struct {
	Payment     string // its id in the ledger: whoever signs may look there first
	Requirement x402.Requirement
	Asset       x402.AssetInfo
	Source      string // x402.Funds.Source
	// what the challenge says beside its options: by some of that the seller offers to pay for an approval
	Extensions map[string]json.RawMessage
	// Solana: who pays the fee where the challenge does not say (where the wallet settles; from /supported)
	FeePayer string
	Validity time.Duration // how long the signature may live: the seller's wish, capped by the owner
	Now      time.Time
	Channel  *ChannelOrder // of batch-settlement; nil: the payment is no voucher
	Shared   *Shared       // with payments that are made at the same time; nil: there are none
}

// Draft is a message that is ready to be signed for a payment.
type Draft struct {
	Payment string // its id in the ledger
	// Message is in the form that the check of its scheme reads (scheme/*/check).
	Message []byte
	// Signs is what each of its signatures is over: a digest on EVM, the whole message on Solana. A signer
	// that has a ledger finds that out by itself.
	Signs [][]byte
	// Length is how many bytes its signatures have together.
	Length int
}

// Signer signs with the key of an account on one chain, or asks the process that has it. It is called
// concurrently.
type Signer interface {
	// Address is the account's, as its chain writes it: EIP-55, or base58.
	Address() string
	// Sign returns the signatures one behind another: r ‖ s ‖ v with v 27 or 28 on EVM, 64 bytes on Solana.
	Sign(ctx context.Context, d Draft) ([]byte, error)
}

// Shared are answers of chains that several payments use which are made at the same time, so that a node is
// asked once. The zero value has none; it is safe for concurrent use.
type Shared struct {
	mu      sync.Mutex
	answers map[string]*sharedAnswer
}

type sharedAnswer struct {
	mu    sync.Mutex
	at    time.Time // when it was asked for; zero: it was not, or in vain
	value any
}

// Once gives the answer under a name, which it asks for where there is none that is at most life old. Who
// comes meanwhile waits for it. An error is nobody else's.
func (s *Shared) Once(name string, life time.Duration, ask func() (any, error)) (any, error) {
	s.mu.Lock()
	if s.answers == nil {
		s.answers = map[string]*sharedAnswer{}
	}
	a := s.answers[name]
	if a == nil {
		a = &sharedAnswer{}
		s.answers[name] = a
	}
	s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at.IsZero() && time.Since(a.at) <= life {
		return a.value, nil
	}
	at := time.Now()
	value, err := ask()
	if err == nil {
		a.at, a.value = at, value
	}
	return value, err
}

// Authorization is a signed payment.
type Authorization struct {
	Payload  json.RawMessage // the scheme's `payload` object
	Evidence x402.Evidence
	// what belongs to it among the payload's extensions, by their keys: {"info":{…}}; nil: nothing
	Extensions map[string]json.RawMessage
	Voucher    *x402.ChannelVoucher // of batch-settlement: what was promised in all; nil: nothing of the kind
}

// ChannelOrder is what to sign for one call that is paid through a channel.
type ChannelOrder struct {
	Config  x402.ChannelConfig
	Salt    string               // that Config has to have: of the agent whose channel it is; "": zeros
	Number  uint64               // of the vouchers that were signed in the channel, with this one
	Ceiling money.Amount         // of the voucher
	Deposit money.Amount         // what is deposited with it; 0: nothing
	Shown   *x402.ChannelVoucher // an older one of ours, which the seller showed; nil: our own book is enough
	// a deposit of the owner's, of a channel that they fund, to be brought with the voucher; nil: none
	Owners *x402.OwnersDeposit
}

// ChannelBalance is a channel as the chain has it at one block.
type ChannelBalance struct {
	Block         uint64       // its number
	At            time.Time    // its time
	Balance       money.Amount // deposited, and not returned
	Claimed       money.Amount // of that the seller's
	Withdrawing   money.Amount // what was asked back, without the seller
	WithdrawBegan time.Time    // zero: nothing was
}

// Delegation is an SPL token account as its owner set it up, read from the chain. Addresses are
// base58, amounts are atomic units of Mint.
type Delegation struct {
	Account, Owner, Mint, Program string
	Delegate                      string       // "" when there is none
	IsOurs                        bool         // Delegate is this wallet's agent
	Frozen                        bool         // by the token's issuer: nothing can be spent
	Remaining                     money.Amount // of what was delegated; 0 when there is no delegate
	Balance                       money.Amount
}

// DelegationChange is a transaction that changes a delegation, not signed yet: only the owner of
// the token account can sign it. Addresses are base58.
type DelegationChange struct {
	Network, Account, Owner, Mint, Program string
	Delegate                               string // "": the delegation is revoked
	Amount                                 uint64 // atomic units that Delegate may spend from now on
	Decimals                               uint8
	Message                                []byte // what is signed
}

// Transaction is the transaction in base64, with the owner's signature or, for the zero value, without one.
func (c DelegationChange) Transaction(signature [64]byte) string {
	return base64.StdEncoding.EncodeToString(append(append([]byte{1}, signature[:]...), c.Message...))
}
