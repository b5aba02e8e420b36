package pay

import (
	"context"
	"fmt"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// askPerson asks about the whole batch: every payment that would be made is on the list, with its own
// approval, and a yes or a no is about all of them. It is the refusal that names the list.
func (m *many) askPerson(ctx context.Context) error {
	e := m.engine
	var list []history.Approval
	var sum money.Dollars
	var why *x402.Error
	for _, r := range m.rows {
		o, because := r.question, history.OnTheList
		switch p := m.heldOf(r); {
		case o != nil:
			because = o.why.Message
			if why == nil {
				why = o.why
			}
		case p != nil:
			o = &p.proposal.option
		default:
			continue
		}
		p := payment(r.in, *o, x402.Funds{})
		sum = sum.Add(p.Price)
		list = append(list, e.approvalOf(p, terms(p, *o), because))
	}
	asked, err := e.Asker.AskApprovals(ctx, list)
	if err != nil {
		return e.notAsked(why, err)
	}
	for _, a := range asked {
		if a.State == history.Denied {
			return declined(a)
		}
	}
	id := history.ListOf(asked[0].ID)
	command := x402.Command("approve", id)
	what := fmt.Sprintf("%d payments, %s in all", len(list), sum.Price())
	out := x402.Errorf(x402.ApprovalRequired, "a person has to approve this batch: %s; %s", what,
		why.Message).
		WithCommand(command, "Please approve "+what+": "+why.Message+".").
		WithHint("a person has to approve these payments, by: %s; after that the very same call pays",
			command).
		WithDetail("approvalId", id).WithDetail("command", command).
		WithDetail("expiresAt", asked[0].Expires.Format(time.RFC3339)).
		WithDetail("payments", len(list)).WithDetail("sum", sum.Price())
	if agent := list[0].Agent; agent != "" {
		out.WithDetail("agent", agent)
	}
	most := 0
	for _, a := range asked {
		most = max(most, a.Unanswered)
	}
	if most > 0 {
		out.WithDetail(DetailUnanswered, most)
	}
	return out
}
