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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"x402-wallet/internal/config"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// demoPatience bounds the whole demo: it takes seconds, and a CI that waits for ever helps nobody.
const demoPatience = time.Minute

// demoCommand shows a first paid call without money and without a network, and doubles as a check
// of the real binary: it fails when anything is not as it says.
func demoCommand() *cobra.Command {
	var keep string
	cmd := &cobra.Command{
		Use: "demo", Short: "A first paid call with play money: no account, no network", Args: cobra.NoArgs,
		Long: "Start a paid API, a payment service and two small blockchains on this machine, make a " +
			"wallet that is thrown away\n" +
			"afterwards, and drive it over MCP as an agent's host would: free and paid calls, refusals by " +
			"each limit, a repeated\n" +
			"call, the history. Signatures are real and checked; the money is play money. Your own wallet " +
			"is not touched.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), demoPatience)
			defer cancel()
			d := &demo{out: cmd.OutOrStdout(), started: time.Now()}
			if file, ok := d.out.(*os.File); ok {
				d.color = term.IsTerminal(int(file.Fd())) && !config.ReadEnv().NoColor
			}
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

// demo is one run of the story.
type demo struct {
	out     io.Writer
	color   bool
	json    bool
	started time.Time

	program     string // this very binary
	dir         string // everything of the demo's on disk
	world       *sandbox.Sandbox
	host        *demoHost
	evm, solana string // the wallet's addresses
	account     string // the owner's token account
	bought      string // the paymentId of the first purchase

	scenes []demoScene
}

// demoScene is a step of the story, as JSON.
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
	for _, scene := range []func(context.Context) error{
		d.freeCall, d.paidCall, d.delegatedCall, d.refusedByCall, d.refusedByOwner, d.refusedByChain,
		d.repeatedCall, d.history, d.books,
	} {
		if err := scene(ctx); err != nil {
			return x402.Errorf(x402.CheckFailed, "the demo did not go as it should, at %q: %w%s",
				d.scenes[len(d.scenes)-1].Title, err, d.host.complaints())
		}
	}
	if err := d.host.stop(); err != nil {
		return x402.Errorf(x402.CheckFailed, "the MCP server did not end well: %w%s", err,
			d.host.complaints())
	}
	d.whatNext(keep)
	if d.json {
		return json.NewEncoder(d.out).Encode(map[string]any{"ok": true,
			"seconds": time.Since(d.started).Seconds(), "scenes": d.scenes})
	}
	return nil
}

// end stops what runs and takes away what is not to be kept.
func (d *demo) end(keep string) (err error) {
	if d.host != nil {
		err = d.host.stop()
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
		return usage(fmt.Errorf("--keep wants a directory that does not exist yet: %w", err))
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
		"LOG_LEVEL=warn",
		"HOME=" + d.dir, "USERPROFILE=" + d.dir, "TMPDIR=" + d.dir, "TMP=" + d.dir, "TEMP=" + d.dir,
	}
	return cmd
}

// createWallet runs init with the owner's rules and a passphrase nobody knows, and gives the new
// wallet its play money.
func (d *demo) createWallet(ctx context.Context) error {
	random := make([]byte, 16)
	rand.Read(random) // never fails (crypto/rand)
	rules := d.world.Config(sandbox.Rules{Session: demoSession.String(), ApproveAbove: "1.00"})
	for name, text := range map[string]string{"passphrase": hex.EncodeToString(random) + "\n",
		"rules.toml": rules} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	out, err := d.command(ctx, "init", "--json", "--passphrase-file", filepath.Join(d.dir, "passphrase"),
		"--config", filepath.Join(d.dir, "rules.toml")).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			out = append(out, failed.Stderr...)
		}
		return fmt.Errorf("x402-wallet init: %w: %s", err, strings.TrimSpace(string(out)))
	}
	var made struct {
		Addresses []struct{ Chain, Address string }
	}
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
	d.print("\n%2d. %s\n", len(d.scenes), d.paint("1", title))
}

func (d *demo) line(label, format string, args ...any) {
	text := safe(fmt.Sprintf(format, args...))
	s := &d.scenes[len(d.scenes)-1]
	s.Lines = append(s.Lines, demoLine{Label: label, Text: text})
	margin := d.paint(demoColors[label], fmt.Sprintf("%-9s", label))
	for _, row := range wrap(text, demoColumns) {
		d.print("    %s%s\n", margin, row)
		margin = strings.Repeat(" ", 9)
	}
}

var demoColors = map[string]string{"refused": "33", "paid": "32"}

// demoColumns is what a row may have for a terminal of 100 columns, with the margin.
const demoColumns = 100 - 4 - 9

func (d *demo) print(format string, args ...any) {
	if !d.json {
		fmt.Fprintf(d.out, format, args...)
	}
}

func (d *demo) paint(color, text string) string {
	if !d.color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
