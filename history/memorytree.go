package history

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"x402-wallet/history/sqldb"
)

// verify checks every entry, and that nothing else is in the tables.
func (m *memory) verify() error {
	all := map[string][]byte{}
	err := m.t.Each(func(row sqldb.Row) error {
		var bucket int64
		var e entry
		err := row.Scan(&bucket, &e.key, &e.value)
		if err == nil && bucket != bucketOf(e.key) {
			err = forgotten()
		}
		all[string(e.key)] = e.value
		return err
	}, `SELECT bucket, key, value FROM memory`)
	if err != nil {
		return err
	}
	again := &memory{t: m.t, mac: m.mac}
	nodes, err := again.tree(all)
	if err == nil && again.root != m.root {
		err = forgotten()
	}
	if err != nil {
		return err
	}
	return m.t.nodesAre(nodes)
}

// nodesAre refuses nodes that are not these.
func (t *tx) nodesAre(want map[int64][]byte) error {
	err := t.Each(func(row sqldb.Row) error {
		var place int64
		var digests []byte
		if err := row.Scan(&place, &digests); err != nil {
			return err
		}
		if is, known := want[place]; !known || !bytes.Equal(is, digests) {
			return corrupt("the digests over the memory at %d are others", place)
		}
		delete(want, place)
		return nil
	}, `SELECT place, digests FROM memory_nodes`)
	if err == nil && len(want) > 0 {
		err = corrupt("%d digests over the memory are gone", len(want))
	}
	return err
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
