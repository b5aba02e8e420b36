package receipt

import (
	"strings"

	"x402-wallet/x402/wire"
)

// attested says what the seller signed of the payment besides: its offer, which the payer sent back with the
// payment, and its own receipt, which came with the settlement.
func (r *examined) attested() (lines []string) {
	p := r.Payment
	if offer := wire.OfferIn(r.Signed); offer != nil {
		lines = append(lines, "the seller's signed offer: "+offer.String())
	}
	if signed := wire.ReceiptIn(r.Settlement); signed != nil {
		urls := []string{p.URL}
		if withoutQuery(signed.Resource) == withoutQuery(p.URL) { // of which secrets are left out
			urls = append(urls, signed.Resource)
		}
		signed.Compare(p.Network, p.Payer, p.Transaction, urls, p.Time)
		lines = append(lines, "the seller's signed receipt: "+signed.String())
	}
	return lines
}

func withoutQuery(url string) string {
	before, _, _ := strings.Cut(url, "?")
	return before
}
