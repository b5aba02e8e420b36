package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const aPasskey = "[passkeys.phone]\nid='AAEC'\npublic_key='pQEC'\norigin='https://wallet.example'\ncount=7\n"

func TestPasskeys(t *testing.T) {
	require.Equal(t, map[string]Passkey{"phone": {ID: "AAEC", PublicKey: "pQEC",
		Origin: "https://wallet.example", Count: 7}}, rules(t, aPasskey).Passkeys)
	change := func(from, to string) string { return strings.Replace(aPasskey, from, to, 1) }
	for _, bad := range []struct{ text, key, says string }{
		{change("phone", "Phone"), "passkeys.Phone", "passkeys.phone"},
		{change("phone", "'a b'"), `passkeys."a b"`, "a-z"},
		{change("id='AAEC'\n", ""), "passkeys.phone.id", "base64url"},
		{change("AAEC", "AB"), "passkeys.phone.id", "base64url"}, // bits that are no byte's
		{change("AAEC", "AA=="), "passkeys.phone.id", "base64url"},
		{change("AAEC", "+/+/"), "passkeys.phone.id", "base64url"},
		{change("AAEC", strings.Repeat("AAAA", 342)), "passkeys.phone.id", "base64url"},
		{change("pQEC", ""), "passkeys.phone.public_key", "base64url"},
		{change("pQEC", strings.Repeat("AAAA", 400)), "passkeys.phone.public_key", "base64url"},
		{change("https://wallet.example", ""), "passkeys.phone.origin", "an origin"},
		{change("https://wallet.example", "https://wallet.example/"), "passkeys.phone.origin", "an origin"},
		{change("https://wallet.example", "http://wallet.example"), "passkeys.phone.origin", ""},
		{change("count=7", "count=-1"), "passkeys.phone.count", "32 bits"},
		{change("count=7", "count=4294967296"), "passkeys.phone.count", "32 bits"},
		{change("count=7", "secret='x'"), "passkeys.phone.secret", "no such key"},
		{aPasskey + strings.Replace(aPasskey, "phone", "second", 1), "passkeys.second.id",
			"that of the passkey phone"},
	} {
		t.Run(bad.key+" "+bad.says, func(t *testing.T) {
			_, err := Parse([]byte(bad.text))
			require.ErrorContains(t, err, bad.key)
			require.ErrorContains(t, err, bad.says)
		})
	}
}

// One more passkey, or another in its place, loosens; one less does not.
func TestPasskeysCompared(t *testing.T) {
	none, one := defaults(t), rules(t, aPasskey)
	require.True(t, Loosens(Compare(none, one)))
	require.False(t, Loosens(Compare(one, none)))
	for _, c := range [][2]string{{"AAEC", "AAED"}, {"pQEC", "pQED"}, {"wallet.example", "other.example"},
		{"count=7", "count=8"}, {"phone", "laptop"}} {
		changes := Compare(one, rules(t, strings.Replace(aPasskey, c[0], c[1], 1)))
		require.True(t, Loosens(changes), c[1])
		require.Equal(t, "passkeys", changes[0].Key)
	}
}
