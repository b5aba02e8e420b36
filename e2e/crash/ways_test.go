//go:build crash && linux

package crash

import (
	"bytes"
	"time"

	"x402-wallet/e2e/schemes"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// What the other ways of paying promise besides: their judges.

// approvals: what Permit2 may move is never more than one payment needs, and is used by it.
func (r *run) approvals(who string) {
	price := schemes.Price(r.scenario.path)
	if left := r.Approved(template.evm); left >= price {
		r.violation("%s: Permit2 may move %d more, the price is %d", who, left, price)
	}
}

// The figures of an agent that has nothing of its own, and may take floats out of its owner's account.
const (
	float        = "0.002"
	floatAmount  = 2_000 // atomic units
	approvedUpTo = 10_000
	agentsGas    = 1_000_000_000_000_000 // wei
)

// approved: the owner has let the agent take floats, which it needs, because it has nothing itself.
func approved(r *run) error {
	r.Empty(template.evm)
	r.FundGas(template.evm, agentsGas)
	r.owner = r.Balance(r.Allow(template.evm, approvedUpTo))
	return nil
}

// muted: and the node takes the next float's transaction without a word.
func muted(r *run) error {
	r.Inject("evm node mute", 1)
	return approved(r)
}

// pulls: a float is taken once for each need, none in vain; the owner loses what was taken and no more than
// was approved; and what was taken was paid, or is at the agent's account.
func (r *run) pulls(who string) {
	var taken, settled uint64
	for _, p := range r.Pulls() {
		taken += p.Amount
	}
	for _, s := range r.Settlements() {
		settled += s.Amount
	}
	needed := (uint64(r.purchases())*schemes.Price(r.scenario.path) + floatAmount - 1) / floatAmount
	mined, shown := r.Transactions(template.evm)
	if mined > needed || shown > needed {
		r.violation("%s: %d transactions for floats, %d of them in blocks, %d are needed", who, shown, mined,
			needed)
	}
	if n := uint64(len(r.Pulls())); n != mined {
		r.violation("%s: %d transactions are in blocks, and %d floats were taken", who, mined, n)
	}
	if lost := r.owner - r.Balance(r.OwnerEVM); lost != taken || lost > approvedUpTo {
		r.violation("%s: the owner lost %d, %d was taken, %d approved", who, lost, taken, approvedUpTo)
	}
	if left := r.Allowed(template.evm); left+taken != approvedUpTo {
		r.violation("%s: %d may still be taken after %d of %d", who, left, taken, approvedUpTo)
	}
	if has := r.Balance(template.evm); has+settled != taken {
		r.violation("%s: the agent has %d and paid %d, of %d that was taken", who, has, settled, taken)
	}
}

// opened: the owner has opened a vault for the agent, which has nothing itself.
func opened(r *run) error {
	r.Empty(template.evm)
	r.Fund(r.VaultEVM, sandbox.USDC)
	r.owner = r.Balance(r.OpenVault(template.evm, onchain.VaultLimits{PerPeriod: money.NewAmount(vaultAllows),
		Period: time.Hour, PerPayment: money.NewAmount(vaultAllows), MaxWindow: 10 * time.Minute}))
	return nil
}

// vaultAllows is what the vault lets the agent spend in an hour.
const vaultAllows = 10_000

// vault: what was paid came out of the vault, all of it, and no more than it allows.
func (r *run) vault(who string) {
	var settled uint64
	for _, s := range r.Settlements() {
		settled += s.Amount
		if s.Payer != r.VaultEVM || s.Signer != template.evm {
			r.violation("%s: paid by %s, signed by %s", who, s.Payer, s.Signer)
		}
	}
	if lost := r.owner - r.Balance(r.VaultEVM); lost != settled || lost > vaultAllows {
		r.violation("%s: the vault lost %d, %d was paid, %d allowed", who, lost, settled, vaultAllows)
	}
}

// signIns: each text of the seller's is shown once at most.
func (r *run) signIns(who string) {
	shown := map[string]int{}
	for _, nonce := range r.SignInsShown() {
		shown[nonce]++
		if n := shown[nonce]; n > 1 {
			r.violation("%s: the sign-in %s was shown %d times", who, nonce, n)
		}
	}
}

// signedIn is the judgement of a sign-in: nothing is paid again, what was bought is got all the same, and
// no text was shown that the ledger does not know.
func (r *run) signedIn() {
	r.payment()
	if r.SignIns() == 0 {
		r.violation("nobody was let in")
	}
	payments, err := r.payments()
	if err != nil {
		return // payment said so
	}
	for _, nonce := range r.SignInsShown() {
		known := 0
		for _, p := range payments {
			if p.IsSignIn() && bytes.Contains(p.Payload, []byte(nonce)) {
				known++
			}
		}
		if known != 1 {
			r.violation("%d rows of the ledger are the sign-in %s", known, nonce)
		}
	}
}
