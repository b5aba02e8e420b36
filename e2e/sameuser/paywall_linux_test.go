package sameuser

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// The server behind a paywall has no way to the terminal that the paywall was started on, where its
// person may type a passphrase next: not by its stderr either, which goes there all the same.
func TestAPaywallsServerHasNoTerminal(t *testing.T) {
	h := newTestUser(t, "")
	file, report := filepath.Join(h.user, "shop.toml"), filepath.Join(h.user, "out", "behind")
	text := strings.NewReplacer("HOUSE", h.dir, "REPORT", report).Replace(`
		command = ["/bin/sh", "-c",
			"echo it speaks >&2; exec HOUSE/bin/played serve REPORT HOUSE/user/.config/wallet"]
		network = "base-sepolia"
		[tools.search]
		price = "0.001"
	`)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	h.give()
	person, tty, err := pty.Open()
	require.NoError(t, err)
	defer person.Close()
	cmd := h.command(h.wallet, "paywall", "--config", file)
	cmd.Stderr = tty
	_ = cmd.Run() // the server has no such tool
	require.NoError(t, tty.Close())
	screen, _ := io.ReadAll(person)
	require.Contains(t, string(screen), "it speaks")
	seen, err := os.ReadFile(report)
	require.NoError(t, err, "%s", screen)
	var f found
	require.NoError(t, json.Unmarshal(seen, &f))
	for _, fd := range []string{"0", "1", "2"} {
		require.Contains(t, f.Descriptors[fd], "pipe:", fd)
	}
	require.Len(t, f.Descriptors, 3, f.Descriptors)
}
