package subscriptions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

const proposalKey = "proposal " // and a Proposal.ID

// Proposal is a subscription that an agent would like the owner to make. All of it but its id and time is the
// agent's word.
type Proposal struct {
	ID      string        `json:"id"`
	Agent   string        `json:"agent,omitempty"`
	At      time.Time     `json:"at"`
	URL     string        `json:"url"`
	Host    string        `json:"host"` // its
	Every   string        `json:"every"`
	Max     money.Dollars `json:"maxAmount"`
	Until   time.Time     `json:"until"`
	Reason  string        `json:"reason"`
	Expires time.Time     `json:"expires"`
}

// Bounds of proposals, with their reasons.
const (
	// maxProposals is how many of one agent wait for the owner at a time, and maxAllProposals of all agents:
	// more is not read by anybody.
	maxProposals, maxAllProposals = 5, 25
	// proposalTime is how long one waits; then nobody wanted it.
	proposalTime = 14 * 24 * time.Hour
)

// ErrManyProposals says that as many proposals wait as may.
var ErrManyProposals = errors.New("too many proposals wait for the owner")

// Propose writes a proposal down, and tells the owner of it. The very same one is the same proposal.
func Propose(ctx context.Context, s *history.Store, w alerts.Writer, p Proposal) (Proposal, error) {
	asked := p
	err := s.Write(ctx, func(t *sqldb.Tx) error {
		p = asked
		list, err := proposals(t)
		if err != nil {
			return err
		}
		ofAgent := 0
		for _, other := range list {
			if other.Agent != p.Agent {
				continue
			}
			ofAgent++
			if other.isSame(p) {
				p = other
				return nil
			}
		}
		if ofAgent >= maxProposals || len(list) >= maxAllProposals {
			return ErrManyProposals
		}
		p.ID, p.At = history.NewTimedID("prp_", t.Now), t.Now.Truncate(time.Microsecond)
		p.Expires = p.At.Add(proposalTime)
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if _, err := t.Exec(`INSERT INTO meta VALUES (?, ?)`, proposalKey+p.ID, string(text)); err != nil {
			return err
		}
		return w.Write(t, alerts.Proposal, p.ID, "", alerts.Detail{Agent: p.Agent, Price: p.Max, Host: p.Host,
			Why: p.Reason, Expires: p.Expires})
	})
	return p, err
}

func (p Proposal) isSame(other Proposal) bool {
	return p.URL == other.URL && p.Every == other.Every && p.Max == other.Max && p.Until.Equal(other.Until)
}

const selectProposals = `SELECT value FROM meta WHERE key LIKE '` + proposalKey + `%' ORDER BY key`

// proposals are those that wait; what is over is taken out on the way.
func proposals(t *sqldb.Tx) (list []Proposal, err error) {
	found, err := sqldb.Collect(t, scanProposal, selectProposals)
	for _, p := range found {
		if p.ID != "" && t.Now.Before(p.Expires) {
			list = append(list, p)
			continue
		}
		if _, err := t.Exec(`DELETE FROM meta WHERE key = ?`, proposalKey+p.ID); err != nil {
			return nil, err
		}
	}
	return list, err
}

func scanProposal(row sqldb.Row) (p Proposal, err error) {
	text, err := sqldb.ScanText(row)
	if err == nil {
		_ = json.Unmarshal([]byte(text), &p) // what is no JSON of ours is no proposal
	}
	return p, err
}

// Proposals are those that wait for the owner, oldest first.
func Proposals(ctx context.Context, s *history.Store) (list []Proposal, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		list, err = sqldb.Collect(t, scanProposal, selectProposals)
		list = slices.DeleteFunc(list, func(p Proposal) bool {
			return p.ID == "" || !t.Now.Before(p.Expires)
		})
		return err
	})
	return list, err
}

// EndProposal takes a proposal away, because the owner decided on it. It returns history.ErrNotFound if
// there is none.
func EndProposal(ctx context.Context, s *history.Store, id string) error {
	return s.Write(ctx, func(t *sqldb.Tx) error {
		n, err := t.Exec(`DELETE FROM meta WHERE key = ?`, proposalKey+id)
		if err == nil && n == 0 {
			err = fmt.Errorf("no such proposal: %w", history.ErrNotFound)
		}
		return err
	})
}
