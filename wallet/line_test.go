package wallet

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadLine(t *testing.T) {
	for in, want := range map[string]string{"abc\n": "abc", "abc\r\nx": "abc", "\n": "",
		strings.Repeat("x", maxLine) + "\n": strings.Repeat("x", maxLine)} {
		t.Run(in, func(t *testing.T) {
			p, err := readLine(strings.NewReader(in))
			require.NoError(t, err)
			require.Equal(t, want, string(p))
		})
	}
	_, err := readLine(strings.NewReader("no end"))
	requireCode(t, err, codeLocked)
	r := strings.NewReader(strings.Repeat("x", 5000) + "\nnext")
	_, err = readLine(r)
	requireCode(t, err, codeInvalidPassphrase)
	require.Equal(t, 4, r.Len(), "the rest of the line is not the next answer")
}
