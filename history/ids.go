package history

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// NewID returns an id for a payment that is made at a time, for a caller that has to know it before it is in
// the ledger: "pay_" and 32 hex digits, of which the first twelve are the time in Unix milliseconds
// and the rest are 80 random bits, as in a UUIDv7 (RFC 9562 §5.7). Ids sort by time, so that a
// large ledger can be partitioned by them; sellers that remember purchases by this id (extension
// payment-identifier: 16 to 128 characters of [A-Za-z0-9_-]) cannot guess another one.
func NewID(at time.Time) string { return NewTimedID("pay_", at) }

// NewTimedID is NewID with another prefix.
func NewTimedID(prefix string, at time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())<<16)
	b = append(b[:6], make([]byte, 10)...)
	rand.Read(b[6:]) // never fails (crypto/rand)
	return prefix + hex.EncodeToString(b)
}

// RandomID is 128 random bits behind a prefix that says what it names.
func RandomID(prefix string) string {
	var b [16]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}
