package history_test

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/backup"
	"x402-wallet/history/content"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
)

func init() {
	history.Keeper = content.Keeper{}
	history.BackUpTo = func(ctx context.Context, s *history.Store, file string) error {
		return must.Err(backup.ToFile(ctx, s, file))
	}
	history.Asker = func(s *history.Store) interface {
		AskApproval(ctx context.Context, a history.Approval) (history.Approval, error)
		AskApprovals(ctx context.Context, list []history.Approval) ([]history.Approval, error)
	} {
		return asking.Asker{Store: s}
	}
	history.Create, history.Open = ledgers.Create, ledgers.Open
	history.MakePostgres, history.OpenPostgres = ledgers.MakePostgres, ledgers.OpenPostgres
	history.Ahead, history.OpenApprovals = report.Ahead, report.OpenApprovals
}
