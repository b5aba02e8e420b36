package app

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/windows/svc"
)

// exit is how a service ended, as the manager hears it.
type exit struct {
	failed bool
	code   uint32
}

// executed is a service whose manager is the test.
func executed(t *testing.T, program func(context.Context) int) (asks chan svc.ChangeRequest,
	says chan svc.Status, ended chan exit) {
	s := &windowsService{ctx: t.Context(), program: program}
	asks, says, ended = make(chan svc.ChangeRequest), make(chan svc.Status, 10), make(chan exit, 1)
	go func() {
		specific, code := s.Execute(nil, asks, says)
		ended <- exit{specific, code}
	}()
	require.Equal(t, svc.Running, (<-says).State)
	return asks, says, ended
}

// The manager's stop ends the program's context, and is no failure whatever the program says of it.
func TestStoppedByTheServiceManager(t *testing.T) {
	for _, cmd := range []svc.Cmd{svc.Stop, svc.Shutdown} {
		asks, says, ended := executed(t, func(ctx context.Context) int { <-ctx.Done(); return 1 })
		asks <- svc.ChangeRequest{Cmd: svc.Interrogate}
		require.Equal(t, svc.Running, (<-says).State)
		asks <- svc.ChangeRequest{Cmd: cmd}
		require.Equal(t, svc.StopPending, (<-says).State)
		require.Equal(t, exit{}, <-ended)
	}
}

// A program that ends by itself tells the manager its code, for which it is started again.
func TestAServiceThatFails(t *testing.T) {
	_, _, ended := executed(t, func(context.Context) int { return 3 })
	require.Equal(t, exit{failed: true, code: 3}, <-ended)
}
