package audit

import (
	"encoding/json"
	"slices"
)

// The events of a payment.
const (
	ReservedEvent  = "reserved"
	SubmittedEvent = "submitted"
	SettledEvent   = "settled"
	FailedEvent    = "failed"
	UnknownEvent   = "unknown"

	ContentEvent   = "content"           // stored without a change of state
	KeyedEvent     = "keyed"             // it got an idempotency key
	DeliveredEvent = "delivered"         // a client has its answer
	UsedEvent      = "approval used"     // it used an approval up
	ReturnedEvent  = "approval returned" // it gave an approval back
)

// The events whose rows are sealed.
const (
	SealedEvent  = "sealed" // the owner's rules
	SignedEvent  = "signed"
	VoucherEvent = "voucher"
	ExpiredEvent = "expired"
	ChargedEvent = "charged"
)

// IsSealed reports whether an event's row is sealed.
func IsSealed(event string) bool {
	return slices.Contains([]string{SealedEvent, SignedEvent, VoucherEvent, ExpiredEvent, ChargedEvent},
		event)
}

// The events of everything else.
const (
	CreatedEvent     = "created" // the chain's first
	SessionEvent     = "session" // it began, and the one before it ended
	RedatedEvent     = "redated" // what was dated ahead is dated then
	FrozenEvent      = "frozen"
	UnfrozenEvent    = "unfrozen"
	LiftRefusedEvent = "lift refused" // it was not the owner's
	ChannelEvent     = "channel"      // what is known of it from now on
	DelegationEvent  = "delegation"   // more was delegated on an account than ever before
	DelegatedEvent   = "delegated"    // the owner sent an approval to the chain
	RevokedEvent     = "revoked"      // or the end of one
	LabelledEvent    = "labelled"     // a session was named
	ImportedEvent    = "imported"     // payments of another wallet were written down
	ApprovalEvent    = "approval "    // and its state
)

// SaidNothing is what a question's detail says of a dialog that was closed.
const SaidNothing = "nothing"

// ReservedDetail is what the chain says of a payment when its money is held.
type ReservedDetail struct {
	Row    string `json:"row"` // history.Payment.digest
	Key    string `json:"key,omitempty"`
	Stored string `json:"stored"` // StoredDigest
}

// StoredDigest is over the option that was paid, the signed bytes, and what the chain is asked by.
func StoredDigest(requirement, payload, evidence string) string {
	return EncodeDigest(Link(nil, 0, requirement, payload, evidence))
}

// OutcomeDetail is what the chain says of an outcome: with every column that it sets.
type OutcomeDetail struct {
	Proof       string `json:"proof,omitempty"`
	Transaction string `json:"transaction,omitempty"`
	Facilitator string `json:"facilitator,omitempty"`
	// of its answer, and what came of each try
	FacilitatorStatus int      `json:"facilitatorStatus,omitempty"`
	Tries             []string `json:"tries,omitempty"`

	Receipt      string `json:"receipt,omitempty"` // digest
	Chain        string `json:"chain,omitempty"`   // likewise of the chain's answer
	Note         string `json:"note,omitempty"`
	FalseReceipt bool   `json:"falseReceipt,omitempty"`
	Delivered    bool   `json:"delivered,omitempty"`
}

// ContentDetail is what the chain says of a content.
type ContentDetail struct {
	SHA256    string `json:"contentDigest"` // digest of its bytes
	Bytes     int64  `json:"bytes"`
	Status    int64  `json:"httpStatus"`
	Type      string `json:"type"`
	Headers   string `json:"headers,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Step is what the details of a payment's events hold, but of its signature.
type Step struct {
	ReservedDetail
	Why      string // of a hold that was released
	Charged  string // what was less than was signed for
	Returned int64  // of its price
	OutcomeDetail
	ContentDetail
}

func ReadStep(detail string) (s Step, err error) {
	err = json.Unmarshal([]byte(detail), &s)
	return s, err
}
