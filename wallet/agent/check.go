package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mr-tron/base58"

	"x402-wallet/budget"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Rules are what the agent has to know of the owner's config.
type Rules struct {
	Budget     budget.Rules
	Schemes    []string // the ways of paying that the owner lets the wallet use
	Assets     *x402.Registry
	MaxTimeout time.Duration // the longest validity that is ever signed
	// Solana, by network: the only account to spend from, where the owner names one
	TokenAccounts map[string]string
	// EVM, by network: the owner's vault, which may be spent from besides the agent's own account
	Vaults map[string]string
	// EVM, by network: the owner's account that a float may be taken from
	Allowances map[string]x402.AllowanceRule
	// EVM, by network: the most that an approval of Permit2 by a transaction may cost, in wei; missing: none
	// is signed
	ApprovalGas map[string]money.Amount
	// KnowsFacilitator reports whether an address is one that the owner's facilitators settle from; nil:
	// none is
	KnowsFacilitator func(ctx context.Context, network, address string) bool
	// how long the money of a channel may take to come back, at most (batch-settlement)
	ChannelDelay time.Duration
	// Status asks the nodes of these very rules what became of a payment, and Height one of Solana's
	// how many blocks it has. Only the unlock agent needs them.
	Status func(ctx context.Context, e x402.Evidence) (x402.Status, error)
	Height func(ctx context.Context, network string) (uint64, error)
	// MayPay asks the owner's program about a payment before its signature is recorded; nil: there is none.
	// Only the unlock agent asks it, which does not know whether the process that pays did
	MayPay func(ctx context.Context, p history.Payment) error
}

// For are the rules for what an agent pays: by the account that it pays from. The owner's vaults, allowances
// and token accounts are of the wallet's own account, and only that one has payment channels.
func (r Rules) For(agent string) Rules {
	r.Budget.Account = r.Budget.Teams.Account(agent)
	if r.Budget.Account != "" {
		r.TokenAccounts, r.Vaults, r.Allowances = nil, nil, nil
		r.Schemes = slices.DeleteFunc(slices.Clone(r.Schemes), func(scheme string) bool {
			return scheme == x402.BatchSettlement
		})
	}
	return r
}

func refuse(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.PolicyDenied, "the unlock agent does not sign this: "+format, args...)
}

// signEVM signs an EIP-3009 authorization. The domain is the registry's, for the asset of the ledger's row.
func (s *Server) signEVM(ctx context.Context, q Request) ([]byte, error) {
	rules, p, asset, by, err := s.reserved(ctx, q.Payment, x402.Exact, x402.MPP)
	if err != nil {
		return nil, err
	}
	got, err := message.DecodeAuthorization(q.Authorization)
	if err != nil {
		return nil, refuse("it cannot be read")
	}
	now := s.Now().Unix()
	payer, vault := by.EVM.Address(), rules.Vaults[p.Network]
	ofVault := vault != "" && strings.EqualFold(got.From, vault)
	if ofVault {
		payer = vault
	}
	err = compare([]field{
		{name: "chain", same: x402.Namespace(p.Network) == "eip155"},
		{name: "payer", same: strings.EqualFold(got.From, payer) && strings.EqualFold(p.Source, payer)},
		{name: "payee", same: strings.EqualFold(got.To, p.PayTo)},
		{name: "amount", same: got.Value == p.Amount},
		{name: "validity", same: got.ValidAfter <= now && got.ValidBefore > now &&
			got.ValidBefore <= now+int64(rules.MaxTimeout/time.Second)},
	})
	if err != nil {
		return nil, err
	}
	if p.Scheme == x402.Allowance {
		return nil, refuse("the reserved payment moves a float, and pays nobody")
	}
	digest, err := message.Digest(asset, got)
	if err != nil {
		return nil, refuse("%v", err)
	}
	t := message.Transfer{Payment: p.ID, Asset: asset, Authorization: got, Digest: digest, OfVault: ofVault}
	signature, err := by.EVM.SignTransfer(ctx, t)
	if err != nil {
		return nil, err
	}
	return s.recorded(ctx, rules, p, history.Signed{Evidence: t.Evidence()}, q.Authorization, signature[:])
}

// recorded is a signature that may be handed out, because it is recorded.
func (s *Server) recorded(ctx context.Context, rules Rules, p history.Payment, signed history.Signed,
	message, signature []byte) ([]byte, error) {
	signed.UniqueKey = signed.Evidence.Unique()
	if err := s.Recorder.sign(ctx, rules, p, signed, message); err != nil {
		return nil, err
	}
	return signature, nil
}

// signSolana signs a transaction's message. How long it lives its blockhash says, about 90 seconds at most.
func (s *Server) signSolana(ctx context.Context, q Request) ([]byte, error) {
	rules, p, asset, by, err := s.reserved(ctx, q.Payment, x402.Exact, x402.MPP)
	if err != nil {
		return nil, err
	}
	got, err := decode.Message(q.Message)
	if err != nil {
		return nil, refuse("it is not a payment's transaction")
	}
	destination, err := decode.AssociatedAccount(p.PayTo, asset.Address, asset.Token2022)
	if err != nil {
		return nil, refuse("the payee can have no token account")
	}
	named := rules.TokenAccounts[p.Network]
	e := q.Evidence
	err = compare([]field{
		{name: "scheme", same: p.Scheme != x402.BatchSettlement},
		{name: "chain", same: x402.IsSolana(p.Network) && e.Network == p.Network},
		{name: "authority", same: got.Authority == by.Solana.Address() && e.Payer == got.Authority},
		{name: "fee payer", same: got.FeePayer != by.Solana.Address() && e.FeePayer == got.FeePayer},
		{name: "source", same: got.Source == p.Source && e.Source == p.Source &&
			(named == "" || named == p.Source)},
		{name: "payee", same: got.Destination == destination && e.Destination == destination &&
			e.PayTo == p.PayTo},
		{name: "asset", same: got.Mint == asset.Address && got.Token2022 == asset.Token2022 &&
			got.Decimals == asset.Decimals && e.Asset == asset.Address},
		{name: "amount", same: got.Amount == p.Amount && e.Amount == p.Amount},
		{name: "memo", same: e.Memo == got.Memo && e.Blockhash == got.Blockhash},
	})
	if err != nil {
		return nil, err
	}
	if err := endsSoon(ctx, rules, e, s.Now()); err != nil {
		return nil, err
	}
	signature, err := by.Solana.SignTransfer(ctx, decode.Draft{Payment: p.ID, Message: q.Message})
	if err != nil {
		return nil, err
	}
	e.Signature, e.Nonce, e.ValidBefore = base58.Encode(signature[:]), "", 0
	return s.recorded(ctx, rules, p, history.Signed{Evidence: e}, q.Message, signature[:])
}

// endsSoon refuses evidence by which a payment is good for too long. Until when it can land is not
// in its message, and is what the chain is asked by: a time far from now would have it looked for
// where it is not. One that is over already, before which nobody's word for its end is believed,
// would be no bound.
func endsSoon(ctx context.Context, rules Rules, e x402.Evidence, now time.Time) error {
	if e.ExpiresAt.Before(now) {
		return refuse("it says that it is good until %s, which is over",
			e.ExpiresAt.UTC().Format(time.RFC3339))
	}
	height, err := rules.Height(ctx, e.Network)
	if err != nil {
		return err
	}
	if e.LastValidBlockHeight > height+decode.MaxLife {
		return refuse("it says that it is good until block %d, and the chain has %d: %d more at most",
			e.LastValidBlockHeight, height, decode.MaxLife)
	}
	return nil
}

type field struct {
	name string
	same bool
}

func compare(list []field) error {
	for _, f := range list {
		if !f.same {
			return refuse("its %s is not that of the reserved payment", f.name)
		}
	}
	return nil
}

// reserved finds the payment in the ledger, waiting for its signature, made since the agent began:
// what was reserved before may have been signed by the agent before this one.
//
// It is to be paid in one of these ways. by are the keys of the account that it is paid from.
func (s *Server) reserved(ctx context.Context, id string, ways ...string) (rules Rules, p history.Payment,
	asset x402.AssetInfo, by Keys, err error) {
	if rules, p, err = s.payment(ctx, id); err != nil {
		return rules, p, asset, by, err
	}
	asset, known := rules.Assets.Asset(p.Network, p.Asset)
	switch {
	case p.State != history.Reserved:
		err = refuse("the payment is %s, not reserved", p.State)
	case p.Created.Before(s.Started):
		err = refuse("the payment was reserved before the wallet was unlocked")
	case !known:
		err = refuse("the owner does not know its asset")
	case !slices.Contains(ways, p.Scheme) || !rules.has(p.Scheme):
		err = refuse("the owner does not have it paid by its scheme, or it is another one's message")
	case worth(p, asset) != p.Price:
		err = refuse("its price in the ledger is not what its amount is worth")
	}
	if err == nil {
		by, err = s.Account(rules.Budget.Account)
	}
	return rules, p, asset, by, err
}

// has reports whether something may be signed in one of the ways of paying. A float has its own rules.
func (r Rules) has(way string) bool {
	return way == x402.Allowance || slices.Contains(r.Schemes, way)
}

// worth is the price that a payment has to have. What moves from the owner to the agent buys nothing.
func worth(p history.Payment, asset x402.AssetInfo) money.Dollars {
	if p.Scheme == x402.Allowance || p.Prepaid() {
		return 0
	}
	return asset.Dollars(p.Amount)
}

// onHost reports whether an owner's host entry covers a host, on any port.
func onHost(entry, host string) bool { return entry == host || strings.HasPrefix(host, entry+":") }

// payment is what the ledger has of a payment, and the rules it is to be seen by.
func (s *Server) payment(ctx context.Context, id string) (rules Rules, p history.Payment, err error) {
	if rules, err = s.Rules(ctx); err != nil {
		return rules, p, err
	}
	p, err = s.Store.Payment(ctx, id)
	if errors.Is(err, history.ErrNotFound) {
		return rules, p, refuse("the ledger has no such payment")
	}
	return rules.For(p.Agent), p, err
}

// expire looks by itself what became of a payment, and records that it can never settle any more.
// The caller's word is not asked for.
func (s *Server) expire(ctx context.Context, id string) error {
	rules, p, err := s.payment(ctx, id) // whoever chooses the node chooses the evidence
	if err != nil {
		return err
	}
	if p.Prepaid() { // it frees nothing: what it could spend was counted with its deposit
		_, err = s.Recorder.Expire(ctx, id, p.Evidence, history.Expiry(p, x402.Status{State: x402.Expired}))
		return err
	}
	status, err := rules.Status(ctx, p.Evidence)
	if err != nil {
		return err
	}
	if status.State != x402.Expired {
		return refuse("it can still settle, or has settled: %s", x402.Brief(status.Note))
	}
	_, err = s.Recorder.Expire(ctx, id, p.Evidence, history.Expiry(p, status))
	return err
}
