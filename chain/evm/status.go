package evm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
)

// Authorization is a signed authorization that the chain is asked about: the parsed form of Evidence.
type Authorization struct {
	Token, Payer, Payee common.Address
	Nonce               common.Hash
	ValidBefore         uint64 // Unix seconds
	Evidence            x402.Evidence
	Foreign             bool // signed by a key that is not ours (Received)
}

// Nonces is the contract that keeps an authorization's nonce: the token for EIP-3009, or another one.
type Nonces interface {
	// IsUsed reports whether the nonce was used, or can be used no more, at a block.
	IsUsed(ctx context.Context, n *Node, a Authorization, tag string) (bool, error)
	// StatusOfUsed finds out what a nonce did that is used at the latest block, tip.
	StatusOfUsed(ctx context.Context, n *Node, a Authorization, tip *Block) (x402.Status, error)
}

// tokenNonces are those of EIP-3009.
type tokenNonces struct{}

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
func (e *Exact) Status(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	if evidence.IsPull() {
		return e.pullStatus(ctx, evidence)
	}
	a, err := ReadEvidence(evidence, "")
	if err != nil {
		return x402.Status{}, err
	}
	return e.StatusBy(ctx, a, tokenNonces{})
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
// "Right after it", among the token's logs, because one transaction can carry many authorizations of one
// payer, and a Transfer that pays for one of them pays for no other. The token marks the nonce and moves the
// money in one call, and logs both in this order (FiatToken; transferWithAuthorization and
// receiveWithAuthorization alike). A token that logs them otherwise is never seen as settled here.
func (e *Exact) Received(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	a, err := ReadEvidence(evidence, "")
	if err != nil {
		return x402.Status{}, err
	}
	a.Foreign = true
	return e.StatusBy(ctx, a, tokenNonces{})
}

// StatusBy is Status, or Received, of an authorization whose nonce a contract keeps: of one that is used by
// what the contract says, else by the table of Status.
func (e *Exact) StatusBy(ctx context.Context, a Authorization, by Nonces) (x402.Status, error) {
	n, err := e.Node(a.Evidence.Network)
	if err != nil {
		return x402.Status{}, &x402.Error{Code: x402.RPCError, FixedBy: x402.ByPerson,
			Message: "the payment's network has no node in config.toml", Hint: x402.AsError(err).Hint,
			Err: err}
	}
	used, err := by.IsUsed(ctx, n, a, Latest)
	if err != nil {
		return x402.Status{}, err
	}
	if used {
		return n.statusOfUsed(ctx, a, by)
	}
	return n.statusOfUnused(ctx, a, by)
}

// IsUsed reports whether a payment's nonce was used or cancelled at the latest block.
func (e *Exact) IsUsed(ctx context.Context, evidence x402.Evidence) (bool, error) {
	n, err := e.Node(evidence.Network)
	if err != nil {
		return false, err
	}
	a, err := ReadEvidence(evidence, "")
	if err != nil {
		return false, err
	}
	return tokenNonces{}.IsUsed(ctx, n, a, Latest)
}

// ReadEvidence parses what was stored before the payment was sent, of one of these ways.
func ReadEvidence(evidence x402.Evidence, ways ...string) (a Authorization, err error) {
	var errs [4]error
	a.Token, errs[0] = message.ParseAddress(evidence.Asset)
	a.Payer, errs[1] = message.ParseAddress(evidence.Payer)
	a.Payee, errs[2] = message.ParseAddress(evidence.PayTo)
	errs[3] = message.DecodeHex(a.Nonce[:], evidence.Nonce)
	isOne := slices.Contains(ways, evidence.Way)
	if err := errors.Join(errs[:]...); err != nil || evidence.ValidBefore <= 0 || !isOne {
		return a, Internal("the payment's stored evidence cannot be read", err)
	}
	a.ValidBefore = uint64(evidence.ValidBefore)
	a.Evidence = evidence
	return a, nil
}

// IsUsed asks the token whether the nonce was used or cancelled, at a block.
func (tokenNonces) IsUsed(ctx context.Context, n *Node, a Authorization, tag string) (bool, error) {
	word, err := n.Read(ctx, a.Token, tag, selectAuthorizationState, message.Word(a.Payer), a.Nonce[:])
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
func (n *Node) statusOfUnused(ctx context.Context, a Authorization, by Nonces) (x402.Status, error) {
	final, err := n.Block(ctx, Finalized)
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Block: uint64(*final.Number), At: final.Time()}
	if uint64(*final.Timestamp) <= a.ValidBefore {
		status.Unused = true
		status.Note = fmt.Sprintf("nonce unused; finalized time %s, valid before %s",
			rfc3339(final.Time()), rfc3339(a.end()))
		return status, nil
	}
	tip, err := n.Block(ctx, Latest)
	if err != nil {
		return x402.Status{}, err
	}
	if *tip.Number < *final.Number || *tip.Timestamp < *final.Timestamp {
		return x402.Status{}, n.Failed("eth_getBlockByNumber",
			errors.New("its finalized block is later than its latest one"))
	}
	used, err := by.IsUsed(ctx, n, a, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	if used { // it was used between our two questions, on a chain that is final at once
		return n.statusOfUsed(ctx, a, by)
	}
	status.State = x402.Expired
	status.Note = fmt.Sprintf("nonce unused in finalized block %d of %s, valid before %s",
		status.Block, rfc3339(status.At), rfc3339(a.end()))
	return status, nil
}

func (n *Node) statusOfUsed(ctx context.Context, a Authorization, by Nonces) (x402.Status, error) {
	tip, err := n.Block(ctx, Latest)
	if err != nil {
		return x402.Status{}, err
	}
	return by.StatusOfUsed(ctx, n, a, tip)
}

// StatusOfUsed looks for the token's events of the nonce.
func (tokenNonces) StatusOfUsed(ctx context.Context, n *Node, a Authorization, tip *Block) (x402.Status,
	error) {
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
func (n *Node) statusWithoutEvent(ctx context.Context, a Authorization) (x402.Status, error) {
	if a.Foreign {
		return x402.Status{Note: "nonce used; event not found"}, nil
	}
	final, err := n.Block(ctx, Finalized)
	if err != nil {
		return x402.Status{}, err
	}
	used, err := tokenNonces{}.IsUsed(ctx, n, a, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Block: uint64(*final.Number), At: final.Time(),
		Note: "nonce used; event not found, and not final yet"}
	if used {
		status.State, status.Note = x402.Settled, "nonce used; event not found"
	}
	return status, nil
}

// statusOfVoid is for a nonce that was used up without paying: expired when that is final.
func (n *Node) statusOfVoid(ctx context.Context, entry LogEntry, how string) (x402.Status, error) {
	final, err := n.Block(ctx, Finalized)
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

type Receipt struct {
	TransactionHash common.Hash     `json:"transactionHash"`
	Status          *hexutil.Uint64 `json:"status"`
	Logs            []LogEntry      `json:"logs"`
}

// statusOfTransaction reads the transaction that used the nonce and compares payer, payee, amount,
// token and status with what was signed. Where the node no longer has the receipt, the
// event alone settles it, with a note, if the key is ours.
func (n *Node) statusOfTransaction(ctx context.Context, a Authorization, entry LogEntry) (x402.Status,
	error) {
	var r *Receipt
	if err := n.Call(ctx, &r, "eth_getTransactionReceipt", entry.TransactionHash.Hex()); err != nil {
		return x402.Status{}, err
	}
	at, err := n.BlockOrNil(ctx, entry.BlockNumber.String())
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{State: x402.Settled, Transaction: entry.TransactionHash.Hex(),
		Block: uint64(entry.BlockNumber)}
	if at != nil {
		status.At = at.Time()
	}
	if r == nil {
		if a.Foreign {
			status.State = x402.Open
		}
		status.Note = "nonce used in this transaction; its receipt was not found"
		return status, nil
	}
	status.State, status.Note = a.compare(r, entry)
	if a.Foreign && status.State == x402.Settled && !a.isPaidBy(r) {
		return n.statusOfVoid(ctx, entry, "nonce used for something else")
	}
	return status, nil
}

// isPaidBy reports whether, among the token's own logs of r, the nonce's use is directly followed by the
// transfer that was asked for. Arc logs its coin's movement, under another address, between the two.
func (a Authorization) isPaidBy(r *Receipt) bool {
	isUse := false // the token's log before
	for _, l := range r.Logs {
		if l.Address != a.Token {
			continue
		}
		if isUse && a.IsExact(l) {
			return true
		}
		isUse = a.isEventOf(l) && l.Topics[0] == topicUsed
	}
	return false
}

// compare is the part of statusOfTransaction that asks nobody.
func (a Authorization) compare(r *Receipt, entry LogEntry) (x402.StatusState, string) {
	if r.TransactionHash != entry.TransactionHash || r.Status == nil || *r.Status != 1 {
		return x402.Open, "nonce used, but the node's receipt is of another or a failed transaction"
	}
	used, paid, moved := false, false, ""
	for _, l := range r.Logs {
		switch {
		case a.isEventOf(l):
			used = used || l.Topics[0] == topicUsed
		case a.IsTransferOf(l):
			if a.IsExact(l) {
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
func (a Authorization) IsTransferOf(l LogEntry) bool {
	return l.Address == a.Token && len(l.Topics) == 3 && l.Topics[0] == TopicTransfer &&
		len(l.Data) == 32 && l.Topics[1] == common.BytesToHash(a.Payer[:])
}

// isExact reports whether l is the transfer that was signed.
func (a Authorization) IsExact(l LogEntry) bool {
	return !l.Removed && a.IsTransferOf(l) && l.Topics[2] == common.BytesToHash(a.Payee[:]) &&
		message.AmountOf(l.Data) == a.Evidence.Amount
}

func (a Authorization) end() time.Time { return time.Unix(a.Evidence.ValidBefore, 0).UTC() }

func rfc3339(t time.Time) string { return t.Format(time.RFC3339) }
