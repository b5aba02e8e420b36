package backup

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// A backup that is made beside a process that pays holds all that was answered before it began, and is a
// sound ledger. It leaves nothing else behind.
func TestBackup_BesidePayments(t *testing.T) {
	s, _, home := historytest.SQLite(t, history.Options{})
	before := historytest.Pay(t, s, historytest.Hold(1), history.Settled)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := uint64(2); ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := historytest.Reserve(t.Context(), s, historytest.Hold(1)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()

	dir := t.TempDir()
	file := filepath.Join(dir, "copy.db")
	made, err := ToFile(t.Context(), s, file)
	close(stop)
	<-done
	require.NoError(t, err)
	require.Positive(t, made.Payments)
	require.Positive(t, made.Events)

	info := must.Get(os.Stat(file))(t)
	require.Equal(t, made.Bytes, info.Size())
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	require.Len(t, must.Get(os.ReadDir(dir))(t), 1)

	restored := t.TempDir()
	require.NoError(t, os.Rename(file, filepath.Join(restored, history.FileName)))
	again := must.Get(ledgers.Open(t.Context(), restored, historytest.Options()))(t)
	defer again.Close()
	require.Equal(t, history.Settled, must.Get(again.Payment(t.Context(), before.ID))(t).State)
	must.Get(verify.Ledger(t.Context(), again, history.Head{}))(t)
	require.NotEqual(t, home, restored)
}

func TestBackup_Refused(t *testing.T) {
	s, _, home := historytest.SQLite(t, history.Options{})
	there := filepath.Join(t.TempDir(), "there")
	require.NoError(t, os.WriteFile(there, []byte("kept"), 0o600))
	for file, code := range map[string]x402.Code{
		there: x402.LedgerUnavailable,
		filepath.Join(t.TempDir(), "no", "folder"):          x402.LedgerUnavailable,
		filepath.Join(home, history.FileName):               x402.InvalidArgument,
		filepath.Join(home, history.FileName+"-wal"):        x402.InvalidArgument,
		filepath.Join(home, ".", history.FileName+"-shm.x"): x402.InvalidArgument,
	} {
		_, err := ToFile(t.Context(), s, file)
		require.True(t, x402.HasCode(err, code), "%s: %v", file, err)
	}
	require.Equal(t, "kept", string(must.Get(os.ReadFile(there))(t)))
}

// A ledger whose rows are not what its audit chain says is not backed up as if it were sound.
func TestBackup_OfADamagedLedger(t *testing.T) {
	s, _, home := historytest.SQLite(t, history.Options{})
	historytest.Pay(t, s, historytest.Hold(1), history.Settled)
	past := must.Get(historytest.Forge(home))(t)
	defer past.Close()
	must.Get(past.Exec(`UPDATE payments SET amount = '2'`))(t)
	dir := t.TempDir()
	_, err := ToFile(t.Context(), s, filepath.Join(dir, "copy.db"))
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), err)
	require.Empty(t, must.Get(os.ReadDir(dir))(t))
}
