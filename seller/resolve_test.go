package seller

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesAreRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{answers: [][]string{{"8.8.8.8"}, {"127.0.0.1"}}}
		h := newHTTP(Options{Resolver: f})
		first, err := h.resolve(t.Context(), "a.example", false)
		require.NoError(t, err)
		time.Sleep(nameLife - time.Nanosecond)
		again, err := h.resolve(t.Context(), "a.example", false)
		require.NoError(t, err)
		assert.Equal(t, first, again)
		assert.Len(t, f.lookups, 1)
		time.Sleep(time.Nanosecond)
		for range 2 { // what is remembered is checked like what is new
			_, err = h.resolve(t.Context(), "a.example", false)
			var stopped *blockedError
			require.ErrorAs(t, err, &stopped)
		}
		assert.Len(t, f.lookups, 2)
	})
}

func TestANameNobodyAnswersAtIsLookedUpAgain(t *testing.T) {
	f := &fakeNet{answers: [][]string{{"8.8.8.8"}}}
	h := newHTTP(Options{Resolver: f, dial: f.dial})
	for range 2 {
		_, err := h.dialContext(t.Context(), "tcp", "a.example:443")
		require.Error(t, err)
	}
	assert.Len(t, f.lookups, 2)
}

func TestFailuresOfNamesAreNotRemembered(t *testing.T) {
	f := &fakeNet{}
	n := newNames(f)
	for range 2 {
		_, err := n.LookupNetIP(t.Context(), "ip", "a.example")
		require.Error(t, err)
	}
	assert.Len(t, f.lookups, 2)
	assert.Empty(t, n.known)
}

func TestRememberedNamesAreBounded(t *testing.T) {
	n := newNames(&fakeNet{answers: [][]string{{"8.8.8.8"}}})
	for i := range maxNames + 10 {
		_, err := n.LookupNetIP(t.Context(), "ip", fmt.Sprintf("%d.example", i))
		require.NoError(t, err)
	}
	assert.Len(t, n.known, maxNames)
}

// slowNames answers when it is let, or its caller leaves.
type slowNames struct {
	mu    sync.Mutex
	asked int
	let   chan struct{}
}

func (s *slowNames) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	select {
	case <-s.let:
		return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestLookupsOfOneNameAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowNames{let: make(chan struct{})}
		n := newNames(slow)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := n.LookupNetIP(ctx, "ip", "a.example")
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for range 10 {
			all.Go(func() {
				ips, err := n.LookupNetIP(t.Context(), "ip", "a.example")
				assert.NoError(t, err)
				assert.Len(t, ips, 1)
			})
		}
		synctest.Wait()
		assert.Equal(t, 1, slow.asked)
		leave() // takes nobody else with it
		synctest.Wait()
		assert.Equal(t, 2, slow.asked)
		close(slow.let)
		all.Wait()
		assert.Equal(t, 2, slow.asked)
	})
}
