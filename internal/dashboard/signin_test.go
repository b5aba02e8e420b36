package dashboard

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
)

// A session is over when its person was away, and after a day in any case; pages that load themselves do not
// keep it.
func TestSessionsEnd(t *testing.T) {
	begun := time.Now()
	k := passkey.Key{ID: "AAEC"}
	var s sessions
	cookie := s.begin("phone", k, begun)
	in := func(after time.Duration, looks bool) bool {
		name, got, ok := s.of(cookie, begun.Add(after), looks)
		require.True(t, !ok || (name == "phone" && got == k))
		return ok
	}
	require.True(t, in(sessionIdle-1, false))
	require.False(t, in(sessionIdle, true), "nobody had looked")
	require.False(t, in(0, true), "what is over stays over")

	cookie = s.begin("phone", k, begun)
	for after := time.Duration(0); after < sessionLife; after += sessionIdle - 1 {
		require.True(t, in(after, true), after)
	}
	require.False(t, in(sessionLife, true))

	cookie = s.begin("phone", k, begun)
	_, _, ok := s.of(cookie+"A", begun, true)
	require.False(t, ok)
	s.end(cookie)
	require.False(t, in(0, true))
}

// Sessions are bounded: the one that nobody has looked by for longest gives way.
func TestSessionsAreBounded(t *testing.T) {
	begun := time.Now()
	var s sessions
	var cookies []string
	for i := range maxSessions + 1 {
		cookies = append(cookies, s.begin("phone", passkey.Key{}, begun.Add(time.Duration(i))))
	}
	require.Len(t, s.list, maxSessions)
	for i, cookie := range cookies {
		_, _, ok := s.of(cookie, begun, false)
		require.Equal(t, i > 0, ok, i)
	}
}

// Over TLS a cookie is this very host's, over a safe connection.
func TestCookiesOverTLS(t *testing.T) {
	s := NewService(ServiceOptions{Origin: "https://wallet.example", Checker: passkey.NewChecker(),
		Links: &invitation.Links{Home: t.TempDir()}}, Options{})
	r := httptest.NewRequest("GET", "https://wallet.example/", nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Regexp(t, `^__Host-x402-wallet-browser=[A-Z2-7]{26}; Path=/; HttpOnly; Secure; SameSite=Strict$`,
		w.Header().Get("Set-Cookie"))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self'; connect-src 'self'")
	require.Contains(t, w.Body.String(), `<script src="/passkey.js" defer></script>`)
	require.NotContains(t, w.Body.String(), s.place)

	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "https://wallet.example/passkeys/add/x", nil))
	require.Equal(t, 410, w.Code)
	require.NotContains(t, w.Header().Get("Content-Security-Policy"), "script-src", "where none is needed")
}
