package pay

import (
	"bytes"
	"context"
	"slices"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// What sellers sign besides (offer-receipt): the offer that a payment was for, and a receipt with the answer.
// Both are kept with the payment, in what was sent and in what came back, and are read out of there. They are
// claims: the state and the proof of a payment never follow from them.

// maxEarlier is among how many earlier payments for a host its signers are looked for.
const maxEarlier = 20

// Attested is what the seller signed of a payment, each nil where there is none. Why of each says what is
// wrong with it, as far as the payment and what was paid at that host before can tell.
func (e *Engine) Attested(ctx context.Context, p history.Payment) (offer, receipt *wire.Attested) {
	offer, receipt = signedBy(p)
	if receipt != nil {
		urls := []string{p.URL, p.Target}
		if WithoutSecrets(receipt.Resource) == p.URL {
			urls = append(urls, receipt.Resource)
		}
		receipt.Compare(p.Network, p.Evidence.Payer, p.Transaction, urls, p.Created)
	}
	if (offer == nil || !offer.Verified) && (receipt == nil || !receipt.Verified) {
		return offer, receipt
	}
	before := e.signersBefore(ctx, p)
	for _, a := range nonNil(offer, receipt) {
		if isGood(a) && len(before) > 0 && !slices.Contains(before, a.Signer) {
			a.Why = "at this host it was " + x402.Brief(before[0]) + " who signed before"
		}
	}
	if isGood(offer) && isGood(receipt) && receipt.Signer != offer.Signer {
		receipt.Why = "the offer was signed by another one"
	}
	return offer, receipt
}

func isGood(a *wire.Attested) bool { return a != nil && a.Verified && a.Why == "" }

// signersBefore are who signed for a payment's host before, the last one first.
func (e *Engine) signersBefore(ctx context.Context, p history.Payment) (signers []string) {
	earlier, err := e.Store.Earlier(ctx, p, maxEarlier)
	if err != nil {
		e.Log.Warn("read who signed for a seller before", "payment", p.ID, "err", err)
	}
	for _, was := range earlier {
		for _, a := range nonNil(signedBy(was)) {
			if a.Verified {
				signers = append(signers, a.Signer)
			}
		}
	}
	return signers
}

// signedBy reads both out of a payment. Most have neither, and are not read for it.
func signedBy(p history.Payment) (offer, receipt *wire.Attested) {
	named := []byte(wire.ExtensionOffers)
	if bytes.Contains(p.Payload, named) {
		offer = wire.OfferIn(p.Payload)
	}
	if bytes.Contains(p.Receipt, named) {
		receipt = wire.ReceiptIn(p.Receipt)
	}
	return offer, receipt
}

func nonNil(offer, receipt *wire.Attested) (list []*wire.Attested) {
	for _, a := range []*wire.Attested{offer, receipt} {
		if a != nil {
			list = append(list, a)
		}
	}
	return list
}

// warning says in words what is wrong with what the seller signed of a payment; "": nothing.
func (e *Engine) warning(ctx context.Context, p history.Payment) string {
	offer, receipt := e.Attested(ctx, p)
	switch {
	case offer != nil && offer.Why != "":
		return "the seller's signed offer is " + offer.String()
	case receipt != nil && receipt.Why != "":
		return "the seller's signed receipt is " + receipt.String()
	}
	return ""
}
