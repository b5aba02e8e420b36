//go:build unix

package config

import (
	"path/filepath"
	"syscall"
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A FIFO must not hang.
func TestFIFO(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(home, FileName), 0o600))
	assert.ErrorContains(t, must.Err(Load(home)), "not a regular file")
}
