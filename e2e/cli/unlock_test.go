//go:build unix

package cli

import (
	"context"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
)

// The real program over stdio, its wallet locked: the client opens a page for its person, and what
// is typed there unlocks the wallet and is in no message.
func TestUnlockedOnAPageOverStdio(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"2025-11-25", "2026-07-28"} {
		w, env := household(t, sandbox.Options{}, sandbox.Rules{})
		cmd := command(t, append(env, "LOG_LEVEL=debug"), "mcp")
		var log, wire strings.Builder
		cmd.Stderr = &log
		asked := 0
		pages := &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: pages},
			ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked++
				post, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Params.URL,
					strings.NewReader(url.Values{"passphrase": {testPassphrase}}.Encode()))
				if err != nil {
					return nil, err
				}
				post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				post.Header.Set("Origin", "http://"+post.Host)
				answer, err := http.DefaultClient.Do(post)
				if err != nil {
					return nil, err
				}
				return &mcp.ElicitResult{Action: "accept"}, answer.Body.Close()
			},
		})
		session := must.Get(client.Connect(t.Context(),
			&mcp.LoggingTransport{Transport: &mcp.CommandTransport{Command: cmd}, Writer: &wire},
			&mcp.ClientSessionOptions{ProtocolVersion: era}))(t)
		pay := func() map[string]any {
			out := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x402_pay",
				Arguments: map[string]any{"url": w.SellerURL + "/weather"}}))(t)
			return out.StructuredContent.(map[string]any)
		}
		require.Equal(t, "paid", pay()["status"], era)
		require.Equal(t, "paid", pay()["status"], era)
		require.Equal(t, 1, asked, era)
		require.NoError(t, session.Close())
		require.NotContains(t, log.String()+wire.String(), testPassphrase)
		require.Len(t, w.Settlements(), 2)
	}
}

func TestLockReachesEveryProcess(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	a := serve(t, append(env, passphraseFile(t))...)
	setup := func() string { return a.call("x402_setup_agent", `{}`) }
	require.Contains(t, setup(), `"locked":true`)
	require.Contains(t, a.call("x402_pay", `{"url":"`+w.SellerURL+`/weather"}`), `"status":"paid"`)
	require.Contains(t, setup(), `"locked":false`)
	sit(t, nil, env, "lock").ends(0)
	require.Contains(t, setup(), `"locked":true`)
}

// An agent with a shell writes a signer of its own into config.toml: its program is never started, its
// address is shown to nobody who might send money there, and nothing is paid.
func TestASignerThatNobodySealed(t *testing.T) {
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	env = append(env, passphraseFile(t))
	dir := t.TempDir()
	program, started := filepath.Join(dir, "sign"), filepath.Join(dir, "started")
	childtest.Write(t, program, "touch "+started)
	key := must.Get(crypto.GenerateKey())(t)
	theirs := crypto.PubkeyToAddress(key.PublicKey).Hex()
	rules := w.configText(t)
	w.setConfig(t, rules+"\n[signers.evil]\nkind = \"command\"\nchain = \"evm\"\naddress = \""+theirs+
		"\"\ncommand = [\""+program+"\"]\n")
	for _, c := range []struct {
		code int
		args []string
	}{
		{4, []string{"address"}}, {4, []string{"signer"}}, {4, []string{"signer", "test", "evil"}},
		{1, []string{"doctor"}}, {0, []string{"balance"}}, {4, []string{"pay", w.SellerURL + "/weather"}},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			out, problems := runs(t, c.code, env, c.args...)
			require.NotContains(t, out+problems, theirs)
			if c.code == 4 {
				require.Contains(t, out, "POLICY_UNSEALED")
			}
			require.NoFileExists(t, started)
		})
	}
	w.setConfig(t, rules)
	runs(t, 0, env, "pay", w.SellerURL+"/weather")
	out, _ := runs(t, 0, env, "signer")
	require.Contains(t, out, w.evm)
}

// An unlock agent that began with other signers than the rules have now signs nothing: it would be out of
// another account than the one that is paid from.
func TestAnUnlockAgentKnowsItsSigners(t *testing.T) {
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	pass := passphraseFile(t)
	runs(t, 0, append(env, pass), "unlock", "--passphrase-file", pass[len("X402_WALLET_PASSPHRASE_FILE="):])
	defer runs(t, 0, env, "lock")
	runs(t, 0, env, "pay", w.SellerURL+"/weather")
	key := must.Get(crypto.GenerateKey())(t)
	address := crypto.PubkeyToAddress(key.PublicKey).Hex()
	w.setConfig(t, w.configText(t)+"\n[signers.hsm]\nkind = \"command\"\nchain = \"evm\"\naddress = \""+
		address+"\"\ncommand = [\"/bin/false\"]\n")
	keys := must.Get(wallet.Open(w.home))(t)
	require.NoError(t, keys.Unlock(t.Context(), wallet.FromValue(testPassphrase)))
	require.NoError(t, testworld.SealHome(w.home, keys))
	require.NoError(t, keys.Close())
	w.Fund(address, sandbox.USDC)
	out, _ := runs(t, 4, env, "pay", w.SellerURL+"/weather?"+time.Now().Format("150405.000"))
	require.Contains(t, out, "WALLET_LOCKED")
	require.Contains(t, out, "other signers")
}
