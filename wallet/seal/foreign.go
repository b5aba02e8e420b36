package seal

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"x402-wallet/x402"
)

// detectForeignLedger gives a refusal of unsealed rules back, unless the ledger is another wallet's or
// another home's: the rules in it say nothing about ours then, and sealing them is no remedy. It needs no
// key: a home that was moved takes its checkpoint along, whose row is in its ledger; in a foreign ledger
// neither of the two rows is.
func (g *Guard) detectForeignLedger(ctx context.Context, refusal error) error {
	if !x402.HasCode(refusal, x402.PolicyUnsealed) {
		return refusal
	}
	lines, err := readLines(filepath.Join(g.Home, checkpointFile))
	if err != nil {
		return refusal
	}
	named := false
	for _, line := range lines {
		m := readCheckpoint(line)
		if m.Seq == 0 {
			continue
		}
		named = true
		has, err := g.Store.Has(ctx, m.head())
		if err != nil {
			return err
		}
		if has {
			return refusal
		}
	}
	if !named { // torn, or not there: nothing tells one ledger from another
		return refusal
	}
	return rolledBack("its checkpoint (%s) names rows that are not in it; it may be another wallet's",
		checkpointFile)
}

// unreadable is what it means that the checkpoint could not be read: where the system refused, it is
// trouble of the moment, and the ledger may be good; a file that is not as this wallet writes it is damage.
func unreadable(err error) error {
	if _, system := errors.AsType[*fs.PathError](err); system {
		return x402.Errorf(x402.LedgerUnavailable, "read the ledger's checkpoint: %w", err).
			WithHint("nothing was signed; see that the disk of the wallet's home can be read and that this " +
				"process may open enough files (ulimit -n), then make the same call again")
	}
	return x402.Errorf(x402.LedgerCorrupt, "read the ledger's checkpoint: %w", err)
}
