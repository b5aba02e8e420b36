package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServiceURL(t *testing.T) {
	require.Empty(t, rules(t, "").Service.URL)
	for _, written := range []string{"https://wallet.example", "https://wallet.example:8402",
		"http://localhost:8402", "http://127.0.0.1:8402"} {
		require.Equal(t, written, rules(t, "[service]\nurl = '"+written+"'").Service.URL)
		require.Equal(t, written, rules(t, "[service]\nurl = '"+written+"/'").Service.URL)
	}
	for written, problem := range map[string]string{
		"http://wallet.example":       "https",
		"https://wallet.example/path": "without a path",
		"https://wallet.example?a=b":  "without a path",
		"https://u@wallet.example":    "without a path",
		"https://Wallet.example":      "small letters",
		"wallet.example":              "not a URL",
	} {
		_, err := Parse([]byte("[service]\nurl = '" + written + "'"))
		require.ErrorContains(t, err, "service.url", written)
		require.ErrorContains(t, err, problem, written)
	}
}
