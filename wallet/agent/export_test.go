package agent

import (
	"context"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/x402"
)

// What the tests see of this package, which are outside of it: they ask as package client does, too.

const (
	MaxRequest  = maxRequest
	MaxCalls    = maxCalls
	Oldest      = oldest
	Early       = early
	Lateness    = lateness
	SigningTime = signingTime
)

func TermsOf(p history.Payment, asset x402.AssetInfo) signing.Terms { return termsOf(p, asset) }

func (s *Server) Witness(ctx context.Context) { s.witness(ctx) }

func (s *Server) Sign(ctx context.Context, q Request) ([]byte, error) { return s.sign(ctx, q) }

func (r *Recorder) Permit(ctx context.Context, rules Rules, p history.Payment, terms signing.Terms,
	sealed budget.Facts, here bool) error {
	return r.permit(ctx, rules, p, terms, sealed, here)
}

func (t *Tally) Add(p history.Payment, now time.Time) { t.add(p, now) }

func (t *Tally) TakeBack(id string) { t.takeBack(id) }

func (t *Tally) Facts(sealed budget.Facts, q budget.Query, now time.Time) budget.Facts {
	return t.facts(sealed, q, now)
}

// Pass lets the time of a payment pass, and returns until when it was.
func (t *Tally) Pass(id string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.items[id]
	until := i.until
	i.until = time.Now()
	t.items[id] = i
	return until
}

// Kept is what this process signed for a payment and did not submit yet.
func (r *Recorder) Kept(id string) history.Signed { return r.kept[id].signed }
