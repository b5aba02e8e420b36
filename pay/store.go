package pay

import (
	"context"
	"crypto/sha256"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/x402/money"
)

// Store is the ledger as the engine needs it: history.Store. Nothing in it knows of a transaction
// or of a database, so that another ledger can take its place, as one in memory does in the
// simulation. All of it is safe for concurrent use, by any number of processes.
type Store interface {
	Reserver
	Leases
	Reader
	Approvals
}

// Reserver is the way of one payment's money through the ledger. The order of calls is the safety
// argument of the whole wallet:
//
//	Facts → (budget.Rules.Decide) → Reserve → (sign) → Guard.Submit → (send) → Finish, Guard.Expire
//	                                   └─ Release, only as long as Submit was not called
//
// Submit and Expire are the Guard's, because they are sealed with the key.
//
// Each step is durable when it returns without an error, and before what it announces is done:
// money is held before it is signed for, signed bytes are on disk before they leave, and a hold
// ends only by evidence. After any error a step may have been taken all the same (a disk that failed after
// the write): the engine reads the row again, or leaves it to whoever looks at it next.
//
// Facts locks nothing. Two calls that read the same facts and pass both hold money only if there is
// room for both: with $0.05 left of the day's budget and a price of $0.04,
//
//	call A                                call B
//	Facts: 0.05 left                      Facts: 0.05 left
//	Decide: passes, day ≤ 10.00           Decide: passes, day ≤ 10.00
//	Reserve: 9.99 ≤ 10.00, held           Reserve: 10.03 > 10.00, ErrMoved
//	                                      Facts: 0.01 left
//	                                      Decide: BUDGET_EXCEEDED, up to $0.01 would pass
//
// because Reserve checks what the decision rests on in the transaction that holds the money.
type Reserver interface {
	// Facts reads, at one moment, what a decision about a payment needs.
	Facts(ctx context.Context, q history.Question) (history.Facts, error)
	// Reserve holds the money and makes the payment this process's to work on. It answers
	// history.ErrMoved where something that the decision rests on is no longer so: nothing is held
	// then, and the facts have to be read again. *history.AlreadyPaying and *history.ShortOfFunds
	// say why nothing else may or can be held.
	Reserve(ctx context.Context, h history.Hold) (history.Payment, error)
	// ReserveAll is Reserve for several payments in one step: all are held, or none. *history.NotHeld says
	// which one was refused.
	ReserveAll(ctx context.Context, holds []history.Hold) ([]history.Payment, error)
	// Release ends a hold of which nothing was signed, and gives the approval back that it used up.
	Release(ctx context.Context, id, why string) error
	// Finish records what became known of a submitted payment; as often as there is better proof.
	// That it expired is Guard.Expire's to record.
	Finish(ctx context.Context, id string, o history.Outcome) (history.Payment, error)
}

// Leases say which process works on a payment and whose client waits for it. They end with the
// process, however it ends. Reserve gives both to its caller.
type Leases interface {
	// AcquireLease takes a payment over from the process that was read as its owner; false: another
	// one was faster.
	AcquireLease(ctx context.Context, id, from string) (bool, error)
	ReleaseLease(ctx context.Context, id string) error
	// ClearWaiter says that nobody waits for the answer any more, Deliver that a client has it.
	ClearWaiter(ctx context.Context, id string) error
	Deliver(ctx context.Context, id string) error
	// AttachIdempotencyKey makes a payment that has no key the key's purchase.
	AttachIdempotencyKey(ctx context.Context, id, key string) (bool, error)
	// Alive reports whether a process still runs; Self is this one's name, "" before its first payment.
	Alive(process string) bool
	Self() string
}

// Reader finds payments. history.ErrNotFound: there is none.
type Reader interface {
	Payment(ctx context.Context, id string) (history.Payment, error)
	Content(ctx context.Context, id string) (history.Content, error)
	ByKey(ctx context.Context, agent, key string) (history.Payment, error)
	ByRequest(ctx context.Context, fingerprint [sha256.Size]byte) ([]history.Payment, error)
	// Unfinished and Claimed are what reconciliation looks up, oldest first, behind one payment.
	Unfinished(ctx context.Context, after string, limit int) ([]history.Payment, error)
	Claimed(ctx context.Context, since time.Time, after string, limit int) ([]history.Payment, error)
	// HeldUpTo is what payments of p's source and asset hold of it, or took since it was read, up to p itself
	// in the order in which they were made. OpenFrom is the unfinished ones out of a source, oldest first.
	HeldUpTo(ctx context.Context, p history.Payment, readAt time.Time) (money.Amount, error)
	OpenFrom(ctx context.Context, network, source string) ([]history.Payment, error)
	// Recent is the last payments, newest first.
	Recent(ctx context.Context, limit int) ([]history.Payment, error)
	// RecentAt is Recent of an agent's payments at a host.
	RecentAt(ctx context.Context, agent, host string, limit int) ([]history.Payment, error)
	// Bought is the newest settled payment for a resource of these URLs (without a query) by an agent; "": by
	// whomever.
	Bought(ctx context.Context, agent, url, resource string) (history.Payment, error)
	// Earlier are settled payments for the host of a payment that were made before it, newest first.
	Earlier(ctx context.Context, p history.Payment, limit int) ([]history.Payment, error)
	// Expired is what was signed since a time and never settled.
	Expired(ctx context.Context, network string, since time.Time) ([]history.Payment, error)
}

// Approvals is what people decide, and what the circuit breaker decides for them.
type Approvals interface {
	// AskedTogether are the approvals of a list, in its order, or the one that is in none.
	AskedTogether(ctx context.Context, id string) ([]history.Approval, error)
	Accept(ctx context.Context, id, by string) (history.Approval, error)
	Freeze(ctx context.Context, f history.Freeze) error
	// NotFrozen is WALLET_FROZEN where payments from an account are stopped.
	NotFrozen(ctx context.Context, network, account string) error
	// AlertOverdue and AlertDamage tell the owner, once, of a payment whose fate is not known long after its
	// end, and of a ledger that is not as it was left.
	AlertOverdue(ctx context.Context, p history.Payment) error
	AlertDamage(ctx context.Context, why string) error
}

// Asker asks a person: asking.Asker. *history.Declined and *history.TooManyPending say that
// nobody is to be asked.
type Asker interface {
	AskApproval(ctx context.Context, a history.Approval) (history.Approval, error)
	// AskApprovals opens one question about several payments.
	AskApprovals(ctx context.Context, list []history.Approval) ([]history.Approval, error)
	// ApprovedBy says who approved a payment and when. It is nil if nobody had to.
	ApprovedBy(ctx context.Context, p history.Payment) (*asking.Approver, error)
}

var _ Store = (*history.Store)(nil)
