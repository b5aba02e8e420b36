package svm

import (
	"context"
	"errors"
	"fmt"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

// Status asks the chain what became of a payment. The transaction's id is the fee payer's
// signature, which nobody told us, so our own signature is looked for in the history of the account
// that would have paid:
//
//	our signature is in a transaction that     the finalized height is    fate
//	executed                                   any                        settled
//	failed, in a finalized slot                any                        dead: the same transaction cannot land twice
//	failed, in a slot that is not final yet    any                        open: on a fork it may still succeed
//	does not exist                             past its last valid one    dead, when the blockhash is invalid too
//	does not exist                             not past it, or no such    open
//	could not be looked for to the end         any                        open, with an error
//
// The order of the questions is the safety argument: first the node's finalized slot and height,
// then the history, from a node that is at least at that slot. So whatever could have landed up to
// the height is in what was searched. Of a transaction that is found our signature is verified over
// its own bytes, so another's cannot pass for ours. Whether ours executed, failed or is hidden
// stays the node's word: the owner chose it.
//
// Behind one URL there may be many nodes, of which some lag. One that lags can only say too little:
// the lower of two heights counts, minContextSlot makes it refuse the history, a page has to go on
// where the last one ended, and what is listed has to be shown. Nothing here asks a clock. What
// remains is trust: a node that leaves our row out on purpose, or a provider that ignores
// minContextSlot and whose index is more than the 30 blocks between confirmed and finalized behind.
//
// Errors: RPC_ERROR, CHECK_FAILED, INVALID_REQUIREMENT when no node is configured, INTERNAL when
// the evidence is not one of this package. With an error the fate is Open.
func (e *Exact) Status(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	s, err := readEvidence(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	if s.node, err = e.node(ctx, evidence.Network); err != nil {
		return x402.Status{}, err
	}
	if err := s.final(ctx); err != nil {
		return x402.Status{}, err
	}
	if err := s.bound(ctx); err != nil {
		return x402.Status{}, err
	}
	found, err := s.find(ctx)
	switch {
	case err != nil:
		return x402.Status{}, err
	case found != nil:
		return s.judge(found), nil
	case !s.over:
		return x402.Status{Note: fmt.Sprintf("not seen up to slot %d; it can still land", s.slot)}, nil
	}
	return x402.Status{State: x402.Expired, Block: s.slot, Note: fmt.Sprintf(
		"the finalized block height %d is past its last valid one, %d, and our signature is in no "+
			"transaction of %s", s.height, s.lastValid, s.source)}, nil
}

// search is one search for a payment.
type search struct {
	node          *node
	ours          solana.Signature
	payer, source solana.PublicKey
	memo          string
	blockhash     string
	lastValid     uint64 // 0 when nobody said

	slot, height uint64 // the node's finalized tip
	floor        uint64 // the first slot in which the payment could have landed
	over         bool   // it cannot land any more
}

func readEvidence(evidence x402.Evidence) (*search, error) {
	s := &search{memo: evidence.Memo, blockhash: evidence.Blockhash, lastValid: evidence.LastValidBlockHeight}
	var failed [4]error
	s.payer, failed[0] = parseKey(evidence.Payer)
	s.source, failed[1] = parseKey(evidence.Source)
	_, failed[2] = parseKey(evidence.Blockhash)
	if len(evidence.Signature) > 88 { // the longest base58 of 64 bytes
		failed[3] = errAddress
	} else {
		s.ours, failed[3] = solana.SignatureFromBase58(evidence.Signature)
	}
	if err := errors.Join(failed[:]...); err != nil || s.ours.IsZero() {
		return nil, x402.Errorf(x402.Internal, "the evidence is not that of a Solana payment")
	}
	return s, nil
}

// final reads the finalized tip. Slot and height have to belong together, so they come from one
// answer (a blockhash lives blockhashLife blocks after the block it was asked at); getBlockHeight
// is asked too, and the lower height counts.
func (s *search) final(ctx context.Context) error {
	_, lastValid, slot, err := s.node.latestBlockhash(ctx, finalized)
	if err != nil {
		return err
	}
	height, err := s.node.blockHeight(ctx, finalized)
	if err != nil {
		return err
	}
	s.slot, s.height = slot, min(height, lastValid-blockhashLife)
	return nil
}

const (
	// slotSlack is how many slots without a block are allowed for beyond the usual, about an hour
	// of them.
	slotSlack = 10_000
	// slotsPerBlock is the most slots a block takes on average: half of them skipped. Mainnet's
	// worst years had a third.
	slotsPerBlock = 2
)

// bound says from which slot on the payment could have landed, and whether it still can.
//
// It was signed at most blockhashLife+hintMargin blocks before its last valid height. Slots are
// counted back from the tip by blocks, generously, and never by a clock: a wrong one would make the
// search too short and a living payment dead.
//
// That it is over two answers have to say: the finalized height, and the bank of confirmed blocks,
// which must refuse the blockhash. So a last valid height that was recorded too low ends no life. A
// payment without one (this package always records it) is never over.
func (s *search) bound(ctx context.Context) error {
	if s.lastValid == 0 {
		return nil
	}
	signed := below(s.lastValid, blockhashLife+hintMargin)
	s.floor = below(s.slot, slotsPerBlock*below(s.height, signed)+slotSlack)
	if s.height <= s.lastValid {
		return nil
	}
	alive, err := s.node.isBlockhashValid(ctx, s.blockhash, confirmed)
	s.over = err == nil && !alive
	return err
}

// below is n-m, and 0 where m is larger.
func below(n, m uint64) uint64 { return n - min(n, m) }

// judge says what a transaction with our signature proves.
func (s *search) judge(found *landed) x402.Status {
	fate := x402.Status{State: x402.Settled, Transaction: found.id, Block: found.slot, At: found.at}
	switch {
	case !found.failed:
	case found.slot <= s.slot:
		fate.State, fate.Note = x402.Expired,
			"it landed in a finalized slot and failed: it moved nothing, and cannot land again"
	default:
		fate = x402.Status{Note: "it landed and failed, but its slot is not final yet"}
	}
	return fate
}
