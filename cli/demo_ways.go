package cli

import (
	"context"
	"encoding/json"
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
	demoBatch   = "/batch"
)

func (d *demo) otherWays() []func(context.Context) error {
	return []func(context.Context) error{d.signedIn, d.paidByPermit2, d.paidUpTo, d.paidFromDeposit,
		d.paidFromAFloat, d.booksAgain}
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

// demoCalls is how many calls are paid out of one deposit.
const demoCalls = 3

func (d *demo) paidFromDeposit(ctx context.Context) error {
	d.scene("The agent asks for the waves three times, and pays once (batch-settlement)")
	settled, wallet := len(d.world.Settlements()), d.world.Balance(d.evm)
	for n := range demoCalls {
		got, err := d.buy(ctx, demoBatch, map[string]any{"maxAmount": "$0.01",
			"idempotencyKey": fmt.Sprintf("waves-%d", n+1)}, pay.StatusPaid)
		if err != nil {
			return err
		}
		d.showPaid(got)
		if n == 0 {
			err = d.receipt(got)
		} else if got.TransactionSignature != "" {
			err = errors.New("a voucher made a transaction")
		}
		if err = errors.Join(err, d.settlements(settled+1)); err != nil {
			return err
		}
	}
	price := sandbox.Price(demoBatch)
	deposit := d.world.Settlements()[settled].Amount
	d.line("chain", "one deposit of %s; the two calls after it moved nothing", money.Dollars(deposit).Price())
	d.line("why", "each call is paid by a signed voucher for all that was used so far: the website can "+
		"claim the newest one, and the wallet signs none for more than was used and the next price")
	channels := d.world.Channels()
	switch {
	case wallet-d.world.Balance(d.evm) != deposit:
		return errors.New("the balance moved by something else than the deposit")
	case len(channels) != 1 || channels[0].Balance != deposit || channels[0].Vouchers != demoCalls ||
		channels[0].Charged != demoCalls*price || channels[0].Claimable != demoCalls*price:
		return fmt.Errorf("the website's channels are %+v", channels)
	}
	return d.depositBack(ctx, wallet)
}

// depositBack asks for what the calls did not use, as the owner would; wallet is the balance before them.
func (d *demo) depositBack(ctx context.Context, wallet uint64) error {
	host := strings.TrimPrefix(d.world.SellerURL, "http://")
	d.line("owner", "x402-wallet channel refund %s", host)
	text, err := d.command(ctx, "channel", "refund", host, "--json").Output()
	var out refundOut
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return fmt.Errorf("channel refund: %w: %s", err, text)
	}
	used := demoCalls * sandbox.Price(demoBatch)
	c := d.world.Channels()[0]
	if len(out.Refunds) != 1 || wallet-d.world.Balance(d.evm) != used || c.Claimed != used ||
		c.Balance != used {
		return fmt.Errorf("what came back is %+v, and the channel %+v", out.Refunds, c)
	}
	d.line("back", "%s; %s stays with the website, for the three calls", out.Refunds[0].Price,
		money.Dollars(used).Price())
	return nil
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
	d.line("total", "$%s, in which %s count that upto has not taken, and vouchers by their deposit",
		out.Totals["USDC"], d.stillCounts.Price())
	const vouchers = demoCalls - 1 // by themselves; the first came with its deposit
	d.line("chains", "%d payments, %s; the wallet signed them, %d vouchers, one sign-in and one float",
		len(settled), money.Dollars(sum).Price(), vouchers)
	total := money.Dollars(sum) + d.stillCounts
	if d.world.Signatures() != len(settled)+vouchers || out.Totals["USDC"] != total.String() {
		return fmt.Errorf("the history should come to %s, and as many payments be signed as were made",
			total.Price())
	}
	return nil
}
