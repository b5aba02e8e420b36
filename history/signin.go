package history

import (
	"context"
	"strings"
)

// A sign-in (sign-in-with-x) is a row among the payments, because it is held, signed, sealed and shown like
// one: its amount and price are zero, and it pays nobody. The memory keeps at which hosts the wallet
// signed in, and of it no payee and no price.

// Earlier returns settled payments for a host that were made before a payment, newest first, and no more than
// limit.
func (s *Store) Earlier(ctx context.Context, p Payment, limit int) ([]Payment, error) {
	return read(ctx, s, func(t *tx) (list []Payment, err error) {
		found, err := t.page(Filter{URL: "://" + p.Host, Before: p.ID, State: Settled, Limit: 2 * limit})
		for _, was := range found {
			if was.Host == p.Host && !was.IsSignIn() && !was.IsPull() && len(list) < limit {
				list = append(list, was)
			}
		}
		return list, err
	})
}

// maxBought is how many payments are looked through for one of a resource, newest first.
const maxBought = 50

// Bought returns an agent's newest settled payment for a resource (Payment.Resource) of these URLs, or
// ErrNotFound; agent "": anybody's. url is the resource's without its query; it is enough that it is a part
// of the payment's.
func (s *Store) Bought(ctx context.Context, agent, url, resource string) (Payment, error) {
	return read(ctx, s, func(t *tx) (p Payment, err error) {
		f := Filter{URL: url, State: Settled, Limit: maxBought}
		if agent != "" {
			f.Agents = []string{agent}
		}
		list, err := t.page(f)
		for _, p := range list {
			if !p.IsSignIn() && !p.IsPull() && p.Resource() == resource && strings.HasPrefix(p.URL, url) {
				return p, nil
			}
		}
		return p, cmpOr(err, errNoPayment)
	})
}
