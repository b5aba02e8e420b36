package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/internal/books"
	"x402-wallet/internal/receipt"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

type row struct {
	ID, For, Price, Symbol, Network string // For is without https://, which goes without saying
	Agent                           string // whose it is, of those that share the wallet
	At                              time.Time
	Since, Next                     string // how long ago; what becomes of it
	status
}

// status is a payment's state and what it rests on. Kind is how it looks: good, open or bad.
type status struct{ Kind, Status string }

func rowOf(p history.Payment) row {
	s := status{Kind: "open", Status: string(p.State)}
	switch {
	case p.IsSignIn() && p.State == history.Settled:
		s = status{Kind: "good", Status: "signed in"}
	case p.FalseReceipt:
		s = status{Kind: "bad", Status: s.Status + ", false receipt"}
	case p.State == history.Settled && p.Proof == history.Chain:
		s = status{Kind: "good", Status: s.Status + ", confirmed on chain"}
	case p.State == history.Settled:
		s = status{Kind: "good", Status: s.Status + ", not confirmed on chain yet"}
	case p.State == history.Failed:
		s.Kind = "bad"
	}
	if p.IsPull() {
		s.Status += ", a float from your account"
	}
	if name := p.Subscription(); name != "" {
		s.Status += ", by the subscription " + name
	}
	return row{ID: p.ID, For: p.Method + " " + strings.TrimPrefix(p.URL, "https://"),
		Price:  p.Worth().Price(),
		Symbol: p.Symbol, Agent: p.Agent, Network: x402.NetworkName(p.Network), At: p.Created,
		Next: next(p), status: s}
}

const perPage = 50

// wanted is what the history was asked for. Days are of UTC, and To counts too.
type wanted struct {
	URL, Status, From, To, Before string
	tools.Whose
	from, until time.Time
	agents      []string // that are meant by Whose
}

var states = []history.State{history.Settled, history.Unknown, history.Submitted, history.Reserved,
	history.Failed}

func (l *look) wanted() (q wanted, err error) {
	q = wanted{URL: l.r.FormValue("url"), Status: l.r.FormValue("status"),
		Whose: tools.Whose{Agent: l.r.FormValue("agent"), Team: l.r.FormValue("team")},
		From:  l.r.FormValue("from"), To: l.r.FormValue("to"), Before: l.r.FormValue("before")}
	for _, d := range []struct {
		text string
		into *time.Time
	}{{q.From, &q.from}, {q.To, &q.until}} {
		if d.text == "" {
			continue
		}
		*d.into, err = time.Parse(time.DateOnly, d.text)
		if err != nil {
			return q, x402.Errorf(x402.InvalidArgument, "%q is not a date like 2026-01-31", d.text)
		}
	}
	if q.To != "" {
		q.until = q.until.AddDate(0, 0, 1)
	}
	if q.Status != "" && !slices.Contains(states, history.State(q.Status)) {
		return q, x402.Errorf(x402.InvalidArgument, "there is no status %q", q.Status)
	}
	q.agents, err = l.wallet.Agents(l.r.Context(), q.Whose)
	return q, err
}

// query is the same for another page; before is the payment that it begins after.
func (q wanted) query(before, format string) string {
	v := url.Values{}
	for name, value := range map[string]string{"url": q.URL, "status": q.Status, "agent": q.Agent,
		"team": q.Team, "from": q.From, "to": q.To, "before": before, "format": format} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v.Encode()
}

func (q wanted) narrows() bool { return q.query("", "") != "" }

type found struct {
	wanted
	States []history.State
	Agents []string // of the rules, and those that paid; none: nobody shares the wallet
	Teams  []string // of the rules
	Rows   []row
	Totals []string
	Older  string // the last payment here, when there are more
}

func list(l *look) (frame, error) {
	q, err := l.wanted()
	if err != nil {
		return frame{}, err
	}
	payments, more, totals, err := report.List(l.r.Context(), l.wallet.Store,
		report.Filter{Limit: perPage, Before: q.Before, URL: q.URL, After: q.from, Until: q.until,
			Agents: q.agents, State: history.State(q.Status)})
	if err != nil {
		return frame{}, missing(err, "there is no such payment to list before")
	}
	rules := l.wallet.Engine.Rules
	f := found{wanted: q, States: states, Teams: slices.Sorted(maps.Keys(rules.Teams))}
	paid, err := report.Agents(l.r.Context(), l.wallet.Store)
	if err != nil {
		return frame{}, err
	}
	f.Agents = slices.AppendSeq(paid, maps.Keys(rules.Agents))
	slices.Sort(f.Agents)
	f.Agents = slices.Compact(f.Agents)
	for _, p := range payments {
		f.Rows = append(f.Rows, rowOf(p))
	}
	for _, symbol := range slices.Sorted(maps.Keys(totals)) {
		f.Totals = append(f.Totals, totals[symbol].Price()+" in "+symbol)
	}
	if more {
		f.Older = payments[len(payments)-1].ID
	}
	return frame{Title: "History", Here: "history", Body: f.body}, nil
}

// export writes the same bytes as x402-wallet export with the same filter.
func export(l *look) error {
	q, err := l.wanted()
	if err != nil {
		return err
	}
	e := books.Export{Format: l.r.FormValue("format"), Within: report.Range{After: q.from, Until: q.until,
		URL: q.URL, Agents: q.agents, State: history.State(q.Status)},
		AgentLabels: l.wallet.AgentLabels, TeamOf: l.wallet.Engine.Rules.Teams.Of}
	kind, known := map[string]string{"csv": "text/csv; charset=utf-8",
		"jsonl": "application/x-ndjson; charset=utf-8"}[e.Format]
	if !known {
		return x402.Errorf(x402.InvalidArgument, "there is no format %q here", e.Format)
	}
	l.download(kind, "x402-wallet."+e.Format)
	if err := e.Write(l.r.Context(), l.w, l.wallet.Store, l.wallet.Engine.Assets); err != nil {
		// the beginning is out: a cut connection is a failed download, not a short file
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (l *look) download(kind, name string) {
	l.w.Header().Set("Content-Type", kind)
	l.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

type paid struct {
	row
	For       string // all of it
	Facts     [][2]string
	Events    []event
	Documents []document
	Content   *tools.HistoryOut
	Gone      string // why the content is not there any more
	Cut       bool   // only the beginning of the content is shown
	Receipt   bool   // there is a receipt to download
}

type event struct {
	At           time.Time
	What, Detail string
}

// document is evidence as it came.
type document struct{ Name, Text string }

// Bounds of what is shown of a payment; all of it is in x402-wallet show --json.
const (
	mostEvents   = 200
	mostDocument = 16 << 10
)

func payment(l *look) (frame, error) {
	id := l.r.PathValue("id")
	all, err := l.wallet.History(l.r.Context(), tools.HistoryIn{PaymentID: id, Evidence: true})
	if err != nil {
		return frame{}, err
	}
	p, err := l.wallet.Store.Payment(l.r.Context(), id)
	if err != nil {
		return frame{}, err
	}
	t := all.Transactions[0]
	v := paid{row: rowOf(p), For: p.Method + " " + p.URL}
	e := all.Evidence.Signed
	expires := ""
	if !e.ExpiresAt.IsZero() && p.State.Unfinished() {
		expires = e.ExpiresAt.UTC().Format(time.DateTime) + " UTC"
	}
	amount := amountOf(p, t.Symbol)
	if p.IsSignIn() {
		amount = "none: the wallet signed in (sign-in-with-x)"
	}
	for _, fact := range [][2]string{
		{"Amount", amount}, {"Paid to", p.PayTo},
		{"Network", x402.Title(t.Network)},
		{"Asset", all.Asset}, {"From", p.Source}, {"Transaction", t.TransactionSignature},
		{"Settled by", p.Facilitator}, {"Nonce", e.Nonce}, {"Signature", e.Signature},
		{"Fee payer", e.FeePayer}, {"Can be settled until about", expires}, {"Session", p.Session},
		{"Protocol", string(p.Dialect)}, {"Asked for as", p.IdempotencyKey}, {"Agent", p.Agent},
		{"Note", p.Note},
		{"The seller's signed offer", attested(all.Evidence.Offer)},
		{"The seller's signed receipt, a claim", attested(all.Evidence.SignedReceipt)},
	} {
		if fact[1] != "" {
			v.Facts = append(v.Facts, fact)
		}
	}
	events := all.Evidence.States
	for _, s := range events[max(0, len(events)-mostEvents):] {
		v.Events = append(v.Events, event{At: s.At, What: s.Event, Detail: short(2000, string(s.Detail))})
	}
	for _, d := range []struct {
		name string
		raw  json.RawMessage
	}{{"Receipt, as the seller or its payment service claims", all.Evidence.Receipt},
		{"The chain's proof", p.ChainProof}, {"What was asked for", p.Requirement}} {
		if len(d.raw) > 0 {
			v.Documents = append(v.Documents, document{Name: d.name, Text: pretty(d.raw)})
		}
	}
	v.Gone = all.Evidence.Removed
	if all.Content != nil {
		v.Content, v.Cut = &all, all.ContentTruncated
	}
	_, err = receipt.Of(p, nil, l.wallet.Engine.Assets, l.wallet.Engine, l.o.Now())
	v.Receipt = err == nil
	return frame{Title: "Payment " + p.ID, Here: "history", Body: v.body}, nil
}

// attested is what a seller signed, in words; "" where it signed nothing.
func attested(a *wire.Attested) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// pretty indents JSON; what is none stays as it is.
func pretty(raw json.RawMessage) string {
	if len(raw) > mostDocument {
		return string(raw[:mostDocument]) + " …"
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// content gives what was bought to a file. It is nothing that a browser would show or run.
func content(l *look) error {
	id := l.r.PathValue("id")
	stored, err := l.wallet.Store.Content(l.r.Context(), id)
	if err != nil {
		return missing(err, "no content is stored for this payment, or not any more")
	}
	l.download("application/octet-stream", id+".content")
	_, _ = l.w.Write(stored.Body)
	return nil
}

// receiptOf gives the receipt, as x402-wallet show --receipt prints it.
func receiptOf(l *look) error {
	id := l.r.PathValue("id")
	engine := l.wallet.Engine
	r, err := receipt.Stored(l.r.Context(), l.wallet.Store, id, engine.Assets, engine, l.o.Now())
	if err != nil {
		return missing(err, "there is no payment with this id")
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	l.download("application/json", id+".receipt.json")
	_, _ = l.w.Write(append(tools.Visible(text), '\n'))
	return nil
}

func amountOf(p history.Payment, symbol string) string {
	text := fmt.Sprintf("%s atomic units of %s", p.Paid(), symbol)
	if p.Charged != nil {
		text += fmt.Sprintf(", of up to %s that were signed for (%s)", p.Amount, p.Price.Price())
	}
	return text
}
