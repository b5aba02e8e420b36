package history

import (
	"bytes"
	"encoding/json"
	"sync"
	"sync/atomic"

	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
)

// maxFollowed bounds the rows of the audit chain that a process remembers to have followed.
const maxFollowed = 1 << 13

// followed are the hashes of consecutive rows of the audit chain that this process followed, each from the
// one before. Where the ledger still has one of them, all before it are on its chain, whatever was rolled
// back or written since: that a payment's reservation is on the chain is found without reading again what
// others did before it was signed.
type followed struct {
	mu     sync.Mutex
	first  int64 // of the rows
	hashes [][]byte
}

// hash returns that of a row; nil: the row is not among them.
func (f *followed) hash(seq int64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at(seq)
}

func (f *followed) at(seq int64) []byte {
	if i := seq - f.first; i >= 0 && i < int64(len(f.hashes)) {
		return f.hashes[i]
	}
	return nil
}

// last is the last row; less than 1: there is none.
func (f *followed) last() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first + int64(len(f.hashes)) - 1
}

// keep remembers rows that follow one from the other, behind those that lead to the first of them.
func (f *followed) keep(first int64, hashes [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.at(first); known != nil && bytes.Equal(known, hashes[0]) {
		first, hashes = f.first, append(f.hashes[:first-f.first], hashes...)
	}
	surplus := max(0, len(hashes)-maxFollowed)
	f.first, f.hashes = first+int64(surplus), hashes[surplus:]
}

// lastFollowed is the last row up to another one that this process followed, if it is in the ledger still;
// 0: there is none, or it is too far away.
func (t *tx) lastFollowed(upTo int64) (seq int64, hash []byte, err error) {
	seq = min(t.followed.last(), upTo)
	known := t.followed.hash(seq)
	if known == nil || upTo-seq > maxFollowed/2 {
		return 0, nil, nil
	}
	err = t.Row(`SELECT hash FROM audit WHERE seq = ?`, seq).Scan(&hash)
	if err != nil || !bytes.Equal(hash, known) {
		return 0, nil, sqldb.Otherwise(err, nil)
	}
	return seq, hash, nil
}

// lastSums are those that this process wrote or read last, and their text: reading it would take as
// long as all else that a signature is checked by.
var lastSums atomic.Pointer[struct {
	text string
	sums seals.Sums
}]

// decodeSums is what Sums.Encode wrote.
func decodeSums(text string) (s seals.Sums, err error) {
	known := lastSums.Load()
	if known != nil && known.text == text {
		return known.sums.Clone(), nil
	}
	err = json.Unmarshal([]byte(text), &s)
	return s, err
}

// cacheSums has decodeSums know what a text says.
func cacheSums(text string, s *seals.Sums) {
	lastSums.Store(&struct {
		text string
		sums seals.Sums
	}{text, s.Clone()})
}
