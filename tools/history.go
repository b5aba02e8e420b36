package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// HistoryIn is what x402_history takes.
type HistoryIn struct {
	Limit     *int   `json:"limit,omitempty" jsonschema:"how many; default 10"`
	Before    string `json:"before,omitempty" jsonschema:"the page after this paymentId (or transaction)"`
	URL       string `json:"url,omitempty" jsonschema:"the URL contains this"`
	AfterDate string `json:"afterDate,omitempty" jsonschema:"since this date or time (RFC 3339)"`
	Status    string `json:"status,omitempty" jsonschema:"only those in this state"`
	PaymentID string `json:"paymentId,omitempty" jsonschema:"one payment with its evidence and stored content"`
}

// HistoryOut is its answer.
type HistoryOut struct {
	Count        int               `json:"count"`
	Transactions []historyRow      `json:"transactions"`
	Next         string            `json:"next,omitempty"`
	Totals       map[string]string `json:"totals"`
	Evidence     *evidence         `json:"evidence,omitempty"`

	ContentBegin     string  `json:"contentBegin,omitempty"`
	Content          *string `json:"content,omitempty"`
	ContentEnd       string  `json:"contentEnd,omitempty"`
	ContentType      string  `json:"contentType,omitempty"`
	ContentLength    int     `json:"contentLength,omitempty"`
	ContentTruncated bool    `json:"contentTruncated,omitempty"`
	ContentURI       string  `json:"contentUri,omitempty"`
	HTTPStatus       int     `json:"httpStatus,omitempty"`
}

// historyRow is one payment.
type historyRow struct {
	PaymentID            string       `json:"paymentId"`
	Timestamp            string       `json:"timestamp"`
	Status               string       `json:"status"`
	Proof                string       `json:"proof"`
	URL                  string       `json:"url"`
	Method               string       `json:"method"`
	Amount               money.Amount `json:"amount"`
	Price                string       `json:"price"`
	Asset                string       `json:"asset"`
	Symbol               string       `json:"symbol"`
	Network              string       `json:"network"`
	PayTo                string       `json:"payTo"`
	TransactionSignature string       `json:"transactionSignature"`
	Facilitator          string       `json:"facilitator"`
	FalseReceipt         bool         `json:"falseReceipt,omitempty"`
}

// evidence is what one payment rests on.
type evidence struct {
	States     []history.Event `json:"states"`
	Signed     x402.Evidence   `json:"signed"`
	Receipt    json.RawMessage `json:"receipt,omitempty"`
	ChainProof json.RawMessage `json:"chainProof,omitempty"`
	Note       string          `json:"note,omitempty"`
	Removed    string          `json:"contentRemoved,omitempty"` // why its bytes are gone, and what they were
	Session    string          `json:"session"`
	Dialect    string          `json:"dialect"`
}

func (HistoryIn) shape(p map[string]*jsonschema.Schema) {
	least, most := 1.0, float64(mostRows)
	p["limit"].Minimum, p["limit"].Maximum = &least, &most
	p["status"].Enum = statuses
}

var statuses = oneOf("reserved", "submitted", "settled", "failed", "unknown")

const (
	historyDescription = `What was paid, newest first, with totals; or one payment (paymentId) with its evidence and the content it bought.`
	mostRows           = 100
)

// History lists payments, or shows one. Its error is an *x402.Error.
func (w *Wallet) History(ctx context.Context, in HistoryIn) (HistoryOut, error) {
	if in.PaymentID != "" {
		return w.onePayment(ctx, in.PaymentID)
	}
	filter, err := in.filter()
	if err != nil {
		return HistoryOut{}, err
	}
	list, more, totals, err := w.Store.List(ctx, filter)
	if errors.Is(err, history.ErrNotFound) {
		return HistoryOut{}, x402.Errorf(x402.InvalidArgument, "before names no payment")
	}
	if err != nil {
		return HistoryOut{}, historyFailed(err)
	}
	out := HistoryOut{Count: len(list), Transactions: []historyRow{}, Totals: map[string]string{}}
	for _, p := range list {
		out.Transactions = append(out.Transactions, w.row(p))
	}
	if more {
		out.Next = list[len(list)-1].ID
	}
	for symbol, sum := range totals {
		out.Totals[symbol] = sum.String()
	}
	return out, nil
}

func (in HistoryIn) filter() (history.Filter, error) {
	f := history.Filter{Before: in.Before, URL: in.URL, State: history.State(in.Status)}
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

func (w *Wallet) onePayment(ctx context.Context, id string) (HistoryOut, error) {
	p, err := w.Store.Payment(ctx, id)
	if errors.Is(err, history.ErrNotFound) {
		return HistoryOut{}, x402.Errorf(x402.InvalidArgument, "there is no payment with this id").
			WithHint("the history lists those there are")
	}
	if err != nil {
		return HistoryOut{}, historyFailed(err)
	}
	states, err := w.Store.Events(ctx, id)
	if err != nil {
		return HistoryOut{}, historyFailed(err)
	}
	out := HistoryOut{Count: 1, Transactions: []historyRow{w.row(p)}, Totals: map[string]string{},
		Evidence: &evidence{States: states, Signed: p.Evidence, Receipt: receipt(p.Receipt),
			ChainProof: p.ChainProof, Note: p.Note, Session: p.Session, Dialect: string(p.Dialect)}}
	if p.State != history.Failed {
		out.Totals[p.Symbol] = p.Price.String()
	}
	content, err := w.Store.Content(ctx, id)
	if err != nil && !errors.Is(err, history.ErrNotFound) {
		return HistoryOut{}, historyFailed(err)
	}
	if errors.Is(err, history.ErrContentRemoved) {
		out.Evidence.Removed, out.ContentType, out.HTTPStatus = Gone(content), content.Type, content.Status
	}
	if err == nil {
		content = pay.Readable(content)
		piece, isText := pay.Beginning(content, true)
		out.Content, out.ContentLength = &piece.Text, len(content.Body)
		out.ContentBegin, out.ContentEnd = pay.Marks(piece.Text)
		out.ContentType, out.HTTPStatus = content.Type, content.Status
		out.ContentTruncated = content.Truncated || piece.Next > 0 || !isText
		if out.ContentTruncated {
			out.ContentURI = contentURI(id)
		}
	}
	return out, nil
}

// Gone says of a content whose bytes were removed why, and what they were.
func Gone(c history.Content) string {
	why := "by the owner (history prune)"
	if c.Removed == history.RemovedByQuota {
		why = "by quota (policy.content_quota)"
	}
	return fmt.Sprintf("removed %s: %d bytes, SHA-256 %s", why, c.Size, c.SHA256)
}

// receipt is what a seller's or facilitator's receipt claims, in the members that the protocol knows: words
// as they are, phrases quoted. The rest is a stranger's, as long as 256 KiB, and stays in the ledger.
func receipt(raw json.RawMessage) json.RawMessage {
	s, err := x402.DecodeSettlement(raw)
	if err != nil {
		return nil
	}
	shown := map[string]any{"success": s.Success}
	for name, text := range map[string]string{"transaction": s.Transaction, "network": s.Network,
		"payer": s.Payer, "amount": s.Amount, "errorReason": s.ErrorReason, "errorMessage": s.ErrorMessage} {
		if strings.HasPrefix(name, "error") && text != "" {
			text = x402.Quote(text)
		}
		if text != "" {
			shown[name] = text
		}
	}
	text, _ := json.Marshal(shown) // words and a bool
	return text
}

func contentURI(id string) string { return "x402://payments/" + id + "/content" }

func historyFailed(err error) error {
	return withCode(x402.HistoryFailed, "the history could not be read", err)
}

func (w *Wallet) row(p history.Payment) historyRow {
	asset := p.Asset
	if known, ok := w.Engine.Assets.Asset(p.Network, p.Asset); ok {
		asset = known.Address
	}
	return historyRow{
		PaymentID: p.ID, Timestamp: stamp(p.Created), Status: string(p.State), Proof: string(p.Proof),
		URL: p.URL, Method: p.Method, Amount: p.Amount, Price: p.Price.Price(), Asset: asset,
		Symbol: p.Symbol, Network: p.Network, PayTo: p.PayTo, TransactionSignature: p.Transaction,
		Facilitator: p.Facilitator, FalseReceipt: p.FalseReceipt,
	}
}
