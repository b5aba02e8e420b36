package doctor

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
)

// An account that only one of the keystore and the rules has pays nothing, and is said.
func TestAccountsOfKeystoreAndRules(t *testing.T) {
	home, passphrase := filepath.Join(t.TempDir(), "home"), wallet.FromValue("correct horse battery")
	made := must.Get(wallet.Create(t.Context(), home, passphrase, wallet.Options{N: 1 << 14}))(t)
	must.Get(made.AddAccount(t.Context(), passphrase, wallet.NewAccount{Name: "research"}))(t)
	require.NoError(t, made.Close())
	keys := must.Get(wallet.Open(home))(t)
	defer func() { _ = keys.Close() }()
	look := func(name string) findings {
		rules := must.Get(config.Parse([]byte("[budget.teams." + name + "]\naccount = true\n")))(t)
		return accounts(keys, rules)
	}
	require.Empty(t, look("research"))
	require.Equal(t, findings{
		{Status: fail, Message: "config.toml has the account travel, and keystore.json has no keys of it: " +
			"nothing is paid from it",
			Remedy: "x402-wallet account add travel, or restore the keystore.json that has it"},
		{Status: warn, Message: "keystore.json has the keys of the account research, and config.toml does " +
			"not name it: nothing is paid from it", Remedy: "x402-wallet account add research"},
	}, look("travel"))
}
