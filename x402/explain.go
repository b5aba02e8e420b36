package x402

import (
	"fmt"
	"strings"
)

// Explanation is what a person wants to know about an error code when they meet it.
type Explanation struct {
	Code  Code
	Means string
	Do    string
}

// explanations are all codes in the order of SPEC §7.1: the README's troubleshooting and
// `x402-wallet help CODE` are made of them.
var explanations = []Explanation{
	{InvalidArgument, "something of the call is wrong: URL, method, amount, an unknown id",
		"correct what the message names"},
	{NoRequirements, "the seller answered 402 in a protocol that is not x402 (L402, MPP: named in details)",
		"nothing here; another seller, or another wallet for that protocol"},
	{InvalidRequirement, "none of the seller's options can be paid; each is listed with its reason",
		"look at the reasons: often a network that is not configured, or an unknown token"},
	{AmountExceedsMax, "the price is above the call's own maxAmount",
		"call again with a higher maxAmount, if it is worth it"},
	{BudgetExceeded, "one of your limits; details name it and say when it resets",
		"wait, or `x402-wallet budget set NAME AMOUNT`"},
	{InsufficientFunds, "the balance at the address is too low",
		"`x402-wallet address --qr`, send USDC there"},
	{NoDelegation, "your token account delegates nothing to the agent",
		"`x402-wallet delegation approve --owner-keypair FILE --amount 25`"},
	{DelegationExhausted, "what you delegated is spent or held",
		"delegate more: `x402-wallet delegation approve --owner-keypair FILE --amount 25`"},
	{DelegateMismatch, "the token account delegates to somebody else, is of another token, or is frozen",
		"`x402-wallet delegation show` says which"},
	{PolicyDenied, "a host, payee or price that your rules refuse",
		"`x402-wallet policy allow HOST`, if you want it"},
	{PolicyUnsealed, "config.toml was loosened since you sealed it, or the home was copied or moved",
		"`x402-wallet policy` shows the difference, `policy seal` accepts it"},
	{PayeeChanged, "the seller wants to be paid at another address than before",
		"ask the seller; approve it if that is right"},
	{RateLimited, "more payments a minute than your rate", "wait; it says how long"},
	{WalletFrozen, "you, or the circuit breaker, stopped everything",
		"`x402-wallet history`, then `x402-wallet unfreeze`"},
	{ApprovalRequired, "above approve_above, a new payee or a jump in price: a person decides",
		"`x402-wallet approve ID`, or `deny ID`"},
	{ApprovalDeclined, "a person said no", "leave it"},
	{PriceChanged, "the seller asked for something else after the quote", "ask the price again"},
	{WalletNotFound, "there is no wallet in this home", "`x402-wallet init`"},
	{WalletLocked, "no passphrase file, command or keyring answered",
		"`x402-wallet unlock`, or `install CLIENT --passphrase-file FILE`"},
	{InvalidPassphrase, "wrong passphrase, or the keystore was changed",
		"try again; else restore keystore.json"},
	{KeystoreCorrupt, "keystore.json is not what was written", "restore it from a backup"},
	{KeystorePermissions, "somebody else could read or replace the keystore",
		"run the `chmod` that the message has"},
	{KeypairExists, "there is a wallet here already, and none is overwritten",
		"choose another home with X402_WALLET_HOME"},
	{SetupFailed, "init could not finish; nothing incomplete is left behind",
		"correct what the message names"},
	{LedgerUnavailable, "another process held the ledger too long, the disk is full, or this program is " +
		"older than the ledger", "correct that; nothing was signed"},
	{LedgerCorrupt, "the ledger is missing, damaged or rolled back: nothing is paid",
		"docs/operating.md, \"The ledger is missing or damaged\""},
	{UntrustedAsset, "only tokens were asked for that are not in the registry",
		"add it under `[[assets]]`, if you know it"},
	{URLBlocked, "a private address, plain http, or credentials in the URL",
		"another URL; for your own machine add it to `policy.loopback`"},
	{RedirectRefused, "the URL leads to another site, which would be paid instead",
		"ask for the other URL itself"},
	{ResponseMalformed, "the seller's 402 is no JSON that can be read", "tell the seller"},
	{ResponseTooLarge, "the seller's 402 is beyond every sensible size", "tell the seller"},
	{NetworkError, "no connection; nothing was signed", "try again"},
	{Timeout, "no answer in time; nothing was signed", "try again"},
	{RPCError, "your node did not answer; nothing was signed",
		"set a node of your own under `[networks]`; public ones are rate-limited"},
	{ClockSuspect, "this machine's clock is more than two minutes off; nothing was signed", "set the clock"},
	{PaymentRejected, "the seller refused the payment; its money is held until it expires",
		"repeat the same call, or `x402-wallet reconcile`"},
	{SettlementFailed, "settling was refused; the money is held until the payment expires",
		"`x402-wallet reconcile`, later"},
	{FacilitatorError, "no facilitator took it; the money is held until the payment expires",
		"`x402-wallet reconcile`, later; `x402-wallet doctor` looks at the facilitators"},
	{OutcomeUnknown, "sent, and nothing proves what became of it: it counts as spent",
		"repeat the same call (it cannot pay twice), or `x402-wallet reconcile`"},
	{CheckFailed, "a balance or delegation could not be read, or the node is of another chain",
		"`x402-wallet doctor`"},
	{HistoryFailed, "the history could not be read", "try again; `x402-wallet doctor`"},
	{DiscoverFailed, "no facilitator or seller could be asked", "try again; `x402-wallet doctor`"},
	{EstimateFailed, "the price could not be asked", "try again"},
	{ServerUnavailable, "the paid MCP server does not start or answer",
		"look at its entry under `[servers]`"},
	{ToolNotFound, "the paid MCP server has no such tool", "list its tools"},
	{ToolExecutionFailed, "the paid tool failed", "look at its message; it says whether it was paid"},
	{SessionTerminated, "the paid MCP server ended the session", "try again"},
	{PayFailed, "something else, before anything was sent", "try again; if it stays, report it"},
	{Internal, "a fault of the wallet; holds stay", "`LOG_LEVEL=debug`, look at stderr, report it"},
}

// Explain answers the explanation of a code; ok is false for a code that does not exist.
func Explain(code Code) (e Explanation, ok bool) {
	for _, e := range explanations {
		if e.Code == code {
			return e, true
		}
	}
	return e, false
}

// ExplanationTable is all of them as a Markdown table.
func ExplanationTable() string {
	var b strings.Builder
	b.WriteString("| code | it means | what to do | who can |\n|---|---|---|---|\n")
	for _, e := range explanations {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", e.Code, e.Means, e.Do, fixedBy[e.Code])
	}
	return b.String()
}
