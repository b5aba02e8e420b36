package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"x402-wallet/history"
	"x402-wallet/history/content"
	"x402-wallet/history/report"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// One payment: what it bought first, which can be read on in pieces and searched in, then its terms; its
// evidence where it is asked for, because it is long and nothing that a model works with.

// evidence is what one payment rests on.
type evidence struct {
	States     []report.Event  `json:"states"`
	Signed     x402.Evidence   `json:"signed"`
	Receipt    json.RawMessage `json:"receipt,omitempty"`
	ChainProof json.RawMessage `json:"chainProof,omitempty"`
	// what the seller signed, with who signed it: claims, whatever the chain says
	Offer         *wire.Attested `json:"offer,omitempty"`
	SignedReceipt *wire.Attested `json:"signedReceipt,omitempty"`
	Note          string         `json:"note,omitempty"`
	// why its content's bytes are gone, and what they were
	Removed string `json:"contentRemoved,omitempty"`
	Session string `json:"session"`
	Dialect string `json:"dialect"`
}

const (
	mostFound = 20  // occurrences that find shows
	mostFind  = 200 // bytes of a text that is looked for
	around    = 160 // bytes that are shown before an occurrence, and after it
	gap       = "\n[…]\n"
)

func invalid(why string, about ...any) *x402.Error {
	return x402.Errorf(x402.InvalidArgument, why, about...)
}

// noPayment refuses what is about one payment where none is named.
func (in HistoryIn) noPayment() error {
	for name, isGiven := range map[string]bool{"offset": in.Offset != nil, "length": in.Length != nil,
		"find": in.Find != "", "evidence": in.Evidence} {
		if isGiven {
			return invalid("%s is given without paymentId: it is about one payment", name)
		}
	}
	return nil
}

// part checks which part of the content is asked for, as far as that can be told without it.
func (in HistoryIn) part() error {
	switch {
	case in.Find != "" && (in.Offset != nil || in.Length != nil):
		return invalid("find is given with offset or length: leave these out to search, " +
			"or find to read")
	case len(in.Find) > mostFind:
		return invalid("find is %d bytes long, at most %d pass", len(in.Find), mostFind)
	case in.Offset != nil && *in.Offset < 0:
		return invalid("offset %d is negative: 0 is the content's first byte", *in.Offset)
	case in.Length != nil && (*in.Length < 1 || *in.Length > pay.MaxPiece):
		return invalid("length must be 1 to %d, in bytes", pay.MaxPiece)
	}
	return nil
}

func (w *Wallet) onePayment(ctx context.Context, in HistoryIn) (HistoryOut, error) {
	if err := in.part(); err != nil {
		return HistoryOut{}, err
	}
	p, err := w.paymentOf(ctx, in.PaymentID)
	if errors.Is(err, history.ErrNotFound) {
		return HistoryOut{}, invalid("there is no payment with this id").
			WithHint("the history lists those there are")
	}
	if err != nil {
		return HistoryOut{}, historyFailed(err)
	}
	terms := w.Engine.Terms(ctx, p)
	out := HistoryOut{Count: 1, Transactions: []historyRow{w.row(p)}, Totals: map[string]any{},
		AmountPaid: terms.AmountPaid, UpTo: terms.UpTo, Asset: terms.Asset, PayTo: terms.PayTo,
		Facilitator: terms.Facilitator,
		ApprovedAt:  terms.ApprovedAt, ApprovedBy: terms.ApprovedBy, Next: following{Step: afterwards(p)}}
	out.Transactions[0].Price = terms.Price
	if p.State != history.Failed && !p.IsSignIn() {
		out.Totals[p.Symbol] = p.Worth().String()
	}
	bought, err := w.Store.Content(ctx, p.ID)
	removed := ""
	switch {
	case errors.Is(err, history.ErrContentRemoved):
		removed = Gone(bought)
		out.ContentType, out.HTTPStatus = bought.Type, bought.Status
		out.Next.Step = x402.Next{Do: x402.Done, Why: "the content was " + removed}
		err = in.nothingToRead()
	case errors.Is(err, history.ErrNotFound):
		err = in.nothingToRead()
	case err != nil:
		err = historyFailed(err)
	default:
		err = out.read(in, pay.Readable(bought))
	}
	if err == nil && in.Evidence {
		out.Evidence, err = w.evidence(ctx, p, removed)
	}
	if err != nil {
		return HistoryOut{}, err
	}
	return out, nil
}

// paymentOf is a payment that the caller may see: of another agent's it is as if there were none.
func (w *Wallet) paymentOf(ctx context.Context, id string) (history.Payment, error) {
	p, err := w.Store.Payment(ctx, id)
	if agent := pay.AgentFrom(ctx); err == nil && agent != "" && p.Agent != agent {
		return history.Payment{}, history.ErrNotFound
	}
	return p, err
}

// afterwards is the next step after a look at a payment.
func afterwards(p history.Payment) x402.Next {
	if p.State.Unfinished() {
		return x402.Next{Do: x402.Wait, Why: "its outcome is open, and the chain is asked for it; the very " +
			"same call that made it cannot pay twice"}
	}
	return x402.Next{Do: x402.Done}
}

func (w *Wallet) evidence(ctx context.Context, p history.Payment, removed string) (*evidence, error) {
	states, err := report.Events(ctx, w.Store, p.ID)
	if err != nil {
		return nil, historyFailed(err)
	}
	offer, signed := w.Engine.Attested(ctx, p)
	return &evidence{Offer: offer, SignedReceipt: signed, States: states, Signed: p.Evidence,
		Receipt:    receipt(p.Receipt),
		ChainProof: p.ChainProof, Note: p.Note, Removed: removed, Session: p.Session,
		Dialect: string(p.Dialect)}, nil
}

// nothingToRead refuses to read where nothing is stored.
func (in HistoryIn) nothingToRead() error {
	if in.Offset == nil && in.Length == nil && in.Find == "" {
		return nil
	}
	return invalid("no content of this payment is stored: there is nothing to read in").
		WithHint("with paymentId alone the payment itself is shown")
}

// read takes the part of a content in that is asked for.
func (out *HistoryOut) read(in HistoryIn, c history.Content) error {
	id := in.PaymentID
	out.ContentType, out.ContentLength, out.HTTPStatus = c.Type, len(c.Body), c.Status
	piece, isText := pay.Beginning(c, true)
	text := piece.Text
	switch {
	case in.Offset != nil && *in.Offset > max(0, len(c.Body)-1):
		return invalid("offset %d is beyond the content, which is %d bytes long: at most "+
			"%d passes", *in.Offset, len(c.Body), max(0, len(c.Body)-1))
	case !isText:
		out.Next.Step = pay.ReadOn(id, 0, len(c.Body))
	case in.Find != "":
		text, piece = out.find(in, c), pay.Piece{}
	case in.Offset != nil || in.Length != nil:
		offset, length := 0, pay.MaxPiece
		if in.Offset != nil {
			offset = *in.Offset
		}
		if in.Length != nil {
			length = *in.Length
		}
		piece = pay.Part(c, offset, length)
		text = piece.Text
	}
	if piece.Next > 0 {
		out.Next.Step = pay.ReadOn(id, piece.Next, len(c.Body))
	}
	out.Content, out.ContentOffset, out.NextOffset = &text, piece.Offset, piece.Next
	out.ContentBegin, out.ContentEnd = pay.Marks(text)
	isWhole := isText && in.Find == "" && piece.Offset == 0 && piece.Next == 0
	out.ContentTruncated = c.Truncated || !isWhole
	if out.ContentTruncated {
		out.ContentURI = contentURI(id)
	}
	return nil
}

// find gives the pieces around the places where a text stands, whatever its case; near ones are one piece.
func (out *HistoryOut) find(in HistoryIn, c history.Content) string {
	wanted := regexp.MustCompile(`(?i)` + regexp.QuoteMeta(in.Find))
	all := wanted.FindAllIndex(c.Body, mostFound+1)
	var pieces []string
	for from, to, i := 0, 0, 0; i < min(len(all), mostFound); i++ {
		out.Found = append(out.Found, all[i][0])
		if to == 0 {
			from = max(0, all[i][0]-around)
		}
		to = min(len(c.Body), all[i][1]+around)
		isLast := i+1 == min(len(all), mostFound)
		if isLast || all[i+1][0]-around > to {
			pieces = append(pieces, pay.Part(c, from, to-from).Text)
			to = 0
		}
	}
	out.Next.Step = x402.Next{Do: x402.Change, Why: fmt.Sprintf("found lists where it stands: x402_history "+
		"with paymentId %q and an offset reads there", in.PaymentID)}
	switch {
	case len(all) == 0:
		out.Next.Step.Why = fmt.Sprintf("it is nowhere in the content, which is %d bytes long: look for "+
			"something else, or read with offset", len(c.Body))
	case len(all) > mostFound:
		out.Next.Step.Why += fmt.Sprintf("; it stands in more places than the first %d", mostFound)
	}
	return strings.Join(pieces, gap)
}

// Gone says of a content whose bytes were removed why, and what they were.
func Gone(c history.Content) string {
	why := "by the owner (ledger prune)"
	if c.Removed == content.RemovedByQuota {
		why = "by quota (policy.content_quota)"
	}
	return fmt.Sprintf("removed %s: %d bytes, SHA-256 %s", why, c.Size, c.SHA256)
}

// receipt is what a seller's or facilitator's receipt claims, in the members that the protocol knows: words
// as they are, phrases quoted. The rest is a stranger's, as long as 256 KiB, and stays in the ledger.
func receipt(raw json.RawMessage) json.RawMessage {
	s, err := wire.DecodeSettlement(raw)
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
