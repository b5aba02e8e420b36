// Package svm pays on Solana: the scheme "exact" (specs/schemes/exact/scheme_exact_svm.md), from
// the agent's own token account or as the SPL delegate of its owner's.
//
// What must stay true: the only thing ever signed is a transaction that was built here, read back
// byte by byte by a decoder that shares nothing with the builder (package decode), and found to be one
// TransferChecked of exactly the order's amount, from exactly the order's source, to exactly the
// order's payee. And a payment is called expired only on proof that it never can land.
//
// No clock matters to either: a transaction lives for blocks, and what became of it is searched for
// by slots. So there is no CLOCK_SUSPECT here as there is in evm; a wrong clock
// only makes the engine ask too early or too late.
//
// The files: svm.go (addresses, why not), account.go (token accounts, funds), authorize.go (sign:
// plan, look at the accounts, build, check), token2022.go (the rules of a token's issuer, simulation),
// status.go (what became of it), owner.go (what only an owner signs), node.go.
package svm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
	"x402-wallet/x402/observe"
	"x402-wallet/x402/onchain"
)

// Height is the block height of a network, by the owner's node. Errors are Status's.
func (e *Exact) Height(ctx context.Context, network string) (uint64, error) {
	n, err := e.node(network)
	if err != nil {
		return 0, err
	}
	return n.blockHeight(ctx, confirmed)
}

// Options for New. Only Signer and RPC are needed.
type Options struct {
	Signer        onchain.Signer
	RPC           map[string]string    // CAIP-2 network → URL of the owner's node
	TokenAccounts map[string]string    // CAIP-2 network → the owner's token account, if the config names one
	HTTP          *http.Client         // nil: a plain one; its redirects are never followed
	Rand          io.Reader            // nil: crypto/rand
	Now           func() time.Time     // nil: time.Now
	Observe       observe.NodeObserver // hears of every question to a node; nil: nobody does
}

// Exact is the scheme. It is safe for concurrent use and asks no node before it must.
type Exact struct {
	options Options
	agent   solana.PublicKey // zero when there is no key
	nodes   map[string]*node // by network

	// tests only: what an attacker in our own process would do to a message
	tamper func(message []byte) []byte
}

func New(o Options) *Exact {
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Exact{options: o, nodes: map[string]*node{}}
	if o.Signer != nil {
		e.agent, _ = parseKey(o.Signer.Address())
	}
	for network, url := range o.RPC {
		if url != "" && x402.IsSolana(network) {
			e.nodes[network] = newNode(network, url, o)
		}
	}
	return e
}

// Address is the agent's, "" when there is no key.
func (e *Exact) Address() string {
	if e.agent.IsZero() {
		return ""
	}
	return e.agent.String()
}

// self is the agent's key. Error: WALLET_NOT_FOUND.
func (e *Exact) self() (solana.PublicKey, error) {
	if e.agent.IsZero() {
		return e.agent, x402.Errorf(x402.WalletNotFound, "the wallet has no Solana key").
			WithHint("the person runs: x402-wallet init")
	}
	return e.agent, nil
}

func invalid(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.InvalidRequirement, format, args...)
}

// The token programs: SPL Token and Token-2022.
var tokenProgram, token2022 = solana.TokenProgramID, solana.Token2022ProgramID

// programs are addresses that are nobody's: money sent there, or a fee asked of them, is a mistake
// or a trick.
var programs = []solana.PublicKey{
	solana.ComputeBudget, solana.MemoProgramID, solana.MemoProgramIDV1, tokenProgram, token2022,
	solana.SPLAssociatedTokenAccountProgramID, solana.SystemProgramID, solana.ConfigProgramID,
	solana.StakeProgramID, solana.VoteProgramID, solana.FeatureProgramID, solana.BPFLoaderProgramID,
	solana.BPFLoaderDeprecatedProgramID, solana.BPFLoaderUpgradeableProgramID, solana.Secp256k1ProgramID,
	solana.AddressLookupTableProgramID, solana.SysVarPubkey, solana.TokenSwapProgramID,
	solana.TokenLendingProgramID, solana.TokenMetadataProgramID, solana.WrappedSol,
	solana.MPK("Ed25519SigVerify111111111111111111111111111"),
	solana.MPK("NativeLoader1111111111111111111111111111111"),
	solana.MPK("L2TExMFKdjpN9kozasaurPirfHy9P8sbXoAN1qA3S95"), // Lighthouse
	solana.MPK("1nc1nerator11111111111111111111111111111111"), // burns what it is sent
}

var errAddress = errors.New("not a Solana address")

// parseKey reads the one base58 spelling of 32 bytes, on the curve or off it. A text that is too long is not
// given to solana-go, which would decode it to say why it refuses it. Package decode reads addresses by
// another library, so that a check of what was built does not repeat a mistake made here. Error: errAddress.
func parseKey(text string) (solana.PublicKey, error) {
	const longest = 44
	if len(text) > longest {
		return solana.PublicKey{}, errAddress
	}
	key, err := solana.PublicKeyFromBase58(text)
	if err != nil {
		return solana.PublicKey{}, errAddress
	}
	return key, nil
}

func isTokenProgram(key solana.PublicKey) bool { return key == tokenProgram || key == token2022 }

func isProgram(key solana.PublicKey) bool { return slices.Contains(programs, key) }

func programOf(is2022 bool) solana.PublicKey {
	if is2022 {
		return token2022
	}
	return tokenProgram
}

// maxMemo is the limit for extra.memo, in bytes (specs/schemes/exact/scheme_exact_svm.md).
const maxMemo = 256

// Payable says why r cannot be paid, or nil, from what r itself says: it asks nobody.
// Every refusal is an *x402.Error: INVALID_REQUIREMENT, but UNTRUSTED_ASSET when
// asset is not the one that r asks for and WALLET_NOT_FOUND when there is no key. What only the
// chain knows, as whether the payee has a token account and who owns the source, Authorize refuses.
//
// A payTo off the curve is fine: a multisig or a program's wallet is such an address. Which order of
// paying and serving (extra.paymentFlow) is acceptable is the engine's to say: what is signed is the same.
func (e *Exact) Payable(r x402.Requirement, asset x402.AssetInfo) error {
	if r.Scheme != x402.Exact && r.Charge == nil {
		return invalid("the scheme is neither exact nor of MPP").WithDetail("scheme", x402.Brief(r.Scheme))
	}
	if r.Version != 1 && r.Version != 2 {
		return invalid("x402Version is neither 1 nor 2")
	}
	if e.nodes[r.Network] == nil {
		return notConfigured(r.Network)
	}
	if _, ok := r.Amount.Uint64(); !ok || r.Amount.IsZero() {
		return invalid("the amount %s is not one of an SPL token (1 to 2^64-1)", r.Amount)
	}
	if asset.Network != r.Network || asset.Address != r.Asset {
		return x402.Errorf(x402.UntrustedAsset, "the mint asked for is not the one in the registry").
			WithDetail("asset", x402.Brief(r.Asset))
	}
	if err := checkVersion(r); err != nil {
		return err
	}
	_, err := e.parties(r, "")
	return err
}

// messageVersion is the version of the transactions made here.
const messageVersion = 0

// checkVersion refuses a facilitator that says which versions of transactions it takes, and ours is none of
// them (extra.transactionVersions, x402-foundation/x402#3473).
func checkVersion(r x402.Requirement) error {
	raw, versions := r.Extra["transactionVersions"], []int{}
	if x402.IsNull(raw) {
		return nil
	}
	if json.Unmarshal(raw, &versions) != nil || !slices.Contains(versions, messageVersion) {
		return invalid("extra.transactionVersions does not list version %d of Solana transactions, the only "+
			"one that this wallet makes", messageVersion)
	}
	return nil
}

// parties are the keys and the memo that a requirement names. The memo goes into the transaction
// verbatim. It is a stranger's text, and UTF-8: package x402 refuses a challenge that is not.
type parties struct {
	payee, mint, feePayer solana.PublicKey // feePayer is zero when nobody is named and nobody has to be
	memo                  string           // "" for none
}

// parties reads them. feePayer is the one that the facilitator gave, where a dialect in which the
// wallet settles leaves it out.
func (e *Exact) parties(r x402.Requirement, feePayer string) (p parties, err error) {
	self, err := e.self()
	if err != nil {
		return p, err
	}
	p.mint, err = parseKey(r.Asset)
	if err != nil {
		return p, invalid("the asset is %w", err).WithDetail("asset", x402.Brief(r.Asset))
	}
	p.memo, err = extraText(r, "memo")
	if err != nil {
		return p, err
	}
	if len(p.memo) > maxMemo {
		return p, invalid("extra.memo has %d bytes, at most %d can be sent", len(p.memo), maxMemo)
	}
	p.payee, err = parseKey(r.PayTo)
	if why := p.whyNotPayee(self, err); why != "" {
		return p, invalid("payTo is %s", why).WithDetail("payTo", x402.Brief(r.PayTo))
	}
	named, err := extraText(r, "feePayer")
	if err != nil {
		return p, err
	}
	if named == "" && r.Dialect.WalletSettles() {
		named = feePayer
		if named == "" {
			return p, nil
		}
	}
	if named == "" {
		return p, invalid("extra.feePayer is missing")
	}
	p.feePayer, err = parseKey(named)
	if err != nil {
		return p, invalid("extra.feePayer is %w", err).WithDetail("feePayer", x402.Brief(named))
	}
	if why := p.whyNotFeePayer(self); why != "" {
		return p, invalid("extra.feePayer is %s", why).WithDetail("feePayer", named)
	}
	return p, nil
}

// extraText is extra[key]: "" when it is absent or null, an error when it is anything but a text.
func extraText(r x402.Requirement, key string) (text string, err error) {
	if raw, there := r.Extra[key]; there && json.Unmarshal(raw, &text) != nil {
		return "", invalid("extra.%s is not a text", key)
	}
	return text, nil
}

// whyNotPayee is for addresses that cannot be anybody's wallet, and our own; "": it can be.
func (p parties) whyNotPayee(self solana.PublicKey, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case p.payee == self:
		return "this wallet itself"
	case p.payee == p.mint:
		return "the token's mint"
	case isProgram(p.payee):
		return "a program"
	}
	return ""
}

// whyNotFeePayer is for those that would make us or the payee pay the fee, or that nobody can
// sign for.
func (p parties) whyNotFeePayer(self solana.PublicKey) string {
	switch {
	case p.feePayer == self:
		return "this wallet: it never pays a fee"
	case p.feePayer == p.payee:
		return "the payee"
	case p.feePayer == p.mint:
		return "the token's mint"
	case isProgram(p.feePayer):
		return "a program"
	case !p.feePayer.IsOnCurve():
		return "no key that could sign"
	}
	return ""
}
