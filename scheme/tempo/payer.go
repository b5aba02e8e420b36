package tempo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/rpc"
	tempotx "x402-wallet/chain/tempo"
	"x402-wallet/chain/tempo/decode"
	"x402-wallet/history"
	"x402-wallet/scheme/tempo/check"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// Payer pays out of the agent's own account. It is safe for concurrent use.
type Payer struct{ on *evm.Exact }

func NewPayer(on *evm.Exact) Payer { return Payer{on} }

// minValidity is the least that a challenge has to be good for still. The chain's nodes take no transaction
// that ends in less than 3 seconds.
const minValidity = 6 * time.Second

// Payable says why r cannot be paid, or nil. It asks nobody. Every refusal is an *x402.Error.
func (p Payer) Payable(r x402.Requirement, asset x402.AssetInfo) error {
	if r.Charge == nil || r.Scheme != x402.Tempo || !x402.IsTempo(r.Network) {
		return evm.Invalid("it is not a charge of MPP on Tempo")
	}
	if _, err := p.on.Node(r.Network); err != nil {
		return err
	}
	if r.Amount.IsZero() {
		return evm.Invalid("amount is 0")
	}
	if err := evm.PayableToken(r, asset); err != nil {
		return err
	}
	return p.on.PayablePayee(r, asset)
}

// Funds reads what the agent has of a token. Errors: RPC_ERROR, or CHECK_FAILED where the node serves another
// chain.
func (p Payer) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	return p.on.Funds(ctx, network, asset)
}

// Authorize signs the transaction that o orders, after its bytes were read back and compared with o. Errors:
// Payable's; INVALID_REQUIREMENT for a challenge that ends too soon; RPC_ERROR and CHECK_FAILED when the node
// is silent or serves another chain; CLOCK_SUSPECT when its clock and ours differ; the signer's own.
func (p Payer) Authorize(ctx context.Context, o onchain.Order) (a onchain.Authorization, err error) {
	if err := p.Payable(o.Requirement, o.Asset); err != nil {
		return a, err
	}
	n, err := p.on.Node(o.Requirement.Network)
	if err != nil {
		return a, err
	}
	if err := n.ReadyAt(ctx, o.Now); err != nil {
		return a, err
	}
	t, err := p.draft(o)
	if err != nil {
		return a, err
	}
	tx, digest, err := transaction(n.ChainID, t)
	if err != nil {
		return a, err
	}
	object, err := check.Encode(t)
	if err != nil {
		return a, evm.Internal("encoding the transfer", err)
	}
	signatures, err := p.on.AskSigner(ctx, o.Payment, object, digest)
	if err != nil {
		return a, fmt.Errorf("signing the transaction: %w", err)
	}
	signed, hash, err := tx.Signed(signatures[0], p.on.Address())
	if err != nil {
		return a, err
	}
	a.Evidence = check.Evidence(t)
	a.Evidence.Hash = hash
	a.Payload, err = json.Marshal(wire.TempoPayment{From: t.From, Transaction: message.Hex(signed)})
	return a, err
}

// draft is the transfer of an order.
func (p Payer) draft(o onchain.Order) (t x402.TempoTransfer, err error) {
	r := o.Requirement
	self, err := p.on.Self()
	if err != nil {
		return t, err
	}
	payee, err := message.Address(r.PayTo)
	if err != nil {
		return t, evm.Invalid("payTo is %v", err)
	}
	if o.Source != "" && !message.SameAddress(o.Source, self.Hex()) {
		return t, evm.Internal("the order's source is not the account that is spent from", nil)
	}
	life := min(check.MaxLife, o.Validity, r.Charge.Expires.Sub(o.Now))
	if life < minValidity {
		return t, evm.Invalid("the challenge ends in less than %s: the seller could not send the payment in "+
			"that time", minValidity).WithHint("make the same call again: the seller makes a new challenge")
	}
	memo := r.Charge.Memo
	if memo == "" {
		memo = tempotx.Memo(r.Charge.Realm, "", r.Charge.ID).Hex()
	}
	return x402.TempoTransfer{Network: r.Network, Token: o.Asset.Address, From: self.Hex(), To: payee,
		Amount: r.Amount.SubFloor(r.Fee), Fee: r.Fee, Memo: memo,
		ValidBefore: o.Now.Add(life).Unix()}, nil
}

// transaction builds the transaction of a transfer, reads its bytes as a stranger would, and compares them
// with the transfer. The signature is over digest.
func transaction(chain uint64, t x402.TempoTransfer) (tx tempotx.Transaction, digest [32]byte, err error) {
	memo := common.HexToHash(t.Memo)
	token := common.HexToAddress(t.Token)
	tx = tempotx.Transaction{ChainID: chain, Gas: x402.TempoGas, Tip: x402.TempoTip, MaxFee: t.MaxFeePerGas(),
		Token: token, ValidBefore: uint64(t.ValidBefore), SellerPaysFee: t.Fee.IsZero(),
		Transfers: []tempotx.Transfer{{To: common.HexToAddress(t.To), Amount: t.Amount, Memo: &memo}}}
	if !tx.SellerPaysFee {
		tx.FeeToken = token
	}
	unsigned, err := tx.Unsigned()
	if err != nil {
		return tx, digest, err
	}
	got, err := decode.Rules{}.Message(unsigned)
	if err != nil {
		return tx, digest, evm.Internal("our own transaction cannot be read", err)
	}
	isFeeOurs := got.FeeToken == "" || message.SameAddress(got.FeeToken, t.Token)
	transfers := []decode.Transfer{{To: strings.ToLower(t.To), Amount: t.Amount, Memo: t.Memo}}
	for _, must := range []struct {
		field string
		holds bool
	}{
		{"chain", got.ChainID == chain && x402.IsTempo(fmt.Sprintf("eip155:%d", got.ChainID))},
		{"token", message.SameAddress(got.Token, t.Token)},
		{"transfer", len(got.Transfers) == 1 && got.Transfers[0] == transfers[0]},
		{"validity", int64(got.ValidBefore) == t.ValidBefore && got.ValidAfter == 0},
		{"fee", got.SellerPaysFee == t.Fee.IsZero() && isFeeOurs && got.Gas == x402.TempoGas},
	} {
		if !must.holds {
			return tx, digest, evm.Internal("our own transaction differs from the order in its "+must.field+
				"; nothing was signed", nil)
		}
	}
	return tx, got.SignHash, nil
}

// Pushed implements pay.Pusher. Where the seller wants the hash of a transaction that the buyer has sent, it
// sends the transaction to the owner's node, and waits until it is in a block. Sending the same bytes again
// changes nothing. Errors: RPC_ERROR; that the transaction is over.
func (p Payer) Pushed(ctx context.Context, of history.Payment) (shown json.RawMessage, err error) {
	terms, err := wire.ReadTerms(of.Requirement)
	if err != nil || terms.Charge == nil || terms.Charge.Pull {
		return of.Payload, err
	}
	if of.State == history.Settled { // it was sent before: no node is needed, and none can be in the way
		return wire.WithHash(of.Payload, of.Evidence.Hash)
	}
	n, err := p.on.Node(of.Network)
	if err != nil {
		return nil, err
	}
	signed, err := wire.TempoTransaction(of.Payload)
	if err != nil {
		return nil, evm.Internal("the payment's stored transaction cannot be read", err)
	}
	var hash string
	err = n.Call(ctx, &hash, "eth_sendRawTransaction", signed)
	if err != nil && !rpc.Refused(err) { // a node refuses what it has already: the receipt tells
		return nil, err
	}
	if err := p.awaitBlock(ctx, of.Evidence); err != nil {
		return nil, err
	}
	return wire.WithHash(of.Payload, of.Evidence.Hash)
}

// blockTime is about the time between two blocks of Tempo.
const blockTime = 500 * time.Millisecond

// awaitBlock waits for a payment to be settled, at most until it is over.
func (p Payer) awaitBlock(ctx context.Context, e x402.Evidence) error {
	ctx, cancel := context.WithTimeout(ctx, check.MaxLife)
	defer cancel()
	for {
		status, err := p.Status(ctx, e)
		if err != nil || status.State == x402.Settled {
			return err
		}
		if status.State == x402.Expired {
			return errors.New("the transaction is over, and is in no block")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(blockTime):
		}
	}
}
