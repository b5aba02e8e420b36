package pgtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// The types of messages that have none in the protocol: the first of a connection.
const (
	Startup byte = 0
	Cancel  byte = 1
)

type message struct {
	kind byte
	raw  []byte // as it is on the wire
}

// Above this a length is no length; nothing of ours is near.
const longestMessage = 64 << 20

func readMessage(r *bufio.Reader) (message, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return message{}, err
	}
	raw, err := readLength(r, []byte{kind})
	return message{kind, raw}, err
}

// readLength reads a length, which counts itself, and as much as it says, behind what is there.
func readLength(r io.Reader, raw []byte) ([]byte, error) {
	var length [4]byte
	_, err := io.ReadFull(r, length[:])
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < 4 || n > longestMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	raw = append(raw, length[:]...)
	raw = append(raw, make([]byte, n-4)...)
	_, err = io.ReadFull(r, raw[len(raw)-int(n-4):])
	return raw, err
}

// readStartup reads the first message. A client that would rather speak TLS, or GSSAPI, is told no.
func readStartup(r *bufio.Reader, answer io.Writer) (message, error) {
	const cancel, tls, gssapi = 80877102, 80877103, 80877104
	for {
		raw, err := readLength(r, nil)
		if err != nil {
			return message{}, err
		}
		if len(raw) < 8 {
			return message{}, fmt.Errorf("a first message of %d bytes", len(raw))
		}
		switch binary.BigEndian.Uint32(raw[4:]) {
		case tls, gssapi:
			_, err = answer.Write([]byte("N"))
			if err != nil {
				return message{}, err
			}
		case cancel:
			return message{Cancel, raw}, nil
		default:
			return message{Startup, raw}, nil
		}
	}
}

// asks reports whether the server says ReadyForQuery when it has done what was said up to this message.
func (m message) asks() bool {
	switch m.kind {
	case Startup, 'Q', 'S', 'F':
		return true
	}
	return false
}
