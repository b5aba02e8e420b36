package pay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// Paying through channels with a deposit (scheme batch-settlement): here it is decided what a call takes, a
// voucher alone or a deposit with it, and its money is held; batchowner.go is about those that an owner
// funds; batchbook.go keeps the book of what the seller says it charged; batchclose.go is the way out.
//
// A deposit of the agent's counts in the owner's windows in full, as any payment, from the moment it is
// held: it is money that left. Vouchers move nothing that was not deposited, so they count in no window
// again, and what comes back is not given back to the windows either. So in no window more can leave than
// its limit, whatever sellers claim. All other rules (per_call, approval, payees, rate) hold for each
// voucher at its price.

// Channels pays through channels with a deposit: evm.Channels.
type Channels interface {
	Scheme
	// Config is the channel with who asks in r, funded by payer, and its id; "": by this wallet. Of several
	// that are the same but for it salt tells which is meant: 0x and 64 hex digits, or "" for zeros. It asks
	// nobody.
	Config(r x402.Requirement, asset x402.AssetInfo, payer, salt string) (x402.ChannelConfig, string, error)
	// DepositFunds are those that the agent deposits from as r asks for it.
	DepositFunds(ctx context.Context, r x402.Requirement, asset x402.AssetInfo) (x402.Funds, error)
	// OwnVoucher reports whether a voucher of a channel is signed by this wallet.
	OwnVoucher(network, id string, v x402.ChannelVoucher) bool
	ReadChannel(ctx context.Context, network, id string) (onchain.ChannelBalance, error)
	// OwnersUsed reports whether an owner's deposit was made, or taken back.
	OwnersUsed(ctx context.Context, network string, c x402.ChannelConfig, d x402.OwnersDeposit) (bool, error)
	// DraftOwners is a deposit for an owner to sign, TypedData what they sign, and Signed the deposit with
	// their signature, if it is that.
	DraftOwners(amount money.Amount, now time.Time) (x402.OwnersDeposit, error)
	TypedData(asset x402.AssetInfo, c x402.ChannelConfig, d x402.OwnersDeposit) (json.RawMessage, error)
	Signed(asset x402.AssetInfo, c x402.ChannelConfig, d x402.OwnersDeposit, signature [65]byte) (
		x402.OwnersDeposit, error)
	Address() string
	// Refund is the payload by which a seller is asked to give back what it did not charge.
	Refund(network string, c x402.ChannelConfig, v x402.ChannelVoucher) (json.RawMessage, error)
	// VoucherAlone is a payload without its deposit, and IsBrought reports whether the chain has that.
	VoucherAlone(network string, payload json.RawMessage) (json.RawMessage, error)
	IsBrought(ctx context.Context, network string, payload json.RawMessage) (bool, error)
	// Withdrawal is the transaction that asks the rest of a channel back, or takes it: from is its payer, or
	// who signs its vouchers.
	Withdrawal(ctx context.Context, network, from string, c x402.ChannelConfig, b onchain.ChannelBalance) (
		onchain.OwnerTransaction, error)
}

// ChannelBook is the ledger's part about channels: locks.Book. One call at a time uses a channel, of all
// processes, from before its money is held until its end is written down: LockChannel.
type ChannelBook interface {
	LockChannel(ctx context.Context, service, key string) (unlock func(), err error)
	Channel(ctx context.Context, service, key string) (history.Channel, error)
	BatchChannels(ctx context.Context) ([]history.Channel, error)
	BatchChannelsWith(ctx context.Context, host string) ([]history.Channel, error)
	SaveChannel(ctx context.Context, c history.Channel) error
}

// fewCalls is how many calls a deposit is for where the seller names no least one.
const fewCalls = 10

type batchPlan struct {
	price  money.Amount // of the call
	row    history.Channel
	order  onchain.ChannelOrder
	unlock func()
}

func (o option) isBatch() bool { return o.Scheme == x402.BatchSettlement }

// batchState is what a plan is made of.
type batchState struct {
	price      money.Amount
	minDeposit money.Amount
	most       money.Amount // that may be deposited now, in the token's atomic units
	promised   money.Amount // the highest voucher that was signed
	charged    money.Amount // what the seller has charged, as far as that binds us
	book       history.BatchBook
}

var (
	errDepositOpen = errors.New("a deposit is on its way")
	errTooLittle   = errors.New("what may be deposited is too little")
)

// plan is the next voucher and deposit. It is pure. While it is not known whether earlier vouchers were
// charged, they count as charged: of two the higher one says so. With errTooLittle deposit is the least that
// would do.
//
// A deposit is the price at least, also where less is missing: the owner's rules and a batch's ceiling are
// asked about the deposit, and the voucher beside it is worth the price.
func (s batchState) plan() (ceiling, deposit money.Amount, err error) {
	ceiling, fits := s.base().Add(s.price)
	if !fits {
		return ceiling, deposit, errTooLittle
	}
	holds := s.book.Holds()
	if ceiling.Cmp(holds) <= 0 {
		return ceiling, deposit, nil
	}
	if s.book.Deposit != nil {
		return ceiling, deposit, errDepositOpen
	}
	least := ceiling.SubFloor(holds)
	for _, other := range []money.Amount{s.minDeposit, s.price} {
		if other.Cmp(least) > 0 {
			least = other
		}
	}
	deposit = least
	if s.minDeposit.IsZero() {
		for range fewCalls - 1 {
			more, fits := deposit.Add(s.price)
			if !fits || more.Cmp(s.most) > 0 {
				break
			}
			deposit = more
		}
	}
	if least.Cmp(s.most) > 0 {
		return ceiling, least, errTooLittle
	}
	return ceiling, deposit, nil
}

// base is what counts as charged.
func (s batchState) base() money.Amount {
	if len(s.book.Vouchers) > 0 && s.promised.Cmp(s.charged) > 0 {
		return s.promised
	}
	return s.charged
}

// reserveBatch holds the money of an option of this scheme: its channel is this call's until the purchase
// ends. o becomes what is held, so that a person who is asked about it is asked about that.
func (e *Engine) reserveBatch(ctx, caller context.Context, q intent, o *option, found *quote) (p *Purchase,
	err error) {
	id := o.owners
	if id == "" {
		_, id, err = e.Channels.Config(o.Requirement, o.asset, "", channelSalt(q.agent))
		if err != nil {
			return nil, err
		}
	}
	unlock := found.takeChannel(id)
	if unlock == nil {
		unlock, err = e.lockChannels(ctx, o.Network, q.host, id)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	w, err := e.proposeBatch(ctx, q, o, true)
	if err != nil {
		return nil, err
	}
	w.sessionCap, w.hold.Resume, w.many = e.sessionCapOnce(ctx), q.IdempotencyKey == "", q.many
	o.batch.unlock = unlock
	w.option = *o
	p, err = e.holdFor(ctx, caller, w)
	var lack *history.ShortOfFunds
	if errors.As(err, &lack) {
		return nil, e.insufficient(*o, w.hold.Funds, lack)
	}
	return p, err
}

// lockChannels waits for its turn with the channels of a host, because what lies with a seller is added up,
// and then with the channel that is used, because a voucher builds on the one before: other hosts of the same
// seller have it, too.
func (e *Engine) lockChannels(ctx context.Context, network, host, id string) (unlock func(), err error) {
	ofHost, err := e.ChannelBook.LockChannel(ctx, "batch-settlement "+network, host)
	if err == nil {
		var ofChannel func()
		ofChannel, err = e.ChannelBook.LockChannel(ctx, id, e.Channels.Address())
		if err == nil {
			return sync.OnceFunc(func() { ofChannel(); ofHost() }), nil
		}
		ofHost()
	}
	if ctx.Err() != nil {
		return nil, x402.Errorf(x402.Timeout, "other calls to the seller use its channel, one at a time").
			WithHint("make the same call again; nothing was held or signed for it")
	}
	return nil, err
}

// keptChannel is a locked channel whose seller refused a voucher and counts from another sum. The second try
// of the same call goes on with it. Were it unlocked in between, another call could promise less than the
// refused voucher did, and the second try would promise its price on top of both.
type keptChannel struct {
	id     string
	unlock func()
}

// keepChannel keeps the channel of a purchase that ends, for the second try.
func (q *quote) keepChannel(p *Purchase) {
	q.kept = &keptChannel{p.option.batch.row.ID, p.unlock}
	p.unlock = nil
}

// takeChannel returns the unlock function of the kept channel if it is the one with this id. Another one is
// unlocked, so that no call waits for one channel while it holds another. It returns nil if none is kept.
func (q *quote) takeChannel(id string) (unlock func()) {
	if q.kept != nil && q.kept.id == id {
		unlock, q.kept = q.kept.unlock, nil
	}
	q.releaseChannel()
	return unlock
}

func (q *quote) releaseChannel() {
	if q.kept != nil {
		q.kept.unlock()
		q.kept = nil
	}
}

// proposeBatch decides what a call takes of its channel. Without save nothing is written, and no payment is
// looked up.
func (e *Engine) proposeBatch(ctx context.Context, q intent, o *option, save bool) (*proposal, error) {
	if o.batch != nil { // it was decided on before
		o.Amount, o.price = o.batch.price, o.asset.Dollars(o.batch.price)
	}
	row, book, changed, err := e.openBatch(ctx, q, o, save)
	if err != nil {
		return nil, err
	}
	asked, err := channelterms.Of(o.Requirement)
	if err != nil {
		return nil, err
	}
	signed, _, err := row.Batch()
	if err != nil {
		return nil, err
	}
	state := batchState{price: o.Amount, minDeposit: asked.MinDeposit, promised: row.Amount,
		charged: row.Claimed, book: book}
	if signed.IsOwners() {
		return e.proposeOwners(q, o, row, state)
	}
	room, lies, err := e.roomWith(ctx, q.host, row)
	if err != nil {
		return nil, err
	}
	state.most = o.asset.Units(min(room, e.Rules.PerCall))
	if offered := q.limit.units(o.asset); offered != nil && offered.Cmp(state.most) < 0 {
		state.most = *offered
	}
	ceiling, deposit, err := state.plan()
	switch {
	case errors.Is(err, errDepositOpen):
		return nil, e.depositOpen(ctx, *o, book)
	case err != nil:
		return nil, e.depositTooMuch(q, *o, deposit, room, lies)
	}
	o.batch = &batchPlan{price: o.Amount, row: row, order: onchain.ChannelOrder{Config: signed.Config,
		Salt: channelSalt(q.agent), Number: row.Nonce + 1, Ceiling: ceiling, Deposit: deposit,
		Shown: book.Shown}}
	worth := o.price
	if deposit.IsZero() {
		left := book.Holds().SubFloor(row.Claimed)
		funds := x402.Funds{Source: row.Source, Balance: left, Free: left, ReadAt: e.Now()}
		p := payment(q, *o, funds)
		p.Price = 0 // it was counted with its deposit
		w := e.propose(p, *o, funds)
		w.ask.Price, w.ask.Prepaid, w.ask.Always = worth, true, changed
		w.quotes = [][sha256.Size]byte{terms(priced(p, *o), *o)} // as a person is asked
		return w, nil
	}
	funds, err := e.Channels.DepositFunds(ctx, o.Requirement, o.asset)
	if err != nil {
		return nil, err
	}
	o.Amount, o.price = deposit, o.asset.Dollars(deposit)
	funds = o.within(funds)
	w := e.propose(payment(q, *o, funds), *o, funds)
	w.ask.Always = changed
	return w, nil
}

// openBatch is the channel that an option is paid through, with its book brought up to date: as it is known,
// or, where it is not, as the chain has it. changed says what a person has to be asked about: that a seller
// with which there is a channel wants another one.
func (e *Engine) openBatch(ctx context.Context, q intent, o *option, save bool) (row history.Channel,
	book history.BatchBook, changed string, err error) {
	if o.owners != "" {
		row, book, err = e.openOwners(ctx, o.owners, save)
		return row, book, "", err
	}
	config, id, err := e.Channels.Config(o.Requirement, o.asset, "", channelSalt(q.agent))
	if err != nil {
		return row, book, "", err
	}
	row, err = e.ChannelBook.Channel(ctx, id, e.Channels.Address())
	switch {
	case errors.Is(err, history.ErrNotFound):
		chain, err := e.Channels.ReadChannel(ctx, o.Network, id)
		if err != nil {
			return row, book, "", err
		}
		row = newBatchRow(q.host, o.Network, id, config, chain)
	case err != nil:
		return row, book, "", err
	}
	signed, book, err := row.Batch()
	if err != nil {
		return row, book, "", err
	}
	if signed.Config != config {
		return row, book, "", x402.Errorf(x402.LedgerCorrupt, "the channel %s has another config", row.ID)
	}
	if changed, err = e.otherChannel(ctx, q.host, row, config); err != nil {
		return row, book, "", err
	}
	if save {
		if row, book, err = e.updateBook(ctx, row, book); err != nil {
			return row, book, "", err
		}
		row.Server = q.host
		if err := e.ChannelBook.SaveChannel(ctx, row.WithBook(book)); err != nil {
			return row, book, "", err
		}
	}
	if book.Stopped != "" {
		return row, book, "", e.stopped(row, book)
	}
	return row.WithBook(book), book, changed, nil
}

// newBatchRow is a channel that the ledger does not know. What the chain knows of it was promised by a lost
// ledger's wallet: no less was charged.
func newBatchRow(host, network, id string, config x402.ChannelConfig,
	chain onchain.ChannelBalance) history.Channel {
	book := history.BatchBook{Funds: chain.Balance, Block: chain.Block}
	if !chain.WithdrawBegan.IsZero() {
		book.Stopped = withdrawn
	}
	signed := history.BatchSigned{Config: config}
	row := history.Channel{Service: id, Key: config.PayerAuthorizer, Server: host, Network: network,
		Source: config.Payer, ID: id, Amount: chain.Claimed, Claimed: chain.Claimed}
	if signed.IsOwners() {
		row.Source = id
	}
	return row.WithSigned(signed).WithBook(book)
}

// otherChannel says what differs from the newest channel with the same seller that still holds money; "":
// nothing, or there is none. Of a channel that was signed in nobody is asked again.
func (e *Engine) otherChannel(ctx context.Context, host string, row history.Channel,
	config x402.ChannelConfig) (string, error) {
	if row.Nonce > 0 {
		return "", nil
	}
	rows, err := e.ChannelBook.BatchChannels(ctx)
	if err != nil {
		return "", err
	}
	for _, other := range rows {
		signed, book, err := other.Batch()
		if err != nil || other.Server != host || other.ID == row.ID || other.Network != row.Network ||
			signed.Config.Token != config.Token || book.Holds().Cmp(other.Claimed) <= 0 || signed.IsOwners() {
			continue
		}
		if what := differs(signed.Config, config); what != "" {
			return "there is a channel with " + x402.Brief(host) + " that still holds money, and it " +
				"wants a deposit in another one: " + what, nil
		}
	}
	return "", nil
}

// differs is the first difference of two channels in what a seller asks, as a person is told it; "": none.
func differs(was, is x402.ChannelConfig) string {
	for _, field := range []struct{ name, was, is string }{
		{"receiver", was.Receiver, is.Receiver},
		{"receiverAuthorizer", was.ReceiverAuthorizer, is.ReceiverAuthorizer},
		{"withdrawDelay", delay(was), delay(is)},
		{"token", was.Token, is.Token},
	} {
		if field.was != field.is {
			return field.name + " was " + field.was + " and is " + field.is
		}
	}
	return ""
}

func delay(c x402.ChannelConfig) string {
	return (time.Duration(c.WithdrawDelay) * time.Second).String()
}

// roomWith is how much more may be deposited with a host, in dollars: what policy.channel_deposit leaves of
// what lies in its channels. Whoever asks for a new channel each time gets no more by that.
func (e *Engine) roomWith(ctx context.Context, host string, row history.Channel) (room, lies money.Dollars,
	err error) {
	rows, err := e.ChannelBook.BatchChannels(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, other := range rows {
		signed, _, err := other.Batch()
		if err != nil {
			return 0, 0, err
		}
		if (other.Server != host && other.ID != row.ID) || signed.IsOwners() {
			continue
		}
		asset, left, err := e.leftIn(other)
		if err != nil {
			return 0, 0, err
		}
		lies = lies.Add(asset.Dollars(left))
	}
	return e.Policy.ChannelDeposit.SubFloor(lies), lies, nil
}

// leftIn is what lies in a channel and was not charged, with a deposit that is on its way.
func (e *Engine) leftIn(row history.Channel) (asset x402.AssetInfo, left money.Amount, err error) {
	signed, book, err := row.Batch()
	if err != nil {
		return asset, left, err
	}
	asset, known := e.Assets.Asset(row.Network, signed.Config.Token)
	if !known {
		return asset, left, x402.Errorf(x402.UntrustedAsset, "the token of the channel with %s is no longer "+
			"in config.toml", x402.Brief(row.Server))
	}
	left = book.Holds().SubFloor(row.Claimed)
	if book.Deposit != nil {
		left, _ = left.Add(book.Deposit.Amount)
	}
	return asset, left, nil
}

// depositTooMuch refuses a deposit that is above what the owner, or the caller, allows.
func (e *Engine) depositTooMuch(q intent, o option, least money.Amount, room, lies money.Dollars) error {
	wants := o.asset.Dollars(least)
	if wants <= room && wants <= e.Rules.PerCall {
		if asked, most, ok := q.limit.allows(least, wants); !ok {
			return x402.Errorf(x402.AmountExceedsMax, "the seller is paid from a deposit of %s at least, "+
				"which is above maxAmount %s", wants.Price(), inDollars(o.asset, most)).
				WithHint("with maxAmount %q the first call deposits; what calls do not use can be asked back",
					asked).
				WithDetail("requested", asked).WithDetail("maxAmount", most).
				WithNext(x402.Next{Do: x402.Change, Why: "the very same call is refused again; if the " +
					"limit is the person's, ask them before you offer more",
					Say: "It wants a deposit of " + wants.Price() + ", above the limit of " +
						inDollars(o.asset, most) + " that was set for it: may I deposit that?"})
		}
	}
	if wants > e.Rules.PerCall {
		return e.Rules.CheckCall(q.agent, wants)
	}
	needed := lies.Add(wants)
	return x402.Errorf(x402.PolicyDenied, "the seller is paid from a deposit of %s at least, %s lies with "+
		"it already, and the owner lets %s lie with one seller", wants.Price(), lies.Price(),
		e.Policy.ChannelDeposit.Price()).
		WithHint("channel_deposit = %q under [policy] would pass", needed.String()).
		WithDetail("layer", "channel_deposit").WithDetail("limit", e.Policy.ChannelDeposit).
		WithDetail("spent", lies).WithDetail("requested", wants).WithDetail("needed", needed).
		WithCommand(x402.Command("policy", "seal"), x402.Brief(q.host)+" wants a deposit of "+
			wants.Price()+": please set channel_deposit = \""+needed.String()+"\" under [policy] in "+
			"config.toml, and seal the rules, if so much may lie with it.")
}

// depositOpen refuses a call that needs a deposit while another one is on its way.
func (e *Engine) depositOpen(ctx context.Context, o option, book history.BatchBook) error {
	refused := x402.Errorf(x402.InsufficientFunds, "a deposit into the channel with the seller is on its "+
		"way, and what is in it does not cover the price %s", o.price.Price()).
		WithHint("make the same call again when the chain has it, or shows that it cannot have it any more").
		WithDetail("deposit", book.Deposit.Amount)
	refused.FixedBy, refused.PaymentID = x402.ByTime, book.Deposit.Payment
	until := e.Now().Add(minWait)
	if p, err := e.Store.Payment(ctx, book.Deposit.Payment); err == nil && p.Evidence.ExpiresAt.After(until) {
		until = p.Evidence.ExpiresAt
	}
	return refused.WaitUntil(until, "")
}

// minWait is how long a deposit takes to be final, about.
const minWait = time.Minute

// stopped refuses whatever would be signed in a channel whose seller did not keep to its terms, or whose
// money was asked back.
func (e *Engine) stopped(row history.Channel, book history.BatchBook) error {
	command := x402.Command("channel", "withdraw", row.Server)
	return x402.Errorf(x402.PolicyDenied, "nothing more is signed in the channel with %s: %s",
		x402.Brief(row.Server), book.Stopped).
		WithHint("the owner gets back what is left in it by: %s", command).
		WithDetail("channel", row.ID).
		WithCommand(command, "The channel with "+x402.Brief(row.Server)+" is stopped ("+book.Stopped+
			"): please ask back what is left in it.")
}

// wouldPassBatch is wouldPass of an option of this scheme.
func (e *Engine) wouldPassBatch(ctx context.Context, q intent, o option, chain reader) error {
	w, err := e.proposeBatch(ctx, q, &o, false)
	if err != nil {
		return err
	}
	if funds := w.hold.Funds; o.Amount.Cmp(funds.Free) > 0 {
		return e.insufficient(o, funds, &history.ShortOfFunds{Free: funds.Free, Wanted: o.Amount})
	}
	w.hold.Payment.IdempotencyKey = "" // whose it is makes no difference to what it costs
	w.sessionCap = chain.newCap
	return e.decide(ctx, w)
}
