//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/sandbox"
)

type hookEvent struct{ Event, PaymentID, Host, Price, Status, TransactionSignature string }

type owners struct {
	t   *testing.T
	dir string
}

func (o owners) write(name, text string) {
	o.t.Helper()
	childtest.Write(o.t, filepath.Join(o.dir, name), text)
}

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
	_, _ = runs(t, 0, env, "pay", w.SellerURL+"/weather?key=canary-of-the-query")
	asked := o.told("asked")
	require.Len(t, asked, 1)
	require.Equal(t, []string{"before", "0.001"}, []string{asked[0].Event, asked[0].Price})
	came := o.waitTold(1)[0]
	require.Equal(t, []string{"after", asked[0].PaymentID, "settled"}, []string{came.Event, came.PaymentID,
		came.Status})
	require.NotEmpty(t, came.TransactionSignature)
	for _, name := range []string{"asked", "told"} {
		text, err := os.ReadFile(filepath.Join(o.dir, name))
		require.NoError(t, err)
		require.NotContains(t, string(text), "canary-of-the-query")
	}

	o.write("before", `echo '{"reason":"not on a Sunday"}'; exit 1`)
	said, _ := runs(t, 3, env, "pay", w.SellerURL+"/weather?two")
	require.Contains(t, said, "POLICY_DENIED")
	require.Contains(t, said, "not on a Sunday")
	require.Len(t, w.Settlements(), 1)
	out, _ := runs(t, 0, env, "budget", "--json")
	require.NotContains(t, out, `"held":"0.001"`)
	require.Len(t, o.told("told"), 1, "of what was refused nobody is told")

	// which programs these are is a rule of the owner's
	w.setConfig(t, strings.ReplaceAll(w.configText(t), "before = ", "#"))
	said, _ = runs(t, 4, env, "pay", w.SellerURL+"/weather?three")
	require.Contains(t, said, "POLICY_UNSEALED")
	require.Len(t, w.Settlements(), 1)
}
