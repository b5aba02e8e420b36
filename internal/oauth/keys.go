package oauth

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	// keysFresh is how long keys are used before they are fetched again.
	keysFresh = 10 * time.Minute
	// keysStale is how long they are used if the server does not answer.
	keysStale = 4 * time.Hour
	// keysPause is the least time between two fetches, whatever tokens name.
	keysPause = time.Minute
	// keysTime bounds one fetch.
	keysTime = 5 * time.Second
)

type keys struct {
	fetch func(context.Context) (map[string]key, error)
	log   *slog.Logger

	mu       sync.Mutex
	known    map[string]key
	since    time.Time     // when they were fetched
	tried    time.Time     // when that was tried last
	fetching chan struct{} // is closed when the fetch that goes on has ended; nil: none does
}

func newKeys(s Server, log *slog.Logger) *keys {
	return &keys{fetch: newPublisher(s).keys, log: log}
}

var errNoKey = errors.New("its key is none of the authorization server's")

// find is the key with an ID. It waits for a fetch, which all who need one share, if the key is not known or
// was not looked at for a while.
func (k *keys) find(ctx context.Context, id string, now time.Time) (key, error) {
	fetching := k.refresh(id, now)
	if fetching != nil {
		select {
		case <-fetching:
		case <-ctx.Done():
			return key{}, ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.known[id]
	if !ok || now.Sub(k.since) > keysStale {
		return key{}, errNoKey
	}
	return found, nil
}

// refresh begins a fetch where one is due, and returns the one to wait for; nil: none.
func (k *keys) refresh(id string, now time.Time) chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.known[id]
	if known && now.Sub(k.since) < keysFresh {
		return nil
	}
	if k.fetching == nil && now.Sub(k.tried) >= keysPause {
		k.tried, k.fetching = now, make(chan struct{})
		go k.renew(now, k.fetching)
	}
	return k.fetching
}

// renew fetches the keys, by itself: who asked first may hang up, and others wait for the same.
func (k *keys) renew(now time.Time, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), keysTime)
	defer cancel()
	fetched, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.known, k.since = fetched, now
	} else {
		k.log.Warn("the authorization server's keys could not be fetched", "why", err)
	}
	k.fetching = nil
	close(done)
}
