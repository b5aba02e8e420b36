package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"x402-wallet/x402"
)

const (
	supportFresh = 5 * time.Minute // how long what a facilitator supports is taken for granted
	// how long a failed question is not asked again; it is remembered as unknown, not as "nothing"
	supportRetry = 10 * time.Second
	maxKinds     = 1024
)

// Kind is something a facilitator can settle: an entry of its /supported.
type Kind struct {
	Facilitator string
	Version     int
	Scheme      string
	Network     string // CAIP-2, whatever the facilitator calls it
	FeePayer    string // Solana: extra.feePayer
	Extra       map[string]json.RawMessage

	limits Limits // of the facilitator
}

// Takes reports whether the owner gave its facilitator such payments.
func (k Kind) Takes(t Terms) bool { return k.limits.takes(t) }

// Settler is who alone can settle a payment that names him: the fee payer on Solana, of the scheme upto
// extra.facilitatorAddress, and of batch-settlement extra.receiverAuthorizer, who signs the seller's claims.
// "": nobody is named.
func (k Kind) Settler() string {
	address := k.FeePayer
	switch k.Scheme { // not a string: none
	case x402.Upto:
		_ = json.Unmarshal(k.Extra["facilitatorAddress"], &address)
	case x402.BatchSettlement:
		_ = json.Unmarshal(k.Extra["receiverAuthorizer"], &address)
	}
	return address
}

// support remembers one facilitator's /supported.
type support struct {
	// who is in it asks, the others wait for the answer or their own deadline
	lock    chan struct{}
	until   time.Time
	kinds   []Kind
	signers []string
	err     error
}

// supported is what f says it supports, asked at most every five minutes.
func (c *Client) supported(ctx context.Context, f *remote) (kinds []Kind, signers []string, err error) {
	s := &f.support
	select {
	case s.lock <- struct{}{}:
		defer func() { <-s.lock }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if c.now().Before(s.until) {
		return s.kinds, s.signers, s.err
	}
	short, cancel := context.WithTimeout(ctx, f.short())
	defer cancel()
	short, step := begin(short, f, "supported")
	reply := c.call(short, f, http.MethodGet, "supported", nil, nil)
	step.Answered(reply.status)
	step.EndAs(codeIf(reply.err != nil || reply.status != http.StatusOK))
	if ctx.Err() != nil {
		return nil, nil, ctx.Err() // the caller gave up: that says nothing about the facilitator
	}
	s.kinds, s.signers, s.err = readSupported(f.Facilitator, reply)
	s.until = c.now().Add(supportFresh)
	if s.err != nil {
		s.until = c.now().Add(supportRetry)
	}
	return s.kinds, s.signers, s.err
}

func readSupported(f Facilitator, r reply) (kinds []Kind, signers []string, err error) {
	if r.err != nil {
		return nil, nil, r.err
	}
	if r.status != http.StatusOK {
		return nil, nil, fmt.Errorf("status %d", r.status)
	}
	var answer struct {
		Kinds []struct {
			Version int                        `json:"x402Version"`
			Scheme  string                     `json:"scheme"`
			Network string                     `json:"network"`
			Extra   map[string]json.RawMessage `json:"extra"`
		} `json:"kinds"`
		Signers json.RawMessage `json:"signers"`
	}
	if err := x402.DecodeStrict(r.body, maxReply, &answer); err != nil {
		return nil, nil, err
	}
	if len(answer.Kinds) > maxKinds {
		return nil, nil, fmt.Errorf("%d kinds; at most %d are read", len(answer.Kinds), maxKinds)
	}
	for _, k := range answer.Kinds {
		network, ok := x402.Network(k.Network)
		if !ok {
			continue // a chain we do not know cannot be paid on
		}
		kind := Kind{Facilitator: f.Name, Version: k.Version, Scheme: k.Scheme, Network: network,
			Extra: k.Extra, limits: f.Limits}
		_ = json.Unmarshal(k.Extra["feePayer"], &kind.FeePayer) // not a string: none
		kinds = append(kinds, kind)
	}
	var byFamily map[string][]string
	// optional; where it has another form the kinds are valid still
	_ = json.Unmarshal(answer.Signers, &byFamily)
	for _, addresses := range byFamily {
		signers = append(signers, addresses...)
	}
	return kinds, signers, nil
}

// Answer is what one facilitator says that it supports.
type Answer struct {
	Name  string
	Kinds []Kind // on the networks that the owner gave it
	Err   error
}

// Answers asks all facilitators that the owner gave a network, at once, and says of each what it
// answered about it; "" is every network.
func (c *Client) Answers(ctx context.Context, network string) []Answer {
	return askAll(c.given(network), func(f *remote) Answer {
		kinds, _, err := c.supported(ctx, f)
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool {
			given, _ := f.serves(k.Network)
			return !given || (network != "" && k.Network != network)
		})
		return Answer{Name: f.Name, Kinds: kinds, Err: err}
	})
}

// askAll asks facilitators at once; the answers are in their order.
func askAll[T any](asked []*remote, ask func(*remote) T) []T {
	answers := make([]T, len(asked))
	var wait sync.WaitGroup
	for i, f := range asked {
		wait.Go(func() { answers[i] = ask(f) })
	}
	wait.Wait()
	return answers
}

// given are the facilitators that the owner gave a network; "" is any.
func (c *Client) given(network string) []*remote {
	return slices.DeleteFunc(slices.Clone(c.list), func(f *remote) bool {
		given, _ := f.serves(network)
		return !given && network != ""
	})
}

// Supported lists what the facilitators can settle on a network, in their order; "" is every
// network. With an error it lists the kinds of the others.
func (c *Client) Supported(ctx context.Context, network string) ([]Kind, error) {
	var all []Kind
	var failures []error
	for _, a := range c.Answers(ctx, network) {
		all = append(all, a.Kinds...)
		if a.Err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", a.Name, a.Err))
		}
	}
	return all, errors.Join(failures...)
}

// HasSigner reports whether an address is one that a facilitator of the owner's settles from on a network, or
// with Options.Hosted a well-known one. Who does not answer vouches for nobody.
func (c *Client) HasSigner(ctx context.Context, network, address string) bool {
	if c.hosted && isHosted(network, address) {
		return true
	}
	return slices.Contains(askAll(c.given(network), func(f *remote) bool {
		_, signers, err := c.supported(ctx, f)
		return err == nil && slices.ContainsFunc(signers, func(s string) bool {
			return strings.EqualFold(s, address)
		})
	}), true)
}

// FeePayer names who would pay the fee of an exact payment on a Solana network, and the facilitator
// that holds its key: the first that is none of avoid, or the first of all.
func (c *Client) FeePayer(ctx context.Context, t Terms, version int, avoid []string) (address,
	facilitator string, err error) {
	kinds, err := c.Supported(ctx, t.Network)
	kinds = slices.DeleteFunc(kinds, func(k Kind) bool {
		return k.Version != version || k.Scheme != "exact" || k.FeePayer == "" || !k.Takes(t)
	})
	for _, k := range kinds {
		if !slices.Contains(avoid, k.FeePayer) {
			return k.FeePayer, k.Facilitator, nil
		}
	}
	if len(kinds) > 0 {
		return kinds[0].FeePayer, kinds[0].Facilitator, nil
	}
	if err != nil {
		return "", "", fmt.Errorf("no facilitator could say who pays the fee: %w", err)
	}
	return "", "", fmt.Errorf("no facilitator pays the fee on %s", t.Network)
}

// route is who is asked to settle, in order: those the owner gave such payments to, without those
// that say they do not support it. Who cannot be asked stays in: an unknown is not a no. With
// Sticky it is those who hold the settler's key; where nobody says that he does, the first alone.
func (c *Client) route(ctx context.Context, s Submission) iter.Seq[*remote] {
	return func(yield func(*remote) bool) {
		var can, holds []*remote
		for _, f := range c.list {
			serves, holdsKey := c.canSettle(ctx, f, s)
			if serves && !s.Sticky && !yield(f) {
				// one by one: the second is not even asked what it supports before it is needed
				return
			}
			if serves {
				can = append(can, f)
			}
			if holdsKey {
				holds = append(holds, f)
			}
		}
		if !s.Sticky {
			return
		}
		if len(holds) == 0 {
			holds = can[:min(len(can), 1)]
		}
		for _, f := range holds {
			if !yield(f) {
				return
			}
		}
	}
}

// canSettle reports whether f may be asked to settle s, and whether it says that it holds the fee payer's
// key: then it may be asked whatever else was given to it, because nobody else could.
func (c *Client) canSettle(ctx context.Context, f *remote, s Submission) (serves, holdsKey bool) {
	given, exactly := f.serves(s.Network)
	takes := f.Limits.takes(s.terms())
	switch {
	case !given || (!takes && !s.Sticky):
		return false, false
	case exactly && !s.Sticky: // where the owner knows there is nothing to ask
		return true, false
	}
	kinds, signers, err := c.supported(ctx, f)
	does := func(k Kind) bool { return k.Network == s.Network && k.Version == s.Version }
	isHis := func(address string) bool {
		return address == s.FeePayer || (strings.HasPrefix(address, "0x") && strings.EqualFold(address,
			s.FeePayer))
	}
	isSettler := func(k Kind) bool { return does(k) && isHis(k.Settler()) }
	serves = err != nil || exactly || slices.ContainsFunc(kinds, does)
	holdsKey = slices.ContainsFunc(signers, isHis) || slices.ContainsFunc(kinds, isSettler)
	return serves && takes, serves && holdsKey
}
