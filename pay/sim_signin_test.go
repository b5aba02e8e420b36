//go:build !race

package pay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// memberWorld is a world with sellers that let in who bought before and signs in (sign-in-with-x), or say so.
//
// What must stay true (S): a sign-in is a row of price 0 that holds nothing; what is signed is for the site
// that was asked, is good now, and on disk before it is shown, once; and a call that was let in pays nothing.
type memberWorld struct {
	members [3]bool
	nonces  int
	shown   map[string]bool // texts that were shown
	signIns []*signIn
}

// signIn is one row.
type signIn struct {
	row, url string
	signed   bool
	good     map[string]bool // contents that were served for it
}

// memberAnswers are what a seller does with a sign-in, beside letting in.
var memberAnswers = []string{"asks again", "says no", "cuts", "hangs", "lets in and cuts",
	"lets in and hangs", "is unreachable", "fails", "is gone"}

// signInOffers are what a seller asks to be signed.
var signInOffers = []choice{{"right", 12}, {"of before", 2}, {"for another domain", 1},
	{"for another uri", 1}, {"stale", 1}, {"of tomorrow", 1}, {"with forged lines", 1}}

// signInOffer is what a seller asks to be signed, the right thing or not.
func (s *sim) signInOffer(url string) string {
	domain, uri, issued, statement := s.hostOf(url), url, s.now(), "Sign in"
	s.nonces++
	nonce := s.nonces
	switch s.pick(signInOffers) {
	case "of before":
		nonce = 1 + s.rng.IntN(nonce)
	case "for another domain":
		domain = "bank.example"
	case "for another uri":
		uri = "https://bank.example/"
	case "stale":
		issued = issued.Add(-time.Hour)
	case "of tomorrow":
		issued = issued.Add(24 * time.Hour)
	case "with forged lines":
		statement = "a\n\nURI: https://bank.example"
	}
	text, _ := json.Marshal(map[string]string{"domain": domain, "uri": uri, "version": "1",
		"nonce": fmt.Sprintf("seed%dn%04d", s.seed, nonce), "statement": statement,
		"issuedAt": issued.Format("2006-01-02T15:04:05.000Z")})
	return fmt.Sprintf(`%q:{"info":%s,"supportedChains":[{"chainId":%q,"type":"eip191"}]}`,
		x402.ExtensionSignIn, text, testNetwork)
}

// simSignIns is a process's signer of sign-ins.
type simSignIns struct {
	s *sim
	p *process
}

func (c *simSignIns) Address(string) string { return c.s.host(9) }

func (c *simSignIns) SignIn(ctx context.Context, id string, m x402.SignIn) (x402.SignIn, error) {
	s := c.s
	if s.at(ctx, c.p, "SignIn", s.mix.sign...) == "locked" || ctx.Err() != nil {
		return m, x402.Errorf(x402.WalletLocked, "locked")
	}
	text, err := m.Text()
	if err != nil {
		s.fail("S: what is signed cannot be read: %v", err)
	}
	url := actorOf(ctx).call.of.url
	if err := m.CheckBound("https://"+s.hostOf(url), actorOf(ctx).call.drafted); err != nil {
		s.fail("S: signed in at %s: %v", url, err)
	}
	if p, err := s.eye.Payment(ctx, id); err != nil || p.State != history.Reserved || !p.IsSignIn() {
		s.fail("S: signed in without a row: %s %v", p.State, err)
	}
	m.Signature = fmt.Sprintf("0x%x", sha256.Sum256([]byte(text)))
	return m, nil
}

// heldSignIn is told of each row of a sign-in.
func (s *sim) heldSignIn(p history.Payment, c *call) {
	if p.Price != 0 || !p.Amount.IsZero() || p.PayTo != "" {
		s.fail("S: the sign-in %s holds %s for %s", p.ID[:8], p.Amount, p.PayTo)
	}
	s.signIns = append(s.signIns, &signIn{row: p.ID, url: c.of.url, good: map[string]bool{}})
	s.say("      %s is a sign-in", p.ID[:8])
}

func (s *sim) signInOf(row string) *signIn {
	for _, in := range s.signIns {
		if in.row == row {
			return in
		}
	}
	return nil
}

// leftSignIn is the moment at which a signed text is out of the wallet's hands.
func (s *sim) leftSignIn(with wire.Attachment, url string) *signIn {
	m, err := wire.DecodeSignIn(with.Value)
	if err != nil {
		s.fail("S: what is shown is no sign-in: %v", err)
		return nil
	}
	if m.Domain != s.hostOf(url) || s.shown[m.Signature] {
		s.fail("S: the sign-in for %s is shown to %s, before: %v", m.Domain, url, s.shown[m.Signature])
	}
	s.shown[m.Signature] = true
	for _, in := range s.signIns {
		p, err := s.eye.Payment(context.Background(), in.row)
		// a process that does not see that this one lives may have ended it since
		if err == nil && p.Evidence.Signature == m.Signature && p.State != history.Reserved {
			in.signed = true
			return in
		}
	}
	s.fail("S: a sign-in is shown that is not on disk")
	return nil
}

// presentSignIn is what becomes of a sign-in that is shown to a seller.
func (t *simSeller) presentSignIn(ctx context.Context, r seller.Request, with wire.Attachment) (
	*seller.Answer, error) {
	s := t.s
	drawn := s.at(ctx, t.p, "PresentSignIn", s.mix.member...)
	if ctx.Err() != nil || drawn == "is unreachable" {
		return nil, notSent(drawn)
	}
	in := s.leftSignIn(with, r.URL)
	a := &seller.Answer{Status: 402, ContentType: "text/plain"}
	switch drawn {
	case "lets in", "lets in and cuts", "lets in and hangs":
		if in == nil {
			break
		}
		s.served++
		a.Status, a.Content = 200, fmt.Appendf(nil, "member of %s #%d", r.URL, s.served)
		in.good[string(a.Content)] = true
		actorOf(ctx).call.letIn = true
	case "says no":
		a.Status = 403
	case "fails":
		a.Status = 500
	case "is gone":
		a.Status = 410
	default:
		a = s.asking(r.URL, s.prices[urlNumber(r.URL)])
	}
	switch drawn {
	case "hangs", "lets in and hangs":
		<-ctx.Done()
	case "cuts", "lets in and cuts":
		return nil, sentTo(drawn)
	}
	s.at(ctx, t.p, "answer arrives")
	if ctx.Err() != nil {
		return nil, sentTo("too late")
	}
	return a, nil
}

// answeredSignIn judges an answer that came by a sign-in; false: it did not.
func (s *sim) answeredSignIn(c *call, r Result) bool {
	in := s.signInOf(r.PaymentID)
	switch {
	case in == nil:
		return false
	case in.url != c.of.url, r.Status == StatusFree && !in.good[r.Content],
		r.Status != StatusFree && r.Status != StatusNotPaid:
		s.fail("S: answered %s %q from the sign-in %s", r.Status, r.Content, in.row[:8])
	}
	return true
}

// compareSignIns: at the end nothing of them is open, and none holds or moved anything.
func (s *sim) compareSignIns() {
	for _, in := range s.signIns {
		p, err := s.eye.Payment(context.Background(), in.row)
		isLost := err != nil && !in.signed // a power cut takes what was not signed
		if isLost {
			continue
		}
		if err != nil || p.State.Unfinished() || p.Price != 0 || (in.signed && p.State != history.Settled) {
			s.fail("S: the sign-in %s is %s: %v", in.row[:8], p.State, err)
		}
	}
}
