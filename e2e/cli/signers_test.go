//go:build unix

package cli

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
)

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
