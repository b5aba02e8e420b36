package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotify(t *testing.T) {
	require.Zero(t, rules(t, "").Notify)
	own, secret := filepath.Join(t.TempDir(), "tell-me"), filepath.Join(t.TempDir(), "secret")
	n := rules(t, "[notify]\ncommand = ['"+own+"', '--now']\nsandbox = false\n"+
		"webhook = 'https://ops.example/x'\n"+
		"low_funds = '1.50'\n"+
		"webhook_secret_file = '"+secret+"'").Notify
	require.Equal(t, notify{Command: []string{own, "--now"}, Sandbox: new(false),
		Webhook: "https://ops.example/x", WebhookSecretFile: secret, LowFunds: 1_500_000}, n)
	for written, problem := range map[string]string{
		"command = ['tell-me']":                      "looked for in PATH",
		"command = ['']":                             "looked for in PATH",
		"sandbox = true":                             "there is none",
		"low_funds = '1.00'":                         "nothing to tell it by",
		"desktop = true\nlow_funds = '-1'":           "low_funds",
		"webhook = 'https://ops.example'":            "go together",
		"webhook_secret_file = '" + secret + "'":     "go together",
		"webhook = 'http://ops.example'":             "must be https",
		"webhook = 'https://a:b@ops.example'":        "name or password",
		"webhook = 'ops.example'":                    "not a URL",
		"webhook_secret_file = 'secret'":             "full path",
		"webhook = 'file:///etc/passwd'":             "not a URL",
		"command = '" + own + "'":                    "a list",
		"webhooks = ['https://ops.example']":         "no such key",
		"webhook = 'https://x'\nWebhook = 'https:/'": "is spelt",
	} {
		_, err := Parse([]byte("[notify]\n" + written))
		require.ErrorContains(t, err, problem, written)
		require.ErrorContains(t, err, "notify", written)
	}
	for system, isRefused := range map[string]bool{"windows": true, "linux": false, "darwin": false} {
		c := &Checker{}
		c.notify(notify{Desktop: true}, system)
		require.Equal(t, isRefused, len(c.errs) > 0, system)
	}
}

// Who is told, and by what, is the owner's alone to say: turned off, nobody hears of what waits.
func TestNotifyIsChangedByTheOwner(t *testing.T) {
	on := rules(t, "[notify]\ncommand = ['"+filepath.Join(t.TempDir(), "x")+"']")
	require.True(t, Loosens(Compare(rules(t, ""), on)))
	require.True(t, Loosens(Compare(on, rules(t, ""))))
	low := func(at string) *Config { return rules(t, "[notify]\ndesktop = true\nlow_funds = '"+at+"'") }
	require.Equal(t, []Change{{Key: "notify.low_funds", From: "$1.00", To: "$2.00", Loosens: true}},
		Compare(low("1"), low("2")))
}
