// Package app is the composition root: it opens a home and joins the parts of the wallet. Nothing
// else opens a ledger or builds a guard.
package app

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"x402-wallet/cli"
	"x402-wallet/internal/config"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
)

// version of the program, as main was built.
var version = "0.1.0-dev"

// Main runs the program and returns its exit code.
func Main(v string) int {
	version = v
	return run()
}

func run() int {
	env := config.ReadEnv()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level(env.LogLevel)}))
	if err := wallet.Harden(); err != nil {
		log.Warn("could not forbid memory dumps of this process", "err", err)
	}
	home, homeless := config.Home(env)
	p := parts{home: home, env: env, log: log, anchor: &seal.CheckpointCache{}}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program := &cli.Program{
		Version: version, Env: env, Home: home, Homeless: homeless, Open: p.open, Serve: p.serve,
		Paywall: p.paywall, Sources: p.sources, Unlock: p.unlock,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	return program.Run(ctx, os.Args[1:])
}

func level(name string) (l slog.Level) {
	if l.UnmarshalText([]byte(name)) != nil {
		return slog.LevelInfo
	}
	return l
}

// patience is how long a signal lets payments under way be finished before the process ends; they
// are on disk in any case, and the next start looks them up.
const patience = 4 * time.Second

// startFirst is how long looking up unfinished payments waits: a host that starts us wants its
// first answer first.
const startFirst = 300 * time.Millisecond

// serve runs the MCP server on stdin and stdout until the client goes away or a signal comes.
func (p parts) serve(ctx context.Context) error {
	server := &tools.Server{
		Version: version, Log: p.log, Mounts: true,
		Open: func(ctx context.Context) (*tools.Wallet, error) {
			w, err := p.open(ctx, nil, nil)
			if err == nil {
				for _, warning := range w.Warnings {
					p.log.Warn(warning)
				}
			}
			return w, err
		},
	}
	background, end := context.WithCancel(ctx)
	defer end()
	collecting := debug.SetGCPercent(-1) // a collection would take a quarter of the start
	time.AfterFunc(startFirst, func() {
		debug.SetGCPercent(collecting)
		server.Background(background)
	})
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, os.Stdin, os.Stdout) }()
	select {
	case err := <-done:
		return closed(server, err)
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return closed(server, err)
	case <-time.After(patience):
		p.log.Warn("ending with payments under way; the next start looks them up")
		return nil
	}
}

func closed(server *tools.Server, err error) error {
	if closing := server.Close(); err == nil {
		err = closing
	}
	return err
}
