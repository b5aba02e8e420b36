//go:build unix

package config

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A FIFO must not hang.
func TestFIFO(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(home, FileName), 0o600))
	_, err := Load(home)
	assert.ErrorContains(t, err, "not a regular file")
}
