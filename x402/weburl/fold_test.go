package weburl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The expected forms are those of the URL standard, as new URL(raw).href of Node has them.
func TestFold(t *testing.T) {
	for raw, want := range map[string]string{
		"http://127.0.0.1:4605/w?city=München": "http://127.0.0.1:4605/w?city=M%C3%BCnchen",
		"https://a.example/straße":             "https://a.example/stra%C3%9Fe",
		"https://a.example/w?q=東京":             "https://a.example/w?q=%E6%9D%B1%E4%BA%AC",
		"https://a.example/w?q=café&x=1":       "https://a.example/w?q=caf%C3%A9&x=1",
		"https://a.example/w?q=a%20b":          "https://a.example/w?q=a%20b",
		"https://a.example/w?q=é%20":           "https://a.example/w?q=%C3%A9%20",
		"https://a.example/w?q=a b#f":          "https://a.example/w?q=a%20b",
		"https://a.example/a b/😀":              "https://a.example/a%20b/%F0%9F%98%80",
		"https://a.example/?q='<\">`{|}^":      "https://a.example/?q=%27%3C%22%3E`{|}^",
		"https://a.example/<\"`{}^>'":          "https://a.example/%3C%22%60%7B%7D^%3E'",
		" https://a.example/x \n":              "https://a.example/x",
		"https://a.exam\tple/x\r\ny":           "https://a.example/xy",
		`https:\\a.example\b\c?d=\`:            `https://a.example/b/c?d=\`,
		`https://a.example\@b.example/`:        "https://a.example/@b.example/",
		"HTTPS://API.Example.com/Path?Q=A":     "https://api.example.com/Path?Q=A",
		"https://a.example:443/x":              "https://a.example/x",
		"http://127.0.0.1:80/x":                "http://127.0.0.1/x",
		"https://a.example:8443/x":             "https://a.example:8443/x",
		"https://bücher.example/":              "https://xn--bcher-kva.example/",
		"https://BÜCHER.example:8443/ü":        "https://xn--bcher-kva.example:8443/%C3%BC",
		"https://аpple.com/":                   "https://xn--pple-43d.com/",
		"https://１２７.0.0.1/":                   "https://127.0.0.1/",
		"https://a。example/":                   "https://a.example/",
		"https://a.example/b/../c/./d/%2E%2e/": "https://a.example/c/",
		"https://a.example/../..":              "https://a.example/",
		"https://a.example/.well-known/x":      "https://a.example/.well-known/x",
		"https://a.example/x#":                 "https://a.example/x",
		"https://a.example/x?":                 "https://a.example/x?",
		"https://a.example":                    "https://a.example",
		"https://[::1]:4021/ü":                 "https://[::1]:4021/%C3%BC",

		// still refused by whoever sends it
		"https://me:pw@a.example/ü": "https://me:pw@a.example/%C3%BC",
		"https://a b.example/":      "https://a b.example/",
		"https://a.example/\x00":    "https://a.example/\x00",
		"https://a.example/\xff":    "https://a.example/\ufffd",
		"https://a\u200b\xff/":      "https://a\u200b\xff/",
		"https://2130706433/":       "https://2130706433/",
		"ftp://a.example/ü":         "ftp://a.example/ü",
		"https:a.example":           "https:a.example",
		"a.example/ü":               "a.example/ü",
		"":                          "",
	} {
		require.Equal(t, want, Fold(raw), "%q", raw)
		require.Equal(t, want, Fold(want), "once is enough: %q", raw)
	}
}
