package hooks

import (
	"encoding/json"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// The values of Event.Event.
const (
	before = "before"
	after  = "after"
)

// Event is what a program is told of a payment: one line of JSON. Nothing in it is secret: no header, body,
// signature or content, and a URL is without the secrets of its query. Agents and strangers wrote some of it.
type Event struct {
	Event     string        `json:"event"` // "before" or "after"
	PaymentID string        `json:"paymentId"`
	At        string        `json:"at"` // when its money was held, RFC 3339
	Agent     string        `json:"agent,omitempty"`
	Method    string        `json:"method"`
	URL       string        `json:"url"`
	Host      string        `json:"host"`
	Network   string        `json:"network"` // CAIP-2
	Scheme    string        `json:"scheme"`
	Asset     string        `json:"asset"`
	Symbol    string        `json:"symbol"`
	Amount    money.Amount  `json:"amount"` // atomic units
	Price     money.Dollars `json:"price"`  // dollars
	PayTo     string        `json:"payTo"`
	From      string        `json:"from"` // whose money
	// after: settled or failed (provably not paid), what it came to where that was less, and what says so
	Status      string        `json:"status,omitempty"`
	Charged     *money.Amount `json:"charged,omitempty"`
	Proof       string        `json:"proof,omitempty"` // "claimed" or "chain"
	Transaction string        `json:"transactionSignature,omitempty"`
	Facilitator string        `json:"facilitator,omitempty"`
}

func event(which string, p history.Payment) Event {
	e := Event{Event: which, PaymentID: p.ID, At: p.Created.UTC().Format(time.RFC3339), Agent: p.Agent,
		Method: p.Method, URL: p.URL, Host: p.Host, Network: p.Network, Scheme: p.Scheme, Asset: p.Asset,
		Symbol: p.Symbol, Amount: p.Amount, Price: p.Price, PayTo: p.PayTo, From: p.Source}
	if which == after {
		e.Status, e.Proof, e.Transaction = string(p.State), string(p.Proof), p.Transaction
		e.Facilitator, e.Charged = p.Facilitator, p.Charged
	}
	return e
}

func (e Event) line() []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // of texts and numbers: cannot happen
	}
	return append(text, '\n')
}
