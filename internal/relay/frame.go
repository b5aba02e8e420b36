// Package relay carries an agent's session between the program that its host started, which has the host's
// user, and the wallet's service, which has one of its own: Pass is the host's side, Session the
// service's. And it hands the owner's commands over to the service (handed.go).
//
// What must stay true: what the service takes as passed on was written to the host, because the relay says
// so after it did; what it did not say did not reach the host.
//
// On the socket: the relay sends frames, because beside the host's bytes it says who it is and what it has
// passed on; the service answers with one line of JSON, and then with the bytes for the host as they are.
package relay

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"x402-wallet/x402"
)

// The kinds of frames that a relay sends. A frame is its kind, the length of its body (4 bytes, big endian)
// and the body.
const (
	frameHello   = 'h' // JSON of Hello; the first
	frameCommand = 'c' // JSON of Command, with its files; the first and only one
	frameData    = 'd' // bytes of the host
	frameEnd     = 'e' // the host will say no more
	framePassed  = 'p' // how many bytes of the service's were written to the host in all (8 bytes)
)

const (
	maxFrame = 16 << 10
	maxReply = 4 << 10
	maxText  = 300 // of a text in it, escaped up to six times as long
)

// Hello is what a relay says first.
type Hello struct {
	Token   string `json:"token,omitempty"`   // the agent's, if it has one
	Account string `json:"account,omitempty"` // that its host wants to pay from; "": none is named
}

// reply is the line with which the service answers a Hello.
type reply struct {
	Error *failure `json:"error,omitempty"` // nil: the session begins
}

// failure is an x402.Error on the socket.
type failure struct {
	Code    x402.Code `json:"code"`
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"`
}

// failure's other side; nil is none.
func (f *failure) asError() error {
	if f == nil {
		return nil
	}
	return x402.Errorf(f.Code, "%s", f.Message).WithHint("%s", f.Hint)
}

func asFailure(err error) *failure {
	if err == nil {
		return nil
	}
	e := x402.AsError(err)
	return &failure{Code: e.Code, Message: x402.Clip(e.Message, maxText), Hint: x402.Clip(e.Hint, maxText)}
}

func frame(kind byte, body []byte) []byte {
	frame := make([]byte, 0, headSize+len(body))
	frame = append(frame, kind)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(body)))
	return append(frame, body...)
}

func writeFrame(w io.Writer, kind byte, body []byte) error {
	_, err := w.Write(frame(kind, body))
	return err
}

// headSize is the size of what is before a frame's body.
const headSize = 5

// readFrame reads a frame into buffer, which has room for the longest. io.EOF is the end behind a frame.
func readFrame(r io.Reader, buffer []byte) (kind byte, body []byte, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	return readBody(r, head, buffer)
}

func readBody(r io.Reader, head [headSize]byte, buffer []byte) (kind byte, body []byte, err error) {
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	if _, err := io.ReadFull(r, buffer[:n]); err != nil {
		return 0, nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return head[0], buffer[:n], nil
}

func parseHello(body []byte) (h Hello, err error) {
	if err := x402.DecodeStrict(body, maxReply, &h); err != nil {
		return h, fmt.Errorf("a hello that cannot be read: %w", err)
	}
	return h, nil
}

func encodeReply(refused error) []byte {
	line, _ := json.Marshal(reply{Error: asFailure(refused)}) // it is texts
	return append(line, '\n')
}

// readReply is the other side: it hears whether the session begins.
func readReply(from *bufio.Reader) error {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return unreachable(err)
	}
	var answer reply
	if err := json.Unmarshal(line, &answer); err != nil {
		return unreachable(errors.New("it is no service of this version"))
	}
	return answer.Error.asError()
}
