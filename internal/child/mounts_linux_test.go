package child

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is closed is closed under each name that it has by another mount.
func TestElsewhere(t *testing.T) {
	list := mounts(`21 1 8:1 / / rw - ext4 /dev/a rw
22 21 8:2 / /home rw - ext4 /dev/b rw
23 21 8:2 /me /mnt/of\040me rw shared:1 - ext4 /dev/b rw
24 21 8:2 /me/.config/wallet/run /mnt/run rw - ext4 /dev/b rw
25 21 8:2 /other /mnt/other rw - ext4 /dev/b rw
26 21 8:1 / /host rw - ext4 /dev/a rw
27 21 0:5 / /proc rw - proc proc rw
28 21 0:9 /@ /btrfs rw - btrfs /dev/c rw
29 21 0:9 / /btrfs-top rw - btrfs /dev/c rw
short
`)
	require.Len(t, list, 9)
	for _, c := range []struct{ path, others string }{
		{"/home/me/.config/wallet", "[/mnt/of me/.config/wallet /mnt/run]"},
		{"/home/me", "[/mnt/of me /mnt/run]"},
		{"/etc/secret", "[/host/etc/secret]"},
		{"/btrfs/secret", "[/btrfs-top/@/secret]"},
		{"/proc/1", "[]"},
	} {
		require.Equal(t, c.others, fmt.Sprint(elsewhere([]string{c.path}, list)), c.path)
	}
	require.Empty(t, elsewhere([]string{"/home/x"}, nil))
}

// A file that is made later is closed as well, where there is a directory for it.
func TestWhatIsNotThereYetIsClosed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	require.Equal(t, []string{filepath.Join(dir, "later")}, realPaths([]string{
		filepath.Join(dir, "link", "later"), filepath.Join(dir, "gone", "later")}))
}
