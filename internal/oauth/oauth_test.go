package oauth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/oauth/oauthtest"
)

const ours = "https://wallet.example/mcp"

func verifier(s *oauthtest.Server) *Verifier {
	return New(Server{Issuer: s.Issuer, Audience: ours}, slog.New(slog.DiscardHandler))
}

func with(members, others map[string]any) map[string]any {
	out := maps.Clone(members)
	for name, value := range others {
		out[name] = value
		if value == nil {
			delete(out, name)
		}
	}
	return out
}

func TestTokensThatAreGood(t *testing.T) {
	s := oauthtest.New(t, "")
	var keys []*oauthtest.Key
	for _, algorithm := range []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"} {
		keys = append(keys, oauthtest.NewKey(t, "key of "+algorithm, algorithm))
	}
	s.Change(func() { s.Keys = keys })
	v := verifier(s)
	now := time.Now().Unix()
	for _, key := range keys {
		subject, until, err := v.Verify(t.Context(), key.Sign(t, s.Claims("ann", ours), nil))
		require.NoError(t, err, key.Algorithm)
		require.Equal(t, "ann", subject)
		require.InDelta(t, now+300, until.Unix(), 60)
	}
	require.Equal(t, 1, s.Fetched(oauthtest.KeysPath), "they are kept")
	type members = map[string]any
	for name, more := range map[string]struct{ claims, header members }{
		"one of several audiences": {claims: members{"aud": []string{"https://other.example", ours}}},
		"JWT":                      {header: members{"typ": "JWT"}},
		"in full":                  {header: members{"typ": "application/at+jwt"}},
		"in capitals":              {header: members{"typ": "AT+JWT"}},
		"no typ":                   {header: members{"typ": nil}},
		"from before":              {claims: members{"nbf": now - 10}},
		"a fraction of a second":   {claims: members{"iat": float64(now) + 0.5}},
		"a clock that is ahead":    {claims: members{"iat": now + 30, "nbf": now + 30}},
		"for a day":                {claims: members{"exp": now + 86400, "iat": now}},
		"a subject of other signs": {claims: members{"sub": "Ann@Müller|⚙"}},
		"what nobody reads":        {claims: members{"scope": "pay", "groups": []string{"a"}}},
		"places of other keys":     {header: members{"jku": "https://evil.example", "x5u": "file:///k"}},
	} {
		token := keys[2].Sign(t, with(s.Claims("ann", ours), more.claims), more.header)
		_, _, err := v.Verify(t.Context(), token)
		require.NoError(t, err, name)
	}
}

// What is wrong with a token is said for each, so that no row is refused for another reason than its own.
func TestAttacks(t *testing.T) {
	s := oauthtest.New(t, "")
	rsa, own := oauthtest.NewKey(t, "rsa", "RS256"), oauthtest.NewKey(t, "first", "ES256")
	s.Change(func() { s.Keys = append(s.Keys, rsa) })
	key, v, now := s.Keys[0], verifier(s), time.Now().Unix()
	good := s.Claims("ann", ours)
	_, _, err := v.Verify(t.Context(), key.Sign(t, good, nil))
	require.NoError(t, err)

	type members = map[string]any
	claims := func(more members) string { return key.Sign(t, with(good, more), nil) }
	header := func(more members) string { return key.Sign(t, good, more) }
	text := must.Get(json.Marshal(good))(t)
	const wrong, unknown = "signature is wrong", "none of the authorization server's"
	const plain = `{"alg":"ES256","kid":"first"}`
	signed := key.Sign(t, good, nil)
	cut := strings.LastIndexByte(signed, '.')
	public := must.Get(x509.MarshalPKIXPublicKey(rsa.Private.Public()))(t)
	other := rsa.Sign(t, with(good, members{"sub": "bob"}), nil)
	for name, c := range map[string]struct{ token, says string }{
		"nothing":                {"", "no signed JWT"},
		"points":                 {"..", "no signed JWT"},
		"four parts":             {signed + ".x", "no signed JWT"},
		"encrypted":              {"a.b.c.d.e", "no signed JWT"},
		"too long":               {signed + strings.Repeat("A", maxToken), "too long"},
		"padding":                {signed + "==", "no signed JWT"},
		"a line break":           {signed[:cut] + ".\n" + signed[cut+1:], "no signed JWT"},
		"no signature":           {signed[:cut+1], wrong},
		"half a signature":       {signed[:cut+45], wrong},
		"another's signature":    {signed[:cut] + other[strings.LastIndexByte(other, '.'):], wrong},
		"another's claims":       {swap(signed, other), wrong},
		"a key of its own":       {own.Sign(t, good, nil), wrong},
		"and embedded":           {own.Sign(t, good, members{"jwk": own.JWK}), wrong},
		"and published":          {own.Sign(t, good, members{"jku": "https://evil.example/k"}), wrong},
		"none":                   {unsigned(`{"alg":"none","kid":"first"}`, string(text)), "not taken"},
		"None":                   {unsigned(`{"alg":"None","kid":"first"}`, string(text)), "not taken"},
		"no algorithm":           {unsigned(`{"kid":"first"}`, string(text)), "not taken"},
		"HS256 by a public key":  {hs256(`{"alg":"HS256","kid":"rsa"}`, string(text), public), "not taken"},
		"RS256 by HMAC":          {hs256(`{"alg":"RS256","kid":"rsa"}`, string(text), public), wrong},
		"another key's":          {header(members{"alg": "RS256"}), "not its key's"},
		"another than its key's": {rsa.Sign(t, good, members{"alg": "PS256"}), "not its key's"},
		"small letters":          {header(members{"alg": "es256"}), "not taken"},
		"a key elsewhere":        {header(members{"kid": "../../keys/first"}), unknown},
		"a key that is a query":  {header(members{"kid": "first' OR '1'='1"}), unknown},
		"no key":                 {header(members{"kid": nil}), unknown},
		"a key that is a number": {header(members{"kid": 1}), "no signed JWT"},
		"critical extensions":    {header(members{"crit": []string{"exp"}}), "critical"},
		"none of them":           {key.SignText(t, `{"alg":"ES256","crit":null}`, string(text)), "critical"},
		"not encoded":            {header(members{"b64": false, "crit": []string{"b64"}}), "critical"},
		"an ID token by its typ": {header(members{"typ": "id_token"}), "no access token"},
		"a logout token":         {header(members{"typ": "logout+jwt"}), "no access token"},
		"a proof of possession":  {header(members{"typ": "dpop+jwt"}), "no access token"},
		"an ID token":            {claims(members{"at_hash": "MTIz"}), "no access token"},
		"another ID token":       {claims(members{"c_hash": "MTIz"}), "no access token"},
		"a security event":       {claims(members{"events": members{}}), "no access token"},
		"bound to a key":         {claims(members{"cnf": members{"jkt": "0ZcOCORZNYy"}}), "bound to a key"},
		"another issuer":         {claims(members{"iss": "https://evil.example"}), "issuer is another"},
		"an issuer with a slash": {claims(members{"iss": s.Issuer + "/"}), "issuer is another"},
		"an issuer in capitals":  {claims(members{"iss": strings.ToUpper(s.Issuer)}), "issuer is another"},
		"no issuer":              {claims(members{"iss": nil}), "issuer is another"},
		"issuers":                {claims(members{"iss": []string{s.Issuer}}), "no signed JWT"},
		"another audience":       {claims(members{"aud": "https://other.example/mcp"}), "somebody else"},
		"a part of it":           {claims(members{"aud": strings.TrimSuffix(ours, "/mcp")}), "somebody else"},
		"more than it":           {claims(members{"aud": ours + "/"}), "somebody else"},
		"other audiences":        {claims(members{"aud": []string{"a", "b"}}), "somebody else"},
		"a list in a list":       {claims(members{"aud": [][]string{{ours}}}), "no signed JWT"},
		"no audience":            {claims(members{"aud": nil}), "somebody else"},
		"an empty list":          {claims(members{"aud": []string{}}), "somebody else"},
		"no subject":             {claims(members{"sub": nil}), "no subject"},
		"expired":                {claims(members{"exp": now - 1}), "expired"},
		"expired at this moment": {claims(members{"exp": time.Now().Unix()}), "expired"},
		"without an end":         {claims(members{"exp": nil}), "from when"},
		"an end as text":         {claims(members{"exp": "9999999999"}), "no signed JWT"},
		"an end before all time": {claims(members{"exp": -1}), "from when"},
		"an end after all time":  {claims(members{"exp": 1e300}), "from when"},
		"without a beginning":    {claims(members{"iat": nil}), "from when"},
		"not yet issued":         {claims(members{"iat": now + 120}), "not good yet"},
		"not yet good":           {claims(members{"nbf": now + 120}), "not good yet"},
		"never good":             {claims(members{"nbf": 1e300}), "from when"},
		"for longer than a day":  {claims(members{"exp": now + 86500, "iat": now}), "longer than a day"},
		"for so long already":    {claims(members{"iat": now - 86400}), "longer than a day"},
		"two subjects":           {key.SignText(t, plain, twice(text, `"sub":"bob"`)), "no signed JWT"},
		"two spellings":          {key.SignText(t, plain, twice(text, `"SUB":"bob"`)), "no signed JWT"},
		"two algorithms":         {key.SignText(t, `{"alg":"none","alg":"ES256"}`, "{}"), "no signed JWT"},
		"two documents":          {key.SignText(t, plain, string(text)+"{}"), "no signed JWT"},
		"a list of claims":       {key.SignText(t, plain, "["+string(text)+"]"), "no signed JWT"},
		"no claims":              {key.SignText(t, plain, "null"), "issuer is another"},
		"no UTF-8":               {key.SignText(t, plain, "{\"sub\":\"\xff\"}"), "no signed JWT"},
	} {
		_, _, err := v.Verify(t.Context(), c.token)
		require.ErrorContains(t, err, c.says, name)
	}
	require.Equal(t, 1, s.Fetched(oauthtest.KeysPath), "keys that are not there are looked for once a minute")
}

// swap puts the claims of one token under the header and signature of another.
func swap(signed, claims string) string {
	parts := strings.Split(signed, ".")
	return parts[0] + "." + strings.Split(claims, ".")[1] + "." + parts[2]
}

// unsigned is a token with an empty signature.
func unsigned(header, claims string) string { return encoded(header) + "." + encoded(claims) + "." }

// hs256 is a token that takes a public key for a shared secret, as it stands in a file.
func hs256(header, claims string, public []byte) string {
	signed := encoded(header) + "." + encoded(claims)
	mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	mac.Write([]byte(signed))
	return signed + "." + encoded(string(mac.Sum(nil)))
}

// twice is an object with one more member.
func twice(object []byte, member string) string {
	return strings.TrimSuffix(string(object), "}") + "," + member + "}"
}

// What can be seen of a token alone is refused before its issuer is asked for keys.
func TestNothingIsFetchedForGarbage(t *testing.T) {
	s := oauthtest.New(t, "")
	v := verifier(s)
	for _, token := range []string{"", "a.b.c", unsigned(`{"alg":"none"}`, "{}"),
		s.Keys[0].Sign(t, with(s.Claims("ann", ours), map[string]any{"iss": "https://evil.example"}), nil),
		s.Keys[0].Sign(t, s.Claims("ann", "https://other.example"), nil)} {
		_, _, err := v.Verify(t.Context(), token)
		require.Error(t, err)
	}
	require.Zero(t, s.Fetched(oauthtest.KeysPath))
}

// FuzzTokens looks for text that is taken without the server's signature, or that stops the program.
func FuzzTokens(f *testing.F) {
	key := oauthtest.NewKey(f, "first", "ES256")
	s := &oauthtest.Server{Issuer: "https://login.example"}
	good := key.Sign(f, s.Claims("ann", ours), nil)
	server := Server{Issuer: s.Issuer, Audience: ours}
	for _, seed := range []string{good, "", "..", "a.b.c", unsigned(`{"alg":"none"}`, "{}"),
		unsigned(`{"alg":"ES256","kid":"first","crit":[]}`, `{"aud":[],"exp":1e99,"iat":-0,"nbf":{}}`)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parse(text)
		if err != nil {
			return
		}
		if len(text) > maxToken || strings.Count(text, ".") != 2 {
			t.Fatalf("%q is taken for a token", text)
		}
		if parsed.isFor(server, time.Now()) != nil {
			return
		}
		c := parsed.claims
		if c.Iss != s.Issuer || c.Sub == "" || c.Exp.time().Sub(c.Iat.time()) > maxLife {
			t.Fatalf("%q passes", text)
		}
		isSigned := methods["ES256"].Verify(parsed.signed, parsed.signature, key.Private.Public()) == nil
		if isSigned && parsed.signed != good[:strings.LastIndexByte(good, '.')] {
			t.Fatalf("%q is signed", text)
		}
	})
}
