//go:build unix

package hooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/child"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func TestMain(m *testing.M) {
	if child.ExecConfined(os.Args[1:], os.Environ()) {
		os.Exit(126)
	}
	os.Exit(m.Run())
}

// ledger is a real one for whose turn it is, with payments that a test moves as it likes.
type ledger struct {
	*history.Store
	home string

	mu       sync.Mutex
	payments map[string]history.Payment
}

func newLedger(t *testing.T) *ledger {
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	s := must.Get(ledgers.Open(t.Context(), home, historytest.Options()))(t)
	t.Cleanup(func() { _ = s.Close() })
	return &ledger{Store: s, home: home, payments: map[string]history.Payment{}}
}

func (l *ledger) Payment(_ context.Context, id string) (history.Payment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, has := l.payments[id]
	if !has {
		return p, history.ErrNotFound
	}
	return p, nil
}

func (l *ledger) put(p history.Payment, s history.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.State = s
	l.payments[p.ID] = p
}

// script is a program that is a shell's script; $0 is a directory of the test's own.
func script(dir, text string) child.Program {
	return child.Program{Argv: childtest.Script(dir, text), Env: []string{childtest.Env}}
}

func (l *ledger) process(t *testing.T, beforeText, afterText string) (h *Hooks, dir string) {
	dir = t.TempDir()
	h = &Hooks{Limit: 20 * time.Second, Dir: filepath.Join(l.home, "hooks"), Store: l,
		Log: slog.New(slog.DiscardHandler), Ending: &sync.WaitGroup{},
		Sealed: func(context.Context) error { return nil }}
	if beforeText != "" {
		h.Before = script(dir, beforeText)
	}
	if afterText != "" {
		h.After = script(dir, afterText)
	}
	t.Cleanup(func() {
		h.Close(func() {})
		h.Ending.Wait()
	})
	return h, dir
}

func paymentOf(n int) history.Payment {
	return history.Payment{ID: fmt.Sprintf("pay_%032x", n), Created: time.Now().Truncate(time.Microsecond),
		State: history.Reserved, Agent: "ann", Method: "GET", URL: "https://shop.example/x",
		Host:    "shop.example",
		Network: "eip155:84532", Scheme: x402.Exact, Asset: "0xusdc", Symbol: "USDC",
		Amount: money.NewAmount(10000), Price: 10000, PayTo: "0xshop", Source: "0xagent",
		Requirement: []byte(`"canary"`), Payload: []byte(`"canary"`), IdempotencyKey: "canary",
		Receipt: []byte(`"canary"`), Note: "canary"}
}

// What a program is told is this and nothing else: no key, no signed byte, no variable of ours.
func TestWhatAProgramIsTold(t *testing.T) {
	t.Setenv("OURS", "canary")
	l := newLedger(t)
	h, dir := l.process(t, `cat > "$0/before"; env > "$0/env"`, `cat > "$0/after.new"; mv "$0/after.new" "$0/after"`)
	h.Begin()
	p := paymentOf(1)
	require.NoError(t, h.MayPay(t.Context(), p))
	const told = `"paymentId":"pay_00000000000000000000000000000001","at":"%s","agent":"ann","method":"GET",` +
		`"url":"https://shop.example/x","host":"shop.example","network":"eip155:84532","scheme":"exact",` +
		`"asset":"0xusdc","symbol":"USDC","amount":"10000","price":"0.01","payTo":"0xshop","from":"0xagent"`
	at := p.Created.UTC().Format(time.RFC3339)
	require.Equal(t, fmt.Sprintf(`{"event":"before",`+told+"}\n", at), childtest.Read(t, dir, "before"))
	require.NotContains(t, childtest.Read(t, dir, "env"), "canary")
	p.Proof, p.Transaction, p.Facilitator = history.Chain, "0xabc", "mine"
	l.put(p, history.Settled)
	h.Wake()
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "after")); return err == nil },
		20*time.Second, time.Millisecond)
	require.Equal(t, fmt.Sprintf(`{"event":"after",`+told+`,"status":"settled","proof":"chain",`+
		`"transactionSignature":"0xabc","facilitator":"mine"}`+"\n", at), childtest.Read(t, dir, "after"))
}

// Only a program that ends with success, and names no reason, lets a payment pass.
func TestProgramsBeforeAPayment(t *testing.T) {
	for name, row := range map[string]struct{ text, says string }{
		"passes":                    {`cat >/dev/null`, ""},
		"passes with JSON":          {`cat >/dev/null; echo '{"note":"fine"}'`, ""},
		"reads nothing":             {`exit 0`, ""},
		"refuses":                   {`exit 1`, "refused it"},
		"refuses with a reason":     {`echo '{"reason":"not on a Sunday"}'; exit 1`, `refused it: "not on a Sunday"`},
		"a reason alone refuses":    {`echo '{"reason":"no"}'`, `refused it: "no"`},
		"a reason of a stranger's":  {`printf '{"reason":"a\\u202eb\\n"}'; exit 1`, `"a\u202eb"`},
		"an answer that is no JSON": {`echo ok`, "no JSON object"},
		"half an answer":            {`printf '{"reason":'`, "no JSON object"},
		"a flood":                   {`exec cat /dev/zero`, "too long"},
		"hangs":                     {`exec sleep 600`, "had not ended after 1s, and was killed"},
		"hangs with a child":        {`sleep 600 & wait`, "had not ended after 1s, and was killed"},
		"dies":                      {`kill -9 $$`, "refused it"},
		"complains of a secret":     {`echo canary >&2; exit 3`, "refused it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := (&ledger{home: t.TempDir()}).process(t, row.text, "")
			if strings.HasPrefix(name, "hangs") {
				h.Limit = time.Second
			}
			err := h.MayPay(t.Context(), paymentOf(1))
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
			require.Contains(t, err.Error(), row.says)
			require.NotEmpty(t, x402.AsError(err).Hint)
			require.NotContains(t, fmt.Sprint(err, x402.AsError(err)), "canary")
		})
	}
}

// A program that is not there refuses; one that the owner did not seal is not started; and what is no payment
// is not asked about.
func TestNoProgramBeforeAPayment(t *testing.T) {
	h, dir := (&ledger{home: t.TempDir()}).process(t, `touch "$0/asked"`, "")
	h.Before.Argv = append([]string{filepath.Join(dir, "gone")}, h.Before.Argv[1:]...)
	require.True(t, x402.HasCode(h.MayPay(t.Context(), paymentOf(1)), x402.PolicyDenied))
	h.Before = script(dir, `touch "$0/asked"; exit 1`)
	h.Sealed = func(context.Context) error { return errors.New("not sealed") }
	require.ErrorContains(t, h.MayPay(t.Context(), paymentOf(1)), "not sealed")
	for _, scheme := range []string{x402.SignInScheme, x402.Allowance} {
		p := paymentOf(1)
		p.Scheme = scheme
		require.NoError(t, h.MayPay(t.Context(), p))
	}
	require.NoFileExists(t, filepath.Join(dir, "asked"))
	require.NoError(t, (*Hooks)(nil).MayPay(t.Context(), paymentOf(1)))
}

const notes = `id=$(sed 's/.*"paymentId":"\([^"]*\)".*"status":"\([^"]*\)".*/\1 \2/'); echo "$id" >> "$0/told"`

func told(dir string) []string {
	text, _ := os.ReadFile(filepath.Join(dir, "told"))
	return strings.Fields(strings.ReplaceAll(string(text), " ", "="))
}

// What came of a payment is told once, when it is over, and by whichever process is left.
func TestAPaymentIsToldOnce(t *testing.T) {
	l := newLedger(t)
	first, dir := l.process(t, "", notes) // and dies before it tells: Begin is not called
	one, two, three := paymentOf(1), paymentOf(2), paymentOf(3)
	for _, p := range []history.Payment{one, two, three} {
		require.NoError(t, first.MayPay(t.Context(), p))
		require.NoError(t, first.MayPay(t.Context(), p), "twice is once")
	}
	require.NoError(t, first.note(paymentOf(4).ID), "of which the ledger knows nothing")
	l.put(one, history.Settled)
	l.put(two, history.Failed)
	l.put(three, history.Unknown)
	var others []*Hooks
	for range 3 {
		h, _ := l.process(t, "", notes)
		h.After = script(dir, notes)
		h.Begin()
		others = append(others, h)
	}
	eventually := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(told(dir)) >= len(want) }, 30*time.Second,
			time.Millisecond)
		require.ElementsMatch(t, want, told(dir))
	}
	eventually(one.ID+"=settled", two.ID+"=failed")
	l.put(three, history.Settled)
	for _, h := range others {
		h.Wake()
	}
	eventually(one.ID+"=settled", two.ID+"=failed", three.ID+"=settled")
	require.Eventually(t, func() bool { ids, err := first.waiting(); return err == nil && len(ids) == 0 },
		20*time.Second, time.Millisecond)
	for _, h := range others {
		h.Close(func() {})
		h.Ending.Wait()
	}
	require.Len(t, told(dir), 3)
}

// A program after a payment that does not take one keeps none of the others back, and is told it again.
func TestProgramsThatDoNotTakeAPayment(t *testing.T) {
	for name, text := range map[string]string{
		"fails":  `exit 1`,
		"hangs":  `exec sleep 600`,
		"floods": `exec cat /dev/zero >&2`,
		"dies":   `kill -9 $$`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			bad, good := paymentOf(1), paymentOf(2)
			h, dir := l.process(t, "", `read line; case "$line" in *`+bad.ID+`*) [ -f "$0/mended" ] || { `+text+
				`; };; esac; echo "$line" | { `+notes+`; }`)
			h.Limit = time.Second
			for _, p := range []history.Payment{bad, good} {
				require.NoError(t, h.MayPay(t.Context(), p))
				l.put(p, history.Settled)
			}
			h.Begin()
			require.Eventually(t, func() bool { return len(told(dir)) == 1 }, 30*time.Second,
				time.Millisecond)
			require.Equal(t, []string{good.ID + "=settled"}, told(dir))
			closed := make(chan struct{})
			h.Close(func() { close(closed) })
			h.Ending.Wait()
			<-closed
			require.Equal(t, []string{bad.ID}, must.Get(h.waiting())(t), "it is told by the next process")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "mended"), nil, 0o600))
			next, _ := l.process(t, "", "true")
			next.After = h.After
			next.Begin()
			require.Eventually(t, func() bool { return len(told(dir)) == 2 }, 30*time.Second,
				time.Millisecond)
		})
	}
}

// An outbox that cannot be written refuses the payment: its outcome would be told to nobody.
func TestAnOutboxThatCannotBeWritten(t *testing.T) {
	l := newLedger(t)
	h, _ := l.process(t, "", notes)
	require.NoError(t, os.WriteFile(h.Dir, nil, 0o600)) // no directory
	err := h.MayPay(t.Context(), paymentOf(1))
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
}

// The program cannot read the wallet's home where the system can see to that.
func TestAProgramIsConfined(t *testing.T) {
	if why := child.Unsupported(); why != "" {
		t.Skip(why)
	}
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "keystore.json"), []byte("canary"), 0o600))
	h, dir := (&ledger{home: t.TempDir()}).process(t, `cat `+home+`/keystore.json > "$0/stolen"; exit 0`, "")
	h.Before.Sandbox = child.Sandbox{Closed: []string{home}}
	require.NoError(t, h.MayPay(t.Context(), paymentOf(1)))
	require.Empty(t, childtest.Read(t, dir, "stolen"))
}
