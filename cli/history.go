package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/content"
	"x402-wallet/history/verify"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

func (p *Program) historyCommand(ui *ui) *cobra.Command {
	var in tools.HistoryIn
	var limit, days int
	var plot bool
	cmd := &cobra.Command{
		Use: "history", Short: "What was paid, newest first", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > mostListed {
				return usageError{text: fmt.Sprintf("--limit must be 1 to %d", mostListed),
					hint: "all of them, for a program or a spreadsheet: x402-wallet export"}
			}
			if days < 1 || days > mostDays {
				return usagef("--days must be 1 to %d", mostDays)
			}
			if cmd.Flags().Changed("days") && !plot {
				return usageError{text: "--days is for --plot",
					hint: "the list since a day: x402-wallet history --after DATE"}
			}
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				if plot {
					return ui.plot(ctx, w, days, time.Now())
				}
				return askWallet(ui, "searching the ledger", func() (tools.HistoryOut, error) {
					return pages(ctx, w, in, limit)
				}, ui.history)
			})
		},
	}
	cmd.Flags().BoolVar(&plot, "plot", false, "what was spent on each of the last days, as bars")
	cmd.Flags().IntVar(&days, "days", 30, "with --plot: how many `N` days")
	cmd.Flags().IntVar(&limit, "limit", 10, "at most `N` of them, 1 to 1000; export has all")
	cmd.Flags().StringVar(&in.Before, "before", "", "only those before this payment, by its `ID`")
	cmd.Flags().StringVar(&in.URL, "url", "", "only those whose URL contains this `TEXT`")
	cmd.Flags().StringVar(&in.AfterDate, "after", "",
		"only those since this `DATE`, like 2026-01-31 or 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&in.Status, "status", "", "only those in this `STATE`")
	addWhose(cmd, &in.Whose)
	for _, filter := range []string{"limit", "before", "url", "after", "status", "agent", "team", "account"} {
		cmd.MarkFlagsMutuallyExclusive("plot", filter)
	}
	cmd.AddCommand(p.verifyCommand(ui, "verify"), p.importCommand(ui))
	return cmd
}

// addWhose are the flags that name agents.
func addWhose(cmd *cobra.Command, of *tools.Whose) {
	cmd.Flags().StringVar(&of.Agent, "agent", "", "only this agent's, by its `NAME`, or of each that "+
		"research-* means")
	cmd.Flags().StringVar(&of.Team, "team", "", "only of this `TEAM`, and of those below it")
	cmd.Flags().StringVar(&of.Team, "account", "", "only of what was paid from this account, by its `NAME`")
	cmd.MarkFlagsMutuallyExclusive("team", "account")
}

const (
	mostListed = 1000 // what a person reads; export is for more
	pageRows   = 100  // of the ledger at a time, as an agent may ask
)

// pages are the newest payments, asked for as many at a time as one answer holds.
func pages(ctx context.Context, w *tools.Wallet, in tools.HistoryIn, limit int) (out tools.HistoryOut,
	err error) {
	for {
		rows := min(limit-out.Count, pageRows)
		in.Limit = &rows
		page, err := w.History(ctx, in)
		if err != nil {
			return page, err
		}
		if out.Count == 0 {
			out = page
		} else {
			out.Count, out.Next = out.Count+page.Count, page.Next
			out.Transactions = append(out.Transactions, page.Transactions...)
		}
		if out.Next.Before == "" || out.Count >= limit {
			return out, nil
		}
		in.Before = out.Next.Before
	}
}

func (u *ui) history(out tools.HistoryOut) {
	if out.Count == 0 {
		u.note("no payment found")
		return
	}
	var rows [][]string
	for _, t := range out.Transactions {
		price, state, symbol := t.Price, status(t.Status, t.Proof, t.FalseReceipt), t.Symbol
		switch {
		case t.Moved != "":
			price = t.Moved + " moved"
		case t.SignIn:
			state, symbol = signedIn(t.Status), "–"
		}
		rows = append(rows, []string{moment(t.Timestamp), t.PaymentID, price, symbol,
			x402.NetworkName(t.Network), state, t.For()})
	}
	u.painted([]string{"TIME (UTC)", "PAYMENT", "PRICE", "ASSET", "NETWORK", "STATUS", "FOR"}, rows,
		func(row, column int) string {
			if column != 5 {
				return ""
			}
			return stateColors[history.State(out.Transactions[row].Status)]
		})
	bySymbol := map[string]string{}
	for name, sum := range out.Totals { // those by seller and by network are objects
		if text, isText := sum.(string); isText && name != "otherSellers" && name != "note" {
			bySymbol[name] = text
		}
	}
	u.totals("total spent and held", bySymbol, "history", out.Next.Before)
}

// totals says what a list's payments come to, by token, and how its next page is asked for.
func (u *ui) totals(what string, bySymbol map[string]string, command, next string) {
	var sums []string
	for _, symbol := range slices.Sorted(maps.Keys(bySymbol)) {
		sums = append(sums, "$"+bySymbol[symbol]+" in "+symbol)
	}
	if len(sums) > 0 {
		u.note("%s: %s", what, strings.Join(sums, ", "))
	}
	if next != "" {
		u.note("more: x402-wallet %s --before %s", command, next)
	}
}

// stateColors: what is over, what is open, what came to nothing.
var stateColors = map[history.State]string{
	history.Settled: green, history.Reserved: yellow, history.Submitted: yellow, history.Unknown: yellow,
	history.Failed: red,
}

// status is a payment's state and what it rests on.
func status(state, proof string, falseReceipt bool) string {
	switch {
	case falseReceipt:
		return state + " (false receipt)"
	case proof == string(history.Claimed):
		return state + " (not confirmed on chain yet)"
	case proof == string(history.Chain):
		return state + " (confirmed on chain)"
	}
	return state
}

// attested is what a seller signed, in words; "" where it signed nothing.
func attested(a *wire.Attested) string {
	if a == nil {
		return ""
	}
	return safe(a.String())
}

// signedIn is the state of a sign-in.
func signedIn(state string) string {
	if state == string(history.Settled) {
		return "signed in"
	}
	return "sign-in " + state
}

// pruneCommand makes room. What was paid, to whom and what proves it stays for ever.
func (p *Program) pruneCommand(ui *ui) *cobra.Command {
	var before string
	var undelivered bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete the stored content of old payments", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			day, err := time.Parse(time.DateOnly, before)
			if err != nil {
				return usagef("--before %q is not a date like 2026-01-31 (UTC)", before)
			}
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				var freed int64
				n, err := waitFor(ui, "deleting, and giving the space back", func() (n int64, err error) {
					n, freed, err = content.Prune(ctx, w.Store, day, undelivered)
					return n, err
				})
				if err != nil {
					return err
				}
				return ui.answerLine(map[string]any{
					"deleted": n,
					"bytes":   freed,
					"before":  day.Format(time.RFC3339),
				}, "deleted the content of %d payments, %d bytes", n, freed)
			})
		},
	}
	cmd.Flags().StringVar(&before, "before", "", "made before this `DATE` (UTC)")
	cmd.Flags().BoolVar(&undelivered, "undelivered", false,
		"give up what was paid for and nobody fetched yet, too")
	return cmd
}

// verifyCommand checks the audit chain: history verify, and ledger check.
func (p *Program) verifyCommand(ui *ui, name string) *cobra.Command {
	var seals bool
	cmd := &cobra.Command{
		Use: name, Short: "Check the ledger's audit chain and its seals", Args: wants(),
		RunE: p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
			checked := seals || !w.Keys.Locked()
			rows, err := ui.verify(ctx, w, checked, seals)
			if err != nil {
				return err
			}
			return ui.answer(map[string]any{"ok": true, "rows": rows, "seals": checked}, func() {
				ui.say("the audit chain is intact: %d rows", rows)
				if !checked {
					ui.note("its seals were not checked, as the wallet is locked: x402-wallet history " +
						"verify --seals")
				}
			})
		}),
	}
	cmd.Flags().BoolVar(&seals, "seals", false,
		"check the seals in this process, unlocking the wallet for that")
	return cmd
}

// verify compares the whole ledger, once: a holder of the key compares the seals in the same reading. It
// says how many rows of the audit chain there are.
func (u *ui) verify(ctx context.Context, w *tools.Wallet, seals, own bool) (rows int64, err error) {
	var percent atomic.Int64
	percent.Store(-1)
	ctx = verify.WithProgress(ctx, func(done, all int64) { percent.Store(100 * done / max(all, 1)) })
	defer u.waitingFor(func() string {
		if p := percent.Load(); p >= 0 {
			return fmt.Sprintf("reading the whole ledger, %d %% done", p)
		}
		return "reading the whole ledger"
	})()
	if seals {
		err = w.VerifySeals(ctx, own)
	} else {
		_, err = verify.Ledger(ctx, w.Store, history.Head{})
	}
	if err == nil {
		_, err = verify.Content(ctx, w.Store)
	}
	if err != nil {
		return 0, err
	}
	head, err := w.Store.Head(ctx)
	return head.Seq, err
}

func (p *Program) showCommand(ui *ui) *cobra.Command {
	var content, receipt bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "One payment with its evidence", Args: wants("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// stdout is for the content or the receipt, and for nothing else
			if (content || receipt) && !cmd.Flags().Changed("json") {
				ui.json = false
			}
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				if receipt {
					return ui.receipt(ctx, w, args[0])
				}
				out, err := w.History(ctx, tools.HistoryIn{PaymentID: args[0], Evidence: true})
				if err != nil {
					return err
				}
				if content {
					return ui.content(ctx, w, args[0])
				}
				return ui.answer(out, func() { ui.payment(out) })
			})
		},
	}
	cmd.Flags().BoolVar(&receipt, "receipt", false,
		"print its receipt: terms, signature, settlement and proof as one JSON document")
	cmd.Flags().BoolVar(&content, "content", false,
		"print the stored content, byte for byte; on a terminal with control characters escaped")
	cmd.MarkFlagsMutuallyExclusive("content", "receipt")
	return cmd
}

// content prints what a payment bought: to a file or program as it came, to a terminal only what
// cannot drive it.
func (u *ui) content(ctx context.Context, w *tools.Wallet, id string) error {
	stored, err := w.Store.Content(ctx, id)
	if errors.Is(err, history.ErrContentRemoved) {
		return x402.Errorf(x402.InvalidArgument, "the content of this payment was %s", tools.Gone(stored)).
			WithHint("x402-wallet show %s shows its outcome", id)
	}
	if errors.Is(err, history.ErrNotFound) {
		return x402.Errorf(x402.InvalidArgument, "no content is stored for this payment").
			WithHint("x402-wallet show %s shows its outcome", id)
	}
	if err != nil {
		return err
	}
	if stored.Truncated {
		u.note("the content was longer; only its beginning is stored")
	}
	if u.terminal && !utf8.Valid(stored.Body) {
		return usageError{text: fmt.Sprintf("the content (%s, %d bytes) is not text for a terminal",
			safe(stored.Type), len(stored.Body)),
			hint: "write it to a file: x402-wallet show " + id + " --content > FILE"}
	}
	if u.terminal {
		u.say("%s", strings.TrimSuffix(safeText(string(stored.Body)), "\n"))
		return nil
	}
	_, err = u.out.Write(stored.Body)
	if err == nil && stored.Truncated {
		return exitError(exitFailed)
	}
	return err
}

func (u *ui) payment(out tools.HistoryOut) {
	t, e := out.Transactions[0], out.Evidence
	rows := [][]string{
		{"payment", t.PaymentID}, {"time (UTC)", moment(t.Timestamp)},
		{"status", status(t.Status, t.Proof, t.FalseReceipt)},
		{"for", t.For()},
		{"price", fmt.Sprintf("%s (%s atomic units of %s)", t.Price, out.AmountPaid, t.Symbol)},
		{"up to", out.UpTo},
		{"network", x402.Title(t.Network)},
		{"asset", out.Asset}, {"paid to", out.PayTo}, {"transaction", t.TransactionSignature},
		{"settled by", out.Facilitator}, {"nonce", e.Signed.Nonce}, {"signature", e.Signed.Signature},
		{"seller's offer", attested(e.Offer)}, {"seller's receipt", attested(e.SignedReceipt)},
		{"note", e.Note},
	}
	if t.SignIn {
		rows[2][1], rows[4][1] = signedIn(t.Status), "nothing: it signed in (sign-in-with-x)"
	}
	u.table(nil, slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" }))
	u.say("")
	rows = nil
	for _, s := range e.States {
		var detail struct {
			Proof string
			Tries []string
		}
		_ = json.Unmarshal(s.Detail, &detail) // details differ from event to event
		rows = append(rows, []string{s.At.UTC().Format("2006-01-02 15:04:05.000"),
			strings.TrimSpace(s.Event + " " + detail.Proof)})
		for _, try := range detail.Tries {
			rows = append(rows, []string{"", "  facilitator " + safe(try)})
		}
	}
	u.table([]string{"WHEN (UTC)", "WHAT"}, rows)
	if e.Removed != "" {
		u.note("\ncontent: HTTP %d, %s; %s", out.HTTPStatus, safe(out.ContentType), e.Removed)
	}
	if out.Content != nil {
		u.note("\ncontent: HTTP %d, %s; x402-wallet show %s --content prints it", out.HTTPStatus,
			safe(out.ContentType), t.PaymentID)
	}
	u.note("all evidence: x402-wallet show %s --json", t.PaymentID)
}

func (p *Program) reconcileCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "reconcile", Short: "Check unfinished payments on their chains", Args: wants(),
		RunE: p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
			report, err := waitFor(ui, "waiting for the nodes", func() (pay.Report, error) {
				return w.Engine.Reconcile(ctx)
			})
			if err != nil {
				return err
			}
			if report.Checked == 0 {
				return ui.answerLine(report, "nothing is unfinished")
			}
			return ui.answerLine(report, "checked %d: %d settled, %d released (never settled), %d still open",
				report.Checked, report.Settled, report.Failed, report.Open)
		}),
	}
}
