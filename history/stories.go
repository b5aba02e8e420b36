package history

import (
	"maps"
	"math"
	"slices"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The payments are compared in one reading of the audit chain: where it tells of a reservation the next
// payment is read, and what the chain tells of it later is kept until windowSize payments were begun after
// it. Then it has to be what was told; what is not, and what is told of later, is looked up and told again
// from its first event. So the memory that this takes does not grow with the ledger, and most rows are read
// once.

const (
	windowSize = 1024
	maxLate    = 1024    // payments that are told again at a time
	maxSums    = 1 << 17 // groups of payments whose sums are in memory; SQLite adds up more of them
)

// longTables is how many cursors go through tables that are as long as the ledger.
const longTables = 2

// stories is the reading.
type stories struct {
	*replay
	audit    *cursor[auditRow] // that hold together
	payments *cursor[*storedPayment]

	window, most int // windowSize and maxLate

	open  map[int64]*story
	queue []*story // the open ones, oldest first
	late  map[int64]struct{}

	storedBytes, owedBytes int64
	sums                   map[paidFor]budget.Use // nil: there were too many
}

// paidFor is what payments are summed up by.
type paidFor struct {
	session, host, agent, network, symbol, prefix string
	hour                                          int64
}

// stories reads the chain and compares the long tables with it, and says how many rows it has.
func (r *replay) stories() (rows int, err error) {
	s := &stories{replay: r, window: windowSize, most: maxLate, open: map[int64]*story{},
		late: map[int64]struct{}{}, sums: map[paidFor]budget.Use{}}
	return s.compareAll()
}

func (s *stories) compareAll() (rows int, err error) {
	s.stored = s.payment
	chain, err := s.t.newChain(0, s.k.After)
	if err != nil {
		return 0, err
	}
	s.audit, err = openCursor(s.t, func(t *tx) (func() (auditRow, error), error) {
		return t.auditRows(chain)
	})
	if err != nil {
		return 0, err
	}
	defer s.audit.close()
	s.payments, err = openCursor(s.t, func(t *tx) (func() (*storedPayment, error), error) {
		return t.storedPayments(math.MinInt64)
	})
	if err != nil {
		return 0, err
	}
	defer s.payments.close()
	rows, err = s.read()
	if err == nil {
		err = chain.end()
	}
	if err != nil {
		return rows, err
	}
	for _, check := range []func() error{s.closeAll, s.tellAgain, s.nothingLeft, s.sumsAgree} {
		if err := check(); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func (s *stories) read() (rows int, err error) {
	if err := s.payments.next(); err != nil {
		return 0, err
	}
	tell, _ := s.t.ctx.Value(progressKey{}).(func(done, all int64))
	var all int64
	if err := s.t.row(`SELECT coalesce(max(seq), 0) FROM audit`).Scan(&all); err != nil {
		return 0, err
	}
	for ; ; rows++ {
		if tell != nil && rows%progressStep == 0 {
			tell(int64(rows), all)
		}
		if err := s.audit.next(); err != nil {
			return rows, err
		}
		if s.audit.done {
			return rows, nil
		}
		row := s.audit.row
		var err error
		if row.event == string(Reserved) && s.open[row.payment] == nil {
			err = s.begin(row)
		}
		if err == nil {
			err = s.apply(row)
		}
		if err == nil && row.payment != 0 {
			err = s.told(row)
		}
		if err != nil {
			return rows, err
		}
	}
}

// told takes an event of a payment into account.
func (s *stories) told(row auditRow) error {
	if of := s.open[row.payment]; of != nil {
		return s.tell(of, row)
	}
	s.late[row.payment] = struct{}{}
	if len(s.late) < s.most {
		return nil
	}
	return s.tellAgain()
}

// payment is the one of a number, as it is in the table.
func (s *stories) payment(number int64) (*storedPayment, error) {
	if of := s.open[number]; of != nil {
		return of.is, nil
	}
	list, err := s.look(number, number)
	if err != nil {
		return nil, err
	}
	return list[0].is, nil
}

// begin reads the payment that a reservation is of: the next one.
func (s *stories) begin(row auditRow) error {
	s.reservations++
	if s.payments.done || s.payments.row.seq != row.payment || row.payment != s.reservations {
		return corrupt("the audit chain has a reservation of payment number %d, which is none, or not the "+
			"one behind number %d", row.payment, s.reservations-1)
	}
	of := &story{is: s.payments.row}
	s.add(of.is)
	s.count(of.is.content)
	s.paid[of.is.session] = max(s.paid[of.is.session], of.is.created)
	s.open[row.payment] = of
	s.queue = append(s.queue, of)
	if len(s.queue) > s.window {
		oldest := s.queue[0]
		s.queue = s.queue[1:]
		if err := s.closed(oldest); err != nil {
			return err
		}
	}
	return s.payments.next()
}

// count counts a payment's content; nil: it has none.
func (s *stories) count(c *storedContent) {
	if c == nil {
		return
	}
	if c.removed == "" {
		s.storedBytes += c.size
		if c.spare == 0 {
			s.owedBytes += c.size
		}
	}
}

// characters counts as SQLite does.
func characters(text string) (n int64) {
	for _, b := range []byte(text) {
		if b&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

// add counts a payment in the sums.
func (s *stories) add(p *storedPayment) {
	if s.sums == nil {
		return
	}
	key := paidFor{p.session, p.host, p.agent, p.network, p.symbol, p.prefix, p.created / time.Hour.Microseconds()}
	use := s.sums[key]
	switch State(p.state) {
	case Settled:
		use.Spent += money.Dollars(p.usd - p.returned)
	case Failed:
	default:
		use.Held += money.Dollars(p.usd - p.returned)
	}
	s.sums[key] = use
	if len(s.sums) > maxSums {
		s.sums = nil
	}
}

// closed compares a story; one that does not agree yet is told again.
func (s *stories) closed(of *story) error {
	delete(s.open, of.is.seq)
	if s.compare(of) == nil {
		return nil
	}
	s.late[of.is.seq] = struct{}{}
	if len(s.late) < s.most {
		return nil
	}
	return s.tellAgain()
}

func (s *stories) closeAll() error {
	for _, of := range s.queue {
		if err := s.closed(of); err != nil {
			return err
		}
	}
	s.queue = nil
	return nil
}

// tellAgain tells the late payments from their first event, in one go those that follow each other.
func (s *stories) tellAgain() error {
	numbers := slices.Sorted(maps.Keys(s.late))
	clear(s.late)
	for len(numbers) > 0 {
		n := 1
		for n < len(numbers) && numbers[n] == numbers[0]+int64(n) {
			n++
		}
		if err := s.chunk(numbers[0], numbers[n-1]); err != nil {
			return err
		}
		numbers = numbers[n:]
	}
	return nil
}

// nothingLeft refuses rows that the chain tells nothing of.
func (s *stories) nothingLeft() error {
	var uses, stored, owed int64
	err := s.t.row(`SELECT count(*), coalesce(max(stored), 0), coalesce(max(owed), 0) FROM content_use`).
		Scan(&uses, &stored, &owed)
	switch {
	case err != nil:
		return err
	case !slices.Equal(s.redates, s.redated):
		return corrupt("what was redated in it is not what the audit chain says")
	case !s.payments.done:
		return corrupt("payment %s is none that the audit chain has", s.payments.row.id)
	case uses != 1 || stored != s.storedBytes || owed != s.owedBytes:
		return x402.Errorf(x402.LedgerCorrupt, "how much content is stored is not what is stored")
	}
	return nil
}

// sumsAgree compares the sums that are kept with those of the payments.
func (s *stories) sumsAgree() error {
	if s.sums == nil {
		return s.t.sumsAgree()
	}
	type scope struct {
		name, key string
		day       int64
	}
	all := map[scope]budget.Use{}
	for k, use := range s.sums {
		day, prefix := k.hour/24, k.symbol+"\n"+k.prefix
		scopes := []scope{{"all", "", day}, {"session", k.session, day}, {"host", k.host, day},
			{"network", k.network, day}, {"symbol", k.symbol, day}, {"hour", k.symbol, k.hour},
			{"prefix", prefix, day}, {"prefix ever", prefix, 0}}
		if k.agent != "" {
			scopes = append(scopes, scope{"agent", k.agent, day},
				scope{"agent symbol", k.agent + "\n" + k.symbol, day})
		}
		for _, to := range scopes {
			is := all[to]
			all[to] = budget.Use{Spent: is.Spent + use.Spent, Held: is.Held + use.Held}
		}
	}
	different := 0
	err := s.t.forEach(func(row scanner) error {
		var of scope
		var is budget.Use
		err := row.Scan(&of.name, &of.key, &of.day, &is.Spent, &is.Held)
		if use, known := all[of]; !known || use != is {
			different++
		}
		delete(all, of)
		return err
	}, `SELECT scope, key, day, spent, held FROM totals`)
	different += len(all)
	if err == nil && different > 0 {
		err = x402.Errorf(x402.LedgerCorrupt, "%d sums are not those of the payments", different)
	}
	return err
}
