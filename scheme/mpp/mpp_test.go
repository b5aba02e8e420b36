package mpp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/scheme"
)

func TestRealms(t *testing.T) {
	for _, c := range []struct {
		realm, host string
		speaks      bool
	}{
		{"a.example", "a.example", true}, {"A.example", "a.EXAMPLE:8443", true},
		{"a.example:8443", "a.example:8443", true},
		{"example", "a.example", true}, {"a.example", "b.a.example", true},
		{"MPP Payment", "a.example", true},
		{"MPP v1.2 Payment", "a.example", true}, {"a.example:1", "a.example:2", false},
		{"a.example", "ba.example", false},
		{"b.a.example", "a.example", false}, {"bank.example", "", true}, {"[::1]", "a.example", false},
		{".example", "a.example", false},
	} {
		require.Equal(t, c.speaks, speaksFor(c.realm, c.host), c)
	}
}

func TestDigests(t *testing.T) {
	q := scheme.Call{Body: []byte(`{"hello": "world"}`)}
	for digest, fits := range map[string]bool{
		"": true, "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:": true, // of RFC 9530, appendix D
		"sha-256=X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=":   true, // of mppx 0.11
		"sha-256=:Y48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:": false,
		"sha-512=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:": false, "sha-256=": false, "x": false,
	} {
		require.Equal(t, fits, whyNotDigest(digest, q) == nil, digest)
	}
	q.IsMCP = true
	require.Error(t, whyNotDigest("sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:", q),
		"MCP has no body")
}
