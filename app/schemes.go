package app

import (
	"context"

	"x402-wallet/chain/evm"
	"x402-wallet/internal/config"
	"x402-wallet/pay"
	"x402-wallet/scheme"
	allowanceway "x402-wallet/scheme/allowance"
	allowance "x402-wallet/scheme/allowance/check"
	batchway "x402-wallet/scheme/batch"
	batch "x402-wallet/scheme/batch/check"
	exactway "x402-wallet/scheme/exact"
	exact "x402-wallet/scheme/exact/check"
	"x402-wallet/scheme/mpp"
	permit2way "x402-wallet/scheme/permit2"
	permit2 "x402-wallet/scheme/permit2/check"
	"x402-wallet/scheme/signing"
	siwx "x402-wallet/scheme/siwx/check"
	"x402-wallet/scheme/vault"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// checks makes the schemes' checks.
type checks struct {
	evm    *evm.Exact
	height func(ctx context.Context, network string) (uint64, error) // see exact.Check
	knows  func(ctx context.Context, network, address string) bool   // the owner's facilitators
	guard  *seal.Guard
}

// of returns the checks by the schemes' names in the ledger.
func (c checks) of(rules *config.Config, s networkSettings) map[string]signing.Check {
	channels := c.evm.Channels(rules.Policy.ChannelDelay)
	transfers := exact.Check{Vaults: s.vaults, TokenAccounts: s.tokenAccounts, Height: c.height}
	permits := permit2.Check{ApprovalGas: s.approvalGas, KnowsFacilitator: c.knows}
	return map[string]signing.Check{
		x402.Exact: transfers, x402.MPP: transfers,
		x402.Permit2: permits, x402.Upto: permits,
		x402.Allowance:    allowance.Check{Rules: s.allowances, Account: c.evm.AccountState},
		x402.SignInScheme: siwx.Check{},
		x402.BatchSettlement: batch.Check{MaxDelay: rules.Policy.ChannelDelay,
			Claimed: func(ctx context.Context, network, channel string) (money.Amount, error) {
				read, err := channels.ReadChannel(ctx, network, channel)
				return read.Claimed, err
			},
			FundedByOwner: c.guard.OwnChannel, Permits: permits},
	}
}

// ways are the ways to pay, the simplest first.
func ways(s networkSettings, knows func(ctx context.Context, network, address string) bool) []scheme.Way {
	permits := permit2way.Exact{ApprovalGas: s.approvalGas}
	return []scheme.Way{exactway.Way{}, mpp.Way{}, permits, permit2way.Upto{Exact: permits,
		KnowsFacilitator: knows},
		batchway.Way{ByPermit2: permits}}
}

// vaults pay from the owner's contracts.
type vaults struct {
	*evm.Exact
	vault.Source
}

func owners(e *evm.Exact) pay.OwnersAccount {
	return vaults{e.FromVaults(), vault.Source{On: e.VaultOn}}
}

// floats take from the owner's accounts.
type floats struct {
	*evm.Exact
	allowanceway.Texts
}
