package app

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"x402-wallet/tools"
)

const (
	// shutdownTimeout is how long payments under way may take to finish after a signal. They are on
	// disk in any case, and the next start looks them up.
	shutdownTimeout = 4 * time.Second
	// backgroundDelay lets the server answer its host first: looking up unfinished payments can
	// wait.
	backgroundDelay = 300 * time.Millisecond
)

// ServeMCP runs the MCP server on stdin and stdout until the client goes away or ctx ends.
func (a *app) ServeMCP(ctx context.Context) error {
	server := &tools.Server{Version: a.version, Log: a.log, Mounts: true, Open: a.openForAgent,
		Background: backgroundDelay}
	percent := debug.SetGCPercent(-1) // a collection would take a quarter of the start
	time.AfterFunc(backgroundDelay, func() { debug.SetGCPercent(percent) })
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, os.Stdin, os.Stdout) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(shutdownTimeout):
		a.log.Warn("ending with payments under way; the next start looks them up")
		return nil
	}
}

// openForAgent opens the wallet where no person could type a passphrase; its warnings go to the
// log.
func (a *app) openForAgent(ctx context.Context) (*tools.Wallet, error) {
	w, err := a.OpenWallet(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	for _, warning := range w.Warnings {
		a.log.Warn(warning)
	}
	return w, nil
}
