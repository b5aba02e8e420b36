package mcpconn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var errTooLong = errors.New("the line is too long")

// readLine reads one line. Of one that is longer than limit nothing is kept, and errTooLong is
// returned: at once, or, with skip, behind its end, so that the next line can be read.
func readLine(from *bufio.Reader, limit int, skip bool) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := from.ReadSlice('\n')
		tooLong = tooLong || len(line)+len(part) > limit
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case tooLong && (!skip || err == nil):
			return nil, errTooLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// incoming hands the messages of a reading goroutine to a connection's Read. The goroutine is
// needed because closing stdin does not end a Read of it.
type incoming struct {
	messages chan jsonrpc.Message
	closed   chan struct{}
}

func newIncoming() incoming {
	return incoming{messages: make(chan jsonrpc.Message), closed: make(chan struct{})}
}

// deliver hands a message on; false: the connection was closed.
func (i incoming) deliver(m jsonrpc.Message) bool {
	select {
	case i.messages <- m:
		return true
	case <-i.closed:
		return false
	}
}

// Read implements mcp.Connection. io.EOF is the end of the input, or of the connection.
func (i incoming) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-i.closed:
		return nil, io.EOF
	case m, more := <-i.messages:
		if !more {
			return nil, io.EOF
		}
		return m, nil
	}
}

// SessionID implements mcp.Connection: stdio has no ids of sessions.
func (i incoming) SessionID() string { return "" }

// stdio is what Stdio makes: the transport, and its one connection.
type stdio struct {
	in      io.ReadCloser
	out     io.WriteCloser
	batches bool // are read
	maxLine int
	writes  sync.Mutex // whole lines
	incoming

	batching   sync.Mutex
	unanswered map[jsonrpc.ID]*batch // of requests that are not answered yet

	closing  sync.Once
	closeErr error
}

// Stdio is a server's side of MCP's stdio transport, one JSON-RPC message a line. It is ours and
// not the SDK's because over a line that is no message the SDK ends the session; here such a line,
// or one of more than maxLine bytes, is answered with a JSON-RPC error, and the next one is read.
// batches is whether JSON-RPC batches are read, which servers of MCP 2025-03-26 have to and
// other versions do not know; otherwise they are answered with an error.
//
// It is good for one session: Connect starts to read, the connection's Close ends both streams. Its
// Read and Write may be called at the same time.
func Stdio(in io.ReadCloser, out io.WriteCloser, maxLine int, batches bool) mcp.Transport {
	return &stdio{in: in, out: out, batches: batches, maxLine: maxLine, incoming: newIncoming(),
		unanswered: map[jsonrpc.ID]*batch{}}
}

func (s *stdio) Connect(context.Context) (mcp.Connection, error) {
	go s.receive()
	return s, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// receive reads until the input or the connection ends.
func (s *stdio) receive() {
	defer close(s.messages)
	from := bufio.NewReaderSize(s.in, 64<<10)
	for isBeginning := true; ; {
		line, err := readLine(from, s.maxLine, true)
		if isBeginning { // hosts on Windows may write it before UTF-8
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		line = bytes.TrimSpace(line)
		isBeginning = isBeginning && len(line) == 0
		for _, m := range s.decodeLine(line, err) {
			if !s.deliver(m) {
				return
			}
		}
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
	}
}

// decodeLine gives a line's messages: one, a batch's, or none where it answers the line itself.
func (s *stdio) decodeLine(line []byte, reading error) []jsonrpc.Message {
	isJSON := json.Valid(line)
	switch {
	case errors.Is(reading, errTooLong):
		s.refuse(nil, jsonrpc.CodeInvalidRequest, "the message is longer than 16 MiB")
	case len(line) == 0, reading != nil && !isJSON: // blank, or the client ended in the middle of it
	case !isJSON:
		s.refuse(nil, jsonrpc.CodeParseError, "the line is not JSON")
	case line[0] == '[' && s.batches:
		return s.decodeBatch(line)
	case line[0] != '{':
		s.refuse(nil, jsonrpc.CodeInvalidRequest, "a message is one JSON object; batches are not supported")
	default:
		if m := s.decode(line); m != nil {
			return []jsonrpc.Message{m}
		}
	}
	return nil
}

// maxBatch bounds a batch: each of its requests is a goroutine of the SDK's.
const maxBatch = 100

// batch collects the answers to a batch's requests, which leave together (JSON-RPC 2.0 §6).
type batch struct {
	missing int
	answers []json.RawMessage
}

func (s *stdio) decodeBatch(line []byte) (messages []jsonrpc.Message) {
	var elements []json.RawMessage
	if json.Unmarshal(line, &elements) != nil || len(elements) == 0 || len(elements) > maxBatch {
		s.refuse(nil, jsonrpc.CodeInvalidRequest, "a batch has 1 to "+strconv.Itoa(maxBatch)+" messages")
		return nil
	}
	b := &batch{}
	s.batching.Lock()
	defer s.batching.Unlock()
	for _, element := range elements {
		if element[0] != '{' {
			s.refuse(nil, jsonrpc.CodeInvalidRequest, "a message is one JSON object")
			continue
		}
		m := s.decode(element)
		if m == nil {
			continue
		}
		messages = append(messages, m)
		if r, isRequest := m.(*jsonrpc.Request); isRequest && r.IsCall() && s.unanswered[r.ID] == nil {
			s.unanswered[r.ID] = b
			b.missing++
		}
	}
	return messages
}

// due is what is to be written for an answer: itself, or where it belongs to a batch, all of its
// answers with the last one, and nothing before.
func (s *stdio) due(id jsonrpc.ID, answer []byte) []byte {
	s.batching.Lock()
	defer s.batching.Unlock()
	b := s.unanswered[id]
	if b == nil {
		return answer
	}
	delete(s.unanswered, id)
	b.answers = append(b.answers, answer)
	b.missing--
	if b.missing > 0 {
		return nil
	}
	all, _ := json.Marshal(b.answers) // they are JSON
	return all
}

// decode takes exactly what the SDK can take, because the SDK ends the session over anything else.
func (s *stdio) decode(line []byte) jsonrpc.Message {
	var head struct{ ID, Method, Result, Error json.RawMessage }
	_ = json.Unmarshal(line, &head) // it is a JSON object
	m, err := jsonrpc.DecodeMessage(line)
	request, isRequest := m.(*jsonrpc.Request)
	isAnswer := head.Method == nil && (head.Result != nil || head.Error != nil)
	switch {
	case isAnswer && err != nil: // two programs could complain about each other's complaints for ever
		return nil
	case isAnswer:
		return m
	case !utf8.Valid(line):
		s.refuse(head.ID, jsonrpc.CodeParseError, "the line is not UTF-8")
		return nil
	case err != nil:
		s.refuse(head.ID, jsonrpc.CodeInvalidRequest,
			"not a JSON-RPC 2.0 message, or one that nests too deep")
		return nil
	case isRequest && !isExactID(request.ID, head.ID):
		s.refuse(head.ID, jsonrpc.CodeInvalidRequest, "an id is a string or an integer below 2^53")
		return nil
	}
	return m
}

// isExactID reports whether an id would come back as it was given: the SDK reads numbers as floats.
func isExactID(id jsonrpc.ID, given json.RawMessage) bool {
	n, isNumber := id.Raw().(int64)
	return !isNumber || strconv.FormatInt(n, 10) == string(given)
}

// refuse answers what never became a request. Without a usable id JSON-RPC 2.0 §5 wants null.
func (s *stdio) refuse(id json.RawMessage, code int, message string) {
	if len(id) == 0 || !strings.ContainsRune(`"-0123456789`, rune(id[0])) || !utf8.Valid(id) {
		id = json.RawMessage("null")
	}
	text, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": code, "message": message}})
	_ = s.writeLine(text) // where this fails the next answer fails too, and ends the session
}

// Write implements mcp.Connection. An error: the client may not have got the whole message.
func (s *stdio) Write(_ context.Context, m jsonrpc.Message) error {
	response, isAnswer := m.(*jsonrpc.Response)
	if isAnswer {
		normalizeError(response)
	}
	text, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	if isAnswer {
		text = s.due(response.ID, text)
	}
	if text == nil {
		return nil
	}
	return s.writeLine(text)
}

func (s *stdio) writeLine(text []byte) error {
	s.writes.Lock()
	defer s.writes.Unlock()
	n, err := s.out.Write(append(text, '\n'))
	if err == nil && n < len(text)+1 {
		err = io.ErrShortWrite
	}
	return err
}

// normalizeError gives an error a number where the SDK has none (0, before initialize), and other
// words where the SDK describes params that it cannot read by its own Go types.
func normalizeError(r *jsonrpc.Response) {
	if r.Error == nil {
		return
	}
	text := r.Error.Error()
	if strings.HasPrefix(text, "handling '") && strings.Contains(text, `: unmarshaling "`) {
		r.Error = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: "the params are not of the form that this method takes"}
	}
	if coded, ok := errors.AsType[*jsonrpc.Error](r.Error); !ok || coded.Code == 0 {
		r.Error = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: r.Error.Error()}
	}
}

// Close ends both streams.
func (s *stdio) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		if err := errors.Join(s.in.Close(), s.out.Close()); !errors.Is(err, os.ErrClosed) {
			s.closeErr = err
		}
	})
	return s.closeErr
}
