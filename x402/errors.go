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

// codes is the one table of them: a code that is not here does not exist. It holds who can fix it, and the
// step that is next where the error itself names none. Package explain says what they mean.
var codes = map[Code]struct {
	fixedBy Actor
	next    Step
	command string // what the person types, after the program's name, where the error names nothing better
	say     string // one sentence for the person; "": the message
}{
	InvalidArgument:     {fixedBy: byAgent, next: Change},
	NoRequirements:      {fixedBy: bySeller, next: GiveUp},
	InvalidRequirement:  {fixedBy: bySeller, next: GiveUp},
	AmountExceedsMax:    {fixedBy: byAgent, next: Change},
	BudgetExceeded:      {fixedBy: ByTime, next: Wait},
	InsufficientFunds:   {fixedBy: ByPerson, next: AskPerson, command: "address --qr"},
	NoDelegation:        {fixedBy: ByPerson, next: AskPerson, command: delegate},
	DelegationExhausted: {fixedBy: ByPerson, next: AskPerson, command: delegate},
	DelegateMismatch:    {fixedBy: ByPerson, next: AskPerson, command: "delegation show"},
	PolicyDenied:        {fixedBy: ByPerson, next: AskPerson, command: "policy"},
	PolicyUnsealed: {fixedBy: ByPerson, next: AskPerson, command: "policy seal",
		say: "The wallet's rules are not sealed as they are: please look at what changed, and seal them if " +
			"that is right."},
	PayeeChanged:     {fixedBy: ByPerson, next: AskPerson, command: "policy"},
	RateLimited:      {fixedBy: ByTime, next: Wait},
	WalletFrozen:     {fixedBy: ByPerson, next: AskPerson, command: "unfreeze"},
	ApprovalRequired: {fixedBy: ByPerson, next: AskPerson, command: "approvals"},
	ApprovalDeclined: {fixedBy: ByPerson, next: GiveUp},
	PriceChanged:     {fixedBy: byAgent, next: Change},
	WalletNotFound: {fixedBy: ByPerson, next: AskPerson, command: "init",
		say: "There is no wallet yet: please make one in a terminal."},
	WalletLocked: {fixedBy: ByPerson, next: AskPerson, command: "unlock",
		say: "The wallet is locked: please unlock it in a terminal."},
	InvalidPassphrase:   {fixedBy: ByPerson, next: AskPerson, command: "unlock"},
	KeystoreCorrupt:     {fixedBy: ByPerson, next: AskPerson, command: "doctor"},
	KeystorePermissions: {fixedBy: ByPerson, next: AskPerson, command: "doctor"},
	KeypairExists:       {fixedBy: ByPerson, next: AskPerson, command: "address"},
	SetupFailed:         {fixedBy: ByPerson, next: AskPerson, command: "doctor"},
	LedgerUnavailable:   {fixedBy: ByPerson, next: AskPerson, command: "doctor"},
	LedgerCorrupt:       {fixedBy: ByPerson, next: AskPerson, command: "history verify"},
	UntrustedAsset:      {fixedBy: ByPerson, next: AskPerson, command: "policy seal"},
	URLBlocked:          {fixedBy: byAgent, next: Change},
	RedirectRefused:     {fixedBy: byAgent, next: Change},
	ResponseMalformed:   {fixedBy: bySeller, next: GiveUp},
	ResponseTooLarge:    {fixedBy: bySeller, next: GiveUp},
	NetworkError:        {fixedBy: ByTime, next: Repeat},
	Timeout:             {fixedBy: ByTime, next: Repeat},
	RPCError:            {fixedBy: ByTime, next: Repeat},
	ClockSuspect: {fixedBy: ByTime, next: AskPerson, command: "doctor",
		say: "This computer's clock is wrong: please set it, so that the wallet can pay again."},
	PaymentRejected:     {fixedBy: byWallet, next: Repeat},
	SettlementFailed:    {fixedBy: byWallet, next: Repeat},
	FacilitatorError:    {fixedBy: byWallet, next: Repeat},
	OutcomeUnknown:      {fixedBy: byWallet, next: Repeat},
	CheckFailed:         {fixedBy: ByTime, next: Repeat},
	HistoryFailed:       {fixedBy: ByTime, next: Repeat},
	DiscoverFailed:      {fixedBy: ByTime, next: Repeat},
	EstimateFailed:      {fixedBy: ByTime, next: Repeat},
	ServerUnavailable:   {fixedBy: bySeller, next: Repeat},
	ToolNotFound:        {fixedBy: byAgent, next: Change},
	ToolExecutionFailed: {fixedBy: bySeller, next: Change},
	SessionTerminated:   {fixedBy: bySeller, next: Repeat},
	PayFailed:           {fixedBy: byWallet, next: Repeat},
	Internal:            {fixedBy: byWallet, next: Repeat},
}

// IsKnown reports whether a code exists.
func (c Code) IsKnown() bool {
	_, known := codes[c]
	return known
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
