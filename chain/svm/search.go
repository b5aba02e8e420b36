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
)

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

// row is one line of getSignaturesForAddress.
type row struct {
	Signature string
	Slot      uint64
	Memo      *string
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
	if err := s.node.Call(ctx, &rows, method, s.source, options); err != nil {
		return nil, err
	}
	if rows == nil {
		return nil, s.node.Failed(method, errors.New("no list"))
	}
	return rows, nil
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
	transfer, err := Decode(t.transaction)
	ours := transfer.Signers[1]
	if err != nil || !ours.Verified || ours.Address != s.payer.String() {
		return nil, s.node.Failed("getTransaction",
			errors.New("our signature, under something we did not sign"))
	}
	return t, nil
}

// isOther reports whether a row's memo shows that it is not our transaction, which saves fetching
// it. A node that reports wrong memos could as well leave rows out. Only printable ASCII is
// compared, because nodes may escape anything else, and a row without a memo proves nothing: not
// every node reports memos.
func (s *search) isOther(r row) bool {
	if r.Memo == nil || *r.Memo == "" {
		return false
	}
	if strings.ContainsFunc(s.memo, func(c rune) bool { return c < ' ' || c > '~' }) {
		return false
	}
	return s.memo == "" || !strings.Contains(*r.Memo, s.memo)
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
	err := n.Call(ctx, &answer, method, id, map[string]any{"encoding": "base64", "commitment": confirmed,
		"maxSupportedTransactionVersion": 0})
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
	r := reader{data: wire}
	count := r.compact()
	if err != nil || count == 0 || count > maxTransaction/64 {
		return nil, n.Failed(method, errors.New("not a transaction"))
	}
	t := &landed{id: id, slot: answer.Slot, transaction: answer.Transaction[0]}
	for range count {
		t.signatures = append(t.signatures, solana.Signature(r.take(64)))
	}
	if r.truncated || t.signatures[0].String() != id {
		return nil, n.Failed(method, errors.New("another transaction than the one that was asked for"))
	}
	t.signatures = t.signatures[1:]
	t.failed = string(answer.Meta.Err) != "null"
	if answer.BlockTime != nil {
		t.at = time.Unix(*answer.BlockTime, 0).UTC()
	}
	return t, nil
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
	case rpc.Refused(err, methodNotFound):
		if below(s.height, s.lastValid) <= retainedByAll {
			return nil
		}
		return err
	case err != nil:
		return err
	case first > s.floor:
		return s.node.Failed(method,
			fmt.Errorf("it keeps nothing before slot %d, and slot %d is needed: ask a node that keeps more",
				first, s.floor))
	}
	return nil
}
