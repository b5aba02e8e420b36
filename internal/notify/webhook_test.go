package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/alerts"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

var testKey = bytes.Repeat([]byte{7}, 32)

// receiver is the owner's end: it verifies as standardwebhooks.com says, by itself, and then does what a test
// wants.
type receiver struct {
	*httptest.Server
	does func(rw http.ResponseWriter, r *http.Request, try int)

	mu          sync.Mutex
	bodies, ids []string
	wrong       []string // what is wrong with a message
}

func receive(t *testing.T, does func(rw http.ResponseWriter, r *http.Request, try int)) *receiver {
	r := &receiver{does: does}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (s *receiver) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	mac := hmac.New(sha256.New, testKey)
	mac.Write([]byte(strings.Join([]string{id, at, string(body)}, ".")))
	signature, isV1 := strings.CutPrefix(r.Header.Get("webhook-signature"), "v1,")
	given, decoded := base64.StdEncoding.DecodeString(signature)
	seconds, number := strconv.ParseInt(at, 10, 64)
	age := time.Since(time.Unix(seconds, 0))
	s.mu.Lock()
	for what, isWrong := range map[string]bool{
		"body": err != nil, "method": r.Method != http.MethodPost, "id": id == "", "time": number != nil,
		"age": age < -time.Minute || age > time.Minute, "version": !isV1, "base64": decoded != nil,
		"signature": !hmac.Equal(mac.Sum(nil), given),
		"type":      r.Header.Get("content-type") != "application/json",
	} {
		if isWrong {
			s.wrong = append(s.wrong, what)
		}
	}
	s.bodies, s.ids = append(s.bodies, string(body)), append(s.ids, id)
	try := len(s.bodies)
	s.mu.Unlock()
	if s.does != nil {
		s.does(rw, r, try)
	}
}

func (s *receiver) tries(t *testing.T) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.wrong)
	for i := range s.ids { // each try is the same message
		require.Equal(t, s.ids[0], s.ids[i])
		require.Equal(t, s.bodies[0], s.bodies[i])
	}
	return len(s.bodies)
}

func hook(at string) *Webhook {
	secret := "whsec_" + base64.StdEncoding.EncodeToString(testKey) + "\n"
	return &Webhook{URL: at, HTTP: http.DefaultClient,
		Secret: func() (string, error) { return secret, nil }}
}

func status(code int) func(http.ResponseWriter, *http.Request, int) {
	return func(rw http.ResponseWriter, _ *http.Request, _ int) { rw.WriteHeader(code) }
}

func TestAWebhookIsSigned(t *testing.T) {
	r := receive(t, nil)
	n := notice(question(1), "")
	require.NoError(t, hook(r.URL+"/x402?key=canary").Tell(t.Context(), n))
	require.Equal(t, 1, r.tries(t))
	require.Equal(t, "alr_1", r.ids[0], "by which its receiver knows it again")
	require.Equal(t, string(must.Get(n.line())(t)), r.bodies[0])
}

// The specification's own example.
func TestTheSpecificationsSignature(t *testing.T) {
	w := &Webhook{Secret: func() (string, error) { return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", nil }}
	key := must.Get(w.key())(t)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)))
}

// Only 2xx says that it was taken; each Tell is one try.
func TestWhatAReceiverAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		does  func(http.ResponseWriter, *http.Request, int)
		fails string // "": it is told
	}{
		"200": {does: status(200)},
		"204": {does: status(204)},
		"hangs up": {does: func(http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) },
			fails: "EOF"},
		"503": {does: status(503), fails: "503"},
		"429": {does: status(429), fails: "429"},
		"404": {does: status(404), fails: "404"},
		"304": {does: status(304), fails: "no redirect is followed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, c.does)
			err := hook(r.URL+"/canary").Tell(t.Context(), test())
			require.Equal(t, 1, r.tries(t))
			if c.fails == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.fails)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	elsewhere := receive(t, nil)
	for _, code := range []int{301, 302, 303, 307, 308} {
		r := receive(t, func(rw http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(rw, r, elsewhere.URL, code)
		})
		require.ErrorContains(t, hook(r.URL).Tell(t.Context(), test()), strconv.Itoa(code))
		require.Equal(t, 1, r.tries(t))
	}
	require.Zero(t, elsewhere.tries(t))
}

// Silence ends with the try's time, and with the caller's; an answer without an end is not read.
func TestAReceiverThatTakesItsTime(t *testing.T) {
	released := make(chan struct{})
	silent := receive(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
		select {
		case <-r.Context().Done():
		case <-released:
		}
	})
	defer close(released)
	w := hook(silent.URL)
	w.limit = 20 * time.Millisecond
	require.ErrorIs(t, w.Tell(t.Context(), test()), context.DeadlineExceeded)
	require.LessOrEqual(t, silent.tries(t), 1)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	require.ErrorIs(t, hook(silent.URL).Tell(ctx, test()), context.Canceled)

	endless := receive(t, func(rw http.ResponseWriter, r *http.Request, _ int) {
		for r.Context().Err() == nil {
			_, err := rw.Write(make([]byte, 1<<16))
			if err != nil {
				return
			}
		}
	})
	w = hook(endless.URL)
	w.limit = time.Hour
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, w.Tell(ctx, test()))
	require.NoError(t, ctx.Err(), "it did not read to the end")
}

// No error says where the webhook is: that may be a key.
func TestNoErrorHasTheURL(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	at := "http://" + l.Addr().String() + "/canary"
	require.NoError(t, l.Close())
	for _, at := range []string{at, "http://127.0.0.1:1/%zz-canary", "https://canary@127.0.0.1:1"} {
		err := hook(at).Tell(t.Context(), test())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "canary")
	}
	_, to := hook(at).Name()
	require.Equal(t, l.Addr().String(), to)
}

func TestSecrets(t *testing.T) {
	r := receive(t, nil)
	for _, secret := range []string{"", "whsec_", "c2hvcnQ=", "whsec_c2hvcnQ=", "whsec_!",
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, leastKey-1)),
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, mostKey+1)),
		base64.StdEncoding.EncodeToString(testKey)} {
		w := hook(r.URL)
		w.Secret = func() (string, error) { return secret, nil }
		err := w.Tell(t.Context(), test())
		require.ErrorContains(t, err, "whsec_ and the base64 of 24 to 64 bytes", secret)
		require.NotContains(t, err.Error(), "c2hv")
	}
	w := hook(r.URL)
	missing := errors.New("there is no such file")
	w.Secret = func() (string, error) { return "", missing }
	require.ErrorIs(t, w.Tell(t.Context(), test()), missing)
	require.Zero(t, r.tries(t))
}

func question(id int) alerts.Alert {
	price, _ := money.ParseDollars("0.5")
	return alerts.Alert{ID: fmt.Sprint("alr_", id), Kind: alerts.Approval,
		Subject: fmt.Sprint("apr_", id), At: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
		Detail: alerts.Detail{Host: "api.example", Price: price, Agent: "research",
			Why: "the agent research asks for it: the price $0.50 is above what is paid without asking, " +
				"$0.10",
			Expires: time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)}}
}

// A notice has what a person needs to decide whether to look, and what its receiver knows it by.
func TestWhatIsTold(t *testing.T) {
	n := notice(question(1), "https://wallet.example/approve/apr_1")
	line := must.Get(n.line())(t)
	require.JSONEq(t, `{"kind":"approval","id":"apr_1","alert":"alr_1","at":"2026-11-26T08:00:00Z",
		"price":"$0.50","host":"api.example","agent":"research","expiresAt":"2026-11-27T08:00:00Z",
		"why":"the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10",
		"command":"x402-wallet approve apr_1","page":"https://wallet.example/approve/apr_1",
		"text":"Pay $0.50 to \"api.example\"? Asked because the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10. Open until 2026-11-27T08:00:00Z. By: x402-wallet approve apr_1 or https://wallet.example/approve/apr_1"}`,
		string(line))
	require.Equal(t, byte('\n'), line[len(line)-1])

	d := func(text string) money.Dollars { return must.Get(money.ParseDollars(text))(t) }
	ended := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		kind    alerts.Kind
		subject string
		detail  alerts.Detail
		text    string
	}{
		{alerts.Approval, "apr_2", alerts.Detail{Host: "api.example", Why: "why", SignIn: true},
			`Sign in, for nothing, at "api.example"? Asked because why. Open until . ` +
				"By: x402-wallet approve apr_2"},
		{alerts.Freeze, "wallet", alerts.Detail{By: "breaker", Why: "20 payments came to nothing"},
			"Payments of the whole wallet are stopped, by the breaker: 20 payments came to nothing. " +
				"By: x402-wallet unfreeze"},
		{alerts.Budget, "day budget", alerts.Detail{Used: d("8"), Limit: d("10")},
			"Of your day budget $8.00 of $10.00 are used. By: x402-wallet budget"},
		{alerts.Payment, "pay_1", alerts.Detail{Price: d("0.5"), Host: "api.example", Expires: ended},
			`Whether $0.50 were paid to "api.example" is still not known, although what was signed ended ` +
				"at 2026-11-27T08:00:00Z: the chain did not say. It counts as spent. " +
				"By: x402-wallet reconcile"},
		{alerts.Ledger, "ledger.db", alerts.Detail{Why: "it is older than its checkpoint"},
			"Nothing is paid, because it is older than its checkpoint. By: x402-wallet doctor"},
		{alerts.Home, "home", alerts.Detail{Why: "its mode was 0755"}, "Other users of this machine could " +
			"enter the wallet's home: its mode was 0755. It is closed again; a program that the wallet " +
			"started may have opened it. By: x402-wallet doctor"},
		{alerts.Funds, "x", alerts.Detail{Source: "allowance", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc"}, "Little is left to pay from: $0.40 of USDC, by the " +
			"allowance of 0xabc on Base. By: x402-wallet balance"},
		{alerts.Funds, "x", alerts.Detail{Source: "delegation", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc", Renew: d("100")},
			"Little is left to pay from: $0.40 of USDC, by the delegation of 0xabc on Base. " +
				"By: x402-wallet delegation approve --network eip155:8453 --amount 100.00 --unsigned"},
		{alerts.Funds, "x", alerts.Detail{Source: "vault", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc", Renew: d("100")},
			"Little is left to pay from: $0.40 of USDC, by the vault of 0xabc on Base. " +
				"By: x402-wallet vault deposit --network eip155:8453 --amount 100.00"},
		{alerts.Subscription, "news:20270327T023000Z", alerts.Detail{Why: "the wallet is locked",
			Expires: ended},
			"The subscription news was not bought: the wallet is locked. It is tried again " +
				"from 2026-11-27T08:00:00Z on. By: x402-wallet subscriptions show news"},
		{alerts.Proposal, "prp_1", alerts.Detail{Price: d("0.05"), Host: "a.example",
			Why: "I like it"}, `An agent would like something of "a.example" to be bought again and again, ` +
			`for up to $0.05 each time. It says why: "I like it". Nothing is bought until you accept it. ` +
			"By: x402-wallet subscriptions accept prp_1"},
		{"another", "2", alerts.Detail{Why: "a newer wallet's"},
			"another: a newer wallet's. By: x402-wallet alerts"},
	} {
		a := alerts.Alert{ID: "alr_1", Kind: c.kind, Subject: c.subject, Detail: c.detail}
		require.Equal(t, c.text, Text(a))
	}
	sum := more([]alerts.Alert{question(1), question(3), question(2)})
	require.Equal(t, "And 3 more wait. By: x402-wallet alerts", sum.Text)
	require.Equal(t, "more_3_3", sum.Alert, "the same for the same ones")
}

// What strangers wrote stays one line of plain letters, and has a bound.
func TestHostileWords(t *testing.T) {
	hostile := "evil\u202e\n\x1b[2J<a href='x'>\u200b$(reboot)`id`" + strings.Repeat("\U000e0041", 5000)
	for _, kind := range []alerts.Kind{alerts.Approval, alerts.Freeze, alerts.Budget, alerts.Home,
		alerts.Payment, alerts.Ledger, alerts.Funds, alerts.Subscription, alerts.Proposal, "other"} {
		a := alerts.Alert{ID: "alr_1", Kind: kind, Subject: hostile,
			Detail: alerts.Detail{Host: hostile, Agent: hostile, Why: "the seller writes: " + hostile,
				By: hostile, Network: hostile, Account: hostile, Source: hostile, Symbol: hostile}}
		line := must.Get(notice(a, "").line())(t)
		require.Less(t, len(line), 4000)
		require.Equal(t, 1, strings.Count(string(line), "\n"))
		read := must.JSON[map[string]any](line)(t)
		for key, value := range read {
			for _, r := range fmt.Sprint(value) {
				require.True(t, r >= ' ' && r <= '~', "%s: %s has %q", kind, key, r)
			}
		}
	}
	a := question(1)
	a.Detail.Host = hostile
	require.Contains(t, notice(a, "").Text, `to "evil\u202e\n\x1b`)
}
