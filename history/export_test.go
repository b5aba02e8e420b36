package history

import (
	"context"
	"time"
)

// For benchmarks of packages that this package's own tests cannot import.
var Million = million

// Size is how many payments it has.
func Size() int { return *size }

// Verification is package verify, which imports this one: package history_test sets it.
var Verification struct {
	Sealed  func(context.Context, *Store, Keyholder) (rows int, err error)
	Content func(context.Context, *Store) (bytes int64, err error)
}

func (s *Store) Verify(ctx context.Context, at Head) (rows int, err error) {
	return s.VerifySealed(ctx, Keyholder{After: at})
}

func (s *Store) VerifySealed(ctx context.Context, k Keyholder) (rows int, err error) {
	return Verification.Sealed(ctx, s, k)
}

func (s *Store) VerifyContent(ctx context.Context) (bytes int64, err error) {
	return Verification.Content(ctx, s)
}

// What the tests use of packages that import this one: content.Keeper, backup.ToFile, and of report Ahead,
// OpenApprovals, and Label and Import.
var (
	Keeper        Contents
	BackUpTo      func(ctx context.Context, s *Store, file string) error
	Ahead         func(ctx context.Context, s *Store) (time.Time, error)
	OpenApprovals func(ctx context.Context, s *Store) ([]Approval, error)
	NoteForBooks  func(ctx context.Context, s *Store, session, label string) error
)
