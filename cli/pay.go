package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/internal/steps"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/weburl"
)

// maxData bounds a body read from a file or stdin: the transport sends no more.
const maxData = 8 << 20

// requestFlags are those of curl that people have in their fingers.
type requestFlags struct {
	method  string
	headers []string
	data    []string
}

func (f *requestFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.method, "request", "X", "", "HTTP `METHOD` (default GET, or POST with -d)")
	cmd.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "a request header, `\"Name: value\"`")
	cmd.Flags().StringArrayVarP(&f.data, "data", "d", nil,
		"the request body `DATA`; @FILE reads it from a file, @- from stdin, byte for byte;\nseveral are joined with &; JSON is sent as application/json")
}

func (f *requestFlags) read(cmd *cobra.Command) (in tools.PayIn, err error) {
	in.Headers = map[string]string{}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if !ok || name == "" {
			return in, usageError{text: fmt.Sprintf("%q is not a header", h),
				hint: `a header is written "Name: value"`}
		}
		if _, twice := in.Headers[name]; twice { // which one the seller would heed is nobody's guess
			return in, usagef("the header %s is given twice", name)
		}
		in.Headers[name] = strings.TrimSpace(value)
	}
	parts := make([]string, len(f.data))
	for i, data := range f.data {
		parts[i], err = readData(data, cmd.InOrStdin())
		if err != nil {
			return in, err
		}
	}
	in.Method, in.Body = f.method, strings.Join(parts, "&")
	if in.Method == "" && len(f.data) > 0 {
		in.Method = http.MethodPost
	}
	return in, nil
}

func readData(data string, stdin io.Reader) (string, error) {
	file, isFile := strings.CutPrefix(data, "@")
	if !isFile {
		return data, nil
	}
	text, err := readInput("body", file, stdin)
	return string(text), err
}

// readInput reads a file that the person named, "-" for stdin.
func readInput(what, file string, stdin io.Reader) ([]byte, error) {
	source := stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, usagef("%v", err)
		}
		defer opened.Close()
		source = opened
	}
	text, err := io.ReadAll(io.LimitReader(source, maxData+1))
	if err == nil && len(text) > maxData {
		err = fmt.Errorf("the %s in %s is larger than %d MiB", what, file, maxData>>20)
	}
	if err != nil {
		return nil, usagef("%v", err)
	}
	return text, nil
}

type payFlags struct {
	most, idempotencyKey string
	output               string // a file for the content; "": stdout
	network, asset       string // pay's alone
	dryRun               bool
	passphrase           passphraseSource
}

func (f *payFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.most, "max", "",
		"pay at most this `AMOUNT`: dollars like '$0.05' or 0.05, or atomic units like 50000")
	cmd.Flags().StringVar(&f.idempotencyKey, "idempotency-key", "",
		"a `NAME` for this purchase: under the same one it is never paid twice")
	cmd.Flags().StringVarP(&f.output, "output", "o", "",
		"write the content to this `FILE` as it came, at once or not at all; - is stdout;\nwith --json the rest is printed")
	f.passphrase.addFD(cmd, "", "the passphrase")
	addAccountFlag(cmd.Flags())
}

func (p *Program) payCommand(ui *ui) *cobra.Command {
	var request requestFlags
	var f payFlags
	var batch string
	cmd := &cobra.Command{
		Use: "pay URL", Short: "Get a URL, and pay for it if it asks for payment",
		Args: func(cmd *cobra.Command, args []string) error {
			if batch != "" {
				return wants()(cmd, args)
			}
			return wants("URL")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if batch != "" {
				return p.payMany(cmd, ui, batch, f)
			}
			if err := webURL(args[0]); err != nil {
				return err
			}
			if f.passphrase.fd == 0 && slices.Contains(request.data, "@-") {
				return usagef("stdin cannot be both the body and the passphrase")
			}
			most, err := maxAmount(f.most)
			if err != nil {
				return err
			}
			in, err := request.read(cmd)
			if err != nil {
				return err
			}
			in.URL, in.MaxAmount, in.Network, in.Asset = args[0], most, f.network, f.asset
			if f.dryRun {
				return p.estimate(cmd, ui, in)
			}
			f.output, err = place(f.output)
			if err != nil {
				return err
			}
			in.IdempotencyKey = f.idempotencyKey
			return p.with(cmd, ui, f.passphrase.or(nil), func(ctx context.Context, w *tools.Wallet) error {
				return ui.buy(ctx, w.Engine, f.output, func() (pay.Result, error) {
					return w.Pay(steps.Calling(ctx, cmd.CommandPath(), ""), in)
				})
			})
		},
	}
	request.add(cmd)
	cmd.Flags().StringVar(&f.network, "network", "", "pay only on this `NETWORK`, like base or eip155:8453")
	cmd.Flags().StringVar(&f.asset, "asset", "", "pay only with this `ASSET`, a symbol or an address")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what it would cost")
	cmd.Flags().StringVar(&batch, "batch", "",
		"buy the requests in this `FILE` (- is stdin), for --max all together")
	f.add(cmd)
	cmd.MarkFlagsMutuallyExclusive("output", "dry-run")
	return cmd
}

// webURL refuses what is no URL of the web before a wallet is opened for it: a slip of the fingers is
// answered with what was meant, not by a rule that could be loosened.
func webURL(typed string) error {
	if weburl.Is(weburl.Fold(typed)) {
		return nil
	}
	hint := "write the whole URL, with https://"
	if meant := weburl.Meant(typed); meant != "" {
		hint = "did you mean: " + meant
	}
	return usageError{text: "that is no https URL", hint: hint}
}

// maxAmount reads --max: a sum with a point in it is dollars, for atomic units have none.
func maxAmount(text string) (string, error) {
	digits := strings.Trim(text, "0123456789")
	switch {
	case text == "", digits == "", strings.HasPrefix(text, "$"):
		return text, nil
	case digits == "." && !strings.HasPrefix(text, ".") && !strings.HasSuffix(text, "."):
		return "$" + text, nil
	}
	return "", usageError{text: fmt.Sprintf("--max %s is neither dollars nor atomic units", text),
		hint: "write '$0.05' in single quotes (in double quotes the shell takes $0 for a variable), " +
			"0.05, or 50000"}
}

// buy makes a purchase and shows it; shown, it was delivered. file gets the content; "": stdout does.
func (u *ui) buy(ctx context.Context, engine *pay.Engine, file string, how func() (pay.Result, error)) error {
	out, err := purchase(ctx, u, "unlocking the wallet, and waiting for the seller and the chain",
		"stopping; waiting for the answer to a payment that was already sent (Ctrl-C again does not: the "+
			"same command then asks the seller again with the same payment)", how)
	if err != nil {
		return err
	}
	isWhole, err := u.paid(out, file)
	if err != nil {
		return err
	}
	if isWhole || file == "" {
		engine.Delivered(ctx, out.Status, out.PaymentID)
	}
	if !isWhole || !isServed(out) {
		return exitError(exitFailed)
	}
	return nil
}

// purchase waits for one, and says left to a person who presses Ctrl-C.
func purchase[T any](ctx context.Context, u *ui, what, left string, how func() (T, error)) (T, error) {
	defer u.waiting(what)()
	defer context.AfterFunc(ctx, func() {
		if u.errTerminal && !u.prompting.Load() {
			u.note("%s", left)
		}
	})()
	return how()
}

func (u *ui) cost(r pay.Result) {
	sum := fmt.Sprintf("%s in %s on %s to %s", r.Price, r.Symbol, x402.NetworkName(r.Network), safe(r.PayTo))
	switch r.Status {
	case pay.StatusNotPaid:
		u.note("%s HTTP %d; no payment was requested, and nothing was paid",
			paint(u.colorErr, red, "failed:"), r.HTTPStatus)
		return
	case pay.StatusFree:
		u.note("%s no payment was requested (HTTP %d)", paint(u.colorErr, green, "free:"), r.HTTPStatus)
		return
	case pay.StatusPaid:
		u.note("%s %s (HTTP %d)", paint(u.colorErr, green, "paid:"), sum, r.HTTPStatus)
	case pay.StatusReplayed:
		u.note("%s nothing was paid now; this was bought earlier for %s",
			paint(u.colorErr, green, "replayed:"), sum)
	case pay.StatusUnserved:
		what := "the seller failed"
		if r.HTTPStatus < 400 {
			what = "its answer was cut off"
		}
		if r.HTTPStatus > 0 {
			what += fmt.Sprintf(" (HTTP %d)", r.HTTPStatus)
		}
		u.note("%s %s, but %s", paint(u.colorErr, red, "paid, not served:"), sum, what)
		if r.Next.Do == x402.Repeat {
			u.note("  the same command asks the seller again with the same payment, and cannot pay twice")
		} else {
			u.note("  %s: %s", r.Next.Why, r.Next.Command)
		}
	}
	transaction := ""
	if r.TransactionSignature != "" {
		transaction = ", transaction " + safe(r.TransactionSignature)
	}
	u.note("payment %s%s", r.PaymentID, transaction)
	if r.Budget != nil {
		for window, line := range map[string]*pay.Window{"session": r.Budget.Session, "day": r.Budget.Day,
			"month": r.Budget.Month} {
			if line != nil { // one of them
				u.note("left: %s of the %s", line.Remaining.Price(), window)
			}
		}
	}
}

func (p *Program) estimateCommand(ui *ui) *cobra.Command {
	var request requestFlags
	cmd := &cobra.Command{
		Use: "estimate URL", Short: "Ask what a URL costs, without paying", Args: wants("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := webURL(args[0]); err != nil {
				return err
			}
			in, err := request.read(cmd)
			if err != nil {
				return err
			}
			in.URL = args[0]
			return p.estimate(cmd, ui, in)
		},
	}
	request.add(cmd)
	addAccountFlag(cmd.Flags())
	return cmd
}

// estimate asks what a URL costs; of pay --dry-run with what the caller would take.
func (p *Program) estimate(cmd *cobra.Command, ui *ui, in tools.PayIn) error {
	return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
		return askWallet(ui, "waiting for the seller and the nodes", func() (pay.Estimate, error) {
			return w.Estimate(ctx, in)
		}, ui.estimate)
	})
}

func (u *ui) estimate(out pay.Estimate) {
	if !out.PaymentRequired {
		u.say("no payment is required (HTTP %d)", out.HTTPStatus)
		return
	}
	var rows [][]string
	var reasons []string
	for i, o := range out.Options {
		network, mark := x402.NetworkName(o.Network), "yes"
		switch {
		case out.Chosen != nil && *out.Chosen == i:
			mark = "yes, and would be chosen"
		case !o.Payable:
			mark = "no (" + string(o.Code) + ")"
			reasons = append(reasons, fmt.Sprintf("%s: %s", safe(strings.TrimSpace(o.Symbol+on(o.Network))),
				safe(o.Why)))
		}
		rows = append(rows, []string{o.Price, o.Symbol, network, o.Scheme, o.PayTo, mark})
	}
	u.table([]string{"PRICE", "ASSET", "NETWORK", "SCHEME", "PAY TO", "CAN BE PAID"}, rows)
	for _, reason := range reasons {
		u.note("%s", reason)
	}
}

func (p *Program) discoverCommand(ui *ui) *cobra.Command {
	var in tools.DiscoverIn
	var limit int
	cmd := &cobra.Command{
		Use: "discover [QUERY...]", Short: "Search paid APIs and MCP tools, without paying",
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.URL != "" {
				if err := webURL(in.URL); err != nil {
					return err
				}
			}
			in.Query = strings.Join(args, " ")
			if cmd.Flags().Changed("limit") {
				in.Limit = &limit
			}
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				return askWallet(ui, "waiting for the facilitators, the seller and the nodes",
					func() (tools.DiscoverOut, error) {
						return w.Discover(ctx, in)
					}, ui.services)
			})
		},
	}
	cmd.Flags().StringVar(&in.URL, "url", "", "ask this `URL` or MCP server, instead of searching")
	cmd.Flags().StringVar(&in.Network, "network", "",
		"only what is paid on this `NETWORK`, like base or eip155:8453")
	cmd.Flags().StringVar(&in.MaxPrice, "max-price", "",
		"only what costs at most this much, in `DOLLARS` like 0.05")
	cmd.Flags().IntVar(&limit, "limit", 10, "show at most `N` services, 25 at most")
	return cmd
}

// aboutWidth bounds what a service says of itself in a table; with --json it is whole.
const aboutWidth = 60

// services prints what was found; why something cannot be paid stands below, as in estimate.
func (u *ui) services(out tools.DiscoverOut) {
	var rows [][]string
	var reasons []string
	for _, s := range out.Services {
		mark := "yes"
		about, _, _ := strings.Cut(strings.TrimSpace(s.Description), "\n")
		if r := []rune(about); len(r) > aboutWidth {
			about = string(r[:aboutWidth-1]) + "…"
		}

		if !s.Payable {
			mark = "no"
			reasons = append(reasons, s.URL+": "+s.Why)
		}
		rows = append(rows, []string{s.Price, x402.NetworkName(s.Network), mark, s.URL, about})
	}
	if len(rows) == 0 {
		u.say("nothing was found")
	} else {
		u.table([]string{"PRICE", "NETWORK", "CAN BE PAID", "URL", "WHAT IT SAYS IT IS"}, rows)
	}
	for _, why := range reasons {
		u.note("no: %s", safe(why))
	}
	u.note("source: %s, %s", safe(out.Source), moment(out.AsOf))
}
