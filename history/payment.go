package history

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/seals"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// State is where a payment stands.
type State string

// reserved → submitted → settled | failed | unknown, unknown → settled | failed, settled (claimed)
// → failed (false receipt).
//
// There is no state "signed": after a crash it could not be told from submitted.
const (
	Reserved  State = audit.ReservedEvent  // held; nothing signed has left
	Submitted State = audit.SubmittedEvent // the signed bytes are on disk and may be anywhere
	Settled   State = audit.SettledEvent   // somebody's claim or the chain's word: see Proof
	Failed    State = audit.FailedEvent    // provably did not happen and cannot any more; the hold is gone
	Unknown   State = audit.UnknownEvent   // sent, no proof either way; counts as spent
)

// Proof says what a settled payment rests on.
type Proof string

// Claimed: the seller or facilitator said so. Chain: the chain showed it.
const (
	Claimed Proof = "claimed"
	Chain   Proof = "chain"
)

// The states' meaning for a budget, in one table:
//
//	state      holds the money   counts as   may go on to
//	reserved   yes               held        submitted, failed
//	submitted  yes               held        settled, failed, unknown
//	unknown    yes               held        settled, failed
//	settled    no                spent       settled (better proof), failed (false receipt)
//	failed     no                nothing     –
var allowed = map[State][]State{
	Reserved:  {Submitted, Failed},
	Submitted: {Settled, Failed, Unknown},
	Unknown:   {Unknown, Settled, Failed},
	Settled:   {Settled, Failed},
}

// MayBecome reports whether a payment may go on to a state.
func (s State) MayBecome(to State) bool { return slices.Contains(allowed[s], to) }

// Unfinished reports whether evidence is still missing.
func (s State) Unfinished() bool { return s == Reserved || s == Submitted || s == Unknown }

// Payment is one row of the ledger.
type Payment struct {
	ID             string // "pay_" and 32 hex digits
	Number         int64  // in the order in which they were made; 0: it is not in the ledger
	Session        string // the budget session it fell into
	Agent          string // whose it is, of those that share the wallet; "": of a caller without a name
	State          State
	Proof          Proof
	Created        time.Time         // UTC, whole microseconds
	Updated        time.Time         // its last change of state
	Fingerprint    [sha256.Size]byte // of the request: the same one is the same request (package pay)
	IdempotencyKey string            // one for each of its agent's purchases; "": none
	Method         string            // of HTTP, or of MCP: "tools/call"
	URL            string            // as it was asked for, without the secrets of its query
	// where it led, on the same origin: the payment goes there; "": to the URL
	Target string
	// as the owner's rules name it: lower case, its port unless it is the scheme's own
	Host    string
	Network string // CAIP-2
	Scheme  string
	Dialect x402.Dialect
	Asset   string // its address as assets are compared by it: on EVM in lower case
	Symbol  string
	Amount  money.Amount  // atomic units: what was signed for
	Price   money.Dollars // the amount's worth when it was held
	Charged *money.Amount // what the chain showed to have moved, where that was less; nil: all of it
	// of its price, what was not charged
	Returned money.Dollars
	PayTo    string // as the seller wrote it
	// whose money: the agent's address (EVM), the token account (Solana), the payer's account (channels)
	Source      string
	Requirement json.RawMessage
	Payload     json.RawMessage // nil before it is signed
	Evidence    x402.Evidence   // what the chain is asked by; zero before it is signed
	Transaction string          // its id on the chain, as far as it is known
	// the configured name of the one that settled; "" where the seller settles
	Facilitator string
	Receipt     json.RawMessage // the claim as it came; nil: none
	ChainProof  json.RawMessage // what the chain said (x402.Status); nil: nothing that proves anything
	Note        string          // about its last change, for people
	// it was claimed to be settled, and the chain proved that it never happened
	FalseReceipt bool
	// the process that works on it, and the one whose client waits (Store.Alive); "": none
	LeaseOwner, Waiter string
	Delivered          bool // a client has the answer
}

// Subscription is the name of the owner's standing order that it belongs to; "": none.
func (p Payment) Subscription() string {
	id, _, _ := budget.SubscriptionOf(p.IdempotencyKey)
	name, _, _ := strings.Cut(id, ":")
	return name
}

// IsPull reports whether it moved an owner's money to the agent's account, and bought nothing.
func (p Payment) IsPull() bool { return p.Scheme == x402.Allowance }

// IsSignIn reports whether the row is no payment but a sign-in with the wallet's key: it costs nothing, pays
// nobody, and is settled without a proof once it was shown to the seller.
func (p Payment) IsSignIn() bool { return p.Scheme == x402.SignInScheme }

// Paid is what it costs, as far as the chain has shown: what was charged, or else what was signed for.
func (p Payment) Paid() money.Amount {
	if p.Charged != nil {
		return *p.Charged
	}
	return p.Amount
}

// Worth is what it counts as in the budgets: its price, or what was charged.
func (p Payment) Worth() money.Dollars { return p.Price - p.Returned }

// Resource names what a payment buys, for comparing prices: method, host and path; of an MCP server
// ("tools/call", which is no HTTP method), also the tool, resource or prompt, which the fragment
// names. Spellings that servers commonly take for one path (/%61, /./a, //a) are one.
func (p Payment) Resource() string {
	at, name := "/", ""
	if u, err := url.Parse(p.URL); err == nil {
		at = path.Clean("/" + u.Path)
		if strings.HasSuffix(u.Path, "/") && at != "/" {
			at += "/"
		}
		at = (&url.URL{Path: at}).EscapedPath()
		if f := u.EscapedFragment(); f != "" && strings.Contains(p.Method, "/") {
			name = "#" + f
		}
	}
	return p.Method + " " + p.Host + at + name
}

func (p Payment) terms() seals.Terms {
	return seals.Terms{Session: p.Session, Agent: p.Agent, Host: p.Host, Network: p.Network, Asset: p.Asset,
		PayTo: p.PayTo, Resource: p.Resource(), Price: p.Price}
}

// NewID returns an id for a payment that is made at a time, for a caller that has to know it before it is in
// the ledger: "pay_" and 32 hex digits, of which the first twelve are the time in Unix milliseconds
// and the rest are 80 random bits, as in a UUIDv7 (RFC 9562 §5.7). Ids sort by time, so that a
// large ledger can be partitioned by them; sellers that remember purchases by this id (extension
// payment-identifier: 16 to 128 characters of [A-Za-z0-9_-]) cannot guess another one.
func NewID(at time.Time) string { return NewTimedID("pay_", at) }

// NewTimedID is NewID with another prefix.
func NewTimedID(prefix string, at time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())<<16)
	b = append(b[:6], make([]byte, 10)...)
	rand.Read(b[6:]) // never fails (crypto/rand)
	return prefix + hex.EncodeToString(b)
}

// RandomID is 128 random bits behind a prefix that says what it names.
func RandomID(prefix string) string {
	var b [16]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}
