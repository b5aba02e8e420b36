package paywall

import (
	"cmp"
	"context"
	"slices"
	"time"

	"x402-wallet/paywall/book"
)

// Channels in memory: what was charged and not claimed is lost with the process, so they are to try.

// channelKey is a channel's network and id.
type channelKey [2]string

func (m *memoryStore) SoldChannel(_ context.Context, network, id string) (book.SoldChannel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, there := m.channels[channelKey{network, id}]
	if !there {
		return c, book.ErrNotFound
	}
	return c, nil
}

func (m *memoryStore) OwedChannels(context.Context) (owed []book.SoldChannel, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.channels {
		if !c.OwedSince.IsZero() {
			owed = append(owed, c)
		}
	}
	slices.SortFunc(owed, func(a, b book.SoldChannel) int {
		return cmp.Or(a.OwedSince.Compare(b.OwedSince), cmp.Compare(a.ID, b.ID))
	})
	return owed, nil
}

func (m *memoryStore) OpenChannelSale(_ context.Context, sale book.Sale, c book.SoldChannel,
	until time.Time) (book.Sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	free, err := m.free(c)
	if err == nil {
		sale, err = m.open(sale)
	}
	if err == nil {
		m.channels[channelKey{c.Network, c.ID}] = free.HeldBy(sale.ID, until)
	}
	return sale, err
}

func (m *memoryStore) HoldChannel(_ context.Context, c book.SoldChannel, holder string,
	until time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	free, err := m.free(c)
	if err == nil {
		m.channels[channelKey{c.Network, c.ID}] = free.HeldBy(holder, until)
	}
	return err
}

// free is a channel that nobody holds. The sale of who held it too long is ended.
func (m *memoryStore) free(c book.SoldChannel) (book.SoldChannel, error) {
	known, there := m.channels[channelKey{c.Network, c.ID}]
	if !there {
		return c, nil
	}
	free, err := known.Hold(c, "", time.Time{}, time.Now())
	if err == nil {
		m.endSaleOf(known.Holder)
	}
	return free, err
}

// endSaleOf ends a sale that was not charged for: its voucher is good for another one.
func (m *memoryStore) endSaleOf(holder string) {
	for key, sale := range m.sales {
		if sale.ID == holder && sale.State != book.SaleSettled {
			delete(m.sales, key)
			sale.UniqueKey += " " + sale.ID
			sale.State = book.SaleFailed
			m.sales[sale.UniqueKey] = sale
			return
		}
	}
}

func (m *memoryStore) ChargeChannel(_ context.Context, sale book.Sale, c book.SoldChannel) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := channelKey{c.Network, c.ID}
	charged, err := m.channels[key].Charge(c, sale.ID, time.Now())
	if err == nil {
		sale.State = book.SaleSettled
		err = m.move(sale)
	}
	if err == nil {
		m.channels[key] = charged
	}
	return err
}

func (m *memoryStore) UpdateSoldChannel(_ context.Context, network, id, holder string,
	change func(*book.SoldChannel)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := channelKey{network, id}
	c, there := m.channels[key]
	if !there {
		return nil
	}
	change(&c)
	if holder != "" && c.Holder == holder {
		m.endSaleOf(holder)
		c = c.HeldBy("", time.Time{})
	}
	m.channels[key] = c
	if c.IsEmpty() {
		delete(m.channels, key)
	}
	return nil
}
