package batch

import (
	"context"
	"encoding/json"
	"errors"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// What a node says of a channel with a deposit, and what of that goes into its book. A node may be behind, or
// stand behind one URL with others that are: then it does not have a deposit yet that another one has shown,
// and a book that went by it would let as much be deposited once more. So the book knows the newest block
// that it rests on, where it was read or a deposit was made.

// errBehind says that a node knows less of a channel than the book does.
var errBehind = errors.New("the node is behind")

// seen is a channel after a node said how it is on the chain:
//
//	of a block                            charged        deposited            the rest
//	before the one that the book rests on the more of it as the book has it   isNewer is false
//	that one, or a later one              the more of it as the chain has it  isNewer is true
//
// What is claimed never gets less, so that it is true of any block. While a deposit is on its way, or there
// by the seller's word, what was deposited stays as it is, because nobody says whether that is in what the
// chain has.
func (c channel) seen(chain onchain.ChannelBalance) (_ channel, isNewer bool) {
	if chain.Claimed.Cmp(c.Claimed) > 0 {
		c.Claimed = chain.Claimed
	}
	if chain.Block < c.book.Block {
		return c, false
	}
	c.book.Block = chain.Block
	if c.book.IsProven() {
		c.book.Funds = chain.Balance
	}
	return c, true
}

// nodeBehind refuses what is asked of a node that is behind the book of a channel.
func (c channel) nodeBehind(chain onchain.ChannelBalance) error {
	return x402.Errorf(x402.RPCError, "%w: it is at block %d, and the channel with %s was seen in block %d",
		errBehind, chain.Block, x402.Brief(c.Server), c.book.Block).
		WithHint("make the same call again when the node of %s has caught up", x402.Title(c.Network))
}

// provenIn is the block that the proof of a payment rests on; 0: it has none that names one.
func provenIn(p history.Payment) uint64 {
	var status x402.Status
	if json.Unmarshal(p.ChainProof, &status) != nil {
		return 0
	}
	return status.Block
}

// IsEmptied implements scheme.Channelled. The state is from after all that was deposited in the channel:
// before that the channel was as empty.
func (b *Channels) IsEmptied(ctx context.Context, p history.Payment, status x402.Status) bool {
	c, err := b.find(ctx, p.Evidence.Channel, b.Chain.Address())
	if err != nil {
		return false
	}
	book, err := b.withDeposits(ctx, c.book, b.Ledger.Payment)
	return err == nil && book.IsProven() && status.Block >= book.Block
}

// withDeposits is a channel's book with what became of its deposits, as look has their payments. One that its
// seller says it has is there when the chain shows it: until then it may come to nothing, and no less lies
// with the seller.
func (b *Channels) withDeposits(ctx context.Context, book history.BatchBook,
	look func(context.Context, string) (history.Payment, error)) (history.BatchBook, error) {
	deposits := book.Taken[:len(book.Taken):len(book.Taken)]
	if book.Deposit != nil {
		deposits = append(deposits, *book.Deposit)
	}
	book.Taken, book.Deposit = nil, nil
	for _, d := range deposits {
		p, err := look(ctx, d.Payment)
		if err != nil {
			return book, err
		}
		switch {
		case p.State == history.Failed:
		case p.State == history.Settled && p.Proof == history.Chain:
			book.Funds, _ = book.Funds.Add(d.Amount)
			book.Block = max(book.Block, provenIn(p))
		case p.State == history.Settled:
			book.Taken = append(book.Taken, d)
		default:
			book.Deposit = &d
		}
	}
	return book, nil
}
