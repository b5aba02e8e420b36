package sameuser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// probe is a program that reports whether it can read the home.
func probe(report, home string) {
	came := "it read the home"
	if _, err := os.ReadDir(home); err != nil {
		came = err.Error()
	}
	if err := os.WriteFile(report, []byte(came), 0o600); err != nil {
		panic(err)
	}
}

// Each program that the rules name is kept from the home, unless they say otherwise.
func TestEveryProgram_IsConfined(t *testing.T) {
	if why := child.Unsupported(); why != "" {
		t.Skip("NOT TESTED HERE, because of this kernel: " + why)
	}
	s := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	const probed = `["HOUSE/bin/played", "probe", "HOUSE/user/out/report", "HOUSE/user/.config/wallet"]` +
		"\n"
	signer := "[signers.hsm]\nchain = \"evm\"\naddress = \"" + s.PayToEVM + "\"\n"
	pays, tests := []string{"pay", "--json", s.SellerURL + "/weather"}, []string{"signer", "test", "hsm"}
	for name, c := range map[string]struct {
		rules string
		runs  []string
	}{
		"server":      {"[servers.s]\ncommand = " + probed, []string{"call", "s"}},
		"hook before": {"[hooks]\nbefore = " + probed, pays},
		"hook after":  {"[hooks]\nafter = " + probed, pays},
		"notify":      {"[notify]\ncommand = " + probed, []string{"notify", "test"}},
		"signer":      {signer + "kind = \"command\"\ncommand = " + probed, tests},
		"signer's secret": {signer + "kind = \"turnkey\"\nkey = \"k\"\norganization = \"o\"\n" +
			"secret_command = " + probed, tests},
		"facilitator": {"[[facilitators]]\ncommand = " + probed, []string{"doctor"}},
		"facilitator's header": {"[[facilitators]]\nurl = \"" + s.FacilitatorURL + "/\"\nname = \"f\"\n" +
			"auth = \"header\"\nheader_command = " + probed, []string{"doctor"}},
		"passphrase": {"[keystore]\npassphrase_command = " + probed, pays},
		"password": {"[ledger]\nurl = \"postgres://u@127.0.0.1:1/d\"\npassword_command = " + probed,
			[]string{"history"}},
	} {
		for more, confined := range map[string]bool{"": true, "sandbox = false\n": false} {
			t.Run(name+" "+strings.TrimSpace(more), func(t *testing.T) {
				extra := c.rules + more
				sealed := extra
				if name == "password" { // there is no such server to seal anything in
					sealed = ""
				}
				h := newTestUser(t, s.Config(sandbox.Rules{Extra: sealed}))
				s.Fund(h.evm, sandbox.USDC)
				if sealed == "" {
					rules := strings.ReplaceAll(s.Config(sandbox.Rules{Extra: extra}), "HOUSE", h.dir)
					file := filepath.Join(h.home, "config.toml")
					require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
				}
				cmd := h.command(h.wallet, c.runs...)
				if name == "passphrase" {
					cmd.Env = append(cmd.Env, "X402_WALLET_PASSPHRASE_FILE=")
				}
				out, _ := cmd.CombinedOutput() // the probe does not do what it is asked for
				text, err := os.ReadFile(filepath.Join(h.user, "out", "report"))
				require.NoError(t, err, "%s", out)
				require.Equal(t, confined, string(text) != "it read the home", "%s", text)
			})
		}
	}
}
