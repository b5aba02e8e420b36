package pay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

type oneAccount struct{ Channels }

func (oneAccount) Address() string { return "0xagent" }

// A channel is used by one call at a time, whichever of its seller's hosts it is for; and so are all of a
// host.
func TestAChannelOfTwoHostsIsUsedByOneCallAtATime(t *testing.T) {
	b := newBench(t, "1000", honest)
	b.Channels, b.ChannelBook = oneAccount{}, b.store
	unlock := must.Get(b.lockChannels(t.Context(), testNetwork, "a.example", "0x01"))(t)
	defer unlock()
	try := func(limit time.Duration, host, id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		unlock, err := b.lockChannels(ctx, testNetwork, host, id)
		if err == nil {
			unlock()
		}
		return err
	}
	code(t, x402.Timeout, try(50*time.Millisecond, "b.example", "0x01"))
	code(t, x402.Timeout, try(50*time.Millisecond, "a.example", "0x02"))
	require.NoError(t, try(time.Minute, "b.example", "0x02"))
	unlock()
	require.NoError(t, try(time.Minute, "b.example", "0x01"))
	require.NoError(t, try(time.Minute, "a.example", "0x01"))
}

// diary notes who has the channels of the host, and is told who wants them.
type diary struct {
	*history.Store
	wanted chan struct{}

	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) LockChannel(ctx context.Context, service, key string) (func(), error) {
	isHost := strings.HasPrefix(service, "batch-settlement ")
	if isHost {
		d.wanted <- struct{}{}
	}
	unlock, err := d.Store.LockChannel(ctx, service, key)
	if err != nil || !isHost {
		return unlock, err
	}
	d.note("locked")
	return func() { d.note("unlocked"); unlock() }, nil
}

// A seller that counts from another sum refuses a voucher. Until the call has had its second try, no other
// call uses the channel.
func TestBuyRecounted_KeepsTheChannel(t *testing.T) {
	b := channelBench(t)
	asked := b.Transport.(*channelSeller)
	asked.price, asked.least = "1000", "100000"
	rows := must.Get(b.store.BatchChannels(t.Context()))(t)
	count := fmt.Appendf(nil, `{"channelId":%q,"chargedCumulativeAmount":"1000"}`, rows[0].ID)
	refusal := &wire.Challenge{Accepts: []x402.Requirement{{Scheme: x402.BatchSettlement,
		Network: testNetwork, Extra: map[string]json.RawMessage{"channelState": count}}}}
	log := &diary{Store: b.store, wanted: make(chan struct{}, 9)}
	b.ChannelBook = log
	serve, other := b.seller.script, make(chan error, 1)
	b.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		log.note("presented")
		if len(s.sent()) > 2 { // the bench's own is the first
			return serve(s, nonce, amount)
		}
		<-log.wanted
		go func() {
			_, err := b.Pay(t.Context(), Request{Request: get(testURL).Request, IdempotencyKey: "other"})
			other <- err
		}()
		<-log.wanted
		return &seller.Answer{Status: 402, Challenge: refusal}, nil
	}
	r := must.Get(b.Pay(t.Context(), Request{Request: get(testURL).Request, IdempotencyKey: "one"}))(t)
	require.Equal(t, StatusPaid, r.Status)
	require.NoError(t, <-other)
	require.Equal(t, []string{"locked", "presented", "presented", "unlocked", "locked", "presented",
		"unlocked"}, log.lines)
}
