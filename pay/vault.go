package pay

import (
	"context"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Vaults pays out of the contracts that owners put their money into, so that the chain itself caps the
// agent: evm.Exact.FromVaults. Schemes pay from the agent's own account.
type Vaults interface {
	Scheme
	// VaultOn is the address of the vault that the owner named on a network; "": none.
	VaultOn(network string) string
}

// refusalLife is how long a host is not paid out of a vault after it refused such a payment, if the agent's
// own account has the money.
const refusalLife = 7 * 24 * time.Hour

// vaultRefusals are the hosts whose facilitator does not check signatures of contracts (ERC-1271): a
// payment out of a vault was refused there, or never settled. The zero value knows none.
type vaultRefusals struct {
	mu     sync.Mutex
	isRead map[string]bool // networks of which the ledger's were read
	hosts  map[string]time.Time
}

func (v *vaultRefusals) note(host, network string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hosts == nil || len(v.hosts) >= maxAskedHosts {
		v.hosts = map[string]time.Time{}
	}
	v.hosts[network+" "+host] = at
}

func (v *vaultRefusals) at(host, network string) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.hosts[network+" "+host]
}

// needsLedger reports, once for a network, that nothing was asked about it.
func (v *vaultRefusals) needsLedger(network string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isRead == nil {
		v.isRead = map[string]bool{}
	}
	was := v.isRead[network]
	v.isRead[network] = true
	return !was
}

// sources are whose money an option can be paid with, the better first: the owner's vault, if there is one,
// and the agent's own account. Where a host refused the vault they come in the other order, so that there
// is a way to pay it while the agent has some money of its own.
func (e *Engine) sources(ctx context.Context, host string, o option) []option {
	own := o
	own.fromVault = false
	if e.Vaults == nil || o.Way() != x402.Exact || o.Charge != nil || e.Vaults.VaultOn(o.Network) == "" {
		return []option{own}
	}
	vault := o
	vault.fromVault = true
	both := []option{vault, own}
	if e.refusesVault(ctx, host, o.Network) {
		slices.Reverse(both)
	}
	return both
}

func (e *Engine) refusesVault(ctx context.Context, host, network string) bool {
	since := e.Now().Add(-refusalLife)
	if e.vaultRefusals.needsLedger(network) {
		expired, err := e.Store.Expired(ctx, network, since)
		if err != nil {
			e.Log.Warn("read which sellers refused the vault", "err", err)
		}
		for _, p := range expired {
			if e.isFromVault(p) {
				e.vaultRefusals.note(p.Host, network, p.Created)
			}
		}
	}
	return e.vaultRefusals.at(host, network).After(since)
}

// noteRefusal remembers that a payment out of a vault was refused.
func (e *Engine) noteRefusal(p history.Payment, code x402.Code) {
	if e.isFromVault(p) && (code == x402.PaymentRejected || code == x402.SettlementFailed) {
		e.vaultRefusals.note(p.Host, p.Network, e.Now())
	}
}

func (e *Engine) isFromVault(p history.Payment) bool {
	return e.Vaults != nil && p.Source != "" && p.Source == e.Vaults.VaultOn(p.Network)
}

// payer is the scheme that pays an option with the money that it is to be paid with.
func (e *Engine) payer(o option) (Scheme, bool) {
	if o.fromVault {
		return e.Vaults, e.Vaults != nil
	}
	return e.scheme(o.Way(), o.Network)
}

// aboutSource reports whether a refusal is about the account that was to pay, so that another one may do.
func aboutSource(code x402.Code) bool {
	switch code {
	case x402.InsufficientFunds, x402.NoDelegation, x402.DelegationExhausted, x402.DelegateMismatch:
		return true
	}
	return false
}

// tooMuchAtOnce reports whether a price is above what a vault lets one payment be.
func tooMuchAtOnce(o option, funds x402.Funds) bool {
	return funds.MaxPayment != nil && o.Amount.Cmp(*funds.MaxPayment) > 0
}

// vaultRefuses explains a vault's no: the price is above what one payment may be, more than lies there, or
// above what the owner allows until now.
func vaultRefuses(o option, funds x402.Funds, lack *history.ShortOfFunds) error {
	dollars := func(a money.Amount) string { return o.asset.Dollars(a).Price() }
	price, network := o.price.Price(), x402.Title(o.Network)
	needed, _ := lack.Held.Add(o.Amount)
	left, yours := lack.Free.SubFloor(lack.Held), "your vault "+funds.Source+" on "+network
	allow := x402.Command("vault", "allow", "--network", o.Network)
	var e *x402.Error
	switch {
	case tooMuchAtOnce(o, funds):
		most := dollars(*funds.MaxPayment)
		e = x402.Errorf(x402.DelegationExhausted,
			"the vault on %s lets one payment be %s at most, and the price is %s", network, most, price).
			WithDetail("perPayment", *funds.MaxPayment).WithHint("%s or less would pass", most).
			WithCommand(allow, "One payment from "+yours+" may be "+most+" at most, and this one costs "+
				price+": please allow more for one payment, if you want it bought.")
	case funds.Balance.Cmp(needed) < 0:
		short := dollars(needed.SubFloor(funds.Balance))
		e = x402.Errorf(x402.InsufficientFunds,
			"what lies in the vault on %s does not cover the price %s: %s is there", network, price,
			dollars(funds.Balance)).
			WithDetail("short", needed.SubFloor(funds.Balance)).
			WithHint("the owner has to deposit at least %s", short).
			WithCommand(x402.Command("vault", "deposit", "--network", o.Network), "Please deposit at least "+
				short+" in "+yours+" so that I can pay "+price+".")
	default:
		hint := "the owner has to allow more"
		if !funds.MoreAt.IsZero() {
			hint = "the vault allows more from " + x402.Stamp(funds.MoreAt) + ", or when the owner does"
		}
		e = x402.Errorf(x402.DelegationExhausted,
			"what the vault on %s lets the agent spend now does not cover the price %s: %s is left", network,
			price, dollars(left)).
			WithDetail("delegated", funds.Free).WithHint("%s", hint).
			WithCommand(allow, "What I may spend now from "+yours+" is used up ("+dollars(left)+
				" is left, this costs "+price+"): "+hint+".")
	}
	return e.WithDetail("layer", "chain").WithDetail("network", o.Network).
		WithDetail("asset", o.asset.Address).WithDetail("symbol", o.asset.Symbol).
		WithDetail("source", funds.Source).WithDetail("available", left).WithDetail("held", lack.Held).
		WithDetail("requested", o.Amount).WithDetail("balance", funds.Balance)
}
