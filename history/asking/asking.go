// Package asking opens questions to a person: about one payment, or about several together.
//
// What must stay true: no agent wears a person down, and none keeps another agent's questions from being
// asked. What was asked and said before is read back from the audit chain alone.
package asking

import (
	"context"
	"errors"
	"slices"

	"x402-wallet/history"
)

// Asker asks about payments of a ledger.
type Asker struct{ Store *history.Store }

// AskApproval returns the open approval for a quote, whatever was decided on it, or opens one. a has all
// but what the ledger gives. *history.Declined and *history.TooManyPending say that nobody is to be asked.
func (k Asker) AskApproval(ctx context.Context, a history.Approval) (history.Approval, error) {
	asks := a
	err := k.Store.Ask(ctx, func(t *history.Asking) error {
		a = asks
		open, err := t.Question(a.Quote)
		if err != nil {
			return err
		}
		if open != nil && open.State != history.Pending {
			a = *open
			return nil
		}
		prior, err := readPrior(t, t.Record(a))
		if err == nil {
			err = prior.refusal()
		}
		if err != nil {
			return err
		}
		if open != nil {
			a = *open
			a.Unanswered = prior.unanswered
			return nil
		}
		if err := prior.full(); err != nil {
			return err
		}
		a.ID, a.Unanswered = history.RandomID("apr_"), prior.unanswered
		if err := t.Open(&a); err != nil {
			return err
		}
		return t.Tell([]history.Approval{a})
	})
	return a, err
}

// maxList bounds a list; its places are numbered with three digits.
const maxList = 100

// errListTooLong is a defect of the caller.
var errListTooLong = errors.New("a list of approvals is too long, or empty")

// AskApprovals opens a list of questions, or returns those that are open about exactly these payments,
// whatever was decided on them. What is approved already is not asked about again; where one of them was
// denied, the denied ones are returned. Open questions about single ones of them are over: the list takes
// their place. A list counts as one question in everything that bounds questions. *history.Declined and
// *history.TooManyPending say that nobody is to be asked.
func (k Asker) AskApprovals(ctx context.Context, asks []history.Approval) (list []history.Approval,
	err error) {
	if len(asks) == 0 || len(asks) > maxList {
		return nil, errListTooLong
	}
	err = k.Store.Ask(ctx, func(t *history.Asking) error {
		list, err = askTogether(t, asks)
		return err
	})
	return list, err
}

func askTogether(t *history.Asking, asks []history.Approval) (list []history.Approval, err error) {
	var open, approved, denied []history.Approval
	for _, a := range asks {
		found, err := t.Question(a.Quote)
		switch {
		case err != nil:
			return nil, err
		case found == nil:
			list = append(list, a)
		case found.State == history.Denied:
			denied = append(denied, *found)
		case found.State == history.Approved:
			approved = append(approved, *found)
		default:
			open, list = append(open, *found), append(list, a)
		}
	}
	switch {
	case len(denied) > 0:
		return denied, nil
	case len(list) == 0:
		return approved, nil
	}
	if same, err := isList(t, open, len(list)); err != nil || same {
		return asOpen(t, open, err)
	}
	if err := t.Close(open); err != nil {
		return nil, err
	}
	for i := range list {
		prior, err := readPrior(t, t.Record(list[i]))
		if err == nil {
			err = prior.refusal()
		}
		if err == nil {
			err = prior.full()
		}
		if err != nil {
			return nil, err
		}
		list[i].Unanswered = prior.unanswered
	}
	id := history.RandomID("apr_")
	for i := range list {
		list[i].ID = history.OnList(id, i+1)
		if err := t.Open(&list[i]); err != nil {
			return nil, err
		}
	}
	return list, t.Tell(list)
}

// isList reports whether open questions are one whole list of n.
func isList(t *history.Asking, open []history.Approval, n int) (bool, error) {
	if len(open) != n || history.ListOf(open[0].ID) == open[0].ID {
		return false, nil
	}
	list := history.ListOf(open[0].ID)
	isElsewhere := func(a history.Approval) bool { return history.ListOf(a.ID) != list }
	if slices.ContainsFunc(open, isElsewhere) {
		return false, nil
	}
	whole, err := t.List(list)
	waiting := 0
	for _, a := range whole {
		if a.State == history.Pending {
			waiting++
		}
	}
	return err == nil && waiting == n, err
}

// asOpen is a list that is asked about again.
func asOpen(t *history.Asking, open []history.Approval, err error) ([]history.Approval, error) {
	for i := 0; err == nil && i < len(open); i++ {
		var prior priorAnswers
		prior, err = readPrior(t, t.Record(open[i]))
		if err == nil {
			err = prior.refusal()
		}
		open[i].Unanswered = prior.unanswered
	}
	return open, err
}
