package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"x402-wallet/internal/socket"
	"x402-wallet/x402"
)

// maxFiles is how many files are taken with one message: stdin, stdout, stderr and a terminal.
const maxFiles = 4

// Command is one of the owner's, which the service runs with their terminal: what is typed there goes to the
// program that runs it, and never over the socket. Its files come with it: stdin, stdout and stderr, and the
// controlling terminal where there is one.
type Command struct {
	Args    []string `json:"args"`
	NoColor bool     `json:"noColor,omitempty"`
}

// Streams are stdin, stdout and stderr, without which a command does not come; a terminal may follow.
const Streams = 3

// ended is the line that says how a command ended.
type ended struct {
	Exit  int      `json:"exit"`
	Error *failure `json:"error,omitempty"` // why it was ended, or not begun
}

// HandOver has the service behind a socket run a command with these files, and gives its exit code. home is
// as for Pass. begun is called when the service has taken it. When ctx ends, the command is ended like by
// Ctrl-C, and what it says about that is waited for. Its errors are ErrNone, the service's refusal, and
// SERVER_UNAVAILABLE.
func HandOver(ctx context.Context, path, home string, c Command, files []*os.File,
	begun func()) (exit int, err error) {
	conn, err := connect(ctx, path, home)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	body, err := json.Marshal(c)
	if err == nil && len(body) > maxFrame {
		err = x402.Errorf(x402.InvalidArgument, "the command is longer than %d bytes", maxFrame)
	}
	if err != nil {
		return 0, err
	}
	_ = conn.SetDeadline(time.Now().Add(dialTime))
	if err := sendFiles(conn, frame(frameCommand, body), files...); err != nil {
		return 0, unreachable(err)
	}
	from := bufio.NewReaderSize(conn, maxReply)
	if err := readReply(from); err != nil {
		return 0, err
	}
	_ = conn.SetDeadline(time.Time{})
	begun()
	defer context.AfterFunc(ctx, func() { _ = conn.(*net.UnixConn).CloseWrite() })()
	line, err := from.ReadSlice('\n')
	var end ended
	if err == nil {
		err = json.Unmarshal(line, &end)
	}
	if err != nil {
		return 0, x402.Errorf(x402.ServerUnavailable, "the wallet's service ended, and the command with it").
			WithHint("see what became of it before you run it again")
	}
	return end.Exit, end.Error.asError()
}

// Handed is a command that came to the service.
type Handed struct {
	Command
	Files []*os.File // 3, or 4 with the terminal
}

func (h *Handed) Close() {
	if h == nil {
		return
	}
	for _, f := range h.Files {
		_ = f.Close()
	}
	h.Files = nil
}

func parseHanded(body []byte, files []*os.File) (*Handed, error) {
	h := &Handed{Files: files}
	if err := x402.DecodeStrict(body, maxFrame, &h.Command); err != nil {
		return h, fmt.Errorf("a command that cannot be read: %w", err)
	}
	if len(files) < Streams {
		return h, fmt.Errorf("a command with %d files", len(files))
	}
	return h, nil
}

// Take begins a command: it came, and will be run. gone is closed when whoever handed it over is gone, or
// wants it ended.
func (s *Session) Take() (gone <-chan struct{}, err error) {
	if err := s.writeLine(nil); err != nil {
		return nil, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.ReadFull(s.conn, make([]byte, 1)) // whatever comes: nothing should
	}()
	return over, nil
}

// Ended says how a command ended, and closes the session. why may be nil.
func (s *Session) Ended(exit int, why error) error {
	line, _ := json.Marshal(ended{Exit: exit, Error: asFailure(why)}) // texts
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := s.conn.Write(append(line, '\n'))
	s.Handed.Close()
	return errors.Join(err, s.conn.Close())
}

// Listen makes a service's socket; home as for socket.Listen. One that a killed service left is replaced;
// where a service listens, the error is SETUP_FAILED.
func Listen(ctx context.Context, path string, mode fs.FileMode, home string) (net.Listener, error) {
	err := socket.CheckPath(path)
	if errors.Is(err, socket.ErrUnsupported) {
		return nil, x402.Errorf(x402.SetupFailed, "nothing can be served on this system: %w", err)
	}
	if err == nil {
		var conn net.Conn
		conn, err = connect(ctx, path, home)
		switch {
		case err == nil:
			_ = conn.Close()
			return nil, x402.Errorf(x402.SetupFailed, "a service listens at %s already", path).
				WithHint("end it, or choose another --socket")
		case errors.Is(err, ErrNone):
			err = nil
		}
	}
	var l net.Listener
	if err == nil {
		l, err = socket.Listen(ctx, path, mode, home)
	}
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "make the service's socket: %w", err).
			WithHint("choose another place for it with --socket")
	}
	return l, nil
}
