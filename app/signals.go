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

// endings are the signals that end the program in order: nothing new is begun, and what was sent is
// finished first. A closed terminal and a lost ssh are SIGHUP. On Windows a closed console, logging
// off and shutting down arrive as SIGTERM, and the system waits about five seconds for the end; the
// other names are never sent there.
var endings = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// insistence is how long after a first signal a Ctrl-C counts as another wish: a closed terminal and
// an impatient supervisor send several signals at once that are one.
const insistence = time.Second

// exitUnknown is the exit code of an outcome that is not known (SPEC §1).
const exitUnknown = 5

// untilSignal is a context that ends with the first signal that ends the program. One that was
// ignored when the program began (nohup) stays ignored. Signals behind the first change nothing: how
// long the end may take is bounded anyway. Only a person at the terminal may press Ctrl-C again and
// have it end at once, which is a crash like any other: what was sent stays held, and the same call
// goes on with it.
//
// A reader of stdout or stderr that went away is an error of writing and not the end of the program:
// a client that died takes no other payment with it.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, end := context.WithCancel(parent)
	heeded := slices.DeleteFunc(slices.Clone(endings), signal.Ignored)
	arrived, broken := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(arrived, heeded...)
	signal.Notify(broken, syscall.SIGPIPE) // without a receiver it would end the program
	go func() {
		<-arrived
		end()
		first := time.Now()
		atTerminal := term.IsTerminal(int(os.Stdin.Fd()))
		for again := range arrived {
			if again == os.Interrupt && atTerminal && time.Since(first) >= insistence {
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
