package pay

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// attestingSeller offers, and gives as its receipt, what @x402/extensions 2.27 signed of testPayee's goods.
type attestingSeller struct {
	*scriptedSeller
	offer, receipt json.RawMessage
}

func (s *attestingSeller) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	a, err := s.scriptedSeller.Ask(ctx, r)
	a.Challenge.Extensions = map[string]json.RawMessage{wire.ExtensionOffers: json.RawMessage(
		`{"info":{"offers":[` + string(s.offer) + `]}}`)}
	return a, err
}

func (s *attestingSeller) Present(ctx context.Context, r seller.Request,
	with wire.Attachment) (*seller.Answer, error) {
	a, err := s.scriptedSeller.Present(ctx, r, with)
	if err == nil && a.Settlement != nil && s.receipt != nil {
		a.Settlement.Raw = json.RawMessage(`{"success":true,"extensions":{"offer-receipt":{"info":` +
			`{"receipt":` + string(s.receipt) + `}}}}`)
	}
	return a, err
}

const attester = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"

func signedObjects(t *testing.T) map[string]json.RawMessage {
	data := must.Get(os.ReadFile("../x402/testdata/extension-vectors.json"))(t)
	all := must.JSON[struct {
		Vectors map[string]struct{ Object json.RawMessage }
	}](data)(t)
	objects := map[string]json.RawMessage{}
	for name, v := range all.Vectors {
		objects[name] = v.Object
	}
	return objects
}

func TestWhatSellersSignIsComparedWithWhoSignedBefore(t *testing.T) {
	objects := signedObjects(t)
	b := newBench(t, "10000", honest)
	shop := &attestingSeller{scriptedSeller: b.seller, offer: objects["offer_eip712"]}
	b.Transport = shop
	buy := func() (warning string, offer, receipt *wire.Attested) {
		r := b.mustPay(t, testURL)
		require.Equal(t, StatusPaid, r.Status, "a claim stops nothing")
		b.Delivered(t.Context(), r.Status, r.PaymentID)
		p := must.Get(b.store.Payment(t.Context(), r.PaymentID))(t)
		offer, receipt = b.Attested(t.Context(), p)
		return r.Warning, offer, receipt
	}
	warning, offer, receipt := buy()
	require.Empty(t, warning)
	require.Nil(t, receipt)
	require.Equal(t, []any{true, attester}, []any{offer.Verified, offer.Signer})

	changed := strings.Replace(string(shop.offer), "1740672149", "1840672149", 1)
	shop.offer = json.RawMessage(changed)
	warning, offer, _ = buy()
	require.Contains(t, warning, "but at this host it was "+attester+" who signed before")
	require.True(t, offer.Verified, "EIP-712 never fails")

	shop.offer = json.RawMessage(strings.Replace(string(objects["offer_eip712"]), `"10000"`, `"20000"`, 1))
	warning, offer, _ = buy()
	require.Contains(t, warning, "none of the seller's signed offers is for what was paid")
	require.Nil(t, (&wire.Challenge{}).Offer(x402.Requirement{}))
	require.False(t, offer != nil && offer.Verified)

	shop.offer, shop.receipt = objects["offer_eip712"], objects["receipt_eip712"]
	warning, offer, receipt = buy()
	require.Empty(t, offer.Why)
	require.Contains(t, warning, "the seller's signed receipt is signed by "+attester)
	require.Equal(t, "it is for another payer", receipt.Why)
}

// An offer among too many is kept with the payment all the same: the one that was paid.
func TestAnOfferIsKeptInAPaymentThatIsTooLong(t *testing.T) {
	objects := signedObjects(t)
	b := newBench(t, "10000", honest)
	long := json.RawMessage(strings.Replace(string(objects["offer_eip712"]), "https://api.example.com/",
		"https://api.example.com/"+strings.Repeat("a", 6000), 1))
	dearer := strings.Replace(string(long), `"10000"`, `"20000"`, 1)
	b.Transport = &attestingSeller{scriptedSeller: b.seller,
		offer: json.RawMessage(dearer + "," + string(objects["offer_eip712"]))}
	r := b.mustPay(t, testURL)
	p := must.Get(b.store.Payment(t.Context(), r.PaymentID))(t)
	require.Less(t, len(p.Payload), 6000)
	offer, _ := b.Attested(t.Context(), p)
	require.Equal(t, "signed by "+attester, offer.String())
}
