package evm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
)

// authorization is a signed authorization that the chain is asked about: the parsed form of Evidence.
type authorization struct {
	token, payer, payee common.Address
	nonce               common.Hash
	validBefore         uint64 // Unix seconds
	evidence            x402.Evidence
	foreign             bool // signed by a key that is not ours (Received)
}

// Status asks the chain what became of a payment. It is a question only: it can be repeated at any
// time, from several goroutines, and never looks at our own clock.
//
//	authorizationState | found in the token's logs            | Status
//	-------------------+--------------------------------------+---------------------------------
//	used (latest)      | AuthorizationUsed and exact Transfer | Settled
//	used               | AuthorizationUsed, other Transfer    | Settled, with a note: money moved,
//	                   |                                      | but not as signed
//	used               | AuthorizationUsed, no Transfer of us | Open, with a note: the node's
//	                   |                                      | evidence contradicts itself
//	used               | AuthorizationCanceled, finalized     | Expired
//	used               | AuthorizationCanceled, not final yet | Open
//	used, also at the  | neither, as far as we look           | Settled, with a note (below)
//	finalized block    |                                      |
//	used, not there    | neither, as far as we look           | Open
//	unused             | any; finalized time > validBefore,   | Expired
//	                   | and unused at that finalized block   |
//	unused             | otherwise                            | Open
//
// Why a used nonce whose event is out of reach is Settled: EIP-3009 marks a nonce as used in two
// ways only, by executing our signed transfer or by a cancellation that our key signed, and this
// package never signs a cancellation. Counting it as spent is also the side on which a mistake
// costs no budget twice. Out of reach means: not in the blocks before validBefore that findLogs
// searches, or a node that refuses to search its logs. With no event to show, "used" is one word of
// one answer: it has to be final, because behind a URL are many nodes, of which one may be wrong or
// may see a block that is dropped again.
//
// Why a used nonce with no transfer stays Open: Settled would claim a payment that the same
// evidence denies, Expired would release money on the word of a node that contradicts itself. Open
// goes on counting as spent.
//
// Settled by its event may rest on a block that is not final yet; were that block dropped, the
// authorization could only be used again or expire, and the budget has counted it.
//
// Every error is RPC_ERROR or CHECK_FAILED (INTERNAL for evidence that cannot be read) and comes with Open.
//
// What was paid by Permit2 is looked for otherwise: permitstatus.go.
func (e *Exact) Status(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	if evidence.IsPull() {
		return e.pullStatus(ctx, evidence)
	}
	a, err := readEvidence(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	return e.status(ctx, a)
}

// Received is Status for a payment that somebody else signed. Of a stranger's key a used nonce
// proves nothing: he can sign any number of authorizations with it, to whom he likes, or cancel it.
// So only what was asked, done by this very authorization, is Settled:
//
//	authorizationState | found in the token's logs            | Status
//	-------------------+--------------------------------------+---------------------------------
//	used (latest)      | AuthorizationUsed, and right after   | Settled
//	                   | it the exact Transfer                |
//	used               | AuthorizationUsed, and anything else | Expired when finalized, else Open
//	used               | AuthorizationCanceled                | Expired when finalized, else Open
//	used               | neither, or no receipt               | Open, with a note
//	unused             | as in Status                         | as in Status
//
// "Right after it" because one transaction can carry many authorizations of one payer, and a
// Transfer that pays for one of them pays for no other. The token marks the nonce and moves the
// money in one call, and logs both in this order (FiatToken; transferWithAuthorization and
// receiveWithAuthorization alike). A token that logs them otherwise is never seen as settled here.
//
// As in Status, what was paid by Permit2 is looked for otherwise.
func (e *Exact) Received(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	a, err := readEvidence(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	a.foreign = true
	return e.status(ctx, a)
}

func (e *Exact) status(ctx context.Context, a authorization) (x402.Status, error) {
	n, err := e.node(a.evidence.Network)
	if err != nil {
		return x402.Status{}, &x402.Error{Code: x402.RPCError, FixedBy: x402.ByPerson,
			Message: "the payment's network has no node in config.toml", Hint: x402.AsError(err).Hint,
			Err: err}
	}
	used, err := n.isUsed(ctx, a, latest)
	if err != nil {
		return x402.Status{}, err
	}
	if used {
		return n.statusOfUsed(ctx, a)
	}
	return n.statusOfUnused(ctx, a)
}

// isUsed asks whether the nonce was used, or can be used no more, at a block.
func (n *node) isUsed(ctx context.Context, a authorization, tag string) (bool, error) {
	if a.evidence.Way != "" {
		return n.nonceBit(ctx, a, tag)
	}
	return n.authorizationState(ctx, a, tag)
}

// readEvidence parses what was stored before the payment was sent.
func readEvidence(evidence x402.Evidence) (a authorization, err error) {
	var errs [4]error
	a.token, errs[0] = message.ParseAddress(evidence.Asset)
	a.payer, errs[1] = message.ParseAddress(evidence.Payer)
	a.payee, errs[2] = message.ParseAddress(evidence.PayTo)
	errs[3] = message.DecodeHex(a.nonce[:], evidence.Nonce)
	isKnown := evidence.Way == "" || evidence.Way == x402.Permit2 || evidence.Way == x402.Upto
	if err := errors.Join(errs[:]...); err != nil || evidence.ValidBefore <= 0 || !isKnown {
		return a, internal("the payment's stored evidence cannot be read", err)
	}
	a.validBefore = uint64(evidence.ValidBefore)
	a.evidence = evidence
	return a, nil
}

// authorizationState asks the token whether the nonce was used or cancelled, at a block.
func (n *node) authorizationState(ctx context.Context, a authorization, tag string) (bool, error) {
	word, err := n.read(ctx, a.token, tag, selectAuthorizationState, message.Word(a.payer), a.nonce[:])
	if err != nil {
		return false, err
	}
	switch message.AmountOf(word).String() {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, n.Failed("eth_call", errors.New("authorizationState is neither true nor false"))
}

// statusOfUnused decides between Expired and Open. Expired needs a finalized block later than
// validBefore, and not later than the latest one, in which the nonce is unused: the token refuses
// the authorization in any block after it (EIP-3009: block.timestamp < validBefore; Permit2: not after the
// deadline), and block times never go back.
func (n *node) statusOfUnused(ctx context.Context, a authorization) (x402.Status, error) {
	final, err := n.block(ctx, finalized)
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Block: uint64(*final.Number), At: final.at()}
	if uint64(*final.Timestamp) <= a.validBefore {
		status.Unused = true
		status.Note = fmt.Sprintf("nonce unused; finalized time %s, valid before %s",
			rfc3339(final.at()), rfc3339(a.end()))
		return status, nil
	}
	tip, err := n.block(ctx, latest)
	if err != nil {
		return x402.Status{}, err
	}
	if *tip.Number < *final.Number || *tip.Timestamp < *final.Timestamp {
		return x402.Status{}, n.Failed("eth_getBlockByNumber",
			errors.New("its finalized block is later than its latest one"))
	}
	used, err := n.isUsed(ctx, a, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	if used { // it was used between our two questions, on a chain that is final at once
		return n.statusOfUsed(ctx, a)
	}
	status.State = x402.Expired
	status.Note = fmt.Sprintf("nonce unused in finalized block %d of %s, valid before %s",
		status.Block, rfc3339(status.At), rfc3339(a.end()))
	return status, nil
}

// statusOfUsed finds out what the used nonce did.
func (n *node) statusOfUsed(ctx context.Context, a authorization) (x402.Status, error) {
	tip, err := n.block(ctx, latest)
	if err != nil {
		return x402.Status{}, err
	}
	if a.evidence.Way != "" {
		return n.statusOfUsedPermit(ctx, a, tip)
	}
	logs, err := n.findLogs(ctx, a, tip)
	if err != nil {
		return x402.Status{}, err
	}
	if len(logs) == 0 {
		return n.statusWithoutEvent(ctx, a)
	}
	var unclear x402.Status
	for _, entry := range logs {
		if entry.Topics[0] == topicCanceled {
			return n.statusOfVoid(ctx, entry, "nonce cancelled (AuthorizationCanceled)")
		}
		status, err := n.statusOfTransaction(ctx, a, entry)
		if err != nil {
			return x402.Status{}, err
		}
		if status.State == x402.Settled && status.Note == "" {
			return status, nil
		}
		unclear = status
	}
	return unclear, nil
}

// statusWithoutEvent is for a used nonce whose event is out of reach: it is settled when the nonce
// is also used at the finalized block, and our own.
func (n *node) statusWithoutEvent(ctx context.Context, a authorization) (x402.Status, error) {
	if a.foreign {
		return x402.Status{Note: "nonce used; event not found"}, nil
	}
	final, err := n.block(ctx, finalized)
	if err != nil {
		return x402.Status{}, err
	}
	used, err := n.authorizationState(ctx, a, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Block: uint64(*final.Number), At: final.at(),
		Note: "nonce used; event not found, and not final yet"}
	if used {
		status.State, status.Note = x402.Settled, "nonce used; event not found"
	}
	return status, nil
}

// statusOfVoid is for a nonce that was used up without paying: expired when that is final.
func (n *node) statusOfVoid(ctx context.Context, entry logEntry, how string) (x402.Status, error) {
	final, err := n.block(ctx, finalized)
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Transaction: entry.TransactionHash.Hex(), Block: uint64(entry.BlockNumber),
		Note: how + "; not final yet"}
	if *final.Number >= entry.BlockNumber {
		status.State, status.Note = x402.Expired, how
	}
	return status, nil
}

type receipt struct {
	TransactionHash common.Hash     `json:"transactionHash"`
	Status          *hexutil.Uint64 `json:"status"`
	Logs            []logEntry      `json:"logs"`
}

// statusOfTransaction reads the transaction that used the nonce and compares payer, payee, amount,
// token and status with what was signed. Where the node no longer has the receipt, the
// event alone settles it, with a note, if the key is ours.
func (n *node) statusOfTransaction(ctx context.Context, a authorization, entry logEntry) (x402.Status,
	error) {
	var r *receipt
	if err := n.Call(ctx, &r, "eth_getTransactionReceipt", entry.TransactionHash.Hex()); err != nil {
		return x402.Status{}, err
	}
	at, err := n.blockOrNil(ctx, entry.BlockNumber.String())
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{State: x402.Settled, Transaction: entry.TransactionHash.Hex(),
		Block: uint64(entry.BlockNumber)}
	if at != nil {
		status.At = at.at()
	}
	if r == nil {
		if a.foreign {
			status.State = x402.Open
		}
		status.Note = "nonce used in this transaction; its receipt was not found"
		return status, nil
	}
	status.State, status.Note = a.compare(r, entry)
	if a.foreign && status.State == x402.Settled && !a.isPaidBy(r) {
		return n.statusOfVoid(ctx, entry, "nonce used for something else")
	}
	return status, nil
}

// isPaidBy reports whether the nonce's use in r is directly followed by the transfer that was asked for.
func (a authorization) isPaidBy(r *receipt) bool {
	for i, l := range r.Logs[:max(len(r.Logs)-1, 0)] {
		if a.isEventOf(l) && l.Topics[0] == topicUsed && a.isExact(r.Logs[i+1]) {
			return true
		}
	}
	return false
}

// compare is the part of statusOfTransaction that asks nobody.
func (a authorization) compare(r *receipt, entry logEntry) (x402.StatusState, string) {
	if r.TransactionHash != entry.TransactionHash || r.Status == nil || *r.Status != 1 {
		return x402.Open, "nonce used, but the node's receipt is of another or a failed transaction"
	}
	used, paid, moved := false, false, ""
	for _, l := range r.Logs {
		switch {
		case a.isEventOf(l):
			used = used || l.Topics[0] == topicUsed
		case a.isTransferOf(l):
			if a.isExact(l) {
				paid = true
			} else {
				moved = fmt.Sprintf("%s to %s", message.AmountOf(l.Data),
					common.BytesToAddress(l.Topics[2][12:]).Hex())
			}
		}
	}
	switch {
	case used && paid:
		return x402.Settled, ""
	case used && moved != "":
		return x402.Settled, "money moved, but not as signed: " + moved
	}
	return x402.Open, "nonce used, but its transaction shows no transfer from us: the node contradicts itself"
}

// isTransferOf reports whether l is a Transfer of the token out of the payer's account.
func (a authorization) isTransferOf(l logEntry) bool {
	return l.Address == a.token && len(l.Topics) == 3 && l.Topics[0] == topicTransfer &&
		len(l.Data) == 32 && l.Topics[1] == common.BytesToHash(a.payer[:])
}

// isExact reports whether l is the transfer that was signed.
func (a authorization) isExact(l logEntry) bool {
	return !l.Removed && a.isTransferOf(l) && l.Topics[2] == common.BytesToHash(a.payee[:]) &&
		message.AmountOf(l.Data) == a.evidence.Amount
}

func (a authorization) end() time.Time { return time.Unix(a.evidence.ValidBefore, 0).UTC() }

func rfc3339(t time.Time) string { return t.Format(time.RFC3339) }
