package x402

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Code is an error code of docs/codes.md.
type Code string

// Actor says who can do something about an error.
type Actor string

// Who can fix it.
const (
	byAgent  Actor = "agent"
	ByPerson Actor = "person"
	ByTime   Actor = "time"
	bySeller Actor = "seller"
	byWallet Actor = "wallet"
)

// The codes. Their meaning, and who can fix them, is the table below.
const (
	InvalidArgument     Code = "INVALID_ARGUMENT"
	NoRequirements      Code = "NO_REQUIREMENTS"
	InvalidRequirement  Code = "INVALID_REQUIREMENT"
	AmountExceedsMax    Code = "AMOUNT_EXCEEDS_MAX"
	BudgetExceeded      Code = "BUDGET_EXCEEDED"
	InsufficientFunds   Code = "INSUFFICIENT_FUNDS"
	NoDelegation        Code = "NO_DELEGATION"
	DelegationExhausted Code = "DELEGATION_EXHAUSTED"
	DelegateMismatch    Code = "DELEGATE_MISMATCH"
	PolicyDenied        Code = "POLICY_DENIED"
	PolicyUnsealed      Code = "POLICY_UNSEALED"
	PayeeChanged        Code = "PAYEE_CHANGED"
	RateLimited         Code = "RATE_LIMITED"
	WalletFrozen        Code = "WALLET_FROZEN"
	ApprovalRequired    Code = "APPROVAL_REQUIRED"
	ApprovalDeclined    Code = "APPROVAL_DECLINED"
	PriceChanged        Code = "PRICE_CHANGED"
	WalletNotFound      Code = "WALLET_NOT_FOUND"
	WalletLocked        Code = "WALLET_LOCKED"
	InvalidPassphrase   Code = "INVALID_PASSPHRASE"
	KeystoreCorrupt     Code = "KEYSTORE_CORRUPT"
	KeystorePermissions Code = "KEYSTORE_PERMISSIONS"
	KeypairExists       Code = "KEYPAIR_EXISTS"
	SetupFailed         Code = "SETUP_FAILED"
	LedgerUnavailable   Code = "LEDGER_UNAVAILABLE"
	LedgerCorrupt       Code = "LEDGER_CORRUPT"
	UntrustedAsset      Code = "UNTRUSTED_ASSET"
	URLBlocked          Code = "URL_BLOCKED"
	RedirectRefused     Code = "REDIRECT_REFUSED"
	ResponseMalformed   Code = "RESPONSE_MALFORMED"
	ResponseTooLarge    Code = "RESPONSE_TOO_LARGE"
	NetworkError        Code = "NETWORK_ERROR"
	Timeout             Code = "TIMEOUT"
	RPCError            Code = "RPC_ERROR"
	ClockSuspect        Code = "CLOCK_SUSPECT"
	PaymentRejected     Code = "PAYMENT_REJECTED"
	SettlementFailed    Code = "SETTLEMENT_FAILED"
	FacilitatorError    Code = "FACILITATOR_ERROR"
	OutcomeUnknown      Code = "OUTCOME_UNKNOWN"
	CheckFailed         Code = "CHECK_FAILED"
	HistoryFailed       Code = "HISTORY_FAILED"
	DiscoverFailed      Code = "DISCOVER_FAILED"
	EstimateFailed      Code = "ESTIMATE_FAILED"
	ServerUnavailable   Code = "SERVER_UNAVAILABLE"
	ToolNotFound        Code = "TOOL_NOT_FOUND"
	ToolExecutionFailed Code = "TOOL_EXECUTION_FAILED"
	SessionTerminated   Code = "SESSION_TERMINATED"
	PayFailed           Code = "PAY_FAILED"
	Internal            Code = "INTERNAL"
)

// delegate is how a person lets the agent spend, where nothing says how much is needed.
const delegate = "delegation approve --owner-keypair FILE --amount 25"

// codes is the one table of them: a code that is not here does not exist. It holds who can fix it, the
// step that is next where the error itself names none, and what a person wants to know who meets it, in
// docs/codes.md and by `x402-wallet help CODE`.
var codes = map[Code]struct {
	fixedBy   Actor
	next      Step
	command   string // what the person types, after the program's name, where the error names nothing better
	say       string // one sentence for the person; "": the message
	means, do string
}{
	InvalidArgument: {fixedBy: byAgent, next: Change,
		means: "something of the call is wrong: URL, method, amount, an unknown id",
		do:    "correct what the message names"},
	NoRequirements: {fixedBy: bySeller, next: GiveUp,
		means: "the seller answered 402 in a protocol that is neither x402 nor MPP (L402: named in details)",
		do:    "nothing here; another seller, or another wallet for that protocol"},
	InvalidRequirement: {fixedBy: bySeller, next: GiveUp,
		means: "none of the seller's options can be paid; each is listed with its reason",
		do:    "look at the reasons: often a network that is not configured, or an unknown token"},
	AmountExceedsMax: {fixedBy: byAgent, next: Change,
		means: "the price is above the call's own maxAmount",
		do:    "a higher maxAmount; ask first, if a person set it"},
	BudgetExceeded: {fixedBy: ByTime, next: Wait,
		means: "one of your limits; details name it and say when it resets",
		do:    "wait, or `x402-wallet budget set NAME AMOUNT`"},
	InsufficientFunds: {fixedBy: ByPerson, next: AskPerson, command: "address --qr",
		means: "the balance at the address is too low",
		do:    "`x402-wallet address --qr`, send USDC there"},
	NoDelegation: {fixedBy: ByPerson, next: AskPerson, command: delegate,
		means: "your token account delegates nothing to the agent",
		do:    "`x402-wallet delegation approve --owner-keypair FILE --amount 25`"},
	DelegationExhausted: {fixedBy: ByPerson, next: AskPerson, command: delegate,
		means: "what you delegated is spent or held",
		do:    "delegate more: `x402-wallet delegation approve --owner-keypair FILE --amount 25`"},
	DelegateMismatch: {fixedBy: ByPerson, next: AskPerson, command: "delegation show",
		means: "the token account delegates to somebody else, is of another token, or is frozen",
		do:    "`x402-wallet delegation show` says which"},
	PolicyDenied: {fixedBy: ByPerson, next: AskPerson, command: "policy",
		means: "a host, payee or price that your rules refuse",
		do:    "`x402-wallet policy allow HOST`, if you want it"},
	PolicyUnsealed: {fixedBy: ByPerson, next: AskPerson, command: "policy seal",
		say: "The wallet's rules are not sealed as they are: please look at what changed, and seal them if " +
			"that is right.",
		means: "config.toml was loosened since you sealed it, or the home was copied or moved",
		do:    "`x402-wallet policy` shows the difference, `policy seal` accepts it"},
	PayeeChanged: {fixedBy: ByPerson, next: AskPerson, command: "policy",
		means: "the seller wants to be paid at another address than before",
		do:    "ask the seller; approve it if that is right"},
	RateLimited: {fixedBy: ByTime, next: Wait,
		means: "more payments a minute than your rate",
		do:    "wait; it says how long"},
	WalletFrozen: {fixedBy: ByPerson, next: AskPerson, command: "unfreeze",
		means: "you, or the circuit breaker, stopped everything",
		do:    "`x402-wallet history`, then `x402-wallet unfreeze`"},
	ApprovalRequired: {fixedBy: ByPerson, next: AskPerson, command: "approvals",
		means: "above approve_above, a new payee or a jump in price: a person decides",
		do:    "`x402-wallet approve ID`, or `deny ID`"},
	ApprovalDeclined: {fixedBy: ByPerson, next: GiveUp,
		means: "a person said no", do: "leave it"},
	PriceChanged: {fixedBy: byAgent, next: Change,
		means: "the seller asked for something else after the quote",
		do:    "ask the price again"},
	WalletNotFound: {fixedBy: ByPerson, next: AskPerson, command: "init",
		say:   "There is no wallet yet: please make one in a terminal.",
		means: "there is no wallet in this home", do: "`x402-wallet init`"},
	WalletLocked: {fixedBy: ByPerson, next: AskPerson, command: "unlock",
		say:   "The wallet is locked: please unlock it in a terminal.",
		means: "no passphrase file, command or keyring answered",
		do:    "`x402-wallet unlock`, or `install CLIENT --passphrase-file FILE`"},
	InvalidPassphrase: {fixedBy: ByPerson, next: AskPerson, command: "unlock",
		means: "wrong passphrase, or the keystore was changed",
		do:    "try again; else restore keystore.json"},
	KeystoreCorrupt: {fixedBy: ByPerson, next: AskPerson, command: "doctor",
		means: "keystore.json is not what was written",
		do:    "restore it from a backup"},
	KeystorePermissions: {fixedBy: ByPerson, next: AskPerson, command: "doctor",
		means: "somebody else could read or replace the keystore",
		do:    "run the `chmod` that the message has"},
	KeypairExists: {fixedBy: ByPerson, next: AskPerson, command: "address",
		means: "there is a wallet here already, and none is overwritten",
		do:    "choose another home with X402_WALLET_HOME"},
	SetupFailed: {fixedBy: ByPerson, next: AskPerson, command: "doctor",
		means: "something about the setup is not right, as config.toml or a file that was named; what " +
			"could not finish left nothing incomplete",
		do: "correct what the message names"},
	LedgerUnavailable: {fixedBy: ByPerson, next: AskPerson, command: "doctor",
		means: "another process held the ledger too long, the disk or the content quota is full, or this " +
			"program is older than the ledger",
		do: "correct that; nothing was signed"},
	LedgerCorrupt: {fixedBy: ByPerson, next: AskPerson, command: "history verify",
		means: "the ledger is missing, damaged or rolled back: nothing is paid",
		do:    "docs/operating.md, \"The ledger is missing or damaged\""},
	UntrustedAsset: {fixedBy: ByPerson, next: AskPerson, command: "policy seal",
		means: "only tokens were asked for that are not in the registry",
		do:    "add it under `[[assets]]`, if you know it"},
	URLBlocked: {fixedBy: byAgent, next: Change,
		means: "a private address, plain http, or credentials in the URL",
		do:    "another URL, with https://; of one on your own machine the message says what allows it"},
	RedirectRefused: {fixedBy: byAgent, next: Change,
		means: "the URL leads to another site, which would be paid instead",
		do:    "ask for the other URL itself"},
	ResponseMalformed: {fixedBy: bySeller, next: GiveUp,
		means: "the seller's 402 cannot be read: broken off, a key in it twice, more than 32 options",
		do:    "tell the seller"},
	ResponseTooLarge: {fixedBy: bySeller, next: GiveUp,
		means: "the seller's 402 is beyond every sensible size",
		do:    "tell the seller"},
	NetworkError: {fixedBy: ByTime, next: Repeat,
		means: "no connection; nothing was signed", do: "try again"},
	Timeout: {fixedBy: ByTime, next: Repeat,
		means: "no answer in time; nothing was signed", do: "try again"},
	RPCError: {fixedBy: ByTime, next: Repeat,
		means: "your node did not answer; nothing was signed",
		do:    "set a node of your own under `[networks]`; public ones are rate-limited"},
	ClockSuspect: {fixedBy: ByTime, next: AskPerson, command: "doctor",
		say:   "This computer's clock is wrong: please set it, so that the wallet can pay again.",
		means: "this machine's clock is more than two minutes off; nothing was signed",
		do:    "set the clock"},
	PaymentRejected: {fixedBy: byWallet, next: Repeat,
		means: "the seller refused the payment; its money is held until it expires",
		do:    "repeat the same call, or `x402-wallet reconcile`"},
	SettlementFailed: {fixedBy: byWallet, next: Repeat,
		means: "settling was refused; the money is held until the payment expires",
		do:    "`x402-wallet reconcile`, later"},
	FacilitatorError: {fixedBy: byWallet, next: Repeat,
		means: "no facilitator took it; the money is held until the payment expires",
		do:    "`x402-wallet reconcile`, later; `x402-wallet doctor` looks at the facilitators"},
	OutcomeUnknown: {fixedBy: byWallet, next: Repeat,
		means: "sent, and nothing proves what became of it: it counts as spent",
		do:    "repeat the same call (it cannot pay twice), or `x402-wallet reconcile`"},
	CheckFailed: {fixedBy: ByTime, next: Repeat,
		means: "a balance or delegation could not be read, or the node is of another chain",
		do:    "`x402-wallet doctor`"},
	HistoryFailed: {fixedBy: ByTime, next: Repeat,
		means: "the history could not be read",
		do:    "try again; `x402-wallet doctor`"},
	DiscoverFailed: {fixedBy: ByTime, next: Repeat,
		means: "no facilitator or seller could be asked",
		do:    "try again; `x402-wallet doctor`"},
	EstimateFailed: {fixedBy: ByTime, next: Repeat,
		means: "the price could not be asked", do: "try again"},
	ServerUnavailable: {fixedBy: bySeller, next: Repeat,
		means: "the paid MCP server does not start or answer",
		do:    "look at its entry under `[servers]`"},
	ToolNotFound: {fixedBy: byAgent, next: Change,
		means: "the paid MCP server has no such tool", do: "list its tools"},
	ToolExecutionFailed: {fixedBy: bySeller, next: Change,
		means: "the paid tool failed",
		do:    "look at its message; it says whether it was paid"},
	SessionTerminated: {fixedBy: bySeller, next: Repeat,
		means: "the paid MCP server ended the session", do: "try again"},
	PayFailed: {fixedBy: byWallet, next: Repeat,
		means: "something else, before anything was sent",
		do:    "try again; if it stays, report it"},
	Internal: {fixedBy: byWallet, next: Repeat,
		means: "a fault of the wallet; holds stay",
		do:    "`LOG_LEVEL=debug`, look at stderr, report it"},
}

// Explain is what a code means, and what to do about it; ok is false for a code that does not exist.
func Explain(code Code) (means, do string, ok bool) {
	c, ok := codes[code]
	return c.means, c.do, ok
}

// Error is a refusal or failure as the outside sees it. Message and Hint are our own words: a
// stranger's text goes into Details, quoted, or into Content.
type Error struct {
	Code      Code
	Message   string
	Hint      string         // what to do, with the number that would have passed
	Next      *Next          // the next step; nil means the code's own
	FixedBy   Actor          // "" means the code's own
	Unsafe    bool           // the very same call could pay again
	PaymentID string         // "" when none was made
	Spent     string         // atomic units this call took from the budget, held included; "" means 0
	Details   map[string]any // numbers
	Content   string         // what a stranger wrote about it, bounded: data for the agent, never our text
	Err       error          // the cause; never shown to an agent
}

// Errorf makes an Error with a message. Operands of %w become its cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint sets what to do.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// WithDetail adds a number or name for the caller's program.
func (e *Error) WithDetail(key string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = value
	return e
}

// Error is "CODE: message".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// FixableBy is who can do something about it.
func (e *Error) FixableBy() Actor {
	if e.FixedBy != "" {
		return e.FixedBy
	}
	return codes[e.Code].fixedBy
}

// AsError finds the Error in err, or makes one: packages that know nothing of ours (wallet) say
// their code by a method Code() string, their remedy by Hint() string, and what the person types, where
// that is not the code's own, by Command() string. Anything else is
// INTERNAL, and its text stays inside.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	var coded interface {
		error
		Code() string
	}
	if errors.As(err, &coded) {
		if _, known := codes[Code(coded.Code())]; known {
			e := &Error{Code: Code(coded.Code()), Message: coded.Error(), Err: err}
			if hinted, ok := coded.(interface{ Hint() string }); ok {
				e.Hint = hinted.Hint()
			}
			if typed, ok := coded.(interface{ Command() string }); ok && typed.Command() != "" {
				return e.WithCommand(typed.Command(), "")
			}
			return e
		}
	}
	return &Error{Code: Internal, Message: "the wallet had an internal error; see its log on stderr",
		Err: err}
}

// HasCode reports whether err carries code.
func HasCode(err error, code Code) bool { return err != nil && AsError(err).Code == code }

// Clip bounds a text in bytes, and does not cut a character in two.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// maxQuoted is how many characters of a stranger's, escaped, stand in our own words at most. No
// address, DID (74 letters), transaction (88 on Solana) or CAIP-2 id needs more.
const maxQuoted = 120

// Brief bounds a stranger's text for the details of an error: at most maxQuoted characters, ASCII
// only, what is not printed escaped.
func Brief(s string) string { return BriefTo(s, maxQuoted) }

// BriefTo is Brief for a text that may have so many characters, such as words of ours with a stranger's in
// them.
func BriefTo(s string, most int) string {
	const cut = `\u2026` // …
	var text strings.Builder
	for _, r := range Clip(s, most-len(cut)) {
		piece := string(r)
		if r < ' ' || r > '~' {
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if text.Len()+len(piece) > most-len(cut) {
			return text.String() + cut
		}
		text.WriteString(piece)
	}
	return text.String()
}

// Quote makes a stranger's words safe to stand in our own: at most maxQuoted escaped characters, in
// quotes, ASCII only (no bidirectional or invisible letters).
func Quote(s string) string {
	for most := maxQuoted; ; most-- {
		if quoted := strconv.QuoteToASCII(Clip(s, most)); len(quoted) <= maxQuoted+len(`""`) {
			return quoted
		}
	}
}
