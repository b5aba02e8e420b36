package oauth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	list, err := metadataURLs("https://login.example/a%2Fb/c/")
	require.NoError(t, err)
	require.Equal(t, []string{"https://login.example/.well-known/oauth-authorization-server/a%2Fb/c",
		"https://login.example/.well-known/openid-configuration/a%2Fb/c",
		"https://login.example/a%2Fb/c/.well-known/openid-configuration"}, list)

	s := oauthtest.New(t, "")
	s.Change(func() { s.KeysURL = "https://nowhere.example" })
	v := New(Server{Issuer: s.Issuer, Audience: ours, KeysURL: s.Issuer + oauthtest.KeysPath},
		slog.New(slog.DiscardHandler))
	_, _, err = v.Verify(t.Context(), s.Keys[0].Sign(t, s.Claims("ann", ours), nil))
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
	_, err := k.find(t.Context(), "bad", time.Now())
	require.ErrorIs(t, err, errNoKey)
	require.Contains(t, k.known, "known")
}
