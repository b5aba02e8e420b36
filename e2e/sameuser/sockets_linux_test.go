package sameuser

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/child"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// secretFile is the home's file with the secret that programs of the wallet's user show at its sockets.
const secretFile = "sockets.secret"

// opened are the modes that a raid gives to files of the home, and closed those that they had.
var (
	opened = map[string]os.FileMode{".": 0o755, "keystore.json": 0o644, "config.toml": 0o666,
		"ledger.db": 0, "service.sock": 0, "agent.sock": 0o666}
	closed = map[string]os.FileMode{".": 0o700, "keystore.json": 0o600, "config.toml": 0o600,
		"ledger.db": 0o600, "service.sock": 0o666, "agent.sock": 0o600}
)

// modes are those of the files of closed.
func (h testUser) modes() map[string]os.FileMode {
	modes := map[string]os.FileMode{}
	for name := range closed {
		modes[name] = must.Get(os.Stat(filepath.Join(h.home, name)))(h.t).Mode().Perm()
	}
	return modes
}

// raid tries to use the wallet's sockets and to open up its home, as a program that was written for that. It
// writes what each attempt came to into a file: an empty text means success.
func raid(report, home, seller, account string) {
	came := map[string]string{}
	try := func(what string, err error) {
		came[what] = ""
		if err != nil {
			came[what] = err.Error()
		}
	}
	secret, err := os.ReadFile(filepath.Join(home, secretFile))
	try("read the secret", err)
	greetings := [][2]string{{"nothing", ""}, {"zeros", strings.Repeat("\x00", 26)},
		{"a guess", strings.Repeat("A", 26)}}
	if err == nil {
		greetings = append(greetings, [2]string{"the secret", string(secret)})
	}
	for _, g := range greetings {
		shown, greeting := g[0], g[1]
		tool := func(name, arguments string) error { return useTool(home, greeting, name, arguments) }
		try("pay, showing "+shown, tool("x402_pay", fmt.Sprintf(`{"url":%q}`, seller+"/weather?"+shown[:1])))
		try("read the history, showing "+shown, tool("x402_history", `{}`))
		for _, op := range []string{"status", "verify"} {
			try(op+" of the unlock agent, showing "+shown, askAgent(home, greeting, op))
		}
	}
	for _, g := range greetings {
		try("freeze, showing "+g[0], useTool(home, g[1], "x402_revoke_delegation",
			fmt.Sprintf(`{"tokenAccount":%q,"freeze":true}`, account)))
		try("lock, showing "+g[0], askAgent(home, g[1], "lock"))
	}
	try("move the socket", os.Rename(filepath.Join(home, "service.sock"), report+".sock"))
	if len(greetings) == 3 { // it is confined
		for name, mode := range opened {
			_ = os.Chmod(filepath.Join(home, name), mode)
		}
	}
	text, _ := json.Marshal(came)
	if err := os.WriteFile(report, text, 0o600); err != nil {
		panic(err)
	}
}

// useTool calls a tool at the service's socket, in the relay's frames.
func useTool(home, greeting, name, arguments string) error {
	conn, err := net.Dial("unix", filepath.Join(home, "service.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	frame := func(kind byte, body string) {
		text := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))
		_, _ = conn.Write(append(text, body...))
	}
	_, _ = io.WriteString(conn, greeting)
	frame('h', "{}")
	frame('d', `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"raid","version":"1"}}}`+"\n")
	frame('d', `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	frame('d',
		fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+
			"\n", name, arguments))
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		text := lines.Text()
		switch {
		case strings.HasPrefix(text, `{"error":`), strings.Contains(text, `"isError":true`):
			return errors.New(text)
		case strings.Contains(text, `"id":2`):
			return nil
		}
	}
	return errors.Join(errors.New("no answer"), lines.Err())
}

// askAgent asks the unlock agent one thing.
func askAgent(home, greeting, op string) error {
	conn, err := net.Dial("unix", filepath.Join(home, "agent.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = fmt.Fprintf(conn, "%s{\"op\":%q}\n", greeting, op)
	_ = conn.(*net.UnixConn).CloseWrite()
	var answer struct {
		Error *struct{ Code, Message string }
	}
	err = json.NewDecoder(conn).Decode(&answer)
	if err == nil && answer.Error != nil {
		err = errors.New(answer.Error.Code + ": " + answer.Error.Message)
	}
	return err
}

// raided is a user with a service, an unlock agent and a server, which raids them.
func raided(t *testing.T, sandboxed bool) (h testUser, came map[string]string, secret []byte, paid int) {
	t.Helper()
	s := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	h = newTestUser(t, s.Config(sandbox.Rules{Extra: fmt.Sprintf("[servers.raider]\ncommand = "+
		"[\"HOUSE/bin/played\", \"raid\", \"HOUSE/user/out/raid\", \"HOUSE/user/.config/wallet\", %q, %q]\n"+
		"sandbox = %t\n", s.SellerURL, s.OwnerAccount, sandboxed)}))
	s.Delegate(h.solana, sandbox.USDC)
	s.Fund(h.evm, sandbox.USDC)
	h.runs("unlock", "--passphrase-file", h.secret)
	t.Cleanup(func() { _ = h.command(h.wallet, "lock").Run() })
	testworld.RunService(t, h.command(h.wallet, "serve"), filepath.Join(h.home, "service.sock"), false)
	out := must.Get(h.command(h.wallet, "pay", "--json", s.SellerURL+"/weather?own").CombinedOutput())(t)
	require.Contains(t, string(out), "0.001", "%s", out)
	secret = must.Get(os.ReadFile(filepath.Join(h.home, secretFile)))(t)
	before := len(s.Settlements())
	_ = h.command(h.wallet, "call", "raider").Run() // it is no MCP server
	text := must.Get(os.ReadFile(filepath.Join(h.user, "out", "raid")))(t)
	require.NoError(t, json.Unmarshal(text, &came), "%s", text)
	return h, came, secret, len(s.Settlements()) - before
}

func (h testUser) runs(args ...string) string {
	h.t.Helper()
	out, err := h.command(h.wallet, args...).CombinedOutput()
	require.NoError(h.t, err, "%s", out)
	return string(out)
}

// A confined program runs as the wallet's user, and yet its sockets do nothing for it.
func TestAConfinedProgram_AtTheSockets(t *testing.T) {
	if why := child.Unsupported(); why != "" {
		t.Skip("NOT TESTED HERE, because of this kernel: " + why)
	}
	h, came, secret, paid := raided(t, true)
	require.Len(t, came, 20)
	for what, failed := range came {
		require.NotEmpty(t, failed, what)
		if strings.HasSuffix(what, "zeros") || strings.HasSuffix(what, "a guess") {
			require.Contains(t, failed, "cannot read the wallet's home", what)
		}
	}
	require.Zero(t, paid)

	isClosed := func() bool { return maps.Equal(closed, h.modes()) }
	require.Eventually(t, isClosed, time.Minute, 50*time.Millisecond)
	isTold := func() bool {
		return strings.Contains(h.runs("alerts"), "could enter the wallet's home: its mode was 0755")
	}
	require.Eventually(t, isTold, time.Minute, 50*time.Millisecond) // after it was closed
	require.NotEqual(t, secret, must.Get(os.ReadFile(filepath.Join(h.home, secretFile)))(t),
		"the other user may have read it")
	require.NotContains(t, h.runs("policy"), "frozen")
	require.Contains(t, h.runs("lock"), `"was": true`, "until now it was not locked")
}

// A program of the same user that reads the secret uses the sockets, so the test above shows something. One
// that does not show it is refused all the same.
func TestAnUnconfinedProgram_AtTheSockets(t *testing.T) {
	_, came, _, paid := raided(t, false)
	for what, failed := range came {
		if strings.HasSuffix(what, "the secret") || strings.HasPrefix(what, "move ") {
			require.Empty(t, failed, what)
		} else {
			require.NotEmpty(t, failed, what)
		}
	}
	require.Equal(t, 1, paid)
}
