package app

import (
	"context"
	"maps"

	"x402-wallet/chain/evm"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/pay"
	"x402-wallet/scheme"
	allowanceway "x402-wallet/scheme/allowance"
	allowance "x402-wallet/scheme/allowance/check"
	"x402-wallet/scheme/batch"
	batchcheck "x402-wallet/scheme/batch/check"
	exactway "x402-wallet/scheme/exact"
	exact "x402-wallet/scheme/exact/check"
	"x402-wallet/scheme/mpp"
	permit2way "x402-wallet/scheme/permit2"
	permit2 "x402-wallet/scheme/permit2/check"
	"x402-wallet/scheme/signing"
	siwx "x402-wallet/scheme/siwx/check"
	"x402-wallet/scheme/tempo"
	tempocheck "x402-wallet/scheme/tempo/check"
	"x402-wallet/scheme/vault"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// parts are what the ways to pay are made of.
type parts struct {
	chains
	rules    *config.Config
	settings networkSettings
	// height is nil where this process builds what it signs: see exact.Check.
	height func(ctx context.Context, network string) (uint64, error)
	knows  func(ctx context.Context, network, address string) bool // the owner's facilitators
	guard  *seal.Guard
	onEVM  onchain.Signer // it is nil where nothing is built
	// deposits are the channels that hold money, of which who signs needs none.
	deposits *batch.Channels
}

// byFamily has one value for each family of chains.
type byFamily[T any] map[string]T

// way is a way to pay, with all that a wallet has of it.
type way struct {
	name  string                     // in the ledger
	asks  scheme.Way                 // nil where no seller asks for it
	pays  byFamily[pay.Scheme]       // signs and reads the chain
	reads byFamily[pay.StatusReader] // where nothing in pays reads the chain
	check signing.Check
}

// ways registers the ways to pay, the simplest first.
func (p parts) ways() []way {
	permits := permit2way.Exact{ApprovalGas: p.settings.approvalGas}
	transfer := exact.Check{Vaults: p.settings.vaults, TokenAccounts: p.settings.tokenAccounts,
		Height: p.height}
	permit := permit2.Check{ApprovalGas: p.settings.approvalGas, KnowsFacilitator: p.knows}
	const onEVM, onSolana = "eip155", "solana"
	transfers := byFamily[pay.Scheme]{onEVM: p.evm, onSolana: p.solana}
	return []way{
		{name: x402.Exact, asks: exactway.Way{}, pays: transfers, check: transfer},
		{name: x402.MPP, asks: mpp.Way{}, pays: transfers, check: transfer},
		{name: x402.Tempo, asks: tempo.Way{MaxFee: p.rules.Policy.NetworkFee},
			pays:  byFamily[pay.Scheme]{onEVM: tempo.NewPayer(p.evm)},
			check: tempocheck.Check{MaxFee: p.rules.Policy.NetworkFee}},
		{name: x402.Permit2, asks: permits, pays: byFamily[pay.Scheme]{onEVM: p.permits}, check: permit},
		{name: x402.Upto, asks: permit2way.Upto{Exact: permits, KnowsFacilitator: p.knows},
			pays: byFamily[pay.Scheme]{onEVM: p.permits}, check: permit},
		{name: x402.BatchSettlement, asks: p.deposits, pays: byFamily[pay.Scheme]{onEVM: p.contract},
			check: batchcheck.Check{MaxDelay: p.rules.Policy.ChannelDelay, Claimed: p.claimed,
				Permits: permit, MayPermit: p.rules.Policy.Has(x402.Permit2),
				FundedByOwner: p.guard.OwnChannel}},
		{name: x402.Allowance, reads: byFamily[pay.StatusReader]{onEVM: p.evm},
			check: allowance.Check{Rules: p.settings.allowances, Account: p.evm.AccountState}},
		{name: x402.SignInScheme, check: siwx.Check{}},
	}
}

// ways are those of the program, and of a test.
func (a *app) ways(p parts) []way {
	if a.also == nil {
		return p.ways()
	}
	return append(p.ways(), a.also(p)...)
}

// claimed is how much of a channel was claimed on the chain.
func (p parts) claimed(ctx context.Context, network, channel string) (money.Amount, error) {
	read, err := p.contract.ReadChannel(ctx, network, channel)
	return read.Claimed, err
}

// bind gives who signs the checks of the ways to pay, and those by which the owner lets the wallet pay.
func bind(signs *agent.Rules, rules *config.Config, ways []way) {
	signs.Checks, signs.Schemes = map[string]signing.Check{}, allowed(rules, ways)
	for _, w := range ways {
		signs.Checks[w.name] = w.check
	}
}

// allowed are the ways that sellers ask for and the owner's rules have.
func allowed(rules *config.Config, ways []way) (names []string) {
	for _, w := range ways {
		if w.asks != nil && rules.Policy.Has(w.name) {
			names = append(names, w.name)
		}
	}
	return names
}

// register gives the engine the ways to pay. A named account has only some of them, but what became of its
// payments is read in all.
func register(e *pay.Engine, rules *config.Config, ways []way) {
	e.Policy.Schemes = allowed(rules, ways)
	for _, w := range ways {
		if w.asks != nil {
			e.Ways = append(e.Ways, w.asks)
		}
		isPaid := w.asks != nil && (e.Rules.Account == "" || !w.asks.OwnAccountOnly())
		for family, s := range w.pays {
			if isPaid {
				e.Schemes[pay.SchemeKey{Scheme: w.name, Family: family}] = s
			}
		}
	}
	maps.Copy(e.Statuses, statuses(ways))
}

// statuses read what became of payments, by their ways.
func statuses(ways []way) map[pay.SchemeKey]pay.StatusReader {
	list := map[pay.SchemeKey]pay.StatusReader{}
	for _, w := range ways {
		for family, s := range w.pays {
			list[pay.SchemeKey{Scheme: w.name, Family: family}] = s
		}
		for family, reader := range w.reads {
			list[pay.SchemeKey{Scheme: w.name, Family: family}] = reader
		}
	}
	return list
}

// statusOf asks the chain what became of a payment, for who signs.
func statusOf(ways []way) func(ctx context.Context, p history.Payment) (x402.Status, error) {
	list := statuses(ways)
	return func(ctx context.Context, p history.Payment) (x402.Status, error) {
		reader, known := list[pay.SchemeKey{Scheme: p.Scheme, Family: x402.Namespace(p.Evidence.Network)}]
		if !known {
			return x402.Status{}, x402.Errorf(x402.CheckFailed,
				"no chain says what became of a payment by %s", x402.Quote(p.Scheme))
		}
		return reader.Status(ctx, p.Evidence)
	}
}

// addContracts adds what pays by contracts on EVM chains: Permit2, and that of channels.
func (c *chains) addContracts(rules *config.Config, of networkSettings) {
	c.permits = permit2way.NewPayer(c.evm, of.approvalGas)
	c.contract = batch.NewContract(c.permits, rules.Policy.ChannelDelay)
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
