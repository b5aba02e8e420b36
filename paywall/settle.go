package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/x402"
)

// collect settles. From here on the buyer's going away changes nothing.
func (s *selling) collect(ctx context.Context) bool {
	if err := s.hook(ctx, s.options.Hooks.BeforeSettle); err != nil {
		s.run = stopped
		s.say(err, "the call was stopped")
		return false
	}
	ctx = context.WithoutCancel(ctx)
	s.row.State = history.Settling
	if keep := s.out.goods.keep; keep != nil && s.row.Identifier != "" {
		s.row.Answer = keep()
	}
	if err := s.options.Book.MoveSale(ctx, s.row); err != nil {
		s.run = stopped
		s.say(fmt.Errorf("%w: %w", ErrLedger, err),
			"the book of sales cannot be written; nothing was settled")
		return false
	}
	said := s.options.Facilitators.Settle(ctx, s.submission())
	s.settle = map[facilitator.Outcome]settle{facilitator.Settled: done, facilitator.Refused: refused,
		facilitator.Unknown: unknown,
		facilitator.NotSent: unsent}[said.Outcome]
	s.out.settlement, s.row.Facilitator = s.told(said.Settlement), said.Facilitator
	if s.settle == unknown && s.inDoubt(ctx, &s.row) {
		s.settle, s.out.settlement = unsent, s.told(nil)
		if s.row.State == history.Sold {
			s.settle, s.out.settlement.Success, s.out.settlement.Transaction, s.out.settlement.ErrorReason = done, true, s.row.Transaction, ""
		}
	}
	s.sale.Settlement = s.out.settlement
	if s.settle != done {
		open := "whether the payment was settled is not known yet: do not pay again"
		if s.row.Identifier != "" { // else nobody can tell who paid from who read of it on the chain
			open += "; the same call with the same payment can be made again"
		}
		s.say(said.Err, map[settle]string{
			refused: "Payment settlement failed: " + s.out.settlement.ErrorReason,
			unknown: open,
			unsent:  "no facilitator could be reached; nothing was settled",
		}[s.settle])
	}
	if s.settle == done && s.upfront {
		s.row.State = history.Sold
		s.write(ctx)
	}
	return s.settle == done
}

// told is a facilitator's settlement as the buyer gets it: with everything the format asks for.
func (s *selling) told(said *x402.Settlement) *x402.Settlement {
	told := x402.Settlement{ErrorReason: "unexpected_settle_error"}
	if said != nil {
		told = *said
	}
	told.Network = s.offer.in(s.payment.version).NetworkName
	if told.Payer == "" {
		told.Payer = s.signed.payer
	}
	if told.Success {
		told.ErrorReason, told.ErrorMessage = "", ""
	}
	if told.Success && s.settle == unknown { // a success that is none (facilitator.judge, row 4)
		told.Success, told.ErrorReason = false, "settlement_pending"
	}
	return &told
}

// inDoubt asks the chain about a settlement that a facilitator left open, until it knows, the
// payment is dead, or patience ends. True: row says what the chain proved.
func (s *selling) inDoubt(ctx context.Context, row *history.Sale) bool {
	if s.options.Status == nil || s.signed.evidence.Network == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.doubtTime)
	defer cancel()
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		fate, err := s.options.Status(ctx, s.signed.evidence)
		switch {
		case err == nil && fate.State == x402.Settled:
			row.State, row.Transaction, row.Note = history.Sold, fate.Transaction, "the chain shows it"
			row.Receipt = receiptJSON(&x402.Settlement{Success: true, Transaction: fate.Transaction,
				Network: s.offer.in(s.payment.version).NetworkName, Payer: s.signed.payer})
			return true
		case err == nil && fate.State == x402.Expired:
			row.State, row.Note = history.Unsold, "the chain shows that it was never settled"
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// end writes down how it ended, and tells the hooks.
func (s *selling) end(ctx context.Context) result {
	ctx = context.WithoutCancel(ctx)
	v := s.out.verdict
	if s.row.ID != "" && v.answer == passes && v.state == "" {
		if err := s.options.Book.DropSale(ctx, s.row.ID); err != nil {
			s.log.Error("forget a sale", "sale", s.row.ID, "err", err)
		}
	} else if s.row.ID != "" {
		s.row.State = v.state
		s.write(ctx)
	}
	if s.settle == done || s.settle == refused || s.settle == unknown || s.settle == unsent {
		s.quietly(func() {
			if s.options.Hooks.AfterSettle != nil {
				s.options.Hooks.AfterSettle(ctx, s.sale)
			}
		})
	}
	err := v.err
	if s.out.cause != nil && err != nil && !errors.Is(s.out.cause, err) {
		err = fmt.Errorf("%w: %w", err, s.out.cause)
	} else if s.out.cause != nil && err != nil {
		err = s.out.cause
	}
	s.quietly(func() {
		if s.options.Hooks.Ended != nil {
			s.options.Hooks.Ended(ctx, s.sale, err)
		}
	})
	if v.answer == regrets {
		s.log.Warn("a sale came to nothing", "tool", s.tool.Name, "sale", s.sale.ID, "err", err)
	}
	return s.out
}

func (s *selling) write(ctx context.Context) {
	s.row.Note = s.out.why
	if st := s.out.settlement; st != nil {
		s.row.Transaction, s.row.Receipt = st.Transaction, receiptJSON(st)
	}
	if keep := s.out.goods.keep; keep != nil && s.row.Identifier != "" && (s.row.State == history.Sold ||
		s.row.State == history.InDoubt) {
		s.row.Answer = keep()
	}
	if err := s.options.Book.MoveSale(ctx, s.row); err != nil {
		s.log.Error("write down a sale", "sale", s.row.ID, "state", s.row.State, "transaction",
			s.row.Transaction, "err", err)
	}
}

// hook calls one of those that can stop a sale.
func (s *selling) hook(ctx context.Context, f func(context.Context, *Sale) error) (err error) {
	if f == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a hook panicked", "tool", s.tool.Name, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: a hook panicked", ErrAborted)
		}
	}()
	if err := f(ctx, s.sale); err != nil {
		return fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return nil
}

// quietly calls one that can change nothing any more.
func (s *selling) quietly(f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a hook panicked", "tool", s.tool.Name, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// receiptJSON is a SettleResponse as buyers get it.
func receiptJSON(s *x402.Settlement) json.RawMessage {
	said := struct {
		Success      bool   `json:"success"`
		Transaction  string `json:"transaction"`
		Network      string `json:"network"`
		Payer        string `json:"payer,omitempty"`
		Amount       string `json:"amount,omitempty"`
		ErrorReason  string `json:"errorReason,omitempty"`
		ErrorMessage string `json:"errorMessage,omitempty"`
	}{s.Success, s.Transaction, s.Network, s.Payer, s.Amount, clip(s.ErrorReason), clip(s.ErrorMessage)}
	return jsonOf(said)
}
