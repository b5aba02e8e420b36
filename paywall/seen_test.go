package paywall

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
)

type saying struct {
	*facilitator.Client
	valid bool
	err   error
	asked atomic.Int32
}

func (f *saying) Verify(context.Context, facilitator.Submission) (valid bool, reason string, err error) {
	f.asked.Add(1)
	return f.valid, "so it is", f.err
}

// A payment that had its run in another process, or before this one began, has no other, whatever the
// facilitator says of it, and its buyer gets the answer again. The second time no facilitator is asked.
func TestWhatWasUsedInAnotherProcess(t *testing.T) {
	for name, facilitators := range map[string]*saying{
		"valid": {valid: true}, "invalid": {}, "no answer": {err: errors.New("down")},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			c := l.call(t, nil, nil).challenge()
			payload := l.payer.sign(t, c, 0, named)
			first := l.call(t, nil, meta(c, payload))
			require.Equal(t, product, first.text)

			other := &lab{Sandbox: l.Sandbox, payer: l.payer, tool: l.tool}
			o := l.paywall.options
			facilitators.Client = newFacilitators(l.Sandbox)
			o.Facilitators = facilitators
			var err error
			other.paywall, err = New(o)
			require.NoError(t, err)
			other.client, _ = connect(t, other.server(), nil)
			for range 2 {
				again := other.call(t, nil, meta(c, payload))
				require.Equal(t, product, again.text, "%s", again.Data)
				require.Equal(t, first.receipt().Transaction, again.receipt().Transaction)
				unnamed := other.call(t, nil, meta(c, without(t, payload, "extensions")))
				require.EqualValues(t, -32602, unnamed.Code, "%s", unnamed.Result)
				unnamed.asksNothing()
			}
			require.EqualValues(t, 1, facilitators.asked.Load())
			require.Zero(t, other.runs.Load())
			require.Len(t, l.Settlements(), 1)
		})
	}
}

type counted struct {
	SaleStore
	lookUps atomic.Int32
}

func (s *counted) SaleByKey(ctx context.Context, key string) (book.Sale, error) {
	s.lookUps.Add(1)
	return s.SaleStore.SaleByKey(ctx, key)
}

func TestANewPaymentIsNotLookedUp(t *testing.T) {
	store := &counted{SaleStore: newMemoryStore()}
	l := newLab(t, func(_ *lab, o *Options) { o.Store = store })
	c := l.call(t, nil, nil).challenge()
	payload := l.payer.sign(t, c, 0, nil)
	require.Equal(t, product, l.call(t, nil, meta(c, payload)).text)
	require.Zero(t, store.lookUps.Load())
	require.EqualValues(t, -32602, l.call(t, nil, meta(c, payload)).Code)
	require.EqualValues(t, 1, store.lookUps.Load())
}

// The newest payments are remembered, and not all that there ever were.
func TestSeenPaymentsAreBounded(t *testing.T) {
	p := newSeenPayments()
	require.False(t, p.has("0"))
	const many = 3*maxSeen + maxSeen/2
	for i := range many {
		p.add(strconv.Itoa(i))
	}
	for i := many - maxSeen; i < many; i++ {
		require.True(t, p.has(strconv.Itoa(i)))
	}
	require.False(t, p.has("0"))
	require.LessOrEqual(t, len(p.now)+len(p.older), 2*maxSeen)
}
