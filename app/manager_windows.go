package app

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"

	"x402-wallet/internal/socket"
)

const (
	// stopTime is how long the manager is told that a stop may take: payments that were sent are finished.
	stopTime = 60 * time.Second
	// eventID is the one kind of message in the event log, of those that EventCreate.exe has a text for.
	eventID = 1
	// maxEvent bounds a message there, in bytes: the system takes 31,839 characters.
	maxEvent = 30_000
)

// windowsService is a process that the service manager started.
type windowsService struct {
	log *eventlog.Log // nil where there is none

	ctx     context.Context
	program func(context.Context) int
	code    atomic.Int32
}

// managed is the service manager, where it started this process to serve; else nil.
func managed(args []string) serviceManager {
	if len(args) == 0 || args[0] != "serve" { // the question takes a while
		return nil
	}
	if is, err := svc.IsWindowsService(); err != nil || !is {
		return nil
	}
	s := &windowsService{}
	s.log, _ = eventlog.Open(socket.ServiceName)
	return s
}

// Write writes a message to the event log.
func (s *windowsService) Write(p []byte) (int, error) {
	if s.log != nil {
		_ = s.log.Info(eventID, strings.ReplaceAll(string(p[:min(len(p), maxEvent)]), "\x00", ""))
	}
	return len(p), nil
}

// run runs the program until it ends or the manager stops it.
func (s *windowsService) run(ctx context.Context, program func(context.Context) int) int {
	s.ctx, s.program = ctx, program
	if err := svc.Run(socket.ServiceName, s); err != nil {
		_, _ = s.Write([]byte("the service manager: " + err.Error()))
		return 1
	}
	return int(s.code.Load())
}

// Execute implements svc.Handler. A program that ends by itself with an error is one that failed, and the
// manager starts it again; one that was stopped is not.
func (s *windowsService) Execute(_ []string, asked <-chan svc.ChangeRequest, says chan<- svc.Status) (
	specific bool, code uint32) {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	ended := make(chan int, 1)
	go func() { ended <- s.program(ctx) }()
	now := svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	says <- now
	for {
		select {
		case code := <-ended:
			if ctx.Err() != nil {
				code = 0
			}
			s.code.Store(int32(code))      //nolint:gosec // an exit code
			return code != 0, uint32(code) //nolint:gosec // as above
		case request := <-asked:
			switch request.Cmd {
			case svc.Interrogate:
				says <- now
			case svc.Stop, svc.Shutdown:
				now = svc.Status{State: svc.StopPending, WaitHint: uint32(stopTime / time.Millisecond)}
				says <- now
				stop()
			}
		}
	}
}
