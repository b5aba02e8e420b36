package history

import (
	"context"
	"time"

	"x402-wallet/history/sqldb/postgres"
)

// For benchmarks of packages that this package's own tests cannot import.
var Million = million

// Size is how many payments it has.
func Size() int { return *size }

// What the tests use of packages that import this one, which package history_test sets: content.Keeper,
// backup.ToFile, and of report Ahead and OpenApprovals.
var (
	Keeper        Contents
	BackUpTo      func(ctx context.Context, s *Store, file string) error
	Ahead         func(ctx context.Context, s *Store) (time.Time, error)
	OpenApprovals func(ctx context.Context, s *Store) ([]Approval, error)
)

// Asker is package asking, likewise.
var Asker func(s *Store) interface {
	AskApproval(ctx context.Context, a Approval) (Approval, error)
	AskApprovals(ctx context.Context, list []Approval) ([]Approval, error)
}

func (s *Store) AskApproval(ctx context.Context, a Approval) (Approval, error) {
	return Asker(s).AskApproval(ctx, a)
}

// Verification is package verify, likewise.
var Verification struct {
	Sealed func(context.Context, *Store, Keyholder) (rows int, err error)
}

func (s *Store) Verify(ctx context.Context, at Head) (rows int, err error) {
	return s.VerifySealed(ctx, Keyholder{After: at})
}

func (s *Store) VerifySealed(ctx context.Context, k Keyholder) (rows int, err error) {
	return Verification.Sealed(ctx, s, k)
}

// Package ledgers, likewise.
var (
	Create       func(ctx context.Context, home string, o Options) error
	Open         func(ctx context.Context, home string, o Options) (*Store, error)
	MakePostgres func(ctx context.Context, p postgres.Server) (made bool, err error)
	OpenPostgres func(ctx context.Context, home string, p postgres.Server, o Options) (*Store, error)
)
