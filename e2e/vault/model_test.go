package vault

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
)

// model is the vault and what it needs of the token, in numbers without an end. It is the rule in
// its plainest words; the contract says the same in words of 256 bits.
type model struct {
	now, start uint64
	rule       Rule // of the zero address when nobody may spend
	base       *big.Int
	balance    *big.Int // the vault's
	owners     *big.Int // what the owner has; the vault is approved for all of it
	cashed     map[[32]byte]bool

	// The promise itself, kept apart from base and floor: what the agent spent since the allowance
	// began, and what came in otherwise than by a deposit.
	spent, gifts *big.Int
}

func newModel(now uint64, rule Rule, balance, owners *big.Int) *model {
	m := &model{now: now, balance: balance, owners: owners, cashed: map[[32]byte]bool{}}
	m.allow(rule)
	return m
}

func (m *model) allow(rule Rule) bool {
	if rule.Agent == (common.Address{}) || rule.Period.Sign() == 0 {
		return false
	}
	m.rule, m.start, m.base = rule, m.now, m.balance
	m.spent, m.gifts = new(big.Int), new(big.Int)
	return true
}

func (m *model) revoke() { m.rule.Agent = common.Address{} }

func (m *model) deposit(value *big.Int) bool {
	if value.Cmp(m.owners) > 0 {
		return false
	}
	m.owners, m.balance, m.base = sub(m.owners, value), add(m.balance, value), add(m.base, value)
	return true
}

func (m *model) withdraw(value *big.Int) bool {
	if value.Cmp(m.balance) > 0 {
		return false
	}
	m.owners, m.balance, m.base = add(m.owners, value), sub(m.balance, value), atLeastZero(sub(m.base, value))
	return true
}

func (m *model) give(value *big.Int) { m.balance, m.gifts = add(m.balance, value), add(m.gifts, value) }

// due is what the rule allows from the allowance's beginning until now.
func (m *model) due() *big.Int {
	elapsed := new(big.Int).SetUint64(m.now - m.start)
	return new(big.Int).Mul(m.rule.PerPeriod, add(big.NewInt(1), elapsed.Div(elapsed, m.rule.Period)))
}

func (m *model) floor() *big.Int {
	if m.isRevoked() {
		return largest
	}
	return atLeastZero(sub(m.base, m.due()))
}

func (m *model) available() *big.Int { return atLeastZero(sub(m.balance, m.floor())) }

// nextPeriod is the first moment after now that is a whole number of periods from the beginning.
func (m *model) nextPeriod() *big.Int {
	if m.isRevoked() {
		return new(big.Int)
	}
	elapsed := new(big.Int).SetUint64(m.now - m.start)
	passed := elapsed.Div(elapsed, m.rule.Period)
	next := passed.Add(passed, big.NewInt(1)).Mul(passed, m.rule.Period)
	next.Add(next, new(big.Int).SetUint64(m.start))
	if next.Cmp(largest) > 0 {
		return largest
	}
	return next
}

func (m *model) isRevoked() bool { return m.rule.Agent == (common.Address{}) }

// isValid says whether the vault stands by a cheque of that signer.
func (m *model) isValid(c Cheque, signer common.Address) bool {
	latest := add(new(big.Int).SetUint64(m.now), m.rule.MaxWindow)
	return !m.isRevoked() && signer == m.rule.Agent &&
		c.Value.Cmp(m.rule.PerPayment) <= 0 && c.ValidBefore.Cmp(latest) <= 0 &&
		sub(m.balance, c.Value).Cmp(m.floor()) >= 0
}

// cash says whether the token moves it, and moves it.
func (m *model) cash(c Cheque, signer common.Address) bool {
	now := new(big.Int).SetUint64(m.now)
	timely := now.Cmp(c.ValidAfter) > 0 && now.Cmp(c.ValidBefore) < 0
	if !timely || m.cashed[c.Nonce] || !m.isValid(c, signer) {
		return false
	}
	m.cashed[c.Nonce] = true
	m.balance, m.spent = sub(m.balance, c.Value), add(m.spent, c.Value)
	return true
}

// keepsItsPromise says whether the agent has spent no more than was allowed it, and given.
func (m *model) keepsItsPromise() bool { return m.spent.Cmp(add(m.due(), m.gifts)) <= 0 }

var largest = sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))

func add(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }
func sub(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }

func atLeastZero(a *big.Int) *big.Int {
	if a.Sign() < 0 {
		return new(big.Int)
	}
	return a
}
