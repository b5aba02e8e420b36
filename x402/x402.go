// Package x402 holds the protocol's types: what a seller asks (Challenge, Requirement), what a
// buyer answers, what a settlement says, the dialects of HTTP and MCP all of that is written in,
// the networks and assets the wallet knows, and the error codes of the outside.
//
// What must stay true: everything a stranger sent is read strictly or not at all, and the raw bytes
// of a chosen option are echoed as they came. Nothing in this package does I/O.
//
// The files: json.go and json_names.go (reading strictly), dialect.go and mcp.go (where a challenge
// stands, over HTTP and over MCP), challenge.go (what it says), payload.go (the answer),
// settlement.go (receipts), scheme.go (what the chains' packages and the engine say to each other),
// mpp.go and auth.go (the same in MPP), siwx.go and siwxoffer.go (signing in), offer.go and did.go (what
// sellers sign besides), signer.go (who signed), networks.go, aliases.go, nodes.go, assets.go and remedy.go
// (what is known, and what a person adds where it is not), foreign.go (what is known and not spoken),
// errors.go (the codes, and what people do about them).
package x402

import (
	"encoding/json"
	"strings"
	"time"

	"x402-wallet/x402/money"
)

// Dialect is the form in which a seller asked, and therefore the form in which it is answered
// (x402 v1 and v2 HTTP transports; the two in which the wallet settles; those of MCP are in mcp.go).
type Dialect string

// The HTTP dialects, in the order in which they are looked for. The texts are in ledgers.
const (
	DialectV2Header   Dialect = "v2"          // PAYMENT-REQUIRED → PAYMENT-SIGNATURE
	dialectXV2        Dialect = "x-v2"        // X-Payment-Required, version 2 → PAYMENT-SIGNATURE
	dialectXV1        Dialect = "x-v1"        // X-Payment-Required, version 1 → X-PAYMENT
	dialectXProof     Dialect = "x-proof"     // X-Payment-Required, bare → settle, then X-Payment-Signature
	DialectV1Body     Dialect = "v1"          // body with x402Version 1 → X-PAYMENT
	dialectV2Body     Dialect = "v2-body"     // body with x402Version 2 → PAYMENT-SIGNATURE
	dialectPlainProof Dialect = "plain-proof" // X-Payment-Amount … → settle, then X-Payment-Signature
)

// WalletSettles reports whether in this dialect the wallet itself brings the payment to a
// facilitator.
func (d Dialect) WalletSettles() bool { return d == dialectXProof || d == dialectPlainProof }

// MayWantProof reports whether a seller that asked in this dialect may, though it asked as one that
// settles itself, look for proof of a settlement alone: it used the header X-PAYMENT-REQUIRED.
func (d Dialect) MayWantProof() bool { return d == dialectXV2 || d == dialectXV1 }

// Version is the protocol version that is spoken in an HTTP dialect.
func (d Dialect) Version() int {
	if d == DialectV1Body || d == dialectXV1 {
		return 1
	}
	return 2
}

// MCP reports whether a payment in this dialect travels in an MCP request's _meta.
func (d Dialect) MCP() bool { return strings.HasPrefix(string(d), "mcp") }

// Exact is the scheme that pays the exact amount: EIP-3009 on EVM, TransferChecked on Solana.
const Exact = "exact"

// Permit2 and Upto are the ways of paying by Permit2 on EVM: what Requirement.Way calls scheme "exact" with
// extra.assetTransferMethod "permit2", and the scheme that takes up to the amount.
const (
	Permit2 = "permit2"
	Upto    = "upto"
)

// MPP is the scheme of options that were asked for in MPP.
const MPP = "mpp"

// The extensions by which a facilitator brings the approval of Permit2 to the chain, together with a payment.
const (
	EIP2612Sponsoring = "eip2612GasSponsoring"
	ERC20Sponsoring   = "erc20ApprovalGasSponsoring"
)

// Requirement is one way to pay: an entry of accepts[].
type Requirement struct {
	Index       int // in the seller's list
	Version     int // 1 or 2
	Dialect     Dialect
	Scheme      string
	Network     string       // CAIP-2, whatever the seller called it
	NetworkName string       // as the seller called it
	Amount      money.Amount // atomic units, > 0
	Asset       string       // the token's address, the seller's spelling
	PayTo       string       // the seller's spelling
	MaxTimeout  time.Duration
	Extra       map[string]json.RawMessage
	// the entry as it came: echoed as `accepted`; nil where the seller sent no JSON
	Raw         json.RawMessage
	ResourceURL string  // V1 carries it per option
	Charge      *Charge // of MPP; nil: it came as x402
}

// Charge is what a requirement that came as MPP says beside what x402 says too. What is echoed is
// Requirement.Raw.
type Charge struct {
	ID, Realm, Method, Intent string
	Expires                   time.Time // zero: the challenge does not say
	Digest                    string    // of the body of the request that is paid; "": of any
	Header                    string    // in which the credential is wanted; "": over MCP
}

// Way is how an option is paid, as policy.schemes, the ledger and the schemes of package pay name it: its
// scheme, but for "exact" by Permit2, which is signed, asked for and looked up otherwise.
func (r Requirement) Way() string {
	if r.Scheme == Exact && r.Charge == nil && r.ExtraString("assetTransferMethod") == Permit2 {
		return Permit2
	}
	return r.Scheme
}

// AssetKey is the requirement's asset as a map key.
func (r Requirement) AssetKey() money.Asset { return money.NewAsset(r.Network, r.Asset) }

// ExtraString returns extra[key] when it is a JSON string, and "" otherwise.
func (r Requirement) ExtraString(key string) string {
	s, _ := Text(r.Extra[key])
	return s
}

// Settlement is what a seller (PAYMENT-RESPONSE) or a facilitator (/settle) says became of a
// payment. It is a claim, not a proof.
type Settlement struct {
	Success      bool
	Transaction  string // "" when there is none
	Network      string
	Payer        string
	Amount       string // atomic units really charged, where the scheme lets it differ; "" otherwise
	ErrorReason  string
	ErrorMessage string
	Raw          json.RawMessage
}

// AssetInfo is what the registry knows of a token. Name and Version are its EIP-712 domain: they
// come from here or from the owner, never from a seller.
type AssetInfo struct {
	Network, Address string
	Symbol           string
	Decimals         uint8
	// of one whole token, with the owner's margin; 0: no dollar, and no rate is set (Rated)
	USD           money.Dollars
	Name, Version string // EVM
	Token2022     bool   // Solana: owned by the Token-2022 program
	Permit2Only   bool   // EVM: has no EIP-3009, so "exact" cannot pay it
	NoPermit      bool   // EVM: has no EIP-2612, so its holders approve Permit2 themselves
}

// HasPermit reports whether a holder of the asset can approve Permit2 by a signature (EIP-2612).
func (a AssetInfo) HasPermit() bool { return a.Name != "" && a.Version != "" && !a.NoPermit }

// Key is the asset's map key.
func (a AssetInfo) Key() money.Asset { return money.NewAsset(a.Network, a.Address) }

// Dollars values an amount of the asset, rounded up.
func (a AssetInfo) Dollars(amount money.Amount) money.Dollars {
	return money.DollarsOf(amount, a.Decimals, a.USD)
}

// Units is how much of the asset a price is worth, rounded down.
func (a AssetInfo) Units(price money.Dollars) money.Amount {
	return money.AmountFor(price, a.Decimals, a.USD)
}
