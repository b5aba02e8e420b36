//go:build unix

package cli

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

type notice struct {
	Kind, ID, Alert, Text, Price, Host, Command string
	More                                        int
}

// ops is where the owner is told: a webhook that takes what is signed, and a file that a command writes.
type ops struct {
	*httptest.Server
	t       *testing.T
	heard   chan notice
	file    string
	secret  string // its file
	refuses atomic.Bool
	hangs   atomic.Bool // it takes what comes, and does not answer
}

func newOps(t *testing.T) *ops {
	o := &ops{t: t, heard: make(chan notice, 100), file: filepath.Join(t.TempDir(), "told"),
		secret: filepath.Join(t.TempDir(), "secret")} // beside which the command can make no file
	key := []byte(strings.Repeat("k", 32))
	line := "whsec_" + base64.StdEncoding.EncodeToString(key) + "\n"
	require.NoError(t, os.WriteFile(o.secret, []byte(line), 0o600))
	o.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		right := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if r.Header.Get("webhook-signature") != right || o.refuses.Load() {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		var n notice
		if json.Unmarshal(body, &n) == nil && r.Header.Get("webhook-id") == cmp.Or(n.Alert, n.ID) {
			o.heard <- n
		}
		if o.hangs.Load() {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *ops) rules() string {
	return fmt.Sprintf("\n[notify]\ncommand = [\"/bin/sh\", \"-c\", \"cat >> %s\"]\nwebhook = %q\n"+
		"webhook_secret_file = %q\n", o.file, o.URL+"/x402", o.secret)
}

// hears is what comes next, by both ways.
func (o *ops) hears() notice {
	o.t.Helper()
	var n notice
	select {
	case n = <-o.heard:
	case <-time.After(time.Minute):
		require.Fail(o.t, "nobody was told")
	}
	require.Eventually(o.t, func() bool {
		text, _ := os.ReadFile(o.file)
		return strings.Contains(string(text), n.ID) && strings.HasSuffix(string(text), "\n")
	}, time.Minute, 10*time.Millisecond)
	return n
}

func notifyingHousehold(t *testing.T, o *ops) (w *world, env []string) {
	return householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{ApproveAbove: "0.0005"}) + o.rules()
	})
}

// The owner is told of a payment that waits for them, once, by whichever process asks; they approve it, and
// the same call pays.
func TestTheOwnerIsToldOfWhatWaits(t *testing.T) {
	for _, isService := range []bool{false, true} {
		t.Run(fmt.Sprint("service ", isService), func(t *testing.T) {
			t.Parallel()
			o := newOps(t)
			w, env := notifyingHousehold(t, o)
			agentsEnv := append(env, passphraseFile(t))
			if isService {
				agentsEnv = startService(t, agentsEnv).env()
			}
			agent := serve(t, agentsEnv...)
			pays := func(query string) string { return agent.call("x402_pay", weather(w, query)) }
			require.Contains(t, pays("one"), "APPROVAL_REQUIRED")
			n := o.hears()
			require.Equal(t, []string{"approval", "$0.001", "x402-wallet approve " + n.ID},
				[]string{n.Kind, n.Price, n.Command})
			require.Equal(t, must.Get(url.Parse(w.SellerURL))(t).Host, n.Host)
			require.NotContains(t, n.Text, "one", "of the URL the host alone")
			require.Contains(t, pays("one"), n.ID)

			page := onPage(t, env, "approve", n.ID)
			page.answers(http.StatusOK, url.Values{"passphrase": {testPassphrase}})
			page.ends(0)
			require.Contains(t, pays("one"), `"status":"paid"`)
			require.Len(t, w.Settlements(), 1)
			require.Contains(t, pays("two"), "APPROVAL_REQUIRED")
			require.NotEqual(t, n.ID, o.hears().ID)
			require.Empty(t, o.heard, "once for each")
		})
	}
}

// notify test says what came of each way; where one fails so does the command. By rules that the owner did
// not seal nobody is told.
func TestNotifyTest(t *testing.T) {
	t.Parallel()
	o := newOps(t)
	w, env := notifyingHousehold(t, o)
	out, _ := runs(t, 0, env, "notify", "test", "--json=false")
	at := must.Get(url.Parse(o.URL))(t)
	require.Equal(t, "told: command /bin/sh\ntold: webhook "+at.Host+"\n", out)
	require.Equal(t, "test", o.hears().Kind)

	o.refuses.Store(true)
	out, _ = runs(t, 1, env, "notify", "test")
	report := must.JSON[struct {
		Told []struct {
			Way, To, Problem string
			OK               bool
		}
	}]([]byte(out))(t)
	require.Equal(t, []bool{true, false}, []bool{report.Told[0].OK, report.Told[1].OK})
	require.Contains(t, report.Told[1].Problem, "403")
	require.NoError(t, os.Chmod(o.secret, 0o644))
	out, _ = runs(t, 1, env, "notify", "test", "--json=false")
	require.Contains(t, out, "not told: webhook "+at.Host+": webhook_secret_file: ")
	require.Contains(t, out, "can be read by others")

	elsewhere := newOps(t)
	w.setConfig(t, strings.NewReplacer(o.URL, elsewhere.URL, o.secret, elsewhere.secret, o.file,
		elsewhere.file).Replace(w.configText(t)))
	said, _ := runs(t, 4, env, "notify", "test")
	require.Contains(t, said, "POLICY_UNSEALED")
	_, _ = runs(t, 4, append(env, passphraseFile(t)), "pay", "--json", w.SellerURL+"/weather")
	require.Empty(t, elsewhere.heard)
	require.NoFileExists(t, elsewhere.file)

	_, none := household(t, sandbox.Options{}, sandbox.Rules{})
	said, _ = runs(t, 1, none, "notify", "test")
	require.Contains(t, said, "[notify]")
}

type hookEvent struct{ Event, PaymentID, Host, Price, Status, TransactionSignature string }

type owners struct {
	t   *testing.T
	dir string
}

func (o owners) write(name, text string) { childtest.Write(o.t, filepath.Join(o.dir, name), text) }

func (o owners) told(name string) (list []hookEvent) {
	text, _ := os.ReadFile(filepath.Join(o.dir, name))
	for line := range strings.Lines(string(text)) {
		var e hookEvent
		require.NoError(o.t, json.Unmarshal([]byte(line), &e), line)
		list = append(list, e)
	}
	return list
}

func (o owners) waitTold(n int) []hookEvent {
	o.t.Helper()
	isTold := func() bool { return len(o.told("told")) >= n }
	require.Eventually(o.t, isTold, 60*time.Second, 10*time.Millisecond)
	list := o.told("told")
	require.Len(o.t, list, n)
	return list
}

func householdWithHooks(t *testing.T) (w *world, env []string, o owners) {
	o = owners{t, t.TempDir()}
	o.write("before", `cat >> "$(dirname "$0")/asked"`)
	o.write("after", `cat >> "$(dirname "$0")/told"`)
	w, env = householdWith(t, sandbox.Options{}, func(w *world) string {
		hooks := fmt.Sprintf("\n[hooks]\nbefore = [%q]\nafter = [%q]\ntimeout = \"20s\"\n", o.dir+"/before",
			o.dir+"/after")
		return w.rules(sandbox.Rules{}) + hooks
	})
	return w, append(env, passphraseFile(t)), o
}

// The owner's program is asked before each payment, and may refuse it; the other one is told what came of it,
// though the command that paid ends at once.
func TestTheOwnersPrograms(t *testing.T) {
	t.Parallel()
	w, env, o := householdWithHooks(t)
	_, _ = runs(t, 0, env, "pay", "--json", w.SellerURL+"/weather?key=canary-of-the-query")
	asked := o.told("asked")
	require.Len(t, asked, 1)
	require.Equal(t, []string{"before", "0.001"}, []string{asked[0].Event, asked[0].Price})
	came := o.waitTold(1)[0]
	require.Equal(t, []string{"after", asked[0].PaymentID, "settled"}, []string{came.Event, came.PaymentID,
		came.Status})
	require.NotEmpty(t, came.TransactionSignature)
	for _, name := range []string{"asked", "told"} {
		text := must.Get(os.ReadFile(filepath.Join(o.dir, name)))(t)
		require.NotContains(t, string(text), "canary-of-the-query")
	}

	o.write("before", `echo '{"reason":"not on a Sunday"}'; exit 1`)
	said, _ := runs(t, 3, env, "pay", "--json", w.SellerURL+"/weather?two")
	require.Contains(t, said, "POLICY_DENIED")
	require.Contains(t, said, "not on a Sunday")
	require.Len(t, w.Settlements(), 1)
	out, _ := runs(t, 0, env, "budget", "--json")
	require.NotContains(t, out, `"held":"0.001"`)
	require.Len(t, o.told("told"), 1, "of what was refused nobody is told")

	// which programs these are is a rule of the owner's
	w.setConfig(t, strings.ReplaceAll(w.configText(t), "before = ", "#"))
	said, _ = runs(t, 4, env, "pay", "--json", w.SellerURL+"/weather?three")
	require.Contains(t, said, "POLICY_UNSEALED")
	require.Len(t, w.Settlements(), 1)
}
