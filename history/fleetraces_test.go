package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/x402"
)

// What wallets of several homes do at once, by the server's own clock.

// fleetOf is stores of as many homes, on one ledger.
func fleetOf(t *testing.T, homes int) (list []*Store) {
	t.Helper()
	first, f := newFleet(t)
	list = append(list, first)
	for len(list) < homes {
		f.Writer = fmt.Sprint("home_", len(list))
		list = append(list, openFleet(t, f))
	}
	atOnce(8*homes, func(i int) { // whose connections are open by then
		_, err := list[i%homes].Freezes(context.Background())
		assert.NoError(t, err)
	})
	return list
}

// atOnce runs f so many times at once, and waits for all.
func atOnce(times int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range times {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

func verified(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.Verify(t.Context(), Head{})
	require.NoError(t, err)
}

// An approval lets one payment pass, whichever of the homes makes it, while others are asked and answered.
func TestAFleetUsesAnApprovalOnce(t *testing.T) {
	stores := fleetOf(t, 2)
	for round := range byte(4) {
		quote := 10 + round
		a := asking(t, stores[0], quote)
		since, err := stores[1].Approve(t.Context(), a.ID, byOwner, nil)
		require.NoError(t, err)
		var passed atomic.Int64
		atOnce(16, func(i int) {
			err := payApproved(stores[i%2], quote)
			switch {
			case err == nil:
				passed.Add(1)
			case !errors.Is(err, errNobodyApproved):
				t.Error(err)
			}
			host := fmt.Sprintf("h%d.example", round)
			_, err = naggingAs(t, stores[i%2], fmt.Sprint("agent", i), "GET", host, "/", 10)
			assert.NoError(t, err)
		})
		require.EqualValues(t, 1, passed.Load())
		head, err := stores[0].Head(t.Context())
		require.NoError(t, err)
		uses, err := stores[0].UsedBy(t.Context(), quoteOf(quote), since.Since, head)
		require.NoError(t, err)
		require.Len(t, uses, 1)
		used, err := stores[1].Approval(t.Context(), a.ID)
		require.NoError(t, err)
		require.Equal(t, []any{Used, uses[0]}, []any{used.State, used.Payment})
	}
	verified(t, stores[0])
}

// Once a freeze has returned nothing that another home signed is put on disk: 100 of 100.
func TestNoSubmitAfterAFreeze(t *testing.T) {
	const all = 100
	stores := fleetOf(t, 2)
	var held []Payment
	for range all + 1 {
		p, err := reserve(stores[1], testHold(1))
		require.NoError(t, err)
		held = append(held, p)
	}
	var frozen atomic.Bool
	var before, after, late atomic.Int64
	submit := func(p Payment) {
		was := frozen.Load()
		err := stores[1].Submit(
			context.Background(),
			p,
			Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
				UniqueKey: p.ID},
			testKeyholder(),
		)
		switch {
		case err == nil && was:
			late.Add(1)
		case err == nil:
			before.Add(1)
		case x402.HasCode(err, x402.WalletFrozen):
			after.Add(1)
		default:
			t.Error(err)
		}
	}
	atOnce(17, func(i int) {
		if i == 16 {
			for before.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			assert.NoError(t, stores[0].Freeze(context.Background(), Freeze{By: "owner", Why: "stop"}))
			frozen.Store(true)
			return
		}
		for n := i; n < all; n += 16 {
			submit(held[n])
		}
	})
	require.Zero(t, late.Load(), "submitted after the freeze returned")
	require.EqualValues(t, all, before.Load()+after.Load())
	submit(held[all])
	require.EqualValues(t, all+1, before.Load()+after.Load())
	_, err := stores[0].Unfreeze(t.Context(), nil)
	require.NoError(t, err)
	frozen.Store(false)
	submit(held[all])
	require.Positive(t, before.Load())
	require.EqualValues(t, all+2, before.Load()+after.Load(), "it was lifted")
	verified(t, stores[0])
}

// A freeze returns only when what was being put on disk meanwhile is there, or is not.
func TestAFreezeWaitsForASubmit(t *testing.T) {
	stores := fleetOf(t, 2)
	signs, freezes := stores[0], stores[1]
	p, err := reserve(signs, testHold(1))
	require.NoError(t, err)
	q, err := signs.fleet.submission(
		p,
		budget.Facts{},
		p,
		Signed{Payload: []byte(`{}`), UniqueKey: "x"},
		"",
		testKeyholder(),
	)
	require.NoError(t, err)
	returned := make(chan error, 1)
	waits := func(t *tx) (is bool, err error) {
		return t.is(`SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock')`)
	}
	require.NoError(t, signs.txRows(t.Context(), func(tx *tx) error {
		_, err := scanNumber(tx.row(`SELECT submit(?::jsonb)`, q))
		require.NoError(t, err)
		go func() { returned <- freezes.Freeze(context.Background(), Freeze{By: "owner", Why: "stop"}) }()
		for {
			select {
			case err := <-returned:
				t.Errorf("it returned before the submit had: %v", err)
				returned <- err
				return nil
			case <-time.After(5 * time.Millisecond):
			}
			if is, err := waits(tx); is || err != nil {
				return err
			}
		}
	}))
	require.NoError(t, <-returned)
	p, err = freezes.Payment(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, Submitted, p.State)
}

// Many freezes of the same at once are one, beside payments.
func TestAFleetFreezesOnce(t *testing.T) {
	stores := fleetOf(t, 2)
	atOnce(16, func(i int) {
		assert.NoError(t, stores[i%2].Freeze(context.Background(), Freeze{By: "breaker", Why: "why"}))
		_, err := reserve(stores[i%2], testHold(1))
		assert.True(t, x402.HasCode(err, x402.WalletFrozen), "%v", err)
	})
	list, err := stores[0].Freezes(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	lifted, err := stores[1].Unfreeze(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, lifted, 1)
	verified(t, stores[0])
}

// A hundred copies of one payment at three paywalls: one run, and 99 that had it before.
func TestAFleetSellsOnce(t *testing.T) {
	stores := fleetOf(t, 3)
	for name, sale := range map[string]func(i int) Sale{
		"one payment": func(int) Sale { return testSale("nonce", 1000) },
		"one name": func(i int) Sale {
			sale := testSale(fmt.Sprint("nonce ", i), 1000)
			sale.Identifier, sale.Payer = "a name", "a"
			return sale
		},
	} {
		t.Run(name, func(t *testing.T) {
			var first, before atomic.Int64
			atOnce(100, func(i int) {
				_, err := stores[i%3].OpenSale(context.Background(), sale(i))
				var sold *AlreadySold
				switch {
				case err == nil:
					first.Add(1)
				case errors.As(err, &sold) && sold.Sale.State == SaleRunning:
					before.Add(1)
				default:
					t.Error(err)
				}
			})
			require.Equal(t, []int64{1, 99}, []int64{first.Load(), before.Load()})
		})
	}
}

// Of many who come with vouchers for a channel that nobody knows yet, at two paywalls, one has it.
func TestAFleetHoldsAChannelOnce(t *testing.T) {
	stores := fleetOf(t, 2)
	for round := range 8 {
		var first, busy atomic.Int64
		c := testSoldChannel(0)
		c.ID = fmt.Sprint(round)
		atOnce(16, func(i int) {
			sale := testSale(fmt.Sprint(round, " ", i), 1000)
			_, err := stores[i%2].OpenChannelSale(context.Background(), sale, c, time.Now().Add(time.Minute))
			switch {
			case err == nil:
				first.Add(1)
			case errors.Is(err, ErrChannelBusy):
				busy.Add(1)
			default:
				t.Error(err)
			}
		})
		require.Equal(t, []int64{1, 15}, []int64{first.Load(), busy.Load()})
	}
}

// A hundred payments at once where no session is open begin one.
func TestAFleetBeginsOneSession(t *testing.T) {
	stores := fleetOf(t, 2)
	var sessions sync.Map
	atOnce(100, func(i int) {
		for {
			p, err := reserve(stores[i%2], testHold(1))
			if errors.Is(err, ErrMoved) {
				continue
			}
			if assert.NoError(t, err) {
				sessions.Store(p.Session, true)
			}
			return
		}
	})
	n := 0
	sessions.Range(func(any, any) bool { n++; return true })
	require.Equal(t, 1, n)
	verified(t, stores[1])
}

// Whoever has a channel's turn keeps it while it works, and whoever waits has it when it is left.
func TestAFleetsTurns(t *testing.T) {
	stores := fleetOf(t, 2)
	var inside, most atomic.Int64
	atOnce(8, func(i int) {
		unlock, err := stores[i%2].LockChannel(context.Background(), "a", "b")
		if !assert.NoError(t, err) {
			return
		}
		most.Store(max(most.Load(), inside.Add(1)))
		time.Sleep(5 * time.Millisecond)
		inside.Add(-1)
		unlock()
	})
	require.EqualValues(t, 1, most.Load())
}

// Of many vouchers under one nonce one is kept, with its payment; the others' payments are as they were.
func TestAFleetPromisesOnce(t *testing.T) {
	stores := fleetOf(t, 2)
	held := map[int]Payment{}
	for i := range 8 {
		var err error
		held[i], err = reserve(stores[i%2], testHold(100))
		require.NoError(t, err)
	}
	var kept, refused atomic.Int64
	atOnce(8, func(i int) {
		c := testChannel(1)
		p, err := stores[i%2].RecordVoucher(context.Background(), held[i], Signed{
			Payload:     c.Signed,
			Requirement: []byte(`{}`),
			UniqueKey:   fmt.Sprint("voucher ", i),
		}, c, Outcome{State: Settled, Proof: Claimed},
			testKeyholder())
		switch {
		case err == nil && p.State == Settled:
			kept.Add(1)
		case errors.Is(err, errVoucherConflict):
			refused.Add(1)
		default:
			t.Error(err)
		}
	})
	require.Equal(t, []int64{1, 7}, []int64{kept.Load(), refused.Load()})
	open, err := stores[0].Unfinished(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, open, 7)
	verified(t, stores[1])
}
