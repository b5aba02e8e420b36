package agent_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind, but the one that waits for all pipes of a Windows process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Microsoft/go-winio.ioCompletionProcessor"))
}
