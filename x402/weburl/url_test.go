package weburl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeantURL(t *testing.T) {
	for raw, meant := range map[string]string{
		"a.example/x":            "https://a.example/x",
		"htps://a.example/x?b=1": "https://a.example/x?b=1",
		"http://a.example/x":     "https://a.example/x",
		"HTTP://a.example":       "https://a.example",
		"//a":                    "https://a",
		"//a.example/x":          "https://a.example/x",
		"https:a.example":        "https://a.example",
		"https:/a.example/x":     "https://a.example/x",
		"ftp://a.example/x":      "https://a.example/x",
		"a.example:8443/x":       "https://a.example:8443/x",
		"https//a.example/x":     "https://a.example/x",
		"https.example/x":        "https://https.example/x",
		"8.8.8.8/x":              "https://8.8.8.8/x",
		" https://a.example/ ":   "https://a.example/",
		"localhost:4021/x":       "http://localhost:4021/x",
		"127.0.0.1:4021/x":       "http://127.0.0.1:4021/x",
		"127.0.0.1":              "http://127.0.0.1",
		"htp://localhost:80/":    "http://localhost:80/",

		"": "", "/path": "", "./x": "", "unix:/run/x": "", "file:///etc/passwd": "",
		"javascript:alert(1)":   "",
		"me:secret@a.example/x": "", "https//me:secret@a.example": "", "a b": "", "bücher.example/": "",
		"-a.example": "", "\x1b[31m": "", "a.example/" + strings.Repeat("x", 200): "",
	} {
		require.Equal(t, meant, Meant(raw), "%q", raw)
		require.False(t, Is(raw), "%q", raw)
	}
	for _, raw := range []string{"https://a.example/x", "HTTPS://a.example", "https://localhost/",
		"http://127.0.0.1:4021/", "http://localhost", "http://[::1]:80/", "http://10.0.0.7/",
		"http://169.254.169.254/", "https://"} {
		require.True(t, Is(raw), raw)
		require.Equal(t, raw, Meant(raw))
	}
}
