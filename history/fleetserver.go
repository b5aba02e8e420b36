package history

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"x402-wallet/history/postgres"
	"x402-wallet/x402"
)

// What a fleet's ledger has to be to be believed: found out on each new connection, because behind the same
// address there may be another server by then. A server that was a replica, or was restored, has a timeline
// of its own: an epoch. What the one before had acknowledged may be lost in it, unless a quorum had it.

// What the owner may demand of the server. Of "none" nothing is checked.
const quorum, asynchronous = "quorum", "async"

// settleFor is how long nobody holds money in a new epoch where replication is asynchronous: so long wallets
// have to find out that the server has lost something that they know of, and to freeze the ledger.
const settleFor = 30 * time.Second

// settlePoll is how often who waits for that asks again.
const settlePoll = 250 * time.Millisecond

// Demand is what the owner demands of the server: "quorum", "async" or "none". Connections that were made
// under other demands are made again. It has no meaning for a ledger of one machine.
func (s *Store) Demand(replication string) {
	if s.fleet == nil {
		return
	}
	if before := s.fleet.demands.Swap(&replication); *before != replication {
		s.fleet.pool.Forget()
	}
}

func (e *fleet) demanded() string { return *e.demands.Load() }

// checkServer refuses a server that has another ledger, one of another format, or that keeps less than the
// owner demands; and notes its epoch.
func (e *fleet) checkServer(ctx context.Context, c *postgres.Conn) error {
	is, err := settings(ctx, c)
	if err != nil {
		return err
	}
	switch {
	case is["format"] != fleetFormat:
		return x402.Errorf(x402.LedgerUnavailable, "the fleet's ledger has format %q, this program needs %q",
			is["format"], fleetFormat).WithHint("use the version of x402-wallet that made it")
	case e.LedgerID != "" && is["ledger_id"] != e.LedgerID:
		return x402.Errorf(x402.LedgerCorrupt, "the server has another ledger than the owner signed for").
			WithHint("nothing is paid until the owner has looked: see ledger.url")
	case is["standby"] != "false":
		return postgres.NotNow("use the ledger's server", errStandby)
	}
	if err := e.keepsEnough(is["standbys"], is["commit"]); err != nil {
		return err
	}
	_, err = c.Query(ctx, postgres.Statement{Query: `SELECT epoch()`})
	return err
}

var errStandby = errors.New("it is a standby, and takes no writes")

// settings are what a server says of its ledger and of itself.
func settings(ctx context.Context, c *postgres.Conn) (map[string]string, error) {
	answer, err := c.Query(ctx, postgres.Statement{Query: `SELECT key, value FROM meta WHERE key IN
		('format', 'ledger_id')
		UNION ALL SELECT 'standby', pg_is_in_recovery()::text
		UNION ALL SELECT 'standbys', current_setting('synchronous_standby_names')
		UNION ALL SELECT 'commit', current_setting('synchronous_commit')`})
	if err != nil {
		return nil, err
	}
	is := map[string]string{}
	row := make([]driver.Value, 2)
	for answer.Next(row) == nil {
		is[fmt.Sprint(row[0])] = fmt.Sprint(row[1])
	}
	return is, nil
}

// keepsEnough refuses a server that acknowledges a payment before another machine has it, where the owner
// demands that.
func (e *fleet) keepsEnough(standbys, commit string) error {
	if e.demanded() != quorum || (standbys != "" && commit != "off" && commit != "local") {
		return nil
	}
	return x402.Errorf(x402.LedgerUnavailable, "the ledger's server acknowledges a payment before a second "+
		"server has it "+
		"(synchronous_standby_names = '%s', synchronous_commit = %s)", standbys, commit).
		WithHint("the rules that the owner signed demand replication = \"quorum\": whoever runs the server " +
			"sets synchronous_standby_names = 'ANY 1 (…)' and synchronous_commit = on, or the owner " +
			"seals another replication")
}

// whenSettled takes a step that a young epoch refuses: it waits for that as long as its caller does.
func whenSettled[T any](ctx context.Context, e *fleet, step func() (T, error)) (T, error) {
	for {
		v, err := step()
		if !refusedAs(err, "X4E01") {
			return v, err
		}
		select {
		case <-time.After(settlePoll):
		case <-ctx.Done():
			refusal := x402.Errorf(x402.LedgerUnavailable,
				"the ledger's server failed over less than %s ago", e.settle)
			refusal.FixedBy = x402.ByTime
			return v, refusal.WithHint("make the same call again: until then the wallets look " +
				"whether it has lost a payment")
		}
	}
}
