package seal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// Another ledger in the place of ours is a ledger that is not ours, whatever its rules say: sealing
// would be the wrong remedy. A home that was moved keeps saying that it was.
func TestAnotherWalletsLedger(t *testing.T) {
	for name, text := range map[string]string{
		"as ours":  "[budget]\nday = '5'\n",
		"tighter":  "[budget]\nday = '1'\n",
		"looser":   "[budget]\nday = '50'\n",
		"unsealed": "",
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
			theirs := open(t, home, text)
			theirs.Key = key("theirs")
			if text != "" {
				require.NoError(t, theirs.Seal(t.Context(), false))
			}
			require.NoError(t, theirs.Store.Close())
			ours := sealed(t)
			require.NoError(t, ours.Store.Close())
			file := must.Get(os.ReadFile(filepath.Join(theirs.Home, history.FileName)))(t)
			require.NoError(t, os.WriteFile(filepath.Join(ours.Home, history.FileName), file, 0o600))
			again := open(t, ours.Home, "[budget]\nday = '5'\n")
			err := again.VerifySeals(t.Context())
			requireCode(t, err, x402.LedgerCorrupt)
			require.Contains(t, x402.AsError(err).Hint, "policy seal")
			again.Key = key("")
			if err := again.CheckConfig(t.Context()); err != nil {
				requireCode(t, err, x402.LedgerCorrupt)
			}
		})
	}
}

// A checkpoint that the system does not let us read says nothing of the ledger.
func TestACheckpointThatCannotBeRead(t *testing.T) {
	g := sealed(t)
	path := filepath.Join(g.Home, checkpointFile)
	reserve(t, g.Store)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(checkpointFile, path)) // the open itself fails: ELOOP
	for _, err := range []error{g.VerifySeals(t.Context()), g.Checkpoint(t.Context())} {
		requireCode(t, err, x402.LedgerUnavailable)
		require.NotEmpty(t, x402.AsError(err).Hint)
	}
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.EIO} {
		err := unreadable(&fs.PathError{Op: "read", Path: path, Err: errno})
		requireCode(t, err, x402.LedgerUnavailable)
		require.ErrorIs(t, err, errno)
	}
	require.True(t, x402.HasCode(unreadable(errors.New("it is a directory")), x402.LedgerCorrupt))
}
