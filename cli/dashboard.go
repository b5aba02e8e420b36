package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/internal/dashboard"
	"x402-wallet/internal/loopback"
	"x402-wallet/tools"
)

// dashboardOut is what dashboard answers, before anybody looked.
type dashboardOut struct {
	URL  string `json:"url"`            // opens it once, in one browser
	Idle string `json:"idle,omitempty"` // it stops when nobody viewed it for so long
}

func (p *Program) dashboardCommand(ui *ui) *cobra.Command {
	var at string
	var open bool
	var idle time.Duration
	cmd := &cobra.Command{
		Use: "dashboard", Short: "Spending, budgets and payments on a page in your browser", Args: wants(),
		Long: "Serve a page on this machine for its owner: spending over time, by seller and by network, " +
			"budgets, unfinished payments, what\n" +
			"waits for approval, and the whole history with evidence, content and export. Viewing needs " +
			"no passphrase and changes nothing;\n" +
			"approving takes it. The address that is printed opens the page once, in one browser. It is " +
			"served until Ctrl-C, or until nobody\n" +
			"has viewed it for an hour (--idle).",
		Example: "  x402-wallet dashboard --open\n" +
			"  x402-wallet dashboard --listen 127.0.0.1:8402",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if idle < 0 {
				return usageError{text: "--idle must not be negative"}
			}
			get, end := tools.Reopening(func(ctx context.Context) (*tools.Wallet, error) {
				return p.OpenWallet(ctx, nil, nil)
			})
			defer func() { _ = end() }()
			w, done, err := get(ctx) // no wallet, no page
			if err != nil {
				return err
			}
			ui.warn(w.Warnings)
			done()
			listener, err := loopback.Listen(ctx, at)
			if err != nil {
				return usageError{text: "--listen: " + err.Error()}
			}
			d := dashboard.New(listener.Addr(), dashboard.Options{Wallet: get,
				Approve: p.ApproveTyped, Version: p.Version, Idle: idle})
			if err := ui.dashboard(d.URL, idle); err != nil {
				return errors.Join(err, listener.Close())
			}
			if open {
				if err := browse(d.URL); err != nil {
					ui.note("%s no browser could be started: %s", paint(ui.colorErr, yellow, "warning:"),
						safe(err.Error()))
				}
			}
			err = d.Serve(ctx, listener)
			switch {
			case errors.Is(err, dashboard.ErrIdle):
				ui.note("nobody viewed the dashboard for %s: stopped", idle)
				return nil
			case ctx.Err() != nil: // as it is meant to end
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&at, "listen", "127.0.0.1:0",
		"the `ADDRESS` of this machine to serve it at; port 0 is any that is free")
	cmd.Flags().BoolVar(&open, "open", false, "open it in the browser")
	cmd.Flags().DurationVar(&idle, "idle", time.Hour,
		"stop when nobody viewed it for this `TIME`, like 30m; 0: never")
	return cmd
}

func (u *ui) dashboard(url string, idle time.Duration) error {
	if u.json {
		out := dashboardOut{URL: url}
		if idle > 0 {
			out.Idle = idle.String()
		}
		return u.printJSON(out)
	}
	u.say("%s", url)
	u.note("open this address in a browser on this machine; it opens the dashboard once. Ctrl-C stops it.")
	return nil
}

// browse starts the person's browser.
func browse(url string) error {
	command := map[string][]string{
		"darwin":  {"open"},
		"windows": {"rundll32", "url.dll,FileProtocolHandler"},
	}[runtime.GOOS]
	if command == nil {
		command = []string{"xdg-open"}
	}
	arguments := append(command[1:], url)
	cmd := exec.Command(command[0], arguments...) //nolint:gosec,noctx // the system's own; it outlives us
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", command[0], err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
