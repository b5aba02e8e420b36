package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"x402-wallet/internal/ownuser"
	"x402-wallet/internal/relay"
	"x402-wallet/x402"
)

// statusTime bounds the wait for a service that says nothing.
const statusTime = 10 * time.Second

// serviceStatusOut is what service status answers. What who asks may not see is left out.
type serviceStatusOut struct {
	Installed bool   `json:"installed"`
	Running   bool   `json:"running"`
	Version   string `json:"version,omitempty"` // of the service that runs
	Unlocked  *bool  `json:"unlocked,omitempty"`
	Socket    string `json:"socket"`
	Home      string `json:"home"`
	HomeOwner string `json:"homeOwner,omitempty"`
	HomeMode  string `json:"homeMode,omitempty"`
	Wallet    *bool  `json:"wallet,omitempty"` // there is one in the home
	Note      string `json:"note,omitempty"`
}

func (p *Program) serviceStatusCommand(ui *ui) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: "status", Short: "What of the service is there, and whether it runs", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.serviceStatus(cmd.Context(), ui, root) },
	}
	cmd.Flags().StringVar(&root, "root", "", "look below this `DIRECTORY`")
	return cmd
}

func (p *Program) serviceStatus(ctx context.Context, ui *ui, root string) error {
	if err := serviceSupported(); err != nil {
		return err
	}
	root, err := wholeRoot(root)
	if err != nil {
		return err
	}
	place := ownuser.Service()
	found, err := ownuser.Look(place, root)
	if err != nil {
		return err
	}
	out := serviceStatusOut{Installed: found.Installed, HomeOwner: found.HomeOwner, Wallet: found.Wallet,
		Socket: filepath.Join(root, place.Socket), Home: filepath.Join(root, place.Home)}
	if found.HomeOwner != "" {
		out.HomeMode = fmt.Sprintf("%04o", found.HomeMode)
	}
	done := ui.waiting("asking the service")
	p.askService(ctx, &out)
	done()
	return ui.answer(out, func() { ui.serviceStatus(out) })
}

func (u *ui) serviceStatus(out serviceStatusOut) {
	yes := map[bool]string{true: "yes", false: "no"}
	rows := [][]string{{"installed", yes[out.Installed]}, {"running", yes[out.Running]}}
	if out.Version != "" {
		rows = append(rows, []string{"version", out.Version})
	}
	if out.Unlocked != nil {
		rows = append(rows, []string{"unlocked", yes[*out.Unlocked]})
	}
	rows = append(rows, []string{"socket", out.Socket})
	home := out.Home + " (not there)"
	if out.HomeOwner != "" {
		home = fmt.Sprintf("%s (%s's)", out.Home, out.HomeOwner)
	}
	if out.HomeMode != "" {
		home = fmt.Sprintf("%s (%s's, mode %s)", out.Home, out.HomeOwner, out.HomeMode)
	}
	rows = append(rows, []string{"home", home})
	if out.Wallet != nil {
		rows = append(rows, []string{"wallet", yes[*out.Wallet]})
	}
	u.table(nil, rows)
	if out.Note != "" {
		u.note("%s", safe(out.Note))
	}
}

// askService asks the service itself, as an agent's host does.
func (p *Program) askService(ctx context.Context, out *serviceStatusOut) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	in, says := io.Pipe()
	hears, answers := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := relay.Pass(ctx, out.Socket, out.Home, relay.Hello{Token: p.Env.Token.Reveal()}, in, answers)
		_ = in.Close()
		_ = answers.Close()
		ended <- err
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "x402-wallet service status", Version: p.Version}, nil)
	session, err := client.Connect(ctx, &mcp.IOTransport{Reader: hears, Writer: says}, nil)
	if err != nil {
		cancel()
		err = errors.Join(<-ended, err)
		out.Running = x402.HasCode(err, x402.PolicyDenied) || x402.HasCode(err, x402.RateLimited)
		if !errors.Is(err, relay.ErrNone) {
			out.Note = x402.AsError(err).Message
		}
		return
	}
	out.Running, out.Version = true, session.InitializeResult().ServerInfo.Version
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "x402_setup_agent"})
	if err == nil && !result.IsError {
		var wallet struct{ Locked bool }
		text, err := json.Marshal(result.StructuredContent)
		if err == nil && json.Unmarshal(text, &wallet) == nil {
			unlocked := !wallet.Locked
			out.Unlocked = &unlocked
		}
	}
	_ = session.Close()
	cancel()
	if err := <-ended; err != nil {
		out.Note = x402.AsError(err).Message
	}
}
