package history

import "context"

// For benchmarks of packages that this package's own tests cannot import.
var Million = million

// Size is how many payments it has.
func Size() int { return *size }

// What the tests use of packages that import this one: content.Keeper and backup.ToFile.
var (
	Keeper   Contents
	BackUpTo func(ctx context.Context, s *Store, file string) error
)
