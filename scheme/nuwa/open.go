package nuwa

import (
	"cmp"
	"context"
	"errors"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// open opens the channel for our key, or lets our key into it, with a deposit after that where one
// is wanted. It is a spend: a person is always asked, its most is held in the owner's budgets, and
// it is bounded by deposit_cap. What is counted is the deposit and the most that the chain may take
// as its fee, by its own estimate. A deposit counts here and again call by call: budgets are used up too
// early rather than too late. The caller holds the channel's lock.
func (m *Manager) open(ctx context.Context, s *service, deposit money.Amount) error {
	// The transactions of one account are numbered, whichever channel they are for.
	unlock, err := m.Store.LockChannel(ctx, "account", s.payer.did())
	if err != nil {
		return err
	}
	defer unlock()
	var put Transaction
	if !deposit.IsZero() { // whether it may be is known before anything is asked or opened
		put, err = m.prepare(ctx, s, depositToHub(s.payer, deposit), deposit)
		if err != nil {
			return err
		}
	}
	if err := m.authorizeKey(ctx, s); err != nil || deposit.IsZero() {
		return err
	}
	return m.spend(ctx, s, schemeDeposit, put, deposit)
}

// authorizeKey opens the channel, or lets our key into one that is open; where it is in, it does
// nothing.
func (m *Manager) authorizeKey(ctx context.Context, s *service) error {
	onChain, err := s.node.channel(ctx, s.channelID())
	if err != nil {
		return err
	}
	t := openChannel(s.payee, s.key.Fragment)
	if onChain != nil {
		if sub, err := s.node.subChannel(ctx, onChain, s.key.Fragment); err != nil || sub != nil {
			return err
		}
		t = authorizeKey(s.channelID(), s.key.Fragment)
	}
	t, err = m.prepare(ctx, s, t, money.Amount{})
	if err != nil {
		return err
	}
	return m.spend(ctx, s, schemeOpen, t, money.Amount{})
}

// feeStep is what a fee's limit is rounded up to: a person who approved one is not asked again because
// the next estimate is a little higher. It is a hundredth of a cent.
const feeStep = 1_000_000

// prepare numbers a transaction, and limits its fee to what the chain says that it takes, and half as much
// again: what it takes changes with the chain's state. A node that does not say leaves the most there is.
// What the chain would undo, or the owner's deposit_cap does not let pass, ends here, before it costs
// anything.
func (m *Manager) prepare(ctx context.Context, s *service, t Transaction, deposit money.Amount) (Transaction,
	error) {
	var err error
	t.Sender, t.ChainID = s.payer, s.node.chainID()
	t.Sequence, err = s.node.sequence(ctx, s.payer)
	if err != nil {
		return t, err
	}
	fee, err := s.node.dryRun(ctx, t)
	switch {
	case errors.Is(err, errAborted):
		return t, x402.Errorf(x402.PaymentRejected, "%s; nothing was sent or paid", err.Error()).
			WithHint("%s", abortedHint)
	case err != nil:
		m.Log.Warn("no estimate of a transaction's fee; its most is counted", "network", s.node.Network,
			"err", err)
	case fee < maxGas:
		t.MaxGas = min(maxGas, (fee+fee/2+feeStep-1)/feeStep*feeStep)
		t.MaxGas = max(t.MaxGas, feeStep)
	}
	return t, m.checkDepositCap(deposit, money.NewAmount(t.MaxGas))
}

const abortedHint = "the DID needs a document on the chain, RGas for the fee, and for a deposit what is " +
	"deposited"

// spend makes one transaction, as every payment is made: held, signed, on disk, sent, judged by the
// chain.
func (m *Manager) spend(ctx context.Context, s *service, scheme string, t Transaction,
	deposit money.Amount) error {
	rgas := assetRGas(s.node.Network)
	most, _ := deposit.Add(money.NewAmount(t.MaxGas))
	limit := rgas.Units(m.DepositCap) // of all that is under way
	var q pay.Request
	q.Method, q.URL, q.Body = "CHANNEL/OPEN", m.Servers[s.server].Endpoint, []byte(scheme)
	c, err := m.Engine.NewCharge(ctx, q)
	if err != nil {
		return err
	}
	c = c.At(s.node.Network, s.payee.did())
	c.Scheme, c.Asset, c.Amount = scheme, rgas, most
	c.Always = whyAsked(s, rgas, deposit)
	c.Funds = x402.Funds{Source: s.payer.String(), Balance: limit, Free: limit, ReadAt: m.Now()}
	held, err := m.Engine.Reserve(ctx, c)
	if err != nil {
		return err
	}
	defer held.End(false)
	payment := held.Payment
	if err := held.MaySign(ctx); err != nil {
		return held.NotSent(ctx, err)
	}
	raw, id, signed, err := m.signTransaction(ctx, s, c, t)
	if err == nil {
		err = held.Submit(ctx, signed)
	}
	if err != nil {
		return held.NotSent(ctx, err)
	}
	// what is sent is recorded, whoever goes away; the node bounds its answer
	ctx = context.WithoutCancel(ctx)
	hash, err := s.node.execute(ctx, raw)
	o := executed(hash, err)
	o.ReleaseLease, o.ClearWaiter = true, true
	o.Transaction = cmp.Or(o.Transaction, id)
	if _, saving := m.Store.Finish(ctx, payment.ID, o); saving != nil {
		m.Log.Error("record a transaction", "payment", payment.ID, "err", saving)
	}
	if err == nil {
		return nil
	}
	coded := x402.Errorf(x402.OutcomeUnknown, "nobody knows whether the chain took the transaction: %w", err)
	if errors.Is(err, errAborted) {
		coded = x402.Errorf(x402.PaymentRejected, "%s", err.Error()).
			WithHint("%s", abortedHint)
	}
	coded.PaymentID, coded.Spent = payment.ID, most.String()
	return coded
}

func (m *Manager) checkDepositCap(deposit, fee money.Amount) error {
	rgas := assetRGas("")
	most, _ := deposit.Add(fee)
	price, alone := rgas.Dollars(most), rgas.Dollars(fee)
	if price <= m.DepositCap {
		return nil
	}
	hint := "how much a channel may take is the owner's to say"
	if m.DepositCap > alone {
		hint = "a deposit of " + (m.DepositCap - alone).Price() + " passes; " + hint
	}
	return x402.Errorf(x402.PolicyDenied,
		"it may take %s with the chain's fee, above the owner's deposit_cap of %s",
		price.Price(), m.DepositCap.Price()).
		WithHint("%s", hint).WithDetail("limit", m.DepositCap).WithDetail("requested", price).
		WithCommand(x402.Command("policy", "seal"), "Opening the payment channel may take "+price.Price()+
			", above your deposit_cap of "+m.DepositCap.Price()+": please raise deposit_cap under [channel] "+
			"in config.toml, and seal it, if you want that.")
}

// whyAsked is what a person is asked about.
func whyAsked(s *service, rgas x402.AssetInfo, deposit money.Amount) string {
	if deposit.IsZero() {
		return "a payment channel would be opened to " + s.payee.did()
	}
	return rgas.Dollars(deposit).Price() + " would be put into the payment hub of " + s.payer.did()
}

// executed says what the node's answer means. Who runs the node is the owner's choice, so its word
// is the chain's.
func executed(hash string, err error) history.Outcome {
	if err != nil && !errors.Is(err, errAborted) {
		return history.Outcome{State: history.Unknown, Note: "the node did not say what became of it"}
	}
	o := history.Outcome{State: history.Settled, Proof: history.Chain, Transaction: x402.Brief(hash)}
	if err != nil { // its fee is gone all the same
		o.Note = x402.Brief(err.Error())
	}
	return o
}

// signTransaction signs a call, as it will be kept and sent. raw is what a node takes.
func (m *Manager) signTransaction(ctx context.Context, s *service, c pay.Charge, t Transaction) (
	raw, id string, signed history.Signed, err error) {
	t.Sequence, err = s.node.sequence(ctx, s.payer) // a deposit's is one more, where the channel was opened
	if err != nil {
		return "", "", signed, err
	}
	signature, err := m.Keys.SignTransaction(ctx, s.key, t.data(), t)
	if err != nil {
		return "", "", signed, err
	}
	raw, id = t.raw(s.key.Fragment, signature), t.id().String()
	signed = history.Signed{UniqueKey: c.Network + " " + id, Evidence: x402.Evidence{
		Network: c.Network, Asset: coinRGas, Payer: s.payer.did(), PayTo: c.PayTo, Amount: c.Amount,
		Nonce: decimal(t.Sequence), Source: s.channelID().String(), Memo: t.Function,
		Destination: s.key.Fragment,
	}}
	signed.Payload, err = compact(raw)
	if err == nil {
		signed.Requirement, err = compact(map[string]string{"function": t.Function, "payee": s.payee.did()})
	}
	return raw, id, signed, err
}
