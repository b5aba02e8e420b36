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
	{Code: InvalidArgument, Means: "something of the call is wrong: URL, method, amount, an unknown id",
		Do: "correct what the message names"},
	{Code: NoRequirements, Means: "the seller answered 402 in a protocol that is not x402 (L402, MPP: " +
		"named in details)",
		Do: "nothing here; another seller, or another wallet for that protocol"},
	{Code: InvalidRequirement,
		Means: "none of the seller's options can be paid; each is listed with its reason",
		Do:    "look at the reasons: often a network that is not configured, or an unknown token"},
	{Code: AmountExceedsMax, Means: "the price is above the call's own maxAmount",
		Do: "call again with a higher maxAmount, if it is worth it"},
	{Code: BudgetExceeded, Means: "one of your limits; details name it and say when it resets",
		Do: "wait, or `x402-wallet budget set NAME AMOUNT`"},
	{Code: InsufficientFunds, Means: "the balance at the address is too low",
		Do: "`x402-wallet address --qr`, send USDC there"},
	{Code: NoDelegation, Means: "your token account delegates nothing to the agent",
		Do: "`x402-wallet delegation approve --owner-keypair FILE --amount 25`"},
	{Code: DelegationExhausted, Means: "what you delegated is spent or held",
		Do: "delegate more: `x402-wallet delegation approve --owner-keypair FILE --amount 25`"},
	{Code: DelegateMismatch, Means: "the token account delegates to somebody else, is of another token, " +
		"or is frozen",
		Do: "`x402-wallet delegation show` says which"},
	{Code: PolicyDenied, Means: "a host, payee or price that your rules refuse",
		Do: "`x402-wallet policy allow HOST`, if you want it"},
	{Code: PolicyUnsealed, Means: "config.toml was loosened since you sealed it, or the home was copied " +
		"or moved",
		Do: "`x402-wallet policy` shows the difference, `policy seal` accepts it"},
	{Code: PayeeChanged, Means: "the seller wants to be paid at another address than before",
		Do: "ask the seller; approve it if that is right"},
	{Code: RateLimited, Means: "more payments a minute than your rate", Do: "wait; it says how long"},
	{Code: WalletFrozen, Means: "you, or the circuit breaker, stopped everything",
		Do: "`x402-wallet history`, then `x402-wallet unfreeze`"},
	{Code: ApprovalRequired, Means: "above approve_above, a new payee or a jump in price: a person decides",
		Do: "`x402-wallet approve ID`, or `deny ID`"},
	{Code: ApprovalDeclined, Means: "a person said no", Do: "leave it"},
	{Code: PriceChanged, Means: "the seller asked for something else after the quote",
		Do: "ask the price again"},
	{Code: WalletNotFound, Means: "there is no wallet in this home", Do: "`x402-wallet init`"},
	{Code: WalletLocked, Means: "no passphrase file, command or keyring answered",
		Do: "`x402-wallet unlock`, or `install CLIENT --passphrase-file FILE`"},
	{Code: InvalidPassphrase, Means: "wrong passphrase, or the keystore was changed",
		Do: "try again; else restore keystore.json"},
	{Code: KeystoreCorrupt, Means: "keystore.json is not what was written", Do: "restore it from a backup"},
	{Code: KeystorePermissions, Means: "somebody else could read or replace the keystore",
		Do: "run the `chmod` that the message has"},
	{Code: KeypairExists, Means: "there is a wallet here already, and none is overwritten",
		Do: "choose another home with X402_WALLET_HOME"},
	{Code: SetupFailed, Means: "init could not finish; nothing incomplete is left behind",
		Do: "correct what the message names"},
	{Code: LedgerUnavailable, Means: "another process held the ledger too long, the disk is full, or this " +
		"program is " +
		"older than the ledger", Do: "correct that; nothing was signed"},
	{Code: LedgerCorrupt, Means: "the ledger is missing, damaged or rolled back: nothing is paid",
		Do: "docs/operating.md, \"The ledger is missing or damaged\""},
	{Code: UntrustedAsset, Means: "only tokens were asked for that are not in the registry",
		Do: "add it under `[[assets]]`, if you know it"},
	{Code: URLBlocked, Means: "a private address, plain http, or credentials in the URL",
		Do: "another URL; for your own machine add it to `policy.loopback`"},
	{Code: RedirectRefused, Means: "the URL leads to another site, which would be paid instead",
		Do: "ask for the other URL itself"},
	{Code: ResponseMalformed, Means: "the seller's 402 is no JSON that can be read", Do: "tell the seller"},
	{Code: ResponseTooLarge, Means: "the seller's 402 is beyond every sensible size", Do: "tell the seller"},
	{Code: NetworkError, Means: "no connection; nothing was signed", Do: "try again"},
	{Code: Timeout, Means: "no answer in time; nothing was signed", Do: "try again"},
	{Code: RPCError, Means: "your node did not answer; nothing was signed",
		Do: "set a node of your own under `[networks]`; public ones are rate-limited"},
	{Code: ClockSuspect, Means: "this machine's clock is more than two minutes off; nothing was signed",
		Do: "set the clock"},
	{Code: PaymentRejected, Means: "the seller refused the payment; its money is held until it expires",
		Do: "repeat the same call, or `x402-wallet reconcile`"},
	{Code: SettlementFailed, Means: "settling was refused; the money is held until the payment expires",
		Do: "`x402-wallet reconcile`, later"},
	{Code: FacilitatorError, Means: "no facilitator took it; the money is held until the payment expires",
		Do: "`x402-wallet reconcile`, later; `x402-wallet doctor` looks at the facilitators"},
	{Code: OutcomeUnknown, Means: "sent, and nothing proves what became of it: it counts as spent",
		Do: "repeat the same call (it cannot pay twice), or `x402-wallet reconcile`"},
	{Code: CheckFailed, Means: "a balance or delegation could not be read, or the node is of another chain",
		Do: "`x402-wallet doctor`"},
	{Code: HistoryFailed, Means: "the history could not be read", Do: "try again; `x402-wallet doctor`"},
	{Code: DiscoverFailed, Means: "no facilitator or seller could be asked",
		Do: "try again; `x402-wallet doctor`"},
	{Code: EstimateFailed, Means: "the price could not be asked", Do: "try again"},
	{Code: ServerUnavailable, Means: "the paid MCP server does not start or answer",
		Do: "look at its entry under `[servers]`"},
	{Code: ToolNotFound, Means: "the paid MCP server has no such tool", Do: "list its tools"},
	{Code: ToolExecutionFailed, Means: "the paid tool failed",
		Do: "look at its message; it says whether it was paid"},
	{Code: SessionTerminated, Means: "the paid MCP server ended the session", Do: "try again"},
	{Code: PayFailed, Means: "something else, before anything was sent",
		Do: "try again; if it stays, report it"},
	{Code: Internal, Means: "a fault of the wallet; holds stay",
		Do: "`LOG_LEVEL=debug`, look at stderr, report it"},
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
