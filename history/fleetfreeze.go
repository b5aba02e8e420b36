package history

import (
	"context"
	"log/slog"
	"time"
)

// A freeze of a fleet is committed first, and waits then. Who has an agent's login can hold any lock that
// logins share for as long as they like, and would else pay on while the owner waits for it.

// freezeWaits is how long a freeze that stands waits for what was being submitted when it was committed. A
// submit takes milliseconds; longer takes who keeps its transaction open, or a replica that is far behind.
const freezeWaits = 3 * time.Second

// freeze is Freeze. Said again it is the same freeze, so an answer that was lost is found out by that.
func (e *fleet) freeze(ctx context.Context, s *Store, f Freeze) error {
	q := map[string]any{
		"writer": e.Writer,
		"freeze": f.told(),
		"detail": toJSON(f.told()),
	}
	if f.By != byOwner {
		q["alert"] = map[string]string{"id": newTimedID("alr_", e.now()), "subject": f.alertSubject(),
			"detail": toJSON(f.alertDetail())}
	}
	isNew, err := call(ctx, e, scanYes, `SELECT freeze(?::jsonb)`, toJSON(q))
	if err != nil {
		return e.tell(err)
	}
	if isNew && q["alert"] != nil && s.alerted != nil {
		s.alerted()
	}
	is, err := call(ctx, e, scanYes, `SELECT submits_ended(?)`, freezeWaits.Milliseconds())
	if err != nil || !is {
		slog.WarnContext(ctx, "the fleet is frozen, but somebody keeps a lock of the ledger: what was being "+
			"signed at that moment may still get on disk", "waited", freezeWaits, "err", err)
	}
	return nil
}

func scanYes(row scanner) (is bool, err error) {
	err = row.Scan(&is)
	return is, err
}

// lockFreezes has no freeze begin or end until the end of a change: one that was numbered before it and is
// committed behind it would be lifted without having been seen.
func (t *tx) lockFreezes() error {
	if t.fleet == nil {
		return nil
	}
	_, err := t.exec(`LOCK TABLE freezes IN SHARE ROW EXCLUSIVE MODE`)
	return err
}
