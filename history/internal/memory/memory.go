// Package memory is an authenticated key-value store, a Merkle tree of keyed digests, of what the wallet
// has to know of all that it ever signed: which payees, for which sellers, at which prices, under which
// idempotency keys, and how far each channel has come. It only changes together with a signature, made
// by whoever holds the key.
//
// It is a table of keys and values, spread over 2^18 buckets, under a tree of keyed digests: 64
// buckets under a node, 64 of these under the next, and so on up to the root, which is part of the
// sealed sums (package seals). Whoever reads a bucket with the key reads the three nodes above it, too; so
// a row that was changed, put back to an older one or taken out is found by the reader who looks for
// it, also where the answer is that there is none, at a cost that does not grow with the ledger.
// Without a key what is read is believed, as all of the ledger is until something is signed.
package memory

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

const (
	fanout     = 64
	depth      = 3
	digestSize = 16
)

// Digest is a keyed digest of a bucket or a node; zero: there is nothing in it.
type Digest [digestSize]byte

// Key names an entry: a kind, and what tells it from others of that kind.
func Key(kind string, names ...string) []byte {
	data := binary.BigEndian.AppendUint64(make([]byte, 0, 1024), uint64(len(kind))) // on the stack, mostly
	data = append(data, kind...)
	for _, name := range names {
		data = binary.BigEndian.AppendUint64(data, uint64(len(name)))
		data = append(data, name...)
	}
	sum := sha256.Sum256(data)
	return sum[:]
}

// BucketOf is the bucket of an entry: the first 18 bits of its key.
func BucketOf(key []byte) int64 { return int64(binary.BigEndian.Uint32(key) >> 14) }

// Recall returns the value of an entry, as the table has it; nil: there is none.
func Recall(t *sqldb.Tx, key []byte) (value []byte, err error) {
	err = t.Row(`SELECT value FROM memory WHERE bucket = ? AND key = ?`, BucketOf(key), key).Scan(&value)
	return value, sqldb.Otherwise(err, nil)
}

// Memory is the memory for a holder of the key: everything that is read from it is checked up to the root.
// Changes are kept until Flush writes them.
type Memory struct {
	Tx   *sqldb.Tx
	MAC  func(data []byte) ([]byte, error)
	Root Digest

	nodes   map[int64][]byte  // by their place
	buckets map[int64][]Entry // their entries, in the order of keys
	changed map[int64]bool    // nodes that are not written yet, by their place
	entries []Entry           // that are not written yet; a nil value is to be deleted
}

// Forgotten says that an entry is not the one that was signed for.
func Forgotten() error {
	return audit.Corrupt("what it says of earlier payments is not what the wallet wrote when it signed them")
}

// sum is the digest of what lies at a place of the tree.
func (m *Memory) sum(place int64, data []byte) (d Digest, err error) {
	if isEmpty(data) {
		return d, nil
	}
	full, err := m.MAC(append(binary.BigEndian.AppendUint64([]byte("memory"), uint64(place)), data...))
	copy(d[:], full)
	return d, err
}

// isEmpty reports whether there is nothing below a node, or in a bucket.
func isEmpty(data []byte) bool { return len(bytes.Trim(data, "\x00")) == 0 }

// nodePlace numbers the nodes of a level, the root first; buckets come behind all of them.
func nodePlace(level int, index int64) int64 {
	first, width := int64(0), int64(1)
	for range level {
		first, width = first+width, width*fanout
	}
	return first + index
}

// nodeAbove is the node of a level on the way to a bucket.
func nodeAbove(level int, bucket int64) int64 {
	return nodePlace(level, bucket>>(6*(depth-level)))
}

// Load reads the buckets of keys with the nodes above them, and checks each against the node above it. What
// is known already is not read again.
func (m *Memory) Load(keys ...[]byte) error {
	if m.nodes == nil {
		m.nodes, m.buckets, m.changed = map[int64][]byte{}, map[int64][]Entry{}, map[int64]bool{}
	}
	missing, places := map[int64]bool{}, map[int64]bool{}
	for _, key := range keys {
		bucket := BucketOf(key)
		if _, known := m.buckets[bucket]; known {
			continue
		}
		missing[bucket] = true
		for level := range depth {
			if place := nodeAbove(level, bucket); m.nodes[place] == nil {
				places[place] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	nodes, err := m.readNodes(slices.Sorted(maps.Keys(places)))
	if err != nil {
		return err
	}
	buckets, err := m.readBuckets(slices.Sorted(maps.Keys(missing)))
	if err != nil {
		return err
	}
	for bucket := range missing {
		if err := m.check(bucket, buckets[bucket], nodes); err != nil {
			return err
		}
	}
	return nil
}

// check checks what was read of a bucket and of the nodes above it, from the root down.
func (m *Memory) check(bucket int64, entries []Entry, read map[int64][]byte) error {
	expected := m.Root
	for level := range depth {
		place := nodeAbove(level, bucket)
		if m.nodes[place] == nil {
			node := read[place]
			if node == nil {
				node = make([]byte, fanout*digestSize)
			}
			if len(node) != fanout*digestSize {
				return Forgotten()
			}
			if err := m.compare(place, node, expected); err != nil {
				return err
			}
			m.nodes[place] = node
		}
		copy(expected[:], child(m.nodes[place], bucket, level))
	}
	if err := m.compare(nodePlace(depth, bucket), encodeEntries(entries), expected); err != nil {
		return err
	}
	m.buckets[bucket] = entries
	return nil
}

// compare refuses what has another digest.
func (m *Memory) compare(place int64, data []byte, expected Digest) error {
	is, err := m.sum(place, data)
	if err == nil && !hmac.Equal(is[:], expected[:]) {
		err = Forgotten()
	}
	return err
}

// child is the place in a node of a level that is for what is below it on the way to a bucket.
func child(node []byte, bucket int64, level int) []byte {
	i := (bucket >> (6 * (depth - 1 - level))) % fanout
	return node[i*digestSize : (i+1)*digestSize]
}

func (m *Memory) readNodes(places []int64) (map[int64][]byte, error) {
	nodes := map[int64][]byte{}
	if len(places) == 0 {
		return nodes, nil
	}
	err := m.Tx.Each(func(row sqldb.Row) error {
		var place int64
		var digests []byte
		err := row.Scan(&place, &digests)
		nodes[place] = digests
		return err
	}, `SELECT place, digests FROM memory_nodes WHERE place IN `+listOf(places))
	return nodes, err
}

func (m *Memory) readBuckets(numbers []int64) (map[int64][]Entry, error) {
	buckets := map[int64][]Entry{}
	err := m.Tx.Each(func(row sqldb.Row) error {
		var bucket int64
		var e Entry
		err := row.Scan(&bucket, &e.Key, &e.Value)
		buckets[bucket] = append(buckets[bucket], e)
		return err
	}, `SELECT bucket, key, value FROM memory WHERE bucket IN `+listOf(numbers)+` ORDER BY bucket, key`)
	return buckets, err
}

func listOf(numbers []int64) string {
	text := []byte{'('}
	for i, n := range numbers {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(append(text, ')'))
}

type Entry struct{ Key, Value []byte }

func encodeEntries(list []Entry) (data []byte) {
	for _, e := range list {
		for _, part := range [][]byte{e.Key, e.Value} {
			data = append(binary.BigEndian.AppendUint32(data, uint32(len(part))), part...)
		}
	}
	return data
}

// Get returns an entry's value, or nil if it is certain that there is none.
func (m *Memory) Get(key []byte) ([]byte, error) {
	if err := m.Load(key); err != nil {
		return nil, err
	}
	entries := m.buckets[BucketOf(key)]
	if at, found := searchEntry(entries, key); found {
		return entries[at].Value, nil
	}
	return nil, nil
}

// Put sets an entry's value, or takes the entry out (nil), and changes the root with it.
func (m *Memory) Put(key, value []byte) error {
	if err := m.Load(key); err != nil {
		return err
	}
	bucket := BucketOf(key)
	entries := slices.Clone(m.buckets[bucket])
	at, found := searchEntry(entries, key)
	switch {
	case found && bytes.Equal(entries[at].Value, value), !found && value == nil:
		return nil
	case value == nil:
		entries = slices.Delete(entries, at, at+1)
	case found:
		entries[at].Value = slices.Clone(value)
	default:
		entries = slices.Insert(entries, at, Entry{key, slices.Clone(value)})
	}
	m.buckets[bucket] = entries
	m.entries = append(m.entries, Entry{key, slices.Clone(value)})
	below, err := m.sum(nodePlace(depth, bucket), encodeEntries(entries))
	for level := depth - 1; level >= 0 && err == nil; level-- {
		place := nodeAbove(level, bucket)
		node := slices.Clone(m.nodes[place])
		copy(child(node, bucket, level), below[:])
		m.nodes[place], m.changed[place] = node, true
		below, err = m.sum(place, node)
	}
	if err == nil {
		m.Root = below
	}
	return err
}

// Flush writes what was changed: the entries in one statement, and the nodes in one.
func (m *Memory) Flush() error {
	newest := map[string][]byte{}
	for _, e := range m.entries {
		newest[string(e.Key)] = e.Value
	}
	var entries, nodes rowsToWrite
	for _, key := range slices.Sorted(maps.Keys(newest)) {
		if newest[key] == nil {
			_, err := m.Tx.Exec(`DELETE FROM memory WHERE bucket = ? AND key = ?`, BucketOf([]byte(key)), []byte(key))
			if err != nil {
				return err
			}
			continue
		}
		entries.add(BucketOf([]byte(key)), []byte(key), newest[key])
	}
	var empty []int64
	for _, place := range slices.Sorted(maps.Keys(m.changed)) {
		if isEmpty(m.nodes[place]) {
			empty = append(empty, place)
		} else {
			nodes.add(place, m.nodes[place])
		}
	}
	if len(empty) > 0 {
		if _, err := m.Tx.Exec(`DELETE FROM memory_nodes WHERE place IN ` + listOf(empty)); err != nil {
			return err
		}
	}
	err := entries.write(m.Tx, `INSERT INTO memory (bucket, key, value) VALUES `,
		` ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value`)
	if err == nil {
		err = nodes.write(m.Tx, `INSERT INTO memory_nodes (place, digests) VALUES `,
			` ON CONFLICT (place) DO UPDATE SET digests = excluded.digests`)
	}
	m.entries, m.changed = nil, map[int64]bool{}
	return err
}

type rowsToWrite struct {
	places []string
	values []any
}

func (r *rowsToWrite) add(values ...any) {
	r.places = append(r.places, `(?`+strings.Repeat(`, ?`, len(values)-1)+`)`)
	r.values = append(r.values, values...)
}

func (r *rowsToWrite) write(t *sqldb.Tx, begin, end string) error {
	if len(r.places) == 0 {
		return nil
	}
	_, err := t.Exec(begin+strings.Join(r.places, `, `)+end, r.values...)
	return err
}

func searchEntry(list []Entry, key []byte) (at int, found bool) {
	for at = range list {
		if c := bytes.Compare(list[at].Key, key); c >= 0 {
			return at, c == 0
		}
	}
	return len(list), false
}
