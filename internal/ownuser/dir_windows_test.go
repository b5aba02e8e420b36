package ownuser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/windows"

	"x402-wallet/internal/socket"
)

// freshDir is a directory that is not there yet.
func freshDir(t *testing.T) string {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("x402-wallet-%s-%d", t.Name(), os.Getpid()))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The directory is made with its access, and gets it back where it was changed.
func TestADirectoryWithItsAccess(t *testing.T) {
	self, err := socket.Self()
	require.NoError(t, err)
	d := &Dir{Path: freshDir(t), Access: "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;" + string(self) + ")"}
	access := func() string {
		sd, err := windows.GetNamedSecurityInfo(d.Path, windows.SE_FILE_OBJECT,
			windows.DACL_SECURITY_INFORMATION)
		require.NoError(t, err)
		return sd.String()
	}
	require.NoError(t, d.make())
	require.NotContains(t, access(), ";WD)", "others are let in")
	open := &Dir{Path: d.Path, Access: "D:P(A;OICI;FA;;;WD)"}
	require.NoError(t, open.make())
	opened := access()
	require.Contains(t, opened, ";WD)")
	require.NoError(t, d.make())
	require.NotEqual(t, opened, access())
}

// A file, or what leads elsewhere, is no place for a wallet.
func TestWhatIsNoDirectory(t *testing.T) {
	path := freshDir(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorContains(t, (&Dir{Path: path, Access: "D:P(A;OICI;FA;;;WD)"}).make(), "no plain directory")
}
