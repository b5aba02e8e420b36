package metrics

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x402.prom")
	var c Calls
	c.Call(Call{Agent: "a{b c", Outcome: "paid"})
	require.NoError(t, WriteFile(t.Context(), path, "", &c))
	require.Contains(t, string(must.Get(os.ReadFile(path))(t)),
		`x402_wallet_payments_total{agent="a{b c",outcome="paid",code=""} 1`)
	require.EqualValues(t, 0o644, must.Get(os.Stat(path))(t).Mode().Perm())
	require.NoError(t, WriteFile(t.Context(), path, "7", &c))
	text := string(must.Get(os.ReadFile(path))(t))
	require.Contains(t, text, `x402_wallet_payments_total{process="7",agent="a{b c",outcome="paid",code=""} 1`)
	require.Contains(t, text, `x402_wallet_payment_seconds_count{process="7"} 1`)
	require.NotContains(t, text, `# TYPE x402_wallet_payment_seconds{`)
	require.Error(t, WriteFile(t.Context(), filepath.Join(path, "x"), "", &c))
	require.Len(t, must.Get(os.ReadDir(filepath.Dir(path)))(t), 1)
}
