// Package x402 holds the protocol's words: what a seller asks for (Requirement), what was signed and what
// became of it (Evidence, Status), the networks and assets the wallet knows, and the error codes of the
// outside. Package wire has how sellers and buyers write all of that.
//
// What must stay true: everything a stranger sent is read strictly or not at all. Nothing in this package
// does I/O.
//
// The files: json.go (reading strictly), requirement.go (an option), scheme.go (what is signed, and what
// became of it), batch.go, allowance.go and tempo.go (the words of these ways of paying), siwx.go (signing
// in), networks.go and assets.go (what is known), errors.go (the codes, and what people do about them). The
// packages below it have what no signature needs: onchain (what the chains' packages and the engine say to
// each other), channelterms, foreign (options that are known and not paid), remedy (what a person adds where
// something is not known), publicnode, observe, signatures (who signed what is no payment).
package x402

import (
	"strings"

	"x402-wallet/x402/money"
)

// Dialect is the form in which a seller asked, and therefore the form in which it is answered
// (x402 v1 and v2 HTTP transports; the two in which the wallet settles; those of MCP are in mcp.go).
type Dialect string

// The HTTP dialects, in the order in which they are looked for. The texts are in ledgers.
const (
	DialectV2Header   Dialect = "v2"          // PAYMENT-REQUIRED → PAYMENT-SIGNATURE
	DialectXV2        Dialect = "x-v2"        // X-Payment-Required, version 2 → PAYMENT-SIGNATURE
	DialectXV1        Dialect = "x-v1"        // X-Payment-Required, version 1 → X-PAYMENT
	DialectXProof     Dialect = "x-proof"     // X-Payment-Required, bare → settle, then X-Payment-Signature
	DialectV1Body     Dialect = "v1"          // body with x402Version 1 → X-PAYMENT
	DialectV2Body     Dialect = "v2-body"     // body with x402Version 2 → PAYMENT-SIGNATURE
	DialectPlainProof Dialect = "plain-proof" // X-Payment-Amount … → settle, then X-Payment-Signature
)

// WalletSettles reports whether in this dialect the wallet itself brings the payment to a
// facilitator.
func (d Dialect) WalletSettles() bool { return d == DialectXProof || d == DialectPlainProof }

// MayWantProof reports whether a seller that asked in this dialect may, though it asked as one that
// settles itself, look for proof of a settlement alone: it used the header X-PAYMENT-REQUIRED.
func (d Dialect) MayWantProof() bool { return d == DialectXV2 || d == DialectXV1 }

// Version is the protocol version that is spoken in an HTTP dialect.
func (d Dialect) Version() int {
	if d == DialectV1Body || d == DialectXV1 {
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

// Ways are the names in policy.schemes of the ways to pay, the simplest first.
func Ways() []string { return []string{Exact, MPP, Tempo, Permit2, Upto, BatchSettlement} }

// The extensions by which a facilitator brings the approval of Permit2 to the chain, together with a
// payment.
const (
	EIP2612Sponsoring = "eip2612GasSponsoring"
	ERC20Sponsoring   = "erc20ApprovalGasSponsoring"
)

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

// Rated reports whether a token can be counted in dollars: it is one, or the owner set its rate.
func (a AssetInfo) Rated() bool { return a.USD > 0 }

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
