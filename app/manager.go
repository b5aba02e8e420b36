package app

import (
	"context"
	"io"
)

// serviceManager is Windows', which starts and stops a process as a service, and takes what that says.
type serviceManager interface {
	io.Writer
	run(ctx context.Context, program func(context.Context) int) int
}
