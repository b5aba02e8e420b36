package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// exempt are the cells in which an edit is found by nobody, each with the reason why it decides
// nothing about the wallet's own money. "table" is all of a table, "table.column" one column,
// "table-" a row that is gone.
var exempt = map[string]string{
	"payments.lease_owner": "who may go on with a payment: another process asks the chain, or sends the " +
		"same bytes",
	"payments.waiter": "whose client waits: the same call takes the payment up, or pays under the " +
		"same limits",
	"content_use.id": "as sealed_sums.id",
	"sealed_sums.id": "a CHECK of the schema, which is compared, holds it at 1",
	"alerts":         "what the owner is told of; what it is about is in the other tables",
	"turns":          "who tells it",
	"contents-":      "what was bought may be deleted for space at any time",
}

// decides are which rows of a table are edited, where not all of them are.
var decides = map[string]string{"totals": ` WHERE spent <> 0 OR held <> 0`} // nothing is nothing

func isExempt(name string) bool {
	table, _, _ := strings.Cut(strings.TrimSuffix(name, "-"), ".")
	return exempt[name] != "" || exempt[table] != ""
}

// fullLedger is a ledger with every kind of row.
func fullLedger(t *testing.T) (*Store, *clock, Keyholder) {
	t.Helper()
	s, c, _ := emptyStore(t)
	k := testKeyholder()
	k.Query = func(Payment) budget.Query { return budget.Query{HostEntries: []string{"api.example"}} }
	k.OwnSession = func(_ budget.Session, seal []byte) (bool, error) { return len(seal) > 0, nil }
	f := &ledgerFiller{t: t, Store: s, k: k}
	f.rules(1, true)
	first := f.payments()
	c.set(c.now().Add(25 * time.Hour)) // another day
	_, err := s.NewSession(t.Context(), nil,
		func(budget.Session) ([]byte, error) { return []byte("owner"), nil })
	require.NoError(t, err)
	f.approvals()
	f.freezes()
	f.channels()
	f.others(first)
	f.rules(2, false)
	f.signedByAgent()
	c.set(c.now().Add(2 * time.Hour)) // an approval is over
	asking(t, s, 9)
	f.submitted(nil)
	f.hold(nil)
	k.After, err = s.Head(t.Context())
	require.NoError(t, err)
	_, err = s.VerifySealed(t.Context(), k)
	require.NoError(t, err)
	return s, c, k
}

// ledgerFiller writes the rows of fullLedger.
type ledgerFiller struct {
	t *testing.T
	*Store
	k     Keyholder
	holds int
}

var boughtContent = &Content{Status: 200, Type: "text/plain", Body: []byte("bought")}

func (f *ledgerFiller) rules(version int64, accept bool) {
	require.NoError(f.t, f.SealRules(f.t.Context(), SealedRules{Version: version,
		Config: fmt.Append(nil, "config", version), Seal: []byte("seal")}, "/home", accept, f.k))
}

// hold reserves a payment, by an approval where one is named.
func (f *ledgerFiller) hold(change func(*Payment), approval ...byte) (p Payment) {
	f.holds++
	h := testHold(uint64(f.holds))
	h.Payment.Fingerprint[0], h.Payment.Requirement = byte(f.holds), json.RawMessage(`{"asked":1}`)
	if len(approval) == 0 {
		h.Payment.URL += fmt.Sprint("/", f.holds%3)
	}
	if change != nil {
		change(&h.Payment)
	}
	var err error
	if len(approval) > 0 {
		p, err = reserveApproved(f.Store, approval[0], h)
	} else {
		p, err = reserve(f.Store, h)
	}
	require.NoError(f.t, err)
	return p
}

func signedFor(p Payment) Signed {
	return Signed{Payload: []byte(`{"signed":"` + p.ID + `"}`), Requirement: []byte(`{"sent":1}`),
		UniqueKey: "nonce " + p.ID, Evidence: x402.Evidence{FeePayer: "payer"}}
}

func (f *ledgerFiller) submitted(change func(*Payment), approval ...byte) Payment {
	p := f.hold(change, approval...)
	require.NoError(f.t, f.Submit(f.t.Context(), p, signedFor(p), f.k))
	return p
}

func (f *ledgerFiller) finish(p Payment, o Outcome) {
	_, err := f.Finish(f.t.Context(), p.ID, o)
	require.NoError(f.t, err)
}

func (f *ledgerFiller) expire(p Payment) {
	p, err := f.Payment(f.t.Context(), p.ID)
	require.NoError(f.t, err)
	o := Expiry(p, x402.Status{State: x402.Expired, Note: "over"})
	_, err = f.Expire(f.t.Context(), p.ID, p.Evidence, o, f.k)
	require.NoError(f.t, err)
}

func withKey(name string) func(*Payment) { return func(p *Payment) { p.IdempotencyKey = name } }

// payments end in every way; first is one that was settled.
func (f *ledgerFiller) payments() (first Payment) {
	ctx := f.t.Context()
	f.submitted(withKey("used"))
	f.expire(f.submitted(withKey("free again")))
	require.NoError(f.t, f.Release(ctx, f.hold(nil).ID, "not sent"))
	first = f.submitted(
		func(p *Payment) { p.Host, p.Target, p.Symbol = "other.example", "https://other.example", "EURC" })
	f.finish(first, Outcome{State: Settled, Proof: Claimed, Transaction: "0x1", Facilitator: "one",
		Receipt: []byte(`{"ok":1}`), Content: boughtContent, Note: "claimed"})
	require.NoError(f.t, f.Deliver(ctx, first.ID))
	f.finish(first, Outcome{State: Settled, Proof: Chain, Transaction: "0x1",
		ChainProof: x402.Status{State: x402.Settled, Note: "<it is>"}})
	f.finish(first, Outcome{State: Unknown, Content: &Content{Status: 200, Body: []byte("late")}})
	claimed := f.submitted(nil)
	f.finish(claimed, Outcome{State: Settled, Proof: Claimed, Receipt: []byte(`{"ok":2}`)})
	f.expire(claimed) // a false receipt
	f.finish(f.submitted(nil),
		Outcome{State: Unknown, Note: "who knows", ReleaseLease: true, ClearWaiter: true})
	return first
}

func (f *ledgerFiller) approvals() {
	ctx := f.t.Context()
	seal := func(Approval) ([]byte, error) { return []byte("owner"), nil }
	var asked [6]Approval
	var err error
	for q := range byte(6) {
		asked[q] = asking(f.t, f.Store, q)
		if q == 1 || q == 3 || q == 4 {
			_, err = f.Approve(ctx, asked[q].ID, "owner", seal)
			require.NoError(f.t, err)
		}
	}
	_, err = f.Decline(ctx, asked[5].ID, "client")
	require.NoError(f.t, err)
	_, err = f.Deny(ctx, asked[2].ID, "owner")
	require.NoError(f.t, err)
	f.submitted(nil, 3)
	require.NoError(f.t, f.Release(ctx, f.hold(nil, 4).ID, "not sent"))
}

func (f *ledgerFiller) freezes() {
	ctx := f.t.Context()
	require.NoError(f.t, f.Freeze(ctx, Freeze{By: "owner", Why: "a look"}))
	_, err := f.Unfreeze(ctx, func(Lift) ([]byte, error) { return []byte("owner"), nil })
	require.NoError(f.t, err)
	require.NoError(f.t,
		f.Freeze(ctx, Freeze{Network: "eip155:1", Account: "0xother", By: "agent", Why: "odd"}))
}

func (f *ledgerFiller) channels() {
	ctx := f.t.Context()
	require.NoError(f.t, f.SaveChannel(ctx, testChannel(0)))
	voucher := testChannel(1)
	voucher.PendingCall, voucher.Claimed = json.RawMessage(`{"url":"x"}`), money.NewAmount(50)
	p := f.hold(nil)
	_, err := f.RecordVoucher(ctx, p, Signed{Payload: voucher.Signed, Requirement: json.RawMessage("{}"),
		UniqueKey: "voucher 1"}, voucher,
		Outcome{State: Settled, Proof: Claimed, Content: boughtContent}, f.k)
	require.NoError(f.t, err)
	voucher = testChannel(2)
	voucher.Amount, voucher.Refused = money.NewAmount(100), json.RawMessage(`{"why":"no"}`)
	_, err = f.RecordVoucher(ctx, Payment{}, Signed{Payload: voucher.Signed}, voucher, Outcome{}, f.k)
	require.NoError(f.t, err)
	require.NoError(f.t, f.Refuse(ctx, voucher))
}

// others are the rows that belong to no payment of ours, and a session's label.
func (f *ledgerFiller) others(first Payment) {
	ctx := f.t.Context()
	_, err := f.RecordDelegation(ctx, "solana:x", "account", money.NewAmount(7))
	require.NoError(f.t, err)
	require.NoError(f.t, NoteForBooks(ctx, f.Store, first.Session, "the first"))
}

// signedByAgent leaves a payment as the unlock agent signed it, before it is submitted, and attaches an
// idempotency key to another.
func (f *ledgerFiller) signedByAgent() {
	ctx := f.t.Context()
	byAgent := f.hold(withKey("agent's"))
	message := signedFor(byAgent)
	message.Payload, message.Requirement = nil, nil // these come with Submit
	require.NoError(f.t, f.Sign(ctx, byAgent, message, []byte("message"), f.k))
	late := f.submitted(nil)
	named, err := f.AttachIdempotencyKey(ctx, late.ID, "attached")
	require.NoError(f.t, err)
	require.True(f.t, named)
}

// tableRows are one table's columns and rows, as SQL literals.
type tableRows struct {
	name    string
	columns []string
	keys    []string // of the primary key
	rows    [][]string
}

// allTables are all but the exempt ones.
func allTables(t *testing.T, s *Store) (tables []tableRows) {
	t.Helper()
	require.NoError(t, s.view(t.Context(), func(tx *tx) error {
		names, err := sqldb.Collect(tx.Tx, scanText,
			`SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`)
		require.NoError(t, err)
		for _, name := range names {
			if isExempt(name) {
				continue
			}
			table := tableRows{name: name}
			require.NoError(t, tx.Each(func(row sqldb.Row) error {
				var column string
				var pk int
				err := row.Scan(&column, &pk)
				table.columns = append(table.columns, column)
				if pk > 0 {
					table.keys = append(table.keys, column)
				}
				return err
			}, `SELECT name, pk FROM pragma_table_info(?) ORDER BY cid`, name))
			quoted := make([]string, len(table.columns))
			for i, column := range table.columns {
				quoted[i] = `quote("` + column + `")`
			}
			table.rows, err = sqldb.Collect(tx.Tx, func(row sqldb.Row) ([]string, error) {
				cells := make([]string, len(quoted))
				into := make([]any, len(quoted))
				for i := range cells {
					into[i] = &cells[i]
				}
				return cells, row.Scan(into...)
			}, `SELECT `+strings.Join(quoted, ", ")+` FROM "`+name+`"`+decides[name])
			require.NoError(t, err)
			tables = append(tables, table)
		}
		return nil
	}))
	return tables
}

// where selects a row by its key.
func (table tableRows) where(row []string) string {
	var list []string
	for i, column := range table.columns {
		if slices.Contains(table.keys, column) || len(table.keys) == 0 {
			list = append(list, fmt.Sprintf(`"%s" IS %s`, column, row[i]))
		}
	}
	return " WHERE " + strings.Join(list, " AND ")
}

// others are values that a cell could have as well.
func others(literal string) []string {
	switch {
	case literal == "NULL":
		return []string{"1", "'x'", "x'00'", "X''"}
	case strings.HasPrefix(literal, "'"):
		return []string{strings.TrimSuffix(literal, "'") + "x'", "''", "'0'"}
	case strings.HasPrefix(literal, "X'"):
		return []string{"X'00" + literal[2:], "X''", "X'31'"}
	}
	return []string{literal + " + 1", literal + " - 1", "0"}
}

var errRollBack = errors.New("as it was")

// verifyAll is what `history verify` compares: the tables, and the bytes that are stored.
func (t *tx) verifyAll(k Keyholder) error {
	if _, err := t.verify(k, nil); err != nil {
		return err
	}
	for after, more := int64(math.MinInt64), true; more; {
		var err error
		_, after, more, err = t.contentPage(after)
		if err != nil {
			return err
		}
	}
	return nil
}

// onTrial runs f in a transaction that is rolled back.
func onTrial(t require.TestingT, s *Store, f func(*tx)) {
	err := s.db.Write(context.Background(), func(d *sqldb.Tx) error {
		f(&tx{Tx: d, known: &known{}, followed: &followed{}})
		return errRollBack
	})
	require.Error(t, err) // the database's, where f met one
}

// finds edits a ledger, and reports whether that can be done, whether it is found, and what was said.
func finds(t require.TestingT, s *Store, k Keyholder, edit string) (done bool, found error) {
	onTrial(t, s, func(tx *tx) {
		n, err := tx.Exec(edit)
		done = err == nil && n > 0
		if done { // a row that the table takes
			found = tx.verifyAll(k)
		}
	})
	return done, found
}

// Whatever single cell of whatever table is edited, whatever row is taken out or put in: it is found,
// or stands among the exempt with its reason.
func TestVerifyFindsEveryCell(t *testing.T) {
	s, _, k := fullLedger(t)
	tried := map[string]bool{}
	attempt := func(name, edit string) {
		done, found := finds(t, s, k, edit)
		if !done {
			return
		}
		tried[name] = true
		if !x402.HasCode(found, x402.LedgerCorrupt) {
			t.Errorf("%s: %s: %v", name, edit, found)
		}
	}
	for _, table := range allTables(t, s) {
		require.NotEmpty(t, table.rows, "%s has no row to edit", table.name)
		rows := table.rows
		if testing.Short() {
			rows = rows[:min(3, len(rows))]
		}
		for _, row := range rows {
			at := table.where(row)
			for i, column := range table.columns {
				name := table.name + "." + column
				if isExempt(name) {
					continue
				}
				for _, value := range others(row[i]) {
					attempt(
						name,
						fmt.Sprintf(`UPDATE "%s" SET "%s" = %s %s AND "%[2]s" IS NOT %[3]s`, table.name,
							column, value, at),
					)
				}
			}
			if !isExempt(table.name + "-") {
				attempt(table.name+"-", `DELETE FROM "`+table.name+`"`+at)
			}
			attempt(table.name+"+",
				`INSERT INTO "`+table.name+`" VALUES (`+strings.Join(table.another(row), ", ")+`)`)
		}
	}
	for _, table := range allTables(t, s) {
		for _, column := range table.columns {
			name := table.name + "." + column
			require.True(t, tried[name] || isExempt(name), "%s was never edited", name)
		}
	}
}

// another is a row like one, with another key.
func (table tableRows) another(row []string) []string {
	row = slices.Clone(row)
	for i, column := range table.columns {
		isKey := slices.Contains(table.keys, column) || column == "id" || column == "unique_key" ||
			column == "idempotency_key" || column == "state" || column == "place"
		switch {
		case !isKey:
		case column == "state":
			row[i] = "'used'"
		case strings.HasPrefix(row[i], "'"):
			row[i] = strings.TrimSuffix(row[i], "'") + "y'"
		case strings.HasPrefix(row[i], "X'"):
			row[i] = "X'" + row[i][4:len(row[i])-1] + "77'"
		case row[i] != "NULL":
			row[i] += " + 100000"
		}
	}
	return row
}

// The same with random values, in random rows.
func TestVerifyFindsRandomEdits(t *testing.T) {
	s, _, k := fullLedger(t)
	tables := allTables(t, s)
	rapid.Check(t, func(rt *rapid.T) {
		table := rapid.SampledFrom(tables).Draw(rt, "table")
		i := rapid.IntRange(0, len(table.columns)-1).Draw(rt, "column")
		row := rapid.SampledFrom(table.rows).Draw(rt, "row")
		name := table.name + "." + table.columns[i]
		if isExempt(name) {
			rt.Skip("exempt")
		}
		value := rapid.OneOf(
			rapid.Just(rapid.SampledFrom(table.rows).Draw(rt, "of another row")[i]),
			rapid.Map(rapid.Int64(), func(n int64) string { return fmt.Sprint(n) }),
			rapid.Map(rapid.StringMatching(`[ -&(-~]{0,40}`), func(s string) string { return "'" + s + "'" }),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40),
				func(b []byte) string { return fmt.Sprintf("X'%X'", b) }),
		).Draw(rt, "value")
		edit := fmt.Sprintf(`UPDATE "%s" SET "%s" = %s %s AND "%[2]s" IS NOT %[3]s`, table.name,
			table.columns[i], value, table.where(row))
		if done, found := finds(rt, s, k, edit); done {
			require.True(rt, x402.HasCode(found, x402.LedgerCorrupt), "%s: %v", edit, found)
		}
	})
}

// What an edit of one cell is not: several that belong together.
func TestVerifyOfForgedChanges(t *testing.T) {
	for name, forge := range map[string]func(g *guarded){
		"a signed payment failed, in the chain and in every table": func(g *guarded) {
			p := g.sign(g.reserve(testHold(5)))
			g.sql(`UPDATE payments SET state = 'failed', updated_at = ?, note = 'x' WHERE id = ?`,
				micros(g.clock.now())+1, p.ID)
			g.sumUp()
			g.forge(p.ID, string(Failed), `{"note":"x"}`)
		},
		"a payment that nobody reserved": func(g *guarded) {
			const terms = `session, created_at, updated_at, fingerprint, method, url, target, host, network, scheme,
				dialect, asset, symbol, amount, usd, pay_to, source, requirement, agent`
			g.sql(`INSERT INTO payments (seq, id, state, ` + terms + `)
				SELECT 3, 'pay_forged', 'reserved', ` + terms + ` FROM payments WHERE seq = 1`)
			g.sumUp()
		},
		"a signature of nobody": func(g *guarded) {
			p := g.reserve(testHold(5))
			s := signedAs(p)
			s.Unique = encodeDigest([]byte{1})
			g.sql(`UPDATE payments SET state = 'submitted', unique_key = x'01' WHERE id = ?`, p.ID)
			g.forge(p.ID, signedEvent, toJSON(s))
			g.sql(`UPDATE audit SET seal = x'00' WHERE seq = (SELECT max(seq) FROM audit)`)
		},
		"a text of bytes": func(g *guarded) { g.sql(`UPDATE payments SET note = CAST(note AS BLOB)`) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			_, err := g.VerifySealed(t.Context(), g.k)
			require.NoError(t, err)
			forge(g)
			_, err = g.VerifySealed(t.Context(), g.k)
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
			t.Log(err)
		})
	}
}

// Without the key, too, a signature is of the terms that were reserved.
func TestVerifyOfASignatureOfOtherTerms(t *testing.T) {
	g := newGuarded(t)
	p := g.sign(g.reserve(testHold(5)))
	_, err := g.Verify(t.Context(), Head{})
	require.NoError(t, err)
	g.sql(`UPDATE audit SET detail = json_set(detail, '$.row', 'x') WHERE event = 'signed' AND payment = ?`, p.Number)
	g.relink(1)
	_, err = g.Verify(t.Context(), Head{})
	require.ErrorContains(t, err, "cannot be")
}

// What SQLite itself would do for whoever edits the schema.
func TestVerifyFindsATrigger(t *testing.T) {
	s, _, k := fullLedger(t)
	for _, edit := range []string{
		`CREATE TRIGGER free AFTER INSERT ON audit BEGIN UPDATE totals SET spent = 0; END`,
		`DROP INDEX payments_by_key`, `CREATE TABLE more (a)`,
		`ALTER TABLE sessions ADD COLUMN more TEXT`,
	} {
		onTrial(t, s, func(tx *tx) {
			_, err := tx.Exec(edit)
			require.NoError(t, err)
			_, err = tx.verify(k, nil)
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%s: %v", edit, err)
		})
	}
}
