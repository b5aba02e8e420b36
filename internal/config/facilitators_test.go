package config

import (
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

func TestFacilitatorsOfAnyKind(t *testing.T) {
	c := rules(t, "[[facilitators]]\ncommand = ['"+fullPath+"', '--now']\nenv = ['SETTLER_KEY']\n"+
		"sandbox = false\n"+
		"networks = ['base']\nassets = ['USDC']\nmin_price = '0.01'\nmax_price = '1'\n"+
		"[[facilitators]]\nurl = 'https://f.example'\nauth = 'header'\nheader_command = ['"+fullPath+"']")
	require.Equal(t, []Facilitator{
		{Name: "program", Command: []string{fullPath, "--now"}, Env: []string{"SETTLER_KEY"},
			Sandbox: new(false),
			Auth:    "none", Networks: []string{Base}, Assets: []string{"USDC"}, MinPrice: 10_000,
			MaxPrice: 1_000_000},
		{Name: "f.example", URL: "https://f.example", Auth: "header", HeaderCommand: []string{fullPath}},
	}, c.Facilitators)
	const web = "url = 'https://f'\n"
	for written, problem := range map[string]string{
		"":                     "needs either url",
		"command = ['settle']": "looked for in PATH",
		"command = ['" + fullPath + "']\nurl = 'https://f'":            "needs either url",
		"command = ['" + fullPath + "']\nauth = 'cdp'":                 "with a url",
		"command = ['" + fullPath + "']\nenv = ['CDP_API_KEY_SECRET']": "the wallet's own",
		web + "sandbox = true":                                         "with a command",
		web + "auth = 'header'":                                        "header_command",
		web + "header_command = ['" + fullPath + "']":                  "goes together",
		web + "auth = 'header'\nheader_command = ['token']":            "looked for in PATH",
		web + "auth='header'\nheader_file='/x'\nheader_command=['" +
			fullPath + "']": "goes together",
		web + "min_price = '2'\nmax_price = '1'": "nothing would be brought",
		web + "max_price = '0'":                  "nothing would be brought",
		web + "min_price = '-1'":                 "min_price",
		web + "assets = ['']":                    "without a name",
	} {
		require.ErrorContains(t, must.Err(Parse([]byte("[[facilitators]]\n"+written))), problem, written)
	}
}

func TestHooks(t *testing.T) {
	require.Equal(t, hooks{Timeout: 10 * time.Second}, rules(t, "").Hooks)
	require.Equal(t, hooks{Before: []string{fullPath, "-x"}, After: []string{fullPath}, Sandbox: new(true),
		Timeout: 20 * time.Second}, rules(t, "[hooks]\nbefore = ['"+fullPath+"', '-x']\nafter = ['"+fullPath+
		"']\nsandbox = true\ntimeout = '20s'").Hooks)
	for written, problem := range map[string]string{
		"before = ['may-pay']": "looked for in PATH",
		"after = ['']":         "looked for in PATH",
		"sandbox = true":       "has no program",
		"timeout = '5s'":       "has no program",
		"before = ['" + fullPath + "']\ntimeout = '2m'": "timeout",
		"before = '" + fullPath + "'":                   "a list",
	} {
		require.ErrorContains(t, must.Err(Parse([]byte("[hooks]\n"+written))), problem, written)
	}
}
