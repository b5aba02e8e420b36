package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/oauth/oauthtest"
)

// clock is a verifier's, which a test moves.
type clock struct {
	*Verifier
	ahead time.Duration
}

func clocked(s *oauthtest.Server) *clock {
	c := &clock{Verifier: verifier(s)}
	c.now = func() time.Time { return time.Now().Add(c.ahead) }
	return c
}

func (c *clock) sees(t *testing.T, s *oauthtest.Server, key *oauthtest.Key) error {
	t.Helper()
	now := c.now().Unix()
	_, _, err := c.Verify(t.Context(), key.Sign(t, with(s.Claims("ann", ours),
		map[string]any{"iat": now, "exp": now + 300}), nil))
	return err
}

func TestKeysAreRotated(t *testing.T) {
	s := oauthtest.New(t, "")
	first, second := s.Keys[0], oauthtest.NewKey(t, "second", "EdDSA")
	v := clocked(s)
	require.NoError(t, v.sees(t, s, first))
	s.Change(func() { s.Keys = []*oauthtest.Key{second} })
	require.ErrorIs(t, v.sees(t, s, second), errNoKey, "a minute has not passed")
	v.ahead += keysPause
	require.NoError(t, v.sees(t, s, second))
	require.ErrorIs(t, v.sees(t, s, first), errNoKey, "it was taken away")
	require.Equal(t, 2, s.Fetched(oauthtest.KeysPath))
	for range 50 {
		require.ErrorIs(t, v.sees(t, s, first), errNoKey)
	}
	require.Equal(t, 2, s.Fetched(oauthtest.KeysPath), "nobody has more fetched by naming keys")

	s.Change(func() { s.Keys = []*oauthtest.Key{first} })
	require.NoError(t, v.sees(t, s, second), "kept")
	v.ahead += keysFresh
	require.ErrorIs(t, v.sees(t, s, second), errNoKey, "and looked at again after ten minutes")
	require.NoError(t, v.sees(t, s, first))
	require.Equal(t, 3, s.Fetched(oauthtest.KeysPath))
}

func TestAServerThatIsSilent(t *testing.T) {
	s := oauthtest.New(t, "")
	key := s.Keys[0]
	v := clocked(s)
	require.NoError(t, v.sees(t, s, key))
	s.Change(func() { s.Status = http.StatusInternalServerError })
	v.ahead += keysStale - keysPause
	require.NoError(t, v.sees(t, s, key), "its keys are used for some hours")
	v.ahead += 2 * keysPause
	require.ErrorIs(t, v.sees(t, s, key), errNoKey)
	s.Change(func() { s.Status = 0 })
	require.ErrorIs(t, v.sees(t, s, key), errNoKey)
	v.ahead += keysPause
	require.NoError(t, v.sees(t, s, key))
}

// All who need keys wait for one fetch; who knows the key waits for none, and who hangs up stops none.
func TestOneFetchForAll(t *testing.T) {
	s := oauthtest.New(t, "")
	first, second := s.Keys[0], oauthtest.NewKey(t, "second", "ES256")
	v := clocked(s)
	require.NoError(t, v.sees(t, s, first))
	v.ahead += keysPause
	asked, goOn := make(chan struct{}), make(chan struct{})
	s.Change(func() {
		s.Keys = append(s.Keys, second)
		s.Before = func() { close(asked); <-goOn }
	})
	token := second.Sign(t, s.Claims("ann", ours), nil)
	hurried, hangUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := v.Verify(hurried, token)
		gone <- err
	}()
	<-asked
	hangUp()
	require.ErrorIs(t, <-gone, context.Canceled)
	var served atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, _, err := v.Verify(t.Context(), token); err == nil {
				served.Add(1)
			}
		})
	}
	require.NoError(t, v.sees(t, s, first), "while the fetch goes on")
	close(goOn)
	all.Wait()
	require.EqualValues(t, 20, served.Load())
	require.Equal(t, 2, s.Fetched(oauthtest.KeysPath))
}

func TestWhereKeysArePublished(t *testing.T) {
	for _, path := range []string{"", "/", "/tenant", "/tenant/"} {
		for _, openID := range []bool{false, true} {
			s := oauthtest.New(t, path)
			s.Change(func() { s.OpenID = openID })
			require.NoError(t, clocked(s).sees(t, s, s.Keys[0]), "%q %t", path, openID)
		}
	}
	list := must.Get(metadataURLs("https://login.example/a%2Fb/c/"))(t)
	require.Equal(t, []string{"https://login.example/.well-known/oauth-authorization-server/a%2Fb/c",
		"https://login.example/.well-known/openid-configuration/a%2Fb/c",
		"https://login.example/a%2Fb/c/.well-known/openid-configuration"}, list)

	s := oauthtest.New(t, "")
	s.Change(func() { s.KeysURL = "https://nowhere.example" })
	v := New(Server{Issuer: s.Issuer, Audience: ours, KeysURL: s.Issuer + oauthtest.KeysPath},
		slog.New(slog.DiscardHandler))
	_, _, err := v.Verify(t.Context(), s.Keys[0].Sign(t, s.Claims("ann", ours), nil))
	require.NoError(t, err, "the owner's rules say where")
	require.Len(t, s.Paths(), 1)
}

// A server that does not tell the truth, or that others answer for, gives no keys.
func TestAServerThatLies(t *testing.T) {
	honest := oauthtest.New(t, "")
	for name, lies := range map[string]oauthtest.Lies{
		"another issuer":         {Issuer: "https://evil.example"},
		"an issuer with a slash": {Issuer: "/"},
		"keys over http":         {KeysURL: "http://evil.example/keys"},
		"keys at another port":   {KeysURL: honest.Issuer + oauthtest.KeysPath},
		"keys in a file":         {KeysURL: "file:///etc/passwd"},
		"keys nowhere":           {KeysURL: "/keys"},
		"elsewhere":              {To: honest.Issuer},
		"no longer there":        {Status: http.StatusNotFound},
		"broken":                 {Status: http.StatusInternalServerError},
		"no answer":              {Status: http.StatusNoContent},
		"too much":               {KeySet: func() []byte { return set(strings.Repeat(" ", maxKeySet)) }},
		"a page":                 {KeySet: func() []byte { return []byte("<html>log in</html>") }},
		"two sets":               {KeySet: func() []byte { return []byte(`{"keys":[],"keys":[]}`) }},
		"no keys":                {KeySet: func() []byte { return []byte(`{"keys":[]}`) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := oauthtest.New(t, "")
			s.Change(func() {
				s.Keys = honest.Keys
				if lies.Issuer == "/" {
					lies.Issuer = s.Issuer + "/"
				}
				s.Lies = lies
			})
			require.ErrorIs(t, clocked(s).sees(t, s, honest.Keys[0]), errNoKey)
		})
	}
	require.Empty(t, honest.Paths(), "nobody is led there")
}

// A fetch has an end, and a failed one leaves what was known.
func TestAFetchHasAnEnd(t *testing.T) {
	k := &keys{log: slog.New(slog.DiscardHandler), fetch: func(ctx context.Context) (map[string]key, error) {
		deadline, has := ctx.Deadline()
		if !has || time.Until(deadline) > keysTime {
			return map[string]key{"bad": {}}, nil
		}
		return nil, errors.New("too slow")
	}, known: map[string]key{"known": {}}}
	require.ErrorIs(t, must.Err(k.find(t.Context(), "bad", time.Now())), errNoKey)
	require.Contains(t, k.known, "known")
}

func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// The keys of RFC 7517 A.1, RFC 7638 §3.1 and RFC 8037 A.2.
const (
	rfc7517EC = `{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",` +
		`"y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","use":"enc","kid":"1"}`
	rfc7638RSA = `{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1` +
		`RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4Qy` +
		`Q5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-b` +
		`FTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQA` +
		`B","alg":"RS256","kid":"2011-04-29"}`
	rfc8037OKP = `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"ed"}`
)

func set(keys ...string) []byte { return []byte(`{"keys":[` + strings.Join(keys, ",") + "]}") }

func TestKeysOfTheStandards(t *testing.T) {
	keys, err := parseKeys(set(strings.Replace(rfc7517EC, `"enc"`, `"sig"`, 1), rfc7638RSA, rfc8037OKP))
	require.NoError(t, err)
	require.Len(t, keys, 3)
	require.Equal(t, []string{"ES256"}, keys["1"].algorithms)
	require.Equal(t, []string{"RS256"}, keys["2011-04-29"].algorithms)
	require.Equal(t, []string{"EdDSA"}, keys["ed"].algorithms)

	// RFC 8037 A.4 and A.5: a signature by the third
	const signed = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
	signature := must.Get(unbase64("hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5B" +
		"hVsPt9g7sVvpAr_MuM0KAg"))(t)
	require.NoError(t, jwt.SigningMethodEdDSA.Verify(signed, signature, keys["ed"].public))
}

func TestKeysThatAreLeftOut(t *testing.T) {
	weak := `{"kty":"RSA","kid":"k","e":"AQAB","n":"` + encoded("\xff"+strings.Repeat("a", 127)) + `"}`
	strong, larger := encoded("\xff"+strings.Repeat("a", 255)), encoded(strings.Repeat("a", 1125))
	half := encoded(strings.Repeat("a", 32))
	point := func(curve elliptic.Curve) []byte {
		key := must.Get(ecdsa.GenerateKey(curve, rand.Reader))(t)
		point := must.Get(key.PublicKey.Bytes())(t)
		return point[1:] // x and y
	}
	short, large := point(elliptic.P256()), point(elliptic.P521())
	for short[0] != 0 {
		short = point(elliptic.P256())
	}
	ec := func(curve string, x, y []byte) string {
		return fmt.Sprintf(`{"kty":"EC","kid":"k","crv":%q,"x":%q,"y":%q}`, curve, encoded(string(x)),
			encoded(string(y)))
	}
	for name, key := range map[string]string{
		"for encryption":      rfc7517EC,
		"for other work":      strings.Replace(rfc8037OKP, `"kid"`, `"key_ops":["sign"],"kid"`, 1),
		"without an ID":       strings.Replace(rfc8037OKP, `,"kid":"ed"`, "", 1),
		"secret":              strings.Replace(rfc8037OKP, `"kid"`, `"d":"nWGxne_9WmC6hEr0","kid"`, 1),
		"of another kind":     strings.Replace(rfc8037OKP, "Ed25519", "X25519", 1),
		"shared":              `{"kty":"oct","kid":"k","k":"AAAA"}`,
		"cut off":             strings.Replace(rfc8037OKP, "11q", "1q", 1),
		"another spelling":    strings.Replace(rfc8037OKP, "URo", "URp", 1),
		"on two lines":        strings.Replace(rfc8037OKP, "11q", "11q\\n", 1),
		"a short coordinate":  ec("P-256", short[1:32], short[32:]),
		"a long coordinate":   ec("P-256", slices.Concat([]byte{0}, short[:32]), short[32:]),
		"of 521 bits":         ec("P-521", large[:66], large[66:]),
		"padded":              strings.Replace(rfc8037OKP, "URo", "URo=", 1),
		"for another way":     strings.Replace(rfc8037OKP, `"kid"`, `"alg":"RS256","kid"`, 1),
		"RSA of 1024 bits":    weak,
		"RSA of 9000 bits":    `{"kty":"RSA","kid":"k","e":"AQAB","n":"` + larger + `"}`,
		"RSA, even exponent":  `{"kty":"RSA","kid":"k","e":"Ag","n":"` + strong + `"}`,
		"RSA, exponent 1":     `{"kty":"RSA","kid":"k","e":"AQ","n":"` + strong + `"}`,
		"RSA, large exponent": `{"kty":"RSA","kid":"k","e":"AQAAAAE","n":"` + strong + `"}`,
		"RSA for HMAC":        `{"kty":"RSA","kid":"k","alg":"HS256","e":"AQAB","n":"` + strong + `"}`,
		"off the curve":       `{"kty":"EC","kid":"k","crv":"P-256","x":"` + half + `","y":"` + half + `"}`,
		"of another curve":    strings.NewReplacer("enc", "sig", "P-256", "P-384").Replace(rfc7517EC),
		"nothing":             `null`,
		"a number":            `7`,
	} {
		keys, err := parseKeys(set(key, strings.Replace(rfc8037OKP, `"ed"`, `"good"`, 1)))
		require.NoError(t, err, name)
		require.Len(t, keys, 1, name)
		require.Contains(t, keys, "good", name)
	}
	keys := must.Get(parseKeys(set(ec("P-256", short[:32], short[32:]))))(t)
	require.Contains(t, keys, "k", "in full")
	odd := `{"kty":"RSA","kid":"k","e":"AQAB","n":"` + strong + `"}`
	keys = must.Get(parseKeys(set(odd)))(t)
	require.Contains(t, keys, "k", "the same with nothing wrong")
}

func TestParseKeys_CertificatesAreNotRead(t *testing.T) {
	keys := must.Get(parseKeys(set(strings.Replace(rfc8037OKP, `"kid"`,
		`"x5u":"http://127.0.0.1:1/certificate","x5c":["AAAA"],"x5t":"AAAA","kid"`, 1))))(t)
	require.Contains(t, keys, "ed")
}

// Of two keys with one ID nobody could say which a token means.
func TestKeysThatShareAnID(t *testing.T) {
	key := func(id string) string {
		return string(must.Get(json.Marshal(oauthtest.NewKey(t, id, "ES256").JWK))(t))
	}
	keys := must.Get(parseKeys(set(key("a"), key("b"), key("b"), key("b"))))(t)
	require.Len(t, keys, 1)
	require.Contains(t, keys, "a")
}

func TestSetsThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "a list": "[]", "not JSON": "<html>", "two documents": `{"keys":[]}{"keys":[]}`,
		"two lists": `{"keys":[],"keys":[]}`, "two IDs": `{"keys":[{"kid":"a","kid":"b"}]}`,
		"too many":  string(set(slices.Repeat([]string{"{}"}, maxKeys+1)...)),
		"too large": `{"keys":[],"x":"` + strings.Repeat("a", maxKeySet) + `"}`,
	} {
		require.Error(t, must.Err(parseKeys([]byte(text))), name)
	}
}
