package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// A list of approvals is one question to a person, about several payments that are to be made together: each
// has its own approval, of its own terms, which its own payment uses up; what was asked together is answered
// together. That an approval is on a list is in its id, which is sealed and in the audit chain like the rest
// of it: nobody can put another payment on a list that a person was shown.

// ListOf is the list that an approval is on, by its id; that of one that is on none is the id itself.
func ListOf(id string) string {
	list, _, _ := strings.Cut(id, listMark)
	return list
}

const listMark = "."

// OnTheList is why a payment is on a list, where it needs no approval itself.
const OnTheList = "it is bought together with what needs your approval"

// maxList bounds a list; its places are numbered with three digits.
const maxList = 100

// errListTooLong is a defect of the caller.
var errListTooLong = errors.New("a list of approvals is too long, or empty")

// Together is one approval that stands for a list, as a person is shown it; of a single one it is that one.
func Together(list []Approval) Approval {
	if len(list) == 1 && ListOf(list[0].ID) == list[0].ID {
		return list[0]
	}
	all := list[0]
	all.ID, all.Quote, all.Together = ListOf(all.ID), [32]byte{}, list
	all.Price, all.Amount = 0, money.Amount{}
	all.Method, all.URL = "", fmt.Sprintf("%d payments", len(list))
	all.Network, all.Asset, all.Symbol, all.PayTo, all.Payment, all.Seal = "", "", "", "", "", nil
	hosts := map[string]bool{}
	order := []Decision{Pending, Approved, Denied, Used, Expired}
	for _, a := range list {
		all.Price, hosts[a.Host] = all.Price.Add(a.Price), true
		if slices.Index(order, a.State) < slices.Index(order, all.State) {
			all.State = a.State
		}
		if all.Why == OnTheList {
			all.Why = a.Why
		}
		if a.Expires.Before(all.Expires) {
			all.Expires = a.Expires
		}
	}
	if len(hosts) > 1 {
		all.Host = fmt.Sprintf("%d hosts", len(hosts))
	}
	return all
}

// Asked returns what a person is shown under an id: the approval, or its list as one.
func (s *Store) Asked(ctx context.Context, id string) (Approval, error) {
	list, err := s.AskedTogether(ctx, id)
	if err != nil {
		return Approval{}, err
	}
	return Together(list), nil
}

// AskedTogether returns the approvals of the list that an id names, or is on, in its order; or the one
// approval of that id. ErrNotFound: there is none.
func (s *Store) AskedTogether(ctx context.Context, id string) ([]Approval, error) {
	return read(ctx, s, func(t *tx) ([]Approval, error) {
		list, err := t.listOf(ListOf(id))
		if err == nil && len(list) == 0 {
			err = errNoApproval
		}
		return list, err
	})
}

func (t *tx) listOf(list string) ([]Approval, error) {
	prefix := list + listMark
	return sqldb.Collect(t.Tx, ScanApproval, SelectApproval+` WHERE id = ? OR substr(id, 1, ?) = ? ORDER BY id`, list,
		len(prefix), prefix)
}

// AskApprovals opens a list of questions, or returns those that are open about exactly these payments,
// whatever was decided on them. What is approved already is not asked about again; where one of them was
// denied, the denied ones are returned. Open questions about single ones of them are over: the list takes
// their place. A list counts as one question in everything that bounds questions. *Declined and
// *TooManyPending say that nobody is to be asked.
func (s *Store) AskApprovals(ctx context.Context, asks []Approval) (list []Approval, err error) {
	if len(asks) == 0 || len(asks) > maxList {
		return nil, errListTooLong
	}
	process, err := s.instance()
	if err != nil {
		return nil, err
	}
	err = s.tx(ctx, func(t *tx) (err error) {
		if err := t.beginDeciding(); err != nil {
			return err
		}
		list, err = t.askTogether(asks, process)
		return err
	})
	return list, err
}

func (t *tx) askTogether(asks []Approval, process string) (list []Approval, err error) {
	var open, approved, denied []Approval
	for _, a := range asks {
		found, err := sqldb.Find(t.Tx, ScanApproval, SelectApproval+` WHERE quote = ? AND`+isOpen, a.Quote[:])
		switch {
		case err != nil:
			return nil, err
		case found == nil:
			list = append(list, a)
		case found.State == Denied:
			denied = append(denied, *found)
		case found.State == Approved:
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
	if same, err := t.isList(open, len(list)); err != nil || same {
		return t.asOpen(open, process, err)
	}
	if err := t.supersede(open); err != nil {
		return nil, err
	}
	questions := make([]question, len(list))
	for i := range list {
		questions[i] = list[i].asksNow(process)
		prior, err := t.priorAnswers(questions[i])
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
	id := newID("apr_")
	for i := range list {
		list[i].ID = fmt.Sprintf("%s%s%03d", id, listMark, i+1)
		if err := t.openQuestion(&list[i], questions[i]); err != nil {
			return nil, err
		}
	}
	return list, t.alerts.Asked(t.Tx, list)
}

// isList reports whether open questions are one whole list of n.
func (t *tx) isList(open []Approval, n int) (bool, error) {
	if len(open) != n || ListOf(open[0].ID) == open[0].ID {
		return false, nil
	}
	list := ListOf(open[0].ID)
	if slices.ContainsFunc(open, func(a Approval) bool { return ListOf(a.ID) != list }) {
		return false, nil
	}
	whole, err := t.listOf(list)
	waiting := 0
	for _, a := range whole {
		if a.State == Pending {
			waiting++
		}
	}
	return err == nil && waiting == n, err
}

// asOpen is a list that is asked about again.
func (t *tx) asOpen(open []Approval, process string, err error) ([]Approval, error) {
	for i := 0; err == nil && i < len(open); i++ {
		var prior priorAnswers
		prior, err = t.priorAnswers(open[i].asksNow(process))
		if err == nil {
			err = prior.refusal()
		}
		open[i].Unanswered = prior.unanswered
	}
	return open, err
}

// supersede closes open questions in favour of a list that they are on.
func (t *tx) supersede(open []Approval) error {
	if len(open) == 0 {
		return nil
	}
	ids := make([]string, len(open))
	for i, a := range open {
		ids[i] = a.ID
		if _, err := t.Exec(`UPDATE approvals SET state = 'expired' WHERE id = ?`, a.ID); err != nil {
			return err
		}
	}
	return t.audit(0, audit.ApprovalEvent+string(Expired), map[string]any{"ids": ids})
}
