// Package batch is the way to pay from a deposit by vouchers (specs/schemes/batch-settlement). Who signs
// reads them by package batch/check.
//
// What must stay true: the seller alone claims what vouchers promise.
package batch

import (
	"x402-wallet/scheme"
	"x402-wallet/x402"
)

// Way is a scheme.Way.
type Way struct{ scheme.Plain }

// Name implements scheme.Way.
func (Way) Name() string { return x402.BatchSettlement }

// OwnAccountOnly implements scheme.Way.
func (Way) OwnAccountOnly() bool { return true }

// SellerSettles implements scheme.Way: the seller counts what a channel holds.
func (Way) SellerSettles() bool { return true }
