package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader that does not read costs the oldest lines, and never a payment's time.
func TestLineQueueDropsTheOldest(t *testing.T) {
	q := newLineQueue(3)
	for i := range 10 {
		q.add(fmt.Appendf(nil, "%d\n", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is there is still written
	var out bytes.Buffer
	require.NoError(t, q.writeTo(ctx, &out))
	require.Equal(t, "{\"event\":\"dropped\",\"lines\":7}\n7\n8\n9\n", out.String())
	out.Reset()
	require.NoError(t, q.writeTo(ctx, &out))
	require.Empty(t, out.String())
}

// Lines are written as they come, and a reader that went away ends it.
func TestLineQueueWrites(t *testing.T) {
	q := newLineQueue(3)
	written, ended := make(chan string), make(chan error)
	gone := errors.New("nobody reads")
	go func() {
		ended <- q.writeTo(t.Context(), writes(func(p []byte) error {
			if string(p) == "last" {
				return gone
			}
			written <- string(p)
			return nil
		}))
	}()
	for _, line := range []string{"a", "b"} {
		q.add([]byte(line))
		require.Equal(t, line, <-written)
	}
	q.add([]byte("last"))
	require.ErrorIs(t, <-ended, gone)
}

type writes func(p []byte) error

func (w writes) Write(p []byte) (int, error) { return len(p), w(p) }
