package history

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"x402-wallet/history/sqldb"
)

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
func (s *entrySet) value(e entry) uint64 {
	return maphash.Bytes(s.seeds[1], append(append(make([]byte, 0, 128), e.key...), e.value...))
}

func (s *entrySet) put(e entry) { s.values[s.hash(e.key)] = s.value(e) }

func (s *entrySet) remove(key []byte) { delete(s.values, s.hash(key)) }

func (s *entrySet) has(e entry) bool {
	value, known := s.values[s.hash(e.key)]
	return known && value == s.value(e)
}

// sealedSums compares the sealed sums and the memory with what was signed. Without the key the digests
// over the memory are believed.
func (r *replay) sealedSums() error {
	var now sums
	var text string
	var n int
	err := r.t.Row(`SELECT count(*), coalesce(max(sums), '') FROM sealed_sums`).Scan(&n, &text)
	if err != nil {
		return err
	}
	m := &memory{t: r.t, mac: r.k.MAC}
	buckets, err := r.memoryRows(m)
	if err != nil {
		return err
	}
	if r.newestSeal == 0 {
		if n > 0 || len(r.remembered.values) > 0 {
			return corrupt("its sums are sealed, and nothing was ever signed")
		}
		return nil
	}
	if n != 1 || r.sealedDigest != digestOf([]byte(text)) || json.Unmarshal([]byte(text), &now) != nil {
		return corrupt("the sealed sums are not those of the newest sealed event")
	}
	root := now.Memory
	if r.k.MAC != nil {
		nodes, err := m.nodesOver(buckets)
		if err != nil {
			return err
		}
		if err := r.t.nodesAre(nodes); err != nil {
			return err
		}
		root = hex.EncodeToString(m.root[:])
	}
	var again sums
	_ = json.Unmarshal(r.sealed, &again) // our own
	again.Memory = root
	if !bytes.Equal(again.encode(), []byte(text)) {
		return corrupt("the sealed sums are not what was signed comes to")
	}
	return nil
}

// memoryRows compares the memory's entries, and returns the digests of its buckets: none without the key.
func (r *replay) memoryRows(m *memory) (buckets map[int64]digest, err error) {
	buckets = map[int64]digest{}
	var list []entry // of the last bucket
	digestLast := func() (err error) {
		if len(list) > 0 && m.mac != nil {
			bucket := bucketOf(list[0].key)
			buckets[bucket], err = m.sum(nodePlace(memoryDepth, bucket), encodeEntries(list))
		}
		list = list[:0]
		return err
	}
	n := 0
	err = r.t.Each(func(row sqldb.Row) error {
		var bucket int64
		var e entry
		if err := row.Scan(&bucket, &e.key, &e.value); err != nil {
			return err
		}
		if !r.remembered.has(e) || bucket != bucketOf(e.key) {
			return corrupt("the memory has an entry that was not signed for")
		}
		n++
		if len(list) > 0 && bucket != bucketOf(list[0].key) {
			if err := digestLast(); err != nil {
				return err
			}
		}
		list = append(list, e)
		return nil
	}, `SELECT bucket, key, value FROM memory ORDER BY bucket, key`)
	if err == nil && n != len(r.remembered.values) {
		err = corrupt("the memory lacks %d entries", len(r.remembered.values)-n)
	}
	if err == nil {
		err = digestLast()
	}
	return buckets, err
}
