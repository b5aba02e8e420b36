package pay

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// terms is the hash an approval is bound to: whose request it is, with its body and headers, where it leads,
// and every term of the option that a person would want to be asked about again if it changed. The
// approval is used up in the transaction that holds the money, so a refusal after it keeps it, and
// two processes cannot both have it.
func terms(p history.Payment, o option) [sha256.Size]byte {
	h := sha256.New()
	part := func(s string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	for _, s := range []string{string(p.Fingerprint[:]), p.Agent, p.Host, p.Target, p.Network, p.Scheme,
		o.ExtraString("paymentFlow"), p.Asset, p.Amount.String(),
		p.Price.String(), p.PayTo} {
		part(s)
	}
	for _, s := range plainIfNil(o.way).ApprovalTerms(o.Requirement) {
		part(s)
	}
	if o.use != nil {
		part(o.use.Channel) // another channel is another question
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Accept is an approval by a person at this process's client. Only this process believes it:
// whoever writes to the ledger can write an approval, but only the owner's has a seal, and what was
// given at its own client a process remembers. A list is accepted whole.
func (e *Engine) Accept(ctx context.Context, id, by string) error {
	if _, err := e.Store.Accept(ctx, id, by); err != nil {
		return err
	}
	list, err := e.Store.AskedTogether(ctx, id)
	for _, a := range list {
		if a.State == history.Approved {
			e.localApprovals.Store(a.ID, nil)
		}
	}
	return err
}

// isLocalApproval reports whether this process's own client gave the approval.
func (e *Engine) isLocalApproval(a history.Approval) bool {
	_, here := e.localApprovals.Load(a.ID)
	return here && len(a.Seal) == 0
}

// mayUse leaves the approval of another process's client to that process.
func (e *Engine) mayUse(a history.Approval) bool { return len(a.Seal) > 0 || e.isLocalApproval(a) }

// askPerson opens a question about an option, or finds the one that is open, and is the refusal
// that names it: APPROVAL_REQUIRED, or APPROVAL_DECLINED where the answer was no.
func (e *Engine) askPerson(ctx context.Context, q intent, o option) error {
	p := payment(q, o, x402.Funds{})
	return e.ask(ctx, p, terms(p, o), o.why, "paying "+p.Price.Price()+" to "+x402.Brief(p.Host))
}

// ask opens the question about a row that is to be, because of why; what names it to the person.
func (e *Engine) ask(ctx context.Context, p history.Payment, quote [sha256.Size]byte, why *x402.Error,
	what string) error {
	a, err := e.Asker.AskApproval(ctx, e.approvalOf(p, quote, why.Message))
	if err != nil {
		return e.notAsked(why, err)
	}
	if a.State == history.Denied {
		return declined(a)
	}
	command := x402.Command("approve", a.ID)
	if p.Agent != "" {
		why.WithDetail("agent", p.Agent)
	}
	if a.Unanswered > 0 {
		why.WithDetail(DetailUnanswered, a.Unanswered)
	}
	say := "Please approve " + what + ": " + why.Message + "."
	then := "payment, by: %s; after that the very same call pays"
	if p.IsSignIn() {
		then = "sign-in, by: %s; after that the very same call signs in. Denied, it pays as usual"
	}
	return why.WithCommand(command, say).WithHint("a person has to approve this "+then, command).
		WithDetail("approvalId", a.ID).WithDetail("command", command).
		WithDetail("expiresAt", a.Expires.Format(time.RFC3339)).WithDetail("host", x402.Brief(p.Host)).
		WithDetail("network", p.Network).WithDetail("amount", p.Amount)
}

// approvalOf is the question about a row that is to be.
func (e *Engine) approvalOf(p history.Payment, quote [32]byte, why string) history.Approval {
	return history.Approval{
		Quote: quote, Host: p.Host, Method: p.Method, URL: p.URL, Network: p.Network,
		Asset: e.spelled(p), Symbol: p.Symbol,
		Amount: p.Amount, Price: p.Price, PayTo: p.PayTo, Why: why, Agent: p.Agent,
	}
}

// notAsked is the refusal where no question was opened, or what kept it from being.
func (e *Engine) notAsked(why *x402.Error, err error) error {
	var before *history.Declined
	var full *history.TooManyPending
	switch {
	case errors.As(err, &before):
		return notAgain(before)
	case errors.As(err, &full):
		return why.WithCommand(x402.Command("approvals"), fmt.Sprintf("%d payments wait for your "+
			"decision, and no more are asked about: please approve or deny them.", full.Limit)).
			WithHint("%d payments%s wait for a person already, and no more may: the person "+
				"decides on those first (x402-wallet approvals lists them)", full.Limit, map[string]string{
				"host": " to this host", "agent": " of this agent"}[full.About]).
			WithDetail("waiting", full.Limit)
	}
	return err
}

func declined(a history.Approval) error {
	return x402.Errorf(x402.ApprovalDeclined, "a person said no to this payment").
		WithHint("do without it; asking again does not help").
		WithNext(x402.Next{Do: x402.GiveUp, Why: "a person said no: repeating the call does not help"}).
		WithDetail("approvalId", a.ID).
		WithDetail("until", a.Expires.Format(time.RFC3339))
}

// DetailUnanswered names the number, among the details of APPROVAL_REQUIRED, of the dialogs about
// a similar amount that a client's person closed within the last hour without an answer.
const DetailUnanswered = "unanswered"

// notAgain is the refusal of a question that was answered with a no already, in whatever words
// it comes again.
func notAgain(d *history.Declined) error {
	what := map[string]string{
		"this":  "a person said no to this payment",
		"host":  "a person keeps saying no to payments to this host",
		"agent": "a person keeps saying no",
		"all":   "a person keeps saying no to all who ask",
	}[d.About]
	until := d.Until.UTC().Format(time.RFC3339)
	return x402.Errorf(x402.ApprovalDeclined,
		"%s (%d times within the hour); nobody is asked again before %s", what, d.Times, until).
		WithHint("do without it; asking again, or for something like it, does not help").
		WithNext(x402.Next{Do: x402.GiveUp, Why: what + ": repeating the call does not help"}).
		WithDetail("approvalId", d.ID).
		WithDetail("until", until)
}
