package seal

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/x402"
)

// MarkName is the mark's file in the home (SPEC §2): two places of one line each, of which the
// older is overwritten, so that one is whole whenever the machine stops. It is not forced to the
// disk: after a power cut it may be older than the ledger, which is no harm, and forcing it would
// cost each payment as much as all of its records.
const MarkName = "ledger.mark"

// place is a line's length, with its spaces and its end. A mark has about 250 bytes.
const place = 512

// mark says how far the ledger had come when the wallet last let a payment go. A ledger that does
// not know this any more was rolled back: restored from a backup, or robbed of its write-ahead log.
type mark struct {
	Format string `json:"format"`
	Seq    int64  `json:"seq"`   // of the audit chain's row
	Head   string `json:"head"`  // its hash, hex
	Rules  int64  `json:"rules"` // the version of the sealed rules

	Frozen  int64  `json:"frozen,omitempty"`  // the newest freeze
	Lifted  int64  `json:"lifted,omitempty"`  // up to which one they are lifted
	Freezes string `json:"freezes,omitempty"` // over those between, hex

	Seal string `json:"seal"` // hex
}

const markFormat = "x402-wallet-mark-1"

func (g *Guard) sealOfMark(ctx context.Context, m mark) (string, error) {
	data, err := g.where(ctx)
	if err != nil {
		return "", err
	}
	data = binary.BigEndian.AppendUint64(data, uint64(m.Seq))
	data = binary.BigEndian.AppendUint64(data, uint64(m.Rules))
	data = append(data, m.Head...)
	if m.Frozen > 0 { // else it is the seal of a mark from before freezes were in it
		data = binary.BigEndian.AppendUint64(data, uint64(m.Frozen))
		data = binary.BigEndian.AppendUint64(data, uint64(m.Lifted))
		data = append(data, m.Freezes...)
	}
	seal, err := g.Key.Seal(ctx, purposeMark, data)
	return hex.EncodeToString(seal), err
}

// head is what a mark, which is sealed, says of the ledger.
func (m mark) head() (h history.Head) {
	h = history.Head{Seq: m.Seq, Frozen: m.Frozen, Lifted: m.Lifted}
	h.Hash, _ = hex.DecodeString(m.Head)
	_, _ = hex.Decode(h.Freezes[:], []byte(m.Freezes))
	return h
}

// Checkpoint notes how far the ledger has come: to be called when a signed payment is on disk,
// before it leaves. Calls at the same time share one writing. A mark makes a ledger good, so one
// that is behind the mark before gets none.
func (g *Guard) Checkpoint(ctx context.Context) error {
	head, err := g.Store.Head(ctx)
	if err != nil {
		return err
	}
	a := g.anchor()
	a.mu.Lock()
	defer a.mu.Unlock()
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
	if err := g.follows(ctx, a.meet(m), sealed); err != nil {
		return err
	}
	return g.write(ctx, sealed.Version, g.put)
}

// write is one process's at a time, so that the later mark stays.
func (g *Guard) write(ctx context.Context, rules int64, put func(line []byte) error) error {
	return g.Store.AtHead(ctx, func(head history.Head) error {
		m := mark{Format: markFormat, Seq: head.Seq, Head: hex.EncodeToString(head.Hash), Rules: rules}
		if m.Frozen, m.Lifted = head.Frozen, head.Lifted; m.Frozen > m.Lifted {
			m.Freezes = hex.EncodeToString(head.Freezes[:])
		}
		var err error
		if m.Seal, err = g.sealOfMark(ctx, m); err != nil {
			return err
		}
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := put(append(append(text, bytes.Repeat([]byte(" "), place-1-len(text))...),
			'\n')); err != nil {
			return x402.Errorf(x402.LedgerUnavailable, "renew the ledger's mark: %w", err).
				WithHint("nothing was sent; make room on the disk, or make the wallet's home writable")
		}
		a := g.anchor()
		a.last, a.written = m, true
		return nil
	})
}

// put writes a line over the older one; a file that is not as it should be is replaced.
func (g *Guard) put(line []byte) error {
	path := filepath.Join(g.Home, MarkName)
	marks, err := readMarks(path)
	if err != nil || len(marks) != 2 {
		return g.replace(line)
	}
	older := int64(0)
	if marks[1].Seq < marks[0].Seq {
		older = 1
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(line, older*place)
	return errors.Join(err, file.Close())
}

// replace makes a line the only mark, whatever was there: the owner looked, and begins anew.
func (g *Guard) replace(line []byte) error {
	return config.WriteFile(filepath.Join(g.Home, MarkName), append(line, line...))
}

// readMarks reads both places; one that was being written when the machine stopped is the zero
// mark.
func readMarks(path string) (list []mark, err error) {
	text, err := config.ReadFile(path, 2*place)
	if err != nil {
		return nil, err
	}
	for line := range slices.Chunk(text, place) {
		var m mark
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if d.Decode(&m) != nil || m.Format != markFormat || len(line) < place {
			m = mark{}
		}
		list = append(list, m)
	}
	return list, nil
}

// checkMark refuses a ledger that is behind its mark.
func (g *Guard) checkMark(ctx context.Context, sealed history.SealedRules) error {
	m, err := g.met(ctx)
	if err != nil {
		return err
	}
	return g.follows(ctx, m, sealed)
}

// follows refuses a ledger that has not come from a mark.
func (g *Guard) follows(ctx context.Context, m mark, sealed history.SealedRules) error {
	has, err := g.Store.Has(ctx, m.head())
	if err != nil {
		return err
	}
	if !has || sealed.Version < m.Rules {
		return rolledBack("it is older than its mark, or something was taken out of it: event %d, or what "+
			"was frozen then, is not in it", m.Seq)
	}
	lift, err := g.Store.Lifted(ctx)
	if err != nil {
		return err
	}
	own, err := g.ownLift(ctx, lift)
	if err == nil && (!own || lift.UpTo < m.Lifted) {
		err = rolledBack("a freeze was lifted in it, and not by the owner")
	}
	return err
}

// met is the mark that the ledger is held against: the newest that this process has met. Who puts
// an older ledger and an older mark back together is noticed by whoever was there before; only the
// owner, by sealing rules, takes a process back.
func (g *Guard) met(ctx context.Context) (mark, error) {
	m, err := g.newest(ctx)
	if err != nil {
		return m, err
	}
	a := g.anchor()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.meet(m), nil
}

// meet is asked with mu held.
func (a *CheckpointCache) meet(m mark) mark {
	if m != a.last && (m.Seq >= a.last.Seq || m.Rules > a.last.Rules) {
		a.last, a.written = m, false
	}
	return a.last
}

// CheckpointIfUnlocked marks the ledger if that can be done without asking for the passphrase: what
// was frozen then cannot be taken back by who writes to the ledger.
func (g *Guard) CheckpointIfUnlocked(ctx context.Context) error {
	if g.Key.Locked() {
		return nil
	}
	return g.Checkpoint(ctx)
}

// newest is the newest mark that this wallet made.
func (g *Guard) newest(ctx context.Context) (newest mark, err error) {
	marks, err := readMarks(filepath.Join(g.Home, MarkName))
	if errors.Is(err, fs.ErrNotExist) {
		return newest, rolledBack("its mark %s is missing", MarkName)
	}
	if err != nil {
		return newest, x402.Errorf(x402.LedgerCorrupt, "read the ledger's mark: %w", err)
	}
	for _, m := range marks {
		seal, err := g.sealOfMark(ctx, m)
		if err != nil {
			return newest, err
		}
		if hmac.Equal([]byte(seal), []byte(m.Seal)) && m.Seq > newest.Seq {
			newest = m
		}
	}
	if newest.Seq == 0 {
		return newest, rolledBack("its mark %s was not made by this wallet, for this ledger in this place",
			MarkName)
	}
	return newest, nil
}

func rolledBack(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.LedgerCorrupt, "the ledger is not the one this wallet last wrote: "+format,
		args...).
		WithHint("payments may be missing in it, and budgets look less used than they are: the owner " +
			"restores the newest ledger.db, or looks and accepts it in a terminal with x402-wallet policy " +
			"seal; nothing is paid until then")
}
