package verify

import (
	"bytes"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/maphash"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// applySealed checks a sealed row, and adds what was signed.
func (r *replay) applySealed(row audit.Row) error {
	isOwn := row.Seal != nil
	if isOwn && r.k.MAC != nil {
		own, err := r.k.MAC(audit.SealData(row.Hash))
		if err != nil {
			return err
		}
		isOwn = hmac.Equal(own, row.Seal)
	}
	if !isOwn {
		return audit.Corrupt("event %d (%s of payment %d) is not sealed by this wallet", row.Seq, row.Event,
			row.Payment)
	}
	err := r.addSigned(row)
	if _, isKnown := errors.AsType[*x402.Error](err); isKnown {
		return err
	}
	if err != nil {
		return unreadable(row)
	}
	if row.Seq == r.newestSeal {
		d, err := read(row)
		r.sealed, r.sealedDigest = r.sums.Encode(), d.Sums
		return err
	}
	return nil
}

// addSigned adds what a sealed row says to the sums and the memory.
func (r *replay) addSigned(row audit.Row) error {
	switch row.Event {
	case audit.SignedEvent:
		g, err := seals.Read[seals.Signature](row.Detail)
		if err != nil {
			return err
		}
		if !r.sums.Knows(sqldb.FromMicros(g.Created)) {
			return audit.Corrupt("event %d was signed too late", row.Seq)
		}
		r.sums.Add(g)
		for _, e := range g.Remembered() {
			r.remembered.put(e)
		}
	case audit.ExpiredEvent:
		d, err := seals.Read[seals.GivenBack](row.Detail)
		if err != nil {
			return err
		}
		g := d.Signature
		r.sums.Lower(g, g.Price)
		r.remembered.put(memory.Entry{Key: seals.ExpiredKey(g.ID), Value: []byte{1}})
		if g.Key != "" {
			r.remembered.remove(seals.IdempotencyKey(g.Agent, g.Key))
		}
	case audit.ChargedEvent:
		d, err := seals.Read[seals.GivenBack](row.Detail)
		if err != nil {
			return err
		}
		r.sums.Lower(d.Signature, money.Dollars(d.Returned))
		r.remembered.put(memory.Entry{Key: seals.ChargedKey(d.Signature.ID), Value: []byte{1}})
	default:
		d, err := read(row)
		if err != nil {
			return err
		}
		if row.Event == audit.VoucherEvent && d.Voucher != nil {
			r.remembered.put(d.Voucher.Entry())
		}
		if row.Event == audit.SealedEvent && d.Accepted != nil {
			r.restartFrom(*d.Accepted)
		}
	}
	return nil
}

// restartFrom begins anew from the sums that the owner accepted, as package history did then.
func (r *replay) restartFrom(s seals.Sums) {
	r.sums, r.tooEarly = s, ""
	for _, c := range r.channels {
		e := c.voucher.Entry()
		r.remembered.remove(e.Key)
		if c.isSigned {
			r.remembered.put(e)
		}
	}
}

// sealedSums compares the sealed sums and the memory with what was signed. Without the key the digests
// over the memory are believed.
func (r *replay) sealedSums() error {
	var now seals.Sums
	var text string
	var n int
	err := r.t.Row(`SELECT count(*), coalesce(max(sums), '') FROM sealed_sums`).Scan(&n, &text)
	if err != nil {
		return err
	}
	m := &memory.Memory{Tx: r.t, MAC: r.k.MAC}
	buckets, err := r.memory(m)
	if err != nil {
		return err
	}
	if r.newestSeal == 0 {
		if n > 0 || len(r.remembered.values) > 0 {
			return audit.Corrupt("its sums are sealed, and nothing was ever signed")
		}
		return nil
	}
	if n != 1 || r.sealedDigest != audit.Digest([]byte(text)) || json.Unmarshal([]byte(text), &now) != nil {
		return audit.Corrupt("the sealed sums are not those of the newest sealed event")
	}
	root := now.Memory
	if r.k.MAC != nil {
		nodes, err := m.NodesOver(buckets)
		if err != nil {
			return err
		}
		if err := memory.CheckNodes(r.t, nodes); err != nil {
			return err
		}
		root = hex.EncodeToString(m.Root[:])
	}
	var again seals.Sums
	_ = json.Unmarshal(r.sealed, &again) // our own
	again.Memory = root
	if !bytes.Equal(again.Encode(), []byte(text)) {
		return audit.Corrupt("the sealed sums are not what was signed comes to")
	}
	return nil
}

// memory compares the memory's entries, and returns the digests of its buckets: none without the key.
func (r *replay) memory(m *memory.Memory) (buckets map[int64]memory.Digest, err error) {
	buckets = map[int64]memory.Digest{}
	var list []memory.Entry // of the last bucket
	digestLast := func() (err error) {
		if len(list) > 0 && m.MAC != nil {
			buckets[memory.BucketOf(list[0].Key)], err = m.Bucket(list)
		}
		list = list[:0]
		return err
	}
	n := 0
	err = r.t.Each(func(row sqldb.Row) error {
		var bucket int64
		var e memory.Entry
		if err := row.Scan(&bucket, &e.Key, &e.Value); err != nil {
			return err
		}
		if !r.remembered.has(e) || bucket != memory.BucketOf(e.Key) {
			return audit.Corrupt("the memory has an entry that was not signed for")
		}
		n++
		if len(list) > 0 && bucket != memory.BucketOf(list[0].Key) {
			if err := digestLast(); err != nil {
				return err
			}
		}
		list = append(list, e)
		return nil
	}, `SELECT bucket, key, value FROM memory ORDER BY bucket, key`)
	if err == nil && n != len(r.remembered.values) {
		err = audit.Corrupt("the memory lacks %d entries", len(r.remembered.values)-n)
	}
	if err == nil {
		err = digestLast()
	}
	return buckets, err
}

// entrySet is the entries of a memory, by hashes that nobody can foresee: the memory grows with all that was
// ever bought, and whoever compares it with what was signed has not the room. Those of a key are 128 bits, so
// that no two keys have the same.
type entrySet struct {
	seeds  [2]maphash.Seed
	values map[[2]uint64]uint64 // by the hashes of the key, one of key and value
}

func newEntrySet() entrySet {
	return entrySet{[2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, map[[2]uint64]uint64{}}
}

func (s *entrySet) hash(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(s.seeds[0], key), maphash.Bytes(s.seeds[1], key)}
}

// value is a hash over both; all keys are of one size.
func (s *entrySet) value(e memory.Entry) uint64 {
	return maphash.Bytes(s.seeds[1], append(append(make([]byte, 0, 128), e.Key...), e.Value...))
}

func (s *entrySet) put(e memory.Entry) { s.values[s.hash(e.Key)] = s.value(e) }

func (s *entrySet) remove(key []byte) { delete(s.values, s.hash(key)) }

func (s *entrySet) has(e memory.Entry) bool {
	value, known := s.values[s.hash(e.Key)]
	return known && value == s.value(e)
}
