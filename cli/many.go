package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"x402-wallet/internal/steps"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/weburl"
)

// notInBatch are the flags of pay that are about one request, which the lines of a batch have themselves.
var notInBatch = []string{"request", "header", "data", "network", "asset", "dry-run", "output"}

// payMany is pay --batch FILE.
func (p *Program) payMany(cmd *cobra.Command, ui *ui, file string, f payFlags) error {
	for _, name := range notInBatch {
		if cmd.Flags().Changed(name) {
			return usageError{text: "--" + name + " is about one request, and --batch has many",
				hint: `a line of the file has url, method, headers, body, maxAmount, network and asset`}
		}
	}
	if f.passphrase.fd == 0 && file == "-" {
		return usagef("stdin cannot be both the batch and the passphrase")
	}
	most, err := maxAmount(f.most)
	if err != nil {
		return err
	}
	if most == "" {
		return usageError{text: "--batch needs --max",
			hint: "say what all of it may cost together, like --max 0.50"}
	}
	in := tools.ManyIn{MaxAmount: most, IdempotencyKey: f.idempotencyKey}
	in.Requests, err = readBatch(cmd, file)
	if err != nil {
		return err
	}
	return p.with(cmd, ui, f.passphrase.or(nil), func(ctx context.Context, w *tools.Wallet) error {
		return ui.buyMany(steps.Calling(ctx, cmd.CommandPath(), ""), w, in)
	})
}

// readBatch reads requests: one JSON value after the other, a line each or however they are spaced, or an
// array of them. A value is an object, or the URL alone.
func readBatch(cmd *cobra.Command, file string) (list []tools.ManyRequest, err error) {
	text, err := readInput("batch", file, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	for i, value := range values(text) {
		one, err := readRequest(value)
		if err != nil {
			return nil, usageError{text: fmt.Sprintf("request %d of the batch: %v", i+1, err),
				hint: `write each as "https://…" or {"url":"https://…","method":"POST","body":"…"}`}
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		return nil, usageError{text: "the batch is empty",
			hint: "write one request a line, as a URL in quotes or as an object, or a JSON array of them"}
	}
	return list, nil
}

// values are the JSON values of a text, those of an array each by itself. What is no JSON is the last one.
func values(text []byte) (list []json.RawMessage) {
	var array []json.RawMessage
	if json.Unmarshal(text, &array) == nil {
		return array
	}
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		switch err := d.Decode(&value); {
		case errors.Is(err, io.EOF):
			return list
		case err != nil:
			return append(list, json.RawMessage(text[min(d.InputOffset(), int64(len(text))):]))
		}
		list = append(list, value)
	}
}

func readRequest(value json.RawMessage) (one tools.ManyRequest, err error) {
	if json.Unmarshal(value, &one.URL) != nil {
		if err := tools.ReadArguments(value, &one); err != nil {
			return one, err
		}
	}
	if !weburl.Is(weburl.Fold(one.URL)) {
		return one, fmt.Errorf("%s is no https URL", x402.Quote(one.URL))
	}
	return one, nil
}

// buyMany makes a batch of purchases and shows what became of each; shown, they were delivered.
func (u *ui) buyMany(ctx context.Context, w *tools.Wallet, in tools.ManyIn) error {
	what := fmt.Sprintf("unlocking the wallet, and waiting for %d sellers and the chain", len(in.Requests))
	out, err := purchase(ctx, u, what,
		"stopping: no more is bought; waiting for the answers to payments that were already sent",
		func() (tools.ManyOut, error) { return w.PayMany(ctx, in) })
	if err != nil {
		return err
	}
	if err := u.answer(out, func() { u.rowsOf(out) }); err != nil {
		return err
	}
	w.Engine.DeliveredMany(ctx, out.Bought)
	if code := worst(out.Bought.Rows); code != exitDone {
		return exitError(code)
	}
	return nil
}

// worst is the exit code of the row that went worst: what may have been paid before what was not, and then
// who has to do something about it.
func worst(rows []pay.Outcome) int {
	order := []int{exitUnknown, exitFailed, exitPerson, exitRefused, exitUsage, exitDone}
	is := map[int]bool{exitDone: true}
	for _, row := range rows {
		switch status := row.Result.Status; {
		case row.Err != nil:
			is[exitCode(x402.AsError(row.Err))] = true
		case status == pay.StatusUnserved, status == pay.StatusNotPaid:
			is[exitFailed] = true
		}
	}
	for _, code := range order {
		if is[code] {
			return code
		}
	}
	return exitDone
}

// rowsOf prints a line for each request; what was bought is read by its payment.
func (u *ui) rowsOf(out tools.ManyOut) {
	var table [][]string
	var why []string
	for i, row := range out.Bought.Rows {
		n, price, payment, status := strconv.Itoa(i+1), "", row.Result.PaymentID, row.Result.Status
		switch {
		case row.Err != nil:
			e := x402.AsError(row.Err)
			status, payment = string(e.Code), e.PaymentID
			why = append(why, n+": "+e.Message)
			if e.Hint != "" {
				why = append(why, "   "+e.Hint)
			}
		case row.SameAs >= 0:
			status = "same as " + strconv.Itoa(row.SameAs+1)
		default:
			price = row.Result.Price
		}
		table = append(table, []string{n, status, price, row.URL, payment})
	}
	u.table([]string{"#", "STATUS", "PRICE", "URL", "PAYMENT"}, table)
	for _, line := range why {
		u.note("%s", safe(line))
	}
	u.note("%d served, %d not; %s taken from the budgets", out.Served, out.Failed, out.Spent.Price())
	u.note("x402-wallet show PAYMENT --content prints what one bought; with --json all of it is printed here")
	if !out.Bought.Complete {
		u.note("the same command again buys what is missing, and nothing twice")
	}
}
