package svm

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// Payments that are made together ask the node for one blockhash, and are different transactions all the
// same, whatever form the seller wants.
func TestPaymentsTogetherShareABlockhash(t *testing.T) {
	for _, version := range []int{1, 2} {
		e, c, _ := newWallet(t)
		var shared x402.Shared
		var working sync.WaitGroup
		var mu sync.Mutex
		seen := map[string]bool{}
		for range 8 {
			working.Go(func() {
				r := asks()
				r.Version = version
				o := orderFrom(c.ata(owner), r)
				o.Shared = &shared
				a, err := e.Authorize(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				seen[transactionOf(t, a)] = true
			})
		}
		working.Wait()
		require.Len(t, seen, 8)
		require.Equal(t, 1, c.asked["getLatestBlockhash"])
	}
}

// What a node did not answer is asked again, and each payment by itself asks for its own.
func TestASharedAnswerIsNoError(t *testing.T) {
	e, c, _ := newWallet(t)
	var shared x402.Shared
	o := orderFrom(c.ata(owner), asks())
	o.Shared = &shared
	last := c.lastValid
	c.lastValid = 149 // nonsense
	_, err := e.Authorize(t.Context(), o)
	require.True(t, x402.HasCode(err, x402.RPCError), "%v", err)
	c.lastValid = last
	must.Get(e.Authorize(t.Context(), o))(t)
	o.Shared = nil
	must.Get(e.Authorize(t.Context(), o))(t)
	require.Equal(t, 3, c.asked["getLatestBlockhash"])
}
