package history

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// What is written into a file that nobody finds any more is no record. A ledger that was moved
// away, or has another one in its place, stops new payments of a process that still has it open;
// back in its place it is the ledger.
func TestALedgerThatMovesUnderAProcess(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"moved": func(*testing.T, string) {},
		"a copy in its place": func(t *testing.T, path string) {
			text, err := os.ReadFile(path + ".moved")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, text, 0o600))
		},
		"a link to it in its place": func(t *testing.T, path string) {
			require.NoError(t, os.Symlink(path+".moved", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, home := newStore(t)
			p, err := reserve(s, testHold(1))
			require.NoError(t, err)
			path := filepath.Join(home, FileName)
			require.NoError(t, os.Rename(path, path+".moved"))
			damage(t, path)
			_, err = reserve(s, testHold(1))
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
			err = s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
				UniqueKey: "t"}, testKeyholder())
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "nothing leaves: %v", err)
			_, err = s.OpenSale(t.Context(), testSale("moved", 1000))
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "nothing is sold: %v", err)
			_, err = s.OpenChannelSale(t.Context(), testSale("moved", 1000), testSoldChannel(0), time.Now())
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "nothing is sold: %v", err)
			require.NoError(t, os.Rename(path+".moved", path))
			_, err = s.SaleByKey(t.Context(), "moved")
			require.ErrorIs(t, err, ErrNotFound)
			require.NoError(t,
				s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
					UniqueKey: "t"}, testKeyholder()))
		})
	}
}
