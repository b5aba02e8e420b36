package history

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"x402-wallet/history/sqldb"
)

// The memory is an authenticated key-value store, a Merkle tree of keyed digests, of what the wallet
// has to know of all that it ever signed: which payees, for which sellers, at which prices, under which
// idempotency keys, and how far each channel has come. It only changes together with a signature, made
// by whoever holds the key.
//
// It is a table of keys and values, spread over 2^18 buckets, under a tree of keyed digests: 64
// buckets under a node, 64 of these under the next, and so on up to the root, which is part of the
// sealed sums (sums.go). Whoever reads a bucket with the key reads the three nodes above it, too; so
// a row that was changed, put back to an older one or taken out is found by the reader who looks for
// it, also where the answer is that there is none, at a cost that does not grow with the ledger.
// Without a key what is read is believed, as all of the ledger is until something is signed.

const (
	memoryFanout = 64
	memoryDepth  = 3
	digestSize   = 16
)

// digest is a keyed digest of a bucket or a node; zero: there is nothing in it.
type digest [digestSize]byte

// memoryKey names an entry: a kind, and what tells it from others of that kind.
func memoryKey(kind string, names ...string) []byte {
	data := binary.BigEndian.AppendUint64(make([]byte, 0, 1024), uint64(len(kind))) // on the stack, mostly
	data = append(data, kind...)
	for _, name := range names {
		data = binary.BigEndian.AppendUint64(data, uint64(len(name)))
		data = append(data, name...)
	}
	sum := sha256.Sum256(data)
	return sum[:]
}

// bucketOf is the bucket of an entry: the first 18 bits of its key.
func bucketOf(key []byte) int64 { return int64(binary.BigEndian.Uint32(key) >> 14) }

// recall returns the value of an entry, as the table has it; nil: there is none.
func (t *tx) recall(key []byte) (value []byte, err error) {
	err = t.Row(`SELECT value FROM memory WHERE bucket = ? AND key = ?`, bucketOf(key), key).Scan(&value)
	return value, sqldb.Otherwise(err, nil)
}

// memory is the memory for a holder of the key: everything that is read from it is checked up to the root.
type memory struct {
	t    *tx
	mac  func(data []byte) ([]byte, error)
	root digest

	nodes   map[int64][]byte  // that lead to the root, by their place
	buckets map[int64][]entry // likewise
}

// forgotten says that an entry is not the one that was signed for.
func forgotten() error {
	return corrupt("what it says of earlier payments is not what the wallet wrote when it signed them")
}

// sum is the digest of what lies at a place of the tree.
func (m *memory) sum(place int64, data []byte) (d digest, err error) {
	if isEmpty(data) {
		return d, nil
	}
	full, err := m.mac(append(binary.BigEndian.AppendUint64([]byte("memory"), uint64(place)), data...))
	copy(d[:], full)
	return d, err
}

// isEmpty reports whether there is nothing below a node, or in a bucket.
func isEmpty(data []byte) bool { return len(bytes.Trim(data, "\x00")) == 0 }

// nodePlace numbers the nodes of a level, the root first; buckets come behind all of them.
func nodePlace(level int, index int64) int64 {
	first, width := int64(0), int64(1)
	for range level {
		first, width = first+width, width*memoryFanout
	}
	return first + index
}

// nodeAbove is the node of a level on the way to a bucket.
func nodeAbove(level int, bucket int64) int64 {
	return nodePlace(level, bucket>>(6*(memoryDepth-level)))
}

// path reads the nodes above a bucket, and checks each against the one above it and the bucket's
// entries against the last.
func (m *memory) path(bucket int64) (nodes [memoryDepth][]byte, entries []entry, err error) {
	expected := m.root
	for level := range memoryDepth {
		nodes[level], err = m.node(nodeAbove(level, bucket), expected)
		if err != nil {
			return nodes, nil, err
		}
		copy(expected[:], child(nodes[level], bucket, level))
	}
	entries, err = m.bucket(bucket, expected)
	return nodes, entries, err
}

// child is the place in a node of a level that is for what is below it on the way to a bucket.
func child(node []byte, bucket int64, level int) []byte {
	i := (bucket >> (6 * (memoryDepth - 1 - level))) % memoryFanout
	return node[i*digestSize : (i+1)*digestSize]
}

// node reads a node, which has to have the digest that the one above it has for it.
func (m *memory) node(place int64, expected digest) (data []byte, err error) {
	if known := m.nodes[place]; known != nil {
		return known, nil
	}
	err = m.t.Row(`SELECT digests FROM memory_nodes WHERE place = ?`, place).Scan(&data)
	if err := sqldb.Otherwise(err, nil); err != nil {
		return nil, err
	}
	if data == nil {
		data = make([]byte, memoryFanout*digestSize)
	}
	if len(data) != memoryFanout*digestSize {
		return nil, forgotten()
	}
	if err := m.check(place, data, expected); err != nil {
		return nil, err
	}
	m.makeCaches()
	m.nodes[place] = data
	return data, nil
}

func (m *memory) makeCaches() {
	if m.nodes == nil {
		m.nodes, m.buckets = map[int64][]byte{}, map[int64][]entry{}
	}
}

// check refuses what has another digest.
func (m *memory) check(place int64, data []byte, expected digest) error {
	is, err := m.sum(place, data)
	if err == nil && !hmac.Equal(is[:], expected[:]) {
		err = forgotten()
	}
	return err
}

type entry struct{ key, value []byte }

// bucket reads a bucket's entries.
func (m *memory) bucket(bucket int64, expected digest) ([]entry, error) {
	if known, is := m.buckets[bucket]; is {
		return known, nil
	}
	list, err := sqldb.Collect(m.t.Tx, func(row sqldb.Row) (e entry, err error) {
		err = row.Scan(&e.key, &e.value)
		return e, err
	}, `SELECT key, value FROM memory WHERE bucket = ? ORDER BY key`, bucket)
	if err == nil {
		err = m.check(nodePlace(memoryDepth, bucket), encodeEntries(list), expected)
	}
	if err != nil {
		return nil, err
	}
	m.makeCaches()
	m.buckets[bucket] = list
	return list, nil
}

func encodeEntries(list []entry) (data []byte) {
	for _, e := range list {
		for _, part := range [][]byte{e.key, e.value} {
			data = append(binary.BigEndian.AppendUint32(data, uint32(len(part))), part...)
		}
	}
	return data
}

// get returns an entry's value; nil: it is certain that there is none.
func (m *memory) get(key []byte) ([]byte, error) {
	_, entries, err := m.path(bucketOf(key))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if bytes.Equal(e.key, key) {
			return e.value, nil
		}
	}
	return nil, nil
}

// put sets an entry's value, or takes the entry out (nil), and the root with it.
func (m *memory) put(key, value []byte) error {
	bucket := bucketOf(key)
	nodes, entries, err := m.path(bucket)
	if err != nil {
		return err
	}
	at, found := searchEntry(entries, key)
	switch {
	case found && bytes.Equal(entries[at].value, value), !found && value == nil:
		return nil
	case value == nil:
		entries = append(entries[:at], entries[at+1:]...)
		_, err = m.t.Exec(`DELETE FROM memory WHERE bucket = ? AND key = ?`, bucket, key)
	default:
		if !found {
			entries = append(entries[:at:at], append([]entry{{key: key}}, entries[at:]...)...)
		}
		entries[at].value = slices.Clone(value)
		_, err = m.t.Exec(`INSERT INTO memory VALUES (?, ?, ?) ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value`,
			bucket, key, value)
	}
	if err != nil {
		return err
	}
	m.buckets[bucket] = entries
	below, err := m.sum(nodePlace(memoryDepth, bucket), encodeEntries(entries))
	for level := memoryDepth - 1; level >= 0 && err == nil; level-- {
		copy(child(nodes[level], bucket, level), below[:])
		place := nodeAbove(level, bucket)
		if isEmpty(nodes[level]) {
			_, err = m.t.Exec(`DELETE FROM memory_nodes WHERE place = ?`, place)
		} else {
			_, err = m.t.Exec(`INSERT INTO memory_nodes VALUES (?, ?)
				ON CONFLICT (place) DO UPDATE SET digests = excluded.digests`, place, nodes[level])
		}
		if err == nil {
			below, err = m.sum(place, nodes[level])
		}
	}
	if err == nil {
		m.root = below
	}
	return err
}

func searchEntry(list []entry, key []byte) (at int, found bool) {
	for at = range list {
		if c := bytes.Compare(list[at].key, key); c >= 0 {
			return at, c == 0
		}
	}
	return len(list), false
}

// verify checks every entry.
func (m *memory) verify() error {
	entries, err := m.verifyBelow(0, 0, m.root)
	if err != nil {
		return err
	}
	var rows int
	err = m.t.Row(`SELECT count(*) FROM memory`).Scan(&rows)
	if err == nil && rows != entries {
		err = forgotten()
	}
	return err
}

// verifyBelow counts the entries under a place of a level of the tree, and checks them.
func (m *memory) verifyBelow(level int, index int64, expected digest) (entries int, err error) {
	if expected == (digest{}) {
		return 0, nil
	}
	if level == memoryDepth {
		list, err := m.bucket(index, expected)
		return len(list), err
	}
	node, err := m.node(nodePlace(level, index), expected)
	if err != nil {
		return 0, err
	}
	for i := range int64(memoryFanout) {
		n, err := m.verifyBelow(level+1, index*memoryFanout+i, digest(node[i*digestSize:(i+1)*digestSize]))
		if err != nil {
			return 0, err
		}
		entries += n
	}
	return entries, nil
}

// fill puts many entries into an empty memory, each node once.
func (m *memory) fill(entries map[string][]byte) error {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		_, err := m.t.Exec(`INSERT INTO memory VALUES (?, ?, ?)`, bucketOf([]byte(key)), []byte(key), entries[key])
		if err != nil {
			return err
		}
	}
	nodes, err := m.tree(entries)
	if err != nil {
		return err
	}
	for place, node := range nodes {
		if _, err := m.t.Exec(`INSERT INTO memory_nodes VALUES (?, ?)`, place, node); err != nil {
			return err
		}
	}
	return nil
}

// tree is nodesOver of these entries.
func (m *memory) tree(entries map[string][]byte) (map[int64][]byte, error) {
	buckets := map[int64][]entry{}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		bucket := bucketOf([]byte(key))
		buckets[bucket] = append(buckets[bucket], entry{[]byte(key), entries[key]})
	}
	digests := map[int64]digest{}
	for bucket, list := range buckets {
		d, err := m.sum(nodePlace(memoryDepth, bucket), encodeEntries(list))
		if err != nil {
			return nil, err
		}
		digests[bucket] = d
	}
	return m.nodesOver(digests)
}

// nodesOver returns the nodes over buckets of these digests, by their places, and sets the root.
func (m *memory) nodesOver(below map[int64]digest) (map[int64][]byte, error) {
	all := map[int64][]byte{}
	for level := memoryDepth - 1; level >= 0; level-- {
		nodes := map[int64][]byte{}
		for index, d := range below {
			node := nodes[index/memoryFanout]
			if node == nil {
				node = make([]byte, memoryFanout*digestSize)
				nodes[index/memoryFanout] = node
			}
			copy(node[index%memoryFanout*digestSize:], d[:])
		}
		below = map[int64]digest{}
		for index, node := range nodes {
			place := nodePlace(level, index)
			d, err := m.sum(place, node)
			if err != nil {
				return nil, err
			}
			all[place], below[index] = node, d
		}
	}
	m.root = below[0]
	return all, nil
}

// clear forgets everything.
func (m *memory) clear() error {
	_, err := m.t.Exec(`DELETE FROM memory`)
	_, errNodes := m.t.Exec(`DELETE FROM memory_nodes`)
	*m = memory{t: m.t, mac: m.mac}
	return errors.Join(err, errNodes)
}
