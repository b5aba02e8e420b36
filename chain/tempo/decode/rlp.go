package decode

import "encoding/binary"

// item is one of RLP (Ethereum's yellow paper, appendix B): a string of bytes, or a list of items.
type item struct {
	isList bool
	body   []byte // the string, or the items one after another
}

// The first bytes of RLP: a byte below shortString is itself. A length above shortest stands behind the first
// byte, which then says how many bytes it has.
const (
	shortString = 0x80
	shortList   = 0xc0
	shortest    = 55
)

// next reads the first item, and gives what is behind it. It reads nothing but the one form that an item has:
// every length in its shortest form, and a single byte below 0x80 as itself.
func next(data []byte) (i item, rest []byte, err error) {
	if len(data) == 0 {
		return i, nil, layout("it is cut off")
	}
	first := data[0]
	if first < shortString {
		return item{body: data[:1]}, data[1:], nil
	}
	i.isList = first >= shortList
	size := int(first - shortString)
	if i.isList {
		size = int(first - shortList)
	}
	data = data[1:]
	if size > shortest {
		size, data, err = longSize(data, size-shortest)
		if err != nil {
			return i, nil, err
		}
	}
	if size > len(data) {
		return i, nil, layout("it is cut off")
	}
	i.body = data[:size]
	if !i.isList && size == 1 && i.body[0] < shortString {
		return i, nil, layout("a byte is not in its shortest form")
	}
	return i, data[size:], nil
}

// longSize reads a length of so many bytes, of which two are enough for all that is read.
func longSize(data []byte, width int) (size int, rest []byte, err error) {
	if width > 2 || width > len(data) {
		return 0, nil, layout("it is cut off or too long")
	}
	n, err := number(data[:width])
	if err != nil || n <= shortest {
		return 0, nil, layout("a length is not in its shortest form")
	}
	return int(n), data[width:], nil
}

// items reads a list whose number of items is given.
func (i item) items(count int) (list []item, err error) {
	list, err = i.all()
	if err == nil && len(list) != count {
		return nil, layout("a list of %d, where there are %d", len(list), count)
	}
	return list, err
}

// all reads a list.
func (i item) all() (list []item, err error) {
	if !i.isList {
		return nil, layout("a string is where a list belongs")
	}
	for rest := i.body; len(rest) > 0; {
		var one item
		one, rest, err = next(rest)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// number reads an integer of at most 64 bits without leading zeros: zero is the empty string.
func number(digits []byte) (uint64, error) {
	var word [8]byte
	if len(digits) > len(word) || (len(digits) > 0 && digits[0] == 0) {
		return 0, layout("a number is too large, or has leading zeros")
	}
	copy(word[len(word)-len(digits):], digits)
	return binary.BigEndian.Uint64(word[:]), nil
}

// longList is a list of items that are encoded already, of more than 55 bytes, as all transactions are.
func longList(body []byte) []byte {
	size := binary.BigEndian.AppendUint16(nil, uint16(len(body))) // maxTransaction is less
	if size[0] == 0 {
		size = size[1:]
	}
	head := append([]byte{shortList + shortest + byte(len(size))}, size...)
	return append(head, body...)
}
