package tools

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// When the owner changed the rules the wallet is opened again; the old one is closed when its last
// call has ended.
func TestLazyFollowsTheRules(t *testing.T) { synctest.Test(t, lazyFollowsTheRules) }

func lazyFollowsTheRules(t *testing.T) {
	var stale, broken atomic.Bool
	var opened, closed atomic.Int32
	open := func(context.Context) (*Wallet, error) {
		if broken.Load() {
			return nil, errors.New("config.toml line 1: no")
		}
		opened.Add(1)
		stale.Store(false)
		return &Wallet{Stale: stale.Load, Close: func() error { closed.Add(1); return nil }}, nil
	}
	var l lazy
	first, end, err := l.get(t.Context(), open)
	require.NoError(t, err)
	again, endAgain, err := l.get(t.Context(), open)
	require.NoError(t, err)
	require.Same(t, first, again)
	endAgain()

	stale.Store(true)
	broken.Store(true)
	_, _, err = l.get(t.Context(), open)
	require.ErrorContains(t, err, "line 1", "rules that cannot be read are nobody's: not the old ones")
	last, endLast := l.last()
	require.Same(t, first, last.Wallet, "but what became of an answer is noted")
	endLast()

	broken.Store(false)
	second, endSecond, err := l.get(t.Context(), open)
	require.NoError(t, err)
	require.NotSame(t, first, second)
	require.Zero(t, closed.Load(), "a call is under way with it")
	end()
	end()
	require.EqualValues(t, 1, closed.Load())
	require.NoError(t, l.close())
	require.EqualValues(t, 1, closed.Load())
	endSecond()
	require.EqualValues(t, 2, closed.Load())
	require.EqualValues(t, 2, opened.Load())
	_, _, err = l.get(t.Context(), open)
	require.Error(t, err)
}

// The end of the program is the end of its ledger: what runs in the background is waited for, and
// what closing reports is logged.
func TestLazyCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lazy
		_, done, err := l.get(t.Context(), func(context.Context) (*Wallet, error) {
			return &Wallet{Close: func() error {
				time.Sleep(2 * closeTimeout)
				return errors.New("no room")
			}}, nil
		})
		require.NoError(t, err)
		s, end := l.last()
		done()
		go func() {
			<-s.retired
			time.Sleep(closeTimeout / 2)
			end()
		}()
		require.ErrorContains(t, l.close(), "no room")
		require.NoError(t, l.close(), "once")
	})
}

func TestLazyWait(t *testing.T) {
	var l lazy
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	s, _ := l.wait(ctx)
	require.Nil(t, s)
	w := &Wallet{}
	go func() {
		_, done, err := l.get(context.Background(), func(context.Context) (*Wallet, error) { return w, nil })
		if err == nil {
			done()
		}
	}()
	s, done := l.wait(t.Context())
	require.Same(t, w, s.Wallet)
	done()
}
