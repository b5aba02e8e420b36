package wallet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// A hundred first payments derive once and are all signed.
func TestParallelFirstUse(t *testing.T) {
	w, f := newTestWallet(t)
	var asked atomic.Int32
	w.Sources = []Passphrase{func(context.Context) ([]byte, error) {
		asked.Add(1)
		time.Sleep(20 * time.Millisecond) // let the others come
		return []byte(keytest.Passphrase), nil
	}}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = w.signDigest(t.Context(), [32]byte{byte(i)})
			} else {
				_, err = w.signMessage(t.Context(), []byte{byte(i)})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, f.Calls)
	require.EqualValues(t, 1, asked.Load())
}

// A wrong passphrase file is tried once for all who wait, not a hundred times.
func TestParallelFailureIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newTestWallet(t)
		w.Sources = []Passphrase{func(context.Context) ([]byte, error) {
			time.Sleep(time.Second)
			return []byte("not the passphrase"), nil
		}}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { keytest.ExpectCode(t, w.Unlock(t.Context()), coded.InvalidPassphrase) })
		}
		wg.Wait()
		require.Equal(t, 1, f.Calls)
	})
}

// The cancelling of one who leads is not the failure of those who follow.
func TestFollowersOutliveTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newTestWallet(t)
		w.Sources = []Passphrase{func(ctx context.Context) ([]byte, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Minute):
				return []byte(keytest.Passphrase), nil
			}
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var leader, follower error
		var wg sync.WaitGroup
		wg.Go(func() { leader = w.Unlock(ctx) })
		synctest.Wait()
		wg.Go(func() { follower = w.Unlock(t.Context()) })
		wg.Wait()
		require.ErrorIs(t, leader, context.DeadlineExceeded)
		require.NoError(t, follower)
	})
}

// Who brings a passphrase of his own does not take part in others' failures, and
// a follower that gives up leaves.
func TestOwnSourceBesidesARunningAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newTestWallet(t)
		w.Sources = []Passphrase{func(context.Context) ([]byte, error) {
			time.Sleep(time.Minute)
			return nil, ErrNoPassphrase
		}}
		var configured, own, hasty error
		var wg sync.WaitGroup
		wg.Go(func() { configured = w.Unlock(t.Context()) })
		synctest.Wait()
		wg.Go(func() { own = w.Unlock(t.Context(), value(keytest.Passphrase)) })
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			hasty = w.Unlock(ctx)
		})
		wg.Wait()
		keytest.RequireCode(t, configured, coded.WalletLocked)
		require.NoError(t, own)
		require.ErrorIs(t, hasty, context.DeadlineExceeded)
	})
}

func TestSourcesInOrder(t *testing.T) {
	w, _ := newTestWallet(t)
	none := func(context.Context) ([]byte, error) { return nil, ErrNoPassphrase }
	broken := func(context.Context) ([]byte, error) { return nil, errors.New("no bus") }
	for name, tc := range map[string]struct {
		sources []Passphrase
		code    coded.Code
	}{
		"none at all":       {[]Passphrase{}, coded.WalletLocked},
		"all without":       {[]Passphrase{none, none}, coded.WalletLocked},
		"the second has it": {[]Passphrase{none, value(keytest.Passphrase), never(t)}, ""},
		"a wrong one ends it": {[]Passphrase{value("not the passphrase"), never(t)},
			coded.InvalidPassphrase},
		"a broken one ends it": {[]Passphrase{broken, never(t)}, coded.WalletLocked},
		"an empty one ends it": {[]Passphrase{func(context.Context) ([]byte, error) {
			return nil, nil
		}, never(t)}, coded.WalletLocked},
		"far too long, no KDF": {[]Passphrase{value(string(make([]byte, MaxPassphrase+1))), never(t)},
			coded.InvalidPassphrase},
		"an unnamed env variable": {[]Passphrase{value(""), value(keytest.Passphrase)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.Lock()
			w.Sources = tc.sources
			_, err := w.signDigest(t.Context(), [32]byte{})
			if tc.code == "" {
				require.NoError(t, err)
				return
			}
			keytest.RequireCode(t, err, tc.code)
			require.True(t, w.Locked())
		})
	}
}

func TestLockWipes(t *testing.T) {
	w, f := newTestWallet(t)
	w.Sources = []Passphrase{value(keytest.Passphrase)}
	require.NoError(t, w.Unlock(t.Context()))
	held := w.keys
	require.NotEqual(t, make([]byte, 64), []byte(held.Solana))
	w.Lock()
	require.True(t, w.Locked())
	require.Equal(t, make([]byte, 64), []byte(held.Solana))
	require.Equal(t, make([]byte, 32), held.EVM.Secret[:])
	require.Equal(t, [32]byte{}, *held.Seal)

	require.NoError(t, must.Err(w.signDigest(t.Context(), [32]byte{})), "the source answers again")
	require.Equal(t, 2, f.Calls)

	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	keytest.RequireCode(t, must.Err(w.signDigest(t.Context(), [32]byte{})), coded.WalletLocked)
	keytest.RequireCode(t, w.Unlock(t.Context(), never(t)), coded.WalletLocked)
}

// A lock while the passphrase is being asked for or stretched wins.
func TestLockOvertakesUnlock(t *testing.T) {
	w, _ := newTestWallet(t)
	keytest.RequireCode(t, w.Unlock(t.Context(), func(context.Context) ([]byte, error) {
		w.Lock()
		return []byte(keytest.Passphrase), nil
	}), coded.WalletLocked)
	require.True(t, w.Locked())
	keytest.RequireCode(t, w.Unlock(t.Context(), func(context.Context) ([]byte, error) {
		_ = w.Close()
		return []byte(keytest.Passphrase), nil
	}), coded.WalletLocked)
	require.True(t, w.Locked())
}

// Signing and locking at random: every signature is right or WALLET_LOCKED.
func TestSignAgainstLock(t *testing.T) {
	w, _ := newTestWallet(t)
	w.Sources = []Passphrase{value(keytest.Passphrase)}
	want := must.Get(w.signDigest(t.Context(), [32]byte{1}))(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				got, err := w.signDigest(t.Context(), [32]byte{1})
				if err != nil {
					keytest.ExpectCode(t, err, coded.WalletLocked)
				} else if got != want {
					t.Error("another signature")
				}
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			w.Lock()
		}
	})
	wg.Wait()
}

func TestAutoLock(t *testing.T) {
	for name, tc := range map[string]struct {
		idle        time.Duration
		every       time.Duration // a signature
		lockedAfter time.Duration
	}{
		"idle by default":          {0, 0, 15 * time.Minute},
		"idle as set":              {time.Minute, 0, time.Minute},
		"used, until the age":      {0, 10 * time.Minute, 8 * time.Hour},
		"age is at most 8 h":       {100 * time.Hour, 0, 8 * time.Hour},
		"negative is the default":  {-1, 0, 15 * time.Minute},
		"use just in time renews":  {time.Minute, 59 * time.Second, 8 * time.Hour},
		"use just too late is too": {time.Minute, 60 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := newTestWallet(t)
				w.Idle = tc.idle
				require.NoError(t, w.Unlock(t.Context(), value(keytest.Passphrase)))
				held := w.keys
				start := time.Now()
				if tc.every > 0 {
					go func() {
						for {
							time.Sleep(tc.every)
							if _, err := w.signDigest(t.Context(), [32]byte{}); err != nil {
								return
							}
						}
					}()
				}
				time.Sleep(tc.lockedAfter - time.Nanosecond)
				synctest.Wait()
				require.False(t, w.Locked(), "after %v", time.Since(start))
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				// by itself: nobody has asked
				require.Equal(t, make([]byte, 64), []byte(held.Solana))
				require.True(t, w.Locked())
				keytest.RequireCode(t, must.Err(w.signDigest(t.Context(), [32]byte{})), coded.WalletLocked)
				time.Sleep(tc.every) // let the signer see it
				synctest.Wait()
			})
		})
	}
}

// shiftMonotonic moves one of the two clocks in t, which package time never does.
func shiftMonotonic(t time.Time, d time.Duration) time.Time {
	inside := (*struct { // as in package time; the test sees if that changes
		wall uint64
		ext  int64 // monotonic nanoseconds
		loc  *time.Location
	})(unsafe.Pointer(&t))
	inside.ext += int64(d)
	return t
}

// The timer is asleep with the laptop, or the clock is set back: the time that
// passed by either clock counts.
func TestElapsed(t *testing.T) {
	from := time.Now()
	require.Equal(t, time.Hour, elapsed(from, from.Add(time.Hour)))
	asleep := shiftMonotonic(from.Add(time.Hour), -time.Hour)
	require.Zero(t, asleep.Sub(from))
	require.Equal(t, time.Hour, elapsed(from, asleep))
	setBack := shiftMonotonic(from.Add(-time.Hour), 2*time.Hour)
	require.Equal(t, time.Hour, elapsed(from, setBack))

	w, _ := newTestWallet(t)
	require.NoError(t, w.Unlock(t.Context(), value(keytest.Passphrase)))
	held, later := w.keys, time.Now().Add(defaultIdle)
	w.now = func() time.Time { return shiftMonotonic(later, -defaultIdle) }
	keytest.RequireCode(t, must.Err(w.signDigest(t.Context(), [32]byte{})), coded.WalletLocked)
	require.Equal(t, make([]byte, 64), []byte(held.Solana))
}

func TestWrongPassphrasesCostTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newTestWallet(t)
		wrong := value("not the passphrase")
		for range freeAttempts {
			keytest.RequireCode(t, w.Unlock(t.Context(), wrong), coded.InvalidPassphrase)
		}
		require.Equal(t, freeAttempts, f.Calls)
		e := keytest.RequireCode(t, w.Unlock(t.Context(), never(t)), coded.InvalidPassphrase)
		require.Contains(t, e.Error(), "5 wrong passphrases in a row; the next is tried in 1s")
		keytest.RequireCode(t, w.Confirm(t.Context(), never(t)), coded.InvalidPassphrase)
		waited := time.Duration(0)
		for range 10 {
			for {
				e := keytest.RequireCode(t, w.Unlock(t.Context(), wrong), coded.InvalidPassphrase)
				if e.Error() == coded.WrongPassphrase().Error() {
					break
				}
				time.Sleep(time.Second)
				waited += time.Second
			}
		}
		require.Equal(t, (1+2+4+8+16+32+4*60)*time.Second, waited)
		time.Sleep(maxBackoff)
		require.NoError(t, w.Unlock(t.Context(), value(keytest.Passphrase)))
		w.Lock()
		keytest.RequireCode(t, w.Unlock(t.Context(), wrong), coded.InvalidPassphrase)
		require.NoError(t, w.Unlock(t.Context(), value(keytest.Passphrase)), "the right one begins again")
	})
}

// confirm asks also when the key is held, and holds nothing.
func TestConfirm(t *testing.T) {
	w, f := newTestWallet(t)
	require.NoError(t, w.Confirm(t.Context(), value(keytest.Passphrase)))
	require.True(t, w.Locked())
	require.NoError(t, w.Unlock(t.Context(), value(keytest.Passphrase)))
	keytest.RequireCode(t, w.Confirm(t.Context(), value("not the passphrase")), coded.InvalidPassphrase)
	keytest.RequireCode(t, w.Confirm(t.Context(), value("")), coded.WalletLocked)
	require.NoError(t, w.Confirm(t.Context(), value(keytest.Passphrase)))
	require.False(t, w.Locked())
	require.Equal(t, 4, f.Calls)
}

// The file is read again when the passphrase is: another wallet in its place is
// not unlocked under this one's addresses.
func TestExchangedFile(t *testing.T) {
	w, _ := newTestWallet(t)
	data, _ := keytest.Golden(t)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, keystore.Name), data, 0o600))
	e := keytest.RequireCode(t, w.Unlock(t.Context(), never(t)), coded.KeystoreCorrupt)
	require.Contains(t, e.Error(), "other keys")
	require.NoError(t, os.Remove(filepath.Join(w.dir, keystore.Name)))
	keytest.RequireCode(t, w.Unlock(t.Context(), never(t)), coded.NotFound)
}

// A source that panics does not leave the wallet waiting for it.
func TestPanicInASource(t *testing.T) {
	w, _ := newTestWallet(t)
	require.Panics(t, func() {
		_ = w.Unlock(t.Context(), func(context.Context) ([]byte, error) { panic("no") })
	})
	require.NoError(t, w.Unlock(t.Context(), value(keytest.Passphrase)))
}

func TestCancelledUse(t *testing.T) {
	w, _ := newTestWallet(t)
	w.Sources = []Passphrase{never(t)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, must.Err(w.signMessage(ctx, nil)), context.Canceled)
}
