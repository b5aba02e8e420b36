package x402

import (
	"errors"
	"fmt"
)

// Code is an error code of SPEC §7.1.
type Code string

// Actor says who can do something about an error.
type Actor string

// Who can fix it.
const (
	ByAgent  Actor = "agent"
	ByPerson Actor = "person"
	ByTime   Actor = "time"
	BySeller Actor = "seller"
	ByWallet Actor = "wallet"
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

// fixedBy is the one table of codes: who can fix each. A code that is not here does not exist.
var fixedBy = map[Code]Actor{
	InvalidArgument: ByAgent, NoRequirements: BySeller, InvalidRequirement: BySeller,
	AmountExceedsMax: ByAgent,
	BudgetExceeded:   ByTime, InsufficientFunds: ByPerson, NoDelegation: ByPerson,
	DelegationExhausted: ByPerson,
	DelegateMismatch:    ByPerson, PolicyDenied: ByPerson, PolicyUnsealed: ByPerson, PayeeChanged: ByPerson,
	RateLimited: ByTime, WalletFrozen: ByPerson, ApprovalRequired: ByPerson, ApprovalDeclined: ByPerson,
	PriceChanged: ByAgent, WalletNotFound: ByPerson, WalletLocked: ByPerson, InvalidPassphrase: ByPerson,
	KeystoreCorrupt: ByPerson, KeystorePermissions: ByPerson, KeypairExists: ByPerson, SetupFailed: ByPerson,
	LedgerUnavailable: ByPerson, LedgerCorrupt: ByPerson, UntrustedAsset: ByPerson, URLBlocked: ByAgent,
	RedirectRefused: ByAgent, ResponseMalformed: BySeller, ResponseTooLarge: BySeller, NetworkError: ByTime,
	Timeout: ByTime, RPCError: ByTime, ClockSuspect: ByTime, PaymentRejected: ByWallet,
	SettlementFailed: ByWallet,
	FacilitatorError: ByWallet, OutcomeUnknown: ByWallet, CheckFailed: ByTime, HistoryFailed: ByTime,
	DiscoverFailed: ByTime, EstimateFailed: ByTime, ServerUnavailable: BySeller, ToolNotFound: ByAgent,
	ToolExecutionFailed: BySeller, SessionTerminated: BySeller, PayFailed: ByWallet, Internal: ByWallet,
}

// Error is a refusal or failure as the outside sees it. Message and Hint are our own words: a
// stranger's text goes into Details, quoted, or into Content.
type Error struct {
	Code      Code
	Message   string
	Hint      string         // what to do, with the number that would have passed
	FixedBy   Actor          // "" means the code's own
	Unsafe    bool           // the very same call could pay again
	PaymentID string         // "" when none was made
	Spent     string         // atomic units this call took from the budget, held included; "" means 0
	Details   map[string]any // numbers
	// what a stranger wrote about it, bounded: data for the agent, never text of ours
	Content string
	Err     error // the cause; never shown to an agent
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
	return fixedBy[e.Code]
}

// AsError finds the Error in err, or makes one: packages that know nothing of ours (wallet) say
// their code by a method Code() string and their remedy by Hint() string. Anything else is
// INTERNAL, and its text stays inside.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var coded interface {
		error
		Code() string
	}
	if errors.As(err, &coded) {
		if _, known := fixedBy[Code(coded.Code())]; known {
			e = &Error{Code: Code(coded.Code()), Message: coded.Error(), Err: err}
			if hinted, ok := coded.(interface{ Hint() string }); ok {
				e.Hint = hinted.Hint()
			}
			return e
		}
	}
	return &Error{Code: Internal, Message: "the wallet had an internal error; see its log on stderr",
		Err: err}
}

// Is lets errors.Is(err, x402.Errorf(code, …)) compare by code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// HasCode reports whether err carries code.
func HasCode(err error, code Code) bool { return err != nil && AsError(err).Code == code }
