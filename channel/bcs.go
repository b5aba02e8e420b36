package channel

import (
	"encoding/binary"
	"errors"
	"slices"

	"x402-wallet/x402/money"
)

// Rooch's bytes are BCS: little endian, lengths as ULEB128, structs without any frame.

type encoder struct{ b []byte }

func (e *encoder) u8(n byte)    { e.b = append(e.b, n) }
func (e *encoder) u64(n uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, n) }

func (e *encoder) u256(a money.Amount) {
	big := a.Bytes32()
	slices.Reverse(big[:])
	e.b = append(e.b, big[:]...)
}

func (e *encoder) length(n int) {
	for ; n >= 0x80; n >>= 7 {
		e.u8(byte(n) | 0x80)
	}
	e.u8(byte(n))
}

func (e *encoder) raw(b []byte) { e.b = append(e.b, b...) }

func (e *encoder) bytes(b []byte) {
	e.length(len(b))
	e.raw(b)
}

func (e *encoder) text(s string) { e.bytes([]byte(s)) }

// errBCS says that an object's bytes are not of the layout that payment_channel.move has.
var errBCS = errors.New("the object has another layout")

// decoder reads; once something is missing, everything is zero and bad is set.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.rest, d.bad = nil, true
		return nil
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) u256() money.Amount {
	big := slices.Clone(d.take(32))
	slices.Reverse(big)
	a, _ := money.AmountFromBytes(big)
	return a
}

// length is at most what is left: every element takes a byte or more.
func (d *decoder) length() int {
	n := 0
	for shift := 0; shift < 28; shift += 7 {
		b := d.u8()
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			if n > len(d.rest) || shift > 0 && b == 0 {
				break
			}
			return n
		}
	}
	d.rest, d.bad = nil, true
	return 0
}

func (d *decoder) text() string { return string(d.take(d.length())) }

func (d *decoder) hash() (h [32]byte) {
	copy(h[:], d.take(len(h)))
	return h
}

// texts is a vector<string>.
func (d *decoder) texts() (list []string) {
	for range d.length() {
		list = append(list, d.text())
	}
	return list
}

// end is the error of the whole.
func (d *decoder) end() error {
	if d.bad || len(d.rest) != 0 {
		return errBCS
	}
	return nil
}
