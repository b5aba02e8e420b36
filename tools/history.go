package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// HistoryIn is what x402_history takes.
type HistoryIn struct {
	Limit     *int   `json:"limit,omitempty" jsonschema:"default 10"`
	Before    string `json:"before,omitempty" jsonschema:"before this paymentId"`
	URL       string `json:"url,omitempty" jsonschema:"part of the URL"`
	AfterDate string `json:"afterDate,omitempty" jsonschema:"RFC 3339"`
	Status    string `json:"status,omitempty"`
	PaymentID string `json:"paymentId,omitempty"`
	Offset    *int   `json:"offset,omitempty" jsonschema:"first byte"`
	Length    *int   `json:"length,omitempty"`
	Find      string `json:"find,omitempty" jsonschema:"text in its content"`
	Evidence  bool   `json:"evidence,omitempty"`

	Whose Whose `json:"-"` // whose they are: the owner's to ask, an agent with a name gets its own
}

// HistoryOut is its answer: a list, or one payment with what it bought first (onepayment.go).
type HistoryOut struct {
	ContentBegin     string  `json:"contentBegin,omitempty"`
	Content          *string `json:"content,omitempty"`
	ContentEnd       string  `json:"contentEnd,omitempty"`
	ContentType      string  `json:"contentType,omitempty"`
	ContentLength    int     `json:"contentLength,omitempty"`
	ContentOffset    int     `json:"contentOffset,omitempty"` // where the piece in Content begins, in bytes
	NextOffset       int     `json:"nextOffset,omitempty"`    // and where what follows it does
	ContentTruncated bool    `json:"contentTruncated,omitempty"`
	ContentURI       string  `json:"contentUri,omitempty"`
	Found            []int   `json:"found,omitempty"` // the offsets of what was looked for
	HTTPStatus       int     `json:"httpStatus,omitempty"`

	Count        int            `json:"count"`
	Transactions []historyRow   `json:"transactions"`
	AmountPaid   *money.Amount  `json:"amountPaid,omitempty"`
	UpTo         string         `json:"upTo,omitempty"` // what was signed for, where less was charged
	Asset        string         `json:"asset,omitempty"`
	PayTo        string         `json:"payTo,omitempty"`
	Facilitator  string         `json:"facilitator,omitempty"`
	ApprovedAt   string         `json:"approvedAt,omitempty"`
	ApprovedBy   string         `json:"approvedBy,omitempty"`
	Totals       map[string]any `json:"totals"` // dollars by symbol; bySeller and byNetwork are objects
	Evidence     *evidence      `json:"evidence,omitempty"`
	Next         following      `json:"next,omitzero"`
}

// following is what comes after an answer: of a list the payment that the next page begins before, of
// one payment the next step.
type following struct {
	Before string
	Step   x402.Next
}

// MarshalJSON writes the one or the other.
func (f following) MarshalJSON() ([]byte, error) {
	if f.Before != "" {
		return json.Marshal(f.Before)
	}
	return encode(f.Step)
}

// UnmarshalJSON reads the one or the other.
func (f *following) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		return json.Unmarshal(text, &f.Before)
	}
	return json.Unmarshal(text, &f.Step)
}

type historyRow struct {
	PaymentID            string `json:"paymentId"`
	Timestamp            string `json:"timestamp"`
	Status               string `json:"status"`
	Proof                string `json:"proof,omitempty"`
	URL                  string `json:"url"`
	Method               string `json:"method,omitempty"` // "": GET
	Price                string `json:"price"`
	Moved                string `json:"moved,omitempty"`   // of a float: whole tokens, to the agent's account
	Prepaid              bool   `json:"prepaid,omitempty"` // out of a deposit, which counted when it was made
	Symbol               string `json:"symbol"`
	Network              string `json:"network"`
	TransactionSignature string `json:"transactionSignature,omitempty"`
	FalseReceipt         bool   `json:"falseReceipt,omitempty"`
	SignIn               bool   `json:"signIn,omitempty"`       // no payment: it signed in, for nothing
	Agent                string `json:"agent,omitempty"`        // whose it is, of those that share the wallet
	Subscription         string `json:"subscription,omitempty"` // of the owner's, which it belongs to
}

func (r historyRow) For() string {
	what := cmp.Or(r.Method, http.MethodGet) + " " + r.URL
	if r.Subscription != "" {
		what += " (subscription " + r.Subscription + ")"
	}
	return what
}

func (HistoryIn) shape(s *jsonschema.Schema) {
	p := s.Properties
	most, longest := float64(mostRows), float64(pay.MaxPiece)
	p["limit"].Maximum = &most
	p["length"].Maximum = &longest
	p["status"].Enum = statuses
}

var statuses = oneOf("reserved", "submitted", "settled", "failed", "unknown")

const (
	historyDescription = `What was paid, newest first, with totals; or one payment and its content, to read or search.`
	mostRows           = 100
	mostParts          = 10 // sellers, and networks, of which the totals tell
)

// History lists payments, or shows one: an agent with a name is shown its own. Its error is an *x402.Error.
func (w *Wallet) History(ctx context.Context, in HistoryIn) (HistoryOut, error) {
	if in.PaymentID != "" {
		return w.onePayment(ctx, in)
	}
	if err := in.noPayment(); err != nil {
		return HistoryOut{}, err
	}
	filter, err := in.filter()
	if err != nil {
		return HistoryOut{}, err
	}
	filter.Agents, err = w.Agents(ctx, in.Whose)
	if err != nil {
		return HistoryOut{}, err
	}
	if own := pay.AgentFrom(ctx); own != "" {
		filter.Agents = []string{own}
	}
	list, more, totals, err := report.List(ctx, w.Store, filter)
	if errors.Is(err, history.ErrNotFound) {
		return HistoryOut{}, x402.Errorf(x402.InvalidArgument, "before names no payment")
	}
	if err != nil {
		return HistoryOut{}, historyFailed(err)
	}
	parts, err := report.AddUp(ctx, w.Store, filter, mostParts)
	if err != nil {
		return HistoryOut{}, historyFailed(err)
	}
	out := HistoryOut{Count: len(list), Transactions: []historyRow{}, Totals: totalsBy(parts)}
	for _, p := range list {
		out.Transactions = append(out.Transactions, w.row(p))
	}
	if more {
		out.Next.Before = list[len(list)-1].ID
	}
	for symbol, sum := range totals {
		out.Totals[symbol] = sum.String()
	}
	return out, nil
}

// totalsBy are totals by seller and by network: the dearest, and what the other sellers came to.
func totalsBy(parts report.Parts) map[string]any {
	totals := map[string]any{}
	for name, list := range map[string][]report.Part{"bySeller": parts.Sellers,
		"byNetwork": parts.Networks} {
		if len(list) == 0 {
			continue
		}
		sums := map[string]string{}
		for _, p := range list {
			sums[x402.Brief(p.Key)] = p.Sum.String()
		}
		totals[name] = sums
	}
	if parts.Others > 0 {
		totals["otherSellers"] = parts.Others.String()
	}
	return totals
}

func (in HistoryIn) filter() (report.Filter, error) {
	f := report.Filter{Before: in.Before, URL: in.URL, State: history.State(in.Status)}
	if in.Limit != nil {
		f.Limit = *in.Limit
		if f.Limit < 1 || f.Limit > mostRows {
			return f, x402.Errorf(x402.InvalidArgument, "limit must be 1 to %d", mostRows)
		}
	}
	if in.Status != "" && !slices.Contains(statuses, any(in.Status)) {
		return f, x402.Errorf(x402.InvalidArgument,
			"status must be reserved, submitted, settled, failed or unknown")
	}
	if in.AfterDate != "" {
		at, err := time.Parse(time.RFC3339, in.AfterDate)
		if err != nil {
			at, err = time.Parse(time.DateOnly, in.AfterDate)
		}
		if err != nil {
			return f, x402.Errorf(x402.InvalidArgument,
				"afterDate must be like 2026-01-31 or 2026-01-31T12:00:00Z")
		}
		f.After = at
	}
	return f, nil
}

func historyFailed(err error) error {
	return withCode(x402.HistoryFailed, "the history could not be read", err)
}

func (w *Wallet) row(p history.Payment) historyRow {
	row := historyRow{
		PaymentID: p.ID, Agent: p.Agent, Timestamp: stamp(p.Created), Status: string(p.State),
		Proof: string(p.Proof),
		URL:   p.URL, Method: p.Method, Price: p.Worth().Price(), Symbol: p.Symbol, Network: p.Network,
		TransactionSignature: p.Transaction, FalseReceipt: p.FalseReceipt,
		SignIn: p.IsSignIn(), Subscription: p.Subscription(),
	}
	if p.Prepaid() {
		row.Prepaid, row.Price = true, w.Engine.Worth(p).Price()
	}
	if p.Method == http.MethodGet {
		row.Method = ""
	}
	if asset, known := w.Engine.Assets.Asset(p.Network, p.Asset); known && p.IsPull() {
		row.Moved = p.Amount.Units(asset.Decimals)
	}
	return row
}

// Whose names some of the agents that share the wallet; the zero value: nobody is named, so that callers
// without a name are meant, too.
type Whose struct {
	Agent string // a name, or a pattern of names
	Team  string // of the owner's rules: its agents, and those of the teams below it
}

// Agents are the names of those agents; nil: anybody. INVALID_ARGUMENT where there is no such team.
func (w *Wallet) Agents(ctx context.Context, of Whose) ([]string, error) {
	if of == (Whose{}) {
		return nil, nil
	}
	teams := w.Engine.Rules.Teams
	if _, known := teams[of.Team]; of.Team != "" && !known {
		err := x402.Errorf(x402.InvalidArgument, "there is no team %s", x402.Quote(of.Team))
		if len(teams) > 0 {
			err = err.WithHint("there are %s", strings.Join(slices.Sorted(maps.Keys(teams)), ", "))
		}
		return nil, err
	}
	if of.Team == "" && !strings.Contains(of.Agent, "*") {
		return []string{of.Agent}, nil
	}
	all, err := report.Agents(ctx, w.Store)
	if err != nil {
		return nil, historyFailed(err)
	}
	named := []string{} // not nil: nobody is somebody else than anybody
	for _, name := range all {
		fits := of.Agent == "" || budget.Matches(of.Agent, name)
		if fits && (of.Team == "" || teams.Have(of.Team, name)) {
			named = append(named, name)
		}
	}
	return named, nil
}
