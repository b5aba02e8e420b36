package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/dashboard"
	"x402-wallet/internal/loopback"
	"x402-wallet/tools"
)

type dashboardOut struct {
	URL  string `json:"url"`            // opens it once, in one browser
	Idle string `json:"idle,omitempty"` // it stops when nobody viewed it for so long

	Metrics string `json:"metrics,omitempty"` // where they are
}

func (p *Program) dashboardCommand(ui *ui) *cobra.Command {
	var at, metrics string
	var open bool
	var idle time.Duration
	cmd := &cobra.Command{
		Use: "dashboard", Short: "Spending, budgets and payments on a page in your browser", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if idle < 0 {
				return usagef("--idle must not be negative")
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
			measuring, endMetrics := context.WithCancel(ctx)
			measured, metricsEnded, err := p.ServeMetrics(measuring, metrics, get)
			defer metricsEnded()
			defer endMetrics()
			if err != nil {
				return errors.Join(err, listener.Close())
			}
			if metrics != "" && !cmd.Flags().Changed("idle") {
				idle = 0 // Prometheus looks, and no person need
			}
			d := dashboard.New(listener.Addr(), dashboard.Options{Wallet: get, Approve: p.ApproveTyped,
				Version: p.Version, Idle: idle})
			out := dashboardOut{URL: d.URL, Metrics: measured}
			if idle > 0 {
				out.Idle = idle.String()
			}
			if err := ui.answer(out, func() {
				ui.say("%s", out.URL)
				ui.note("open this address in a browser on this machine; it opens the dashboard once. " +
					"Ctrl-C stops it.")
				if measured != "" {
					ui.note("metrics are at %s", measured)
				}
			}); err != nil {
				return errors.Join(err, listener.Close())
			}
			if open {
				if err := browse(d.URL); err != nil {
					ui.note("%s no browser could be started: %s", paint(ui.colorErr, yellow, "warning:"),
						safe(err.Error()))
				}
			}
			err = d.Serve(ctx, listener)
			if errors.Is(err, dashboard.ErrIdle) {
				ui.note("nobody viewed the dashboard for %s: stopped", idle)
				return nil
			}
			if ctx.Err() != nil { // as it is meant to end
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&at, "listen", "127.0.0.1:0",
		"the `ADDRESS` of this machine to serve it at; port 0 is any that is free")
	cmd.Flags().BoolVar(&open, "open", false, "open it in the browser")
	cmd.Flags().DurationVar(&idle, "idle", time.Hour,
		"stop when nobody viewed it for this `TIME`, like 30m; 0: never, as with --metrics")
	addMetrics(cmd, &metrics)
	return cmd
}

// browse starts the person's browser, by the system's own program for that: whoever can change PATH
// would be given the address, which opens the dashboard once.
func browse(url string) error {
	program, arguments := opener()
	if program == "" {
		return errors.New("the system has no xdg-open; open the address yourself")
	}
	cmd := exec.Command(program, append(arguments, url)...) //nolint:gosec,noctx // it outlives us
	cmd.Env = environ.Desktop()
	if runtime.GOOS != "windows" { // xdg-open is a script, and looks for browsers itself
		cmd.Env = append(cmd.Env, "PATH="+strings.Join(systemDirs, ":"))
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// systemDirs are where a system keeps its programs; only root writes there.
var systemDirs = []string{"/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/snap/bin",
	"/var/lib/flatpak/exports/bin"}

// opener is the program that opens an address, by its full path; "": there is none.
func opener() (program string, arguments []string) {
	switch runtime.GOOS {
	case "darwin":
		return "/usr/bin/open", nil
	case "windows":
		return systemProgram("rundll32.exe"), []string{"url.dll,FileProtocolHandler"}
	}
	for _, dir := range systemDirs {
		path := filepath.Join(dir, "xdg-open")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", nil
}
