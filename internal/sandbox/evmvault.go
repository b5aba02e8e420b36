package sandbox

import (
	"math"
	"strings"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
)

// The owner's vault on the play chain: the rule of chain/evm/vault/AgentVault.sol in plain numbers, as of
// now.
// The token asks it for the signatures of payments out of it (ERC-1271); e2e/vault.TestThePlayVaultIsTheModel
// compares it with the contract's model.

const callState = "c19d93fb" // state()

type playVault struct {
	address, owner, agent string // agent "": nobody may spend
	base                  uint64
	start                 int64 // Unix seconds
	limits                vaultLimits
}

// vaultLimits are x402.VaultLimits in this chain's numbers.
type vaultLimits struct {
	perPeriod, perPayment uint64
	period, maxWindow     int64 // seconds
}

// floor is what the agent must leave at a time.
func (v *playVault) floor(at int64) uint64 {
	if v.agent == "" {
		return math.MaxUint64
	}
	periods := uint64((at-v.start)/v.limits.period) + 1
	if v.limits.perPeriod > v.base/periods {
		return 0
	}
	return v.base - v.limits.perPeriod*periods
}

// available is what the agent may spend of a balance at a time.
func (v *playVault) available(balance uint64, at int64) uint64 {
	return balance - min(balance, v.floor(at))
}

// takes is isValidSignature of a payment that signer signed.
func (v *playVault) takes(a evm.Authorization3009, signer string, balance uint64, at int64) bool {
	amount, fits := a.Value.Uint64()
	return fits && v.agent != "" && strings.EqualFold(signer, v.agent) && amount <= v.limits.perPayment &&
		a.ValidBefore-at <= v.limits.maxWindow && amount <= v.available(balance, at)
}

// state answers the function of that name: ten words.
func (v *playVault) state(token string, balance uint64, at int64) string {
	agent, next := word(0), int64(0)
	if v.agent != "" {
		agent, next = topicOf(v.agent), at+v.limits.period-(at-v.start)%v.limits.period
	}
	d := &callData{}
	d.add(topicOf(v.owner), topicOf(token), agent, word(balance),
		word(v.available(balance, at)), word(v.limits.perPayment), word(uint64(v.limits.maxWindow)),
		word(v.limits.perPeriod), word(uint64(v.limits.period)), word(uint64(next)))
	return "0x" + d.words.String()
}

// viewVault answers a view function of the vault, at a block.
func (c *evmChain) viewVault(selector, words string, block uint64, _ bool) (answer string, known bool) {
	if selector != callState || words != "" {
		return "", false
	}
	balance := c.balances.at(c.vault.address, block)
	return c.vault.state(c.asset.Address, balance, c.blocks[block-c.first]), true
}

// isVault reports whether an address is that of the vault, and there is one.
func (c *evmChain) isVault(address string) bool {
	return c.vault.start != 0 && strings.EqualFold(address, c.vault.address)
}

// recover reads a payment by EIP-3009 and is who signed it: the payer, or the agent of a vault that takes it.
func (c *evmChain) recover(payload []byte) (signer string, a evm.Authorization3009, err error) {
	signer, ofVault, errVault := evm.RecoverAgent(c.asset.Network, c.asset, payload)
	if errVault != nil || !c.isVault(ofVault.From) {
		return evm.Recover(c.asset.Network, c.asset, payload)
	}
	if !c.vault.takes(ofVault, signer, c.balance(c.vault.address), c.now().Unix()) {
		return signer, ofVault, evm.ErrSignature
	}
	return signer, ofVault, nil
}

// OpenVault lets an agent spend out of the owner's vault within limits, which are counted from now and from
// what is in it (Fund), and returns its address.
func (s *Sandbox) OpenVault(agent string, l x402.VaultLimits) (vault string) {
	c := s.evm
	c.mu.Lock()
	defer c.mu.Unlock()
	perPeriod, _ := l.PerPeriod.Uint64()
	perPayment, _ := l.PerPayment.Uint64()
	block := c.next()
	c.vault.agent, c.vault.owner, c.vault.base = agent, s.OwnerEVM, c.balance(c.vault.address)
	c.vault.start = c.blocks[block-c.first]
	c.vault.limits = vaultLimits{perPeriod: perPeriod, perPayment: perPayment,
		period: max(1, int64(l.Period/time.Second)), maxWindow: int64(l.MaxWindow / time.Second)}
	return c.vault.address
}

// RevokeVault lets nobody spend out of the vault any more.
func (s *Sandbox) RevokeVault() {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	s.evm.next()
	s.evm.vault.agent = ""
}
