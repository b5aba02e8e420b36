package pay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Signing in (sign-in-with-x): what was bought before is fetched again by proving who paid, and what only
// asks who is there is answered. A sign-in moves no money, and takes the same way as a payment all the same:
// the owner's rules decide (policy.sign_in), a row is held, the text is built here and signed, row and
// signature are sealed and durable, and it is shown once. When the seller asks for payment after it, the
// call pays as if nothing had been.

// SignInSigner signs in with the wallet's accounts: agent.SignIns.
type SignInSigner interface {
	// Address is the account on a network; "": there is none.
	Address(network string) string
	// SignIn returns the message with its signature, for the row of that id.
	SignIn(ctx context.Context, id string, m x402.SignIn) (x402.SignIn, error)
}

// signInPause is how long a host is paid without another try, after it asked for payment in spite of a
// sign-in.
const signInPause = time.Hour

// signInsInVain are hosts where signing in did not help, with when that was. The zero value knows none.
type signInsInVain struct {
	mu    sync.Mutex
	hosts map[string]time.Time
}

func (v *signInsInVain) note(host string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hosts == nil || len(v.hosts) >= maxAskedHosts {
		v.hosts = map[string]time.Time{}
	}
	v.hosts[host] = at
}

func (v *signInsInVain) within(host string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, known := v.hosts[host]
	return known && now.Sub(at) < signInPause
}

// errNoSignIn says why a call does not sign in; it pays then, if there is something to pay for.
type errNoSignIn struct{ why string }

func (e errNoSignIn) Error() string { return e.why }

// signIn signs in where the challenge asks for it and it may help. done is false where the call goes on and
// pays: the seller or the owner's rules do not have it. Its error is one that stands in the way of the whole
// call: there is nothing to pay for, a person has to decide first, the seller did not answer and may have
// served, or something of the wallet's own failed, which is no reason to pay again.
func (e *Engine) signIn(ctx, caller context.Context, q intent, found *quote) (r Result, done bool,
	err error) {
	offer := found.challenge.SignInOffer()
	only := found.challenge.AsksSignInOnly()
	if (offer == nil || e.Rules.SignIn == budget.RuleRefuse) && !only {
		return r, false, nil
	}
	r, err = e.trySignIn(ctx, caller, q, found, offer)
	var not errNoSignIn
	switch {
	case err == nil:
		return r, true, nil
	case only && errors.As(err, &not):
		return r, false, wire.SignInRefused(not.why)
	case only:
		return r, false, err
	case errors.As(err, &not):
		e.Log.Debug("did not sign in, and pays as usual", "host", q.host, "why", err)
		return r, false, nil
	case x402.HasCode(err, x402.PolicyDenied), x402.HasCode(err, x402.ApprovalDeclined):
		e.Log.Info("the owner's rules refuse to sign in, and it is paid as usual", "host", q.host, "why", err)
		return r, false, nil
	}
	return r, false, err
}

func (e *Engine) trySignIn(ctx, caller context.Context, q intent, found *quote, offer *wire.SignInOffer) (
	r Result, err error) {
	p, m, err := e.signInTerms(ctx, q, found, offer)
	if err != nil {
		return r, err
	}
	w := &proposal{ask: budget.Ask{Agent: q.agent, Host: q.host, SignIn: true},
		sessionCap: e.sessionCapOnce(ctx), quotes: [][sha256.Size]byte{signInQuote(p)},
		hold: history.Hold{Payment: p, Funds: x402.Funds{Source: p.Source, ReadAt: e.Now()}}}
	purchase, err := e.holdFor(ctx, caller, w)
	if x402.HasCode(err, x402.ApprovalRequired) {
		why := x402.AsError(err)
		if s := offer.Statement(); s != "" {
			why.Message += "; the seller writes: " + x402.Quote(s)
		}
		return r, e.ask(ctx, p, signInQuote(p), why, "signing in at "+x402.Brief(p.Host)+" as "+p.Source+
			" (it costs nothing)")
	}
	if err != nil {
		return r, err
	}
	defer purchase.End(false) // what was not delivered the same call gets by signing in again
	if err := purchase.signSignIn(ctx, m); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Policy.Deadline)
	defer cancel()
	return e.showSignIn(ctx, q, purchase.Payment)
}

// signInTerms is the row and the message of a sign-in, or why there is none.
func (e *Engine) signInTerms(ctx context.Context, q intent, found *quote, offer *wire.SignInOffer) (
	p history.Payment, m x402.SignIn, err error) {
	switch {
	case offer == nil:
		return p, m, errNoSignIn{"what it asks to be signed cannot be read"}
	case e.SignIns == nil || seller.IsMCP(q.Method):
		return p, m, errNoSignIn{"this wallet signs in over HTTP alone"}
	case e.signInsInVain.within(q.host, e.Now()):
		return p, m, errNoSignIn{"a sign-in there was not enough a while ago, and is not tried again yet"}
	}
	network, account, err := e.identity(ctx, q, found, offer)
	if err != nil {
		return p, m, err
	}
	origin, err := x402.Origin(found.answer.FinalURL)
	if err != nil {
		return p, m, errNoSignIn{"the seller's URL is none"}
	}
	m, err = offer.Message(network, account, origin, e.Now())
	var bad *x402.SignInError
	if errors.As(err, &bad) {
		return p, m, errNoSignIn{bad.Message}
	}
	terms, _ := json.Marshal(m) // of texts: cannot fail
	return history.Payment{
		Fingerprint: sha256.Sum256(append([]byte(x402.SignInScheme+" "), q.fingerprint[:]...)),
		Agent:       q.agent,
		Method:      q.Method, URL: q.shownURL, Target: elsewhere(found.answer.FinalURL, q.URL), Host: q.host,
		Network: network, Scheme: x402.SignInScheme, Dialect: found.challenge.Dialect, Source: account,
		Requirement: terms,
	}, m, nil
}

// identity is as whom to sign in: as the account that bought this before, or, where nothing is sold, as the
// one on the network that the owner prefers. What a vault bought it bought in its own name, and a signature
// of the agent's is not the contract's in a message of words: then there is nothing to show.
func (e *Engine) identity(ctx context.Context, q intent, found *quote, offer *wire.SignInOffer) (
	network, account string, err error) {
	networks := e.Policy.Networks
	if !found.challenge.AsksSignInOnly() {
		url, _, _ := strings.Cut(q.shownURL, "?")
		was, err := e.Store.Bought(ctx, q.agent, url, q.row().Resource())
		if errors.Is(err, history.ErrNotFound) {
			return "", "", errNoSignIn{"it was never bought here"}
		}
		if err != nil {
			return "", "", err
		}
		isVaults := x402.Namespace(was.Network) == "eip155" && !strings.EqualFold(was.Source,
			e.SignIns.Address(was.Network))
		if isVaults {
			return "", "", errNoSignIn{"an account of the owner's bought it, and only that could sign in"}
		}
		networks = []string{was.Network}
	}
	for _, n := range networks {
		chain := offer.Chain(n)
		if chain != "" && e.SignIns.Address(chain) != "" {
			return chain, e.SignIns.Address(chain), nil
		}
	}
	return "", "", errNoSignIn{"it takes no account that this wallet has"}
}

// signInQuote is what an approval of a sign-in is bound to: the request, the site and the account. The
// nonce is another one each time.
func signInQuote(p history.Payment) [sha256.Size]byte {
	return terms(p, option{})
}

// signSignIn signs and puts the signature on disk. After an error nothing has left the process.
func (p *Purchase) signSignIn(ctx context.Context, m x402.SignIn) error {
	e := p.engine
	err := p.MaySign(ctx)
	if err == nil {
		over := awaiting(ctx) // a person may have to unlock the wallet
		m, err = e.SignIns.SignIn(ctx, p.Payment.ID, m)
		over()
	}
	if err == nil {
		evidence := m.Evidence()
		payload, _ := json.Marshal(m) // of texts: cannot fail
		err = p.Submit(ctx, history.Signed{Payload: payload, Requirement: p.Payment.Requirement,
			Evidence: evidence, UniqueKey: evidence.Unique()})
	}
	if err == nil {
		return nil
	}
	ending, cancel := e.Detached(ctx)
	defer cancel()
	if release := e.Store.Release(ending, p.Payment.ID, x402.AsError(err).Error()); release != nil {
		e.endSignIn(ending, p.Payment, history.Outcome{Note: "it was signed, and not sent"})
	}
	var bad *x402.SignInError
	if errors.Is(err, history.ErrSignedBefore) || errors.As(err, &bad) {
		return errNoSignIn{"the seller's message cannot be signed: it was signed before, or is none"}
	}
	return e.notPrepared(p.Payment, err)
}

// showSignIn shows a signed message to the seller, once, and records what came of it.
func (e *Engine) showSignIn(ctx context.Context, q intent, p history.Payment) (r Result, err error) {
	var m x402.SignIn
	if err := x402.DecodeStrict(p.Payload, x402.MaxHeader, &m); err != nil {
		return r, err // it was written here
	}
	over := awaiting(ctx)
	answer, err := e.Transport.Present(ctx, e.target(q, p), wire.Attachment{Header: wire.HeaderSignIn,
		Value: wire.EncodeSignIn(m)})
	over()
	if answer != nil {
		defer answer.Release()
	}
	if err != nil {
		var failed *seller.SendError
		if errors.As(err, &failed) {
			err = failed.Err
		}
		e.endSignIn(ctx, p, history.Outcome{Note: "the seller did not answer"})
		mayHaveServed := x402.HasCode(err, x402.NetworkError) || x402.HasCode(err, x402.Timeout)
		if !mayHaveServed {
			err = errNoSignIn{"the seller's answer cannot be read: " + x402.AsError(err).Message}
		}
		return r, err
	}
	if isOK(answer.Status) {
		content := contentOf(answer)
		saved := e.endSignIn(ctx, p, history.Outcome{Content: &content, Note: "served without a payment"})
		return e.signedIn(ctx, saved, answer), nil
	}
	e.endSignIn(ctx, p, history.Outcome{Note: fmt.Sprintf("not served: HTTP %d", answer.Status)})
	switch answer.Status {
	case http.StatusPaymentRequired, http.StatusPreconditionFailed, http.StatusUnauthorized,
		http.StatusForbidden:
		e.signInsInVain.note(q.host, e.Now())
		return r, errNoSignIn{"the seller did not serve who signed in"}
	}
	r = e.free(answer)
	r.PaymentID = p.ID
	return r, nil
}

// signedIn is the answer of a call that was served because the wallet signed in.
func (e *Engine) signedIn(ctx context.Context, p history.Payment, a *seller.Answer) Result {
	r := Result{Status: StatusFree, PaymentID: p.ID, Network: p.Network}
	place := p.ID
	// else what it got would be kept for a call that never comes
	if err := e.Store.Deliver(ctx, p.ID); err != nil {
		e.Log.Warn("note that the answer to a sign-in was delivered", "payment", p.ID, "err", err)
		place = ""
	}
	r.show(contentOf(a), place)
	r.Next = r.readOn()
	if r.Next.Why == "" {
		r.Next.Why = "signed in as " + p.Source + "; nothing was paid"
	}
	return r
}

// endSignIn writes down what came of a sign-in that was signed: it is settled, which says of one that
// nothing is open any more.
func (e *Engine) endSignIn(ctx context.Context, p history.Payment, o history.Outcome) history.Payment {
	ctx, cancel := e.Detached(ctx)
	defer cancel()
	o.State, o.ReleaseLease, o.ClearWaiter = history.Settled, true, true
	saved, err := e.Store.Finish(ctx, p.ID, o)
	if err != nil && !errors.Is(err, history.ErrTransition) {
		e.Log.Error("record a sign-in", "payment", p.ID, "err", err)
		e.inflight.noteStale(p.ID)
	}
	if err != nil {
		return p
	}
	return saved
}
