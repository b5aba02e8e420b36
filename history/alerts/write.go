package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Writer writes alerts. It is a ledger's history.Alerts. The zero Writer wakes nobody.
type Writer struct {
	// Wake is called after an alert was committed, and must return at once. It may be nil.
	Wake func()
}

// Bounds of the table: hints that are older are of no use, and no agent fills the disk with them.
const (
	keepAlerts = 30 * 24 * time.Hour
	maxAlerts  = 10_000
)

// Write writes an alert of this kind, unless the subject has one in this window already.
func (w Writer) Write(t *sqldb.Tx, kind Kind, subject, window string, d Detail) error {
	d.Why = x402.BriefTo(d.Why, maxText)
	detail, err := json.Marshal(d)
	if err != nil {
		return err
	}
	n, err := t.Exec(`INSERT INTO alerts (id, kind, subject, win, at, detail, state, attempts, next_at)
		VALUES (?, ?, ?, ?, ?, ?, 'waiting', 0, 0) ON CONFLICT (kind, subject, win) DO NOTHING`,
		history.NewTimedID("alr_", t.Now), string(kind), subject, window, sqldb.Micros(t.Now), string(detail))
	if err != nil || n == 0 {
		return err
	}
	if w.Wake != nil {
		t.AfterCommit(w.Wake)
	}
	_, err = t.Exec(`DELETE FROM alerts WHERE at < ?`, sqldb.Micros(t.Now.Add(-keepAlerts)))
	if err == nil {
		_, err = t.Exec(`DELETE FROM alerts WHERE (at, id) <
			(SELECT at, id FROM alerts ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?)`, maxAlerts-1)
	}
	return err
}

// maxText bounds what a detail keeps of a text, in characters.
const maxText = 1000

// Asked tells the owner that a question waits for them. A list is one question, as long as its first one
// waits.
func (w Writer) Asked(t *sqldb.Tx, list []history.Approval) error {
	a := list[0]
	if len(list) > 1 {
		a = history.Together(list)
		a.ID = list[0].ID
		a.Why = fmt.Sprintf("%d payments are to be made together: %s", len(list), a.Why)
	}
	return w.Write(t, Approval, a.ID, "", Detail{Price: a.Price, Host: a.Host, Agent: a.Agent, Why: a.Why,
		SignIn: a.IsSignIn(), Expires: a.Expires})
}

// Frozen tells the owner of a freeze, by its number.
func (w Writer) Frozen(t *sqldb.Tx, number int64, f history.Freeze) error {
	subject := "wallet"
	if f.Account != "" {
		subject = f.Network + "/" + f.Account
	}
	return w.Write(t, Freeze, subject, strconv.FormatInt(number, 10),
		Detail{Network: f.Network, Account: f.Account, By: f.By, Why: f.Why})
}

// Held tells the owner, of a payment that is held, of each budget of which it takes four fifths or more,
// where that was not so before it; and once a day that little is left to pay from. The caps say what was
// used before it; low is nil if enough is left.
func (w Writer) Held(t *sqldb.Tx, p history.Payment, caps []budget.Cap, low *history.LowFunds) error {
	for _, c := range caps {
		line, used := c.Limit-c.Limit/5, c.Used.Add(p.Price)
		if c.Used >= line || used < line {
			continue
		}
		window := c.Window.Since.Format(time.DateOnly)
		if c.Window.Session != "" {
			window = p.Session
		}
		if err := w.Write(t, Budget, c.Title(), window, Detail{Used: used, Limit: c.Limit}); err != nil {
			return err
		}
	}
	if low == nil {
		return nil
	}
	return w.Write(t, Funds, low.Source+" "+p.Network+"/"+p.Source+" "+p.Asset, dayOf(t.Now),
		Detail{Source: low.Source, Left: low.Left, Symbol: low.Symbol, Renew: low.Renew, Network: p.Network,
			Account: p.Source})
}

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Overdue tells the owner that what became of a payment is not known although what was signed for it is no
// longer good: once for each payment.
func (w Writer) Overdue(ctx context.Context, s *history.Store, p history.Payment) error {
	var has bool
	err := s.View(ctx, func(t *sqldb.Tx) (err error) {
		has, err = t.Is(`SELECT EXISTS (SELECT 1 FROM alerts WHERE kind = ? AND subject = ?)`,
			string(Payment), p.ID)
		return err
	})
	if err != nil || has {
		return err
	}
	return s.Write(ctx, func(t *sqldb.Tx) error {
		return w.Write(t, Payment, p.ID, "", Detail{Price: p.Price, Host: p.Host, Agent: p.Agent,
			Network: p.Network, Expires: p.Evidence.ExpiresAt})
	})
}

// Damaged tells the owner, once a day, that the ledger is damaged or was rolled back, where that can still be
// written into it.
func (w Writer) Damaged(ctx context.Context, s *history.Store, why string) error {
	if err := s.InPlace(); err != nil {
		return err
	}
	return s.Write(ctx, func(t *sqldb.Tx) error {
		return w.Write(t, Ledger, history.FileName, dayOf(t.Now), Detail{Why: why})
	})
}

// HomeOpened tells the owner, once a day, that others could enter the wallet's home.
func (w Writer) HomeOpened(ctx context.Context, s *history.Store, why string) error {
	return s.Write(ctx, func(t *sqldb.Tx) error {
		return w.Write(t, Home, "home", dayOf(t.Now), Detail{Why: why})
	})
}
