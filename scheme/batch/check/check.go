// Package check decides whether a voucher of the scheme batch-settlement may be signed, and the deposit that
// may go with it.
//
// What must stay true: a voucher promises no more than was promised in its channel before and the payment's
// price. What was promised before is what the last sealed voucher promised, or an older voucher of this key,
// or what the chain shows as claimed; a channel's row is no proof of it. A deposit is the whole amount that
// the payment holds. In a channel that an owner funds a raise counts at its price, and the owner's seal says
// that they fund it.
package check

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	permit2 "x402-wallet/scheme/permit2/check"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Check is a signing.Check.
type Check struct {
	// MaxDelay is how long the money of a channel may take to come back.
	MaxDelay time.Duration
	// Claimed asks the chain how much of a channel was claimed.
	Claimed func(ctx context.Context, network, channel string) (money.Amount, error)
	// Permits decides about the approval that goes with a deposit by Permit2. MayPermit says whether the
	// owner's rules have Permit2 at all.
	Permits   permit2.Check
	MayPermit bool
	// FundedByOwner reports whether the owner sealed that they fund a channel.
	FundedByOwner func(ctx context.Context, c history.Channel, seal []byte) (bool, error)
}

// Voucher is what is to be signed, as it is given to who signs.
type Voucher struct {
	Config  x402.ChannelConfig   `json:"config"`
	Ceiling money.Amount         `json:"ceiling"`
	Deposit *Deposit             `json:"deposit,omitempty"` // of the payment's amount
	Shown   *x402.ChannelVoucher `json:"shown,omitempty"`   // an older voucher of this key
}

type Deposit struct {
	ValidBefore int64  `json:"validBefore"`
	Salt        []byte `json:"salt"`
	// ByPermit2 says that it is one by Permit2, with that one's approval.
	ByPermit2 bool `json:"permit2,omitempty"`
	permit2.Approval
}

// Encode is the form that Check reads.
func Encode(m message.Channel) ([]byte, error) {
	v := Voucher{Config: m.Config, Ceiling: m.Ceiling, Shown: m.Shown}
	if d := m.Deposit; d != nil {
		v.Deposit = &Deposit{ValidBefore: d.ValidBefore, Salt: d.Salt[:], ByPermit2: d.ByPermit2,
			Approval: permit2.ApprovalOf(d.Approval, d.Transaction)}
	}
	return json.Marshal(v)
}

func (c Check) Read(ctx context.Context, q signing.Question) (signing.Message, error) {
	var asked Voucher
	if !q.Account.IsOwn() {
		return nil, signing.Refuse("only the wallet's own account has channels")
	}
	err := x402.DecodeStrict(q.Message, message.MaxPayload, &asked)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	id, err := message.ChannelID(q.Payment.Network, asked.Config)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	row, err := q.Ledger.Channel(ctx, id.Hex(), q.Account.EVM)
	if errors.Is(err, history.ErrNotFound) {
		return nil, signing.Refuse("the ledger has no such channel")
	}
	if err != nil {
		return nil, err
	}
	p := q.Payment
	v := voucher{check: c, payment: p, row: row, Channel: message.Channel{Payment: p.ID,
		Asset: q.Asset, Config: asked.Config, Number: row.Nonce + 1, Ceiling: asked.Ceiling,
		Amount: p.Amount}}
	if d := asked.Deposit; d != nil && len(d.Salt) == len(message.Deposit{}.Salt) {
		v.Deposit = &message.Deposit{Value: p.Amount, ValidBefore: d.ValidBefore, Salt: [32]byte(d.Salt),
			ByPermit2: d.ByPermit2, Transaction: d.Transaction}
		if err := v.readApproval(d.Approval); err != nil {
			return nil, err
		}
	}
	v.Basis = signing.Basis{Asks: q.Costs(), Bytes: q.Message}
	if isPrepaid := p.Price == 0 && v.Deposit == nil; isPrepaid { // Bound decides whether it may be
		v.Asks.Counts = 0
	}
	if s := asked.Shown; s != nil && message.IsOwnVoucher(p.Network, id, *s, q.Account.EVM) {
		v.proven = s.Ceiling
	}
	if err := v.compare(q); err != nil {
		return nil, err
	}
	isFirst := row.Nonce == 0 && !row.Amount.IsZero()
	if isFirst { // the row says that a lost ledger promised something
		if err := v.readClaimed(ctx); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// readApproval reads the approval of a deposit: of exactly what that brings, and by Permit2 alone.
func (v *voucher) readApproval(asked permit2.Approval) error {
	d := v.Deposit
	if !d.ByPermit2 && asked != (permit2.Approval{}) {
		return signing.Refuse("it approves a deposit that is not by Permit2")
	}
	a, err := d.Permit(v.payment.Network, v.Config)
	if err == nil {
		d.Approval, err = v.check.Permits.Approves(v.payment.Network, a, asked)
	}
	return err
}

// voucher is a voucher that was compared with its payment.
type voucher struct {
	signing.Basis
	message.Channel
	check   Check
	payment history.Payment
	row     history.Channel
	price   money.Amount // what the seller asks for the call
	proven  money.Amount // promised before by a voucher of this key, or claimed on the chain
}

func (v voucher) isOwners() bool { return v.Config.Payer != v.Config.PayerAuthorizer }

// compare compares a voucher with its payment and with its channel's row.
func (v *voucher) compare(q signing.Question) error {
	known, book, err := v.row.Batch()
	if err != nil {
		return err
	}
	p, isDeposit := v.payment, v.Deposit != nil
	asked, err := x402.DecodeRequirement(p.Requirement, 2)
	if err != nil {
		return signing.Refuse("what the seller asked cannot be read")
	}
	v.price = asked.Amount
	source, mayDeposit := q.Account.EVM, p.Price > 0
	if v.isOwners() {
		source, mayDeposit = v.row.ID, false
	}
	return signing.Compare(
		signing.Is("scheme", asked.Scheme == p.Scheme),
		signing.Is("payer", v.Config.PayerAuthorizer == q.Account.EVM),
		signing.Is("payee", signing.SameAddress(v.Config.Receiver, p.PayTo)),
		signing.Is("asset", signing.SameAddress(v.Config.Token, p.Asset)),
		signing.Is("channel", known.Config == v.Config && v.row.Network == p.Network &&
			v.row.Server == p.Host && v.row.ID == v.row.Service && book.Stopped == ""),
		signing.Is("delay", time.Duration(v.Config.WithdrawDelay)*time.Second <= v.check.MaxDelay),
		signing.Is("source", p.Source == source && mayDeposit == isDeposit),
		signing.Is("amount", p.Amount == asked.Amount ||
			(isDeposit && p.Amount.Cmp(asked.Amount) > 0)),
		signing.Is("sum", v.raise(v.row.Amount).Cmp(asked.Amount) <= 0),
		signing.Is("way", !isDeposit || v.Deposit.ByPermit2 == asked.ByPermit2()),
		signing.Is("scheme", !isDeposit || !v.Deposit.ByPermit2 || v.check.MayPermit),
		signing.Is("validity", !isDeposit || q.Lives(v.Deposit.ValidBefore)))
}

// raise is what a voucher promises beyond what was promised, or proven, before.
func (v *voucher) raise(promised money.Amount) money.Amount {
	if v.proven.Cmp(promised) > 0 {
		promised = v.proven
	}
	return v.Ceiling.SubFloor(promised)
}

// readClaimed asks the chain what was claimed in the channel: that was promised by this key.
func (v *voucher) readClaimed(ctx context.Context) error {
	claimed, err := v.check.Claimed(ctx, v.payment.Network, v.row.ID)
	if err == nil && claimed.Cmp(v.proven) > 0 {
		v.proven = claimed
	}
	return err
}

// Bound implements signing.Bounded: the raise over the last sealed voucher is at most the price, and one that
// counts nothing raises nothing that no deposit counted for. In a channel that was never signed in nothing
// was promised but what is proven. What is sealed with the voucher is no more than that, and the voucher.
func (v voucher) Bound(ctx context.Context, s signing.Sealed) (*history.Fact, error) {
	if s.Channel == nil {
		return nil, signing.Refuse("the ledger takes no channel on with it")
	}
	promised := s.Channel.From.Amount
	if !s.Channel.IsKnown {
		promised = money.Amount{}
	}
	raise := v.raise(promised)
	if raise.Cmp(v.price) > 0 {
		return nil, signing.Refuse("it promises %s beyond what is sealed of its channel, and the price is %s",
			raise, v.price)
	}
	// What is sealed now is what the next voucher goes on from.
	if sealed := s.Channel.To.Amount; sealed.Cmp(promised) > 0 && sealed.Cmp(v.Ceiling) > 0 &&
		sealed.Cmp(v.proven) > 0 {
		return nil, signing.Refuse("its channel's row says that %s were promised, and nothing proves that",
			sealed)
	}
	if !v.isOwners() {
		return nil, nil
	}
	if !raise.IsZero() && v.payment.Price == 0 {
		return nil, signing.Refuse("it promises more than was promised in its channel, and counts nothing")
	}
	signed, _, err := v.row.Batch()
	if err != nil {
		return nil, err
	}
	isFunded, err := v.check.FundedByOwner(ctx, v.row, signed.Seal)
	if err == nil && !isFunded {
		err = x402.Errorf(x402.LedgerCorrupt,
			"that the channel %s is funded by its payer was not said by the "+
				"owner", v.row.ID)
	}
	return nil, err
}

// Sign implements signing.Message. The deposit's signature comes behind the voucher's, and its approval's
// behind that.
func (v voucher) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	of, err := PaymentChannel(v.Asset.Network, v.Config)
	if err != nil {
		return nil, err
	}
	promise, err := by.SignVoucher(ctx, of, v.Ceiling.Bytes32())
	if err != nil || v.Deposit == nil {
		return promise[:], err
	}
	if v.Deposit.ByPermit2 {
		d, err := v.PermitDraft()
		if err != nil {
			return nil, err
		}
		permits, err := permit2.Sign(ctx, by, d, &of)
		return append(promise[:], permits...), err
	}
	deposit, err := by.SignDeposit(ctx, wallet.ChannelDeposit{Channel: of, Name: v.Asset.Name,
		Version: v.Asset.Version, Value: v.Deposit.Value.Bytes32(),
		ValidBefore: uint64(v.Deposit.ValidBefore), Salt: v.Deposit.Salt})
	return append(promise[:], deposit[:]...), err
}

// Signed implements signing.Message: the channel goes on with this voucher.
func (v voucher) Signed(signatures []byte) (s history.Signed, err error) {
	s.Evidence, err = v.Evidence()
	if err != nil {
		return s, err
	}
	var deposit money.Amount
	if v.Deposit != nil {
		deposit = v.Deposit.Value
	}
	next, err := v.row.WithVoucher(v.Payment, x402.ChannelVoucher{Ceiling: v.Ceiling,
		Signature: "0x" + hex.EncodeToString(signatures[:65])}, deposit)
	s.Channel = &next
	return s, err
}

// PaymentChannel is a channel as package wallet hashes it.
func PaymentChannel(network string, c x402.ChannelConfig) (of wallet.PaymentChannel, err error) {
	chain, ok := x402.ChainID(network)
	salt, err := hex.DecodeString(strings.TrimPrefix(c.Salt, "0x"))
	if err != nil || len(salt) != len(of.Salt) || c.WithdrawDelay < 0 || !ok {
		return of, x402.Errorf(x402.Internal, "the channel's network, salt or delay is none")
	}
	of = wallet.PaymentChannel{ChainID: chain, Receiver: c.Receiver, ReceiverAuthorizer: c.ReceiverAuthorizer,
		Token: c.Token, Delay: uint64(c.WithdrawDelay), Salt: [32]byte(salt)}
	if c.Payer != c.PayerAuthorizer {
		of.Payer = c.Payer
	}
	return of, nil
}
