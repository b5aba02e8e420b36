package books

import (
	"context"
	"io"
	"slices"
	"strings"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// Export is which payments are written, and how.
type Export struct {
	Format string // one of Formats
	By     string // one of Keys: sums instead of payments; "": payments
	Label  string // only of sessions with this one
	Within history.Range
}

// Write writes what was imported first, because it is from before this wallet, and then what the
// ledger has, oldest first.
func (e Export) Write(ctx context.Context, out io.Writer, store *history.Store, assets *x402.Registry) error {
	labels, err := store.Labels(ctx)
	if err != nil {
		return err
	}
	imported, err := store.AllImported(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(imported, func(a, b history.Imported) int { return a.At.Compare(b.At) })
	put, end, err := e.writer(out)
	if err != nil {
		return err
	}
	for _, i := range imported {
		if row := entryOfImported(i, assets); e.wants(row) {
			if err := put(row); err != nil {
				return err
			}
		}
	}
	err = store.Each(ctx, e.Within, func(p history.Payment) error {
		row := entryOf(p, labels[p.Session], assets)
		if e.Label != "" && row.Project != e.Label {
			return nil
		}
		return put(row)
	})
	if err != nil {
		return err
	}
	return end()
}

// writer writes rows, or sums them up and writes the sums at the end.
func (e Export) writer(out io.Writer) (put func(entry) error, end func() error, err error) {
	if e.By != "" {
		sums := &keySums{By: e.By}
		return func(r entry) error {
			sums.Add(r)
			return nil
		}, func() error { return writeSums(out, e.Format, sums) }, nil
	}
	writer, err := newWriter(out, e.Format)
	if err != nil {
		return nil, nil, err
	}
	return writer.Write, writer.Close, nil
}

// wants is the range, for what the ledger does not select: an imported payment has no session and
// no state of the ledger's.
func (e Export) wants(r entry) bool {
	w := e.Within
	return e.Label == "" && w.Session == "" && w.State == "" && !r.Time.Before(w.After) &&
		(w.Until.IsZero() || r.Time.Before(w.Until)) &&
		(w.Host == "" || r.Host == w.Host) && strings.Contains(strings.ToLower(r.URL), strings.ToLower(w.URL))
}
