package history

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

var kills = flag.Int("kills", 4, "how many processes are killed")

// payerOf is the variable that makes another process of this test binary one that pays.
const payerOf = "HISTORY_TEST_PAYER_OF"

// cappedRules are what all processes may spend together, at one a payment.
func cappedRules() budget.Rules {
	return budget.Rules{PerCall: 1 << 40, ApproveAbove: 1 << 40, Day: 1_000, Month: 1 << 40, Rate: 1 << 30}
}

// payAloud pays until the budget is used up, and says on its output which payments left and which
// settled.
func payAloud(ledger string) int {
	s, err := openNamed(context.Background(), ledger, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for err := error(nil); !x402.HasCode(err, x402.BudgetExceeded); {
				err = payOne(s)
			}
		})
	}
	all.Wait()
	return 0
}

func payOne(s *Store) error {
	ctx := context.Background()
	p, err := reserveBy(s, cappedRules(), testHold(1))
	if errors.Is(err, ErrMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	err = s.Submit(ctx, p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID},
		testKeyholder())
	if err != nil {
		return err
	}
	fmt.Printf("%s submitted\n", p.ID)
	_, err = s.Finish(ctx, p.ID, Outcome{State: Settled, Proof: Claimed, ReleaseLease: true})
	if err != nil {
		return err
	}
	fmt.Printf("%s settled\n", p.ID)
	return nil
}

// Processes are killed under load. The budget is not passed, every payment that left is in the ledger, and
// another process takes those to their end that the dead ones left open.
func TestProcessesAreKilled(t *testing.T) {
	eachEngine(t, func(t *testing.T, empty *Store, _ *clock) {
		var outs []*bytes.Buffer
		start := func() *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			out := &bytes.Buffer{}
			outs = append(outs, out)
			cmd.Env = append(os.Environ(), payerOf+"="+nameOf(empty), "GORACE=atexit_sleep_ms=0")
			cmd.Stdout, cmd.Stderr = out, os.Stderr
			require.NoError(t, cmd.Start())
			return cmd
		}
		running := []*exec.Cmd{start(), start(), start()}
		kill := func(i int) {
			_ = running[i].Process.Kill()
			_ = running[i].Wait()
		}
		for range *kills {
			time.Sleep(time.Duration(300+rand.IntN(300)) * time.Millisecond) //nolint:gosec // no secret
			i := rand.IntN(len(running))                                     //nolint:gosec // likewise
			kill(i)
			running[i] = start()
		}
		time.Sleep(500 * time.Millisecond)
		for i := range running {
			kill(i)
		}

		s := must.Get(openNamed(t.Context(), nameOf(empty), Options{}))(t)
		defer s.Close()
		told := map[string]State{}
		for _, out := range outs {
			for line := range strings.Lines(out.String()) {
				id, state, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
				if ok && strings.HasSuffix(line, "\n") {
					told[id] = State(state)
				}
			}
		}
		require.NotEmpty(t, told)
		require.Empty(t, lostOf(t, nameOf(empty), told))
		if s.Shared() {
			forge(t, s, `UPDATE instances SET until = 0`) // the time in which they are taken for alive is over
		}
		takeUp(t, s)
		use := must.Get(read(t.Context(), s, func(tx *tx) (budget.Use, error) {
			return tx.used(budget.Window{Since: budget.DayOf(tx.Now)})
		}))(t)
		require.LessOrEqual(t, use.Total(), cappedRules().Day)
		require.GreaterOrEqual(t, int(use.Spent), len(told))
		must.Get(s.VerifySealed(t.Context(), testKeyholder()))(t)
		t.Logf("%d payments left", len(told))
	})
}

// takeUp takes all unfinished payments to their end.
func takeUp(t *testing.T, s *Store) {
	t.Helper()
	list := must.Get(s.Unfinished(t.Context(), "", 1000))(t)
	for _, p := range list {
		require.False(t, s.Alive(p.LeaseOwner))
		require.True(t, must.Get(s.AcquireLease(t.Context(), p.ID, p.LeaseOwner))(t))
		if p.State == Reserved {
			require.NoError(t, s.Release(t.Context(), p.ID, "its process is dead"))
			continue
		}
		must.Get(s.Finish(t.Context(), p.ID, Outcome{State: Settled, Proof: Chain, ReleaseLease: true}))(t)
	}
}
