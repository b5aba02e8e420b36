package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// The sandbox for other people's tests: seller, facilitator and play chains on loopback. What it prints is a
// line of JSON each: first where everything is, then each payment. A person at a terminal gets text.

const (
	// sandboxQueue is how many lines wait for who reads them; payments never do.
	sandboxQueue = 10_000
	sandboxPurse = 1_000 * sandbox.USDC // what each of its accounts has at the start
	sandboxGift  = "100.00"             // what --fund gives
)

// sandboxReady is the first line.
type sandboxReady struct {
	Event       string            `json:"event"` // "ready"
	Seller      string            `json:"seller"`
	Facilitator string            `json:"facilitator"`
	Nodes       map[string]string `json:"nodes"` // JSON-RPC, by CAIP-2 network
	Control     string            `json:"control"`
	PayTo       map[string]string `json:"payTo"` // the seller's addresses, by CAIP-2 network
	Products    []sandbox.Offer   `json:"products"`
	Note        string            `json:"note"`
	Accounts    []sandboxAccount  `json:"accounts"`
	Config      string            `json:"config"` // config.toml of a wallet in it
}

type sandboxAccount struct {
	sandbox.Account
	Balance string `json:"balance"` // dollars, at the start
}

const sandboxNote = "play money and play keys: everybody has these keys, send nothing to them anywhere else"

type sandboxPaid struct {
	Event string `json:"event"` // "payment"
	sandbox.Paid
}

type sandboxRun struct {
	port     int
	script   string
	fund     []string
	mainnet  bool
	untilEOF bool
}

func (p *Program) sandboxCommand(ui *ui) *cobra.Command {
	var run sandboxRun
	cmd := &cobra.Command{
		Use: "sandbox", Short: "A seller, a facilitator and play chains for your tests", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return run.start(cmd.Context(), ui, p.Stdin) },
	}
	flags := cmd.Flags()
	flags.IntVar(&run.port, "port", 0, "the seller's `PORT`; the next four are the facilitator's, the EVM "+
		"node's, the Solana node's and the control's (0: any that are free)")
	flags.StringVar(&run.script, "script", "", "a `FILE` of JSON: what is sold, what fails, who has money")
	flags.StringArrayVar(&run.fund, "fund", nil, "give an `ADDRESS` $"+sandboxGift+" of play money; may be "+
		"repeated")
	flags.BoolVar(&run.mainnet, "mainnet", false, "call the chains Base and Solana, not Base Sepolia and "+
		"Solana Devnet; they stay play chains")
	flags.BoolVar(&run.untilEOF, "until-eof", false, "stop when stdin ends, as it does when the program "+
		"that started this one is gone")
	return cmd
}

// start runs the sandbox until its context ends, stdin does, or nobody reads stdout any more.
func (run *sandboxRun) start(ctx context.Context, ui *ui, stdin *os.File) error {
	if run.port < 0 || run.port > 65_531 {
		return usagef("--port is 1 to 65531: five ports in a row are taken")
	}
	script, err := run.readScript()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lines := newLineQueue(sandboxQueue)
	world, err := sandbox.Start(sandbox.Options{Port: run.port, Mainnet: run.mainnet,
		OnPayment: func(s sandbox.Settlement) { lines.add(run.line(ui, s.JSON())) }})
	if err != nil {
		return x402.Errorf(x402.NetworkError, "the sandbox cannot listen: %w", err).
			WithHint("choose another --port, or none")
	}
	err = errors.Join(run.serve(ctx, stop, ui, world, script, lines, stdin), world.Close())
	return err
}

// serve prepares the world, says where it is, and prints what is paid.
func (run *sandboxRun) serve(ctx context.Context, stop func(), ui *ui, world *sandbox.Sandbox,
	script sandbox.Script, lines *lineQueue, stdin *os.File) error {
	ready, err := run.prepare(world, script)
	if err != nil {
		return err
	}
	if ui.json {
		text, err := jsonLine(ready)
		if err == nil {
			_, err = ui.out.Write(text)
		}
		if err != nil {
			return err
		}
	} else {
		ready.print(ui)
	}
	if run.untilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, stdin) // however it ends, it is over
			stop()
		}()
	}
	return lines.writeTo(ctx, ui.out)
}

func (run *sandboxRun) readScript() (script sandbox.Script, err error) {
	if run.script != "" {
		text, err := os.ReadFile(run.script)
		if err != nil {
			return script, usagef("--script: %v", err)
		}
		if script, err = sandbox.ReadScript(text); err != nil {
			return script, err
		}
	}
	for _, address := range run.fund {
		script.Fund = append(script.Fund, sandbox.Gift{Address: address, Amount: sandboxGift})
	}
	return script, nil
}

// prepare gives everybody their money, does what the script says, and tells what there is then.
func (run *sandboxRun) prepare(world *sandbox.Sandbox, script sandbox.Script) (*sandboxReady, error) {
	onEVM, onSolana, err := world.PlayAccounts(sandboxPurse)
	if err != nil {
		return nil, err
	}
	if err := world.Run(script); err != nil {
		return nil, err
	}
	evm, solana := world.Networks()
	purse := sandbox.Dollars(sandboxPurse)
	return &sandboxReady{Event: "ready", Seller: world.SellerURL, Facilitator: world.FacilitatorURL,
		Nodes: map[string]string{evm: world.EVMNodeURL, solana: world.SolanaNodeURL,
			x402.TempoTestnet: world.TempoNodeURL()},
		Control: world.ControlURL, Products: world.Offers(), Note: sandboxNote,
		PayTo:    map[string]string{evm: world.PayToEVM, solana: world.PayToSolana},
		Accounts: []sandboxAccount{{onEVM, purse}, {onSolana, purse}},
		Config:   world.Config(sandbox.Rules{}),
	}, nil
}

func (r *sandboxReady) print(ui *ui) {
	rows := [][]string{{"seller", r.Seller}, {"facilitator", r.Facilitator}}
	for _, network := range slices.Sorted(maps.Keys(r.Nodes)) {
		rows = append(rows, []string{"node", r.Nodes[network] + "  " + x402.Title(network)})
	}
	rows = append(rows, []string{"control", r.Control})
	ui.table(nil, rows)
	ui.say("")
	rows = nil
	for _, o := range r.Products {
		var names []string
		for _, network := range o.Networks {
			names = append(names, x402.NetworkName(network))
		}
		rows = append(rows, []string{o.Path, "$" + o.Price, strings.Join(names, ", "), o.Scheme})
	}
	ui.table([]string{"path", "price", "on", "scheme"}, rows)
	ui.say("")
	for _, a := range r.Accounts {
		ui.say("play account %s on %s has $%s; its key: %s", a.Address, x402.NetworkName(a.Network),
			a.Balance, a.PlayKey)
	}
	ui.note("%s", r.Note)
	ui.note("payments are shown as they come; Ctrl-C ends it; --json has all of this for programs, and the " +
		"config.toml of a wallet in it")
}

func (run *sandboxRun) line(ui *ui, paid sandbox.Paid) []byte {
	if ui.json {
		text, _ := jsonLine(sandboxPaid{"payment", paid}) // of strings: cannot fail
		return text
	}
	what := ""
	if paid.Path != "" {
		what = " for " + safe(paid.Path)
	}
	return fmt.Appendf(nil, "$%s%s from %s to %s on %s: %s\n", paid.Price, what, paid.Payer, paid.PayTo,
		x402.NetworkName(paid.Network), paid.Transaction)
}

func jsonLine(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return text.Bytes(), err
}

// lineQueue keeps lines until they are written, so that a payment never waits for a reader. Where there are
// too many lines the oldest are dropped, and their number is written.
type lineQueue struct {
	lines   chan []byte
	dropped atomic.Int64
}

func newLineQueue(most int) *lineQueue { return &lineQueue{lines: make(chan []byte, most)} }

// add is not for several goroutines at once.
func (q *lineQueue) add(line []byte) {
	for {
		select {
		case q.lines <- line:
			return
		default:
		}
		select {
		case <-q.lines:
			q.dropped.Add(1)
		default: // the reader was faster
		}
	}
}

// writeTo writes lines as they come. It returns nil after ctx ended and the lines of until then are written,
// and the writer's error before.
func (q *lineQueue) writeTo(ctx context.Context, w io.Writer) error {
	ended := ctx.Done()
	for {
		var line []byte
		select {
		case line = <-q.lines:
		case <-ended:
			if len(q.lines) == 0 {
				return nil
			}
			line = <-q.lines
		}
		if dropped := q.dropped.Swap(0); dropped > 0 {
			text, _ := jsonLine(map[string]any{"event": "dropped", "lines": dropped}) // cannot fail
			line = append(text, line...)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}
