// Package check decides whether a transfer on Tempo may be signed: the payment of a challenge of MPP with the
// method "tempo" and the intent "charge" (draft-tempo-charge-00).
//
// What must stay true: payer, payee and token are the reserved payment's. The transfer, together with the
// most that the network's fee may take, is the amount that is held. The owner's rules bound the fee.
package check

import (
	"context"
	"encoding/json"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// MaxLife is the longest that a transfer is valid. The chain takes none that is valid for more than 30
// seconds (tempoxyz/tempo, TIP-1009), and mppx's buyers sign for 25.
const MaxLife = 25 * time.Second

// Check is a signing.Check.
type Check struct {
	// MaxFee is the most that the network's fee of one payment may be (policy.network_fee).
	MaxFee money.Dollars
}

// Encode is the form that Check reads.
func Encode(t x402.TempoTransfer) ([]byte, error) { return json.Marshal(t) }

// transfer is a signing.Message.
type transfer struct {
	signing.Basis
	x402.TempoTransfer
	order wallet.TempoTransaction
}

// Read implements signing.Check. The message is Encode's; who signs makes the transaction of it.
func (c Check) Read(_ context.Context, q signing.Question) (signing.Message, error) {
	var got x402.TempoTransfer
	err := x402.DecodeStrict(q.Message, message.MaxPayload, &got)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	var memo [32]byte
	p := q.Payment
	chain, _ := x402.ChainID(p.Network)
	payee, _ := message.Address(got.To)
	total, fits := got.Total()
	latest := q.Now.Add(MaxLife).Unix()
	err = signing.Compare(
		signing.Is("chain", got.Network == p.Network && x402.IsTempo(p.Network)),
		signing.Is("payer", signing.SameAddress(got.From, q.Account.EVM) &&
			signing.SameAddress(p.Source, q.Account.EVM)),
		signing.Is("payee", signing.SameAddress(payee, p.PayTo)),
		signing.Is("asset", signing.SameAddress(got.Token, q.Asset.Address)),
		signing.Is("amount", fits && total == p.Amount && !got.Amount.IsZero()),
		signing.Is("memo", message.DecodeHex(memo[:], got.Memo) == nil && memo != [32]byte{}),
		signing.Is("validity", q.Lives(got.ValidBefore) && got.ValidBefore <= latest))
	if err != nil {
		return nil, err
	}
	if most := q.Asset.Units(c.MaxFee); got.Fee.Cmp(most) > 0 {
		return nil, signing.Refuse("the network's fee may take %s units of the token, and network_fee "+
			"allows %s", got.Fee, most)
	}
	// in one spelling, or the memo of one challenge could be recorded twice
	got.From, got.To, got.Token, got.Memo = q.Account.EVM, payee, q.Asset.Address, message.Hex(memo[:])
	order := wallet.TempoTransaction{
		ChainID: chain, Gas: x402.TempoGas, Tip: x402.TempoTip, MaxFee: got.MaxFeePerGas(), Token: got.Token,
		To: got.To, Amount: got.Amount.Bytes32(), Memo: memo, ValidBefore: uint64(got.ValidBefore),
		SellerPaysFee: got.Fee.IsZero(),
	}
	return transfer{signing.Basis{Asks: q.Costs(), Bytes: q.Message}, got, order}, nil
}

func (t transfer) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	signature, err := by.SignTempo(ctx, t.order)
	return signature[:], err
}

func (t transfer) Signed(signature []byte) (history.Signed, error) {
	e := Evidence(t.TempoTransfer)
	if !t.Fee.IsZero() {
		e.Hash = t.order.Hash([65]byte(signature))
	}
	return history.Signed{Evidence: e}, nil
}

// Evidence is how the chain is asked about a transfer. It has no hash.
func Evidence(t x402.TempoTransfer) x402.Evidence {
	total, _ := t.Total()
	return x402.Evidence{Network: t.Network, Asset: t.Token, Payer: t.From, PayTo: t.To, Amount: total,
		Fee: t.Fee, Memo: t.Memo, ValidBefore: t.ValidBefore, Way: x402.Tempo,
		ExpiresAt: time.Unix(t.ValidBefore, 0).UTC()}
}
