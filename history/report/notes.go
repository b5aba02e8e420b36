package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/notes"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Label names a session, for the books; "" takes the name away.
func Label(ctx context.Context, s *history.Store, session, label string) error {
	return s.Note(ctx, audit.LabelledEvent, func(t *sqldb.Tx) (any, error) {
		known, err := t.Is(`SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?)`, session)
		if err == nil && !known {
			err = fmt.Errorf("no such session: %w", history.ErrNotFound)
		}
		if err == nil {
			_, err = t.Exec(`DELETE FROM meta WHERE key = ?`, notes.Label+session)
		}
		if err == nil && label != "" {
			_, err = t.Exec(`INSERT INTO meta VALUES (?, ?)`, notes.Label+session, label)
		}
		return map[string]string{"session": session, "label": label}, err
	})
}

// OwnersChange is a change of what the owner lets the wallet spend, which the owner's own key signed, and
// which was sent to the chain.
type OwnersChange struct {
	Network     string `json:"network"`
	Account     string `json:"account"` // the token account, or the owner's address
	Owner       string `json:"owner"`
	Asset       string `json:"asset"`
	Delegate    string `json:"delegate,omitempty"` // "": revoked
	Amount      string `json:"amount,omitempty"`   // atomic units
	Transaction string `json:"transaction"`
}

// NoteChange writes such a change into the audit chain.
func NoteChange(ctx context.Context, s *history.Store, c OwnersChange) error {
	event := audit.DelegatedEvent
	if c.Delegate == "" {
		event = audit.RevokedEvent
	}
	return s.Note(ctx, event, func(*sqldb.Tx) (any, error) { return c, nil })
}

// Change is an OwnersChange in the audit chain.
type Change struct {
	At time.Time `json:"at"`
	OwnersChange
}

// Changes returns what NoteChange wrote of one asset of an account, oldest first.
func Changes(ctx context.Context, s *history.Store, network, account, asset string) (list []Change,
	err error) {
	events, err := Events(ctx, s, "")
	for _, e := range events {
		c := Change{At: e.At}
		if e.Event != audit.DelegatedEvent && e.Event != audit.RevokedEvent {
			continue
		}
		if err := json.Unmarshal(e.Detail, &c.OwnersChange); err != nil {
			return nil, err
		}
		if c.Network == network && c.Account == account && c.Asset == asset {
			list = append(list, c)
		}
	}
	return list, err
}

// Labels are the names of sessions.
func Labels(ctx context.Context, s *history.Store) (map[string]string, error) {
	labels := map[string]string{}
	err := s.View(ctx, func(t *sqldb.Tx) error {
		return notes.Each(t, notes.Label, func(session, label string) error {
			labels[session] = label
			return nil
		})
	})
	return labels, err
}

// Imported is a payment of the wallet before this one, as that wrote it down. Nothing proves it.
type Imported struct {
	At          time.Time    `json:"at"`
	Transaction string       `json:"transaction"`
	Method      string       `json:"method"`
	URL         string       `json:"url"`
	Network     string       `json:"network"`
	Asset       string       `json:"asset"`
	Amount      money.Amount `json:"amount"`
	PayTo       string       `json:"payTo"`
	Facilitator string       `json:"facilitator"`
}

// ID is the same for the same payment.
func (i Imported) ID() string {
	sum := sha256.Sum256([]byte(audit.JSON(i)))
	return "imp_" + hex.EncodeToString(sum[:16])
}

// Import writes payments of another wallet down, those that are not there yet, and records that in
// the audit chain.
func Import(ctx context.Context, s *history.Store, list []Imported) (added int, err error) {
	err = s.Note(ctx, audit.ImportedEvent, func(t *sqldb.Tx) (any, error) {
		added = 0
		digest := sha256.New()
		for _, i := range list {
			text := audit.JSON(i)
			n, err := t.Exec(`INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO NOTHING`,
				notes.Imported+i.ID(), text)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				added++
				digest.Write([]byte(text))
			}
		}
		if added == 0 {
			return nil, nil
		}
		all, err := notes.ImportedDigest(t)
		return map[string]any{"payments": added, "all": all,
			"sha256": audit.EncodeDigest(digest.Sum(nil))}, err
	})
	return added, err
}

// AllImported are the payments of other wallets, in no order.
func AllImported(ctx context.Context, s *history.Store) (list []Imported, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		return notes.Each(t, notes.Imported, func(_, text string) error {
			var i Imported
			if err := json.Unmarshal([]byte(text), &i); err != nil {
				return err
			}
			list = append(list, i)
			return nil
		})
	})
	return list, err
}
