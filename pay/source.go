package pay

import (
	"context"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
)

// OwnersAccount pays in place of the agent's own account, and is preferred to it: the chain itself caps the
// agent there.
type OwnersAccount interface {
	Scheme
	scheme.Source
}

// sourceName tells whose money an option is paid with from another's: a Source itself need not be comparable.
func (o option) sourceName() string {
	if o.source == nil {
		return ""
	}
	return o.source.Name()
}

// refusalLife is how long a host is not paid from the owner's account after it refused such a payment, if the
// agent's own account has the money.
const refusalLife = 7 * 24 * time.Hour

// sourceRefusals are the hosts that take no payment from the owner's account: facilitators that do not check
// signatures of contracts (ERC-1271) refuse one, or never settle it. The zero value knows none.
type sourceRefusals struct {
	mu     sync.Mutex
	isRead map[string]bool // networks of which the ledger's were read
	hosts  map[string]time.Time
}

func (v *sourceRefusals) note(host, network string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hosts == nil || len(v.hosts) >= maxAskedHosts {
		v.hosts = map[string]time.Time{}
	}
	v.hosts[network+" "+host] = at
}

func (v *sourceRefusals) at(host, network string) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.hosts[network+" "+host]
}

// needsLedger reports, once for a network, that nothing was asked about it.
func (v *sourceRefusals) needsLedger(network string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isRead == nil {
		v.isRead = map[string]bool{}
	}
	was := v.isRead[network]
	v.isRead[network] = true
	return !was
}

// sources are whose money an option can be paid with, the better first: the owner's account, if there is one,
// and the agent's own. Where a host refused the owner's they come in the other order, so that there is a way
// to pay it while the agent has some money of its own.
func (e *Engine) sources(ctx context.Context, host string, o option) []option {
	own := o
	own.source = nil
	if e.Owners == nil || !e.Owners.Pays(o.Requirement) || e.Owners.Account(o.Network) == "" {
		return []option{own}
	}
	owners := o
	owners.source = e.Owners
	both := []option{owners, own}
	if e.refusesOwners(ctx, host, o.Network) {
		slices.Reverse(both)
	}
	return both
}

func (e *Engine) refusesOwners(ctx context.Context, host, network string) bool {
	since := e.Now().Add(-refusalLife)
	if e.sourceRefusals.needsLedger(network) {
		expired, err := e.Store.Expired(ctx, network, since)
		if err != nil {
			e.Log.Warn("read which sellers refused the owner's account", "err", err)
		}
		for _, p := range expired {
			if e.isFromOwners(p) {
				e.sourceRefusals.note(p.Host, network, p.Created)
			}
		}
	}
	return e.sourceRefusals.at(host, network).After(since)
}

// noteRefusal remembers that a payment from the owner's account was refused.
func (e *Engine) noteRefusal(p history.Payment, code x402.Code) {
	if e.isFromOwners(p) && (code == x402.PaymentRejected || code == x402.SettlementFailed) {
		e.sourceRefusals.note(p.Host, p.Network, e.Now())
	}
}

func (e *Engine) isFromOwners(p history.Payment) bool {
	return e.Owners != nil && p.Source != "" && p.Source == e.Owners.Account(p.Network)
}

// payer is the scheme that pays an option with the money that it is to be paid with.
func (e *Engine) payer(o option) (Scheme, bool) {
	if o.source != nil {
		return e.Owners, true
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

func tooMuchAtOnce(o option, funds x402.Funds) bool { return scheme.TooMuchAtOnce(o.offer(), funds) }
