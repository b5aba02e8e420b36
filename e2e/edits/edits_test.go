// Package edits has a shell edit the ledger at random, and tries to get something signed in every way.
//
// What must stay true: whoever writes to ledger.db as they like, and has no key, gets no signature beyond the
// owner's limits, for nobody whom the owner did not approve, out of nothing that is frozen. The judge is an
// umpire that reads nothing in the ledger. The edits are made from the schema, so that a new table or column
// is edited without being named here. Without edits the same payments pass.
//
// The files: edits_test.go (the rounds), shell_test.go (the edits), umpire_test.go (the owner's limits, and
// what was signed), ways_test.go (what is to be signed), template_test.go (the ledger that a round begins
// with), home_test.go (the keys, the chain, and the process that signs).
package edits

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	rounds = flag.Int("edits.rounds", 150, "how many rounds of edits")
	seed   = flag.Uint64("edits.seed", 1, "of the first round; 0: by the time")
)

// counts are what is reported.
type counts struct {
	tried, signed, edited, rows int
	refused                     map[string]int // by what refused it
	after                       map[string]int // what came of the first small payment after the edits
	ways                        map[string]int // signed
}

// round is one round: a ledger, edits, and what is tried.
type round struct {
	*world
	shell    *shell
	template *template
	seed     uint64
	when     string
	again    bool // the same edits after each signature
	left     int  // edits that are still to be made
	order    []int
	first    bool // nothing was tried since the edits
}

func TestEdits(t *testing.T) {
	begin := time.Now()
	first := cmp.Or(*seed, uint64(begin.UnixNano()))
	t.Logf("repeat by -args -edits.seed %d -edits.rounds %d", first, *rounds)
	w := newWorld(t)
	made := newTemplate(w)
	require.NoError(t, w.open())
	all := newPlan(w)
	all.learn(w, func() {
		w.rand = rand.New(rand.NewPCG(1, 2))
		w.begin(false, nil)
		w.signsAll(w.rand, true)
	})
	require.NoError(t, w.close())
	n := w.counts
	*n = counts{refused: map[string]int{}, after: map[string]int{}, ways: map[string]int{}}
	older := make([]string, len(made.older))
	for i, s := range made.older {
		older[i] = w.olderFile(s, i)
	}
	isWhole := *rounds >= 150 // enough for every column: what is left then has more rounds
	for i := 0; i < *rounds || (isWhole && i < 2**rounds && len(all.never()) > 0); i++ {
		r := round{world: w, template: &made, seed: first + uint64(i)}
		w.isFree = r.seed%8 == 0
		w.rand = rand.New(rand.NewPCG(r.seed, 0))
		r.shell = &shell{plan: all, w: w, rand: w.rand, older: older[len(older)-1-pick(w.rand, 0, 1, 2, 3)]}
		for i := range ways {
			r.order = append(r.order, i)
		}
		r.play()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d rounds in %.1f s: %d edits of %d rows, %d columns of %d tables; %d of %d signatures made",
		*rounds, time.Since(begin).Seconds(), n.edited, n.rows, len(all.edited), len(all.tables),
		n.signed, n.tried)
	for what, list := range map[string]map[string]int{"refused": n.refused, "ways": n.ways,
		"first payment after the edits": n.after} {
		t.Logf("%s: %v", what, sorted(list))
	}
	if isWhole {
		require.Empty(t, all.never(), "nobody edited these: does the ledger of the rounds have rows of them?")
		for _, way := range ways {
			require.NotZero(t, n.ways[way.name], "nothing was signed by %s", way.name)
		}
	}
}

func sorted(list map[string]int) (text []string) {
	names := slices.SortedFunc(maps.Keys(list), func(a, b string) int { return list[b] - list[a] })
	for _, name := range names {
		text = append(text, fmt.Sprintf("%s %d", name, list[name]))
	}
	return text
}

func write(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }
