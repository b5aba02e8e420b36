package paywall

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

type signInShop struct {
	*permitLab
	web    *httptest.Server
	served atomic.Int32
	fails  atomic.Bool
	skew   atomic.Int64 // of the paywall's clock, in nanoseconds
}

func newSignInShop(t *testing.T, access time.Duration) *signInShop {
	t.Helper()
	s := &signInShop{}
	s.web = httptest.NewUnstartedServer(nil)
	origin := "http://" + s.web.Listener.Addr().String()
	t.Cleanup(func() { s.web.Close(); http.DefaultClient.CloseIdleConnections() })
	s.permitLab = newPermitLab(t, func(_ *permitLab, o *Options) {
		o.Origin, o.Tools[0].Access = origin, access
		o.Now = func() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) }
	})
	s.web.Config.Handler = s.paywall.HTTP("search", http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		s.served.Add(1)
		if s.fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		body, _ := io.ReadAll(r.Body)
		sale := FromContext(r.Context())
		_, _ = fmt.Fprint(w, product, " ", r.URL.Path, " ", string(body), " ", sale.SignedIn, " ", sale.Payer)
	}))
	s.web.Start()
	return s
}

// visit asks with headers: status, body, and the challenge if there is one.
func (s *signInShop) visit(t *testing.T, method, path, body string, header map[string]string) (int, string,
	*wire.Challenge) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.web.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	if response.StatusCode != http.StatusPaymentRequired {
		return response.StatusCode, string(text), nil
	}
	c := must.Get(wire.ReadChallenge(response.StatusCode, response.Header, text))(t)
	return response.StatusCode, string(text), c
}

func (s *signInShop) buy(t *testing.T, p *permitPayer, path, body string) {
	t.Helper()
	_, _, c := s.visit(t, http.MethodPost, path, body, nil)
	status, text, _ := s.visit(t, http.MethodPost, path, body, map[string]string{
		"PAYMENT-SIGNATURE": base64.StdEncoding.EncodeToString(p.pay(t, c, 0, nil))})
	require.Equal(t, http.StatusOK, status, text)
}

func message(t *testing.T, c *wire.Challenge) (m x402.SignIn) {
	t.Helper()
	var said struct {
		Info            x402.SignIn
		SupportedChains []struct{ ChainID, Type string }
	}
	require.Contains(t, c.Extensions, x402.ExtensionSignIn)
	require.NoError(t, json.Unmarshal(c.Extensions[x402.ExtensionSignIn], &said))
	m = said.Info
	m.ChainID, m.Type = said.SupportedChains[0].ChainID, said.SupportedChains[0].Type
	return m
}

func signedIn(t *testing.T, key *ecdsa.PrivateKey, m x402.SignIn) x402.SignIn {
	t.Helper()
	m.Address = crypto.PubkeyToAddress(key.PublicKey).Hex()
	text := must.Get(m.Text())(t)
	digest := crypto.Keccak256(fmt.Appendf(nil, "\x19Ethereum Signed Message:\n%d%s", len(text), text))
	signature := must.Get(crypto.Sign(digest, key))(t)
	signature[64] += 27
	m.Signature = fmt.Sprintf("0x%x", signature)
	return m
}

// Who bought a call gets it again by signing in, and nothing is paid; nobody else does, and no other call.
func TestWhoBoughtItSignsIn(t *testing.T) {
	s := newSignInShop(t, time.Hour)
	s.buy(t, s.buyer, "/a?x=1", "question")
	asked := func() x402.SignIn {
		_, _, c := s.visit(t, http.MethodPost, "/a?x=1", "question", nil)
		return message(t, c)
	}
	m := asked()
	require.Equal(t, strings.TrimPrefix(s.web.URL, "http://"), m.Domain)
	require.Equal(t, s.web.URL+"/a?x=1", m.URI)
	require.NotEqual(t, m.Nonce, asked().Nonce)
	header := map[string]string{"sign-in-with-x": wire.EncodeSignIn(signedIn(t, s.buyer.key, m))}
	before := s.served.Load()
	status, text, _ := s.visit(t, http.MethodPost, "/a?x=1", "question", header)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, product+" /a question true "+s.buyer.address, text)
	require.Equal(t, before+1, s.served.Load())
	require.Len(t, s.bank.moved, 1)

	status, text, c := s.visit(t, http.MethodPost, "/a?x=1", "question", header)
	require.Equal(t, http.StatusPaymentRequired, status)
	require.Contains(t, c.Error, "invalid_siwx_nonce", "a message is taken once")
	require.NotContains(t, text, product)
	refused := func(method, path, body string, in x402.SignIn) {
		t.Helper()
		status, text, c := s.visit(t, method, path, body,
			map[string]string{"sign-in-with-x": wire.EncodeSignIn(in)})
		require.Equal(t, http.StatusPaymentRequired, status)
		require.NotContains(t, text, product)
		require.NotEmpty(t, c.Accepts, "it can be bought")
	}
	refused(http.MethodPost, "/b?x=1", "question", signedIn(t, s.buyer.key, asked()))
	refused(http.MethodPost, "/a?x=2", "question", signedIn(t, s.buyer.key, asked()))
	refused(http.MethodPost, "/a?x=1", "another question", signedIn(t, s.buyer.key, asked()))
	refused(http.MethodPut, "/a?x=1", "question", signedIn(t, s.buyer.key, asked()))
	refused(http.MethodPost, "/a?x=1", "question", signedIn(t, newPermitPayer(t, s.bank).key,
		asked()))
	stolen := signedIn(t, newPermitPayer(t, s.bank).key, asked())
	stolen.Address = s.buyer.address
	refused(http.MethodPost, "/a?x=1", "question", stolen)
	require.Equal(t, before+1, s.served.Load())

	s.skew.Store(int64(61 * time.Minute))
	refused(http.MethodPost, "/a?x=1", "question", signedIn(t, s.buyer.key, asked()))
	require.Len(t, s.bank.moved, 1)
}

// What a message says is compared in the reference's order, and named in its words.
func TestSignInsThatAreNotTaken(t *testing.T) {
	s := newSignInShop(t, time.Hour)
	s.buy(t, s.buyer, "/", "")
	for reason, spoil := range map[string]func(m *x402.SignIn){
		"domain_mismatch":     func(m *x402.SignIn) { m.Domain = "evil.example" },
		"uri_mismatch":        func(m *x402.SignIn) { m.URI = "https://evil.example/" },
		"issued_at":           func(m *x402.SignIn) { m.IssuedAt = "yesterday" },
		"issued_at_too_old":   func(m *x402.SignIn) { m.IssuedAt = "2025-01-01T00:00:00.000Z" },
		"issued_at_in_future": func(m *x402.SignIn) { m.IssuedAt = "2099-01-01T00:00:00.000Z" },
		"expired":             func(m *x402.SignIn) { m.ExpirationTime = m.IssuedAt },
		"not_yet_valid":       func(m *x402.SignIn) { m.NotBefore = "2099-01-01T00:00:00.000Z" },
		"nonce":               func(m *x402.SignIn) { m.Nonce = "short" },
		"signature":           func(m *x402.SignIn) { m.Nonce += "1" },
		"malformed_signature": func(m *x402.SignIn) { m.Signature = "0x12" },
	} {
		t.Run(reason, func(t *testing.T) {
			_, _, c := s.visit(t, http.MethodPost, "/", "", nil)
			m := message(t, c)
			if reason == "nonce" || reason == "signature" || reason == "malformed_signature" {
				m = signedIn(t, s.buyer.key, m)
				spoil(&m)
			} else {
				spoil(&m)
				m = signedIn(t, s.buyer.key, m)
			}
			status, text, c := s.visit(t, http.MethodPost, "/", "",
				map[string]string{"sign-in-with-x": wire.EncodeSignIn(m)})
			require.Equal(t, http.StatusPaymentRequired, status)
			require.Contains(t, c.Error, "invalid_siwx_"+reason+":")
			require.NotContains(t, text, product)
		})
	}
	for _, header := range []string{"%%%", "e30", strings.Repeat("a", 1<<15)} {
		status, _, _ := s.visit(t, http.MethodPost, "/", "", map[string]string{"sign-in-with-x": header})
		require.Equal(t, http.StatusPaymentRequired, status)
	}
	require.EqualValues(t, 1, s.served.Load())
}

// Of many who show one message one is let in; a run that fails gives its failure, and takes the message.
func TestAMessageHasOneRun(t *testing.T) {
	s := newSignInShop(t, time.Hour)
	s.buy(t, s.buyer, "/", "")
	_, _, c := s.visit(t, http.MethodPost, "/", "", nil)
	header := map[string]string{"sign-in-with-x": wire.EncodeSignIn(signedIn(t, s.buyer.key, message(t, c)))}
	var all sync.WaitGroup
	var in atomic.Int32
	for range 8 {
		all.Go(func() {
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.web.URL+"/", nil)
			request.Header.Set("sign-in-with-x", header["sign-in-with-x"])
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
				if response.StatusCode == http.StatusOK {
					in.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, in.Load())
	require.EqualValues(t, 2, s.served.Load())

	s.fails.Store(true)
	_, _, c = s.visit(t, http.MethodPost, "/", "", nil)
	header["sign-in-with-x"] = wire.EncodeSignIn(signedIn(t, s.buyer.key, message(t, c)))
	status, _, _ := s.visit(t, http.MethodPost, "/", "", header)
	require.Equal(t, http.StatusInternalServerError, status)
	rows := s.sales(t)
	require.Equal(t, []any{book.SaleFailed, x402.ExtensionSignIn, s.buyer.address, "0"},
		[]any{rows[0].State, rows[0].Scheme, rows[0].Payer, rows[0].Amount.String()})
	require.Equal(t, book.SaleVerified, rows[1].State)
	require.Len(t, s.bank.moved, 1)
}

// Who paid nothing, or whose payment failed, bought nothing; a payment beside a sign-in is taken as ever; and
// nobody signs in where the seller does not say so.
func TestWhoBoughtNothing(t *testing.T) {
	s := newSignInShop(t, time.Hour)
	pay := func(option int, header map[string]string) int {
		_, _, c := s.visit(t, http.MethodPost, "/", "", nil)
		header["PAYMENT-SIGNATURE"] = base64.StdEncoding.EncodeToString(s.buyer.pay(t, c, option, nil))
		status, _, _ := s.visit(t, http.MethodPost, "/", "", header)
		return status
	}
	in := func() map[string]string {
		_, _, c := s.visit(t, http.MethodPost, "/", "", nil)
		return map[string]string{"sign-in-with-x": wire.EncodeSignIn(signedIn(t, s.buyer.key, message(t, c)))}
	}
	status := func() int {
		status, _, _ := s.visit(t, http.MethodPost, "/", "", in())
		return status
	}
	require.Equal(t, http.StatusPaymentRequired, status())
	s.fails.Store(true)
	require.Equal(t, http.StatusInternalServerError, pay(0, map[string]string{}))
	s.fails.Store(false)
	require.Equal(t, http.StatusPaymentRequired, status())
	s.paywall.options.Hooks.BeforeSettle = func(_ context.Context, sale *Sale) error {
		return sale.Charge("0")
	}
	require.Equal(t, http.StatusOK, pay(1, map[string]string{}))
	require.Empty(t, s.bank.moved)
	require.Equal(t, http.StatusPaymentRequired, status())
	s.paywall.options.Hooks.BeforeSettle = nil
	require.Equal(t, http.StatusOK, pay(0, in()))
	require.Len(t, s.bank.moved, 1)
	require.Equal(t, http.StatusOK, status())

	closed := newSignInShop(t, 0)
	closed.buy(t, closed.buyer, "/", "")
	_, _, c := closed.visit(t, http.MethodPost, "/", "", nil)
	require.NotContains(t, c.Extensions, x402.ExtensionSignIn)
	m := x402.SignIn{Domain: strings.TrimPrefix(closed.web.URL, "http://"), URI: closed.web.URL + "/",
		Version: "1", ChainID: "eip155:84532", Type: "eip191", Nonce: "abcdefgh1",
		IssuedAt: time.Now().UTC().Format(time.RFC3339)}
	got, _, _ := closed.visit(t, http.MethodPost, "/", "",
		map[string]string{"sign-in-with-x": wire.EncodeSignIn(signedIn(t, closed.buyer.key, m))})
	require.Equal(t, http.StatusPaymentRequired, got)
}

// Over MCP the message stands in _meta: as an object or in base64.
func TestSigningInForATool(t *testing.T) {
	l := newPermitLab(t, func(_ *permitLab, o *Options) {
		o.Origin, o.Tools[0].Access = "https://shop.example", time.Hour
	})
	args := map[string]any{"q": 1}
	c := l.call(t, args, nil).challenge()
	require.Equal(t, product, l.call(t, args, meta(c, l.buyer.pay(t, c, 0, nil))).text)
	m := message(t, c)
	require.Equal(t, []string{"shop.example", "https://shop.example/"}, []string{m.Domain, m.URI})
	g := l.call(t, args, map[string]any{wire.HeaderSignIn: signedIn(t, l.buyer.key, m)})
	require.Equal(t, product, g.text, "%s", g.Result)
	require.Nil(t, g.receipt(), "nothing was paid")
	m = message(t, l.call(t, args, nil).challenge())
	require.Equal(t, product, l.call(t, args, map[string]any{
		wire.HeaderSignIn: wire.EncodeSignIn(signedIn(t, l.buyer.key, m))}).text)
	m = message(t, l.call(t, args, nil).challenge())
	other := l.call(t, map[string]any{"q": 2}, map[string]any{wire.HeaderSignIn: signedIn(t, l.buyer.key, m)})
	require.Contains(t, other.challenge().Error, "did not buy it")
	require.Len(t, l.bank.moved, 1)

	l.tool = failing("down")
	m = message(t, l.call(t, args, nil).challenge())
	require.Equal(t, "down", l.call(t, args, map[string]any{wire.HeaderSignIn: signedIn(t, l.buyer.key,
		m)}).text)
}

// On Solana the account signs by ed25519, and its address is base58.
func TestSigningInOnSolana(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	w := newSignInShop(t, time.Hour)
	address := base58.Encode(public)
	if public[0] == 0 {
		t.Skip("this base58 is for keys that begin with another byte")
	}
	hash := sha256.Sum256([]byte(http.MethodPost + "\x00/\x00"))
	sale := must.Get(testBook.OpenSale(t.Context(), book.Sale{UniqueKey: address, Call: hash,
		Payer: address, Resource: w.web.URL + "/", Network: "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
		Amount: money.NewAmount(1), Payload: jsonOf(1)}))(t)
	for _, sale.State = range []book.SaleState{book.SaleSettling, book.SaleSettled} {
		require.NoError(t, testBook.MoveSale(t.Context(), sale))
	}
	m := x402.SignIn{Domain: w.paywall.host, URI: w.web.URL + "/", Version: "1", Address: address,
		Type: "ed25519", ChainID: "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1", Nonce: rand.Text(),
		IssuedAt: time.Now().UTC().Format(time.RFC3339)}
	text := must.Get(m.Text())(t)
	m.Signature = base58.Encode(ed25519.Sign(key, []byte(text)))
	status, answer, _ := w.visit(t, http.MethodPost, "/", "",
		map[string]string{"sign-in-with-x": wire.EncodeSignIn(m)})
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, "true "+address)
}

func TestOriginsAndTimesThatAreNone(t *testing.T) {
	tool := Tool{Name: "a", Access: time.Hour, Accepts: []Option{{Network: "84532", Price: "1",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"}}}
	for origin, says := range map[string]string{"": "takes an origin", "shop.example": "is not like",
		"ftp://shop.example": "is not like", "https://shop.example/": "more in it",
		"https://user@shop.example": "more in it", "https://shop.example?x": "more in it"} {
		_, err := New(Options{Facilitators: newPermitBank(), Tools: []Tool{tool}, Origin: origin})
		require.ErrorContains(t, err, says, origin)
	}
	_, err := New(Options{Facilitators: newPermitBank(), Tools: []Tool{tool}, Origin: "https://a.example",
		Version: 1})
	require.ErrorContains(t, err, "version 2")
	tool.Access = 10 * maxAccess
	_, err = New(Options{Facilitators: newPermitBank(), Tools: []Tool{tool}, Origin: "https://a.example"})
	require.ErrorContains(t, err, "at most")
}

// What is sold, signed and signed in for is the seller's own, whatever host a visitor names.
func TestTheOriginIsTheSellers(t *testing.T) {
	s := newSignInShop(t, time.Hour)
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.web.URL+"/a", nil))(t)
	request.Host = "evil.example"
	response := must.Get(http.DefaultClient.Do(request))(t)
	require.NoError(t, response.Body.Close())
	c := must.Get(wire.ReadChallenge(response.StatusCode, response.Header, nil))(t)
	require.Equal(t, s.web.URL+"/a", c.Resource.URL)
	require.Equal(t, s.web.URL+"/a", message(t, c).URI)
}

// The server behind gets no sign-in, as it gets no payment.
func TestSignInsAreNotPassedOn(t *testing.T) {
	passed, done := (&Proxy{}).upstreamMeta(t.Context(), nil, mcp.Meta{wire.HeaderSignIn: "x",
		"x402/payment": "y",
		"other":        "z"})
	done()
	require.Equal(t, mcp.Meta{"other": "z"}, passed)
}
