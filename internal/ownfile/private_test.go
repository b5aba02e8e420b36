package ownfile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrimLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "\n": "", "\r\n": "", "x": "x", "x\n": "x", "x\r\n": "x", "x\n\n": "x\n", "x\r": "x\r",
		"x \n": "x ", "\nx": "\nx",
	} {
		t.Run(in, func(t *testing.T) {
			require.Equal(t, want, string(TrimLine([]byte(in))), "%q", in)
		})
	}
}
