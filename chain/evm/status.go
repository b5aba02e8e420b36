package evm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/x402"
)

// suspect is an authorization that the chain is asked about: Evidence, read.
type suspect struct {
	token, payer, payee common.Address
	nonce               common.Hash
	validBefore         uint64
	evidence            x402.Evidence
}

// Status asks the chain what became of a payment.
//
//	authorizationState | found in the token's logs            | Fate
//	-------------------+--------------------------------------+------------------------------------------------------
//	used (latest)      | AuthorizationUsed and exact Transfer | Settled
//	used               | AuthorizationUsed, other Transfer    | Settled, with a note: money moved, but not as signed
//	used               | AuthorizationUsed, no Transfer of us | Open, with a note: the node's evidence contradicts itself
//	used               | AuthorizationCanceled, finalized     | Dead
//	used               | AuthorizationCanceled, not yet final | Open
//	used               | neither, as far as we look           | Settled when used at the finalized block, too, with a note (below); else Open
//	unused             | finalized time > validBefore, and unused at that finalized block | Dead
//	unused             | otherwise                            | Open
//
// Why a used nonce whose event is out of reach is Settled: EIP-3009 sets it in two ways only, by
// executing our signed transfer or by a cancellation that our key signed, and this package never
// signs a cancellation. Counting it as spent is also the side on which a mistake costs no budget
// twice. Out of reach means: not in the blocks before validBefore that findLogs looks through, or a
// node that refuses to search its logs. With no event to show, "used" is one word: it has to be
// final, because behind a URL are many nodes, of which one may be wrong or see a block that is
// dropped again.
//
// Why a used nonce with no transfer stays Open: Settled would claim a payment that the same
// evidence denies, Dead would release money on the word of a node that contradicts itself. Open
// goes on counting as spent.
//
// Settled by its event may rest on a block that is not final yet; were it dropped, the
// authorization could only be used again or expire, and the budget has counted it. Every error is
// RPC_ERROR or CHECK_FAILED (INTERNAL for unreadable evidence) and comes with Open. Nothing here
// looks at our own clock.
func (e *Exact) Status(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	s, err := readEvidence(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	n, err := e.node(evidence.Network)
	if err != nil {
		return x402.Status{}, &x402.Error{Code: x402.RPCError, FixedBy: x402.ByPerson,
			Message: "the payment's network has no node in config.toml", Hint: x402.AsError(err).Hint,
			Err: err}
	}
	if err := n.ready(ctx); err != nil {
		return x402.Status{}, err
	}
	used, err := n.authorizationState(ctx, s, latest)
	if err != nil {
		return x402.Status{}, err
	}
	if used {
		return n.used(ctx, s)
	}
	return n.unused(ctx, s)
}

// readEvidence parses what was stored before the payment left.
func readEvidence(evidence x402.Evidence) (s suspect, err error) {
	var errs [4]error
	s.token, errs[0] = parseAddress(evidence.Asset)
	s.payer, errs[1] = parseAddress(evidence.Payer)
	s.payee, errs[2] = parseAddress(evidence.PayTo)
	errs[3] = fixedHex(s.nonce[:], evidence.Nonce)
	if err := errors.Join(errs[:]...); err != nil || evidence.ValidBefore <= 0 {
		return s, internal("the payment's stored evidence cannot be read", err)
	}
	s.validBefore, s.evidence = uint64(evidence.ValidBefore), evidence
	return s, nil
}

// authorizationState asks the token whether the nonce was used or cancelled, at a block.
func (n *node) authorizationState(ctx context.Context, s suspect, tag string) (bool, error) {
	word, err := n.read(ctx, s.token, tag, selectAuthorizationState, wordOf(s.payer), s.nonce[:])
	if err != nil {
		return false, err
	}
	switch amountOf(word).String() {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, n.Failed("eth_call", errors.New("authorizationState is neither true nor false"))
}

// unused decides between Dead and Open. Dead needs a finalized block later than validBefore, and
// not later than the latest one, in which the nonce is unused: the token refuses the authorization
// in any block after it (EIP-3009: block.timestamp < validBefore), and block times never go back.
func (n *node) unused(ctx context.Context, s suspect) (x402.Status, error) {
	final, err := n.block(ctx, finalized)
	if err != nil {
		return x402.Status{}, err
	}
	fate := x402.Status{Block: uint64(*final.Number), At: final.at()}
	if uint64(*final.Timestamp) <= s.validBefore {
		fate.Note = fmt.Sprintf("nonce unused; finalized time %s, valid before %s", rfc3339(final.at()),
			rfc3339(s.end()))
		return fate, nil
	}
	tip, err := n.block(ctx, latest)
	if err != nil {
		return x402.Status{}, err
	}
	if *tip.Number < *final.Number || *tip.Timestamp < *final.Timestamp {
		return x402.Status{}, n.Failed("eth_getBlockByNumber",
			errors.New("its finalized block is later than its latest one"))
	}
	used, err := n.authorizationState(ctx, s, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	if used { // it was used between our two questions, on a chain that is final at once
		return n.used(ctx, s)
	}
	fate.State = x402.Expired
	fate.Note = fmt.Sprintf("nonce unused in finalized block %d of %s, valid before %s", fate.Block,
		rfc3339(fate.At), rfc3339(s.end()))
	return fate, nil
}

// used finds what the used nonce did.
func (n *node) used(ctx context.Context, s suspect) (x402.Status, error) {
	tip, err := n.block(ctx, latest)
	if err != nil {
		return x402.Status{}, err
	}
	logs, err := n.findLogs(ctx, s, tip)
	if err != nil {
		return x402.Status{}, err
	}
	if len(logs) == 0 {
		return n.usedSilently(ctx, s)
	}
	var unclear x402.Status
	for _, entry := range logs {
		if entry.Topics[0] == topicCanceled {
			return n.cancelled(ctx, entry)
		}
		fate, err := n.judge(ctx, s, entry)
		if err != nil {
			return x402.Status{}, err
		}
		if fate.State == x402.Settled && fate.Note == "" {
			return fate, nil
		}
		unclear = fate
	}
	return unclear, nil
}

// usedSilently is the fate of a used nonce whose event is out of reach: settled when it is used at
// the finalized block, too.
func (n *node) usedSilently(ctx context.Context, s suspect) (x402.Status, error) {
	final, err := n.block(ctx, finalized)
	if err != nil {
		return x402.Status{}, err
	}
	used, err := n.authorizationState(ctx, s, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	fate := x402.Status{Block: uint64(*final.Number), At: final.at(),
		Note: "nonce used; event not found, and not final yet"}
	if used {
		fate.State, fate.Note = x402.Settled, "nonce used; event not found"
	}
	return fate, nil
}

// cancelled is the fate of a nonce that our key cancelled: dead when that is final.
func (n *node) cancelled(ctx context.Context, entry logEntry) (x402.Status, error) {
	final, err := n.block(ctx, finalized)
	if err != nil {
		return x402.Status{}, err
	}
	fate := x402.Status{Transaction: entry.TransactionHash.Hex(), Block: uint64(entry.BlockNumber),
		Note: "nonce cancelled; not final yet"}
	if *final.Number >= entry.BlockNumber {
		fate.State, fate.Note = x402.Expired, "nonce cancelled (AuthorizationCanceled)"
	}
	return fate, nil
}

// receipt is what we need of a transaction's receipt.
type receipt struct {
	TransactionHash common.Hash     `json:"transactionHash"`
	Status          *hexutil.Uint64 `json:"status"`
	Logs            []logEntry      `json:"logs"`
}

// judge reads the transaction that used the nonce and compares payer, payee, amount, token and
// status with what was signed (case D6). Where the node no longer has the receipt, the event alone
// settles it, with a note.
func (n *node) judge(ctx context.Context, s suspect, entry logEntry) (fate x402.Status, err error) {
	var r *receipt
	if err := n.Call(ctx, &r, "eth_getTransactionReceipt", entry.TransactionHash.Hex()); err != nil {
		return fate, err
	}
	at, err := n.blockOrNil(ctx, entry.BlockNumber.String())
	if err != nil {
		return fate, err
	}
	fate = x402.Status{State: x402.Settled, Transaction: entry.TransactionHash.Hex(),
		Block: uint64(entry.BlockNumber)}
	if at != nil {
		fate.At = at.at()
	}
	if r == nil {
		fate.Note = "nonce used in this transaction; its receipt was not found"
		return fate, nil
	}
	fate.State, fate.Note = s.compare(r, entry)
	return fate, nil
}

// compare is the part of judge that asks nobody.
func (s suspect) compare(r *receipt, entry logEntry) (x402.StatusState, string) {
	if r.TransactionHash != entry.TransactionHash || r.Status == nil || *r.Status != 1 {
		return x402.Open, "nonce used, but the node's receipt is of another or a failed transaction"
	}
	var usedHere, paid bool
	moved := ""
	for _, l := range r.Logs {
		switch {
		case s.isEventOf(l) && l.Topics[0] == topicUsed:
			usedHere = true
		case l.Address == s.token && len(l.Topics) == 3 && l.Topics[0] == topicTransfer &&
			len(l.Data) == 32 &&
			l.Topics[1] == common.BytesToHash(s.payer[:]):
			to, amount := common.BytesToAddress(l.Topics[2][12:]), amountOf(l.Data)
			if to == s.payee && amount == s.evidence.Amount {
				paid = true
			} else {
				moved = fmt.Sprintf("%s to %s", amount, to.Hex())
			}
		}
	}
	switch {
	case usedHere && paid:
		return x402.Settled, ""
	case usedHere && moved != "":
		return x402.Settled, "money moved, but not as signed: " + moved
	}
	return x402.Open, "nonce used, but its transaction shows no transfer from us: the node contradicts itself"
}

func (s suspect) end() time.Time { return time.Unix(s.evidence.ValidBefore, 0).UTC() }

func rfc3339(t time.Time) string { return t.Format(time.RFC3339) }
