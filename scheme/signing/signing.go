// Package signing has the words between who signs (package wallet/agent) and the schemes' own checks
// (scheme/*/check): a question about a message, and a message that passed.
//
// What must stay true: a check decodes the message itself and compares it with the payment that the ledger
// holds for it, with sealed rules and with the chain. It imports nothing that builds messages. What it lets
// pass counts in the owner's budgets at no less than it can move.
package signing

import (
	"context"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Check is a scheme's reading of what is signed for its payments.
type Check interface {
	// Read decodes a message and compares it with its payment. POLICY_DENIED: it is not that payment's.
	Read(ctx context.Context, q Question) (Message, error)
}

// Question is a message that somebody wants signed, and what it is compared with.
type Question struct {
	Message    []byte          // in the form of its scheme
	Payment    history.Payment // reserved in the ledger
	Asset      x402.AssetInfo  // the payment's, from the registry; zero where the payment has none
	Account    Account         // that pays
	Ledger     Ledger
	Now        time.Time
	MaxTimeout time.Duration // the longest validity that the owner's rules allow
	PerCall    money.Dollars // the owner's limit for one call
}

// Account is who pays: a name, which is "" for the wallet's own account, and its addresses.
type Account struct{ Name, EVM, Solana string }

// IsOwn reports whether it is the wallet's own account. Only that one has vaults, allowances, delegations and
// channels.
func (a Account) IsOwn() bool { return a.Name == "" }

// Ledger is what a check may read beside the payment. Its rows are not sealed: see Bounded.
type Ledger interface {
	Channel(ctx context.Context, service, key string) (history.Channel, error)
	// HeldOn returns what unfinished payments hold of an account, by asset.
	HeldOn(ctx context.Context, network, source string) (map[string]money.Amount, error)
}

// Message is one that may be signed.
type Message interface {
	// Terms are what the owner's rules are asked about it.
	Terms() Terms
	// Sign signs it. Several signatures come one behind another.
	Sign(ctx context.Context, by *wallet.Account) ([]byte, error)
	// Signed is what the ledger records of it with its signatures: how the chain is asked about it, and the
	// channel as it leaves it.
	Signed(signatures []byte) (history.Signed, error)
	// Over is what is signed; the ledger records its digest.
	Over() []byte
}

// Basis is what Messages have in common.
type Basis struct {
	Asks  Terms
	Bytes []byte
}

func (b Basis) Terms() Terms { return b.Asks }

func (b Basis) Over() []byte { return b.Bytes }

// Costs are the terms of a payment that counts what its amount is worth.
func (q Question) Costs() Terms {
	worth := q.Asset.Dollars(q.Payment.Amount)
	return Terms{Counts: worth, Price: worth}
}

// Terms are what the owner's rules are asked about a message.
type Terms struct {
	// Counts is what it adds to the owner's windows, and what the ledger's row has to have as its price.
	Counts money.Dollars
	// Price is what the rules for single calls are asked about. It is above Counts where a deposit was
	// counted before.
	Price money.Dollars
	// IsSignIn: it moves nothing, and policy.sign_in decides.
	IsSignIn bool
	// IsTransfer: it moves the owner's money to the agent's own account and buys nothing. No window counts
	// it.
	IsTransfer bool
	// Always is why a person has to approve it, whatever it costs; "": for no such reason.
	Always string
}

// Bounded is a message that is also held to what is sealed. Bound is called within the transaction that
// records the signature, and refuses what promises more than its terms count.
// fact is sealed with the signature; nil if there is none.
type Bounded interface {
	Bound(ctx context.Context, s Sealed) (fact *history.Fact, err error)
}

// Sealed is what is known when a signature is recorded, without believing a row that is not sealed.
type Sealed struct {
	history.Sealed
	// Unsettled is what this process signed out of an account that may still be on its way.
	Unsettled func(network, asset, source string) money.Amount
}

// Refuse is the refusal of a message, POLICY_DENIED.
func Refuse(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.PolicyDenied, "the unlock agent does not sign this: "+format, args...)
}

// Field is one comparison of a message with its payment.
type Field struct {
	name string
	same bool
}

// Is names a comparison.
func Is(name string, same bool) Field { return Field{name, same} }

// Compare refuses a message that differs from its payment, and names the first field that does.
func Compare(list ...Field) error {
	for _, f := range list {
		if !f.same {
			return Refuse("its %s is not that of the reserved payment", f.name)
		}
	}
	return nil
}

// SameAddress compares two EVM addresses in any letter case.
func SameAddress(a, b string) bool { return a != "" && strings.EqualFold(a, b) }

// Lives reports whether a time of Unix seconds is ahead, and within the owner's longest validity.
func (q Question) Lives(until int64) bool {
	now := q.Now.Unix()
	return until > now && until <= now+int64(q.MaxTimeout/time.Second)
}
