package history_test

import (
	"context"
	"errors"

	"x402-wallet/history"
	"x402-wallet/history/backup"
	"x402-wallet/history/content"
	"x402-wallet/history/report"
)

func init() {
	history.Keeper = content.Keeper{}
	history.BackUpTo = func(ctx context.Context, s *history.Store, file string) error {
		_, err := backup.ToFile(ctx, s, file)
		return err
	}
	history.Ahead, history.OpenApprovals = report.Ahead, report.OpenApprovals
	history.NoteForBooks = func(ctx context.Context, s *history.Store, session, label string) error {
		_, err := report.Import(ctx, s, []report.Imported{{Transaction: "a", URL: "https://a.example/"}})
		return errors.Join(err, report.Label(ctx, s, session, label))
	}
}
