// Package app is the composition root: it opens a wallet's home and joins the parts. Nothing else
// opens a ledger or builds a guard (arch_test.go checks that), so what a command, an agent's tool,
// the doctor and the dashboard work on is made in one place and in one way. The commands receive it
// through the interfaces that package cli declares.
package app

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"x402-wallet/cli"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
)

// app is this process, on one home. It implements cli.Opener, cli.Creator and cli.Services.
type app struct {
	version string
	home    string
	env     config.Env
	log     *slog.Logger

	// shared by every guard of this process: opening the wallet again must not forget what was met
	checkpoints *seal.CheckpointCache
}

// Main runs the program with the arguments of the process, until it ends or a signal ends it, and
// returns the exit code.
func Main(version string) int {
	env := config.ReadEnv()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level(env.LogLevel)}))
	if err := wallet.Harden(); err != nil {
		log.Warn("could not forbid memory dumps of this process", "err", err)
	}
	home, noHome := config.Home(env)
	a := &app{version: version, home: home, env: env, log: log, checkpoints: &seal.CheckpointCache{}}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program := &cli.Program{
		Version: version, Env: env, Home: home, NoHome: noHome,
		Opener: a, Creator: a, Services: a,
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
