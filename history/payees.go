package history

import (
	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// paid are the states of a payment that was made, or may have been (budget.PayeeHistory).
// the first words are the indexes'
const paid = ` AND state <> 'failed' AND state IN ('submitted', 'unknown', 'settled')`

// payeeHistory is what is known of a payee, and what a resource cost last.
func (t *tx) payeeHistory(host string, p budget.Payee) (h budget.PayeeHistory, err error) {
	h.Paid, h.PaidHere, h.Other, err = t.paidBefore(host, p)
	if err != nil {
		return h, err
	}
	h.LastPrice, err = t.lastPrice(p.Resource)
	return h, err
}

func (t *tx) paidBefore(host string, p budget.Payee) (known, here bool, other string, err error) {
	who := payee(p.Network, p.PayTo)
	const before = ` FROM payments WHERE network = ?1 AND payee = ?2` + paid
	err = t.row(`SELECT EXISTS (SELECT 1`+before+`),
		EXISTS (SELECT 1`+before+` AND host = ?3 AND asset = ?4)`, p.Network, who, host, p.Asset).Scan(&known, &here)
	if err != nil || here {
		return known, here, "", err
	}
	err = t.row(`SELECT pay_to FROM payments WHERE host = ? AND network = ? AND asset = ? AND payee <> ?
		AND state <> 'failed' LIMIT 1`, host, p.Network, p.Asset, who).Scan(&other)
	return known, here, other, none(err, nil)
}

// lastPrice is what was paid last for a resource; nil: it was never bought.
func (t *tx) lastPrice(resource string) (*money.Dollars, error) {
	scan := func(row scanner) (price money.Dollars, err error) { return price, row.Scan(&price) }
	return find(t, scan, `SELECT usd FROM payments WHERE resource = ?`+paid+` ORDER BY seq DESC LIMIT 1`,
		resource)
}

// sellerAsDecided refuses a payment, with ErrMoved, when the history of its payee or the resource's
// last price is no longer as its decision needs it.
func (t *tx) sellerAsDecided(d budget.Decision, p Payment) error {
	if d.PayeeKnown || d.PayeeUnchanged {
		var h budget.PayeeHistory
		var err error
		h.Paid, h.PaidHere, h.Other, err = t.paidBefore(p.Host,
			budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo})
		if err != nil {
			return err
		}
		if (d.PayeeKnown && !h.Paid) || (d.PayeeUnchanged && h.Changed()) {
			return moved("the payee's history changed")
		}
	}
	if d.MinLastPrice == nil {
		return nil
	}
	last, err := t.lastPrice(p.Resource())
	if err != nil {
		return err
	}
	if last != nil && *last < *d.MinLastPrice {
		return moved("the last price changed")
	}
	return nil
}
