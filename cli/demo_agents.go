package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"x402-wallet/internal/config"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The two agents of the second act. What the first may spend a day is two of what it buys.
const (
	demoCoder, demoWriter = "coder", "writer"
	demoAgentDay          = money.Dollars(2_000)
	demoSocket            = "service.sock" // in the demo's directory: paths of sockets are short
)

// agentRules are the agents in the owner's rules, known by these tokens.
func agentRules(tokens map[string]string) string {
	return fmt.Sprintf("\n[agents.%s]\ntoken = %q\nday = %q\n\n[agents.%s]\ntoken = %q\n", demoCoder,
		config.TokenHash(tokens[demoCoder]), demoAgentDay, demoWriter, config.TokenHash(tokens[demoWriter]))
}

// twoAgents is the second act: one wallet, run as a service, and two agents at it.
func (d *demo) twoAgents(ctx context.Context) (err error) {
	d.scene("Two agents share the wallet: x402-wallet serve")
	stop, err := d.startService(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	d.line("service", "one process has the wallet; the agents' hosts start x402-wallet mcp, which passes "+
		"them on")
	d.line("rules", "%s may spend %s a day, %s whatever is left of the owner's budgets", demoCoder,
		demoAgentDay.Price(), demoWriter)
	settled := len(d.world.Settlements())
	for _, call := range []struct {
		agent, path string
		refused     x402.Code
	}{{demoCoder, "/weather?monday", ""}, {demoCoder, "/weather?tuesday", ""},
		{demoCoder, "/weather?wednesday", x402.BudgetExceeded}, {demoWriter, "/weather?wednesday", ""}} {
		if err := d.callAs(ctx, call.agent, call.path, call.refused); err != nil {
			return err
		}
	}
	for agent, bought := range map[string]int{demoCoder: 2, demoWriter: 1} {
		if err := d.sees(ctx, agent, bought); err != nil {
			return err
		}
	}
	d.line("privacy", "each sees its own payments in x402_history, and no other's")
	return d.settlements(settled + 3)
}

// sees checks how many payments an agent is shown.
func (d *demo) sees(ctx context.Context, agent string, bought int) error {
	host, err := startDemoHost(ctx, d.asAgent(ctx, agent))
	if err != nil {
		return err
	}
	defer func() { _ = host.session.Close() }()
	var out tools.HistoryOut
	if isError, err := host.tool(ctx, "x402_history", map[string]any{}, &out); err != nil || isError {
		return fmt.Errorf("x402_history failed: %w", err)
	}
	if out.Count != bought {
		return fmt.Errorf("%s sees %d payments instead of %d", agent, out.Count, bought)
	}
	return nil
}

// startService starts the wallet as a service; stop ends it.
func (d *demo) startService(ctx context.Context) (stop func() error, err error) {
	cmd := d.command(ctx, "serve", "--socket", demoSocket)
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	lines := bufio.NewReader(said)
	ready, err := lines.ReadString('\n')
	if err == nil && !strings.Contains(ready, demoSocket) {
		err = fmt.Errorf("it said %q", strings.TrimSpace(ready))
	}
	go func() { _, _ = lines.WriteTo(&d.serviceLog) }()
	stop = func() error {
		if runtime.GOOS == "windows" { // which has no signals
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return nil
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // an interrupt may be ignored, in the background
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the service did not end well: %w\n%s", err, d.serviceLog.String())
		}
		return nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the service did not start: %w", err), stop())
	}
	return stop, nil
}

// asAgent is an agent's host's command: it has the token, and no wallet.
func (d *demo) asAgent(ctx context.Context, agent string) *exec.Cmd {
	cmd := d.command(ctx, "mcp")
	cmd.Env = append(cmd.Env, "X402_WALLET_SERVICE="+demoSocket, "X402_WALLET_TOKEN="+d.tokens[agent],
		"X402_WALLET_HOME="+filepath.Join(d.dir, "no-wallet"))
	return cmd
}

// callAs is an agent's call, which is paid, or refused with a code.
func (d *demo) callAs(ctx context.Context, agent, path string, code x402.Code) error {
	host, err := startDemoHost(ctx, d.asAgent(ctx, agent))
	if err != nil {
		return err
	}
	defer func() { _ = host.session.Close() }()
	var answer json.RawMessage
	isError, err := host.tool(ctx, "x402_pay", map[string]any{"url": d.world.SellerURL + path}, &answer)
	if err != nil {
		return err
	}
	if isError {
		var refused tools.Failure
		err := json.Unmarshal(answer, &refused)
		d.line(agent, "x402_pay %s -> %s: %s", path, refused.Error, refused.Message)
		if err == nil && refused.Error != code {
			err = fmt.Errorf("it is refused with %s instead of %q", refused.Error, code)
		}
		return err
	}
	var paid pay.Result
	if err := json.Unmarshal(answer, &paid); err != nil {
		return err
	}
	d.line(agent, "x402_pay %s -> %s, %s", path, paid.Status, paid.Price)
	if code != "" || paid.Status != pay.StatusPaid || paid.Content != sandbox.Content("/weather") {
		return fmt.Errorf("it is %s", answer)
	}
	return nil
}
