package relay

import (
	"bufio"
	"errors"
	"io"

	"x402-wallet/x402"
)

// maxKept is how much room a reader keeps after a line that took more.
const maxKept = 1 << 20

// lines reads whole lines; of one that is longer than any message, parts.
type lines struct {
	from *bufio.Reader
	long []byte // a line that the reader's buffer has no room for
}

func newLines(from io.Reader) lines { return lines{from: bufio.NewReaderSize(from, maxFrame)} }

// next is the next line with its end, good until it is called again. What comes before an error has no end.
func (l *lines) next() (line []byte, err error) {
	if cap(l.long) > maxKept {
		l.long = nil
	}
	l.long = l.long[:0]
	for {
		part, err := l.from.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) && len(l.long) == 0 {
			return part, err
		}
		l.long = append(l.long, part...)
		switch {
		case !errors.Is(err, bufio.ErrBufferFull):
			return l.long, err
		case len(l.long) > x402.MaxMCPMessage:
			return l.long, nil
		}
	}
}
