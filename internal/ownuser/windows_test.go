package ownuser

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/windows.txt again")

// text is a plan, an action a line.
func text(plan Plan) string {
	var b strings.Builder
	for _, a := range plan {
		switch {
		case a.Write != nil:
			b.WriteString("write " + a.Write.Path + " a copy of " + a.Write.From)
		case a.Make != nil:
			b.WriteString("make " + a.Make.Path + " " + a.Make.Access)
		case a.MayFail:
			b.WriteString("try " + WindowsLine(a.Run))
		default:
			b.WriteString("run " + WindowsLine(a.Run))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// What is done on Windows, to the letter. It was never done on one.
func TestThePlanOnWindows(t *testing.T) {
	s := Setup{Program: `C:\Users\Ann\x402-wallet.exe`, Credential: `C:\Users\Ann\passphrase.txt`,
		HasWallet: true, Serve: []string{"--http", "127.0.0.1:8402", "--tls-key", `C:\my keys\key.pem`}}
	got := text(s.windows(usualFolders)) + "# uninstall\n" + text(withoutWindows(usualFolders))
	const file = "testdata/windows.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), got)

	for _, a := range (Setup{}).windows(usualFolders) { // nothing to do yet, and no passphrase
		require.NotContains(t, a.Run, "start")
		require.NotContains(t, strings.Join(a.Run, " "), "PASSPHRASE")
	}
}

// The home is closed to all but the service, the system and administrators, whatever ProgramData lets others
// do; in what is beside it, the service changes nothing.
func TestWhoMayDoWhatInTheHomeOnWindows(t *testing.T) {
	const service = "S-1-5-80-2706234473-2196937303-3364638687-259673011-408045585"
	access := map[string]string{}
	for _, a := range (Setup{}).windows(usualFolders) {
		if a.Make != nil {
			access[a.Make.Path] = a.Make.Access
		}
	}
	const others = "O:BAG:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"
	require.Equal(t, map[string]string{
		`C:\ProgramData\x402-wallet\home`: others + "(A;OICI;FA;;;" + service + ")",
		`C:\ProgramData\x402-wallet`:      others + "(A;OICI;0x1200a9;;;" + service + ")(A;;0x1200a9;;;BU)",
	}, access)
}

func TestWordsOfAWindowsCommand(t *testing.T) {
	for from, to := range map[string]string{`a`: `a`, ``: `""`, `a b`: `"a b"`, `a\b`: `a\b`,
		`a b\`: `"a b\\"`, `a"b`: `"a\"b"`, `a\"b`: `"a\\\"b"`, `C:\a b\c`: `"C:\a b\c"`} {
		require.Equal(t, "x "+to, WindowsLine([]string{"x", from}))
	}
}

func TestTheOwnersCommandOnWindows(t *testing.T) {
	require.Equal(t, `set X402_WALLET_HOME=C:\ProgramData\x402-wallet\home&& `+
		`"C:\Program Files\x402-wallet\x402-wallet.exe" agents add NAME`,
		usualFolders.place().AsUser("agents", "add", "NAME"))
	require.Equal(t, "sudo -u x402-wallet env X402_WALLET_HOME=/var/lib/x402-wallet "+
		"/usr/local/bin/x402-wallet unlock", PlaceOn("linux").AsUser("unlock"))
}
