package vault

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

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
