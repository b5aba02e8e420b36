// Package receipt makes a payment's receipt, a JSON document that says by itself what was agreed, what
// the payer signed, who settled it and what the chain showed; and checks one without asking anybody.
//
// What must stay true: a receipt is made only of a payment whose signature is good for nothing any
// more, because a receipt carries the signed bytes; and what a check cannot show it does not claim.
//
// The wallet signs nothing but payments, so what binds a receipt is the payment's own signature. The
// URL and the content are not under it, which Verdict.Beyond says. Everything else is compared with
// the signature, with the seller's words or with what this program knows of the token. TestEveryMember
// changes each member, and lists those that are the payer's or the seller's word alone.
package receipt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// What names the document.
const (
	format  = "x402-wallet-receipt"
	version = 1
)

// MaxSize bounds a receipt that is read: a 402's option, a payload and a settlement are at most 256
// KiB each.
const MaxSize = 1 << 20

type Receipt struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	Payment Payment         `json:"payment"`
	Terms   json.RawMessage `json:"terms"`  // what the seller asked for, in its own words
	Signed  json.RawMessage `json:"signed"` // what the payer answered, with its signature
	// what the seller or facilitator said of it, in their own words
	Settlement json.RawMessage `json:"settlement,omitempty"`
	Chain      *proof          `json:"chain,omitempty"`   // what the chain showed the wallet
	Content    *fingerprint    `json:"content,omitempty"` // what was bought
}

// Payment is the payment in the wallet's words.
type Payment struct {
	ID        string       `json:"id"`
	Time      time.Time    `json:"time"`
	Status    string       `json:"status"`
	Proof     string       `json:"proof"`
	Method    string       `json:"method"`
	URL       string       `json:"url"`
	Network   string       `json:"network"`
	Asset     string       `json:"asset"`
	Symbol    string       `json:"symbol"`
	Decimals  uint8        `json:"decimals"`
	Name      string       `json:"name,omitempty"`         // EVM: the token's EIP-712 domain
	DomainVer string       `json:"tokenVersion,omitempty"` // ditto
	Token2022 bool         `json:"token2022,omitempty"`
	Amount    money.Amount `json:"amount"`
	// what was signed for, where less was charged (upto)
	UpTo        *money.Amount `json:"upTo,omitempty"`
	Price       string        `json:"price"`
	Payer       string        `json:"payer"`
	PayTo       string        `json:"payTo"`
	Transaction string        `json:"transaction"`
	Facilitator string        `json:"facilitator,omitempty"`
}

type proof struct {
	Transaction string    `json:"transaction"`
	Block       uint64    `json:"block"` // a slot on Solana
	At          time.Time `json:"at"`
	Note        string    `json:"note,omitempty"`
}

type fingerprint struct {
	Type   string `json:"type"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Whole  bool   `json:"whole"` // false: the seller sent more than was kept
}

// askChain is the command after which there may be a receipt.
var askChain = x402.Command("reconcile")

// Stored is the receipt of a payment in the ledger, with what it bought; history.ErrNotFound.
func Stored(ctx context.Context, store *history.Store, id string, assets *x402.Registry, ways Ways,
	now time.Time) (*Receipt, error) {
	p, err := store.Payment(ctx, id)
	if err != nil {
		return nil, err
	}
	var bought *history.Content
	if c, err := store.Content(ctx, id); err == nil || errors.Is(err, history.ErrContentRemoved) {
		bought = &c
	}
	return Of(p, bought, assets, ways, now)
}

// Ways say of payments why no receipt is made of them: pay.Engine.
type Ways interface {
	NoReceipt(p history.Payment) error
}

// Of is the receipt of a settled payment. An error says why there is none (yet).
func Of(p history.Payment, content *history.Content, assets *x402.Registry, ways Ways, now time.Time) (
	*Receipt, error) {
	if p.IsSignIn() {
		return nil, x402.Errorf(x402.InvalidArgument, "this is a sign-in: nothing was paid")
	}
	if p.State != history.Settled {
		e := x402.Errorf(x402.InvalidArgument, "the payment is %s; a receipt is made of settled ones",
			p.State)
		if p.State != history.Failed {
			e.WithCommand(askChain, "The chain knows what became of this payment: please have it asked.")
		}
		return nil, e
	}
	good := p.Evidence.ExpiresAt.Add(time.Minute)
	if p.Proof != history.Chain && now.Before(good) {
		return nil, x402.Errorf(x402.InvalidArgument, "the payment rests on the seller's word, and its "+
			"signature may still be good: it is not given away").
			WithHint("wait until %s, or have the chain asked", good.UTC().Format(time.RFC3339)).
			WithCommand(askChain, "So far only the seller says that this was paid: please have the chain "+
				"asked.")
	}
	if p.IsPull() {
		return nil, x402.Errorf(x402.InvalidArgument, "it moved a float from the owner's account to the "+
			"agent's, and bought nothing").WithHint("its transaction is in x402-wallet show %s", p.ID)
	}
	if err := ways.NoReceipt(p); err != nil {
		return nil, err
	}
	asset, ok := assets.Asset(p.Network, p.Asset)
	if !ok {
		return nil, x402.Errorf(x402.UntrustedAsset, "the payment's token is not in the registry any more").
			WithHint("add it under [[assets]] again")
	}
	r := &Receipt{Format: format, Version: version, Terms: p.Requirement, Signed: p.Payload,
		Settlement: p.Receipt, Payment: Payment{
			ID: p.ID, Time: p.Created.UTC(), Status: string(p.State), Proof: string(p.Proof),
			Method: p.Method, URL: p.URL, Network: p.Network, Asset: asset.Address, Symbol: asset.Symbol,
			Decimals: asset.Decimals, Name: asset.Name, DomainVer: asset.Version,
			Token2022: asset.Token2022, Amount: p.Paid(), Price: p.Worth().Price(),
			Payer: p.Evidence.Payer, PayTo: p.PayTo, Transaction: p.Transaction,
			Facilitator: p.Facilitator,
		}}
	if p.Charged != nil {
		r.Payment.UpTo = &p.Amount
	}
	if p.Proof == history.Chain {
		var status x402.Status
		if err := json.Unmarshal(p.ChainProof, &status); err != nil {
			return nil, fmt.Errorf("read the chain's proof: %w", err)
		}
		r.Chain = &proof{Transaction: status.Transaction, Block: status.Block, At: status.At.UTC(),
			Note: status.Note}
	}
	if content != nil {
		r.Content = &fingerprint{Type: content.Type, Bytes: content.Size, SHA256: content.SHA256,
			Whole: !content.Truncated}
	}
	return r, nil
}

// Check is one thing that was looked at.
type Check struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"` // of a failure
}

type Verdict struct {
	OK      bool     `json:"ok"`
	Payment Payment  `json:"payment"`
	Checks  []Check  `json:"checks"`
	Beyond  []string `json:"beyond"` // what it cannot show by itself
	// what the seller signed of it (offer-receipt), and who that was: claims, on which nothing here rests
	Seller []string `json:"seller,omitempty"`
}

type examined struct {
	Receipt
	token   x402.AssetInfo // as this program knows it, else as the receipt says
	known   bool
	payload json.RawMessage // what is signed; nil: nothing
	// the option that the payer says it is for, beside the signature; nil: version 1 does not say
	accepted json.RawMessage
}

// Verify reads a receipt and checks it. Its error means that it is no receipt.
func Verify(text []byte, builtin *x402.Registry) (Verdict, error) {
	var r examined
	refused := func(format string, args ...any) (Verdict, error) {
		return Verdict{}, x402.Errorf(x402.InvalidArgument, format, args...)
	}
	// a receipt with an unknown member says something that is not verified
	if err := wire.DecodeExact(text, MaxSize, &r.Receipt); err != nil {
		return refused("it is no receipt: %s", x402.AsError(err).Message)
	}
	if r.Format != format {
		return refused("it is no receipt of x402-wallet")
	}
	if r.Version != version {
		return refused("the receipt has version %d, this program knows %d", r.Version, version)
	}
	if r.Payment.Status != string(history.Settled) {
		return refused("the payment is not settled, so this is no receipt")
	}
	if proof := history.Proof(r.Payment.Proof); proof != history.Claimed && proof != history.Chain {
		return refused("the receipt does not say what the payment rests on")
	}
	p := r.Payment
	r.token, r.known = builtin.Asset(p.Network, p.Asset)
	if !r.known {
		r.token = x402.AssetInfo{Network: p.Network, Address: p.Asset, Symbol: p.Symbol,
			Decimals: p.Decimals, Name: p.Name, Version: p.DomainVer, Token2022: p.Token2022}
	}
	if payload, accepted, err := wire.DecodeAnswer(r.Signed); err == nil {
		r.payload, r.accepted = payload, accepted
	}
	v := Verdict{OK: true, Payment: p, Beyond: []string{
		"that the seller delivered, and what: the signature covers the money, not the URL or the content",
		"the payment's id, method, URL and content, and when it was made to the hour: they are what the " +
			"payer's wallet wrote down",
	}}
	for _, c := range []struct {
		what    string
		isThere bool // the receipt has such a part
		check   func() error
	}{
		{"the payer signed this payment", true, r.signature},
		{"the terms are the ones that were signed", true, r.terms},
		{"the token is what it is called, and the price what the amount is worth", r.known, r.worth},
		{"the settlement is of this payment", len(r.Settlement) > 0, r.settlement},
		{"the chain's proof is of this payment", r.Chain != nil || p.Proof == string(history.Chain), r.chain},
		{"the times agree", true, r.times},
	} {
		if !c.isThere {
			continue
		}
		err := c.check()
		check := Check{What: c.what, OK: err == nil}
		if err != nil {
			check.Why, v.OK = err.Error(), false
		}
		v.Checks = append(v.Checks, check)
	}
	if r.Chain == nil {
		v.Beyond = append(v.Beyond, "that the money moved: only the seller or facilitator said so")
	} else {
		v.Beyond = append(v.Beyond, fmt.Sprintf("that the chain holds the transaction: the wallet's node "+
			"showed it; look it up: %s in block %d", r.Chain.Transaction, r.Chain.Block))
	}
	if !x402.IsSolana(p.Network) {
		if _, agent, err := r.authorization(); err == nil && agent != "" {
			v.Beyond = append(v.Beyond, "that the payer, which is a contract, takes signatures of "+agent+
				": only the chain says that")
		}
	}
	v.Seller = r.attested()
	if !r.known {
		v.Beyond = append(v.Beyond, "what the token is: it is not one that this program knows by itself")
	}
	return v, nil
}

func (r *examined) signature() error {
	if r.payload == nil {
		return errors.New("nothing is signed")
	}
	if x402.IsSolana(r.Payment.Network) {
		return r.solana()
	}
	if payload.IsPermit2(r.payload) {
		return r.permit()
	}
	if x402.IsTempo(r.Payment.Network) {
		return r.onTempo()
	}
	a, _, err := r.authorization()
	switch {
	case err != nil:
		return err
	case !strings.EqualFold(a.From, r.Payment.Payer):
		return fmt.Errorf("%s signed it", a.From)
	case !strings.EqualFold(a.To, r.Payment.PayTo):
		return fmt.Errorf("what is signed pays %s", a.To)
	case a.Value.Cmp(r.Payment.Amount) != 0:
		return fmt.Errorf("what is signed is %s", a.Value)
	}
	return nil
}

func (p Payment) signedFor() money.Amount {
	if p.UpTo != nil {
		return *p.UpTo
	}
	return p.Amount
}

func (r *examined) permit() error {
	from, a, err := payload.RecoverPermit2(r.Payment.Network, r.payload)
	switch {
	case err != nil:
		return err
	case !strings.EqualFold(from, r.Payment.Payer):
		return fmt.Errorf("%s signed it", from)
	case !strings.EqualFold(a.To, r.Payment.PayTo):
		return fmt.Errorf("what is signed pays %s", a.To)
	case !strings.EqualFold(a.Token, r.token.Address):
		return fmt.Errorf("what is signed is of %s", a.Token)
	case a.Amount != r.Payment.signedFor():
		return fmt.Errorf("what is signed is %s", a.Amount)
	case r.Payment.UpTo != nil && (!a.IsUpto() || r.Payment.Amount.Cmp(a.Amount) > 0):
		return errors.New("what is signed allows no other amount")
	}
	return nil
}

// authorization is what was signed on EVM, by the payer's own key; or by agent for the owner's vault.
func (r *examined) authorization() (a message.Authorization3009, agent string, err error) {
	_, a, err = payload.Recover(r.Payment.Network, r.token, r.payload)
	if err != nil {
		if signer, ofVault, e := payload.RecoverAgent(r.Payment.Network, r.token, r.payload); e == nil {
			return ofVault, signer, nil
		}
	}
	return a, "", err
}

func (r *examined) solana() error {
	var inner struct {
		Transaction string `json:"transaction"`
	}
	if err := json.Unmarshal(r.payload, &inner); err != nil {
		return errors.New("no transaction is signed")
	}
	t, err := decode.Transaction(inner.Transaction)
	if err != nil {
		return err
	}
	own := t.Signers[1]
	destination, err := decode.AssociatedAccount(r.Payment.PayTo, r.token.Address, r.token.Token2022)
	switch {
	case err != nil:
		return err
	case own.Address != r.Payment.Payer:
		return fmt.Errorf("the payer's place in it is %s's", own.Address)
	case !own.Verified:
		return errors.New("the payer's signature is not one of it")
	case t.Mint != r.token.Address:
		return fmt.Errorf("what is signed is of %s", t.Mint)
	case t.Destination != destination:
		return errors.New("what is signed pays somebody else")
	case t.Amount.Cmp(r.Payment.Amount) != 0:
		return fmt.Errorf("what is signed is %s", t.Amount)
	}
	return nil
}

// terms compares the seller's option, of any version and protocol, with the payment.
func (r *examined) terms() error {
	t, err := wire.ReadTerms(r.Terms)
	if err != nil {
		return fmt.Errorf("they cannot be read: %w", err)
	}
	var accepted, said any
	if r.accepted != nil && (json.Unmarshal(r.accepted, &accepted) != nil ||
		json.Unmarshal(r.Terms, &said) != nil || !reflect.DeepEqual(accepted, said)) {
		return errors.New("what the payer accepted differs")
	}
	agreed := r.Payment.signedFor()
	if transfer, err := r.transfer(); err == nil { // beside which there may be the network's fee
		agreed = transfer.Total
	}
	switch {
	case t.Amount != agreed:
		return errors.New("the amount differs")
	case t.Network != r.Payment.Network:
		return errors.New("the network differs")
	case t.AssetKey() != money.NewAsset(t.Network, r.Payment.Asset):
		return errors.New("the asset differs")
	case money.NewAsset(t.Network, t.PayTo) != money.NewAsset(t.Network, r.Payment.PayTo):
		return errors.New("the payee differs")
	}
	return r.challenge(t)
}

// challenge compares the signed nonce, or on Tempo the memo, with the challenge of MPP that fixes it.
func (r *examined) challenge(t x402.Requirement) error {
	switch {
	case t.Charge == nil || x402.IsSolana(t.Network):
		return nil
	case x402.IsTempo(t.Network):
		return r.memo(t.Charge)
	}
	a, _, err := r.authorization()
	if err != nil || a.Nonce != payload.ChargeNonce(t.Charge) {
		return errors.New("another challenge was answered")
	}
	return nil
}

// worth holds what the receipt says of a token against what this program knows of it.
func (r *examined) worth() error {
	p, asset := r.Payment, r.token
	switch worth := asset.Dollars(p.Amount).Price(); {
	case p.Symbol != asset.Symbol || p.Decimals != asset.Decimals || p.Name != asset.Name ||
		p.DomainVer != asset.Version || p.Token2022 != asset.Token2022:
		return fmt.Errorf("it is %s with %d decimals", asset.Symbol, asset.Decimals)
	case worth != p.Price:
		return fmt.Errorf("it is worth %s", worth)
	}
	return nil
}

// slack is what the payer's clock and the chain's may differ, and what a payment takes:
// policy.deadline is ten minutes at most, and a Solana transaction is good for two.
const slack = time.Hour

// times compares when the payment was made, when the chain has it, and until when the signature was good.
func (r *examined) times() error {
	made, settled := r.Payment.Time, time.Time{}
	if r.Chain != nil {
		settled = r.Chain.At
	}
	// The latest that the signature can have been good: as it says, or soon after the payment was
	// made where it says no time, as on Solana, or cannot be read, which is another check's to say.
	until := made.Add(slack)
	if !x402.IsSolana(r.Payment.Network) {
		if _, a, err := payload.Recover(r.Payment.Network, r.token, r.payload); err == nil {
			until = time.Unix(a.ValidBefore, 0)
		}
		if _, a, err := payload.RecoverPermit2(r.Payment.Network, r.payload); err == nil {
			until = time.Unix(a.Deadline, 0)
		}
		if transfer, err := r.transfer(); err == nil {
			until = time.Unix(int64(transfer.ValidBefore), 0)
		}
	}
	switch {
	case !settled.IsZero() && made.After(settled.Add(slack)):
		return errors.New("the chain had it before it was made")
	case made.After(until):
		return errors.New("it was made when the signature was good no more")
	case settled.After(until):
		return errors.New("the chain had it when the signature was good no more")
	}
	return nil
}

func (r *examined) settlement() error {
	s, err := wire.DecodeReceipt(r.Settlement)
	switch {
	case err != nil:
		return err
	case !s.Success:
		return errors.New("it says that nothing was settled")
	case s.Transaction != "" && r.Payment.Transaction != "" && r.Chain == nil &&
		s.Transaction != r.Payment.Transaction:
		return errors.New("it names another transaction")
	case s.Network != "" && s.Network != r.Payment.Network:
		return errors.New("it names another network")
	case s.Amount != "" && s.Amount != r.Payment.Amount.String():
		return errors.New("it names another amount")
	}
	return nil
}

func (r *examined) chain() error {
	switch {
	case r.Chain == nil:
		return errors.New("there is none")
	case r.Payment.Proof != string(history.Chain):
		return errors.New("the payment does not rest on it")
	case r.Chain.Transaction == "" || r.Chain.Transaction != r.Payment.Transaction:
		return errors.New("it names another transaction")
	}
	return nil
}

// attested says what the seller signed of the payment besides: its offer, which the payer sent back with the
// payment, and its own receipt, which came with the settlement.
func (r *examined) attested() (lines []string) {
	p := r.Payment
	if offer := wire.OfferIn(r.Signed); offer != nil {
		lines = append(lines, "the seller's signed offer: "+offer.String())
	}
	if signed := wire.ReceiptIn(r.Settlement); signed != nil {
		urls := []string{p.URL}
		if withoutQuery(signed.Resource) == withoutQuery(p.URL) { // of which secrets are left out
			urls = append(urls, signed.Resource)
		}
		signed.Compare(p.Network, p.Payer, p.Transaction, urls, p.Time)
		lines = append(lines, "the seller's signed receipt: "+signed.String())
	}
	return lines
}

func withoutQuery(url string) string {
	before, _, _ := strings.Cut(url, "?")
	return before
}
