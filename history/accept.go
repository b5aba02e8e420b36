package history

import (
	"context"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// checkedSealed is what was sealed last, after a check that the tables agree with it.
func (t *tx) checkedSealed(k Keyholder) (*sealed, error) {
	s, err := t.lastSealed(k, nil)
	if err == nil {
		err = t.compare(s, Payment{Session: s.Session.ID, Created: t.Now}, budget.Query{})
	}
	return s, err
}

// CheckSealed refuses a ledger whose budgets, open session or memory are not what was sealed: all that
// could stop the next signature. It reads the whole memory.
func (s *Store) CheckSealed(ctx context.Context, k Keyholder) error {
	return s.view(ctx, func(t *tx) error {
		last, err := t.checkedSealed(k)
		if err != nil {
			return err
		}
		for _, w := range last.Days {
			day := time.Unix(w.Day*86400, 0).UTC()
			of := Payment{Session: last.Session.ID, Created: day}
			err = t.compare(last, of, budget.Query{HostEntries: w.Hosts})
			for _, name := range last.Agents() {
				if err == nil {
					err = t.compare(last, of, budget.Query{Agent: name})
				}
			}
			if err != nil {
				return err
			}
		}
		if err := t.sessionGoesOn(last, k); err != nil {
			return err
		}
		return last.memory.Verify()
	})
}

// sessionGoesOn refuses an open session in which nothing would be signed.
func (t *tx) sessionGoesOn(s *sealed, k Keyholder) error {
	current, err := t.session()
	if err != nil {
		return err
	}
	now := max(sqldb.Micros(t.Now), s.Session.Last)
	if current.ID == "" && now-s.Session.Last < budget.SessionIdle.Microseconds() {
		return audit.Corrupt("its session ended, and was not over")
	}
	if current.ID == "" {
		return nil
	}
	return t.sameSession(s, Payment{Session: current.ID, Created: sqldb.FromMicros(now)}, k)
}

// rebuildSealed makes the sums and the memory anew from the payments, which the owner accepts as they are:
// the sums of what was signed and did not fail, the memory of all that was signed. The tables that are
// derived from the payments are rebuilt with them.
func (t *tx) rebuildSealed(k Keyholder) (*sealed, error) {
	s := &sealed{memory: &memory.Memory{Tx: t.Tx, MAC: k.MAC}}
	if err := s.memory.Clear(); err != nil {
		return nil, err
	}
	entries := map[string][]byte{}
	err := t.Each(func(row sqldb.Row) error {
		var p Payment
		var created int64
		var limit *money.Dollars
		var charged string
		var detail string
		err := row.Scan(&p.ID, &p.State, &p.Session, &created, &p.Method, &p.URL, &p.Host, &p.Network,
			&p.Asset, &p.PayTo, &p.Price, &detail, &limit, &p.Returned, &charged, &p.Agent)
		if err != nil {
			return err
		}
		p.Created = sqldb.FromMicros(created)
		// the owner accepts the ledger also where that cannot be read
		signed, _ := seals.Read[seals.Signature](detail)
		g := seals.Signature{ID: p.ID, Created: created, Key: signed.Key, SessionCap: limit,
			Fact: signed.Fact, Terms: p.terms()}
		if p.State == Failed {
			g.Key = ""
		}
		for _, e := range g.Remembered() {
			entries[string(e.Key)] = e.Value
		}
		if p.State == Failed {
			entries[string(seals.ExpiredKey(p.ID))] = []byte{1}
		} else if s.Knows(p.Created) {
			s.Add(g)
			s.Lower(g, p.Returned)
		}
		if charged != "" {
			entries[string(seals.ChargedKey(p.ID))] = []byte{1}
		}
		return nil
	}, `SELECT p.id, p.state, p.session, p.created_at, p.method, p.url, p.host, p.network, p.asset, p.pay_to, p.usd,
			coalesce(a.detail, ''), s.cap, p.returned, p.charged, p.agent
		FROM payments p LEFT JOIN audit a ON a.payment = p.seq AND a.event = 'signed'
		LEFT JOIN sessions s ON s.id = p.session WHERE p.unique_key IS NOT NULL ORDER BY a.seq, p.seq`)
	if err != nil {
		return nil, err
	}
	channels, err := sqldb.Collect(t.Tx, scanChannel, selectChannel)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		if c.Signed != nil {
			e := c.voucher().Entry()
			entries[string(e.Key)] = e.Value
		}
	}
	if err := t.Row(`SELECT coalesce(max(seq), 0) FROM payments`).Scan(&s.Settled); err != nil {
		return nil, err
	}
	if err := t.resumeSession(s, k); err != nil {
		return nil, err
	}
	if err := t.rebuildTotals(); err != nil {
		return nil, err
	}
	return s, s.memory.Fill(entries)
}

// resumeSession makes the session that was signed in last the open one again, unless it is over: by
// accepting a ledger the owner begins no session.
func (t *tx) resumeSession(s *sealed, k Keyholder) error {
	if s.Session.ID == "" {
		return nil
	}
	goesOn := t.sessionGoesOn(s, k)
	if !x402.HasCode(goesOn, x402.LedgerCorrupt) {
		return goesOn
	}
	_, err := t.Exec(`INSERT INTO sessions (id, started_at, last_at, cap) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET last_at = excluded.last_at`, s.Session.ID, s.Session.Last, s.Session.Last,
		(*int64)(s.Session.Cap))
	if err == nil {
		_, err = t.Exec(`UPDATE sessions SET ended = CASE WHEN id = ? THEN 0 ELSE 1 END`, s.Session.ID)
	}
	return err
}
