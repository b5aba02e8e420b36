package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/child"
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
	does func(ctx context.Context) error

	mu   sync.Mutex
	told []Notice
}

func (f *fake) Name() (way, to string) { return "fake", "nobody" }

func (f *fake) Tell(ctx context.Context, n Notice) error {
	f.mu.Lock()
	f.told = append(f.told, n)
	f.mu.Unlock()
	if f.does != nil {
		return f.does(ctx)
	}
	return nil
}

// kinds are what it was told: an approval by its ID, of others how many they stand for.
func (f *fake) kinds() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.told {
		switch n.Kind {
		case kindApproval:
			list = append(list, n.ID)
		case kindMore:
			list = append(list, fmt.Sprint("+", n.More))
		default:
			list = append(list, n.Kind)
		}
	}
	return list
}

func notifier(ways ...Way) *Notifier {
	n := New(ways...)
	n.Sealed = func(context.Context) error { return nil }
	n.Log = slog.New(slog.DiscardHandler)
	return n
}

func question(id int) history.Approval {
	price, _ := money.ParseDollars("0.5")
	return history.Approval{ID: fmt.Sprint("apr_", id), Host: "api.example", Price: price, PayTo: "0xpayee",
		Method: "GET", URL: "https://api.example/secret?token=canary", Agent: "research",
		Why: "the agent research asks for it: the price $0.50 is above what is paid without asking, " +
			"$0.10",
		Created: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
		Expires: time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)}
}

// A notice has what a person needs to decide whether to look, and of the URL the host alone.
func TestWhatIsTold(t *testing.T) {
	n := approval(question(1), "https://wallet.example/approve/apr_1")
	line, err := n.line()
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"approval","id":"apr_1","at":"2026-11-26T08:00:00Z","price":"$0.50",
		"host":"api.example","agent":"research","expiresAt":"2026-11-27T08:00:00Z",
		"why":"the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10",
		"command":"x402-wallet approve apr_1","page":"https://wallet.example/approve/apr_1",
		"text":"Pay $0.50 to \"api.example\"? Asked because the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10. Open until 2026-11-27T08:00:00Z. By: x402-wallet approve apr_1 or https://wallet.example/approve/apr_1"}`,
		string(line))
	require.Equal(t, byte('\n'), line[len(line)-1])
	require.NotContains(t, string(line), "canary")

	signIn := history.Approval{ID: "apr_2", Host: "api.example", Why: "why"}
	require.Contains(t, approval(signIn, "").Text, `Sign in, for nothing, at "api.example"?`)
	f := freeze(history.Freeze{By: "breaker", Why: "20 payments in a row came to nothing"})
	require.Equal(t, "Payments of the whole wallet are stopped, by the breaker: 20 payments in a row came "+
		"to nothing. By: x402-wallet unfreeze", f.Text)
	require.Equal(t, "And 7 more wait. By: x402-wallet approvals", more(7).Text)
}

// What strangers wrote stays one line of plain letters, and has a bound.
func TestHostileWords(t *testing.T) {
	hostile := "evil\u202e\n\x1b[2J<a href='x'>\u200b$(reboot)`id`" + strings.Repeat("\U000e0041", 5000)
	a := question(1)
	a.Host, a.Agent, a.Why = hostile, hostile, "the seller writes: "+hostile
	f := history.Freeze{Network: hostile, Account: hostile, By: hostile, Why: hostile}
	for _, n := range []Notice{approval(a, ""), freeze(f)} {
		line, err := n.line()
		require.NoError(t, err)
		require.Less(t, len(line), 4000)
		require.Equal(t, 1, strings.Count(string(line), "\n"))
		var read map[string]any
		require.NoError(t, json.Unmarshal(line, &read))
		for key, value := range read {
			for _, r := range fmt.Sprint(value) {
				require.True(t, r >= ' ' && r <= '~', "%s has %q", key, r)
			}
		}
	}
	require.Contains(t, approval(a, "").Text, `to "evil\u202e\n\x1b`)
}

// Whoever asks does not wait for a way that hangs, and the other ways are told meanwhile.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := &fake{does: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		works := &fake{}
		n := notifier(hangs, works)
		begin := time.Now()
		n.Asked(question(1))
		n.Asked(question(2))
		require.Zero(t, time.Since(begin))
		synctest.Wait()
		require.Equal(t, []string{"apr_1"}, hangs.kinds())
		require.Equal(t, []string{"apr_1", "apr_2"}, works.kinds())
		n.Close()
		require.Zero(t, time.Since(begin))
		n.Ending.Wait()
		require.Equal(t, closeTime, time.Since(begin), "who hangs is waited for that long, and then given up")
	})
}

// A flood is a few notices a minute, and then one for all the others.
func TestAFloodIsSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		n := notifier(way)
		defer n.Close()
		first := []string{"apr_0", "apr_1", "apr_2", "apr_3", "apr_4", "apr_5"}
		for i := range 100 {
			n.Asked(question(i))
			synctest.Wait() // it keeps up with them
		}
		require.Equal(t, first, way.kinds())
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		require.Len(t, way.kinds(), perMinute)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, append(first, "+94"), way.kinds())

		for i := 100; i < 107; i++ {
			n.Asked(question(i))
		}
		synctest.Wait()
		require.Len(t, way.kinds(), 2*perMinute, "the sum counts as one of the next minute")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, "+2", way.kinds()[2*perMinute])
		time.Sleep(time.Hour)
		n.Asked(question(200))
		synctest.Wait()
		require.Equal(t, "apr_200", way.kinds()[2*perMinute+1])
	})
}

// Of the one that waits at the minute's end is told itself.
func TestOneBeyondTheMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		n := notifier(way)
		defer n.Close()
		for i := range perMinute + 1 {
			n.Asked(question(i))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, "apr_6", way.kinds()[perMinute])
	})
}

// A way that takes long piles nothing up: what it cannot keep up with is counted.
func TestASlowWayPilesNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{does: func(context.Context) error { time.Sleep(50 * time.Second); return nil }}
		n := notifier(way)
		for i := range 10_000 {
			n.Asked(question(i))
		}
		n.lines[0].mu.Lock()
		require.LessOrEqual(t, len(n.lines[0].waiting), maxWaiting)
		n.lines[0].mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		told := way.kinds()
		require.Equal(t, fmt.Sprint("+", 10_000-(len(told)-1)), told[len(told)-1], "and none is forgotten")
		n.Close()
	})
}

// The end tells what waits, as one where it has to wait for the minute's end otherwise.
func TestTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		n := notifier(way)
		for i := range 10 {
			n.Asked(question(i))
		}
		begin := time.Now()
		n.Close()
		n.Sealed = func(context.Context) error { t.Error("its ledger is closed"); return nil }
		n.Ending.Wait()
		require.Zero(t, time.Since(begin))
		require.Equal(t, "+4", way.kinds()[perMinute])
		n.Asked(question(11))
		n.Close()
		synctest.Wait()
		require.Len(t, way.kinds(), perMinute+1)

		unused := notifier(way)
		unused.Close()
		unused.Asked(question(12))
		synctest.Wait()
		require.Len(t, way.kinds(), perMinute+1)
	})
}

// What is told at the end is told by what was sealed then.
func TestTheEndUnderRulesThatNobodySealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		n := notifier(way)
		n.Sealed = func(context.Context) error { return errors.New("not sealed") }
		n.Asked(question(1))
		n.Close()
		n.Ending.Wait()
		require.Empty(t, way.kinds())
	})
}

// By rules that the owner did not seal nobody is told; and of the owner's own freeze neither.
func TestWhoIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &fake{}
		n := notifier(way)
		sealed := errors.New("not sealed")
		n.Sealed = func(context.Context) error { return sealed }
		n.Asked(question(1))
		synctest.Wait()
		require.Empty(t, way.kinds())
		require.ErrorIs(t, n.Test(t.Context())[0].Err, sealed)
		sealed = nil
		n.Frozen(history.Freeze{By: "owner", Why: "stop"})
		n.Frozen(history.Freeze{By: "agent", Why: "stop"})
		synctest.Wait()
		require.Equal(t, []string{kindFreeze}, way.kinds())
		n.Close()
	})
}

// A way that fails or panics takes nothing else with it.
func TestAWayThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := &fake{does: func(context.Context) error { return errors.New("no") }}
		panics := &fake{does: func(context.Context) error { panic("no") }}
		n := notifier(fails, panics)
		for i := range 2 {
			n.Asked(question(i))
		}
		synctest.Wait()
		require.Len(t, fails.kinds(), 2)
		require.Len(t, panics.kinds(), 2)
		outcomes := n.Test(t.Context())
		require.EqualError(t, outcomes[0].Err, "no")
		require.Error(t, outcomes[1].Err)
		n.Close()
	})
}

// The page is that of the approval.
func TestThePage(t *testing.T) {
	way := &fake{}
	n := notifier(way)
	n.Page = func(id string) string { return "https://wallet.example/" + id }
	n.Asked(question(3))
	n.Close()
	n.Ending.Wait()
	require.Equal(t, "https://wallet.example/apr_3", way.told[0].Page)
}
