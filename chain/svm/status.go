package svm

import (
	"context"
	"errors"
	"fmt"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

// Status asks the chain what became of a payment. The transaction's id is the fee payer's
// signature, which nobody told us, so our own signature is searched for in the history of the
// account that would have paid:
//
//	our signature is in a transaction that     the finalized height is    status
//	executed                                   any                        settled
//	failed, in a finalized slot                any                        expired: the same transaction
//	                                                                      cannot land twice
//	failed, in a slot that is not final yet    any                        open: on a fork it may still
//	                                                                      succeed
//	does not exist                             past its last valid one    expired, when the blockhash is
//	                                                                      invalid too
//	does not exist                             not past it, or unknown    open
//	could not be searched for to the end       any                        open, with an error
//
// The order of the questions is the safety argument: first the node's finalized slot and height,
// then the history, from a node that is at least at that slot. So whatever could have landed up to
// the height is in what was searched. In a transaction that is found our signature is verified over
// the transaction's own bytes, so another's cannot pass for ours. Whether ours executed, failed or
// is hidden stays the node's word: the owner chose it.
//
// Behind one URL there may be many nodes, of which some lag. One that lags can only report too
// little: the lower of two heights counts, minContextSlot makes it refuse the history, a page has
// to go on where the last one ended, and what is listed has to be shown. Nothing here asks a clock.
// What remains is trust: a node that leaves our row out on purpose, or a provider that ignores
// minContextSlot and whose index is more than the 30 blocks between confirmed and finalized behind.
//
// It can be called at any time and concurrently. Errors: RPC_ERROR, CHECK_FAILED,
// INVALID_REQUIREMENT when no node is configured, INTERNAL when the evidence is not one of this
// package. With an error the status is Open.
func (e *Exact) Status(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	s, err := readEvidence(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	s.node, err = e.node(ctx, evidence.Network)
	if err != nil {
		return x402.Status{}, err
	}
	if err := s.readFinalized(ctx); err != nil {
		return x402.Status{}, err
	}
	if err := s.readBounds(ctx); err != nil {
		return x402.Status{}, err
	}
	found, err := s.find(ctx)
	switch {
	case err != nil:
		return x402.Status{}, err
	case found != nil:
		return s.judge(found), nil
	case !s.expired:
		return x402.Status{Note: fmt.Sprintf("not seen up to slot %d; it can still land", s.slot)}, nil
	}
	note := fmt.Sprintf("the finalized block height %d is past its last valid one, %d, and our signature "+
		"is in no transaction of %s", s.height, s.lastValid, s.source)
	return x402.Status{State: x402.Expired, Block: s.slot, Note: note}, nil
}

// search is one search for a payment.
type search struct {
	node          *node
	ours          solana.Signature
	payer, source solana.PublicKey
	memo          string
	blockhash     string
	lastValid     uint64 // block height; 0 when it was not recorded

	slot, height uint64 // the node's finalized tip
	floor        uint64 // the first slot in which the payment could have landed
	expired      bool   // it cannot land any more
}

func readEvidence(evidence x402.Evidence) (*search, error) {
	s := &search{memo: evidence.Memo, blockhash: evidence.Blockhash, lastValid: evidence.LastValidBlockHeight}
	var errs [4]error
	s.payer, errs[0] = parseKey(evidence.Payer)
	s.source, errs[1] = parseKey(evidence.Source)
	_, errs[2] = parseKey(evidence.Blockhash)
	if len(evidence.Signature) > 88 { // the longest base58 of 64 bytes
		errs[3] = errAddress
	} else {
		s.ours, errs[3] = solana.SignatureFromBase58(evidence.Signature)
	}
	if err := errors.Join(errs[:]...); err != nil || s.ours.IsZero() {
		return nil, x402.Errorf(x402.Internal, "the evidence is not that of a Solana payment")
	}
	return s, nil
}

// readFinalized reads the finalized tip. Slot and height have to belong together, so they come from
// one answer (a blockhash is valid for blockhashLife blocks after the block it was asked at);
// getBlockHeight is asked too, and the lower height counts.
func (s *search) readFinalized(ctx context.Context) error {
	_, lastValid, slot, err := s.node.latestBlockhash(ctx, finalized)
	if err != nil {
		return err
	}
	height, err := s.node.blockHeight(ctx, finalized)
	if err != nil {
		return err
	}
	s.slot = slot
	s.height = min(height, lastValid-blockhashLife)
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

// readBounds finds out from which slot on the payment could have landed, and whether it still can.
//
// It was signed at most blockhashLife+hintMargin blocks before its last valid height. Slots are
// counted back from the tip by blocks, generously, and never by a clock: a wrong clock would make
// the search too short, and a payment that can still land would be called expired.
//
// Two answers have to agree that it expired: the finalized height, and the bank of confirmed
// blocks, which must refuse the blockhash. So a last valid height that was recorded too low expires
// nothing. A payment without one (this package always records it) never expires.
func (s *search) readBounds(ctx context.Context) error {
	if s.lastValid == 0 {
		return nil
	}
	signed := below(s.lastValid, blockhashLife+hintMargin)
	s.floor = below(s.slot, slotsPerBlock*below(s.height, signed)+slotSlack)
	if s.height <= s.lastValid {
		return nil
	}
	valid, err := s.node.isBlockhashValid(ctx, s.blockhash, confirmed)
	s.expired = err == nil && !valid
	return err
}

// below is n-m, and 0 where m is larger.
func below(n, m uint64) uint64 { return n - min(n, m) }

// judge says what a transaction with our signature proves.
func (s *search) judge(found *landed) x402.Status {
	status := x402.Status{Transaction: found.id, Block: found.slot, At: found.at}
	switch {
	case !found.failed:
		status.State = x402.Settled
	case found.slot <= s.slot:
		status.State = x402.Expired
		status.Note = "it landed in a finalized slot and failed: it moved nothing, and cannot land again"
	default:
		status = x402.Status{Note: "it landed and failed, but its slot is not final yet"}
	}
	return status
}
