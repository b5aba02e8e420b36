package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The scenes of `demo --all`: a paid call in each of the other ways. They come after the story, in the same
// session, so that its figures are the same with them and without.

// The paths that are sold in other ways.
const (
	demoSignIn  = "/archive"
	demoPermit2 = "/permit2"
	demoUpto    = "/upto"
)

func (d *demo) otherWays() []func(context.Context) error {
	return []func(context.Context) error{d.signedIn, d.paidByPermit2, d.paidUpTo, d.paidFromAFloat,
		d.booksAgain}
}

func (d *demo) signedIn(ctx context.Context) error {
	d.scene("Bought once, fetched again: the agent signs in instead of paying (sign-in-with-x)")
	settled := len(d.world.Settlements())
	// keys, because without one a slow answer would make the second call the same purchase
	asks := func(key, status string) (pay.Result, error) {
		return d.buy(ctx, demoSignIn, map[string]any{"maxAmount": "$0.01", "idempotencyKey": key}, status)
	}
	got, err := asks("archive-monday", pay.StatusPaid)
	if err != nil {
		return err
	}
	d.showPaid(got)
	if err := errors.Join(d.settlements(settled+1), d.receipt(got)); err != nil {
		return err
	}
	again, err := asks("archive-tuesday", pay.StatusFree)
	if err != nil {
		return err
	}
	d.line("next", "%s", again.Next.Why)
	d.line("why", "the wallet signed a text that names the website, its own account and a number for once; "+
		"the owner's rules say sign_in = \"allow\"")
	if d.world.SignIns() != 1 {
		return fmt.Errorf("the website let in %d instead of 1", d.world.SignIns())
	}
	return d.settlements(settled + 1)
}

func (d *demo) paidByPermit2(ctx context.Context) error {
	d.scene("The agent buys the wind from a website that is paid by Permit2")
	settled, wallet := len(d.world.Settlements()), d.world.Balance(d.evm)
	got, err := d.buy(ctx, demoPermit2, map[string]any{"maxAmount": "$0.01"}, pay.StatusPaid)
	if err != nil {
		return err
	}
	d.showPaid(got)
	d.line("chain", "Permit2 may move %s of the wallet's money now",
		money.Dollars(d.world.Approved(d.evm)).Price())
	d.line("why", "the wallet's account never approved Permit2: it signed an approval of exactly this "+
		"price, the payment service brought it along, and the payment used it up")
	switch {
	case wallet-d.world.Balance(d.evm) != sandbox.Price(demoPermit2):
		return errors.New("the balance moved by something else than the price")
	case d.world.Approved(d.evm) != 0:
		return errors.New("an approval is left")
	}
	return errors.Join(d.settlements(settled+1), d.receipt(got))
}

func (d *demo) paidUpTo(ctx context.Context) error {
	d.scene("The agent asks what costs what it comes to, and allows two cents (upto)")
	settled, wallet := len(d.world.Settlements()), d.world.Balance(d.evm)
	got, err := d.buy(ctx, demoUpto, map[string]any{"maxAmount": "$0.05"}, pay.StatusPaid)
	if err != nil {
		return err
	}
	most := money.Dollars(sandbox.Price(demoUpto))
	d.line("web", "402: up to %s -> a payment that allows as much -> 200 OK, and a receipt for %s",
		most.Price(), got.Price)
	d.showPaid(got)
	moved := wallet - d.world.Balance(d.evm)
	d.line("chain", "%s moved", money.Dollars(moved).Price())
	d.line("why", "only the payment service that the signature names can take it, once; it is one of the "+
		"owner's own, so nobody was asked. All of %s counts in the budget until the chain has shown for "+
		"good what moved", most.Price())
	d.stillCounts = most - money.Dollars(moved)
	if moved == 0 || moved >= sandbox.Price(demoUpto) {
		return errors.New("the balance moved by all that was allowed, or by nothing")
	}
	return errors.Join(d.settlements(settled+1), d.receipt(got))
}

// booksAgain compares the wallet's history with what the chains wrote down, now that all is bought.
func (d *demo) booksAgain(ctx context.Context) error {
	d.scene("The wallet's history and the chains' own books agree")
	var out tools.HistoryOut
	if isError, err := d.host.tool(ctx, "x402_history", map[string]any{}, &out); err != nil || isError {
		return fmt.Errorf("x402_history failed: %w", err)
	}
	for _, row := range out.Transactions {
		d.line(row.Price, "%-14s %-8s %s", x402.NetworkName(row.Network), row.Status,
			strings.TrimPrefix(row.URL, d.world.SellerURL))
	}
	var sum uint64
	settled := d.world.Settlements()
	for _, s := range settled {
		sum += s.Amount
	}
	// the clock decides when it is free, which is minutes after the demo
	d.line("total", "$%s, in which %s count that upto has not taken", out.Totals["USDC"],
		d.stillCounts.Price())
	d.line("chains", "%d payments, %s; the wallet signed %d, one sign-in and one float", len(settled),
		money.Dollars(sum).Price(), d.world.Signatures())
	total := money.Dollars(sum) + d.stillCounts
	if d.world.Signatures() != len(settled) || out.Totals["USDC"] != total.String() {
		return fmt.Errorf("the history should come to %s, and as many payments be signed as were made",
			total.Price())
	}
	return nil
}
