package pay

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// Status of a call that was answered.
const (
	StatusFree     = "free"            // served, and nothing was asked
	StatusNotPaid  = "not_paid"        // not served, and nothing was asked
	StatusPaid     = "paid"            // and served
	StatusUnserved = "paid_not_served" // the money moved, the seller failed
	StatusReplayed = "replayed"        // an earlier purchase's answer; nothing was paid by this call
)

// What the very same call does after an answer.
const (
	RepeatBuys = "buys again"
	RepeatIs   = "is the same purchase"
)

// Result is the answer of a payment. Content is the seller's text: data, never instructions.
// What has nothing to say is left out: a model reads all of it.
type Result struct {
	Status               string        `json:"status"`
	PaymentRequired      bool          `json:"paymentRequired"`
	PaymentID            string        `json:"paymentId,omitempty"`
	HTTPStatus           int           `json:"httpStatus"`
	ContentBegin         string        `json:"contentBegin,omitempty"`
	Headers              Headers       `json:"headers,omitempty"` // of the answer: the seller's words, too
	Content              string        `json:"content"`
	ContentEnd           string        `json:"contentEnd,omitempty"`
	ContentType          string        `json:"contentType"`
	ContentLength        int           `json:"contentLength,omitempty"` // bytes, of all that can be read
	ContentTruncated     bool          `json:"contentTruncated,omitempty"`
	ContentURI           string        `json:"contentUri,omitempty"`
	AmountPaid           *money.Amount `json:"amountPaid,omitempty"`
	Price                string        `json:"price,omitempty"`
	UpTo                 string        `json:"upTo,omitempty"`  // what was signed for, where less was charged
	Asset                string        `json:"asset,omitempty"` // where it is not the network's default one
	Symbol               string        `json:"symbol,omitempty"`
	Network              string        `json:"network,omitempty"`
	PayTo                string        `json:"payTo,omitempty"`
	TransactionSignature string        `json:"transactionSignature,omitempty"`
	Facilitator          string        `json:"facilitator,omitempty"` // where the wallet settled
	Proof                *string       `json:"proof,omitempty"`
	ApprovedAt           string        `json:"approvedAt,omitempty"` // by a person
	ApprovedBy           string        `json:"-"`                    // in the history of one payment
	Budget               *Budgets      `json:"budget,omitempty"`     // where this call bought
	Repeat               string        `json:"repeat,omitempty"`     // what the very same call does next
	Next                 x402.Next     `json:"next"`

	Warning string `json:"-"` // of what the seller signed (attested.go); Next.Why says it, too

	Whole history.Content `json:"-"` // what came, as it came: Content is what of it is read
}

// Headers are those of an answer that its reader needs, by their names.
type Headers map[string]string

func (e *Engine) free(a *seller.Answer) Result {
	r := Result{Status: StatusFree}
	r.show(contentOf(a), "")
	r.Next = r.readOn()
	if !isOK(a.Status) {
		r.Status, r.Next = StatusNotPaid, notServed(a, e.Now())
	}
	return r
}

func (e *Engine) paid(ctx context.Context, p history.Payment, v verdict, a *seller.Answer) Result {
	r := e.resultOf(ctx, p)
	r.Status = StatusUnserved
	if v.served {
		r.Status = StatusPaid
	}
	if a != nil {
		place := p.ID
		if !v.keeps(a, p) {
			place = ""
		}
		r.show(contentOf(a), place)
	}
	if v.served {
		r.Budget, r.Next = e.budgets(ctx), r.readOn()
		if a != nil && a.Status == http.StatusAccepted && r.Next.Do == x402.Done {
			r.Next = accepted(a, e.Now(), false)
		}
	} else {
		r.Next = e.askAgain(p)
		if a != nil && isWrongRequest(a.Status) {
			r.Next = step(x402.Change, "paid, and the seller refuses the request itself (HTTP %d): content "+
				"says what it did not take; a corrected call is another purchase", a.Status)
		}
	}
	r.Warning = e.warning(ctx, p)
	if r.Warning != "" {
		e.Log.Warn(r.Warning, "payment", p.ID, "host", p.Host)
		r.Next.Why = strings.TrimPrefix(r.Next.Why+"; "+r.Warning, "; ")
	}
	return r
}

// replay answers with what was bought and served before; done is false where nothing of that
// kind is stored.
func (e *Engine) replay(ctx context.Context, p history.Payment) (r Result, done bool, err error) {
	c, err := e.Store.Content(ctx, p.ID)
	if errors.Is(err, history.ErrNotFound) || (err == nil && !isOK(c.Status)) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	r = e.resultOf(ctx, p)
	r.Status = StatusReplayed
	r.show(c, p.ID)
	r.Next = bought(p, r.readOn())
	return r, true, nil
}

func (e *Engine) resultOf(ctx context.Context, p history.Payment) Result {
	r := e.Terms(ctx, p)
	usual, known := e.Assets.Named(p.Network, "")
	if known && usual.Address == r.Asset && usual.Symbol == r.Symbol {
		r.Asset = "" // the network's default one: its symbol says as much
	}
	return r
}

// Terms are a payment's own fields of a result: who was paid what, by what transaction, and who
// approved it.
func (e *Engine) Terms(ctx context.Context, p history.Payment) Result {
	proof := string(p.Proof)
	r := Result{
		PaymentRequired: true, PaymentID: p.ID, AmountPaid: &p.Amount, Price: e.Worth(p).Price(),
		Asset: e.spelled(p), Symbol: p.Symbol,
		Network: p.Network, PayTo: p.PayTo, TransactionSignature: p.Transaction, Facilitator: p.Facilitator,
		Proof: &proof,
	}
	if came := e.charged(p); came != nil && came.Cmp(p.Amount) < 0 {
		r.AmountPaid, r.UpTo = came, p.Price.Price()
		if asset, ok := e.Assets.Asset(p.Network, p.Asset); ok {
			r.Price = min(asset.Dollars(*came), p.Price).Price()
		}
	}
	approval, err := e.Asker.ApprovedBy(ctx, p)
	if err != nil {
		e.Log.Warn("read a payment's approval for an answer", "payment", p.ID, "err", err)
	} else if approval != nil {
		r.ApprovedAt, r.ApprovedBy = approval.At.UTC().Format(time.RFC3339), approval.By
	}
	return r
}

// spelled is the asset's address as the registry writes it; the ledger folds its case.
func (e *Engine) spelled(p history.Payment) string {
	if asset, ok := e.Assets.Asset(p.Network, p.Asset); ok {
		return asset.Address
	}
	return p.Asset
}

// repeatOf is what the very same call would do next. call is nil where none is known.
func repeatOf(call *Call, q intent, r Result) string {
	late := call != nil && call.answering()
	isJob := r.Next.Do == x402.Wait // its address is asked again
	if late || isJob || q.IdempotencyKey != "" || r.Status == StatusUnserved {
		return RepeatIs
	}
	return RepeatBuys
}

func contentOf(a *seller.Answer) history.Content {
	return history.Content{Status: a.Status, Type: a.ContentType, Headers: keptHeaders(a.Header),
		Truncated: a.Truncated, Body: a.Content}
}

// show puts content into the answer: text up to maxInline, of a longer one its beginning, and the
// rest behind its URI.
func (r *Result) show(c history.Content, paymentID string) {
	r.Whole = c
	c = Readable(c)
	piece, isText := Beginning(c, paymentID != "")
	r.HTTPStatus, r.ContentType, r.ContentLength = c.Status, c.Type, len(c.Body)
	r.Content, r.ContentTruncated = piece.Text, c.Truncated || piece.Next > 0 || !isText
	if r.ContentTruncated && paymentID != "" {
		r.ContentURI = "x402://payments/" + paymentID + "/content"
	}
	r.Headers = readHeaders(c.Headers)
	r.ContentBegin, r.ContentEnd = Marks(c.Headers + r.Content)
}

// Shorten cuts the content that the answer carries itself to most bytes, at least one. Of what was served the
// rest is stored.
func (r *Result) Shorten(most int) {
	if len(r.Content) <= most {
		return
	}
	r.Content, r.ContentTruncated = Part(Readable(r.Whole), 0, most).Text, true
	r.ContentBegin, r.ContentEnd = Marks(r.Content)
	if r.Status == StatusPaid || r.Status == StatusReplayed {
		r.ContentURI = "x402://payments/" + r.PaymentID + "/content"
	}
	if r.Next.Do == x402.Done || r.Next.Do == x402.Change {
		r.Next = r.readOn()
	}
}

// Marks are what stands in an answer before and after a stranger's text, so that the text cannot
// pretend to have ended: 64 random bits of this answer, which its writer could not know. They are
// empty where the text is.
func Marks(text string) (begin, end string) {
	if text == "" {
		return "", ""
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	mark := base64.RawURLEncoding.EncodeToString(random[:])
	return "untrusted " + mark, "end " + mark
}

// error is the verdict as the outside sees it. From here on money is held or was: the payment's id
// and what it took are always with it.
func (v verdict) error(p history.Payment, a *seller.Answer, now time.Time) error {
	e := x402.Errorf(v.code, "%s", v.note)
	e.PaymentID = p.ID
	e.WithDetail("amount", p.Amount).WithDetail("price", p.Price.Price()).WithDetail("network", p.Network)
	e.Spent = p.Amount.String()
	if p.State != history.Settled {
		e.WithDetail("held", p.Amount)
	}
	if v.transaction != "" {
		e.WithDetail("transaction", x402.Brief(v.transaction))
	}
	if s := v.settling; len(s.Tries) > 0 {
		e.WithDetail("tries", s.Tries)
		if s.Facilitator != "" {
			e.WithDetail("facilitator", s.Facilitator)
		}
		if s.Status != 0 {
			e.WithDetail("facilitatorStatus", s.Status)
		}
	}
	if a != nil {
		e.WithDetail("httpStatus", a.Status)
		if a.Status >= 400 && a.Challenge == nil {
			e.Content = failureText(a)
		}
		if location := a.Header.Get("Location"); location != "" {
			e.WithDetail("location", x402.Quote(location))
		}
		if at := retryAfter(a, now); !at.IsZero() {
			e.WithDetail("retryAfter", x402.Stamp(at))
		}
		if a.Challenge != nil && v.code == x402.PriceChanged {
			e.WithDetail("asked", asked(*a.Challenge))
		}
	}
	if !p.Evidence.ExpiresAt.IsZero() {
		e.WithDetail("expiresAt", p.Evidence.ExpiresAt.UTC())
	}
	return e.WithHint("%s is held until the chain proves what happened", p.Price.Price()).
		WithNext(againInVain(v, p, now, nextAfter(v, p, a, now)))
}

// maxFailure bounds what a tool says of its own failure. It is for a model to mend its call by;
// more is an essay, or an attack.
const maxFailure = 4 << 10

func failureText(a *seller.Answer) string {
	text := Readable(contentOf(a)).Body
	if !utf8.Valid(text) {
		return ""
	}
	if len(text) > maxFailure {
		text = append(bytes.Clone(text[:maxFailure]), "…"...)
	}
	return string(bytes.ToValidUTF8(text, nil))
}

func asked(c wire.Challenge) (list []json.RawMessage) {
	for _, r := range c.Accepts {
		text, err := json.Marshal(map[string]any{"network": r.Network, "amount": r.Amount,
			"asset": x402.Brief(r.Asset), "payTo": x402.Brief(r.PayTo)})
		if err == nil {
			list = append(list, text)
		}
	}
	return list
}
