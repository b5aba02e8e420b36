package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/internal/books"
	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/receipt"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

type exporting struct {
	books.Export
	whose             tools.Whose
	after, before, to string
}

func (p *Program) exportCommand(ui *ui) *cobra.Command {
	var e exporting
	cmd := &cobra.Command{
		Use: "export", Short: "Write what was paid for your books", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("format") && cmd.Flags().Changed("json") && ui.json {
				e.Format = "jsonl"
			}
			ui.json = false // what is written is the format's, and nothing else
			if err := e.check(); err != nil {
				return err
			}
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				return e.run(ctx, ui, w)
			})
		},
	}
	cmd.Flags().StringVar(&e.Format, "format", "csv", "the `FORMAT`: "+strings.Join(books.Formats, ", "))
	cmd.Flags().StringVar(&e.By, "by", "", "sum up by `WHAT`: "+strings.Join(books.Keys, ", ")+
		" (csv or jsonl)")
	cmd.Flags().StringVar(&e.after, "after", "",
		"made since this `DATE`, like 2026-01-31 or 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&e.before, "before", "", "made before this `DATE`")
	cmd.Flags().StringVar(&e.Within.URL, "url", "", "only those whose URL contains this `TEXT`")
	cmd.Flags().StringVar(&e.Within.Host, "host", "", "only this `HOST`'s")
	addWhose(cmd, &e.whose)
	cmd.Flags().StringVar(&e.Label, "label", "",
		"only of sessions (x402-wallet session label) or of agents with this `LABEL`")
	cmd.Flags().StringVarP(&e.to, "output", "o", "",
		"write to this `FILE` instead of stdout: at once or not at all")
	return cmd
}

func (e *exporting) check() error {
	switch {
	case !slices.Contains(books.Formats, e.Format):
		return usageError{text: fmt.Sprintf("there is no format %q", e.Format), hint: "there are " +
			strings.Join(books.Formats, ", ")}
	case e.By != "" && !slices.Contains(books.Keys, e.By):
		return usageError{text: fmt.Sprintf("cannot sum up by %q", e.By), hint: "there are " +
			strings.Join(books.Keys, ", ")}
	case e.By != "" && e.Format != "csv" && e.Format != "jsonl":
		return usagef("--by goes with --format csv or jsonl")
	}
	after, err := dateOf("after", e.after)
	if err != nil {
		return err
	}
	e.Within.After = after
	e.Within.Until, err = dateOf("before", e.before)
	return err
}

// dateOf reads a flag's date; none is the zero time.
func dateOf(flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	at, err = time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		return at, usagef("--%s %q is not a date like 2026-01-31 or 2026-01-31T12:00:00Z", flag, text)
	}
	return at, nil
}

func (e *exporting) run(ctx context.Context, ui *ui, w *tools.Wallet) error {
	defer ui.waiting("reading the ledger")()
	e.AgentLabels, e.TeamOf = w.AgentLabels, w.Engine.Rules.Teams.Of
	var err error
	e.Within.Agents, err = w.Agents(ctx, e.whose)
	if err != nil {
		return err
	}
	if e.to == "" {
		return e.Write(ctx, ui.out, w.Store, w.Engine.Assets)
	}
	err = writeTo(e.to, func(out io.Writer) error {
		return e.Write(ctx, out, w.Store, w.Engine.Assets)
	})
	if err == nil {
		ui.note("written: %s", safe(e.to))
	}
	return err
}

// writeTo replaces a file that the person named, for their eyes alone. An error of write's that has a code
// stays as it is.
func writeTo(file string, write func(io.Writer) error) error {
	err := ownfile.Replace(file, 0o600, write)
	if ofLedger, ok := errors.AsType[*x402.Error](err); ok {
		return ofLedger
	}
	if err != nil {
		// without the name of the file beside it, which only we know
		if number, ok := errors.AsType[syscall.Errno](err); ok {
			err = number
		}
		return x402.Errorf(x402.InvalidArgument, "%s cannot be written: %w", file, err)
	}
	return nil
}

// maxOzskrHistory bounds the ozskr wallet's history, in bytes. It rewrote the whole of it with every payment,
// so it is small.
const maxOzskrHistory = 32 << 20

// importCommand takes what the ozskr wallet wrote down. It makes no payee known and fills no budget.
func (p *Program) importCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Take in the history of x402-solana-mcp (.x402-history.json)",
		Args: wants("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readWhole(args[0], maxOzskrHistory)
			if err != nil {
				return err
			}
			list, err := books.ReadOzskr(text)
			if err != nil {
				return x402.Errorf(x402.InvalidArgument, "%s: %w; nothing was taken from it", args[0], err)
			}
			return p.onLedger(func(ctx context.Context, store *history.Store, _ []string) error {
				added, err := report.Import(ctx, store, list)
				if err != nil {
					return err
				}
				return ui.answerLine(map[string]int{"payments": len(list), "imported": added},
					"imported %d of %d payments; the others were taken before", added, len(list))
			})(cmd, args)
		},
	}
}

// readWhole reads a file that the person named, which must not be longer.
func readWhole(path string, limit int64) ([]byte, error) {
	text, err := readBounded(path, limit+1)
	if err != nil {
		return nil, x402.Errorf(x402.InvalidArgument, "%w", err)
	}
	if int64(len(text)) > limit {
		err = x402.Errorf(x402.InvalidArgument, "%s is longer than %d bytes", path, limit)
	}
	return text, err
}

// receipt prints a payment's receipt, which is JSON for people too.
func (u *ui) receipt(ctx context.Context, w *tools.Wallet, id string) error {
	r, err := receipt.Stored(ctx, w.Store, id, w.Engine.Assets, w.Engine, time.Now())
	if errors.Is(err, history.ErrNotFound) {
		return x402.Errorf(x402.InvalidArgument, "there is no payment with this id")
	}
	if err != nil {
		return err
	}
	return u.printJSON(r)
}

func (p *Program) verifyReceiptCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "verify-receipt FILE", Short: "Check a receipt, without asking anybody", Args: wants("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := readWhole(args[0], receipt.MaxSize)
			if err != nil {
				return err
			}
			verdict, err := receipt.Verify(text, x402.NewRegistry(nil))
			if err != nil {
				return err
			}
			return ui.answerChecked(verdict, verdict.OK, func() { ui.verdict(verdict) })
		},
	}
}

func (u *ui) verdict(v receipt.Verdict) {
	for _, c := range v.Checks {
		if c.OK {
			u.say("%s  %s", paint(u.colorOut, green, "ok  "), c.What)
		} else {
			u.say("%s  %s: %s", paint(u.colorOut, red, "fail"), c.What, safe(c.Why))
		}
	}
	p := v.Payment
	if v.OK {
		u.say("%s paid %s (%s %s) to %s on %s, %s", safe(p.Payer), safe(p.Price), p.Amount.Units(p.Decimals),
			safe(p.Symbol), safe(p.PayTo), safe(x402.NetworkName(p.Network)),
			moment(p.Time.Format(time.RFC3339)))
	} else {
		u.say("this receipt is not valid")
	}
	for _, s := range v.Seller {
		u.note("%s; it is a claim", safe(s))
	}
	for _, b := range v.Beyond {
		u.note("it does not show %s", safe(b))
	}
}
