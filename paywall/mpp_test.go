package paywall

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

type mppShop struct {
	*lab
	web *httptest.Server
}

func newMPPShop(t *testing.T, on bool) *mppShop {
	t.Helper()
	l := newLab(t, func(l *lab, o *Options) {
		o.MPP = on
		o.Tools = append(o.Tools, Tool{Name: "report", Accepts: []Option{
			{Network: "84532", PayTo: l.PayToEVM, Amount: "2000", Asset: "usdc"},
			{Network: "solana-devnet", PayTo: l.PayToSolana, Amount: "2000", Asset: "usdc"}}})
	})
	web := httptest.NewServer(l.paywall.HTTP("report", http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(product)) })))
	t.Cleanup(func() { web.Close(); http.DefaultClient.CloseIdleConnections() })
	return &mppShop{l, web}
}

func (s *mppShop) get(t *testing.T, header, value string) *http.Response {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, s.web.URL, nil))(t)
	if header != "" {
		request.Header.Set(header, value)
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	require.NoError(t, response.Body.Close())
	return response
}

// ask is the challenge, and which of its options is in MPP.
func (s *mppShop) ask(t *testing.T) (c *wire.Challenge, r x402.Requirement) {
	t.Helper()
	response := s.get(t, "", "")
	c = must.Get(wire.ReadChallenge(response.StatusCode, response.Header, nil))(t)
	require.Len(t, c.Accepts, 4, "two in x402, and two in MPP")
	require.Equal(t, x402.MPP, c.Accepts[2].Scheme)
	return c, c.Accepts[2]
}

func TestSellsInMPP(t *testing.T) {
	s := newMPPShop(t, true)
	c, r := s.ask(t)
	require.Equal(t, "2000", r.Amount.String())
	require.Equal(t, s.PayToEVM, r.PayTo)
	require.Equal(t, "127.0.0.1", r.Charge.Realm)
	require.WithinDuration(t, time.Now().Add(defaultTimeout), r.Charge.Expires, time.Minute)

	with := wire.Attach(r.Dialect, s.payer.signFor(t, c, r, time.Minute, nil))
	response := s.get(t, with.Header, with.Value)
	require.Equal(t, 200, response.StatusCode)
	paid := s.Settlements()[0]
	require.EqualValues(t, 2000, paid.Amount)
	text := must.Get(base64.RawURLEncoding.DecodeString(response.Header.Get("Payment-Receipt")))(t)
	receipt := must.JSON[map[string]string](text)(t)
	require.Equal(t, paid.Transaction, receipt["reference"])
	require.Equal(t, "success", receipt["status"])

	// The same credential, and the same challenge answered again: one payment.
	require.Equal(t, 409, s.get(t, with.Header, with.Value).StatusCode)
	anew := wire.Attach(r.Dialect, s.payer.signFor(t, c, r, 2*time.Minute, nil))
	require.NotEqual(t, with.Value, anew.Value)
	require.Equal(t, 409, s.get(t, anew.Header, anew.Value).StatusCode)
	require.Len(t, s.Settlements(), 1)
}

func TestSellsInMPPOnSolana(t *testing.T) {
	s := newMPPShop(t, true)
	s.payer.openSolana(t)
	sign := func() wire.Attachment {
		c, _ := s.ask(t)
		r := c.Accepts[3]
		require.Equal(t, "solana", r.Charge.Method)
		require.Equal(t, "2000", r.Amount.String())
		require.Equal(t, c.Accepts[1].ExtraString("feePayer"), r.ExtraString("feePayer"))
		return wire.Attach(r.Dialect, s.payer.signSolana(t, c, 3))
	}
	one, other := sign(), sign()
	require.NotEqual(t, one.Value, other.Value)

	// what was signed for one challenge, as the answer to another
	opened := func(value string) (credential map[string]json.RawMessage) {
		text := must.Get(base64.RawURLEncoding.DecodeString(strings.TrimPrefix(value, "Payment ")))(t)
		return must.JSON[map[string]json.RawMessage](text)(t)
	}
	mixed := opened(one.Value)
	mixed["challenge"] = opened(other.Value)["challenge"]
	response := s.get(t, one.Header, "Payment "+base64.RawURLEncoding.EncodeToString(jsonOf(mixed)))
	require.Equal(t, 402, response.StatusCode)
	require.Empty(t, s.Settlements())

	response = s.get(t, one.Header, one.Value)
	require.Equal(t, 200, response.StatusCode)
	text := must.Get(base64.RawURLEncoding.DecodeString(response.Header.Get("Payment-Receipt")))(t)
	receipt := must.JSON[map[string]string](text)(t)
	require.Equal(t, "solana", receipt["method"])
	require.Equal(t, s.Settlements()[0].Transaction, receipt["reference"])
	require.Equal(t, 409, s.get(t, one.Header, one.Value).StatusCode)
	require.Equal(t, 200, s.get(t, other.Header, other.Value).StatusCode)
	require.Len(t, s.Settlements(), 2)
}

func TestTempoIsSoldInMPPAlone(t *testing.T) {
	const node = "http://127.0.0.1:9" // is never asked
	option := Option{Network: x402.TempoMainnet, PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		Price: "0.01"}
	open := func(o Option, change func(*Options)) (*Paywall, error) {
		options := Options{MPP: true, Store: testBook, Nodes: map[string]string{x402.TempoMainnet: node},
			Tools: []Tool{{Name: "report", Accepts: []Option{o}}}}
		change(&options)
		return New(options)
	}
	for says, change := range map[string]func(*Options){
		"in MPP alone":          func(o *Options) { o.MPP = false },
		"none for eip155:4217":  func(o *Options) { o.Nodes = nil },
		"no name in version 1":  func(o *Options) { o.Version = 1 },
		"USDC.e is not paid by": func(o *Options) { o.Tools[0].Accepts[0].Scheme = "exact" },
		"USDC is not paid by tempo": func(o *Options) {
			o.Tools[0].Accepts[0].Network, o.Tools[0].Accepts[0].Scheme = "base", "tempo"
		},
	} {
		_, err := open(option, change)
		require.ErrorContains(t, err, says)
	}
	w := must.Get(open(option, func(*Options) {}))(t)
	require.Empty(t, w.Check(t.Context()))
	web := httptest.NewServer(w.HTTP("report", http.NotFoundHandler()))
	t.Cleanup(func() { web.Close(); http.DefaultClient.CloseIdleConnections() })
	s := &mppShop{web: web}
	response := s.get(t, "", "")
	require.Equal(t, 402, response.StatusCode)
	required := must.Get(base64.StdEncoding.DecodeString(response.Header.Get(wire.HeaderRequired)))(t)
	require.Contains(t, string(required), `"accepts":[]`)
	require.NotContains(t, string(required), "4217")
	c := must.Get(wire.ReadChallenge(response.StatusCode, response.Header, nil))(t)
	require.Len(t, c.Accepts, 1)
	require.Equal(t, x402.Tempo, c.Accepts[0].Scheme)
	require.Equal(t, "10000", c.Accepts[0].Amount.String())
	require.False(t, c.Accepts[0].Charge.SellerPaysFee || c.Accepts[0].Charge.Push)

	// our terms, as if they were an option of x402
	terms := w.tools["report"].options[0].terms.Raw
	payment := jsonOf(map[string]any{"x402Version": 2, "accepted": terms, "payload": map[string]string{
		"transaction": "0x76"}})
	response = s.get(t, "PAYMENT-SIGNATURE", base64.StdEncoding.EncodeToString(payment))
	require.Equal(t, 402, response.StatusCode)
}

func TestCredentialsThatAreNotTaken(t *testing.T) {
	s := newMPPShop(t, true)
	c, r := s.ask(t)
	good := s.payer.signFor(t, c, r, time.Minute, nil)
	for name, change := range map[string]struct {
		member, key, value string
		status             int
	}{
		"another challenge":      {"challenge", "id", "x", 402}, // its nonce is not the signed one
		"no challenge":           {"challenge", "id", "", 400},
		"another realm":          {"challenge", "realm", "bank.example", 400},
		"another method":         {"challenge", "method", "tempo", 400},
		"another intent":         {"challenge", "intent", "session", 400},
		"a lower price":          {"challenge", "request", "e30", 402},
		"no price":               {"challenge", "request", "", 402},
		"a transaction":          {"payload", "type", "transaction", 400},
		"a lower amount":         {"payload", "value", "1", 402},
		"somebody else's":        {"payload", "to", s.payer.Address(), 402},
		"another payer":          {"payload", "from", s.PayToEVM, 402},
		"an unknown member":      {"payload", "extra", "1", 400},
		"a nonce of one's own":   {"payload", "nonce", "0x" + strings.Repeat("11", 32), 402},
		"a signature of nothing": {"payload", "signature", "0x" + strings.Repeat("11", 65), 402},
	} {
		t.Run(name, func(t *testing.T) {
			var credential map[string]map[string]string
			trimmed := map[string]json.RawMessage{}
			require.NoError(t, json.Unmarshal(good, &trimmed))
			delete(trimmed, "source")
			text := must.Get(json.Marshal(trimmed))(t)
			require.NoError(t, json.Unmarshal(text, &credential))
			credential[change.member][change.key] = change.value
			text = must.Get(json.Marshal(credential))(t)
			response := s.get(t, "Authorization", "Payment "+base64.RawURLEncoding.EncodeToString(text))
			require.Equal(t, change.status, response.StatusCode)
		})
	}
	twice := base64.RawURLEncoding.EncodeToString([]byte(`{"challenge":{},"challenge":{}}`))
	for _, value := range []string{"Payment %%%", "Payment e30", "Payment " + twice} {
		require.Equal(t, 400, s.get(t, "Authorization", value).StatusCode, value)
	}
	require.Equal(t, 402, s.get(t, "Authorization", "Bearer x").StatusCode, "that is for the handler")
	require.Empty(t, s.Settlements())
}

func TestMPPIsOffUnlessSwitchedOn(t *testing.T) {
	s := newMPPShop(t, false)
	response := s.get(t, "", "")
	require.Empty(t, response.Header.Values("WWW-Authenticate"))
	require.Equal(t, 402, s.get(t, "Authorization", "Payment e30").StatusCode)
}
