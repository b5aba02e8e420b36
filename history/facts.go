package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Question says what of the ledger has to be known before a payment is decided on.
type Question struct {
	Rules   budget.Query
	Payment Payment             // its idempotency key, fingerprint, network and source are looked at
	Resume  bool                // as Hold.Resume
	Quotes  [][sha256.Size]byte // whose approvals are wanted
}

// Facts are what the ledger knew at one moment.
type Facts struct {
	budget.Facts
	Purchase  *Payment   // that the key or the request belongs to already (AlreadyPaying); nil: none
	Frozen    *Freeze    // that stops payments from the source; nil: none
	Full      error      // why what is bought could not be kept; nil: it could be
	Approvals []Approval // good ones of the quotes, in their order
	// Head is the audit chain's last row. As long as that is the last one, nothing that a decision
	// rests on has changed, for all of that is written into the chain.
	Head int64
}

// Refusal is why the payment cannot be held whatever the owner's rules say: *AlreadyPaying, or
// WALLET_FROZEN, or LEDGER_UNAVAILABLE where what is bought could not be kept.
func (f Facts) Refusal() error {
	if f.Purchase != nil {
		return &AlreadyPaying{Payment: *f.Purchase}
	}
	if f.Frozen != nil {
		return f.Frozen.refusal()
	}
	return f.Full
}

// Facts reads what a decision needs in one consistent reading. It locks nothing: what was read may
// be out of date when it returns, and Reserve answers ErrMoved where that matters.
func (s *Store) Facts(ctx context.Context, q Question) (Facts, error) {
	return read(ctx, s, func(t *tx) (Facts, error) { return t.facts(q) })
}

func (t *tx) facts(q Question) (f Facts, err error) {
	clock := t.Now
	f.Head, err = t.notBeforeLedger()
	if err != nil {
		return f, err
	}
	f.Purchase, err = t.purchase(q.Payment, q.Resume)
	if err != nil {
		return f, err
	}
	if q.Payment.Network != "" { // a report asks for no payment
		f.Frozen, err = t.frozenBy(q.Payment.Network, q.Payment.Source)
		if err != nil {
			return f, err
		}
		f.Full, err = t.contents.Refusal(t.Tx)
		if err != nil {
			return f, err
		}
	}
	f.Facts, err = t.budgetFacts(q.Rules)
	if err != nil {
		return f, err
	}
	f.Behind = t.Now.Sub(clock)
	for _, quote := range q.Quotes {
		a, err := t.approvalOf(quote)
		if err != nil {
			return f, err
		}
		if a != nil {
			f.Approvals = append(f.Approvals, *a)
		}
	}
	return f, nil
}

// budgetFacts is the part of the facts that package budget decides by.
func (t *tx) budgetFacts(q budget.Query) (f budget.Facts, err error) {
	f.Now = t.Now
	f.Session, err = t.session()
	if err != nil {
		return f, err
	}
	at := q.At
	if at.IsZero() {
		at = t.Now
	}
	f.Used, err = t.usage(f.Session.ID, q, at)
	if err != nil {
		return f, err
	}
	if q.Rate > 0 {
		f.LastMinute, err = t.count(t.Now.Add(-budget.RateWindow))
		if err != nil {
			return f, err
		}
		if f.LastMinute >= q.Rate {
			f.RateSince, err = t.nthNewest(q.Rate)
			if err != nil {
				return f, err
			}
		}
	}
	f.NodeRates, err = t.nodeRates(q)
	if err != nil {
		return f, err
	}
	if q.MaxFailures > 0 || q.BusyHour {
		f.LastUnfreeze, err = t.lastUnfreeze()
		if err != nil {
			return f, err
		}
	}
	if q.MaxFailures > 0 {
		f.ConsecutiveFailures, err = t.consecutiveFailures(f.LastUnfreeze, q.MaxFailures)
		if err != nil {
			return f, err
		}
	}
	if q.BusyHour {
		hour := budget.RateLimit{Per: budget.BusyWindow, NotBefore: f.LastUnfreeze}
		f.LastHour, err = t.count(hour.Since(t.Now))
		if err != nil {
			return f, err
		}
	}
	if q.Subscription != "" {
		f.Subscription, err = t.subscriptionUse(q.Subscription)
		if err != nil {
			return f, err
		}
	}
	f.Payee, err = historyFor(t.recall, q)
	return f, err
}

// session is the session that is open now; its ID is empty when the next payment will begin one.
func (t *tx) session() (budget.Session, error) {
	var s budget.Session
	var started, last int64
	var limit sql.NullInt64
	err := t.Row(`SELECT id, started_at, last_at, cap FROM sessions WHERE ended = 0
		ORDER BY started_at DESC LIMIT 1`).Scan(&s.ID, &started, &last, &limit)
	if errors.Is(err, sql.ErrNoRows) {
		return budget.Session{Started: t.Now, Last: t.Now}, nil
	}
	if err != nil {
		return s, err
	}
	s.Started, s.Last = sqldb.FromMicros(started), sqldb.FromMicros(last)
	if limit.Valid {
		s.Cap = (*money.Dollars)(&limit.Int64)
	}
	if t.Now.Sub(s.Last) >= budget.SessionIdle {
		return budget.Session{Started: t.Now, Last: t.Now}, nil
	}
	return s, nil
}

// count counts the payments made after since, failed ones too. They are numbered without a gap, in
// the order of their times.
func (t *tx) count(since time.Time) (n int, err error) {
	if _, err := t.notBeforeLedger(); err != nil {
		return 0, err
	}
	before, err := sqldb.ScanNumber(t.Row(`SELECT seq FROM payments WHERE created_at <= ?
		ORDER BY created_at DESC, seq DESC LIMIT 1`, sqldb.Micros(since)))
	return int(t.known.last - before), sqldb.Otherwise(err, nil)
}

// nthNewest is when the nth newest payment was made, or zero if there are fewer.
func (t *tx) nthNewest(n int) (time.Time, error) {
	at, err := sqldb.ScanNumber(t.Row(`SELECT created_at FROM payments WHERE seq = ?`, t.known.last+1-int64(n)))
	return sqldb.FromMicros(at), sqldb.Otherwise(err, nil)
}

// notBeforeLedger moves the transaction's time up to the newest payment: windows never open
// backwards. It returns the audit chain's last row.
func (t *tx) notBeforeLedger() (head int64, err error) {
	if err := t.readEnds(); err != nil {
		return 0, err
	}
	if at := sqldb.FromMicros(t.known.newest); at.After(t.Now) {
		t.Now = at
	}
	return t.known.head, nil
}

// readEnds reads the ends of the audit chain and of the payments, unless they are known. It refuses a ledger
// of another format: another program may have changed it while this one had it open.
func (t *tx) readEnds() error {
	if t.known.hash != nil {
		return nil
	}
	var text string
	err := t.Row(`SELECT seq, hash, coalesce((SELECT value FROM meta WHERE key = 'format'), ''),
		coalesce((SELECT max(seq) FROM payments), 0),
		coalesce((SELECT created_at FROM payments ORDER BY seq DESC LIMIT 1), 0)
		FROM audit ORDER BY seq DESC LIMIT 1`).
		Scan(&t.known.head, &t.known.hash, &text, &t.known.last, &t.known.newest)
	if err == nil {
		err = CheckFormat(text)
	}
	return sqldb.Otherwise(err, nil)
}
