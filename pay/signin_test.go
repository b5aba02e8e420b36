package pay

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/owner"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// memberSeller sells once, and gives what was bought to whoever signs in as the one who paid. It verifies
// like the reference (domain, origin, times, signature), and takes a nonce once.
type memberSeller struct {
	*scriptedSeller
	onlySignIn    bool // it sells nothing
	status        int  // of the answer to whoever signs in and gets nothing; 0: asks for payment
	info          func(map[string]string)
	origin        string
	refuses, cut  bool
	mu            sync.Mutex
	nonces        int
	used, members map[string]bool
	signIns       []x402.SignIn
}

func (s *memberSeller) asks() *seller.Answer {
	s.mu.Lock()
	s.nonces++
	said := map[string]string{"domain": "api.example", "uri": testURL, "version": "1",
		"nonce":     fmt.Sprintf("a1b2c3d4%d", s.nonces),
		"issuedAt":  time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		"statement": "Sign in to read it again"}
	s.mu.Unlock()
	if s.info != nil {
		s.info(said)
	}
	var members []string
	for key, value := range said {
		members = append(members, fmt.Sprintf("%q:%q", key, value))
	}
	text := string(firstDecoded(s.scriptedSeller.challenge()))
	if s.onlySignIn {
		text = `{"x402Version":2,"resource":{"url":"` + testURL + `"},"accepts":[]}`
	}
	text = strings.TrimSuffix(text, "}") + `,"extensions":{"sign-in-with-x":{"info":{` +
		strings.Join(members, ",") + `},"supportedChains":[` +
		`{"chainId":"solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1","type":"ed25519"},` +
		`{"chainId":"` + testNetwork + `","type":"eip191"}]}}}`
	a := &seller.Answer{Status: 402, FinalURL: testURL,
		Header: http.Header{"Payment-Required": {base64.StdEncoding.EncodeToString([]byte(text))}}}
	a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, a.Header, nil)
	return a
}

func firstDecoded(h http.Header) []byte {
	for _, values := range h {
		data, _ := base64.StdEncoding.DecodeString(values[0])
		return data
	}
	return nil
}

func (s *memberSeller) Ask(_ context.Context, r seller.Request) (*seller.Answer, error) {
	a := s.asks()
	a.FinalURL = r.URL
	return a, nil
}

func (s *memberSeller) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	if with.Header != wire.HeaderSignIn {
		a, err := s.scriptedSeller.Present(ctx, r, with)
		if err == nil && a.Status == 200 {
			s.mu.Lock()
			s.members[s.origin] = true
			s.mu.Unlock()
		}
		return a, err
	}
	if s.cut {
		return nil, &seller.SendError{Sent: true, Err: x402.Errorf(x402.NetworkError, "cut")}
	}
	m := must.Get(wire.DecodeSignIn(with.Value))(s.t)
	require.NoError(s.t, wire.VerifySignIn(m, "https://api.example", time.Now()))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.False(s.t, s.used[m.Nonce], "a nonce is shown once")
	s.used[m.Nonce] = true
	s.signIns = append(s.signIns, m)
	switch {
	case !s.refuses && (s.onlySignIn || s.members[m.Address]):
		return &seller.Answer{Status: 200, Content: []byte("sunny again"), ContentType: "text/plain"}, nil
	case s.status != 0:
		return &seller.Answer{Status: s.status, ContentType: "text/plain"}, nil
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	return s.asks(), nil
}

type payerChain struct {
	*chain
	source string
}

func (c payerChain) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	f, err := c.chain.Funds(ctx, network, asset)
	f.Source = c.source
	return f, err
}

type signInBench struct {
	*bench
	shop    *memberSeller
	address string
}

func newSignInBench(t *testing.T, rule budget.Rule) *signInBench {
	b := newBench(t, "10000", honest)
	keys := must.Get(owner.Create(t.Context(), filepath.Join(t.TempDir(), "w"),
		wallet.FromValue("correct horse battery"), owner.Options{N: 1 << 14}))(t)
	onEVM, onSolana := testworld.Signers(b.store, keys)
	signer := client.SignIns{EVM: onEVM, Solana: onSolana}
	s := &signInBench{bench: b, address: signer.Address(testNetwork)}
	s.shop = &memberSeller{scriptedSeller: b.seller, origin: s.address, used: map[string]bool{},
		members: map[string]bool{}}
	b.Transport, b.SignIns, b.Rules.SignIn = s.shop, signer, rule
	b.Policy.Networks = []string{testNetwork}
	b.Schemes = map[SchemeKey]Scheme{exactEVM: payerChain{b.chain, s.address}}
	return s
}

func (b *signInBench) buys(t *testing.T) Result {
	t.Helper()
	r := b.mustPay(t, testURL)
	b.Delivered(t.Context(), r.Status, r.PaymentID)
	return r
}

// rows are the ledger's, oldest first; all of it agrees with its audit chain.
func (b *signInBench) rows(t *testing.T) []history.Payment {
	t.Helper()
	must.Get(verify.Ledger(t.Context(), b.store, history.Head{}))(t)
	list := must.Get(b.store.Recent(t.Context(), 100))(t)
	for i := range len(list) / 2 {
		list[i], list[len(list)-1-i] = list[len(list)-1-i], list[i]
	}
	return list
}

func TestWhatWasBoughtIsFetchedAgainBySigningIn(t *testing.T) {
	b := newSignInBench(t, budget.RuleAllow)
	require.Equal(t, StatusPaid, b.buys(t).Status)
	require.Empty(t, b.shop.signIns, "it was never bought before")
	must.Get(b.store.Bought(t.Context(), "", testURL, "GET api.example/weather"))(t)
	for _, other := range [][2]string{{testURL, "GET api.example/other"},
		{testURL, "POST api.example/weather"}, {"", ""},
		{"https://api.example/weather/more", "GET api.example/weather"}} {
		_, err := b.store.Bought(t.Context(), "", other[0], other[1])
		require.ErrorIs(t, err, history.ErrNotFound, "%s", other)
	}
	for i := range 3 {
		r := b.buys(t)
		require.Equal(t, []any{StatusFree, "sunny again", false, testNetwork},
			[]any{r.Status, r.Content, r.PaymentRequired, r.Network})
		require.Contains(t, r.Next.Why, "signed in as "+b.address)
		require.Len(t, b.shop.signIns, i+1)
	}
	require.Equal(t, 1, b.chain.signed)
	require.Equal(t, "Sign in to read it again", b.shop.signIns[0].Statement)

	rows := b.rows(t)
	require.Len(t, rows, 4)
	for _, p := range rows[1:] {
		require.Equal(t, []any{history.Settled, history.Proof(""), true, "0", "", b.address, true,
			"served without a payment"}, []any{p.State, p.Proof, p.IsSignIn(), p.Amount.String(), p.PayTo,
			p.Source, p.Delivered, p.Note})
		require.Zero(t, p.Price)
		require.Equal(t, "sunny again", string(must.Get(b.store.Content(t.Context(), p.ID))(t).Body))
	}
	facts := b.facts(t)
	require.EqualValues(t, 10_000, facts.Used.Day.Total(), "no window has anything of it")
}

// The first sign-in at a host asks a person, who may say no, and then it is paid as ever.
func TestTheFirstSignInAtAHostAsks(t *testing.T) {
	b := newSignInBench(t, budget.RuleAsk)
	b.buys(t)
	id := b.askedFor(t, get(testURL))
	require.Equal(t, id, b.askedFor(t, get(testURL)), "the same question")
	a := must.Get(b.store.Approval(t.Context(), id))(t)
	require.Equal(t, []any{"0", "$0.00", "", "api.example"},
		[]any{a.Amount.String(), a.Price.Price(), a.PayTo, a.Host})
	require.Contains(t, a.Why, `never signed in at api.example before; the seller writes: "Sign in to read `+
		`it again"`)
	must.Get(b.store.Deny(t.Context(), id, "owner"))(t)
	require.Equal(t, StatusPaid, b.buys(t).Status, "no to signing in is not no to paying")

	b = newSignInBench(t, budget.RuleAsk)
	b.buys(t)
	must.Get(b.store.Approve(t.Context(), b.askedFor(t, get(testURL)), "owner", sealed))(t)
	require.Equal(t, StatusFree, b.buys(t).Status)
	require.Equal(t, StatusFree, b.buys(t).Status, "the host is remembered")
	require.Len(t, b.rows(t), 3)
	require.Equal(t, 1, b.chain.signed)
}

// Nobody signs in where it was forbidden, was never bought, is for another site, or is not good now: it is
// paid.
func TestPaidInsteadOfSignedIn(t *testing.T) {
	for name, spoil := range map[string]func(*signInBench){
		"the owner's rule": func(b *signInBench) { b.Rules.SignIn = budget.RuleRefuse },
		"no signer":        func(b *signInBench) { b.SignIns = nil },
		"another domain":   func(b *signInBench) { b.shop.info = set("domain", "evil.example") },
		"another origin":   func(b *signInBench) { b.shop.info = set("uri", "https://evil.example/") },
		"an origin without TLS": func(b *signInBench) {
			b.shop.info = set("uri", "http://api.example/x")
		},
		"issued long ago": func(b *signInBench) { b.shop.info = set("issuedAt", "2025-02-27T16:01:29Z") },
		"expired": func(b *signInBench) {
			b.shop.info = set("expirationTime", "2025-02-27T16:01:29Z")
		},
		"not good yet":  func(b *signInBench) { b.shop.info = set("notBefore", "2035-02-27T16:01:29Z") },
		"a short nonce": func(b *signInBench) { b.shop.info = set("nonce", "abc") },
		"forged lines": func(b *signInBench) {
			b.shop.info = set("statement", "a\n\nURI: https://evil.example")
		},
		"bought by the vault": func(b *signInBench) {
			b.Schemes[exactEVM] = payerChain{b.chain, "0x5FbDB2315678afecb367f032d93F642f64180aa3"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSignInBench(t, budget.RuleAllow)
			spoil(b)
			require.Equal(t, StatusPaid, b.buys(t).Status)
			require.Equal(t, StatusPaid, b.buys(t).Status)
			require.Empty(t, b.shop.signIns)
			require.Len(t, b.rows(t), 2)
		})
	}
}

func set(key, value string) func(map[string]string) {
	return func(said map[string]string) { said[key] = value }
}

// A seller that asks for payment after a sign-in is paid, once, in the same call, and not signed in to again
// for a while.
func TestASignInInVainIsPaid(t *testing.T) {
	for _, status := range []int{0, 401, 403} {
		b := newSignInBench(t, budget.RuleAllow)
		b.buys(t)
		b.shop.refuses, b.shop.status = true, status
		require.Equal(t, StatusPaid, b.buys(t).Status)
		require.Equal(t, StatusPaid, b.buys(t).Status)
		require.Len(t, b.shop.signIns, 1, "one attempt")
		require.Equal(t, 3, b.chain.settlements())
		rows := b.rows(t)
		require.Len(t, rows, 4)
		require.Contains(t, rows[1].Note, "not served: HTTP 4")
		b.Now = func() time.Time { return time.Now().Add(signInPause - time.Minute) }
		require.Equal(t, StatusPaid, b.buys(t).Status)
		require.Len(t, b.shop.signIns, 1)
	}
	b := newSignInBench(t, budget.RuleAllow)
	b.buys(t)
	b.shop.refuses, b.shop.status = true, 410
	r := b.buys(t)
	require.Equal(t, []any{StatusNotPaid, 410}, []any{r.Status, r.HTTPStatus}, "what is gone is not paid for")
	require.Equal(t, 1, b.chain.settlements())
	b.shop.cut = true
	require.Error(t, must.Err(b.Pay(t.Context(), get(testURL))))
	require.Equal(t, 1, b.chain.settlements())
	require.Contains(t, b.rows(t)[2].Note, "did not answer")
}

// What sells nothing and asks who is there is answered under the same rules.
func TestWhatOnlyAsksToSignIn(t *testing.T) {
	b := newSignInBench(t, budget.RuleAllow)
	b.shop.onlySignIn = true
	require.Equal(t, StatusFree, b.buys(t).Status)
	require.Equal(t, b.address, b.shop.signIns[0].Address)
	b.shop.refuses = true
	for range 3 {
		e := b.mustRefuse(t, "NO_REQUIREMENTS", testURL)
		require.Contains(t, e.Message, "asks to sign in")
	}
	require.Len(t, b.shop.signIns, 2, "no more attempts than one")
	must.Get(b.Estimate(t.Context(), get(testURL)))(t)

	b = newSignInBench(t, budget.RuleRefuse)
	b.shop.onlySignIn = true
	_, err := b.Pay(t.Context(), get(testURL))
	require.Contains(t, code(t, x402.PolicyDenied, err).Message, "does not let the wallet sign in")
	b.Rules.SignIn = budget.RuleAsk
	b.askedFor(t, get(testURL))
	require.Empty(t, b.shop.signIns)
	require.Empty(t, b.rows(t))
}

// A disk that fails while the wallet signs in is no reason to pay for it again: the same call signs in.
func TestALedgerThatFailsIsNotPaidAround(t *testing.T) {
	for nth := 1; ; nth++ {
		b := newSignInBench(t, budget.RuleAllow)
		b.buys(t)
		disk := &historytest.Uncertain{Store: b.store, Nth: nth}
		b.Store, b.Guard = disk, uncertainGuard{historytest.Guard{Store: b.store}, disk}
		r, err := b.Pay(t.Context(), get(testURL))
		if disk.Failed() == "" {
			require.Greater(t, nth, 2, "of these at least a hold and an outcome")
			return
		}
		if err != nil {
			require.Empty(t, code(t, x402.LedgerUnavailable, err).Spent, disk.Failed())
		} else {
			require.Equal(t, StatusFree, r.Status, disk.Failed())
		}
		require.Equal(t, StatusFree, b.buys(t).Status)
		require.Equal(t, 1, b.chain.settlements(), "%d: %s", nth, disk.Failed())
	}
}

func TestAFrozenWalletSignsInNowhere(t *testing.T) {
	b := newSignInBench(t, budget.RuleAllow)
	b.buys(t)
	require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{By: "owner"}))
	b.mustRefuse(t, x402.WalletFrozen, testURL)
	require.Empty(t, b.shop.signIns)
}

// Sign-ins say nothing of payments: a row of payments that came to nothing goes on through them, and no
// payee or price is known by them.
func TestSignInsEndNoRowOfFailures(t *testing.T) {
	b := newSignInBench(t, budget.RuleAllow)
	b.Rules.MaxFailures, b.Rules.NewPayee = 2, budget.RuleAllow
	b.buys(t)
	b.seller.script = silent
	for _, path := range []string{"/a", "/b"} {
		b.mustRefuse(t, x402.OutcomeUnknown, testURL+path)
		if path == "/a" {
			require.Equal(t, StatusFree, b.buys(t).Status)
		}
	}
	_, err := b.Pay(t.Context(), get(testURL+"/c"))
	require.Contains(t, code(t, x402.WalletFrozen, err).Message, "the last 2 payments")
}

// A process that died after it signed leaves a row that holds nothing and is nobody's debt.
func TestASignInThatWasCutOffIsEnded(t *testing.T) {
	b := newSignInBench(t, budget.RuleAllow)
	b.buys(t)
	b.Transport = diesShowing{b.shop}
	func() {
		defer func() { require.NotNil(t, recover()) }()
		_, _ = b.Pay(t.Context(), get(testURL))
	}()
	rows := b.rows(t)
	require.Equal(t, history.Submitted, rows[1].State)
	require.NotEmpty(t, rows[1].Payload)

	other := openBench(t, b.home, b.chain, "10000", honest)
	b.store.Close()
	report := other.reconcile(t)
	require.Zero(t, report.Open)
	p := must.Get(other.store.Payment(t.Context(), rows[1].ID))(t)
	require.Equal(t, history.Settled, p.State)
	require.Contains(t, p.Note, "its process ended")
}

type diesShowing struct{ *memberSeller }

func (d diesShowing) Present(ctx context.Context, r seller.Request,
	with wire.Attachment) (*seller.Answer, error) {
	if with.Header == wire.HeaderSignIn {
		panic("the process ends here")
	}
	return d.memberSeller.Present(ctx, r, with)
}
