package channel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"x402-wallet/x402/money"
)

// Rooch's bytes are BCS: little endian, lengths as ULEB128, structs without any frame. A Go value
// is written as its Move counterpart: byte is u8, uint64 is u64, money.Amount is u256, a string or
// slice is a vector, an array is its elements, and a struct is its exported fields in their order.
// A Move option is a slice of none or one; an enum's variant is a byte.

var amountType = reflect.TypeFor[money.Amount]()

// encodeBCS writes a value of the types above; of any other it panics.
func encodeBCS(v any) []byte { return appendValue(nil, reflect.ValueOf(v)) }

func appendValue(b []byte, v reflect.Value) []byte {
	if v.Type() == amountType {
		number := v.Interface().(money.Amount).Bytes32()
		slices.Reverse(number[:])
		return append(b, number[:]...)
	}
	switch v.Kind() {
	case reflect.Uint8:
		return append(b, byte(v.Uint()))
	case reflect.Uint64:
		return binary.LittleEndian.AppendUint64(b, v.Uint())
	case reflect.String:
		return append(appendLength(b, v.Len()), v.String()...)
	case reflect.Slice:
		b = appendLength(b, v.Len())
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	default:
		panic(fmt.Sprintf("rooch: %s has no BCS form", v.Type()))
	}
}

func appendLength(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// errLayout says that an object's bytes are not of the layout that payment_channel.move has.
var errLayout = errors.New("the object has another layout")

// decodeBCS reads a value of the types above into what v points to. rest is what follows it: of an
// object that is read to its end nothing may.
func decodeBCS(data []byte, v any) (rest []byte, err error) {
	d := decoder{rest: data}
	d.value(reflect.ValueOf(v).Elem())
	if d.bad {
		return nil, errLayout
	}
	return d.rest, nil
}

// decodeAllBCS is decodeBCS of data that ends with the value.
func decodeAllBCS(data []byte, v any) error {
	rest, err := decodeBCS(data, v)
	if err == nil && len(rest) > 0 {
		return errLayout
	}
	return err
}

// decoder reads; once something is missing, everything after it is zero and bad is set.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) value(v reflect.Value) {
	if v.Type() == amountType {
		number := d.take(len([32]byte{}))
		slices.Reverse(number)
		amount, _ := money.AmountFromBytes(number) // 32 bytes always are one
		v.Set(reflect.ValueOf(amount))
		return
	}
	switch v.Kind() {
	case reflect.Uint8:
		v.SetUint(uint64(d.take(1)[0]))
	case reflect.Uint64:
		v.SetUint(binary.LittleEndian.Uint64(d.take(8)))
	case reflect.String:
		v.SetString(string(d.take(d.length())))
	case reflect.Slice:
		for n := d.length(); n > 0 && !d.bad; n-- {
			element := reflect.New(v.Type().Elem()).Elem()
			d.value(element)
			v.Set(reflect.Append(v, element))
		}
	case reflect.Array:
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			d.value(v.Field(i))
		}
	default:
		panic(fmt.Sprintf("rooch: %s has no BCS form", v.Type()))
	}
}

// take is a copy of the next n bytes; zeros where there are not so many.
func (d *decoder) take(n int) []byte {
	taken := make([]byte, n)
	if n > len(d.rest) {
		d.rest, d.bad = nil, true
		return taken
	}
	copy(taken, d.rest)
	d.rest = d.rest[n:]
	return taken
}

// length is at most what is left, because every element takes a byte or more; and it is written in
// as few bytes as can be, as BCS asks for.
func (d *decoder) length() int {
	n := 0
	for shift := 0; shift < 28; shift += 7 {
		b := d.take(1)[0]
		n |= int(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		if isLongForm := shift > 0 && b == 0; !isLongForm && n <= len(d.rest) {
			return n
		}
		break
	}
	d.rest, d.bad = nil, true
	return 0
}
