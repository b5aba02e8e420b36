package terminal

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func TestReadLine(t *testing.T) {
	for in, want := range map[string]string{"abc\n": "abc", "abc\r\nx": "abc", "\n": "",
		strings.Repeat("x", wallet.MaxLine) + "\n": strings.Repeat("x", wallet.MaxLine)} {
		t.Run(in, func(t *testing.T) {
			require.Equal(t, want, string(must.Get(readLine(strings.NewReader(in)))(t)))
		})
	}
	keytest.RequireCode(t, must.Err(readLine(strings.NewReader("no end"))), coded.WalletLocked)
	r := strings.NewReader(strings.Repeat("x", 5000) + "\nnext")
	keytest.RequireCode(t, must.Err(readLine(r)), coded.InvalidPassphrase)
	require.Equal(t, 4, r.Len(), "the rest of the line is not the next answer")
}
