package seal

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// checkpoint is how far the ledger had come when the wallet last sent a payment. A ledger that does
// not know this any more was rolled back: restored from a backup, or without its write-ahead log.
type checkpoint struct {
	Format string `json:"format"`
	Seq    int64  `json:"seq"`   // of the audit chain's row
	Head   string `json:"head"`  // its hash, hex
	Rules  int64  `json:"rules"` // the version of the sealed rules

	Frozen  int64  `json:"frozen,omitempty"`  // the newest freeze
	Lifted  int64  `json:"lifted,omitempty"`  // up to which one they are lifted
	Freezes string `json:"freezes,omitempty"` // over those between, hex

	Seal string `json:"seal"` // hex
}

const checkpointFormat = "x402-wallet-mark-1"

func (g *Guard) sealOfCheckpoint(ctx context.Context, m checkpoint) (string, error) {
	data := numbers(texts(m.Head, m.Freezes), m.Seq, m.Rules, m.Frozen, m.Lifted)
	seal, err := g.mac(ctx, purposeCheckpoint, data)
	return hex.EncodeToString(seal), err
}

// head is the part of a sealed checkpoint that the ledger compares.
func (m checkpoint) head() (h history.Head) {
	h = history.Head{Seq: m.Seq, Frozen: m.Frozen, Lifted: m.Lifted}
	h.Hash, _ = hex.DecodeString(m.Head)
	_, _ = hex.Decode(h.Freezes[:], []byte(m.Freezes))
	return h
}

// Checkpoint records how far the ledger has come: to be called when a signed payment is on disk,
// before it leaves. Concurrent calls share one write. A checkpoint vouches for a ledger, so one
// that is behind the checkpoint before gets none.
func (g *Guard) Checkpoint(ctx context.Context) error {
	head, err := g.Store.Head(ctx)
	if err != nil {
		return err
	}
	a := g.checkpoints()
	release, err := a.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if a.last.Seq >= head.Seq && a.written { // for another payment, after this one was on disk
		return nil
	}
	sealed, err := g.Store.Rules(ctx)
	if err != nil {
		return err
	}
	m, err := g.newest(ctx)
	if err != nil {
		return err
	}
	m = g.observe(ctx, a, m)
	if err := g.checkFollows(ctx, m, sealed); err != nil {
		return err
	}
	var after *history.Head
	if m.Seq > 0 {
		after = new(m.head())
	}
	return g.write(ctx, sealed.Version, after, g.writeSlot)
}

// write runs in one process at a time, so that the later checkpoint stays. after is a head that the ledger
// has to have come from, or nil for any. That is compared again here, because who waited for the lock may
// have read another ledger before.
func (g *Guard) write(ctx context.Context, rules int64, after *history.Head,
	put func(line []byte) error) error {
	return g.Store.AtHead(ctx, after, func(now history.Standing) error {
		if err := g.checkStanding(ctx, now, after); err != nil {
			return err
		}
		m, line, err := g.checkpointAt(ctx, now.Head, rules)
		if err != nil {
			return err
		}
		if err := put(line); err != nil {
			return x402.Errorf(x402.LedgerUnavailable, "renew the ledger's checkpoint: %w", err).
				WithHint("nothing was sent; make room on the disk, or make the wallet's home writable")
		}
		g.ownLines.keep(line, m)
		a := g.checkpoints()
		a.last, a.written = m, true
		return nil
	})
}

// checkpointAt is the checkpoint of a head, and its line in the file.
func (g *Guard) checkpointAt(
	ctx context.Context,
	head history.Head,
	rules int64,
) (m checkpoint, line []byte, err error) {
	m = checkpoint{Format: checkpointFormat, Seq: head.Seq, Head: hex.EncodeToString(head.Hash),
		Rules: rules, Frozen: head.Frozen, Lifted: head.Lifted}
	if m.Frozen > m.Lifted {
		m.Freezes = hex.EncodeToString(head.Freezes[:])
	}
	m.Seal, err = g.sealOfCheckpoint(ctx, m)
	if err != nil {
		return m, nil, err
	}
	text, err := json.Marshal(m)
	return m, fmt.Appendf(nil, "%-*s\n", slotSize-1, text), err
}

// checkLedger refuses a ledger that is behind its checkpoint, which it returns.
func (g *Guard) checkLedger(ctx context.Context, sealed history.SealedRules) (checkpoint, error) {
	m, err := g.latest(ctx)
	if err == nil {
		err = g.checkFollows(ctx, m, sealed)
	}
	return m, err
}

// checkFollows refuses a ledger that is no continuation of a checkpoint.
func (g *Guard) checkFollows(ctx context.Context, m checkpoint, sealed history.SealedRules) error {
	has, isFirst := true, m == (checkpoint{}) && g.Store.Shared()
	var err error
	if !isFirst {
		has, err = g.Store.Has(ctx, m.head())
	}
	if err != nil {
		return err
	}
	if !has || sealed.Version < m.Rules {
		return rolledBack("it is older than its checkpoint (%s), or something was taken out of it: "+
			"event %d, or what was frozen then, is not in it", checkpointFile, m.Seq)
	}
	lift, err := g.Store.Lifted(ctx)
	if err != nil {
		return err
	}
	return g.checkLift(ctx, lift, m.Lifted)
}

// checkStanding is checkFollows of how the ledger stands.
func (g *Guard) checkStanding(ctx context.Context, now history.Standing, after *history.Head) error {
	if !now.Follows {
		return rolledBack("it is older than its checkpoint (%s), or something was taken out of it: "+
			"event %d, or what was frozen then, is not in it", checkpointFile, after.Seq)
	}
	lifted := int64(0)
	if after != nil {
		lifted = after.Lifted
	}
	return g.checkLift(ctx, now.Lift, lifted)
}

// checkLift refuses a lift that is not the owner's, or older than one that was seen.
func (g *Guard) checkLift(ctx context.Context, lift history.Lift, seen int64) error {
	own, err := g.ownLift(ctx, lift)
	if err == nil && (!own || lift.UpTo < seen) {
		err = rolledBack("a freeze was lifted in it, and not by the owner")
	}
	return err
}

// latest is the checkpoint that the ledger is compared with: the newest that this process has seen.
// An older ledger and an older checkpoint put back together are noticed by every process that ran
// before; only the owner, by sealing rules, makes a process accept them.
func (g *Guard) latest(ctx context.Context) (checkpoint, error) {
	m, err := g.newest(ctx)
	if err != nil {
		return m, err
	}
	a := g.checkpoints()
	release, err := a.hold(ctx)
	if err != nil {
		return m, err
	}
	defer release()
	return g.observe(ctx, a, m), nil
}

// observe is called by the holder of a. A checkpoint that is behind the last one is believed if it has newer
// rules: the owner accepted another ledger.
func (g *Guard) observe(ctx context.Context, a *CheckpointCache, m checkpoint) checkpoint {
	if m != a.last && (m.Seq >= a.last.Seq || m.Rules > a.last.Rules) {
		if m.Rules > a.last.Rules {
			sealed, err := g.Store.Rules(ctx)
			if err == nil && sealed.IsAccepted && sealed.Version == m.Rules {
				g.Store.ForgetSealed()
			}
		}
		a.last, a.written = m, false
	}
	return a.last
}

// CheckpointIfUnlocked records a checkpoint if that can be done without asking for the passphrase:
// what was frozen then cannot be taken back by writing to the ledger.
func (g *Guard) CheckpointIfUnlocked(ctx context.Context) error {
	if g.Key.Locked() {
		return nil
	}
	return g.Checkpoint(ctx)
}

func rolledBack(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.LedgerCorrupt, "the ledger is not the one this wallet last wrote: "+format,
		args...).
		WithHint("payments may be missing in it, and budgets look less used than they are: the owner "+
			"restores the newest ledger.db, or looks and accepts it in a terminal with x402-wallet policy "+
			"seal; nothing is paid until then").
		WithCommand(x402.Command("policy", "seal"), "The ledger is not the one this wallet last wrote, so "+
			"payments may be missing in it: please restore the newest ledger.db, or look at it and accept "+
			"it.")
}
