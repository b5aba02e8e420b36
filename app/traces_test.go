package app

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
)

// What is no header is refused, and not shown: it may be a key.
func TestHeadersIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	read := func(text string) (http.Header, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return headersIn(file)
	}
	got := must.Get(read("X-Key: one:two\r\nAuthorization:Bearer three\n\n"))(t)
	require.Equal(t, http.Header{"X-Key": {"one:two"}, "Authorization": {"Bearer three"}}, got)
	for _, text := range []string{"", "sekret", "X-Key:", "Bearer sekret: x", "A: b\nsekret",
		"A: sek\x00ret"} {
		_, err := read(text)
		require.ErrorContains(t, err, "line", text)
		require.NotContains(t, err.Error(), "sekret")
	}
	require.NoError(t, os.Chmod(file, 0o644))
	require.ErrorContains(t, must.Err(headersIn(file)), "chmod 600")
}

// The rules' format counts from when they are read, for all that logs already; the environment's goes before.
func TestTheLogsFormat(t *testing.T) {
	for _, c := range []struct {
		env, rules string
		inJSON     bool
	}{{"", config.LogText, false}, {"", config.LogJSON, true}, {"text", config.LogJSON, false},
		{"json", config.LogText, true}, {"yaml", config.LogJSON, true}, {"yaml", config.LogText, false}} {
		var out bytes.Buffer
		h := newLogHandler(&out, slog.LevelInfo)
		log := slog.New(h).With("server", "shop")
		h.write(environ.Env{LogFormat: c.env}, c.rules)
		log.Info("hello")
		if c.inJSON {
			require.Contains(t, out.String(), `"msg":"hello","server":"shop"`)
		} else {
			require.Contains(t, out.String(), "msg=hello server=shop")
		}
	}
}
