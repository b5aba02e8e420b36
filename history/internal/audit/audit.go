// Package audit is the ledger's audit chain: rows that each hold the hash of the one before. It says what
// events there are, and what the chain tells of each.
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Row is a row of the audit chain.
type Row struct {
	Seq, At       int64 // At in microseconds
	Payment       int64 // its number; 0: none
	Event, Detail string
	Hash, Seal    []byte
}

// Linked is the hash that the row has behind another hash.
func (r Row) Linked(previous []byte) []byte {
	var payment [20]byte
	return Link(previous, r.At, string(strconv.AppendInt(payment[:0], r.Payment, 10)), r.Event, r.Detail)
}

// Link is SHA-256 over the previous hash and the row's columns, each behind its length.
func Link(previous []byte, at int64, columns ...string) []byte {
	data := append(make([]byte, 0, 2048), previous...) // on the stack, mostly
	data = binary.BigEndian.AppendUint64(data, uint64(at))
	for _, column := range columns {
		data = binary.BigEndian.AppendUint64(data, uint64(len(column)))
		data = append(data, column...)
	}
	sum := sha256.Sum256(data)
	return sum[:]
}

// SealData is what the MAC of a sealed row is over.
func SealData(hash []byte) []byte { return slices.Concat([]byte("row"), hash) }

// Mark is a row that the chain has to have.
type Mark struct {
	Seq  int64
	Hash []byte
}

// Walk reads the audit chain behind one row up to another, and checks that it holds together and, if the mark
// is behind the first, has it.
func Walk(t *sqldb.Tx, after, upTo int64, mark Mark, each func(Row) error) error {
	var previous []byte
	err := t.Row(`SELECT hash FROM audit WHERE seq = ?`, after).Scan(&previous)
	if err := sqldb.Otherwise(err, nil); err != nil {
		return err
	}
	last, hasMark := after, mark.Seq <= after
	err = t.Each(func(row sqldb.Row) error {
		var r Row
		if err := row.Scan(&r.Seq, &r.At, &r.Payment, &r.Event, &r.Detail, &r.Hash, &r.Seal); err != nil {
			return err
		}
		hash := r.Linked(previous)
		if r.Seq != last+1 || !bytes.Equal(r.Hash, hash) {
			return Corrupt("the audit chain breaks at row %d (%s of payment %d)", r.Seq, r.Event, r.Payment)
		}
		hasMark = hasMark || (r.Seq == mark.Seq && bytes.Equal(hash, mark.Hash))
		previous, last = hash, r.Seq
		return each(r)
	}, `SELECT seq, at, payment, event, detail, hash, seal FROM audit
		WHERE seq > ? AND seq <= ? ORDER BY seq`, after, upTo)
	if err == nil && !hasMark {
		err = Corrupt("the audit chain is not the one this wallet marked: its row %d is another one",
			mark.Seq)
	}
	return err
}

const corruptHint = "somebody or something else wrote to ledger.db: the owner restores the newest good " +
	"copy, or looks (x402-wallet history verify) and accepts it in a terminal with x402-wallet policy " +
	"seal; nothing is paid until then"

// Corrupt is LEDGER_CORRUPT: the ledger is not what the wallet wrote.
func Corrupt(format string, args ...any) error {
	return x402.Errorf(x402.LedgerCorrupt, "the ledger is not as this wallet left it: "+format, args...).
		WithHint("%s", corruptHint)
}

// Digest is a SHA-256 as the ledger's rows name it.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return EncodeDigest(sum[:])
}

// EncodeDigest is how the ledger's rows name a digest.
func EncodeDigest(sum []byte) string {
	return string(base64.RawURLEncoding.AppendEncode(make([]byte, 0, 64), sum))
}

// JSON is the text of a value of our own types.
func JSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}
