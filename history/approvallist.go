package history

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// OnList is the id of an approval that is the n-th of a list, from one.
func OnList(list string, n int) string { return fmt.Sprintf("%s%s%03d", list, listMark, n) }

// OnTheList is why a payment is on a list, where it needs no approval itself.
const OnTheList = "it is bought together with what needs your approval"

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
