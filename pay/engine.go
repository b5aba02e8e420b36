// Package pay is the life of one payment: quote, choose, hold, sign, send, judge, finish; and what
// happens to it later.
//
// What must stay true, and is the whole design: money is held on disk before it is signed for, the
// signed bytes are on disk before they leave, and a hold ends only by evidence. After the bytes
// left, nothing but the very same bytes ever goes out for the same purchase, until the chain proves
// that they have expired.
//
// The files in the order in which a purchase goes through them:
//
//	request.go  what is wanted, read once
//	pay.go      the order of the steps
//	gate.go     how many calls are made at a time
//	resume.go   is this call one that was made before?
//	quote.go    what the seller asks, and which of it can be paid; ahead.go what is read meanwhile
//	signin.go   signing in instead, where it was bought before
//	hold.go     the budgets: money is held, of the owner's vault first (source.go); approve.go where a
//	            person is needed; delegation.go a session's limit; alert.go what else the owner is told of
//	channel.go  the same of what is paid through a channel, and what its seller's answer means
//	next.go     what to do after a refusal
//	many.go     several purchases under one ceiling and one yes; manyhold.go what is held in one step,
//	            manyask.go what a person is asked about it
//	float.go    what it takes is brought from the owner's account to the agent's, where the owner lets it
//	sign.go     the purchase from then on: signed, and on disk
//	send.go     out it goes
//	verdict.go  what the answer means: a pure table
//	record.go   written down
//	observe.go  who is told of all this; standing.go how the engine stands
//	result.go   what the caller gets; content.go how it is shown, after.go what comes after it
//
// attested.go reads what sellers sign besides. store.go is the ledger as it is needed here, and the order
// of its steps. call.go and inflight.go say who waits for a payment and who works on it. Later,
// reconcile.go asks the chain about everything that stayed open, and expiry.go our own clocks.
// deferred.go is the money of sellers that serve first and are paid with a later request; prospect.go
// says what could be paid of what others list.
package pay

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/scheme"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// Scheme is a way of paying on one family of chains that Pay may choose: evm.Exact, svm.Exact.
type Scheme interface {
	StatusReader
	// Payable says why not, from what is known without asking anybody.
	Payable(r x402.Requirement, asset x402.AssetInfo) error
	// Funds reads the third budget layer from the chain.
	Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
	// Authorize signs exactly what the order says.
	Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error)
}

// Pusher is a Scheme of which some sellers want to be shown a transaction that the buyer has sent.
type Pusher interface {
	// Pushed returns the payload that the seller of a payment is shown. If the seller wants the hash of a
	// transaction, the payment is sent to the network first.
	Pushed(ctx context.Context, p history.Payment) (payload json.RawMessage, err error)
}

// StatusReader says what became of payments. It is all that is needed of ways of paying in which
// the wallet paid and that Pay does not choose by itself, as through payment channels.
type StatusReader interface {
	// Status asks the chain what became of a payment. With an error the status is Open.
	Status(ctx context.Context, e x402.Evidence) (x402.Status, error)
}

// SchemeKey finds a way of paying: by its scheme and its network's CAIP-2 namespace, as
// {"exact", "eip155"}.
type SchemeKey struct{ Scheme, Family string }

// Transport carries a request to a seller.
type Transport interface {
	// Check refuses what may never be sent, without sending.
	Check(r seller.Request) error
	// Ask sends it without payment.
	Ask(ctx context.Context, r seller.Request) (*seller.Answer, error)
	// Present sends it once with a payment or proof. Its error is a *seller.SendError.
	Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer, error)
}

// Deferred pays sellers that serve first and are paid with a later request: nuwa.Manager. How it
// holds, signs and records is the same as for any other purchase, and Engine has the means.
type Deferred interface {
	// Serves reports whether a request's seller is one of these; service is its name.
	Serves(ctx context.Context, r seller.Request) (service string, ok bool)
	// Buy makes the call and pays for it. Its error is an *x402.Error.
	Buy(ctx context.Context, service string, c Charge) (Result, error)
}

// Settler brings payments to facilitators, where the wallet settles.
type Settler interface {
	Settle(ctx context.Context, s facilitator.Submission) facilitator.Result
	// FeePayer names who pays the transaction fee of a payment (Solana), if possible none of avoid.
	FeePayer(ctx context.Context, t facilitator.Terms, version int, avoid []string) (address,
		facilitator string, err error)
}

// Hooks is a program of the owner's before each payment, and one after it: hooks.Hooks.
type Hooks interface {
	// MayPay refuses a payment whose money is held and of which nothing is signed.
	MayPay(ctx context.Context, p history.Payment) error
	// Wake says that something may have come of one. It returns at once.
	Wake()
}

// Guard refuses rules that the owner did not seal, and a ledger that was rolled back: seal.Guard.
type Guard interface {
	CheckConfig(ctx context.Context) error // before anything is held; needs no key
	VerifySeals(ctx context.Context) error // before the signature
	// Submit puts the signed bytes on disk, with the signature as a sealed row of the audit chain, if
	// by what is sealed alone the owner's rules let the payment pass: only when it returned nil may
	// they leave. here says that a person at this process's own client approved it.
	Submit(ctx context.Context, p history.Payment, signed history.Signed, here bool) error
	// RecordVoucher is Submit for a payment channel (history.Store.RecordVoucher).
	RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed, c history.Channel,
		o history.Outcome, here bool) (history.Payment, error)
	// Expire records that a signed payment can never settle: its money is free again.
	Expire(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error)
	// Charge records that a payment settled for less than was signed for: the rest is free again.
	Charge(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error)
	// LocalApprovals reports whether approvals that are given at this process's client count.
	LocalApprovals(ctx context.Context) bool
	Checkpoint(ctx context.Context) error // before signed bytes leave once more
	// CheckpointIfUnlocked is called after a freeze, so that it cannot be taken back unnoticed. It
	// asks nobody for a passphrase.
	CheckpointIfUnlocked(ctx context.Context) error
}

// Engine pays. All fields are set before its first use and not changed afterwards; it is safe for
// concurrent use.
type Engine struct {
	Rules   budget.Rules
	Policy  Policy
	Assets  *x402.Registry
	Schemes map[SchemeKey]Scheme
	Ways    []scheme.Way  // that there are, the simplest first
	Owners  OwnersAccount // nil: there is none
	Floats  Floats        // nil: likewise
	SignIns SignInSigner  // nil: it signs in nowhere
	// Delegated is Delegation.Limit of the wallet's own account. It is nil if nothing can be delegated.
	Delegated func(ctx context.Context, network, asset string) (*money.Dollars, error)
	Statuses  map[SchemeKey]StatusReader // of what was paid in other ways; nil: none
	Transport Transport
	Settler   Settler
	Deferred  Deferred // nil: there are none
	// UnlockAhead begins to unlock the keys for a payment that is likely, while the chain is read. It asks
	// nobody for the passphrase, and returns at once; nil: a payment unlocks them.
	UnlockAhead func()
	Store       Store
	Asker       Asker
	Guard       Guard
	// Hooks has a say in each payment, and hears when something came of one; nil: nobody does.
	Hooks Hooks
	// Observe is told of each call that may pay, when it has ended: of its payment and its steps. It may not
	// block. nil: nobody listens, and nothing is noted.
	Observe func(steps.Report)
	// Traces says whether its calls are traced, too, which needs Observe.
	Traces steps.Traces
	Now    func() time.Time
	Log    *slog.Logger

	// ofRow makes the context of one of a batch's requests, for tests that follow each; nil: it is the
	// batch's
	ofRow func(ctx context.Context, n int) context.Context

	gate           gate           // how many of its calls are made at a time
	inflight       inflight       // what this process's calls work on and wait for
	pending        pendingWrites  // what they bought and could not write down
	localExpiries  localExpiries  // until when what they signed may be valid
	lastFunds      lastFunds      // what could be spent when something was paid last
	paidIn         paidIn         // what sellers were paid in, to be read while they are asked
	sourceRefusals sourceRefusals // who takes no payment from the owner's account
	turns          turns          // of an account, by network, and of a token
	batches        turns          // whose money is held
	signInsInVain  signInsInVain  // who asked for payment all the same
	// ids of payments that a seller takes for no more calls (reuse.go)
	usedUp sync.Map
	jobs   jobs
	// approvals that a person at this process's client gave, by id
	localApprovals sync.Map
	lookingUp      sync.Mutex // held by the one call that asks the chains before a refusal
	lookedUp       string     // the payment that it asked about last
}

// Policy is what of the owner's rules is not about sums.
type Policy struct {
	Prefer     []string      // networks, best first
	Networks   []string      // that have a node
	Schemes    []string      // payment schemes that may be used
	MaxTimeout time.Duration // the longest validity that is ever signed
	Deadline   time.Duration // for one call, before it is paid
	MaxWait    time.Duration // for the answer to a payment; 0: as Deadline
	// below how much what is left to pay from is little, so that the owner is told; 0: never
	LowFunds money.Dollars
	// hosts for which the wallet settles, whatever the dialect; nil: none
	WalletSettles func(host string) bool
	// hosts at which a settled payment is good for more calls, until it is used up; nil: none
	TakesCredit func(host string) bool
}

func (p Policy) has(way string) bool { return slices.Contains(p.Schemes, way) }

// Limits with their reasons.
const (
	// fundsWait is how long a payment waits for the wallet's own holds to show on the chain, when
	// only they stand in its way: a settlement takes seconds, and refusing at once would leave
	// money unspent that is there.
	fundsWait = 3 * time.Second
	// maxSkew between our clock and the seller's Date; beyond it a validity we sign would not be
	// what we think it is.
	maxSkew = 2 * time.Minute
	// maxDecisions is how often a payment is decided on while the ledger changes under it. Each
	// time only somebody else's hold, or a session's end, can have come in between, so that more
	// than two are rare.
	maxDecisions = 10
	// feePayerBackoff is how long a fee payer is passed over that let a payment expire.
	feePayerBackoff = time.Hour
	// detachedWait is how long a call whose time is over still waits for the ledger, to note that it
	// is: the ledger takes milliseconds unless somebody holds it.
	detachedWait = time.Second
	// recordWait is how long recording an outcome, and one look at the chain with it, may take.
	recordWait = 20 * time.Second
	// MaxPiece is how much content an answer carries itself, in bytes, and firstPiece how much of
	// a longer one: enough to see what it is, and whether the rest is worth its tokens.
	MaxPiece   = 16 << 10
	firstPiece = 8 << 10
)

var _ Settler = (*facilitator.Client)(nil)

func (e *Engine) scheme(scheme, network string) (Scheme, bool) {
	s, ok := e.Schemes[SchemeKey{Scheme: scheme, Family: x402.Namespace(network)}]
	return s, ok
}

func (e *Engine) statusReader(scheme, network string) (StatusReader, bool) {
	if s, ok := e.scheme(scheme, network); ok {
		return s, true
	}
	s, ok := e.Statuses[SchemeKey{Scheme: scheme, Family: x402.Namespace(network)}]
	return s, ok
}
