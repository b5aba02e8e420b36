package history

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// maxAlertText bounds what a detail keeps of a text, in characters.
const maxAlertText = 1000

// alertQuestion tells the owner that a question waits for them.
func (t *tx) alertQuestion(a Approval) error {
	return t.alert(AlertApproval, a.ID, "", AlertDetail{Price: a.Price, Host: a.Host, Agent: a.Agent,
		Why: x402.BriefTo(a.Why, maxAlertText), SignIn: a.IsSignIn(), Expires: a.Expires})
}

// alertList is alertQuestion for a list, which is one question.
func (t *tx) alertList(list []Approval) error {
	all := Together(list)
	all.ID = list[0].ID // as long as that waits, the question does
	all.Why = fmt.Sprintf("%d payments are to be made together: %s", len(list), all.Why)
	return t.alertQuestion(all)
}

// alertFreeze tells the owner of a freeze; of what they stopped themselves nobody has to.
func (t *tx) alertFreeze(seq int64, f Freeze) error {
	if f.By == byOwner {
		return nil
	}
	return t.alert(AlertFreeze, f.alertSubject(), strconv.FormatInt(seq, 10), f.alertDetail())
}

func (f Freeze) alertSubject() string {
	if f.Account == "" {
		return "wallet"
	}
	return f.Network + "/" + f.Account
}

func (f Freeze) alertDetail() AlertDetail {
	return AlertDetail{Network: f.Network, Account: f.Account, By: f.By,
		Why: x402.BriefTo(f.Why, maxAlertText)}
}

// alertBudgets tells the owner of each budget of which a payment takes four fifths or more, where that was
// not so before it. The caps say what was used before it.
func (t *tx) alertBudgets(caps []budget.Cap, p Payment) error {
	for _, c := range caps {
		line, used := c.Limit-c.Limit/5, c.Used.Add(p.Price)
		if c.Used >= line || used < line {
			continue
		}
		window := c.Window.Since.Format(time.DateOnly)
		if c.Window.Session != "" {
			window = p.Session
		}
		err := t.alert(AlertBudget, c.Title(), window, AlertDetail{Used: used, Limit: c.Limit})
		if err != nil {
			return err
		}
	}
	return nil
}

// LowFunds is what is left to pay from after a payment, where that is little.
type LowFunds struct {
	Source string // "delegation", "vault", "allowance" or "balance"
	Left   money.Dollars
	Symbol string
	Renew  money.Dollars // as AlertDetail has it
}

// alertFunds tells the owner, once a day, that little is left.
func (t *tx) alertFunds(low *LowFunds, p Payment) error {
	if low == nil {
		return nil
	}
	subject, detail := low.alert(p)
	return t.alert(AlertFunds, subject, dayOf(t.Now), detail)
}

// alert is what is told of it, and about what.
func (low *LowFunds) alert(p Payment) (subject string, d AlertDetail) {
	return low.Source + " " + p.Network + "/" + p.Source + " " + p.Asset, AlertDetail{
		Source:  low.Source,
		Left:    low.Left,
		Symbol:  low.Symbol,
		Renew:   low.Renew,
		Network: p.Network,
		Account: p.Source,
	}
}

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// AlertOverdue tells the owner that what became of a payment is not known although what was signed for it is
// no longer good: once for each payment.
func (s *Store) AlertOverdue(ctx context.Context, p Payment) error {
	has, err := readOnce(ctx, s, func(t *tx) (bool, error) {
		return t.Is(`SELECT EXISTS (SELECT 1 FROM alerts WHERE kind = ? AND subject = ?)`,
			string(AlertPayment), p.ID)
	})
	if err != nil || has {
		return err
	}
	return s.tx(ctx, func(t *tx) error {
		return t.alert(AlertPayment, p.ID, "", AlertDetail{Price: p.Price, Host: p.Host, Agent: p.Agent,
			Network: p.Network, Expires: p.Evidence.ExpiresAt})
	})
}

// AlertDamage tells the owner, once a day, that the ledger is damaged or was rolled back, where that can
// still be written into it.
func (s *Store) AlertDamage(ctx context.Context, why string) error {
	if err := s.InPlace(); err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error {
		return t.alert(AlertLedger, FileName, dayOf(t.Now),
			AlertDetail{Why: x402.BriefTo(why, maxAlertText)})
	})
}
