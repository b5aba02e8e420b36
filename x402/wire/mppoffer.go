package wire

import (
	"encoding/json"
	"errors"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Offer is a way to pay as MPP's discovery writes it: in x-payment-info of an OpenAPI document
// (draft-payment-discovery-00), and as payment of an endpoint in a directory of services. It is a stranger's
// claim. The challenge says what is paid, and to whom.
type Offer struct {
	Method   string `json:"method"`   // "tempo"
	Intent   string `json:"intent"`   // "charge"
	Amount   string `json:"amount"`   // decimal, in units of the currency; empty if it depends on the request
	Currency string `json:"currency"` // a token's address, or a code like "usd"; may be empty
	// Recipient is who would be paid, as mppx 0.11 adds it. The draft and the directory have no such member.
	Recipient string `json:"recipient"`
}

// ReadOffers reads x-payment-info: one offer, or {"offers": [offer, …]}. It is nil for anything else.
func ReadOffers(info json.RawMessage) []Offer {
	var is struct {
		Offer
		Offers []Offer `json:"offers"`
	}
	if x402.DecodeStrict(info, x402.MaxBody, &is) != nil || len(is.Offers) > x402.MaxAccepts {
		return nil
	}
	if is.Offers == nil && is.Method != "" && is.Intent != "" {
		return []Offer{is.Offer}
	}
	return is.Offers
}

// Options are the options that the seller's challenge would have, as far as the offer says. A method of EVM
// names no chain: there is one option for each of the networks that has the token. PayTo is empty unless
// the offer names a recipient. There are none if the price, or who pays the network's fee, is
// told with the challenge alone. An error says why this wallet pays no such offer.
func (o Offer) Options(networks []string, assets *x402.Registry) (list []x402.Requirement, err error) {
	if words := foreignCharge(o.Method, o.Intent); words != "" {
		return nil, errors.New(words)
	}
	if o.Amount == "" || o.Method == "solana" {
		return nil, nil
	}
	isTempo := o.Method == methodTempo
	name := "MPP " + o.Method + "/" + o.Intent + ": "
	r := x402.Requirement{Version: 2, Dialect: dialectMPP, Scheme: x402.MPP, MaxTimeout: chargeTimeout,
		Charge: &x402.Charge{Method: o.Method, Intent: o.Intent, Header: headerAuthorization}}
	r.Amount, err = money.ParseAmount(o.Amount)
	if err != nil {
		return nil, errors.New(name + err.Error())
	}
	entry := x402.Object{"currency": jsonString(o.Currency), "recipient": jsonString(o.Recipient)}
	r.Asset, err = entry.Identifier("currency")
	if err == nil && o.Recipient != "" {
		r.PayTo, err = entry.Identifier("recipient")
	}
	if err != nil {
		return nil, errors.New(name + err.Error())
	}
	if isTempo { // the directory is of the main net, and what is not said of the fee is hoped for
		r.Scheme, networks = x402.Tempo, []string{x402.TempoMainnet}
		r.Charge.SellerPaysFee, r.Charge.Pull = true, true
	}
	for _, network := range networks {
		_, isKnown := assets.Asset(network, r.Asset)
		isEVM := strings.HasPrefix(network, "eip155:") && x402.IsTempo(network) == isTempo
		if isTempo || (isEVM && isKnown) {
			on := r
			on.Network, on.NetworkName = network, network
			list = append(list, on)
		}
	}
	if len(list) == 0 {
		return nil, errors.New(name + "its token is on another chain than those that this wallet pays on")
	}
	return list[:min(len(list), x402.MaxAccepts)], nil
}
