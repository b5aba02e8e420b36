package app

import (
	"context"
	"path/filepath"

	"x402-wallet/history"
	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/hooks"
	"x402-wallet/internal/notify"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// notifier tells the owner by what their rules name; nil: they name nothing.
func (a *app) notifier(rules *config.Config) *notify.Notifier {
	var ways []notify.Way
	n := rules.Notify
	if len(n.Command) > 0 {
		ways = append(ways, notify.Command{Program: child.Program{Argv: n.Command, Env: environ.Child(),
			Sandbox: a.sandbox(n.Sandbox, rules)}})
	}
	if n.Webhook != "" {
		ways = append(ways, &notify.Webhook{URL: n.Webhook, HTTP: seller.NodeClient(nil, rules.Network.Proxy),
			Secret: func() (string, error) {
				line, err := config.ReadSecretFile(n.WebhookSecretFile)
				return line.Reveal(), err
			}})
	}
	if n.Desktop {
		ways = append(ways, desktop())
	}
	if len(ways) == 0 {
		return nil
	}
	told := notify.New(ways...)
	told.Log, told.Ending, told.Page = a.log, &a.telling, a.approvalPage
	return told
}

// TestNotify tells the owner, as a test, by every way that their rules name.
func (a *app) TestNotify(ctx context.Context) ([]notify.Outcome, error) {
	h, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close() }()
	if h.notifier == nil {
		return nil, x402.Errorf(x402.SetupFailed, "config.toml names nothing to tell you by").
			WithHint("write command, webhook or desktop under [notify] in config.toml, and run: " +
				"x402-wallet policy seal")
	}
	if err := h.notifier.Sealed(ctx); err != nil {
		return nil, err
	}
	return h.notifier.Test(ctx), nil
}

// hooks are the owner's programs before and after each payment; nil: their rules name none.
func (a *app) hooks(rules *config.Config, store *history.Store,
	sealed func(context.Context) error) *hooks.Hooks {
	named := rules.Hooks
	if len(named.Before) == 0 && len(named.After) == 0 {
		return nil
	}
	program := func(argv []string) child.Program {
		return child.Program{Argv: argv, Env: environ.Child(), Sandbox: a.sandbox(named.Sandbox, rules)}
	}
	return &hooks.Hooks{Before: program(named.Before), After: program(named.After), Limit: named.Timeout,
		Dir: filepath.Join(a.home, "hooks"), Sealed: sealed, Store: store, Log: a.log, Ending: &a.telling}
}
