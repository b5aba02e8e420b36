package paywall

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Calls that cost what they use (scheme upto): the buyer signs the most that a call can cost, it runs, and
// what it did use is settled. The tool says what that is (Sale.Charge, a member of its result's _meta, a
// header of its answer), or the price of a kilobyte does; who says nothing is paid the ceiling. What a call
// costs is known before it is settled, never more than was signed, and may be nothing.

// metaCharge is where the result of a tool, and headerCharge where the answer of a handler, says what the
// call costs, in dollars: "0.0123". It is for the paywall, and the buyer does not get it.
const (
	metaCharge   = "x402/charge"
	headerCharge = "X402-Charge"
)

// meter is what a call costs, once that is known.
type meter struct {
	asset   x402.AssetInfo
	ceiling money.Amount

	mu      sync.Mutex
	charged *money.Amount // nil: nobody said
}

// Charge says what the call costs in all, in dollars ("0.0123"; rounded down to the asset's atomic units),
// where it is sold by the scheme upto. Called again, the last counts. More than the buyer signed is an error
// and changes nothing. A call with a fixed price costs that, and Charge does nothing. It may be called while
// the tool runs, and by hooks up to BeforeSettle, from any goroutine.
func (s *Sale) Charge(price string) error {
	dollars, err := money.ParseDollars(strings.TrimPrefix(price, "$"))
	if err != nil {
		return fmt.Errorf("charge: %w", err)
	}
	if s.meter == nil {
		return nil
	}
	amount := s.meter.asset.Units(dollars)
	if amount.Cmp(s.meter.ceiling) > 0 {
		return fmt.Errorf("charge: %s is more than the buyer signed, which is %s", dollars.Price(), s.Price)
	}
	s.meter.set(amount)
	return nil
}

// Charge is Sale.Charge for the call that runs in ctx; it does nothing where that is free.
func Charge(ctx context.Context, price string) error {
	sale := FromContext(ctx)
	if sale == nil {
		return nil
	}
	return sale.Charge(price)
}

func (m *meter) set(amount money.Amount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.charged = &amount
}

func (m *meter) isSet() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.charged != nil
}

// total is what is settled: never more than was signed.
func (m *meter) total() money.Amount {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.charged == nil || m.charged.Cmp(m.ceiling) > 0 {
		return m.ceiling
	}
	return *m.charged
}

// bySize charges for an answer of so many bytes, each begun kilobyte (1024 bytes) at a price, up to the
// ceiling.
func (m *meter) bySize(size int, perKilobyte money.Dollars) {
	kilobytes := money.Dollars((size + 1023) / 1024)
	amount := m.ceiling
	if most := m.asset.Dollars(m.ceiling); kilobytes <= most/perKilobyte {
		amount = m.asset.Units(kilobytes * perKilobyte)
	}
	m.set(amount)
}

// meterAnswer takes what an answer says that it costs; otherwise its size may decide.
func (s *saleRun) meterAnswer(said string, size func() int) {
	if said != "" {
		if err := s.sale.Charge(said); err != nil {
			s.log.Warn("the server behind charges what it cannot: the call costs the most that was signed",
				"tool", s.tool.label(), "err", err)
			s.sale.meter.set(s.sale.meter.ceiling)
		}
		return
	}
	if s.tool.perKilobyte > 0 && size != nil && !s.sale.meter.isSet() {
		s.sale.meter.bySize(size(), s.tool.perKilobyte)
	}
}

// takeCharge ends the metering: from here on the sale's amount is what the call costs.
func (s *saleRun) takeCharge() {
	var said string
	var size func() int
	if s.out.toolResult.usage != nil {
		said, size = s.out.toolResult.usage()
	}
	if s.sale.meter == nil {
		return
	}
	s.meterAnswer(said, size)
	s.row.Amount = s.sale.meter.total()
	s.row.Price = s.offer.Asset.Dollars(s.row.Amount)
}

// settlesNothing reports whether the call cost nothing: then no facilitator is asked, and the buyer's permit
// stays unused.
func (s *saleRun) settlesNothing() bool { return s.sale.meter != nil && s.row.Amount.IsZero() }

// charging is a requirement with what the call costs, as a facilitator settles it.
func charging(r json.RawMessage, amount money.Amount) json.RawMessage {
	var entry map[string]json.RawMessage
	if json.Unmarshal(r, &entry) != nil {
		return nil // ours: cannot happen
	}
	entry["amount"] = jsonOf(amount)
	return jsonOf(entry)
}
