package paywall

import (
	"context"
	"fmt"
	"sync"
	"time"

	"x402-wallet/history"
)

const (
	manySales   = 10_000          // from so many on, old ones are forgotten
	forgetAfter = 2 * longTimeout // a facilitator refuses what was settled; this is about what was not
)

// memory is a Book that ends with its process.
type memory struct {
	mu    sync.Mutex
	next  int
	sales map[string]history.Sale // by trace
	ids   map[string]string       // to their traces
}

// NewBook is a Book in memory. A payment shown to two processes, or once more after a restart, has
// two runs: settling it twice is still impossible, so the second gets nothing, but the tool has
// worked for it. A wallet's ledger remembers for ever.
func NewBook() Book { return &memory{sales: map[string]history.Sale{}, ids: map[string]string{}} }

func (m *memory) OpenSale(_ context.Context, sale history.Sale) (history.Sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if earlier, there := m.sales[sale.UniqueKey]; there {
		return sale, &history.SoldBefore{Sale: earlier}
	}
	if len(m.sales) >= manySales {
		for trace, old := range m.sales {
			if time.Since(old.Created) > forgetAfter {
				delete(m.sales, trace)
				delete(m.ids, old.ID)
			}
		}
	}
	m.next++
	sale.ID, sale.State, sale.Created = fmt.Sprintf("sale_%d", m.next), history.Running, time.Now()
	m.sales[sale.UniqueKey], m.ids[sale.ID] = sale, sale.UniqueKey
	return sale, nil
}

func (m *memory) MoveSale(_ context.Context, sale history.Sale) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, there := m.sales[m.ids[sale.ID]]
	if !there {
		return history.ErrNoSale
	}
	if sale.Answer == nil {
		sale.Answer = kept.Answer
	}
	m.sales[m.ids[sale.ID]] = sale
	return nil
}

func (m *memory) DropSale(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sales, m.ids[id])
	delete(m.ids, id)
	return nil
}

func (m *memory) SaleOf(_ context.Context, trace string) (history.Sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sale, there := m.sales[trace]
	if !there {
		return sale, history.ErrNoSale
	}
	return sale, nil
}
