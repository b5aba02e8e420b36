//go:build unix

package cli

import (
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/internal/passkey/passkeytest"
	"x402-wallet/internal/sandbox"
)

// A passkey is made behind the link that the terminal printed, and becomes a rule by the passphrase typed
// there; it goes without.
func TestPasskeys(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	before := w.configText(t)
	said, _ := runs(t, 1, env, "passkeys", "add", "phone")
	require.Contains(t, said, "SETUP_FAILED")
	require.Contains(t, said, "serve --http")

	s := startService(t, append(env, passphraseFile(t)), "--http", "127.0.0.1:0")
	_, _ = runs(t, 2, env, "passkeys", "add", "My Phone")
	c := sit(t, nil, env, "passkeys", "add", "phone")
	var link []string
	require.Eventually(t, func() bool {
		whole := regexp.MustCompile(`(http://localhost:\d+)/passkeys/add/([A-Z2-7]{26})`)
		link = whole.FindStringSubmatch(c.text())
		return link != nil
	}, time.Minute, 10*time.Millisecond)
	at := must.Get(url.Parse(s.URL))(t)
	page := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.Host+
		"/passkeys/add/"+link[2], nil))(t)
	page.Host = "localhost:" + at.Port()
	answer := must.Get(http.DefaultClient.Do(page))(t)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)

	links := &invitation.Links{Home: w.home}
	_, options, err := links.Options(t.Context(), link[2])
	require.NoError(t, err)
	must.Get(links.Made(t.Context(), link[2], passkeytest.New(link[1]).Create(options)))(t)
	c.sees("Passphrase, to seal these rules: ", 1)
	require.Contains(t, c.text(), " passkeys: none → [phone id ")
	require.Equal(t, before, w.configText(t), "nothing is a rule before the passphrase")
	c.types(testPassphrase + "\n")
	require.Contains(t, c.ends(0), "the passkey phone approves payments at "+link[1])
	require.Contains(t, w.configText(t), "[passkeys.phone]")

	listed, _ := runs(t, 0, env, "passkeys")
	require.Contains(t, listed, link[1])
	said, _ = runs(t, 2, env, "passkeys", "add", "phone")
	require.Contains(t, said, "there is a passkey phone already")
	said, _ = runs(t, 2, env, "passkeys", "remove", "laptop")
	require.Contains(t, said, "there is no passkey")
	_, _ = runs(t, 0, env, "passkeys", "remove", "phone")
	require.NotContains(t, w.configText(t), "[passkeys.phone]")
}
