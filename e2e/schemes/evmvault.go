package schemes

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/onchain"
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

// vaultLimits are onchain.VaultLimits in this chain's numbers.
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
func (v *playVault) takes(a message.Authorization3009, signer string, balance uint64, at int64) bool {
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
	d := &sandbox.CallData{}
	d.Add(topicOf(v.owner), topicOf(token), agent, word(balance),
		word(v.available(balance, at)), word(v.limits.perPayment), word(uint64(v.limits.maxWindow)),
		word(v.limits.perPeriod), word(uint64(v.limits.period)), word(uint64(next)))
	return "0x" + d.Words.String()
}

func (c *chain) viewVault(selector, words string, block uint64) (answer string, known bool) {
	if selector != callState || words != "" {
		return "", false
	}
	balance := c.Balances.At(c.vault.address, block)
	return c.vault.state(c.Asset.Address, balance, c.TimeOf(block)), true
}

func (c *chain) isVault(address string) bool {
	return c.vault.start != 0 && strings.EqualFold(address, c.vault.address)
}

// recover reads a payment out of the vault. signer is its agent.
func (c *chain) recover(sent json.RawMessage) (signer string, a message.Authorization3009, isVault bool,
	err error) {
	signer, a, errRead := payload.RecoverAgent(c.Asset.Network, c.Asset, sent)
	isVault = errRead == nil && c.isVault(a.From)
	if !isVault {
		return "", a, false, nil
	}
	if !c.vault.takes(a, signer, c.Balance(c.vault.address), c.Now().Unix()) {
		err = message.ErrSignature
	}
	return signer, a, true, err
}

// OpenVault lets an agent spend out of the owner's vault within limits, which are counted from now and from
// what is in it (Fund), and returns its address.
func (s *World) OpenVault(agent string, l onchain.VaultLimits) (vault string) {
	c := s.chain
	c.Lock()
	defer c.Unlock()
	perPeriod, _ := l.PerPeriod.Uint64()
	perPayment, _ := l.PerPayment.Uint64()
	block := c.Next()
	c.vault.agent, c.vault.owner, c.vault.base = agent, s.OwnerEVM, c.Balance(c.vault.address)
	c.vault.start = c.TimeOf(block)
	c.vault.limits = vaultLimits{perPeriod: perPeriod, perPayment: perPayment,
		period: max(1, int64(l.Period/time.Second)), maxWindow: int64(l.MaxWindow / time.Second)}
	return c.vault.address
}

// RevokeVault lets nobody spend out of the vault any more.
func (s *World) RevokeVault() {
	s.chain.Lock()
	defer s.chain.Unlock()
	s.chain.Next()
	s.chain.vault.agent = ""
}
