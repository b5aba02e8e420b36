package paywall

import (
	"context"
	"fmt"
	"sync"
	"time"

	"x402-wallet/history"
)

const (
	pruneAbove = 10_000         // from so many sales on, old ones are deleted
	pruneAge   = 2 * maxTimeout // what was settled no facilitator settles again; this forgets what was not
)

// memoryStore is a SaleStore that ends with its process.
type memoryStore struct {
	mu    sync.Mutex
	next  int
	sales map[string]history.Sale // by UniqueKey
	keys  map[string]string       // UniqueKey by ID
}

// NewMemoryStore returns a SaleStore in memory, which is safe for concurrent use. A payment that is
// presented to two processes, or once more after a restart, has two runs: no facilitator settles it
// twice, so the second gets nothing, but the tool has worked for it. A wallet's ledger
// (*history.Store) prevents that.
func NewMemoryStore() SaleStore {
	return &memoryStore{sales: map[string]history.Sale{}, keys: map[string]string{}}
}

func (m *memoryStore) OpenSale(_ context.Context, sale history.Sale) (history.Sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if earlier, there := m.sales[sale.UniqueKey]; there {
		return sale, &history.AlreadySold{Sale: earlier}
	}
	if len(m.sales) >= pruneAbove {
		for key, old := range m.sales {
			if time.Since(old.Created) > pruneAge {
				delete(m.sales, key)
				delete(m.keys, old.ID)
			}
		}
	}
	m.next++
	sale.ID = fmt.Sprintf("sale_%d", m.next)
	sale.State = history.SaleRunning
	sale.Created = time.Now()
	m.sales[sale.UniqueKey] = sale
	m.keys[sale.ID] = sale.UniqueKey
	return sale, nil
}

func (m *memoryStore) MoveSale(_ context.Context, sale history.Sale) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, there := m.sales[m.keys[sale.ID]]
	if !there {
		return history.ErrNotFound
	}
	if sale.Answer == nil {
		sale.Answer = stored.Answer
	}
	m.sales[m.keys[sale.ID]] = sale
	return nil
}

func (m *memoryStore) DropSale(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sales, m.keys[id])
	delete(m.keys, id)
	return nil
}

func (m *memoryStore) SaleByKey(_ context.Context, key string) (history.Sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sale, there := m.sales[key]
	if !there {
		return sale, history.ErrNotFound
	}
	return sale, nil
}
