package history

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
)

// The second step of a payment in a fleet's ledger: what was signed is on the servers' disks before it is
// sent, by the function submit, if who holds the key permits it by what the ledger says.

// submit puts a signed payment on the servers' disks. signedBytes is the digest of the message that the
// unlock agent signs; "": this process has what is sent.
func (e *fleet) submit(ctx context.Context, s *Store, p Payment, signed Signed, signedBytes string,
	k Keyholder) error {
	if signed.Channel != nil || k.Permit == nil { // it is read anyway
		signed.Grounds = nil
	}
	row, facts, err := e.signing(ctx, p, signed.Grounds, k)
	if err != nil {
		return err
	}
	q, err := e.submission(row, facts, p, signed, signedBytes, k)
	switch {
	case err != nil:
		return err
	case signed.Channel == nil:
		_, err = call(ctx, e, scanNumber, `SELECT submit(?::jsonb)`, q)
	default:
		err = s.txRows(ctx, func(t *tx) error { return t.submitThrough(*signed.Channel, row, q, k) })
	}
	if refusedAs(err, "X4M01") && signed.Grounds != nil { // it is not as it was held
		signed.Grounds = nil
		k.Permit = func(Payment, budget.Facts) error { return nil } // it has said so, and is asked once
		return e.submit(ctx, s, p, signed, signedBytes, k)
	}
	return e.notSubmitted(ctx, p, err)
}

// signing is a payment that was signed, as it stands, and what k has to know to permit that: in one round
// trip, or in none where the grounds of the decision answer that.
func (e *fleet) signing(ctx context.Context, p Payment, g *Grounds, k Keyholder) (row Payment, f budget.Facts,
	err error) {
	if k.Permit == nil { // nobody is asked
		row, err = call(ctx, e, scanPayment, selectPayment+` WHERE id = ?`, p.ID)
		return row, f, none(err, errNoPayment)
	}
	query := k.Query(p)
	if f, isKnown := g.facts(p, query); isKnown {
		return p, f, nil
	}
	query.At = p.Created
	asIs := reading{selectPayment + ` WHERE id = ?`, []any{p.ID}, func(found scanner) (err error) {
		row, err = scanPayment(found)
		return err
	}}
	facts, err := e.facts(ctx, Question{Rules: query}, &p, asIs)
	switch {
	case err != nil:
		return row, f, err
	case row.ID == "":
		return row, f, errNoPayment
	case row.State == Reserved && !(row.Created.Equal(p.Created) && row.Session == p.Session):
		return row, f, corrupt("payment %s is not the one that was signed", row.ID)
	}
	return row, facts.Facts, nil
}

// submission is the argument of the function submit, for a payment as it stands, if it may be signed.
func (e *fleet) submission(row Payment, facts budget.Facts, p Payment, signed Signed, signedBytes string,
	k Keyholder) (string, error) {
	if signedBytes != "" {
		signed.Payload, signed.Requirement = nil, row.Requirement
	}
	record := signed.record()
	q := map[string]any{
		"writer":       e.Writer,
		"operation":    newID("op_"),
		"id":           p.ID,
		"unique":       hex.EncodeToString(record.unique),
		"record":       base64.StdEncoding.EncodeToString(record.packed),
		"storedDetail": toJSON(map[string]string{"stored": record.stored}),
	}
	if signedBytes == "" {
		q["leaseOwner"] = e.name()
	}
	if signed.Grounds != nil {
		q["held"] = heldAs(row)
	}
	q["completes"] = signedBytes == "" && row.Payload == nil &&
		toJSON(row.Evidence) == toJSON(signed.Evidence)
	if row.State == Reserved {
		if err := e.permitted(row, facts, p, signed, record, signedBytes, k, q); err != nil {
			return "", err
		}
	}
	return toJSON(q), nil
}

// heldAs is what a payment was held as, and its idempotency key: the function submit compares it with the
// row, which was not read again.
func heldAs(p Payment) string {
	return strings.Join([]string{p.Session, strconv.FormatInt(micros(p.Created), 10),
		hex.EncodeToString(p.Fingerprint[:]), p.Method, p.URL, p.Target, p.Host, p.Network, p.Scheme,
		string(p.Dialect), p.Asset, p.Symbol, p.Amount.String(), strconv.FormatInt(int64(p.Price), 10),
		p.PayTo, p.Source, p.Agent, p.IdempotencyKey}, "\n")
}

// notSubmitted is what an error of the function submit means.
func (e *fleet) notSubmitted(ctx context.Context, p Payment, err error) error {
	var f *postgres.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f) && f.State == "X4F01":
		return e.frozen(ctx, p)
	case errors.As(err, &f) && f.Kind == postgres.Violated && strings.Contains(f.Constraint, "unique_key"):
		return ErrSignedBefore
	}
	return e.tell(err)
}

// permitted asks who holds the key whether a payment may be signed, as it was reserved, and adds to the call
// what is remembered of it.
func (e *fleet) permitted(row Payment, facts budget.Facts, asSigned Payment, signed Signed,
	record signedRecord, signedBytes string, k Keyholder, q map[string]any) error {
	if k.Permit == nil {
		return errNobodyRecorded()
	}
	if signed.Channel == nil { // else where the channel's row is locked
		if err := (*channelStep)(nil).checkOwners(row, k); err != nil {
			return err
		}
	}
	g := signature{SignedBytes: signedBytes, Submitted: signedBytes == "", Row: row.digest()}
	if g.Row != asSigned.digest() {
		return corrupt("payment %s is not the one that was signed", row.ID)
	}
	if err := k.Permit(row, facts); err != nil {
		return err
	}
	g.Created, g.Key, g.SessionCap = micros(row.Created), row.IdempotencyKey, facts.Session.Cap
	g.Unique, g.Evidence, g.Stored = encodeDigest(record.unique), record.evidence, record.stored
	g.terms = row.terms()
	if signed.Channel != nil {
		g.Voucher = signed.Channel.voucher()
	}
	var entries []map[string]string
	for _, entry := range remembered(row.ID, g) {
		entries = append(entries, map[string]string{"key": hex.EncodeToString(entry.key),
			"value": hex.EncodeToString(entry.value)})
	}
	q["memory"], q["detail"] = entries, toJSON(g)
	return nil
}
