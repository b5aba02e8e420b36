package svm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/chain/rpc"
	"x402-wallet/chain/svm/decode"
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
	return e.status(ctx, s, evidence.Network)
}

// Received is Status for a payment that somebody else signed: the evidence is what was read of the
// transaction that he showed (LastValidBlockHeight may be 0). A stranger may have found a key and a
// signature that fit more than one message, so the transaction that landed also has to be this
// payment in each of its parts: fee payer, accounts, mint, amount, memo and blockhash.
func (e *Exact) Received(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	s, err := readEvidence(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	s.shown = &evidence
	return e.status(ctx, s, evidence.Network)
}

func (e *Exact) status(ctx context.Context, s *search, network string) (_ x402.Status, err error) {
	s.node, err = e.node(network)
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

type search struct {
	node          *node
	ours          solana.Signature
	payer, source solana.PublicKey
	memo          string
	blockhash     string
	lastValid     uint64         // block height; 0 when it was not recorded
	shown         *x402.Evidence // what a stranger's transaction has to be; nil: it is our own

	slot, height uint64 // the node's finalized tip
	floor        uint64 // the first slot in which the payment could have landed
	expired      bool   // it cannot land any more
}

func readEvidence(evidence x402.Evidence) (*search, error) {
	s := &search{memo: evidence.Memo, blockhash: evidence.Blockhash, lastValid: evidence.LastValidBlockHeight}
	var errs [3]error
	s.payer, errs[0] = parseKey(evidence.Payer)
	s.source, errs[1] = parseKey(evidence.Source)
	_, errs[2] = parseKey(evidence.Blockhash)
	ours := x402.DecodeBase58(evidence.Signature, len(s.ours))
	if err := errors.Join(errs[:]...); err != nil || ours == nil ||
		solana.Signature(ours).IsZero() {
		return nil, x402.Errorf(x402.Internal, "the evidence is not that of a Solana payment")
	}
	s.ours = solana.Signature(ours)
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
	s.slot, s.height = slot, min(height, lastValid-decode.BlockhashLife)
	return nil
}

const (
	// slotSlack is how many slots without a block are allowed for beyond the usual, about an hour of them.
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
	signed := below(s.lastValid, decode.BlockhashLife+decode.HintMargin)
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
	status := x402.Status{State: x402.Settled, Transaction: found.id, Block: found.slot, At: found.at}
	switch {
	case found.failed && found.slot <= s.slot:
		status.State = x402.Expired
		status.Note = "it landed in a finalized slot and failed: it moved nothing, and cannot land again"
	case found.failed:
		return x402.Status{Note: "it landed and failed, but its slot is not final yet"}
	}
	return status
}

// Bounds of one search through an account's history. A search that meets one is incomplete, and
// proves nothing.
const (
	pageSize  = 1000 // rows; the node's own limit
	maxPages  = 20
	maxOpened = 256 // transactions fetched in one search; remembered for the next
	// so that the next search goes on where this one ended; about 200 bytes each
	maxCached = maxPages * pageSize
	// retainedByAll is how many blocks back every node keeps its history, about eleven hours: a
	// validator's own disk holds days.
	retainedByAll = 100_000
)

// landed is a transaction of the account's history.
type landed struct {
	id          string
	slot        uint64
	failed      bool
	at          time.Time
	signatures  []solana.Signature // without the fee payer's
	transaction string             // base64
}

type row struct {
	Signature string
	Slot      uint64
	Memo      string // "": none
}

// signatureCache remembers which signatures a transaction carries, so that a hundred open payments
// of one account do not fetch it a hundred times: that never changes, whatever becomes of its slot.
// When it is full it is emptied.
type signatureCache struct {
	mu    sync.Mutex
	known map[string][]solana.Signature
}

// lacks reports whether a transaction is known not to carry a signature.
func (p *signatureCache) lacks(id string, signature solana.Signature) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	signatures, known := p.known[id]
	return known && !slices.Contains(signatures, signature)
}

func (p *signatureCache) add(t *landed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxCached {
		p.known = map[string][]solana.Signature{}
	}
	p.known[t.id] = t.signatures
}

// find looks for our signature in the source's history, newest first, down to the floor. It is nil
// without an error only when the search was complete: it went past the floor, or to the account's
// first transaction at a node that keeps what is older.
//
// Each page but the first begins with the last row of the one before. So a node that does not know
// the place cannot pass for the end of the history, and a node that gives fewer rows than were
// asked for is asked on.
func (s *search) find(ctx context.Context) (*landed, error) {
	opened := 0
	before, last := "", row{Slot: ^uint64(0)}
	for range maxPages {
		rows, err := s.page(ctx, before)
		if err != nil {
			return nil, err
		}
		if before != "" {
			if len(rows) == 0 || rows[0].Signature != last.Signature {
				return nil, s.incomplete("the node lost its place in the history")
			}
			rows = rows[1:]
		}
		for i, r := range rows {
			if r.Slot > last.Slot {
				return nil, s.incomplete("the history is not in order")
			}
			if r.Slot < s.floor {
				return nil, nil
			}
			found, err := s.open(ctx, r, &opened)
			if found != nil || err != nil {
				return found, err
			}
			if i > 0 || before != "" { // the row before the last one: the next page begins behind it
				before = last.Signature
			}
			last = r
		}
		if len(rows) == 0 || before == "" {
			return nil, s.checkRetention(ctx)
		}
	}
	return nil, s.incomplete("more than %d rows since it was signed", maxPages*pageSize)
}

func (s *search) incomplete(format string, args ...any) error {
	return s.node.Failed("getSignaturesForAddress", fmt.Errorf(format, args...))
}

// page reads rows older than before. minContextSlot makes a node that has not seen the finalized
// tip yet refuse (−32016).
func (s *search) page(ctx context.Context, before string) (rows []row, err error) {
	options := map[string]any{"limit": pageSize, "commitment": confirmed, "minContextSlot": s.slot}
	if before != "" {
		options["before"] = before
	}
	const method = "getSignaturesForAddress"
	err = s.node.Call(ctx, &rows, method, s.source, options)
	if err == nil && rows == nil {
		err = s.node.Failed(method, errors.New("no list"))
	}
	return rows, err
}

// open looks into one row's transaction, and returns it when our signature is in it.
func (s *search) open(ctx context.Context, r row, opened *int) (*landed, error) {
	if s.isOther(r) || s.node.signatures.lacks(r.Signature, s.ours) {
		return nil, nil
	}
	*opened++
	if *opened > maxOpened {
		return nil, s.incomplete("more than %d transactions to look into", maxOpened)
	}
	t, err := s.node.transaction(ctx, r.Signature)
	if err != nil {
		return nil, err
	}
	s.node.signatures.add(t)
	if !slices.Contains(t.signatures, s.ours) {
		return nil, nil
	}
	transfer, err := decode.Transaction(t.transaction)
	ours := transfer.Signers[1]
	if err != nil || !ours.Verified || ours.Address != s.payer.String() {
		return nil, s.node.Failed("getTransaction",
			errors.New("our signature, under something we did not sign"))
	}
	if s.shown != nil && !isShown(transfer, *s.shown) {
		return nil, s.node.Failed("getTransaction", errors.New("the signature, under another payment"))
	}
	return t, nil
}

// isShown reports whether a transaction is the payment that evidence was read from.
func isShown(t decode.Transfer, e x402.Evidence) bool {
	return t.FeePayer == e.FeePayer && t.Authority == e.Payer && t.Source == e.Source &&
		t.Destination == e.Destination && t.Mint == e.Asset && t.Amount == e.Amount &&
		t.Memo == e.Memo && t.Blockhash == e.Blockhash
}

// isOther reports whether a row's memo shows that it is not our transaction, which saves fetching
// it. A node that reports wrong memos could as well leave rows out. Only printable ASCII is
// compared, because nodes may escape anything else, and a row without a memo proves nothing: not
// every node reports memos.
func (s *search) isOther(r row) bool {
	isPlain := !strings.ContainsFunc(s.memo, func(c rune) bool { return c < ' ' || c > '~' })
	return r.Memo != "" && isPlain && (s.memo == "" || !strings.Contains(r.Memo, s.memo))
}

// transaction fetches one that is listed. Versions that we never make need not be read.
func (n *node) transaction(ctx context.Context, id string) (*landed, error) {
	var answer *struct {
		Slot        uint64
		BlockTime   *int64
		Transaction [2]string
		Meta        *struct{ Err json.RawMessage }
	}
	const method = "getTransaction"
	err := n.Call(ctx, &answer, method, id, map[string]any{
		"encoding": "base64", "commitment": confirmed, "maxSupportedTransactionVersion": 0})
	if rpc.Refused(err, unsupportedVersion) {
		return &landed{id: id}, nil
	}
	if err != nil {
		return nil, err
	}
	if answer == nil || answer.Meta == nil || len(answer.Meta.Err) == 0 || answer.Transaction[1] != "base64" {
		return nil, n.Failed(method, errors.New("a transaction is listed, but not shown"))
	}
	wire, err := base64.StdEncoding.DecodeString(answer.Transaction[0])
	signatures := signaturesOf(wire)
	if err != nil || len(signatures) == 0 {
		return nil, n.Failed(method, errors.New("not a transaction"))
	}
	if signatures[0].String() != id {
		return nil, n.Failed(method, errors.New("another transaction than the one that was asked for"))
	}
	t := &landed{id: id, slot: answer.Slot, transaction: answer.Transaction[0], signatures: signatures[1:]}
	t.failed = string(answer.Meta.Err) != "null"
	if answer.BlockTime != nil {
		t.at = time.Unix(*answer.BlockTime, 0).UTC()
	}
	return t, nil
}

// signaturesOf reads the signatures of a transaction. It returns nil if there are none or the transaction is
// cut off. A transaction has room for so few that their count is one byte.
func signaturesOf(wire []byte) (list []solana.Signature) {
	const most = 19 // 64 bytes each, of a packet's 1232
	if len(wire) == 0 || wire[0] > most || len(wire) < 1+64*int(wire[0]) {
		return nil
	}
	for signature := range slices.Chunk(wire[1:1+64*int(wire[0])], 64) {
		list = append(list, solana.Signature(signature))
	}
	return list
}

// checkRetention is nil when the node certainly keeps what is older than the account's first
// transaction that it listed: a history that ends may be young, or pruned. A chain that is younger
// than the slack has nothing to prune. Only an expiry needs the proof.
func (s *search) checkRetention(ctx context.Context) error {
	if !s.expired || s.slot <= slotSlack {
		return nil
	}
	var first uint64
	const method = "getFirstAvailableBlock"
	err := s.node.Call(ctx, &first, method)
	switch {
	case rpc.Refused(err, methodNotFound) && below(s.height, s.lastValid) <= retainedByAll:
		return nil
	case err == nil && first > s.floor:
		err = fmt.Errorf("it keeps nothing before slot %d, and slot %d is needed: ask a node that keeps more",
			first, s.floor)
		return s.node.Failed(method, err)
	}
	return err
}
