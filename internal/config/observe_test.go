package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func TestMetrics(t *testing.T) {
	require.Zero(t, must.Get(Parse(nil))(t).Metrics)
	for text, want := range map[string]figures{
		`listen = "127.0.0.1:9464"`: {Listen: "127.0.0.1:9464"}, `listen = "[::1]:1"`: {Listen: "[::1]:1"},
		`listen = "localhost:1"`: {Listen: "localhost:1"}, `file = "/a/b.prom"`: {File: "/a/b.prom"},
	} {
		require.Equal(t, want, must.Get(Parse([]byte("[metrics]\n"+text)))(t).Metrics)
	}
	for text, fault := range map[string]string{
		`listen = "0.0.0.0:9464"`: "an address of this machine", `listen = ":9464"`: "an address of this machine",
		`listen = "192.168.1.2:1"`: "an address of this machine", `listen = "127.0.0.1"`: "an address",
		`listen = "127.0.0.1:x"`: "an address", `listen = "evil.example:80"`: "an address",
		`file = "b.prom"`: "full path", `file = "/home/me/.bashrc"`: `ends in ".prom"`,
		"file = \"/b.prom\"\nlisten = \"127.0.0.1:1\"": "either listen or file", `place = "x"`: "no such key",
	} {
		_, err := Parse([]byte("[metrics]\n" + text))
		require.ErrorContains(t, err, fault, text)
	}
}
