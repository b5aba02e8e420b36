// Package batch is the way to pay from a deposit by vouchers (specs/schemes/batch-settlement). Who signs
// reads them by package batch/check.
//
// What must stay true: the seller alone claims what vouchers promise.
package batch

import (
	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/scheme/permit2"
	"x402-wallet/x402"
)

// Way is a scheme.Way.
type Way struct {
	scheme.Plain
	// ByPermit2 knows what Permit2 may move, of which the funds of a deposit tell where it is one by Permit2.
	ByPermit2 permit2.Exact
}

// Spendable implements scheme.Way.
func (w Way) Spendable(o scheme.Option, f x402.Funds) x402.Funds { return w.ByPermit2.Spendable(o, f) }

// Lack implements scheme.Way.
func (w Way) Lack(o scheme.Option, f x402.Funds) error { return w.ByPermit2.Lack(o, f) }

// Turns implements scheme.Way.
func (w Way) Turns(o scheme.Option, f x402.Funds) []string { return w.ByPermit2.Turns(o, f) }

// Name implements scheme.Way.
func (Way) Name() string { return x402.BatchSettlement }

// OwnAccountOnly implements scheme.Way.
func (Way) OwnAccountOnly() bool { return true }

// SellerSettles implements scheme.Way: the seller counts what a channel holds.
func (Way) SellerSettles() bool { return true }

// NoReceipt implements scheme.Way: a voucher is for all that its channel's seller charged.
func (Way) NoReceipt(p history.Payment) error {
	return x402.Errorf(x402.InvalidArgument, "it was paid through a channel with a deposit, of which no "+
		"receipt is made: a voucher is for all that the seller charged").
		WithHint("its voucher and what the seller said are in x402-wallet show %s", p.ID)
}
