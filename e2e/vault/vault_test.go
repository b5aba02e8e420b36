package vault

import (
	"bytes"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

const (
	lab  = "../lab"
	root = "../.."
)

var (
	seeded    = flag.Uint64("seed", 0, "which random operations; 0: new ones")
	sequences = flag.Int("sequences", 110, "how many vaults")
)

const operations = 100 // of each vault

// TestTheVaultIsItsModel: after every one of many random operations the vault says what the model
// says, and takes what the model takes; in the node's EVM, and for some of them in blocks that are
// mined.
func TestTheVaultIsItsModel(t *testing.T) {
	seed := *seeded
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./e2e/vault -run TestTheVaultIsItsModel -args -seed %d", seed)
	chain := Start(t, lab)
	build := must.Get(ReadBuild(root))(t)

	paid, refused, err := simulated(chain, build, seed, *sequences)
	require.NoError(t, err)
	require.Greater(t, paid, *sequences*operations/20, "too few payments to prove anything")
	require.Greater(t, refused, *sequences*operations/20)
	t.Logf("%d operations, %d of them payments, %d refused payments", *sequences*operations, paid, refused)
	require.NoError(t, mined(t, chain, build, seed))
}

// simulated runs so many vaults through operations in the node's EVM.
func simulated(chain *Chain, build Build, seed uint64, vaults int) (paid, refused int, err error) {
	now, err := chain.now()
	if err != nil {
		return 0, 0, err
	}
	for number := range vaults {
		w := makeUp(chain, build, seed, uint64(number), operations, now)
		blocks := make([]Block, len(w.steps))
		for i, s := range w.steps {
			blocks[i] = Block{s.at, []Call{s.call}}
			for _, v := range s.views {
				blocks[i].Calls = append(blocks[i].Calls,
					Call{From: w.visitor, To: &w.vault, Data: v.data, Gas: 200_000})
			}
		}
		outcomes, err := chain.Simulate(blocks)
		if err != nil {
			return 0, 0, err
		}
		for i := range w.steps {
			if err := w.judge(i, outcomes[i]); err != nil {
				return 0, 0, fmt.Errorf("vault %d: %w", number, err)
			}
		}
		paid, refused = paid+w.paid, refused+w.refused
	}
	return paid, refused, nil
}

// mined does the same for one vault with transactions in blocks.
func mined(t *testing.T, chain *Chain, build Build, seed uint64) error {
	now := must.Get(chain.now())(t)
	w := makeUp(chain, build, seed, 1<<32, operations, now+10)
	for i, s := range w.steps {
		require.NoError(t, chain.Ask(nil, "evm_setNextBlockTimestamp", s.at))
		outcomes := []Outcome{{OK: must.Get(chain.Send(s.call))(t).Status == 1}}
		for _, v := range s.views {
			var answer hexutil.Bytes
			call := Call{From: w.visitor, To: &w.vault, Data: v.data}
			require.NoError(t, chain.Ask(&answer, "eth_call", call, "latest"))
			outcomes = append(outcomes, Outcome{true, answer})
		}
		if err := w.judge(i, outcomes); err != nil {
			return fmt.Errorf("mined: %w", err)
		}
	}
	return nil
}

// judge compares what the chain says of the i-th step with what the model says.
func (w *world) judge(i int, got []Outcome) error {
	s := w.steps[i]
	report := func(format string, args ...any) error {
		var story strings.Builder
		for j := max(0, i-8); j <= i; j++ {
			told := w.steps[j]
			fmt.Fprintf(&story, "\n  %d at %d: %s (model: %t)", j, told.at, told.what, told.ok)
		}
		return fmt.Errorf("step %d, %s: %s%s", i, s.what, fmt.Sprintf(format, args...), story.String())
	}
	if got[0].OK != s.ok {
		return report("the model says %t, the chain %t (%q)", s.ok, got[0].OK, got[0].Result)
	}
	for j, v := range s.views {
		if answer := got[j+1]; !answer.OK || !bytes.Equal(answer.Result, v.want) {
			return report("%s is\n%x, in the model\n%x", v.what, answer.Result, v.want)
		}
	}
	if !s.promise {
		return report("the agent has spent more than was allowed it")
	}
	return nil
}

func (c *Chain) now() (uint64, error) {
	var block struct{ Timestamp hexutil.Uint64 }
	err := c.Ask(&block, "eth_getBlockByNumber", "latest", false)
	return uint64(block.Timestamp), err
}

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
