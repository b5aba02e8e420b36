package history

import (
	"math"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402/money"
)

// total adds up what is selected, by symbol: what came since After, less what came since Until.
func (q *search) total(into map[string]money.Dollars) error {
	if err := q.sumSince(into); err != nil || q.Until.IsZero() {
		return err
	}
	later := *q
	if later.Until.After(later.After) {
		later.After = later.Until
	}
	var err error
	later.from, err = q.firstSince(later.After)
	if err != nil {
		return err
	}
	less := map[string]money.Dollars{}
	if err := later.sumSince(less); err != nil {
		return err
	}
	for symbol, sum := range less {
		into[symbol] = into[symbol].SubFloor(sum)
		if into[symbol] == 0 {
			delete(into, symbol)
		}
	}
	return nil
}

// Parts of the key of a sum that is kept by prefix.
const (
	day        = 24 * time.Hour
	prefixOf   = `lower(substr(key, instr(key, char(10)) + 1))`
	symbolOf   = `substr(key, 1, instr(key, char(10)) - 1)`
	inPrefixes = ` FROM totals WHERE scope = 'prefix ever' AND instr(` + prefixOf + `, ?)`
)

// sumSince adds up what came since After, by symbol.
func (q *search) sumSince(into map[string]money.Dollars) error {
	switch {
	case q.State == Failed:
		return nil
	case q.State.Unfinished():
		return q.sumEach(into, "url_fts", q.from, math.MaxInt64, "")
	}
	inAll := q.URL == ""
	if !inAll {
		err := q.row(`SELECT NOT EXISTS (SELECT 1 FROM totals WHERE scope = 'prefix ever' AND NOT instr(`+
			prefixOf+`, ?))`,
			q.part).Scan(&inAll)
		if err != nil {
			return err
		}
	}
	switch {
	case !inAll && q.Agents != nil:
		return q.sumEach(into, "url_fts", q.from, math.MaxInt64, "")
	case !inAll:
		return q.sumPrefixes(into)
	}
	q.URL = ""
	if q.Agents != nil {
		return q.sumAgents(into)
	}
	return q.sumTimes(into)
}

// sumAgents adds the agents' days from After on, of the first one each payment.
func (q *search) sumAgents(into map[string]money.Dollars) error {
	var today int64
	if !q.After.IsZero() {
		var midnight time.Time
		midnight, today = nextWhole(q.After, day)
		last, err := q.firstSince(midnight)
		if err == nil {
			err = q.sumEach(into, "", q.from, last, "")
		}
		if err != nil {
			return err
		}
	}
	for _, agent := range q.Agents {
		begin := agent + "\n"
		err := q.addSums(into, `SELECT substr(key, ?1), `+q.kept()+` FROM totals
			WHERE scope = 'agent symbol' AND key >= ?2 AND key < ?3 AND day >= ?4 GROUP BY key`,
			characters(begin)+1, begin, agent+"\v", today)
		if err != nil {
			return err
		}
	}
	return nil
}

// kept is which of the kept sums are meant.
func (q *search) kept() string {
	if q.State == Settled {
		return "sum(spent)"
	}
	return "sum(spent + held)"
}

// nextWhole is the first time from at on that is a multiple of unit, and its number in totals.
func nextWhole(at time.Time, unit time.Duration) (time.Time, int64) {
	whole := at.Add(unit - time.Microsecond).Truncate(unit)
	return whole, micros(whole) / unit.Microseconds()
}

// sumTimes adds the days from After on, of the first one the hours, of the first of these each payment.
func (q *search) sumTimes(into map[string]money.Dollars) error {
	var today int64
	if !q.After.IsZero() {
		hour, thisHour := nextWhole(q.After, time.Hour)
		_, today = nextWhole(q.After, day)
		last, err := q.firstSince(hour)
		if err != nil {
			return err
		}
		if err := q.sumEach(into, "", q.from, last, ""); err != nil {
			return err
		}
		err = q.addSums(into, `SELECT key, `+q.kept()+` FROM totals
			WHERE scope = 'hour' AND day >= ? AND day < ? GROUP BY key`, thisHour, today*24)
		if err != nil {
			return err
		}
	}
	return q.addSums(into, `SELECT key, `+q.kept()+
		` FROM totals WHERE scope = 'symbol' AND day >= ? GROUP BY key`, today)
}

// sumPrefixes adds the days from After on of the prefixes that have the part of a URL in them, each
// payment of the first day, and after that each one that has it behind its prefix.
func (q *search) sumPrefixes(into map[string]money.Dollars) error {
	midnight := q.from
	if q.After.IsZero() {
		err := q.addSums(into, `SELECT `+symbolOf+`, `+q.kept()+inPrefixes+` GROUP BY 1`, q.part)
		if err != nil {
			return err
		}
	} else {
		at, today := nextWhole(q.After, day)
		var err error
		if midnight, err = q.firstSince(at); err != nil {
			return err
		}
		if err := q.sumEach(into, "url_fts", q.from, midnight, ""); err != nil {
			return err
		}
		err = q.addSums(into, `SELECT `+symbolOf+`, `+q.kept()+
			` FROM totals WHERE scope = 'prefix' AND day >= ?
			AND key IN (SELECT key`+inPrefixes+`) GROUP BY 1`, today, q.part)
		if err != nil {
			return err
		}
	}
	index := "url_suffix_fts"
	if across, err := q.acrossPrefix(); err != nil {
		return err
	} else if across {
		index = "url_fts"
	}
	var inAny bool
	if err := q.row(`SELECT EXISTS (SELECT 1`+inPrefixes+`)`, q.part).Scan(&inAny); err != nil {
		return err
	}
	if !inAny {
		return q.sumEach(into, index, midnight, math.MaxInt64, "")
	}
	return q.sumEach(into, index, midnight, math.MaxInt64,
		` AND instr(url, ?) + length(?) - 1 > prefix_length`, q.part, q.part)
}

// acrossPrefix reports whether the part of a URL can begin in a prefix and end behind it:
// url_suffix_fts does not find it.
func (q *search) acrossPrefix() (across bool, err error) {
	for i, c := range q.part {
		if i == 0 || !strings.ContainsRune("/?#", c) {
			continue
		}
		err := q.row(`SELECT EXISTS (SELECT 1 FROM totals
			WHERE scope = 'prefix ever' AND substr(`+prefixOf+`, -length(?1)) = ?1)`,
			q.part[:i]).Scan(&across)
		if err != nil || across {
			return across, err
		}
	}
	return false, nil
}

// sumEach adds payments one by one, in a column for each symbol: GROUP BY would sort them.
func (q *search) sumEach(into map[string]money.Dollars, index string, from, to int64, where string,
	args ...any) error {
	symbols, err := collect(q.tx, scanText, `SELECT DISTINCT `+symbolOf+
		` FROM totals WHERE scope = 'prefix ever'`)
	if err != nil || len(symbols) == 0 {
		return err
	}
	sums := make([]money.Dollars, len(symbols))
	var named, found []any
	for i := range sums {
		found = append(found, &sums[i])
	}
	columns := `coalesce(sum(usd), 0)`
	if len(symbols) > 1 { // comparing each with the only one would take a fifth of the time
		columns = strings.Repeat(`, coalesce(sum(usd) FILTER (WHERE symbol = ?), 0)`, len(symbols))[2:]
		for _, symbol := range symbols {
			named = append(named, symbol)
		}
	}
	for _, s := range q.sources(index, from, to) {
		all := slices.Concat(named, s.args, args)
		err := q.slowRow(`SELECT `+columns+s.from+where+` AND `+q.state, all...).Scan(found...)
		if err != nil {
			return err
		}
		for i, sum := range sums {
			if sum != 0 {
				into[symbols[i]] = into[symbols[i]].Add(sum)
			}
		}
	}
	return nil
}

// addSums adds what a query answers with symbols and sums.
func (t *tx) addSums(into map[string]money.Dollars, query string, args ...any) error {
	return t.forEach(func(row scanner) error {
		var symbol string
		var sum money.Dollars
		err := row.Scan(&symbol, &sum)
		if sum != 0 {
			into[symbol] = into[symbol].Add(sum)
		}
		return err
	}, query, args...)
}
