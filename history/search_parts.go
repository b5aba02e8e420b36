package history

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"x402-wallet/x402/money"
)

// Part is what one seller, by host, or one network came to.
type Part struct {
	Key string
	Sum money.Dollars
}

// Parts are what the payments that match came to, the dearest first; others is of the sellers that are
// not among them. TooMany: so many match, or so many sellers there are, that nothing was added up.
type Parts struct {
	Sellers, Networks []Part
	Others            money.Dollars
	TooMany           bool
}

// Bounds of Parts, from BenchmarkMillion: what is looked at takes at most a few milliseconds.
const (
	maxRow  = 1_000  // payments one after the other that are looked at
	maxEach = 200    // those that lie each for itself
	maxKept = 20_000 // sums that are kept by seller and day
)

// Parts adds up what match a filter (but for its page), by seller and by network, of each at most so many.
// Where no URL and no agent is looked for they are kept sums; others are looked at one by one.
func (s *Store) Parts(ctx context.Context, f Filter, most int) (Parts, error) {
	f.Before = ""
	return read(ctx, s, func(t *tx) (p Parts, err error) {
		if t.fleet != nil {
			return t.fleetSellers(f, most)
		}
		q, err := t.search(f)
		if err != nil || q.empty || f.State == Failed {
			return p, err
		}
		sums := partSums{sellers: map[string]money.Dollars{}, networks: map[string]money.Dollars{}}
		if f.URL == "" && f.Agents == nil && f.Until.IsZero() && !f.State.Unfinished() {
			err = q.keptParts(&sums)
		} else {
			err = q.eachPart(&sums, maxEach, q.sources("url_fts", q.from, q.to))
		}
		if err != nil || sums.tooMany {
			return Parts{TooMany: sums.tooMany}, err
		}
		p.Sellers, p.Others = dearest(sums.sellers, most)
		p.Networks, _ = dearest(sums.networks, most)
		return p, nil
	})
}

type partSums struct {
	sellers, networks map[string]money.Dollars
	tooMany           bool
}

// keptParts adds the days from After on, of the first one each payment.
func (q *search) keptParts(into *partSums) error {
	var today int64
	if !q.After.IsZero() {
		midnight, first := nextWhole(q.After, day)
		today = first
		to, err := q.firstSince(midnight)
		if err != nil {
			return err
		}
		rest := source{from: ` FROM payments WHERE seq >= ? AND seq < ?`, args: []any{q.from, to}}
		err = q.eachPart(into, maxRow, []source{rest})
		if err != nil || into.tooMany {
			return err
		}
	}
	err := q.row(`SELECT count(*) > ?1 FROM (SELECT 1 FROM totals WHERE scope = 'host' LIMIT ?1 + 1)`, maxKept).
		Scan(&into.tooMany)
	if err != nil || into.tooMany {
		return err
	}
	for scope, sums := range map[string]map[string]money.Dollars{"host": into.sellers,
		"network": into.networks} {
		err := q.addSums(sums, `SELECT key, `+q.kept()+` FROM totals WHERE scope = ? AND day >= ? GROUP BY key`,
			scope, today)
		if err != nil {
			return err
		}
	}
	return nil
}

// eachPart adds payments one by one, where there are no more than so many.
func (q *search) eachPart(into *partSums, most int, sources []source) error {
	var found []string
	var args []any
	for _, s := range sources {
		found = append(found, `SELECT seq FROM (SELECT seq`+s.from+` AND `+q.state+` LIMIT ?)`)
		args = append(append(args, s.args...), most+1)
	}
	n := 0
	err := q.forEach(func(row scanner) error {
		var seller, network string
		var sum money.Dollars
		var some int
		err := row.Scan(&seller, &network, &sum, &some)
		n += some
		into.tooMany = n > most
		if sum != 0 {
			into.sellers[seller] = into.sellers[seller].Add(sum)
			into.networks[network] = into.networks[network].Add(sum)
		}
		return err
	}, `SELECT host, network, sum((state <> 'failed') * (usd - returned)), count(*) FROM payments WHERE seq IN (`+
		strings.Join(found, ` UNION ALL `)+`) GROUP BY host, network`, args...)
	return err
}

// dearest are so many at most, and what the others came to.
func dearest(sums map[string]money.Dollars, most int) (list []Part, others money.Dollars) {
	for key, sum := range sums {
		list = append(list, Part{Key: key, Sum: sum})
	}
	slices.SortFunc(list, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.Key, b.Key))
	})
	for _, p := range list[min(most, len(list)):] {
		others = others.Add(p.Sum)
	}
	return list[:min(most, len(list))], others
}
