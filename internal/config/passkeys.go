package config

import (
	"encoding/base64"
	"math"
)

// Passkey is one of the owner's, [passkeys.NAME], by which they sign in to the service's pages and approve a
// payment there: what an assertion of it is checked by. Nothing of it is secret.
type Passkey struct {
	ID        string `toml:"id"`         // of the credential, base64url without padding
	PublicKey string `toml:"public_key"` // COSE_Key, likewise
	Origin    string `toml:"origin"`     // of the page where it was made; a yes at any other is none
	// the authenticator's signature counter then; 0 where it counts nothing
	Count int64 `toml:"count"`
}

// Bounds of a passkey: WebAuthn's for its id, and an RSA key of 8192 bits.
const (
	maxCredentialID = 1023
	maxPublicKey    = 1100
)

func (c *Checker) passkeys(written map[string]Passkey) map[string]Passkey {
	passkeys := map[string]Passkey{}
	taken := map[string]string{} // id → whose it is
	for _, name := range sorted(written) {
		key, f := Dotted("passkeys", name), written[name]
		c.Refuse(!IsName(name), key,
			"a passkey's name is 1 to 40 of a-z, 0-9, - and _, and begins with a letter")
		const form = "must be base64url, as x402-wallet passkeys add writes it"
		c.Refuse(!isBase64URL(f.ID, maxCredentialID), key+".id", form)
		c.Refuse(!isBase64URL(f.PublicKey, maxPublicKey), key+".public_key", form)
		c.Refuse(c.origin(key+".origin", f.Origin) != f.Origin || f.Origin == "", key+".origin",
			"must be an origin like https://wallet.example, without a path")
		c.Refuse(f.Count < 0 || f.Count > math.MaxUint32, key+".count", "is no counter of 32 bits")
		other, twice := taken[f.ID]
		c.Refuse(twice, key+".id", "is that of the passkey %s, too", other)
		taken[f.ID] = name
		passkeys[name] = f
	}
	return passkeys
}

// IsName reports whether a text can be the name of an agent or a passkey.
func IsName(text string) bool { return agentName().MatchString(text) }

// isBase64URL reports whether a text is base64url of 1 to so many bytes, in its one spelling.
func isBase64URL(text string, most int) bool {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(data) > 0 && len(data) <= most &&
		base64.RawURLEncoding.EncodeToString(data) == text
}
