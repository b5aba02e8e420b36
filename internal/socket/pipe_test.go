package socket

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe's own name stays; a path has a name of its own, however it is spelt.
func TestPipeNames(t *testing.T) {
	for _, name := range []string{`\\.\pipe\x402-wallet`, `\\.\PIPE\mine`} {
		require.Equal(t, name, pipeName(name))
	}
	home := pipeName(`C:\Users\Ann\.x402-wallet\service.sock`)
	require.Equal(t, `\\.\pipe\x402-wallet-`+"9d250ad7cda3776316a5fe398ff3d003", home)
	require.Equal(t, home, pipeName(`c:\users\ann\.x402-wallet\SERVICE.sock`))
	require.NotEqual(t, home, pipeName(`C:\Users\Ann\.x402-wallet\agent.sock`))
	require.NotEqual(t, `\\.\pipe\`, pipeName(`\\.\pipe\`), "which is no pipe's name")
}

func TestAccessToAPipe(t *testing.T) {
	const own = "O:S-1-5-21-7G:S-1-5-21-7D:P(D;;GA;;;NU)(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;S-1-5-21-7)"
	require.Equal(t, own, descriptor("S-1-5-21-7", 0o600))
	require.Equal(t, own+"(A;;0x12019b;;;AU)", descriptor("S-1-5-21-7", 0o666))
	const createInstance = 0x4 // FILE_CREATE_PIPE_INSTANCE: it would be a server of this name
	require.Zero(t, pipeAccess&createInstance)
	require.True(t, strings.HasPrefix(descriptor("S-1-5-21-7", 0o666)[len("O:S-1-5-21-7G:S-1-5-21-7D:P"):],
		"(D;;GA;;;NU)"), "what is denied comes first")
}

// A token is said to the system and to who asks; a pipe of anybody else's is one
// that was there first.
func TestWhoMayServe(t *testing.T) {
	const self = "S-1-5-21-7-1001"
	for owner, may := range map[User]bool{self: true, "S-1-5-18": Root == "S-1-5-18",
		"S-1-5-21-7-1002": false,
		"S-1-5-32-544":    false, "": false} {
		require.Equal(t, may, mayServe(owner, self), owner)
	}
}
