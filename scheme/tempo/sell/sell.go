// Package sell is how a seller is paid on Tempo (MPP's tempo/charge, draft-tempo-charge-00): by a transaction
// of type 0x76 that transfers a TIP-20 token with a memo of the challenge. The buyer signs it and bears its
// fee, and no facilitator knows it: the seller sends it by a node of the owner's.
//
// What must stay true: the transaction is one transfer, of what was asked, to whom was asked, with the
// challenge's memo. It counts when its receipt has that very transfer: a success alone is none, because a
// policy of the receiver's can send the money elsewhere (TIP-1028). It is called refused only when it can
// never run.
package sell

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/chain/rpc"
	"x402-wallet/chain/tempo/decode"
	"x402-wallet/facilitator"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

var (
	errChallenge = fmt.Errorf("%w: it answers no challenge of MPP", selling.ErrRejected)
	errNetwork   = fmt.Errorf("%w: it is for another network", selling.ErrRejected)
	errOther     = fmt.Errorf("%w: it is not one transfer alone", selling.ErrRejected)
	errFee       = fmt.Errorf("%w: the buyer has to bear its fee", selling.ErrRejected)
	errMemo      = fmt.Errorf("%w: its memo is not the challenge's", selling.ErrRejected)
	errLate      = fmt.Errorf("%w: it is valid for more than %s", selling.ErrRejected, maxLife)
)

const (
	// maxLife is how long a transaction may be valid. The chain takes one for 30 s (TIP-1009).
	maxLife = time.Minute
	// grace is how far behind its end the chain's clock has to be before a transaction is given up: a node
	// may know blocks sooner than receipts.
	grace = 5 * time.Second
	// patience bounds the wait for a receipt.
	patience = maxLife + 15*time.Second
	// firstPause is that between two questions for a receipt, at first. A block takes half a second.
	firstPause = 100 * time.Millisecond
)

// topicMemo is of TransferWithMemo(address indexed, address indexed, uint256, bytes32 indexed).
const topicMemo = "0x57bc7354aa85aed339e000bccffabbc529466af35f0772c8f8ee1145927de7f0"

// Way is a selling.Way, and a selling.Settler.
type Way struct {
	selling.Plain
	nodes map[string]*rpc.Node
}

// New takes the URLs of nodes by network (CAIP-2). client is nil for Go's own.
func New(urls map[string]string, client *http.Client) Way {
	w := Way{nodes: map[string]*rpc.Node{}}
	for network, url := range urls {
		if x402.IsTempo(network) {
			w.nodes[network] = rpc.New(rpc.Options{Network: network, URL: url, HTTP: client,
				Identify: func(ask rpc.Ask) error { return identify(network, ask) }})
		}
	}
	return w
}

func identify(network string, ask rpc.Ask) error {
	var said string
	if err := ask(&said, "eth_chainId"); err != nil {
		return err
	}
	id, err := strconv.ParseUint(said, 0, 64)
	if want, _ := x402.ChainID(network); err != nil || id != want {
		return x402.Errorf(x402.CheckFailed, "the node for %s serves another chain", network)
	}
	return nil
}

func (Way) Traits() selling.Traits {
	return selling.Traits{Name: x402.Tempo, Scheme: x402.Tempo, IsNewer: true, IsMPPAlone: true}
}

func (w Way) Complete(o *selling.Option, said selling.Said, s selling.Shop) error {
	if w.nodes[o.Network] == nil {
		return fmt.Errorf("payments on %s are sent by a node, and there is none for %s (Options.Nodes)",
			x402.Title(o.Network), o.Network)
	}
	return w.Plain.Complete(o, said, s)
}

func (Way) Extra(selling.Option, facilitator.Kind, map[string]json.RawMessage) error { return nil }

// transactionIn reads the payload of a payment.
func transactionIn(payload json.RawMessage) (raw string, p decode.Payment, err error) {
	var said struct {
		Transaction string `json:"transaction"`
	}
	if err := x402.DecodeStrict(payload, selling.MaxPayment, &said); err != nil {
		return "", p, err
	}
	digits, isHex := strings.CutPrefix(said.Transaction, "0x")
	signed, err := hex.DecodeString(digits)
	if err != nil || !isHex {
		return "", p, errors.New("its transaction is not 0x and hexadecimal")
	}
	p, err = decode.Rules{}.Transaction(signed)
	return said.Transaction, p, err
}

func (Way) Read(p selling.Shown, shop selling.Shop) (s selling.Signed, err error) {
	_, t, err := transactionIn(p.Payload)
	if err != nil {
		return s, fmt.Errorf("%w: %w", selling.ErrInvalid, err)
	}
	now, o := shop.Now(), p.Option
	chain, _ := x402.ChainID(o.Network)
	first := t.Transfers[0]
	end := time.Unix(int64(min(t.ValidBefore, 1<<40)), 0)
	switch {
	case p.Nonce == nil:
		return s, errChallenge
	case t.ChainID != chain:
		return s, errNetwork
	case len(t.Transfers) != 1:
		return s, errOther
	case t.SellerPaysFee:
		return s, errFee
	case !strings.EqualFold(t.Token, o.Asset.Address):
		return s, selling.ErrAsset
	case !strings.EqualFold(first.To, o.PayTo):
		return s, selling.ErrPayee
	case first.Amount != o.Amount:
		return s, selling.ErrAmount
	case !isMemo(first.Memo, *p.Nonce):
		return s, errMemo
	case t.ValidAfter > uint64(now.Unix()):
		return s, selling.ErrNotYet
	case end.Sub(now) > maxLife:
		return s, errLate
	}
	s.Payer, err = evm.Address(t.Sender)
	if err != nil {
		return s, err // decode spelled it: cannot happen
	}
	// The chain runs one of all signatures of the same content.
	s.UniqueKey = fmt.Sprintf("%s %s %s %x", o.Network, x402.Tempo, t.Sender, t.SignHash)
	s.Expires = selling.Earlier(end, now.Add(p.Asked.MaxTimeout))
	if end.Sub(now) <= shop.Margin {
		return s, selling.ErrExpired
	}
	return s, nil
}

// The bytes of a memo in which a buyer's program may name itself.
const clientFrom, clientTo = 15, 25

// isMemo compares a memo with that of a challenge, whatever program the buyer uses.
func isMemo(text string, wanted [32]byte) bool {
	memo, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
	return err == nil && len(memo) == len(wanted) &&
		string(memo[:clientFrom]) == string(wanted[:clientFrom]) &&
		string(memo[clientTo:]) == string(wanted[clientTo:])
}

// opened is a payment as it is brought to be settled.
type opened struct {
	decode.Payment
	raw  string
	node *rpc.Node
}

func (w Way) open(s facilitator.Submission) (o opened, err error) {
	var said struct {
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(s.Payload, &said); err != nil {
		return o, err
	}
	o.node = w.nodes[s.Network]
	o.raw, o.Payment, err = transactionIn(said.Payload)
	return o, err
}

// Verify implements selling.Settler. What Read can see is right; here the payer has the money.
func (w Way) Verify(ctx context.Context, s facilitator.Submission) (v facilitator.Verdict, err error) {
	p, err := w.open(s)
	if err != nil {
		return v, err
	}
	var said string
	const selectBalanceOf = "0x70a08231"
	err = p.node.Call(ctx, &said, "eth_call", map[string]string{"to": p.Token,
		"data": selectBalanceOf + strings.TrimPrefix(word(p.Sender), "0x")}, "latest")
	if err != nil {
		return v, err
	}
	digits, err := hex.DecodeString(strings.TrimPrefix(said, "0x"))
	if err != nil {
		return v, fmt.Errorf("the node's answer to eth_call: %w", err)
	}
	balance, fits := money.AmountFromBytes(digits)
	v.Valid = fits && balance.Cmp(p.Total) >= 0
	if !v.Valid {
		v.Reason = "insufficient_funds"
	}
	return v, nil
}

// Settle implements selling.Settler: it sends the transaction, and waits for its receipt. A transaction that
// has one already was used for something else.
func (w Way) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	p, err := w.open(s)
	if err != nil {
		return facilitator.Result{Outcome: facilitator.NotSent, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch r, err := p.receipt(ctx); {
	case err != nil:
		return facilitator.Result{Outcome: facilitator.NotSent, Err: err}
	case r != nil:
		return facilitator.Result{Outcome: facilitator.Unknown, UsedBefore: true, Err: selling.ErrNotSettled}
	}
	var hash string
	sent := p.node.Call(ctx, &hash, "eth_sendRawTransaction", p.raw) // its refusal is no proof
	isOver := false
	for pause := firstPause; ; pause = min(2*pause, time.Second) {
		r, err := p.receipt(ctx)
		switch {
		case err == nil && r != nil:
			return p.judge(r)
		case err == nil && isOver:
			return p.refused("the chain did not take the transaction before its end", sent)
		}
		isOver = p.isOver(ctx)
		select {
		case <-ctx.Done():
			return facilitator.Result{Outcome: facilitator.Unknown, Settlement: p.settlement(),
				Err: errors.Join(ctx.Err(), sent, err)}
		case <-time.After(pause):
		}
	}
}

// isOver reports whether the chain is past the transaction's end. It asks before the receipt is looked for:
// what is not there then never will be.
func (p opened) isOver(ctx context.Context) bool {
	var block struct {
		Timestamp string `json:"timestamp"`
	}
	if p.node.Call(ctx, &block, "eth_getBlockByNumber", "latest", false) != nil {
		return false
	}
	at, err := strconv.ParseUint(block.Timestamp, 0, 64)
	return err == nil && at >= p.ValidBefore+uint64(grace/time.Second)
}

// receipt is a transaction's, as far as it is read.
type receipt struct {
	Status string `json:"status"`
	Logs   []struct {
		Address string   `json:"address"`
		Topics  []string `json:"topics"`
		Data    string   `json:"data"`
	} `json:"logs"`
}

// receipt asks for the transaction's. It is nil where the chain has none.
func (p opened) receipt(ctx context.Context) (r *receipt, err error) {
	err = p.node.Call(ctx, &r, "eth_getTransactionReceipt", p.Hash)
	return r, err
}

// judge reads a receipt.
func (p opened) judge(r *receipt) facilitator.Result {
	said := p.settlement()
	switch {
	case r.Status == "0x0":
		return p.refused("the transaction failed on the chain", nil)
	case r.Status == "0x1" && p.isPaid(r):
		said.Success, said.ErrorReason = true, ""
		return facilitator.Result{Outcome: facilitator.Settled, Settlement: said}
	}
	return facilitator.Result{Outcome: facilitator.Unknown, Settlement: said,
		Err: fmt.Errorf("%w: the transaction %s did not bring the money to its payee", selling.ErrNotSettled,
			p.Hash)}
}

// isPaid reports whether the receipt has the very transfer that was signed.
func (p opened) isPaid(r *receipt) bool {
	t := p.Transfers[0]
	amount := t.Amount.Bytes32()
	wanted := strings.Join([]string{p.Token, topicMemo, word(p.Sender), word(t.To), t.Memo,
		"0x" + hex.EncodeToString(amount[:])}, " ")
	for _, l := range r.Logs {
		if strings.EqualFold(l.Address+" "+strings.Join(l.Topics, " ")+" "+l.Data, wanted) {
			return true
		}
	}
	return false
}

func (p opened) settlement() *wire.Settlement {
	return &wire.Settlement{Transaction: p.Hash, Payer: p.Sender, ErrorReason: "settlement_pending"}
}

func (p opened) refused(reason string, cause error) facilitator.Result {
	said := p.settlement()
	said.ErrorReason = reason
	return facilitator.Result{Outcome: facilitator.Refused, Settlement: said,
		Err: errors.Join(fmt.Errorf("%w: %s", selling.ErrNotSettled, reason), cause)}
}

// word is an address in 32 bytes.
func word(address string) string {
	return "0x" + strings.Repeat("0", 24) + strings.TrimPrefix(address, "0x")
}
