package fleet

import (
	"cmp"
	"errors"
	"time"
)

// Approval is the owner's yes to one payment, as it was shown to them.
type Approval struct {
	Head
	ID      string `json:"id"`    // of the question
	Quote   Hash   `json:"quote"` // everything that a changed quote must not reuse
	Team    string `json:"team,omitempty"`
	Agent   string `json:"agent,omitempty"` // who asks, and alone may use it
	Host    string `json:"host"`
	Method  string `json:"method"`
	URL     string `json:"url"`
	Network string `json:"network"`
	Asset   string `json:"asset"`
	Amount  string `json:"amount"` // atomic units
	Price   string `json:"price"`  // dollars
	PayTo   string `json:"payTo"`
	Once
}

func (a Approval) head() Head { return a.Head }

func (a Approval) check() error {
	for _, text := range []struct {
		name, text string
		most       int
	}{{"id", a.ID, maxName}, {"host", a.Host, maxURL}, {"method", a.Method, maxName}, {"url", a.URL, maxURL},
		{"network", a.Network, maxName}, {"asset", a.Asset, maxName}, {"amount", a.Amount, maxName},
		{"price", a.Price, maxName}, {"payTo", a.PayTo, maxName}} {
		if err := checkText(text.name, text.text, text.most); err != nil {
			return err
		}
	}
	return cmp.Or(checkNode(a.Team, a.Agent), a.Once.check())
}

// checkNode refuses a team or agent whose name is none.
func checkNode(team, agent string) error {
	for _, name := range []string{team, agent} {
		if name != "" && !IsName(name) {
			return errors.New("its team or agent is no name")
		}
	}
	return nil
}

// Lift is the owner's word that every freeze up to one is over.
type Lift struct {
	Head
	UpTo int64 `json:"upTo"` // a freeze's number in the ledger
	Once
}

func (l Lift) head() Head { return l.Head }

func (l Lift) check() error {
	if l.UpTo < 1 {
		return errors.New("it lifts nothing")
	}
	return l.Once.check()
}

// Session is a session that the owner began, with its whole budget.
type Session struct {
	Head
	ID   string `json:"id"`
	Team string `json:"team,omitempty"` // whose it is; "": everybody's
	Once
}

func (s Session) head() Head { return s.Head }

func (s Session) check() error {
	return cmp.Or(checkText("id", s.ID, maxName), checkNode(s.Team, ""), s.Once.check())
}

// NewHead is that of a statement which the anchor's owner signs.
func (a Anchor) NewHead() Head { return Head{Format: format, By: a.Owner, Ledger: a.Ledger} }

// Sign signs an approval.
func (a Approval) Sign(owner Signer) (Signed, error) { return sign(kindApproval, a, owner) }

// Sign signs a lift.
func (l Lift) Sign(owner Signer) (Signed, error) { return sign(kindLift, l, owner) }

// Sign signs a session.
func (s Session) Sign(owner Signer) (Signed, error) { return sign(kindSession, s, owner) }

// VerifyApproval reads an approval that the owner gave, for this ledger, and that is taken at a time: now, or
// when the ledger took it. Whether it covers a payment, and that its number is used once, the caller
// sees to. Errors: APPROVAL_REQUIRED, with a Fault.
func (a Anchor) VerifyApproval(signed Signed, at time.Time) (Approval, error) {
	s, err := authentic[Approval](kindApproval, signed, a)
	return timely(kindApproval, s, s.Once, at, err)
}

// VerifyLift is VerifyApproval for a lift. Errors: WALLET_FROZEN, with a Fault.
func (a Anchor) VerifyLift(signed Signed, at time.Time) (Lift, error) {
	s, err := authentic[Lift](kindLift, signed, a)
	return timely(kindLift, s, s.Once, at, err)
}

// VerifySession is VerifyApproval for a session. Errors: POLICY_UNSEALED, with a Fault.
func (a Anchor) VerifySession(signed Signed, at time.Time) (Session, error) {
	s, err := authentic[Session](kindSession, signed, a)
	return timely(kindSession, s, s.Once, at, err)
}

// timely is s, if there is no error and it is taken at a time; else nothing of it.
func timely[S statement](k kind, s S, once Once, at time.Time, err error) (S, error) {
	if err == nil {
		err = k.inTime(once.Made, once.Expires, at)
	}
	if err != nil {
		var none S
		return none, err
	}
	return s, nil
}
