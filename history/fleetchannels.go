package history

import (
	"context"
)

// Payments through channels, in a fleet's ledger: the payment's steps and the channel's are one transaction,
// which locks the channel's row first.

// submitThrough submits a payment and takes a channel on. q is for the function submit.
func (t *tx) submitThrough(to Channel, p Payment, q string, k Keyholder) error {
	old, err := t.takeChannel(to)
	if err != nil {
		return err
	}
	step, err := newStep(old, to)
	if err != nil {
		return err
	}
	if p.State == Reserved {
		err = step.checkOwners(p, k)
		if err == nil {
			err = step.from.wasLeft(t.fleetRecall, to)
		}
		if err != nil {
			return err
		}
	}
	if _, err := scanNumber(t.row(`SELECT submit(?::jsonb)`, q)); err != nil {
		return err
	}
	return t.putChannel(to)
}

// fleetRecall is what a fleet's memory has under a key; nil: nothing.
func (t *tx) fleetRecall(key []byte) (value []byte, err error) {
	err = t.row(`SELECT value FROM memory WHERE key = ?`, key).Scan(&value)
	return value, none(err, nil)
}

// recordVoucher is RecordVoucher.
func (e *fleet) recordVoucher(ctx context.Context, s *Store, p Payment, signed Signed, c Channel, o Outcome,
	k Keyholder) (Payment, error) {
	if p.ID == "" {
		return p, e.signVoucher(ctx, s, signed, c, k)
	}
	row, facts, err := e.signing(ctx, p, nil, k)
	if err != nil {
		return Payment{}, err
	}
	signed.Channel = &c
	q, err := e.submission(row, facts, p, signed, "", k)
	if err != nil {
		return Payment{}, err
	}
	end, body := e.ending(p.ID, o, nil)
	var settled Payment
	err = s.txRows(ctx, func(t *tx) (err error) {
		if err := t.submitThrough(c, row, q, k); err != nil {
			return err
		}
		settled, err = scanPayment(t.row(`SELECT `+paymentColumns+`, record, receipt, chain_proof
			FROM finish(?::jsonb, ?)`, end, body))
		return err
	})
	if err != nil {
		return Payment{}, e.notSubmitted(ctx, p, err)
	}
	if o.ReleaseLease {
		e.drives(p.ID, false)
	}
	if o.Content != nil {
		s.tidySoon()
	}
	return settled, nil
}

// signVoucher records a voucher that costs nothing more.
func (e *fleet) signVoucher(ctx context.Context, s *Store, signed Signed, c Channel, k Keyholder) error {
	if k.Permit == nil {
		return errNobodyRecorded()
	}
	return s.txRows(ctx, func(t *tx) error {
		old, err := t.takeChannel(c)
		if err != nil {
			return err
		}
		step, err := newStep(old, c)
		if err == nil {
			err = step.from.wasLeft(t.fleetRecall, c)
		}
		if err != nil {
			return err
		}
		v := c.voucher()
		kept := v.entry()
		_, err = t.exec(
			`INSERT INTO memory VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
			kept.key,
			kept.value,
		)
		if err != nil {
			return err
		}
		err = t.audit(0, voucherEvent, map[string]any{"voucher": v, "sha256": digestOf(signed.Payload)})
		if err != nil {
			return err
		}
		return t.putChannel(c)
	})
}
