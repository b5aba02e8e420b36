package history

import (
	"context"
	"time"
)

// For benchmarks of packages that this package's own tests cannot import.
var Million = million

// Size is how many payments it has.
func Size() int { return *size }

// What the tests use of packages that import this one: content.Keeper, backup.ToFile, and of report Ahead,
// OpenApprovals, and Label and Import.
var (
	Keeper        Contents
	BackUpTo      func(ctx context.Context, s *Store, file string) error
	Ahead         func(ctx context.Context, s *Store) (time.Time, error)
	OpenApprovals func(ctx context.Context, s *Store) ([]Approval, error)
	NoteForBooks  func(ctx context.Context, s *Store, session, label string) error
)
