package memory

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// Verify checks every entry, and that nothing else is in the tables.
func (m *Memory) Verify() error {
	all := map[string][]byte{}
	err := m.Tx.Each(func(row sqldb.Row) error {
		var bucket int64
		var e Entry
		err := row.Scan(&bucket, &e.Key, &e.Value)
		if err == nil && bucket != BucketOf(e.Key) {
			err = Forgotten()
		}
		all[string(e.Key)] = e.Value
		return err
	}, `SELECT bucket, key, value FROM memory`)
	if err != nil {
		return err
	}
	again := &Memory{Tx: m.Tx, MAC: m.MAC}
	nodes, err := again.tree(all)
	if err == nil && again.Root != m.Root {
		err = Forgotten()
	}
	if err != nil {
		return err
	}
	return CheckNodes(m.Tx, nodes)
}

// CheckNodes refuses nodes that are not these.
func CheckNodes(t *sqldb.Tx, want map[int64][]byte) error {
	err := t.Each(func(row sqldb.Row) error {
		var place int64
		var digests []byte
		if err := row.Scan(&place, &digests); err != nil {
			return err
		}
		if is, known := want[place]; !known || !bytes.Equal(is, digests) {
			return audit.Corrupt("the digests over the memory at %d are others", place)
		}
		delete(want, place)
		return nil
	}, `SELECT place, digests FROM memory_nodes`)
	if err == nil && len(want) > 0 {
		err = audit.Corrupt("%d digests over the memory are gone", len(want))
	}
	return err
}

// Fill puts many entries into an empty memory, each node once.
func (m *Memory) Fill(entries map[string][]byte) error {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		_, err := m.Tx.Exec(`INSERT INTO memory VALUES (?, ?, ?)`, BucketOf([]byte(key)), []byte(key), entries[key])
		if err != nil {
			return err
		}
	}
	nodes, err := m.tree(entries)
	if err != nil {
		return err
	}
	for place, node := range nodes {
		if _, err := m.Tx.Exec(`INSERT INTO memory_nodes VALUES (?, ?)`, place, node); err != nil {
			return err
		}
	}
	return nil
}

// tree is NodesOver of these entries.
func (m *Memory) tree(entries map[string][]byte) (map[int64][]byte, error) {
	buckets := map[int64][]Entry{}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		bucket := BucketOf([]byte(key))
		buckets[bucket] = append(buckets[bucket], Entry{[]byte(key), entries[key]})
	}
	digests := map[int64]Digest{}
	for bucket, list := range buckets {
		d, err := m.Bucket(list)
		if err != nil {
			return nil, err
		}
		digests[bucket] = d
	}
	return m.NodesOver(digests)
}

// Bucket is the digest of a bucket with these entries.
func (m *Memory) Bucket(list []Entry) (Digest, error) {
	return m.sum(nodePlace(depth, BucketOf(list[0].Key)), encodeEntries(list))
}

// NodesOver returns the nodes over buckets of these digests, by their places, and sets the root.
func (m *Memory) NodesOver(below map[int64]Digest) (map[int64][]byte, error) {
	all := map[int64][]byte{}
	for level := depth - 1; level >= 0; level-- {
		nodes := map[int64][]byte{}
		for index, d := range below {
			node := nodes[index/fanout]
			if node == nil {
				node = make([]byte, fanout*digestSize)
				nodes[index/fanout] = node
			}
			copy(node[index%fanout*digestSize:], d[:])
		}
		below = map[int64]Digest{}
		for index, node := range nodes {
			place := nodePlace(level, index)
			d, err := m.sum(place, node)
			if err != nil {
				return nil, err
			}
			all[place], below[index] = node, d
		}
	}
	m.Root = below[0]
	return all, nil
}

// Clear forgets everything.
func (m *Memory) Clear() error {
	_, err := m.Tx.Exec(`DELETE FROM memory`)
	_, errNodes := m.Tx.Exec(`DELETE FROM memory_nodes`)
	*m = Memory{Tx: m.Tx, MAC: m.MAC}
	return errors.Join(err, errNodes)
}
