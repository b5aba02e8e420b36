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
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

var kills = flag.Int("kills", 4, "how many replicas are killed")

// replicaOf is the variable that makes another process of this test binary a replica that pays: its home, and
// the URL of the ledger.
const replicaOf = "HISTORY_TEST_REPLICA"

// replicasCap is what all replicas may spend together, at one a payment.
const replicasCap = 1_000

func replicasRules() budget.Rules {
	return budget.Rules{PerCall: 1 << 40, ApproveAbove: 1 << 40, Day: replicasCap, Month: 1 << 40,
		Rate: 1 << 30}
}

// payAsReplica pays until the budget is used up, and says on its output which payments left and which
// settled.
func payAsReplica(of string) int {
	home, url, _ := strings.Cut(of, " ")
	s, err := OpenPostgres(context.Background(), home, sqldb.Postgres{URL: url}, Options{Contents: Keeper})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for err := error(nil); !x402.HasCode(err, x402.BudgetExceeded); {
				err = payAloud(s)
			}
		})
	}
	all.Wait()
	return 0
}

func payAloud(s *Store) error {
	ctx := context.Background()
	p, err := reserveBy(s, replicasRules(), testHold(1))
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

// Replicas are killed under load. The budget is not passed, every payment that left is in the ledger, and
// another replica takes those to their end that the dead ones left open.
func TestReplicasAreKilled(t *testing.T) {
	emptyPostgres(t)
	var outs []*bytes.Buffer
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		out := &bytes.Buffer{}
		outs = append(outs, out)
		cmd.Env = append(os.Environ(), replicaOf+"="+t.TempDir()+" "+testServer.url,
			"GORACE=atexit_sleep_ms=0")
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

	s := openTestServer(t, Options{Contents: Keeper})
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
	require.Empty(t, lostOf(t, testServer.url, told))
	forge(t, s, `UPDATE instances SET until = 0`) // the time in which they are taken for alive is over
	takeUp(t, s)
	use, err := read(t.Context(), s, func(tx *tx) (budget.Use, error) {
		return tx.used(budget.Window{Since: budget.DayOf(tx.Now)})
	})
	require.NoError(t, err)
	require.LessOrEqual(t, use.Total(), replicasRules().Day)
	require.GreaterOrEqual(t, int(use.Spent), len(told))
	_, err = s.VerifySealed(t.Context(), testKeyholder())
	require.NoError(t, err)
	t.Logf("%d payments left", len(told))
}

// takeUp takes all unfinished payments to their end.
func takeUp(t *testing.T, s *Store) {
	t.Helper()
	list, err := s.Unfinished(t.Context(), "", 1000)
	require.NoError(t, err)
	for _, p := range list {
		require.False(t, s.Alive(p.LeaseOwner))
		own, err := s.AcquireLease(t.Context(), p.ID, p.LeaseOwner)
		require.NoError(t, err)
		require.True(t, own)
		if p.State == Reserved {
			require.NoError(t, s.Release(t.Context(), p.ID, "its process is dead"))
			continue
		}
		_, err = s.Finish(t.Context(), p.ID, Outcome{State: Settled, Proof: Chain, ReleaseLease: true})
		require.NoError(t, err)
	}
}
