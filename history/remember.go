package history

import (
	"database/sql"
	"errors"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// paid are the states of a payment that was made, or may have been (package budget, Memory).
// the first words are the indexes'
const paid = ` AND state <> 'failed' AND state IN ('submitted', 'unknown', 'settled')`

// PayeeHistory tells package budget what is known of a payee, and what a resource cost last.
func (t *Tx) PayeeHistory(host string, p budget.Payee) (m budget.Memory, err error) {
	who := payee(p.Network, p.PayTo)
	err = t.row(`SELECT EXISTS (SELECT 1 FROM payments WHERE network = ?1 AND payee = ?2`+paid+`),
		EXISTS (SELECT 1 FROM payments WHERE host = ?3 AND network = ?1 AND asset = ?4 AND payee = ?2`+paid+
		`)`,
		p.Network, who, host, p.Asset).Scan(&m.Paid, &m.PaidHere)
	if err != nil {
		return m, err
	}
	if !m.PaidHere {
		err = t.row(`SELECT pay_to FROM payments WHERE host = ? AND network = ? AND asset = ? AND payee <> ? AND state <> 'failed' LIMIT 1`,
			host, p.Network, p.Asset, who).Scan(&m.Other)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return m, err
		}
	}
	var last money.Dollars
	err = t.row(`SELECT usd FROM payments WHERE resource = ?`+paid+` ORDER BY seq DESC LIMIT 1`,
		p.Resource).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return m, nil
	}
	m.LastPrice = &last
	return m, err
}
