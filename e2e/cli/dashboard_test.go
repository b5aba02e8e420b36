//go:build unix

package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/internal/passkey/passkeytest"
	"x402-wallet/internal/sandbox"
)

// TestDashboard: the owner approves on the dashboard of the real program. The row's seal is the owner's,
// the payment passes once, what is exported is what the command exports, and Ctrl-C ends it well.
func TestDashboard(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{ApproveAbove: "0.0005"})
	env = append(env, passphraseFile(t), "X402_WALLET_PASSPHRASE="+testPassphrase)
	a := serve(t, env...)
	pays := func() string { return a.call("x402_pay", `{"url":"`+w.SellerURL+`/weather"}`) }
	id := regexp.MustCompile(`apr_\w+`).FindString(pays())

	cmd := command(t, env, "dashboard", "--json")
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	var said struct{ URL string }
	require.NoError(t, json.NewDecoder(bufio.NewReader(out)).Decode(&said))
	at := must.Get(url.Parse(said.URL))(t)
	base := said.URL[:strings.LastIndex(said.URL, "/")]
	jar := must.Get(cookiejar.New(nil))(t)
	browser := &http.Client{Jar: jar}
	read := func(r *http.Response, err error) (int, string) {
		t.Helper()
		require.NoError(t, err)
		defer r.Body.Close()
		return r.StatusCode, string(must.Get(io.ReadAll(r.Body))(t))
	}
	decide := func(form url.Values) (int, string) {
		t.Helper()
		_, page := read(browser.Get(base + "/approvals/" + id))
		form.Set("shown", regexp.MustCompile(`name="shown" value="(\w+)"`).FindStringSubmatch(page)[1])
		post := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/approvals/"+id,
			strings.NewReader(form.Encode())))(t)
		post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		post.Header.Set("Origin", "http://"+at.Host)
		return read(browser.Do(post))
	}

	_, page := read(browser.Get(said.URL))
	require.Contains(t, page, "Waiting for you")
	_, money := read(browser.Get(base + "/money"))
	require.Contains(t, money, w.evm)
	// what unlocks the wallet otherwise does not answer here
	status, _ := decide(url.Values{"decision": {"approve"}, "passphrase": {""}})
	require.Equal(t, http.StatusForbidden, status)
	status, _ = decide(url.Values{"decision": {"approve"}, "passphrase": {"incorrect horse battery"}})
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, pays(), "APPROVAL_REQUIRED")
	status, page = decide(url.Values{"decision": {"approve"}, "passphrase": {testPassphrase}})
	require.Equal(t, http.StatusOK, status, page)
	require.Contains(t, page, "You approved this payment")
	require.Contains(t, pays(), `"status":"paid"`)
	verified, _ := runs(t, 0, env, "history", "verify", "--seals")
	require.Contains(t, verified, `"seals": true`)
	_, page = read(browser.Get(base + "/approvals/" + id))
	require.Contains(t, page, "This approval was used")

	for _, format := range []string{"csv", "jsonl"} {
		require.Eventually(t, func() bool { // in between the chain may be asked
			exported, _ := runs(t, 0, env, "export", "--format", format, "--url", "weather")
			require.Contains(t, exported, "weather")
			_, same := read(browser.Get(base + "/export?url=weather&format=" + format))
			return exported == same
		}, time.Minute, 100*time.Millisecond)
	}
	paid := regexp.MustCompile(`pay_\w+`).FindString(page)
	_, _ = runs(t, 0, env, "reconcile")
	receipt, _ := runs(t, 0, env, "show", paid, "--receipt")
	_, same := read(browser.Get(base + "/payments/" + paid + "/receipt"))
	require.Equal(t, receipt, same)
	_, page = read(browser.Get(base + "/payments/" + paid))
	require.Contains(t, page, "Settled, and confirmed on chain.")
	require.Contains(t, page, "What it bought")

	w.setConfig(t, strings.Replace(w.rules(sandbox.Rules{}), `per_call = "1.00"`, `per_call = "2.00"`, 1))
	_, page = read(browser.Get(base + "/"))
	require.Contains(t, page, "POLICY_UNSEALED", "the rules as they are now")
	require.Contains(t, page, "x402-wallet policy seal")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "it ended well")
}

// The address, which opens the dashboard once, is given to the system's program and to none that
// somebody put into PATH: where that is xdg-open, a script, it finds the browser by PATH itself. (Without
// a screen that is www-browser.)
func TestABrowserInThePathGetsNoAddress(t *testing.T) {
	t.Parallel()
	_, env := household(t, sandbox.Options{}, sandbox.Rules{})
	dir := t.TempDir()
	stolen := filepath.Join(dir, "stolen")
	for _, name := range []string{"xdg-open", "open", "x-www-browser", "www-browser", "firefox"} {
		childtest.Write(t, filepath.Join(dir, name), `echo "$@" > `+stolen)
	}
	env = append(env, "PATH="+dir+":/usr/bin:/bin", "BROWSER="+filepath.Join(dir, "firefox"))
	runs(t, 0, env, "dashboard", "--open", "--idle", "1s")
	require.NoFileExists(t, stolen)
}

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
