package book

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

func testSale(trace string, micro uint64) Sale {
	return Sale{
		UniqueKey: trace, Resource: "mcp://tool/search", Network: "eip155:84532", Scheme: "exact",
		Asset: "0xasset", Symbol: "USDC",
		Amount: money.NewAmount(micro), Price: money.Dollars(micro), PayTo: "0xus", Payer: "0xthem",
		Requirement: []byte("{}"), Payload: []byte(`{"a":1}`),
	}
}

// oneOpens has many goroutines of two processes (two openings of one book) open at once: one does, and the
// others are told why not.
func oneOpens(t *testing.T, b *Book, open func(i int, b *Book) error, why func(err error) bool) {
	other := besides(t, b)
	var opened, refused atomic.Int32
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			switch err := open(i, []*Book{b, other}[i%2]); {
			case err == nil:
				opened.Add(1)
			case why(err):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, []int32{1, 19}, []int32{opened.Load(), refused.Load()})
}

// One payment has one run, whoever shows it.
func TestOnePaymentOneSale(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		oneOpens(t, b, func(_ int, b *Book) error {
			return must.Err(b.OpenSale(t.Context(), testSale("nonce", 1000)))
		}, func(err error) bool {
			var sold *AlreadySold
			return errors.As(err, &sold) && sold.Sale.State == SaleRunning &&
				string(sold.Sale.Payload) == `{"a":1}`
		})
	})
}

func TestSaleMoves(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		all := []SaleState{SaleRunning, SaleSettling, SaleSettled, SaleUnknown, SaleFailed, SaleVerified}
		for i, path := range [][]SaleState{{}, {SaleSettling}, {SaleSettling, SaleSettled},
			{SaleSettling, SaleUnknown},
			{SaleSettling, SaleFailed}, {SaleFailed}, {SaleVerified}} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				for _, to := range all {
					sale := must.Get(b.OpenSale(t.Context(), testSale(fmt.Sprint(path, to), 1)))(t)
					from := SaleRunning
					for _, state := range path {
						sale.State, from = state, state
						require.NoError(t, b.MoveSale(t.Context(), sale))
					}
					sale.State, sale.Note = to, "why"
					err := b.MoveSale(t.Context(), sale)
					allowed := map[SaleState]string{SaleRunning: "settling failed verified",
						SaleSettling: "settled unknown failed", SaleUnknown: "unknown settled failed",
						SaleSettled: "settled"}[from]
					if slices.Contains(strings.Fields(allowed), string(to)) {
						require.NoError(t, err, "%s → %s", from, to)
						again, err := b.SaleByKey(t.Context(), sale.UniqueKey)
						require.NoError(t, err)
						require.Equal(t, to, again.State)
						require.Equal(t, "why", again.Note)
					} else {
						require.ErrorIs(t, err, ErrTransition, "%s → %s", from, to)
					}
				}
			})
		}
		require.ErrorIs(t, b.MoveSale(t.Context(), Sale{ID: "sale_none", State: SaleSettled}), ErrNotFound)
		require.ErrorIs(t, must.Err(b.SaleByKey(t.Context(), "none")), ErrNotFound)

		// What was sold can be asked for again for an hour.
		sale := must.Get(b.OpenSale(t.Context(), testSale("answered", 1)))(t)
		sale.State, sale.Answer = SaleSettling, []byte("weather")
		require.NoError(t, b.MoveSale(t.Context(), sale))
		again := must.Get(b.SaleByKey(t.Context(), sale.UniqueKey))(t)
		require.Equal(t, "weather", string(again.Answer))
		sale.State, sale.Answer = SaleSettled, nil
		require.NoError(t, b.MoveSale(t.Context(), sale))
		again = must.Get(b.SaleByKey(t.Context(), sale.UniqueKey))(t)
		require.Equal(t, "weather", string(again.Answer))
		clock.set(clock.now().Add(keepAnswers + time.Minute))
		must.Get(b.OpenSale(t.Context(), testSale("later", 1)))(t)
		again = must.Get(b.SaleByKey(t.Context(), sale.UniqueKey))(t)
		require.Nil(t, again.Answer)

		// A run that asked for more has not been one.
		sale = must.Get(b.OpenSale(t.Context(), testSale("again", 1)))(t)
		require.NoError(t, b.DropSale(t.Context(), sale.ID))
		sale = must.Get(b.OpenSale(t.Context(), testSale("again", 1)))(t)
		sale.State = SaleSettling
		require.NoError(t, b.MoveSale(t.Context(), sale))
		require.NoError(t, b.DropSale(t.Context(), sale.ID))
		_, err := b.SaleByKey(t.Context(), sale.UniqueKey)
		require.NoError(t, err, "what may have been settled is never forgotten")
	})
}

// Sales that share a transaction need no savepoints: of one payment one is opened, a move that is not allowed
// writes nothing, and neither spoils what the others wrote.
func TestSalesTogether(t *testing.T) {
	b, _ := inFile(t)
	closed := must.Get(b.OpenSale(t.Context(), testSale("closed", 1)))(t)
	closed.State = SaleFailed
	require.NoError(t, b.MoveSale(t.Context(), closed))
	release := occupy(b)
	const each = 8
	var all sync.WaitGroup
	var opened, used, refused atomic.Int64
	for i := range each {
		all.Go(func() {
			_, err := b.OpenSale(context.Background(), testSale("same", 1))
			var sold *AlreadySold
			if errors.As(err, &sold) && sold.Sale.UniqueKey == testSale("same", 1).UniqueKey {
				used.Add(1)
			} else if assert.NoError(t, err) {
				opened.Add(1)
			}
		})
		all.Go(func() {
			moved := closed
			moved.State, moved.Note = SaleSettled, "never"
			if assert.ErrorIs(t, b.MoveSale(context.Background(), moved), ErrTransition) {
				refused.Add(1)
			}
		})
		all.Go(func() {
			_, err := b.OpenSale(context.Background(), testSale(fmt.Sprint("other ", i), 1))
			assert.NoError(t, err)
		})
	}
	gathered := func() bool { return b.db.Waiting() == 3*each }
	require.Eventually(t, gathered, time.Minute, time.Millisecond)
	release()
	all.Wait()
	require.Equal(t, []int64{1, each - 1, each}, []int64{opened.Load(), used.Load(), refused.Load()})
	list, _, _, err := b.Sales(t.Context(), SaleFilter{})
	require.NoError(t, err)
	require.Len(t, list, 1+1+each)
	is := must.Get(b.SaleByKey(t.Context(), closed.UniqueKey))(t)
	require.Equal(t, SaleFailed, is.State)
	require.Empty(t, is.Note)
}

func TestSales(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		for i, to := range []SaleState{SaleSettled, SaleSettled, SaleUnknown, SaleFailed} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				sale := testSale(fmt.Sprint(i), uint64(1000*(i+1)))
				if i == 1 {
					sale.Resource = "mcp://tool/report"
				}
				sale = must.Get(b.OpenSale(t.Context(), sale))(t)
				sale.State = SaleSettling
				require.NoError(t, b.MoveSale(t.Context(), sale))
				sale.State, sale.Transaction, sale.Receipt = to, "0xtx", []byte(`{"success":true}`)
				require.NoError(t, b.MoveSale(t.Context(), sale))
			})
		}
		list, more, earned, err := b.Sales(t.Context(), SaleFilter{})
		require.NoError(t, err)
		require.Len(t, list, 4)
		require.False(t, more)
		require.Equal(t, SaleFailed, list[0].State, "newest first")
		require.Equal(t, map[string]money.Dollars{"USDC": 3000}, earned, "only what is settled is earned")
		list, more, earned, err = b.Sales(t.Context(), SaleFilter{Limit: 1, Before: list[0].ID})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.True(t, more)
		require.Equal(t, SaleUnknown, list[0].State)
		require.Equal(t, money.Dollars(3000), earned["USDC"])
		list, _, earned, err = b.Sales(t.Context(), SaleFilter{Resource: "report", State: SaleSettled})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "0xtx", list[0].Transaction)
		require.Equal(t, money.Dollars(2000), earned["USDC"])
		list, _, _, err = b.Sales(t.Context(), SaleFilter{After: clock.now()})
		require.NoError(t, err)
		require.Empty(t, list)
		_, _, _, err = b.Sales(t.Context(), SaleFilter{Before: "sale_none"})
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// Of two payments that a payer gave one name one is a sale, in whatever process; another payer's names are
// other names, and a sale that failed keeps none.
func TestOneNameOneSale(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		named := func(key, name, payer string) Sale {
			sale := testSale(key, 1000)
			sale.Identifier, sale.Payer = name, payer
			return sale
		}
		oneOpens(t, b, func(i int, b *Book) error {
			return must.Err(b.OpenSale(t.Context(), named(fmt.Sprint(i), "a name", "a")))
		}, func(err error) bool {
			var sold *AlreadySold
			return errors.As(err, &sold) && sold.Sale.Identifier == "a name"
		})
		for _, sale := range []Sale{named("other payer", "a name", "b"), named("no payer", "a name", ""),
			named("no payer either", "a name", ""), named("other name", "b name", "a"),
			named("no name", "", "a"), named("no name either", "", "a")} {
			require.NoError(t, must.Err(b.OpenSale(t.Context(), sale)), sale.UniqueKey)
		}
		failed := must.Get(b.OpenSale(t.Context(), named("fails", "c name", "a")))(t)
		failed.State = SaleFailed
		require.NoError(t, b.MoveSale(t.Context(), failed))
		must.Get(b.OpenSale(t.Context(), named("after it", "c name", "a")))(t)
	})
}

// What a sale brought is what it was moved with, and that is what was earned.
func TestASaleOfLess(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, _ *clock) {
		sale := must.Get(b.OpenSale(t.Context(), testSale("upto", 1000)))(t)
		sale.Amount, sale.Price, sale.State = money.NewAmount(7), 7, SaleSettling
		require.NoError(t, b.MoveSale(t.Context(), sale))
		sale.State = SaleSettled
		require.NoError(t, b.MoveSale(t.Context(), sale))
		list, _, earned, err := b.Sales(t.Context(), SaleFilter{})
		require.NoError(t, err)
		require.Equal(t, "7", list[0].Amount.String())
		require.EqualValues(t, 7, earned["USDC"])
	})
}

// Who bought a call, and when: settled, for money, that call, that resource, that payer.
func TestSoldTo(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		call := [32]byte{1}
		sell := func(key string, state SaleState, change func(*Sale)) {
			t.Helper()
			sale := testSale(key, 1000)
			sale.Call = call
			if change != nil {
				change(&sale)
			}
			sale = must.Get(b.OpenSale(t.Context(), sale))(t)
			for _, state := range []SaleState{SaleSettling, state} {
				sale.State = state
				require.NoError(t, b.MoveSale(t.Context(), sale))
			}
		}
		start := clock.now()
		bought := func(since time.Time) bool {
			sale, err := b.SoldTo(t.Context(), "mcp://tool/search", call, "0xthem", since)
			if err != nil {
				require.ErrorIs(t, err, ErrNotFound)
				return false
			}
			require.Equal(t, "bought", sale.UniqueKey)
			return true
		}
		sell("another call", SaleSettled, func(s *Sale) { s.Call = [32]byte{2} })
		sell("another resource", SaleSettled, func(s *Sale) { s.Resource = "mcp://tool/other" })
		sell("another payer", SaleSettled, func(s *Sale) { s.Payer = "0xyou" })
		sell("nobody", SaleSettled, func(s *Sale) { s.Payer = "" })
		sell("for nothing", SaleSettled, func(s *Sale) { s.Amount = money.Amount{} })
		sell("failed", SaleFailed, nil)
		sell("open", SaleUnknown, nil)
		require.False(t, bought(start.Add(-time.Hour)))
		_, err := b.SoldTo(t.Context(), "mcp://tool/search", call, "", start.Add(-time.Hour))
		require.ErrorIs(t, err, ErrNotFound)
		sell("bought", SaleSettled, nil)
		require.True(t, bought(start.Add(-time.Hour)))
		require.False(t, bought(clock.now().Add(time.Minute)))
	})
}
