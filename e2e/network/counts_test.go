package network

import (
	"fmt"
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// effort is what calls took of the network: the seller's side, what the node was asked (see isOfCall; its
// connections also carry what no call waits for) and questions for names.
type effort struct {
	seller          counted
	node, questions int64
}

func (w *world) effort() effort {
	return effort{w.seller.now(), w.node.requests.Load(), w.questions.Load()}
}

const repeats = 10

// dials is how many questions for names ten repeated calls may take: two for each connection that is dialled
// anew. One connection more is allowed to the node, too, for readings that no call waits for.
const dials = 4

// ways are the kinds of paid calls, with the most that the first call of a process may take of the
// network, and the next ten together. A payment goes out on the connection of its question, and the next
// call on the same one. One more connection is allowed: net/http begins to dial when a request comes in the
// moment between the end of the answer before it and the return of its connection. Of a seller of whom
// nothing is known both chains are read, beside its question.
var ways = []struct {
	name, path      string
	delegated       bool
	first, repeated effort
}{
	{"EVM", "/weather", false, effort{counted{tcp: 2, full: 2, requests: 2}, 2 + 3, 4},
		effort{counted{tcp: 1, full: 1, requests: 20}, 10, dials}},
	{"Solana", "/solana", false, effort{counted{tcp: 2, full: 2, requests: 2}, 4 + 2, 4},
		effort{counted{tcp: 1, full: 1, requests: 20}, 30, dials}},
	{"Solana-delegate", "/solana", true, effort{counted{tcp: 2, full: 2, requests: 2}, 3 + 2, 4},
		effort{counted{tcp: 1, full: 1, requests: 20}, 20, dials}},
}

func TestRoundTripsOfPaidCalls(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			w := newWorld(t, 0)
			p := w.newPayer(t, way.delegated)
			calls := func(n int, most effort) {
				started, before := time.Now(), w.effort()
				for i := range n {
					// another URL each time: the same one again after a slow answer is the same purchase
					must.Get(p.pay(fmt.Sprintf("%s%s?%d-%d", w.SellerURL, way.path, n, i)))(t)
				}
				took := w.effort().since(before)
				require.GreaterOrEqual(t, took.seller.requests, int64(2*n), "is anything counted?")
				// what is kept is kept for seconds: a machine that stalls needs it anew
				most = most.plus(int64(time.Since(started) / (2 * time.Second)))
				require.True(t, took.within(most), "%d calls took %+v, at most %+v is allowed", n, took, most)
			}
			calls(1, way.first)
			calls(repeats, way.repeated)
		})
	}
}

func (e effort) since(before effort) effort {
	return effort{e.seller.since(before.seller), e.node - before.node, e.questions - before.questions}
}

// plus allows so many more of everything; what the node is asked comes in groups.
func (e effort) plus(n int64) effort {
	return effort{e.seller.since(counted{-n, -n, -n, -n}), e.node + 4*n, e.questions + 2*n}
}

func (e effort) within(most effort) bool {
	return e.seller.tcp <= most.seller.tcp && e.seller.full <= most.seller.full &&
		e.seller.requests <= most.seller.requests && e.node <= most.node && e.questions <= most.questions
}
