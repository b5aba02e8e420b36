package notify

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/asking"
	"x402-wallet/history/content"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/turns"
	"x402-wallet/internal/child"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

func TestMain(m *testing.M) {
	if child.ExecConfined(os.Args[1:], os.Environ()) {
		os.Exit(126)
	}
	os.Exit(m.Run())
}

// fake is a way that notes what it is given, and does then what a test wants.
type fake struct {
	name string
	does func(ctx context.Context, n Notice) error

	mu   sync.Mutex
	told []Notice
}

func (f *fake) Name() (way, to string) { return "fake" + f.name, "nobody" }

func (f *fake) Tell(ctx context.Context, n Notice) error {
	f.mu.Lock()
	f.told = append(f.told, n)
	f.mu.Unlock()
	if f.does != nil {
		return f.does(ctx, n)
	}
	return nil
}

func (f *fake) notice(i int) Notice {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told[i]
}

// kinds are what it was told: a question by its host, of several how many they stand for.
func (f *fake) kinds() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.told {
		switch n.Kind {
		case string(alerts.Approval):
			list = append(list, n.Host)
		case kindMore:
			list = append(list, fmt.Sprint("+", n.More))
		default:
			list = append(list, n.Kind)
		}
	}
	return list
}

// ledger is a ledger with a notifier that begins when it is told to.
type ledger struct {
	*history.Store
	t    *testing.T
	home string
	n    *Notifier
}

func newLedger(t *testing.T, ways ...Way) *ledger {
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	return another(t, home, ways...)
}

func another(t *testing.T, home string, ways ...Way) *ledger {
	n := New(ways...)
	n.Sealed = func(context.Context) error { return nil }
	n.Log = slog.New(slog.DiscardHandler)
	s := must.Get(ledgers.Open(t.Context(), home, history.Options{Contents: content.Keeper{},
		Alerts: alerts.Writer{Wake: n.Wake}}))(t)
	n.Store = s
	t.Cleanup(func() { // of a test that failed
		n.Close(func() {})
		n.Ending.Wait()
		_ = s.Close()
	})
	return &ledger{Store: s, t: t, home: home, n: n}
}

// asks asks questions of these numbers; each is about a host of its own.
func (l *ledger) asks(first, last int) {
	l.t.Helper()
	for i := first; i <= last; i++ {
		host := fmt.Sprintf("h%d.example", i)
		must.Get(asking.Asker{Store: l.Store}.AskApproval(l.t.Context(), history.Approval{
			Quote: sha256.Sum256([]byte(host)),
			Host:  host, Method: "GET", URL: "https://" + host + "/", Price: money.Dollars(1),
			PayTo: "0xpayee", Agent: fmt.Sprintf("a%d", i/20), Why: "why"}))(l.t)
		time.Sleep(time.Millisecond) // of the bubble's time: no two at once
	}
}

func hosts(first, last int) (list []string) {
	for i := first; i <= last; i++ {
		list = append(list, fmt.Sprintf("h%d.example", i))
	}
	return list
}

func (l *ledger) ends() {
	l.n.Close(func() { require.NoError(l.t, l.Close()) })
	l.n.Ending.Wait()
}

func (l *ledger) state() alerts.Alert {
	l.t.Helper()
	list := must.Get(alerts.List(l.t.Context(), l.Store, 2))(l.t)
	require.Len(l.t, list, 1)
	return list[0]
}

// Whoever asks does not wait for a way that hangs, and the other ways are told meanwhile.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := &fake{name: "1", does: func(ctx context.Context, _ Notice) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		works := &fake{name: "2"}
		l := newLedger(t, hangs, works)
		l.asks(1, 2)
		l.n.Begin()
		begin := time.Now()
		synctest.Wait()
		require.Equal(t, hosts(1, 1), hangs.kinds())
		require.Equal(t, hosts(1, 2), works.kinds())
		l.n.Close(func() {})
		require.Zero(t, time.Since(begin))
		l.n.Ending.Wait()
		require.Equal(t, closeTime, time.Since(begin), "who hangs is waited for that long, and then given up")
		list := must.Get(alerts.List(t.Context(), l.Store, 2))(t)
		for _, a := range list {
			require.Equal(t, alerts.Waiting, a.State, "it is the next process's to tell")
			require.Zero(t, a.Attempts)
		}
		require.NoError(t, l.Close())
	})
}

// A flood is a few notices a minute, and then one for all the others, whichever processes ask.
func TestAFloodIsSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		one := newLedger(t, way)
		two := another(t, one.home, way)
		one.n.Begin()
		two.n.Begin()
		for i := range 100 {
			[]*ledger{one, two}[i%2].asks(i, i)
			synctest.Wait() // it keeps up with them
		}
		require.Equal(t, hosts(0, 5), way.kinds())
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		require.Len(t, way.kinds(), perMinute)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, append(hosts(0, 5), "+94"), way.kinds())

		one.asks(100, 106)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, way.kinds(), 2*perMinute, "the sum counts as one of the next minute")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, "+2", way.kinds()[2*perMinute])
		time.Sleep(time.Hour)
		two.asks(200, 200)
		synctest.Wait()
		require.Equal(t, hosts(200, 200), way.kinds()[2*perMinute+1:])
		one.ends()
		two.ends()
		require.Len(t, way.kinds(), 2*perMinute+2)
	})
}

// Of the one that waits at the minute's end is told itself; and a freeze is, however many questions wait.
func TestBeyondTheMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		l := newLedger(t, way)
		l.n.Begin()
		l.asks(1, perMinute+1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, hosts(1, perMinute+1), way.kinds())

		time.Sleep(2 * time.Minute)
		l.asks(11, 30)
		require.NoError(t, l.Freeze(t.Context(), history.Freeze{By: "agent", Why: "stop"}))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"freeze", "+14"}, way.kinds()[2*perMinute+1:])
		l.ends()
	})
}

// The end tells what waits, as one where it would have to wait for the minute's end; and only once.
func TestTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		l := newLedger(t, way)
		l.n.Begin()
		l.asks(1, 10)
		synctest.Wait()
		begin := time.Now()
		l.n.Close(func() { require.NoError(t, l.Close()) })
		l.n.Ending.Wait()
		require.Zero(t, time.Since(begin))
		require.Equal(t, append(hosts(1, 6), "+4"), way.kinds())

		next := another(t, l.home, way)
		next.n.Begin()
		next.asks(11, 12)
		synctest.Wait()
		next.ends()
		require.Len(t, way.kinds(), perMinute+1, "nor do short processes make a flood")

		last := another(t, l.home, way)
		last.n.Begin()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, "+2", way.kinds()[perMinute+1], "they wait for the next one")
		last.ends()
		unused := another(t, l.home, way)
		unused.ends()
	})
}

// What a process wrote and could not tell, the next one does, or one that runs within half a minute.
func TestAnotherProcessTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		runs := newLedger(t, way)
		runs.n.Begin()
		synctest.Wait()
		silent := another(t, runs.home) // it never begins
		silent.asks(1, 1)
		require.NoError(t, silent.Close())
		require.Empty(t, way.kinds())
		time.Sleep(lookEvery)
		synctest.Wait()
		require.Equal(t, hosts(1, 1), way.kinds())
		require.Equal(t, alerts.Told, runs.state().State)
		runs.ends()

		silent = another(t, runs.home)
		silent.asks(2, 2)
		require.NoError(t, silent.Close())
		next := another(t, runs.home, way)
		next.n.Begin()
		synctest.Wait()
		require.Equal(t, hosts(1, 2), way.kinds())
		next.ends()
	})
}

// One process tells at a time; where it hangs with its turn, the others do not tell the same.
func TestOneTellsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &fake{does: func(context.Context, Notice) error {
			time.Sleep(2 * turns.Time)
			return nil
		}}
		fast := &fake{}
		one := newLedger(t, slow)
		two := another(t, one.home, fast)
		one.n.Begin()
		one.asks(1, 1)
		synctest.Wait()
		two.n.Begin()
		two.n.Wake()
		time.Sleep(3 * turns.Time)
		synctest.Wait()
		require.Equal(t, hosts(1, 1), slow.kinds())
		require.Empty(t, fast.kinds())
		two.asks(2, 2)
		synctest.Wait()
		require.Equal(t, hosts(2, 2), fast.kinds(), "the turn was left")
		one.ends()
		two.ends()
	})
}

// Whose process dies with the turn keeps the others off until the turn is over.
func TestWhoDiesWithTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		dead := newLedger(t)
		must.Get(turns.Take(t.Context(), dead, turnName, "dead"))(t)
		dead.asks(1, 1)
		require.NoError(t, dead.Close())
		l := another(t, dead.home, way)
		l.n.Begin()
		time.Sleep(turns.Time - 2*time.Second)
		synctest.Wait()
		require.Empty(t, way.kinds())
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(t, hosts(1, 1), way.kinds())
		l.ends()
	})
}

// A way that fails is tried three times, by the same notice, and then given up; the others tell once.
func TestAWayThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := func(context.Context, Notice) error { return errors.New("no") }
		fails := &fake{name: "1", does: no}
		panics := &fake{name: "2", does: func(context.Context, Notice) error { panic("no") }}
		l := newLedger(t, fails, panics)
		l.n.Begin()
		l.asks(1, 1)
		for i, wait := range append(tryAgain[:], time.Hour) {
			synctest.Wait()
			require.Len(t, fails.kinds(), i+1)
			require.Len(t, panics.kinds(), i+1)
			require.Equal(t, fails.notice(0), fails.notice(i))
			time.Sleep(wait)
		}
		synctest.Wait()
		require.Len(t, fails.kinds(), alerts.MaxTries)
		require.Equal(t, alerts.Failed, l.state().State)
		outcomes := l.n.Test(t.Context())
		require.EqualError(t, outcomes[0].Err, "no")
		require.Error(t, outcomes[1].Err)
		l.ends()

		works := &fake{name: "1"}
		fails = &fake{name: "2", does: no}
		l = newLedger(t, works, fails)
		l.n.Begin()
		l.asks(1, 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, works.kinds(), 1)
		require.Len(t, fails.kinds(), alerts.MaxTries)
		require.Equal(t, alerts.Told, l.state().State)
		l.ends()
	})
}

// Nobody is told of what was answered before.
func TestWhatWasAnsweredIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		l := newLedger(t, way)
		l.asks(1, 1)
		must.Get(l.Deny(t.Context(), l.state().Subject, "owner"))(t)
		l.n.Begin()
		synctest.Wait()
		require.Empty(t, way.kinds())
		require.Equal(t, alerts.Over, l.state().State)
		l.ends()
	})
}

// By rules that the owner did not seal nobody is told, until they are; and of the owner's own freeze nobody.
func TestWhoIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		l := newLedger(t, way)
		sealed := errors.New("not sealed")
		var mu sync.Mutex
		l.n.Sealed = func(context.Context) error { mu.Lock(); defer mu.Unlock(); return sealed }
		l.n.Begin()
		l.asks(1, 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, way.kinds())
		require.ErrorIs(t, l.n.Test(t.Context())[0].Err, sealed)
		require.Zero(t, l.state().Attempts)
		mu.Lock()
		sealed = nil
		mu.Unlock()
		require.NoError(t, l.Freeze(t.Context(), history.Freeze{By: "owner", Why: "stop"}))
		time.Sleep(lookEvery)
		synctest.Wait()
		require.Equal(t, hosts(1, 1), way.kinds())
		require.NoError(t, l.Freeze(t.Context(),
			history.Freeze{Network: "n", Account: "a", By: "agent", Why: "stop"}))
		synctest.Wait()
		require.Equal(t, append(hosts(1, 1), "freeze"), way.kinds())
		l.ends()
	})
}

func TestThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		l := newLedger(t, way)
		l.n.Page = func(id string) string { return "https://wallet.example/" + id }
		l.asks(3, 3)
		l.n.Begin()
		synctest.Wait()
		require.Equal(t, "https://wallet.example/"+l.state().Subject, way.notice(0).Page)
		l.ends()
	})
}
