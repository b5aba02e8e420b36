package channel

import (
	"context"
	"errors"
	"fmt"

	"x402-wallet/chain/rpc"
	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// methodOpen is an opening in the ledger's column of methods.
const methodOpen = "CHANNEL/OPEN"

// open opens the channel for our key, or lets our key into it, with a deposit after that where one
// is wanted. It is a spend: a person is always asked, its most is held in the owner's budgets, and
// it is bounded by deposit_cap. What is counted is the deposit and the most that the chain may take
// as its fee. The caller holds the channel's turn.
func (m *Manager) open(ctx context.Context, p *place, deposit money.Amount) error {
	if err := m.capped(asset(p.network), deposit); err != nil { // before anything is asked or opened
		return err
	}
	// transactions of one account are numbered
	give, err := m.Store.LockChannel(ctx, "account", p.payer.DID())
	if err != nil {
		return err
	}
	defer give()
	if err := m.letIn(ctx, p); err != nil || deposit.IsZero() {
		return err
	}
	function, args := depositCall(p.payer, deposit)
	return m.spend(ctx, p, schemeDeposit, function, args, deposit)
}

// letIn opens the channel, or lets our key into one that is open; where it is in, it does nothing.
func (m *Manager) letIn(ctx context.Context, p *place) error {
	object, err := p.node.channel(ctx, ChannelID(p.payer, p.payee))
	if err != nil {
		return err
	}
	function, args := openCall(p.payee, p.key.Fragment)
	if object != nil {
		if sub, err := p.node.sub(ctx, object, p.key.Fragment); err != nil || sub != nil {
			return err
		}
		function, args = authorizeCall(ChannelID(p.payer, p.payee), p.key.Fragment)
	}
	return m.spend(ctx, p, schemeOpen, function, args, money.Amount{})
}

// spend makes one transaction, as every payment is made: held, signed, on disk, sent, judged by the
// chain.
func (m *Manager) spend(ctx context.Context, p *place, scheme, function string, args [][]byte,
	deposit money.Amount) error {
	most, rgas := withFee(deposit), asset(p.network)
	endpoint := m.Servers[p.server].Endpoint
	c := pay.Charge{
		Request: pay.Request{Request: seller.Request{Method: methodOpen, URL: endpoint,
			Body: []byte(scheme)}}, Network: p.network, Scheme: scheme,
		Asset: rgas, PayTo: p.payee.DID(), Amount: most, Always: why(p, rgas, deposit),
		// of all that is under way
		Funds: x402.Funds{Source: p.payer.String(), Balance: rgas.Units(m.DepositCap),
			Free: rgas.Units(m.DepositCap), ReadAt: m.Now()},
	}
	held, err := m.Engine.HoldCharge(ctx, c)
	if err != nil {
		return err
	}
	defer held.End(false)
	payment := held.Payment
	if err := held.MaySign(ctx); err != nil {
		return held.Release(ctx, err)
	}
	t, signed, err := m.transaction(ctx, p, c, function, args)
	if err == nil {
		err = m.Store.Submit(ctx, payment.ID, signed)
	}
	if err != nil {
		return held.Release(ctx, err)
	}
	if err := m.Guard.Checkpoint(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rpc.Timeout)
	defer cancel()
	hash, err := p.node.execute(ctx, string(rawOf(signed)))
	o := executed(hash, err)
	o.ReleaseLease, o.ClearWaiter = true, true
	if o.Transaction == "" {
		o.Transaction = ObjectID(t.hash()).String()
	}
	if _, saving := m.Store.Finish(ctx, payment.ID, o); saving != nil {
		m.Log.Error("record a transaction", "payment", payment.ID, "err", saving)
	}
	if err == nil {
		return nil
	}
	coded := x402.Errorf(x402.OutcomeUnknown, "nobody knows whether the chain took the transaction: %w", err)
	if errors.Is(err, errAborted) {
		coded = x402.Errorf(x402.PaymentRejected, "%s",
			err.Error()).WithHint("the DID needs a document on the chain, RGas for the fee, and for a " +
			"deposit what is deposited")
	}
	coded.PaymentID, coded.Spent = payment.ID, most.String()
	return coded
}

// withFee is the most that a transaction may take: what it deposits, and the chain's fee.
func withFee(deposit money.Amount) money.Amount {
	most, _ := deposit.Add(money.NewAmount(maxGas))
	return most
}

func (m *Manager) capped(rgas x402.AssetInfo, deposit money.Amount) error {
	price, fee := rgas.Dollars(withFee(deposit)), rgas.Dollars(money.NewAmount(maxGas))
	if price <= m.DepositCap {
		return nil
	}
	hint := "how much a channel may take is the owner's to say"
	if m.DepositCap > fee {
		hint = "a deposit of " + (m.DepositCap - fee).Price() + " passes; " + hint
	}
	return x402.Errorf(x402.PolicyDenied, "it may take %s with the chain's fee, above the owner's "+
		"deposit_cap of %s", price.Price(), m.DepositCap.Price()).
		WithHint("%s", hint).WithDetail("limit", m.DepositCap).WithDetail("requested", price)
}

func why(p *place, rgas x402.AssetInfo, deposit money.Amount) string {
	if deposit.IsZero() {
		return "a payment channel would be opened to " + p.payee.DID()
	}
	return rgas.Dollars(deposit).Price() + " would be put into the payment hub of " + p.payer.DID()
}

// executed says what the node's answer means. Who runs the node is the owner's choice, so its word
// is the chain's.
func executed(hash string, err error) history.Outcome {
	switch {
	case err == nil:
		return history.Outcome{State: history.Settled, Proof: history.Chain, Transaction: x402.Brief(hash)}
	case errors.Is(err, errAborted): // its fee is gone all the same
		return history.Outcome{State: history.Settled, Proof: history.Chain, Transaction: x402.Brief(hash),
			Note: x402.Brief(err.Error())}
	default:
		return history.Outcome{State: history.Unknown, Note: "the node did not say what became of it"}
	}
}

// transaction builds and signs a call, as it will be kept and sent.
func (m *Manager) transaction(ctx context.Context, p *place, c pay.Charge, function string,
	args [][]byte) (t Transaction, signed history.Signed, err error) {
	sequence, err := p.node.sequence(ctx, p.payer)
	if err != nil {
		return t, signed, err
	}
	t = Transaction{Sender: p.payer, Sequence: sequence, ChainID: chainIDs[p.network], MaxGas: maxGas,
		Function: function, TypeArgs: function != fnAuthorize, Args: args}
	signature, err := m.Keys.SignTransaction(ctx, p.key, t)
	if err != nil {
		return t, signed, err
	}
	payload, err := compact(t.raw(p.key.Fragment, signature))
	if err != nil {
		return t, signed, err
	}
	requirement, err := compact(map[string]string{"function": function, "payee": p.payee.DID()})
	return t, history.Signed{
		Payload: payload, Requirement: requirement, UniqueKey: c.Network + " " + ObjectID(t.hash()).String(),
		Evidence: x402.Evidence{Network: c.Network, Asset: RGas, Payer: p.payer.DID(), PayTo: c.PayTo,
			Amount: c.Amount, Nonce: decimal(sequence), Source: ChannelID(p.payer, p.payee).String(),
			Memo: function, Destination: p.key.Fragment},
	}, err
}

// rawOf is the transaction that was kept, for the wire.
func rawOf(signed history.Signed) []byte {
	if n := len(signed.Payload); n > 2 {
		return signed.Payload[1 : n-1] // hex in quotes
	}
	return nil
}

// Fates says what became of what channels owe and of openings: a pay.Scheme that pays nothing
// itself.
type Fates struct{ Nodes map[string]*Rooch }

// Payable implements pay.Scheme: an x402 seller that asks for Rooch's money asks in vain.
func (Fates) Payable(x402.Requirement, x402.AssetInfo) error {
	return x402.Errorf(x402.InvalidRequirement, "on Rooch this wallet pays through payment channels only")
}

// Funds implements pay.Scheme.
func (f Fates) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	return x402.Funds{}, f.Payable(x402.Requirement{}, x402.AssetInfo{})
}

// Authorize implements pay.Scheme.
func (f Fates) Authorize(context.Context, x402.Order) (x402.Authorization, error) {
	return x402.Authorization{}, f.Payable(x402.Requirement{}, x402.AssetInfo{})
}

// Status implements pay.Scheme. A promise happened when the payee has claimed its nonce or a later
// one; until then, and for ever, it may: it is never dead. A transaction happened when its
// account's number has passed it.
func (f Fates) Status(ctx context.Context, e x402.Evidence) (fate x402.Status, err error) {
	node := f.Nodes[e.Network]
	nonce, err := parseDecimal(e.Nonce)
	if node == nil || err != nil {
		return fate, x402.Errorf(x402.RPCError, "no node of %s is configured", x402.Quote(e.Network))
	}
	if e.Destination != "" {
		return f.transaction(ctx, node, e, nonce)
	}
	_, fragment, _ := cutKey(e.Payer)
	id, err := ParseObjectID(e.Source)
	if err != nil {
		return fate, err
	}
	object, err := node.channel(ctx, id)
	if err != nil || object == nil {
		return fate, err
	}
	sub, err := node.sub(ctx, object, fragment)
	if err != nil || sub == nil || sub.Last.Nonce < nonce {
		return fate, err
	}
	return x402.Status{State: x402.Settled, Note: fmt.Sprintf("the payee has claimed %s units up to nonce %d",
		sub.Last.Amount, sub.Last.Nonce)}, nil
}

func (f Fates) transaction(ctx context.Context, node *Rooch, e x402.Evidence,
	sequence uint64) (fate x402.Status, err error) {
	payer, err := ParseDID(e.Payer)
	if err != nil {
		return fate, err
	}
	next, err := node.sequence(ctx, payer)
	if err != nil || next <= sequence {
		return fate, err
	}
	return x402.Status{State: x402.Settled, Note: fmt.Sprintf("the account has made its transaction %d",
		sequence)}, nil
}
