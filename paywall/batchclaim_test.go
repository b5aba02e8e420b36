package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
)

type busyClient struct {
	*facilitator.Client
	meanwhile func()
}

func (c *busyClient) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if does := c.meanwhile; does != nil && strings.Contains(string(s.Payload), `"settle"`) {
		c.meanwhile = nil
		does()
	}
	return c.Client.Settle(ctx, s)
}

// What is charged while a claim is under way stays owed.
func TestAChargeDuringAClaim(t *testing.T) {
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			var client *busyClient
			l := newBatchLab(t, func(l *lab, o *Options) {
				change(o)
				client = &busyClient{Client: newFacilitators(l.Sandbox)}
				o.Facilitators = client
			})
			b := l.newBuyer(t)
			require.Equal(t, product, b.pay("deposit", 1000).text)
			client.meanwhile = func() { require.Equal(t, product, b.pay("voucher", 2000).text) }
			must.Get(l.paywall.Claim(t.Context()))(t)
			require.Equal(t, uint64(1000), l.owed(t))
			must.Get(l.paywall.Claim(t.Context()))(t)
			require.Equal(t, uint64(2000), l.Balance(l.PayToEVM))
		})
	}
}

// A claim that fails is owed still, and one that was claimed and not paid out is paid out by the next.
func TestAClaimThatFails(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	working := l.paywall.options.Facilitators
	for _, kind := range []string{`"claim"`, `"settle"`} {
		l.paywall.options.Facilitators = refusing{newFacilitators(l.Sandbox), kind}
		require.ErrorContains(t, must.Err(l.paywall.Claim(t.Context())), l.PayToEVM)
		require.Zero(t, l.Balance(l.PayToEVM))
	}
	l.paywall.options.Facilitators = working
	done := must.Get(l.paywall.Claim(t.Context()))(t)
	require.Len(t, done, 1)
	require.Len(t, done[0].Transactions, 1)
	require.Equal(t, uint64(1000), l.Balance(l.PayToEVM))
}

type refusing struct {
	*facilitator.Client
	kind string
}

func (r refusing) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if strings.Contains(string(s.Payload), `"type":`+r.kind) {
		return facilitator.Result{Outcome: facilitator.Refused, Err: errors.New("refused")}
	}
	return r.Client.Settle(ctx, s)
}

// withdrawing is a facilitator that says of each channel that its payer takes the money back.
type withdrawing struct{ *facilitator.Client }

func (w withdrawing) Judge(ctx context.Context, s facilitator.Submission) (facilitator.Verdict, error) {
	v, err := w.Client.Judge(ctx, s)
	if v.Extra != nil {
		v.Extra["withdrawRequestedAt"] = json.RawMessage("1740672089")
	}
	return v, err
}

// Who takes their money back buys nothing more, and what was charged is claimed at once.
func TestAWithdrawalIsNoticed(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	before := l.Balance(l.PayToEVM)
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { l.paywall.KeepClaiming(ctx) })
	defer ended.Wait()
	defer stop()
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, before, l.Balance(l.PayToEVM), "nothing is due")
	l.paywall.options.Facilitators = withdrawing{newFacilitators(l.Sandbox)}
	require.Equal(t, batchWithdrawn, b.pay("voucher", 2000).challenge().Error)
	require.Eventually(t, func() bool { return l.Balance(l.PayToEVM) == before+1000 }, time.Minute,
		20*time.Millisecond)
	require.EqualValues(t, 1, l.runs.Load())
}

// A claim is due at an age, and at a sum.
func TestWhenAClaimIsDue(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *Options)
		later  time.Duration
		want   bool
	}{
		"young":           {func(*Options) {}, 59 * time.Minute, false},
		"an hour old":     {func(*Options) {}, time.Hour, true},
		"as old as said":  {func(o *Options) { o.ClaimAfter = time.Minute }, time.Minute, true},
		"less than a sum": {func(o *Options) { o.ClaimAbove = "0.001001" }, 0, false},
		"a sum":           {func(o *Options) { o.ClaimAbove = "0.001" }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newBatchLab(t, func(_ *lab, o *Options) { o.Store = nil; c.change(o) })
			require.False(t, l.paywall.isClaimDue(t.Context()))
			require.Equal(t, product, l.newBuyer(t).pay("deposit", 1000).text)
			l.paywall.now = func() time.Time { return time.Now().Add(c.later) }
			require.Equal(t, c.want, l.paywall.isClaimDue(t.Context()))
		})
	}
}

func TestCloseClaims(t *testing.T) {
	l := newBatchLab(t, nil)
	require.Equal(t, product, l.newBuyer(t).pay("deposit", 1000).text)
	before := l.Balance(l.PayToEVM)
	require.NoError(t, l.paywall.Close(t.Context()))
	require.Equal(t, before+1000, l.Balance(l.PayToEVM))
}

// emptied is a facilitator on whose chain nothing can be claimed out of one channel.
type emptied struct {
	*facilitator.Client
	payer string
}

func (e emptied) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if strings.Contains(string(s.Payload), `"type":"claim"`) && strings.Contains(string(s.Payload), e.payer) {
		return facilitator.Result{Outcome: facilitator.Refused, Err: errors.New("ClaimExceedsBalance()")}
	}
	return e.Client.Settle(ctx, s)
}

// A channel that cannot be claimed out of keeps nobody else's money; it stays owed.
func TestAnEmptyChannel(t *testing.T) {
	l := newBatchLab(t, nil)
	buyers := []*channelBuyer{}
	for range 3 {
		b := l.newBuyer(t)
		require.Equal(t, product, b.pay("deposit", 1000).text)
		buyers = append(buyers, b)
	}
	working := l.paywall.options.Facilitators
	l.paywall.options.Facilitators = emptied{newFacilitators(l.Sandbox), buyers[1].key.address}
	done, err := l.paywall.Claim(t.Context())
	require.ErrorContains(t, err, buyers[1].id())
	require.Len(t, done, 1)
	require.Equal(t, 2, done[0].Channels)
	require.Equal(t, uint64(2000), l.Balance(l.PayToEVM))
	require.Equal(t, uint64(1000), l.owed(t))
	l.paywall.options.Facilitators = working
}
