// Package tempo is the way to pay charges of MPP on Tempo (draft-tempo-charge-00): one transaction of type
// 0x76 that transfers a TIP-20 token with a memo of the challenge. The seller sends it. Who signs reads it by
// package tempo/check.
//
// What must stay true: one transaction is signed for a challenge, and it can run only once and within 25
// seconds. A seller takes several transactions for one challenge, and its answer never shows whether one ran:
// only the chain does.
//
// The files: tempo.go (what a seller's offer needs), payer.go (funds, sign, send), status.go (what became of
// it).
package tempo

import (
	"x402-wallet/scheme"
	"x402-wallet/scheme/mpp"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/remedy"
)

// Way is a scheme.Way.
type Way struct {
	mpp.Way
	// MaxFee is the most that the network's fee of one payment may be (policy.network_fee). With 0 only
	// sellers are paid that pay the fee.
	MaxFee money.Dollars
}

func (Way) Name() string { return x402.Tempo }

// AskChainAgain implements scheme.Way: a seller of mppx refuses a transaction that it has sent before.
func (Way) AskChainAgain() bool { return true }

// Fee implements scheme.Way. The fee is paid in the token of the payment.
func (w Way) Fee(o scheme.Option) money.Amount {
	if o.Charge == nil || o.Charge.SellerPaysFee {
		return money.Amount{}
	}
	return o.Token.Units(w.MaxFee)
}

// WhyNot implements scheme.Way.
func (w Way) WhyNot(c scheme.Call, o scheme.Option) error {
	err := w.Way.WhyNot(c, o)
	if err != nil || o.Charge == nil {
		return err
	}
	isPushed, network := !o.Charge.Pull, x402.Title(o.Network)
	switch {
	case o.Charge.SellerPaysFee && isPushed:
		return x402.Errorf(x402.InvalidRequirement, "the seller (MPP) says that it pays the network's fee, "+
			"and wants the buyer to send the transaction: both cannot be")
	case !o.Charge.SellerPaysFee && w.MaxFee == 0:
		const lines = "[policy]\nnetwork_fee = \"0.05\""
		return x402.Errorf(x402.InvalidRequirement, "the seller (MPP) wants the buyer to pay the network's "+
			"fee on %s, and the owner's rules let none be paid (policy.network_fee)", network).
			WithHint("a fee is some 0.0001 to 0.02 dollars; take another option or seller, or the person "+
				"sets network_fee in config.toml and runs `%s`", remedy.SealCommand).
			WithDetail("network", o.Network).WithDetail("config", lines).
			WithCommand(remedy.SealCommand, "This seller wants me to pay the network's fee on "+network+
				", which your rules forbid. If I may, set this in config.toml and seal it:\n"+lines)
	}
	return nil
}
