package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"
)

// shutdownSignals start a graceful shutdown: nothing new is begun, and payments that were sent are finished
// first. A closed terminal or a lost ssh connection sends SIGHUP. On Windows a closed console, logging off
// and shutting down arrive as SIGTERM, and the system then waits about five seconds; the other signals are
// never sent there.
var shutdownSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// repeatDelay is how long after the first signal a Ctrl-C counts as a second request: closed terminals and
// impatient supervisors send several signals at once that mean one.
const repeatDelay = time.Second

const exitUnknown = 5

// untilSignal returns a context that is cancelled by the first shutdown signal. A signal that was ignored at
// startup (nohup) stays ignored. Further signals change nothing, because the time that a shutdown takes is
// bounded anyway. Only a person at the terminal can press Ctrl-C again to exit at once, which is a crash like
// any other: payments that were sent stay held, and the same call resumes them.
//
// When the reader of stdout or stderr goes away, that is a write error and does not end the program: a client
// that died must not take other payments with it.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, end := context.WithCancel(parent)
	heeded := slices.DeleteFunc(slices.Clone(shutdownSignals), signal.Ignored)
	arrived, broken := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(arrived, heeded...)
	signal.Notify(broken, syscall.SIGPIPE) // without a receiver it would end the program
	go func() {
		<-arrived
		end()
		first := time.Now()
		atTerminal := term.IsTerminal(int(os.Stdin.Fd()))
		for again := range arrived {
			if again == os.Interrupt && atTerminal && time.Since(first) >= repeatDelay {
				fmt.Fprintln(os.Stderr, "ended at once; a payment that was sent stays held, and the same "+
					"call goes on with it")
				os.Exit(exitUnknown)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(arrived)
		end()
	}
}
