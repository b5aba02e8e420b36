package paywall

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"x402-wallet/paywall/book"
)

const (
	pruneAbove = 10_000         // number of sales above which old ones are deleted, each time it has doubled
	pruneAge   = 2 * maxTimeout // what was settled no facilitator settles again; this forgets what was not
)

// memoryStore is a SaleStore in memory. A payment that is presented to two processes, or again after a
// restart, runs the tool twice: no facilitator settles it twice, so the second run is not delivered, but the
// work is done. A book on disk (*book.Book) prevents that.
type memoryStore struct {
	mu      sync.Mutex
	next    int
	sales   map[string]book.Sale // by UniqueKey
	named   map[[2]string]string // UniqueKey, by payer and the name that the payer gave
	pruneAt int                  // number of sales

	channels map[channelKey]book.SoldChannel
}

func newMemoryStore() SaleStore {
	return &memoryStore{sales: map[string]book.Sale{}, named: map[[2]string]string{}, pruneAt: pruneAbove,
		channels: map[channelKey]book.SoldChannel{}}
}

func (m *memoryStore) OpenSale(_ context.Context, sale book.Sale) (book.Sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open(sale)
}

func (m *memoryStore) open(sale book.Sale) (book.Sale, error) {
	if earlier, there := m.sales[sale.UniqueKey]; there {
		return sale, &book.AlreadySold{Sale: earlier}
	}
	name := [2]string{sale.Payer, sale.Identifier}
	isNamed := sale.Payer != "" && sale.Identifier != ""
	if earlier, there := m.sales[m.named[name]]; isNamed && there && earlier.State != book.SaleFailed {
		return sale, &book.AlreadySold{Sale: earlier}
	}
	if len(m.sales) >= m.pruneAt {
		maps.DeleteFunc(m.sales, func(_ string, old book.Sale) bool {
			return time.Since(old.Created) > pruneAge
		})
		maps.DeleteFunc(m.named, func(_ [2]string, key string) bool { return m.sales[key].ID == "" })
		m.pruneAt = max(pruneAbove, 2*len(m.sales)) // looking through all for each sale would be quadratic
	}
	m.next++
	sale.ID, sale.State, sale.Created = fmt.Sprintf("sale_%d", m.next), book.SaleRunning, time.Now()
	m.sales[sale.UniqueKey] = sale
	if isNamed {
		m.named[name] = sale.UniqueKey
	}
	return sale, nil
}

func (m *memoryStore) MoveSale(_ context.Context, sale book.Sale) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.move(sale)
}

func (m *memoryStore) move(sale book.Sale) error {
	stored, there := m.sales[sale.UniqueKey]
	if !there {
		return book.ErrNotFound
	}
	if sale.Answer == nil {
		sale.Answer = stored.Answer
	}
	m.sales[sale.UniqueKey] = sale
	return nil
}

func (m *memoryStore) DropSale(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.sales, func(_ string, sale book.Sale) bool { return sale.ID == id })
	return nil
}

func (m *memoryStore) SoldTo(_ context.Context, resource string, call [32]byte, payer string,
	since time.Time) (
	found book.Sale, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err = book.ErrNotFound
	for _, sale := range m.sales {
		if sale.Resource == resource && sale.Call == call && sale.Payer == payer && payer != "" &&
			sale.State == book.SaleSettled && !sale.Amount.IsZero() && !sale.Created.Before(since) &&
			sale.Created.After(found.Created) {
			found, err = sale, nil
		}
	}
	return found, err
}

func (m *memoryStore) SaleByKey(_ context.Context, key string) (book.Sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sale, there := m.sales[key]
	if !there {
		return sale, book.ErrNotFound
	}
	return sale, nil
}
