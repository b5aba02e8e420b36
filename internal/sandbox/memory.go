package sandbox

import (
	"math"
	"time"
)

// What a sandbox that runs for long forgets (Options.Keep): the oldest payments, as a node does that is no
// archive. Never what makes a payment happen once: what cannot be forgotten without that bounds how many
// payments are taken.

const (
	// maxKept is how many nonces, addresses and channels a chain that forgets has, for each payment that it
	// keeps.
	maxKept = 20
	// nonceGrace is how long after its end a used nonce is known, for wallets that ask late; while there is
	// room.
	nonceGrace = 24 * time.Hour
	// maxBlocks is how many blocks a chain that forgets has: two days' and more.
	maxBlocks = 100_000
	// maxBlockhashes is when Solana's expired blockhashes are thrown away, and what landed with them.
	maxBlockhashes = 10_000
)

// refusesFull is why a sandbox that forgets takes no more.
const refusesFull = reason("sandbox_full")

// newest are the last keep entries of a list, at least; 0: all of them.
func newest[T any](keep int, list []T) []T {
	if keep == 0 || len(list) < 2*keep {
		return list
	}
	return append(make([]T, 0, 2*keep), list[len(list)-keep:]...)
}

// recent is a map of the last keep entries that were put into it, at least; 0: of all.
type recent[K comparable, V any] struct {
	keep   int
	values map[K]V
	order  []K
}

func newRecent[K comparable, V any](keep int) recent[K, V] {
	return recent[K, V]{keep: keep, values: map[K]V{}}
}

func (r *recent[K, V]) get(k K) (v V, known bool) {
	v, known = r.values[k]
	return v, known
}

func (r *recent[K, V]) has(k K) bool {
	_, known := r.values[k]
	return known
}

// put puts an entry in, or changes it where it is.
func (r *recent[K, V]) put(k K, v V) {
	if !r.has(k) && r.keep > 0 {
		r.order = append(r.order, k)
		if len(r.order) >= 2*r.keep {
			for _, old := range r.order[:r.keep] {
				delete(r.values, old)
			}
			r.order = newest(r.keep, r.order)
		}
	}
	r.values[k] = v
}

// forget drops the oldest transactions once there are twice as many as are kept, and what they have made
// superfluous. Whoever calls it holds mu.
func (c *evmChain) forget() {
	if c.keep == 0 || len(c.txs) < 2*c.keep {
		return
	}
	for _, tx := range c.txs[:len(c.txs)-c.keep] {
		delete(c.byHash, tx.hash)
		delete(c.shown, tx.hash)
	}
	c.txs = newest(c.keep, c.txs)
	since := c.txs[0].block
	for _, t := range []timeline{c.balances, c.allowed, c.permits, c.coins, c.counts, c.channels.balance,
		c.channels.claimed, c.channels.refunds} {
		t.forget(since)
	}
	c.forgetNonces(since, c.now().Add(-nonceGrace).Unix())
}

// forgetNonces drops those that were used before a block, and whose authorizations had ended by a time.
func (c *evmChain) forgetNonces(before uint64, ended int64) {
	for _, nonces := range []map[string]usedNonce{c.used, c.spent} {
		for nonce, used := range nonces {
			if used.block < before && used.until < ended {
				delete(nonces, nonce)
			}
		}
	}
}

// full reports whether the sandbox has no room for one more payment.
func (s *Sandbox) full() bool {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return s.evm.full()
}

// full reports whether the chain has no room for one more payment, even without the nonces of what has ended.
func (c *evmChain) full() bool {
	isFull := func() bool {
		return len(c.used)+len(c.spent)+len(c.balances)+len(c.channels.balance) >= maxKept*c.keep
	}
	if c.keep == 0 || !isFull() {
		return false
	}
	c.forgetNonces(math.MaxUint64, c.blocks[c.final()-c.first])
	return isFull()
}

// forgetBlocks drops the older half of the blocks once there are too many. Whoever calls it holds mu.
func (c *evmChain) forgetBlocks() {
	if c.keep == 0 || len(c.blocks) <= maxBlocks {
		return
	}
	half := len(c.blocks) / 2
	c.blocks = append([]int64(nil), c.blocks[half:]...)
	c.first += uint64(half)
}

// forget drops what no block since then is asked for.
func (t timeline) forget(since uint64) {
	for address, known := range t {
		first := 0
		for first+1 < len(known) && known[first+1].block <= since {
			first++
		}
		if first > 0 {
			t[address] = append([]balance(nil), known[first:]...)
		}
	}
}

// forget drops the oldest transactions, and the blockhashes whose time is over: what carries one of those can
// never land again. Whoever calls it holds mu.
func (c *solanaChain) forget() {
	if c.keep > 0 && len(c.landed) >= 2*c.keep {
		for _, t := range c.landed[:len(c.landed)-c.keep] {
			delete(c.byID, t.id)
		}
		c.landed = newest(c.keep, c.landed)
	}
	if len(c.issued)+len(c.messages) < maxBlockhashes || c.slot() == c.forgot {
		return
	}
	c.forgot = c.slot() // not twice in a slot
	isOver := func(slot uint64) bool { return height(c.slot()) > height(slot)+blockhashLife }
	for hash, slot := range c.issued {
		if isOver(slot) {
			delete(c.issued, hash)
		}
	}
	for message, slot := range c.messages {
		if isOver(slot) {
			delete(c.messages, message)
		}
	}
}
