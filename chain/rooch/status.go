package rooch

import (
	"context"
	"fmt"
	"strings"

	"x402-wallet/x402"
)

// Status asks the chain what became of what a channel owes, or of a transaction that opens one. A
// SubRAV happened when the payee has claimed its nonce or a later one; until then, and for ever, it
// may: it never expires. A transaction happened when its account's number has passed it. With an
// error the state is Open.
func (nodes Nodes) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	node := nodes[e.Network]
	nonce, err := parseUint(e.Nonce)
	if node == nil || err != nil {
		return x402.Status{}, x402.Errorf(x402.RPCError, "no node of %s is configured", x402.Quote(e.Network))
	}
	if e.Destination != "" { // only a transaction has one
		return node.transactionStatus(ctx, e, nonce)
	}
	return node.subRAVStatus(ctx, e, nonce)
}

func (n *Node) subRAVStatus(
	ctx context.Context, e x402.Evidence, nonce uint64,
) (status x402.Status, err error) {
	_, fragment, _ := strings.Cut(e.Payer, "#")
	id, err := ParseObjectID(e.Source)
	if err != nil {
		return status, err
	}
	channel, err := n.Channel(ctx, id)
	if err != nil || channel == nil {
		return status, err
	}
	sub, err := n.SubChannel(ctx, channel, fragment)
	if err != nil || sub == nil || sub.Nonce < nonce {
		return status, err
	}
	note := fmt.Sprintf("the payee has claimed %s units up to nonce %d", sub.Amount, sub.Nonce)
	return x402.Status{State: x402.Settled, Note: note}, nil
}

func (n *Node) transactionStatus(
	ctx context.Context, e x402.Evidence, sequence uint64,
) (status x402.Status, err error) {
	payer, err := ParseDID(e.Payer)
	if err != nil {
		return status, err
	}
	next, err := n.Sequence(ctx, payer)
	if err != nil || next <= sequence {
		return status, err
	}
	return x402.Status{State: x402.Settled, Note: fmt.Sprintf("the account has made its transaction %d",
		sequence)}, nil
}
