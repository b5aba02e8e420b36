package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// demoPatience bounds the whole demo: it takes seconds, and a CI that waits for ever helps nobody.
const demoPatience = 2 * time.Minute

// demoCommand shows a first paid call without money and without a network, and doubles as a check
// of the real binary: it fails when anything is not as it says.
func demoCommand() *cobra.Command {
	var keep string
	cmd := &cobra.Command{
		Use: "demo", Short: "A first paid call with play money: no account, no network", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), demoPatience)
			defer cancel()
			d := &demo{out: cmd.OutOrStdout(), started: time.Now()}
			if flag := cmd.Flag("json"); flag != nil && flag.Changed {
				// a story is for people, unless JSON is asked for by name
				d.json = flag.Value.String() == "true"
			}
			return d.run(ctx, keep)
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "", "keep the wallet in this new `DIRECTORY`, to look around in it")
	return cmd
}

type demo struct {
	out     io.Writer
	json    bool
	started time.Time

	program     string // this very binary
	dir         string // everything of the demo's on disk
	world       *sandbox.Sandbox
	host        *demoHost
	evm, solana string // the wallet's addresses
	account     string // the owner's token account
	bought      string // the paymentId of the first purchase
	paid        int    // payments that were made
	asked       int    // payments that the person was asked about
	spent       money.Dollars
	onTempo     money.Dollars // of that

	scenes []demoScene
}

type demoScene struct {
	Title string     `json:"title"`
	Lines []demoLine `json:"lines"`
}

type demoLine struct {
	Label string `json:"label,omitempty"`
	Text  string `json:"text"`
}

func (d *demo) run(ctx context.Context, keep string) (err error) {
	if err := d.makeDir(keep); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end(keep)) }()
	d.world, err = sandbox.Start(sandbox.Options{})
	if err != nil {
		return fmt.Errorf("start the stand-ins: %w", err)
	}
	d.program, err = os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	d.introduce()
	if err := d.makeWallet(ctx); err != nil {
		return err
	}
	d.host, err = startDemoHost(ctx, d.command(ctx, "mcp"))
	if err != nil {
		return err
	}
	scenes := []func(context.Context) error{
		d.freeCall, d.paidCall, d.delegatedCall, d.tempoCall, d.refusedByCall, d.approvedCall,
		d.refusedByOwner, d.refusedByChain, d.repeatedCall, d.history, d.books,
	}
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			return x402.Errorf(x402.CheckFailed, "the demo did not go as it should, at %q: %w%s",
				d.scenes[len(d.scenes)-1].Title, err, d.host.complaints())
		}
	}
	host := d.host
	d.host = nil
	if err := host.session.Close(); err != nil { // as hosts end it: its stdin is closed
		return x402.Errorf(x402.CheckFailed, "the MCP server did not end well: %w%s", err, host.complaints())
	}
	d.whatNext(keep)
	if d.json {
		return json.NewEncoder(d.out).Encode(map[string]any{"ok": true,
			"seconds": time.Since(d.started).Seconds(), "scenes": d.scenes})
	}
	return nil
}

func (d *demo) end(keep string) (err error) {
	if d.host != nil {
		err = d.host.session.Close()
	}
	if d.world != nil {
		err = errors.Join(err, d.world.Close())
	}
	if keep == "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

// makeDir is where the wallet goes: a directory that is gone afterwards, or a new one of the
// person's.
func (d *demo) makeDir(keep string) (err error) {
	if keep == "" {
		d.dir, err = os.MkdirTemp("", "x402-wallet-demo-")
		return err
	}
	d.dir, err = filepath.Abs(keep)
	if err != nil {
		return err
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return usagef("--keep wants a directory that does not exist yet: %v", err)
	}
	return nil
}

func (d *demo) home() string { return filepath.Join(d.dir, "wallet") }

// command is this program with nothing of the person's environment: neither their wallet nor their
// proxies.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Dir = d.dir
	cmd.Env = []string{
		"X402_WALLET_HOME=" + d.home(), "X402_WALLET_PASSPHRASE_FILE=" + filepath.Join(d.dir, "passphrase"),
		"LOG_LEVEL=warn", "HOME=" + d.dir, "USERPROFILE=" + d.dir, "TMPDIR=" + d.dir, "TMP=" + d.dir,
		"TEMP=" + d.dir, "APPDATA=" + d.dir, "LOCALAPPDATA=" + d.dir,
	}
	return cmd
}

// createWallet runs init with the owner's rules and a passphrase nobody knows, and gives the new
// wallet its play money.
func (d *demo) createWallet(ctx context.Context) error {
	random := make([]byte, 16)
	rand.Read(random) // never fails (crypto/rand)
	rules := d.world.Config(sandbox.Rules{Session: demoSession.String(), ApproveAbove: demoAsked.String()})
	for name, text := range map[string]string{"passphrase": hex.EncodeToString(random) + "\n",
		"rules.toml": rules} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	out, err := d.command(ctx, "init", "--json", "--passphrase-file", filepath.Join(d.dir, "passphrase"),
		"--config", filepath.Join(d.dir, "rules.toml")).Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, failed.Stderr...)
		}
		return fmt.Errorf("x402-wallet init: %w: %s", err, strings.TrimSpace(string(out)))
	}
	var made initOut
	if err := json.Unmarshal(out, &made); err != nil {
		return fmt.Errorf("x402-wallet init answered no JSON: %w", err)
	}
	for _, a := range made.Addresses {
		switch a.Chain {
		case "evm":
			d.evm = a.Address
		case "solana":
			d.solana = a.Address
		}
	}
	if d.evm == "" || d.solana == "" {
		return errors.New("x402-wallet init named no addresses")
	}
	d.world.Fund(d.evm, uint64(demoPurse))
	d.account = d.world.Delegate(d.solana, uint64(demoDelegation))
	return nil
}

// scene begins a step, line adds to it. Both print at once unless JSON is asked for.
func (d *demo) scene(title string) {
	d.scenes = append(d.scenes, demoScene{Title: title})
	d.print("\n%2d. %s\n", len(d.scenes), title)
}

func (d *demo) line(label, format string, args ...any) {
	text := safe(fmt.Sprintf(format, args...))
	s := &d.scenes[len(d.scenes)-1]
	s.Lines = append(s.Lines, demoLine{Label: label, Text: text})
	margin := fmt.Sprintf("%-9s", label)
	for _, row := range wrap(text, demoColumns) {
		d.print("    %s%s\n", margin, row)
		margin = strings.Repeat(" ", 9)
	}
}

// demoColumns is what a row may have for a terminal of 100 columns, with the margin.
const demoColumns = 100 - 4 - 9

func (d *demo) print(format string, args ...any) {
	if !d.json {
		fmt.Fprintf(d.out, format, args...)
	}
}

// demoHost plays the host of an agent: it starts an MCP server and speaks with it over stdio. Whatever the
// server asks the person at the host, the person accepts.
type demoHost struct {
	session *mcp.ClientSession
	log     string      // the file of the server's stderr
	asked   chan string // what the person was asked
}

func startDemoHost(ctx context.Context, cmd *exec.Cmd) (h *demoHost, err error) {
	h = &demoHost{asked: make(chan string, 1), log: filepath.Join(cmd.Dir, "mcp.log")}
	log, err := os.Create(h.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr, cmd.WaitDelay = log, 5*time.Second
	person := func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		h.asked <- r.Params.Message
		typed := ""
		if words := strings.Fields(r.Params.Message); len(words) > 1 { // "Pay $0.01 to …"
			typed = words[1]
		}
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"price": typed}}, nil
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "x402-wallet demo", Version: "1"},
		&mcp.ClientOptions{ElicitationHandler: person})
	h.session, err = client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("the MCP server did not start: %w%s", err, h.complaints())
	}
	return h, nil
}

// tool calls a tool. isError tells whose form out got: the tool's own, or that of an error.
func (h *demoHost) tool(ctx context.Context, name string, arguments, out any) (isError bool, err error) {
	result, err := h.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		return false, err
	}
	if len(result.Content) != 1 {
		return false, fmt.Errorf("%s: it answers with %d contents", name, len(result.Content))
	}
	var same any
	text, _ := result.Content[0].(*mcp.TextContent)
	if text == nil || json.Unmarshal([]byte(text.Text), &same) != nil ||
		!reflect.DeepEqual(same, result.StructuredContent) {
		return false, fmt.Errorf("%s: text and structured content differ", name)
	}
	return result.IsError, json.Unmarshal([]byte(text.Text), out)
}

// complaints is what the server said on stderr, for an error.
func (h *demoHost) complaints() string {
	text, _ := os.ReadFile(h.log) // without it the error stands alone
	if said := strings.TrimSpace(string(text)); said != "" {
		return "\nthe MCP server said:\n" + said
	}
	return ""
}
