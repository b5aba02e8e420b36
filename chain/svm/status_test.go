package svm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// paid is a wallet that signed one payment, and the transaction with it as a facilitator would send
// it. The evidence's last valid height is the chain's confirmed height and 150 at that time.
func paid(t *testing.T, change func(r *x402.Requirement)) (*Exact, *chain, x402.Evidence, []byte) {
	e, c, _ := newWallet(t)
	r := asks()
	if change != nil {
		change(&r)
	}
	a := must.Get(e.Authorize(t.Context(), orderFrom(c.ata(owner), r)))(t)
	return e, c, a.Evidence, complete(t, a)
}

func (c *chain) pass(n uint64) { c.slot, c.height = c.slot+n, c.height+n }

// others are n transactions of other people with the source, the newest at slot.
func others(n int, slot uint64, memo any) []listed {
	list, message := make([]listed, n), sampleMessage()
	for i := range list {
		wire := append([]byte{2}, make([]byte, 128)...)
		binary.BigEndian.PutUint64(wire[1:], uint64(i)+slot<<20)
		list[i] = listed{wire: append(wire, message...), slot: slot, memo: memo}
		if memo != nil { // never opened, so any name will do
			list[i].name = fmt.Sprint(slot, "-", i)
		}
	}
	return list
}

// lie has the node answer a method with something else.
func lie(method string, answer any) func(*chain, *x402.Evidence) {
	return func(c *chain, _ *x402.Evidence) { c.lies[method] = answer }
}

func TestStatus(t *testing.T) {
	e, c, evidence, wire := paid(t, nil)
	_, _, _, twin := paid(t, func(r *x402.Requirement) { r.Extra["memo"] = text("x") })
	// blocks until the finalized height is one past the last valid one: 30 and 150 and 1
	born, expired := c.slot, uint64(181)
	ours := listed{wire: wire, slot: born + 40}
	failed := listed{wire: wire, slot: born + 40, failed: true}
	forged := listed{wire: bytes.Clone(wire), slot: born + 40}
	forged.wire[150] ^= 1
	copied := listed{wire: append(append(bytes.Clone(twin[:65]), wire[65:129]...), twin[129:]...),
		slot: born + 40}
	ancient := others(1, born-20_000, nil)
	old := evidence
	old.LastValidBlockHeight = 0
	const open, settled, expiredState = x402.Open, x402.Settled, x402.Expired
	unknown := lie("getFirstAvailableBlock", rpcFault{-32601, "no"})
	for name, test := range map[string]struct {
		passed  uint64
		history []listed
		change  func(c *chain, e *x402.Evidence)
		state   x402.StatusState
		code    x402.Code
		words   string
	}{
		"nothing yet":                     {1, nil, nil, open, "", "can still land"},
		"settled":                         {50, []listed{ours}, nil, settled, "", ""},
		"settled, seen as confirmed only": {15, []listed{ours}, nil, settled, "", ""},
		"settled, and long expired": {9000, append(others(3, born+100, nil), ours), nil, settled, "",
			""},
		"settled, with other memos around": {300, append(others(300, born+100, "[3] foo"), ours), nil,
			settled, "", ""},
		"settled, its memo not reported": {50, []listed{{wire: wire, slot: born + 40, memo: ""}}, nil,
			settled, "", ""},
		"failed":            {50, []listed{failed}, nil, expiredState, "", "cannot land again"},
		"failed, not final": {15, []listed{failed}, nil, open, "", "not final"},
		"last valid height": {expired - 1, ancient, nil, open, "", "can still land"},
		"one past it":       {expired, ancient, nil, expiredState, "", "past its last valid one"},
		"never any history": {expired, nil, nil, expiredState, "", ""},
		"other payments only": {expired, append(others(5, born+40, nil), ancient...), nil, expiredState,
			"", ""},
		"another version": {expired,
			[]listed{{wire: others(1, 9, nil)[0].wire, slot: born + 9, version1: true}}, nil, expiredState,
			"", ""},
		"after 9000 slots without a block": {expired, []listed{ours}, func(c *chain, _ *x402.Evidence) {
			c.slot += 9000
		}, settled, "", ""},
		"a month later": {6_000_000, append(others(900, born+5_999_999, "[1] x"),
			others(1, born-30_000_000, nil)...), nil, expiredState, "", ""},

		"forged: our signature, other bytes": {expired, []listed{forged}, nil, open, x402.RPCError,
			"getTransaction"},
		"forged: our signature on another's": {expired, []listed{copied}, nil, open, x402.RPCError,
			"getTransaction"},
		"listed, not shown": {expired,
			[]listed{{wire: wire, slot: born + 40, withheld: true}}, nil, open, x402.RPCError,
			"getTransaction"},
		"another than asked for": {expired, others(1, born+40, nil), func(c *chain, _ *x402.Evidence) {
			c.lies["getTransaction"] = c.answerFor(ours)
		}, open, x402.RPCError, "getTransaction"},
		"success not said": {50, []listed{ours}, func(c *chain, _ *x402.Evidence) {
			c.lies["getTransaction"] = withoutErr(c, ours)
		}, open, x402.RPCError, "getTransaction"},
		"no meta": {50, []listed{ours}, func(c *chain, _ *x402.Evidence) {
			answer := c.answerFor(ours).(map[string]any)
			answer["meta"] = nil
			c.lies["getTransaction"] = answer
		}, open, x402.RPCError, "getTransaction"},
		"no list": {expired, nil, lie("getSignaturesForAddress", nil),
			open, x402.RPCError, "getSignaturesForAddress"},
		"node behind": {expired, nil, lie("getSignaturesForAddress", rpcFault{-32016, "behind"}),
			open, x402.RPCError, ""},
		"tip unknown": {expired, nil, lie("getLatestBlockhash", rpcFault{-32000, "no"}),
			open, x402.RPCError, ""},
		"history refused": {expired, nil, lie("getSignaturesForAddress", rpcFault{-32000, "no"}),
			open, x402.RPCError, ""},
		"transaction refused": {expired, []listed{ours}, lie("getTransaction", rpcFault{-32000, "no"}),
			open, x402.RPCError, ""},
		"node elsewhere": {expired, []listed{ours}, func(c *chain, _ *x402.Evidence) {
			c.genesis = "4uhcVJyU9pJkvQyS88uRDiswHXSCkY3zQawwpjk2NsNY"
		}, open, x402.CheckFailed, ""},
		"height unknown": {expired, nil, lie("getBlockHeight", rpcFault{-32000, "no"}),
			open, x402.RPCError, ""},
		"the lower height counts": {expired, ancient, func(c *chain, _ *x402.Evidence) {
			c.lies["getBlockHeight"] = c.height - 1
		}, open, "", "can still land"},
		"not in order": {expired, append(others(1, born-20_000, nil), others(1, born, nil)...),
			func(_ *chain, e *x402.Evidence) {
				e.LastValidBlockHeight -= 20_000
			}, open, x402.RPCError, ""},
		"endless": {expired, others(21_000, born+100, "[1] x"), nil, open, x402.RPCError, ""},
		"too many to open": {expired, append(others(300, born+100, nil), ancient...), nil, open,
			x402.RPCError, ""},
		"pruned, and not yet over": {1, others(1, born+1, nil), func(c *chain, _ *x402.Evidence) {
			c.first = born
		}, open, "", "can still land"},
		"young chain": {0, nil, func(c *chain, e *x402.Evidence) {
			c.slot, c.height, c.first, e.LastValidBlockHeight = 5000, 4000, 4999, 300
		}, expiredState, "", ""},
		"pruned": {expired, others(1, born+9, nil), func(c *chain, _ *x402.Evidence) {
			c.first = born
		}, open, x402.RPCError, "getFirstAvailableBlock"},
		"kept long enough": {expired, others(1, born+9, nil), func(c *chain, _ *x402.Evidence) {
			c.first = born - 20_000
		}, expiredState, "", ""},
		"kept just long enough": {expired, nil, func(c *chain, _ *x402.Evidence) {
			c.first = born - 421 - slotSlack
		}, expiredState, "", ""},
		"kept a slot too short": {expired, nil, func(c *chain, _ *x402.Evidence) {
			c.first = born - 420 - slotSlack
		}, open, x402.RPCError, "getFirstAvailableBlock"},
		"kept nobody knows how long, fresh": {expired, nil, unknown, expiredState, "", ""},
		"kept nobody knows how long, old":   {200_000, nil, unknown, open, x402.RPCError, ""},
		"kept nobody knows how long, old, but": {200_000, others(1, born-500_000, nil), unknown,
			expiredState, "", ""},
		"kept: no answer": {expired, nil, lie("getFirstAvailableBlock", rpcFault{-32000, "no"}),
			open, x402.RPCError, ""},

		"recorded too low": {1, ancient, func(c *chain, e *x402.Evidence) {
			e.LastValidBlockHeight = c.height - 200
			c.alive[nodesHash] = true
		}, open, "", "can still land"},
		"blockhash neither valid nor expired": {expired, ancient, lie("isBlockhashValid", map[string]any{}),
			open, x402.RPCError, "isBlockhashValid"},
		"blockhash unknown": {expired, ancient, lie("isBlockhashValid", rpcFault{-32000, "no"}),
			open, x402.RPCError, "isBlockhashValid"},
		"tip without a slot": {expired, nil, func(c *chain, _ *x402.Evidence) {
			c.lies["getLatestBlockhash"] = map[string]any{"value": map[string]any{"blockhash": nodesHash,
				"lastValidBlockHeight": c.height + 150}}
		}, open, x402.RPCError, "getLatestBlockhash"},
		"tip with another's slot": {expired, nil, func(c *chain, _ *x402.Evidence) {
			c.slot = c.height - 1
		}, open, x402.RPCError, "getLatestBlockhash"},
		"a higher height alone": {expired - 1, ancient, func(c *chain, _ *x402.Evidence) {
			c.lies["getBlockHeight"] = c.height + 99
		}, open, "", "can still land"},
		"our clock is no matter": {50, []listed{ours}, func(_ *chain, e *x402.Evidence) {
			e.ExpiresAt = now.Add(1000 * time.Hour)
		}, settled, "", ""},
		"nor is it when it was slow": {50, []listed{ours}, func(_ *chain, e *x402.Evidence) {
			e.ExpiresAt = time.Time{}
		}, settled, "", ""},
		"no height": {9_000_000, ancient, func(_ *chain, e *x402.Evidence) {
			*e = old
		}, open, "", "can still land"},
		"no height, found": {50, []listed{ours}, func(_ *chain, e *x402.Evidence) {
			*e = old
		}, settled, "", ""},
		"no height, failed": {50, []listed{failed}, func(_ *chain, e *x402.Evidence) {
			*e = old
		}, expiredState, "", "cannot land again"},
		"no signature": {expired, nil, func(_ *chain, e *x402.Evidence) {
			e.Signature = ""
		}, open, x402.Internal, ""},
		"nobody's signature": {expired, nil, func(_ *chain, e *x402.Evidence) {
			e.Signature = solana.Signature{}.String()
		}, open, x402.Internal, ""},
		"another's words": {expired, nil, func(_ *chain, e *x402.Evidence) {
			e.Source = "x"
		}, open, x402.Internal, ""},
		"another network": {expired, nil, func(_ *chain, e *x402.Evidence) {
			e.Network = "solana:x"
		}, open, x402.InvalidRequirement, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fresh := &chain{
				t: t, genesis: c.genesis, accounts: c.accounts, blockhash: c.blockhash, slot: c.slot,
				height: c.height, alive: map[string]bool{},
				history: test.history, lies: map[string]any{}, asked: map[string]int{},
			}
			fresh.start()
			fresh.pass(test.passed)
			asked := evidence
			if test.change != nil {
				test.change(fresh, &asked)
			}
			wallet := New(Options{Signer: e.options.Signer, RPC: map[string]string{devnet: fresh.url},
				Now: func() time.Time {
					return now
				}})
			status, err := wallet.Status(t.Context(), asked)
			require.Equal(t, test.state, status.State, "%+v %v", status, err)
			if test.code != "" {
				requireCode(t, test.code, err)
				require.ErrorContains(t, err, test.words)
				require.Equal(t, x402.Status{}, status)
				return
			}
			require.NoError(t, err)
			require.Contains(t, status.Note, test.words)
			if test.state == settled {
				require.Equal(t, x402.Status{State: settled, Transaction: ours.id(), Block: ours.slot,
					At: now}, status)
			}
		})
	}
}

// A payment that somebody else signed is settled by the transaction that was shown, and by no other
// that carries its signature.
func TestReceived(t *testing.T) {
	e, c, shown, wire := paid(t, nil)
	shown.LastValidBlockHeight = 0 // a buyer does not say it
	born := c.slot
	c.pass(50)
	c.history = []listed{{wire: wire, slot: born + 40}}
	for name, change := range map[string]func(*x402.Evidence){
		"as shown":            func(*x402.Evidence) {},
		"another fee payer":   func(e *x402.Evidence) { e.FeePayer = e.Payer },
		"another destination": func(e *x402.Evidence) { e.Destination = e.Source },
		"another mint":        func(e *x402.Evidence) { e.Asset = e.Payer },
		"another amount":      func(e *x402.Evidence) { e.Amount = money.NewAmount(1) },
		"another memo":        func(e *x402.Evidence) { e.Memo += "é" },
		"another blockhash":   func(e *x402.Evidence) { e.Blockhash = e.Payer },
	} {
		t.Run(name, func(t *testing.T) {
			asked := shown
			change(&asked)
			got, err := e.Received(t.Context(), asked)
			if name == "as shown" {
				require.NoError(t, err)
				require.Equal(t, x402.Settled, got.State)
				return
			}
			requireCode(t, x402.RPCError, err)
			require.Zero(t, got)
		})
	}
	c.history[0].failed = true
	got := must.Get(e.Received(t.Context(), shown))(t)
	require.Equal(t, x402.Expired, got.State, "it landed, and moved nothing")
}

// How far back is searched: to the first slot that can hold the payment, counted by blocks from the
// finalized tip.
func TestReadBounds(t *testing.T) {
	_, c, _ := newWallet(t)
	n := newNode(devnet, c.url, Options{})
	for i, test := range []struct {
		lastValid, slot, height, floor uint64
		over                           bool
	}{
		{1_000, 50_000, 1_200, 50_000 - 2*500 - 10_000, true},
		{1_000, 50_000, 1_001, 50_000 - 2*301 - 10_000, true},
		{1_000, 50_000, 1_000, 50_000 - 2*300 - 10_000, false},
		{1_000, 50_000, 600, 40_000, false}, // a node behind the one we signed with
		{1_000, 9_000, 1_200, 0, true},
		{10, 50_000, 1_200, 50_000 - 2*1_200 - 10_000, true},
		{0, 50_000, 40_000, 0, false},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := &search{node: n, blockhash: nodesHash, lastValid: test.lastValid, slot: test.slot,
				height: test.height}
			require.NoError(t, s.readBounds(t.Context()))
			require.Equal(t, []any{test.floor, test.over}, []any{s.floor, s.expired}, "%+v", test)
		})
	}
}

func TestTheFirstSlotIsSearched(t *testing.T) {
	e, c, evidence, wire := paid(t, nil)
	// 181 blocks from now 2*(181+120) slots and the slack are searched
	first := c.slot - 181 - 2*120 - slotSlack
	c.pass(181)
	for slot, state := range map[uint64]x402.StatusState{first: x402.Settled, first - 1: x402.Expired} {
		c.history = []listed{{wire: wire, slot: slot}}
		require.Equal(t, state, must.Get(e.Status(t.Context(), evidence))(t).State)
	}
}

// A page that is shorter than was asked for is not the end of the history, and an empty page of
// another node is none either.
func TestPages(t *testing.T) {
	e, c, evidence, wire := paid(t, nil)
	ours := listed{wire: wire, slot: c.slot + 40}
	c.pass(500)
	for _, rows := range []int{2, 3, 7, 1000} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			c.history = append(append(others(11, c.slot-50, "[1] x"), ours), others(1, 1, nil)...)
			c.rows = rows
			status := must.Get(e.Status(t.Context(), evidence))(t)
			require.Equal(t, x402.Settled, status.State, "%d rows a page", rows)
			require.Equal(t, c.slot, c.lastHistoryMinimum)
			for method, commitment := range map[string]string{"getLatestBlockhash": finalized,
				"getBlockHeight": finalized, "isBlockhashValid": confirmed,
				"getSignaturesForAddress": confirmed,
				"getTransaction":          confirmed} {
				require.Equal(t, commitment, c.commitments[method], method)
			}

			c.history = append(others(11, c.slot-50, "[1] x"), others(3, c.slot-60, "[1] y")...)
			status = must.Get(e.Status(t.Context(), evidence))(t)
			require.Equal(t, x402.Expired, status.State, "%d rows a page", rows)

			for _, another := range []*bool{&c.forgetful, &c.skipping} {
				*another = true
				status, err := e.Status(t.Context(), evidence)
				requireCode(t, x402.RPCError, err)
				require.Equal(t, x402.Open, status.State)
				*another = false
			}
		})
	}
}

// A hundred transactions without memos are fetched once, not once for each open payment.
func TestSignaturesAreCached(t *testing.T) {
	e, c, evidence, wire := paid(t, func(r *x402.Requirement) {
		r.Version, r.Dialect = 1, x402.DialectV1Body
	})
	require.Empty(t, evidence.Memo)
	c.pass(500)
	c.history = append(append(others(400, c.slot-50, nil), others(50, c.slot-60, "[1] x")...),
		listed{wire: wire, slot: c.slot - 100})
	_, err := e.Status(t.Context(), evidence)
	require.True(t, x402.HasCode(err, x402.RPCError), "one search has an end: %v", err)
	status := must.Get(e.Status(t.Context(), evidence))(t) // the next goes on where it ended
	require.Equal(t, x402.Settled, status.State)
	must.Get(e.Status(t.Context(), evidence))(t)
	require.Equal(t, 402, c.asked["getTransaction"], "only what is found is looked at again")

	p := signatureCache{}
	for i := range maxCached + 1 {
		p.add(&landed{id: fmt.Sprint(i)})
	}
	require.Len(t, p.known, 1, "bounded")
	require.GreaterOrEqual(t, maxCached, maxPages*pageSize, "a search that fits would never come to its end")
}

// What is not final may still change, and is fetched again.
func TestStatusBeforeFinalityIsNotCached(t *testing.T) {
	e, c, evidence, wire := paid(t, nil)
	c.history = []listed{{wire: wire, slot: c.slot + 10, failed: true}}
	status := must.Get(e.Status(t.Context(), evidence))(t)
	require.Equal(t, x402.Open, status.State)
	c.history[0].failed = false // another fork
	status = must.Get(e.Status(t.Context(), evidence))(t)
	require.Equal(t, x402.Settled, status.State)
}

// A seller's memo is compared with what nodes tell only where they cannot spell it otherwise.
func TestForeignMemos(t *testing.T) {
	e, c, evidence, wire := paid(t, func(r *x402.Requirement) { r.Extra["memo"] = text("é\x1b[2J") })
	c.pass(500)
	c.history = []listed{{wire: wire, slot: c.slot - 100, memo: `[6] \u00e9?[2J`}}
	require.Equal(t, x402.Settled, must.Get(e.Status(t.Context(), evidence))(t).State)
}

// A hint that the seller chose lengthens the wait, never shortens it.
func TestHintsLifeIsConservative(t *testing.T) {
	e, c, _ := newWallet(t)
	const hint = "GfVcyD4kkTrj4bKc7WA9sZCin9JDbdT4Zkd3EittNR1W"
	c.alive[hint] = true
	r := asks()
	r.Extra["recentBlockhash"], r.Extra["lastValidBlockHeight"] = text(hint), text("1")
	a := must.Get(e.Authorize(t.Context(), orderFrom(c.ata(owner), r)))(t)
	c.pass(330)
	status := must.Get(e.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Open, status.State)
	c.pass(1)
	status = must.Get(e.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Open, status.State, "the node still takes the blockhash")
	c.alive[hint] = false
	status = must.Get(e.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Expired, status.State)
}

func (c *chain) answerFor(l listed) any {
	saved := c.history
	defer func() { c.history = saved }()
	c.history = []listed{l}
	return c.transaction(l.id())
}

func withoutErr(c *chain, l listed) any {
	answer := c.answerFor(l).(map[string]any)
	answer["meta"] = map[string]any{}
	return answer
}
