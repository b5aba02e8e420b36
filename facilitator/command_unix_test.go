//go:build unix

package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// program is a facilitator that is a shell's script; $0 is a directory of the test's own, $1 the request.
func program(t *testing.T, text string) (f Facilitator, dir string) {
	dir = t.TempDir()
	return Facilitator{Name: "program", Networks: []string{sepolia}, Command: &Command{
		Argv: childtest.Script(dir, text), Env: []string{childtest.Env, "GIVEN=yes"}}}, dir
}

// beforeOther is a client of the program, and after it of a facilitator over HTTP that settles.
func beforeOther(f Facilitator) (*Client, *fakeNetwork) {
	w := newWire(map[string]script{"other": {yes}})
	return New(Options{HTTP: &http.Client{Transport: w}, List: []Facilitator{f,
		{Name: "other", URL: "https://other", Networks: []string{sepolia}}}}), w
}

// A program has the request as its last argument, on stdin what HTTP would have, and nothing of ours around
// it.
func TestAProgramIsAsked(t *testing.T) {
	t.Setenv("OURS", "canary")
	f, dir := program(t, `cat > "$0/$1"; env > "$0/env"; pwd > "$0/pwd"; case "$1" in
		verify) echo '{"isValid":true,"payer":"0xAB","extra":{"a":1}}';;
		settle) echo '{"success":true,"transaction":"0xabc","network":"eip155:84532"}';;
		supported) echo '{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:84532"}],'`+
		`'"signers":{"eip155:*":["0xfa"]}}';;
	esac`)
	f.Networks = nil // so that it is asked what it supports
	c, w := beforeOther(f)
	s := evm
	s.Payer = "0xab"
	v := must.Get(c.Verify(t.Context(), s))(t)
	require.True(t, v.Valid)
	require.JSONEq(t, `1`, string(v.Extra["a"]))
	r := c.Settle(t.Context(), s)
	require.Equal(t, []any{Settled, "program", "0xabc"}, []any{r.Outcome, r.Facilitator,
		r.Settlement.Transaction})
	require.True(t, c.HasSigner(t.Context(), sepolia, "0xFA"))
	body := must.Get(s.body())(t)
	require.Equal(t, string(body), childtest.Read(t, dir, "verify"))
	require.Equal(t, string(body), childtest.Read(t, dir, "settle"))
	require.Empty(t, childtest.Read(t, dir, "supported"))
	require.Contains(t, childtest.Read(t, dir, "env"), "GIVEN=yes")
	require.NotContains(t, childtest.Read(t, dir, "env"), "canary")
	require.Equal(t, "/\n", childtest.Read(t, dir, "pwd"))
	require.Empty(t, w.asked(), "the program settles")
}

// What became of a payment that a program was given is what it says, in a whole answer, when it ended with
// success. Without one nobody knows: no other facilitator is asked, nor the program again.
func TestHostileProgramsSettle(t *testing.T) {
	const settled = `{"success":true,"transaction":"0xabc","network":"eip155:84532","payer":"0x00000000000000000000000000000000000000aa"}`
	for _, row := range []struct {
		name, text string
		outcome    Outcome
		code       x402.Code
	}{
		{"settles", `cat >/dev/null; echo '` + settled + `'`, Settled, ""},
		{"refuses", `cat >/dev/null; echo '{"success":false,"errorReason":"insufficient_funds"}'`, Refused,
			x402.SettlementFailed},
		{"silent", `cat >/dev/null`, Unknown, x402.OutcomeUnknown},
		{"garbage", `cat >/dev/null; echo '<html>'`, Unknown, x402.OutcomeUnknown},
		{"two answers", `cat >/dev/null; echo '` + settled + settled + `'`, Unknown, x402.OutcomeUnknown},
		{"half an answer", `cat >/dev/null; printf '{"success":true,"transaction":"0xabc"'`, Unknown,
			x402.OutcomeUnknown},
		{"a huge answer", `cat >/dev/null; echo '` + settled + `'; exec cat /dev/zero`, Unknown,
			x402.OutcomeUnknown},
		{"no transaction", `cat >/dev/null; echo '{"success":true,"network":"eip155:84532"}'`, Unknown,
			x402.OutcomeUnknown},
		{"another network", `cat >/dev/null; echo '{"success":true,"transaction":"0xabc","network":"eip155:1"}'`,
			Unknown, x402.OutcomeUnknown},
		{"another payer", `cat >/dev/null; echo '` + strings.Replace(settled, "aa", "bb", 1) + `'`, Unknown,
			x402.OutcomeUnknown},
		{"settles and fails", `cat >/dev/null; echo '` + settled + `'; exit 1`, Unknown, x402.OutcomeUnknown},
		{"reads nothing", `exit 0`, Unknown, x402.OutcomeUnknown},
		{"reads nothing and fails", `exit 7`, Unknown, x402.OutcomeUnknown},
		{"kills itself", `kill -9 $$`, Unknown, x402.OutcomeUnknown},
		{"hangs", `echo '` + settled + `'; exec sleep 600`, Unknown, x402.OutcomeUnknown},
		{"leaves a child with its output", `cat >/dev/null; echo '` + settled +
			`'; sleep 600 & echo $! > "$0/pid"`, Settled, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f, dir := program(t, `echo "$1" >> "$0/asked"; `+row.text)
			c, w := beforeOther(f)
			s := evm
			s.Payer = "0x00000000000000000000000000000000000000aA"
			s.Payload = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`) // more than a pipe holds
			s.Validity = 30 * time.Second
			if row.name == "hangs" {
				s.Validity = time.Second
			}
			r := c.Settle(t.Context(), s)
			require.Equal(t, row.outcome, r.Outcome, "%v", r.Err)
			require.Equal(t, row.code == "", r.Err == nil)
			if row.code != "" {
				require.True(t, x402.HasCode(r.Err, row.code), "%v", r.Err)
			}
			require.Equal(t, "program", r.Facilitator)
			if row.name == "a huge answer" {
				require.ErrorIs(t, r.Tries[0].Err, child.ErrTooLong)
			}
			if row.name != "hangs" { // on a busy machine its time may be over before it begins
				require.Equal(t, "settle\n", childtest.Read(t, dir, "asked"), "once")
			}
			require.Empty(t, w.asked(), "nobody else is asked")
			if strings.Contains(row.text, "pid") {
				childtest.WaitGone(t, childtest.Read(t, dir, "pid"))
			}
		})
	}
}

// A program that could not be started has provably done nothing: the next facilitator is asked.
func TestAProgramThatDoesNotStart(t *testing.T) {
	gone, _ := program(t, "")
	gone.Command.Argv = []string{filepath.Join(t.TempDir(), "gone")}
	forbidden, dir := program(t, `echo "$1" >> "$0/asked"`)
	forbidden.Command.MayRun = func(context.Context) error { return errors.New("not sealed") }
	for name, f := range map[string]Facilitator{"gone": gone, "forbidden": forbidden} {
		t.Run(name, func(t *testing.T) {
			c, w := beforeOther(f)
			r := c.Settle(t.Context(), evm)
			require.Equal(t, []any{Settled, "other"}, []any{r.Outcome, r.Facilitator}, "%v", r.Err)
			require.Equal(t, []string{"other"}, w.asked())
			require.Equal(t, NotSent, r.Tries[0].Outcome)
		})
	}
	require.NoFileExists(t, filepath.Join(dir, "asked"))
}

// A verdict that is none, or of another payer's payment, is not believed.
func TestHostileProgramsVerify(t *testing.T) {
	for name, text := range map[string]string{
		"silent":        ``,
		"garbage":       `echo yes`,
		"no verdict":    `echo '{}'`,
		"another payer": `echo '{"isValid":true,"payer":"0x00000000000000000000000000000000000000bb"}'`,
		"fails":         `echo '{"isValid":true}'; exit 1`,
		"a huge answer": `echo '{"isValid":true}'; exec cat /dev/zero`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := program(t, `cat >/dev/null; `+text)
			c := New(Options{List: []Facilitator{f}})
			s := evm
			s.Payer = "0x00000000000000000000000000000000000000aa"
			v, err := c.Verify(t.Context(), s)
			require.False(t, v.Valid)
			require.True(t, x402.HasCode(err, x402.FacilitatorError), "%v", err)
		})
	}
}

// What a program says of its failure is for the owner's log, and no part of what an agent reads.
func TestAProgramsComplaintIsNotTheAgents(t *testing.T) {
	f, _ := program(t, `cat >/dev/null; echo 'my key is canary' >&2; exit 3`)
	c, _ := beforeOther(f)
	r := c.Settle(t.Context(), evm)
	require.Equal(t, Unknown, r.Outcome)
	said := must.Get(json.Marshal(x402.AsError(r.Err)))(t)
	require.Contains(t, string(said), "exit status 3")
	require.NotContains(t, string(said), "canary")
}
