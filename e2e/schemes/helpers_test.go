package schemes

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

func start(t *testing.T, o sandbox.Options) *World {
	s, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// evmPayer signs as the wallet does.
type evmPayer struct {
	*evm.Exact
}

func newEVMPayer(t *testing.T, s *World, balance uint64) *evmPayer {
	return newEVMPayerOf(s, testworld.NewEVMKey(t), balance)
}

func newEVMPayerOf(s *World, key evm.Signer, balance uint64) *evmPayer {
	p := &evmPayer{}
	p.Exact = evm.New(evm.Options{Signer: key, RPC: map[string]string{sandbox.EVM: s.EVMNodeURL}, Now: s.Now})
	s.Fund(p.Address(), balance)
	return p
}

// sign authorizes an offer; change may spoil what is signed.
func (p *evmPayer) sign(t *testing.T, s *World, r x402.Requirement) x402.Authorization {
	a, err := p.Authorize(t.Context(), x402.Order{Requirement: r, Asset: s.chain.Asset, Source: p.Address(),
		Validity: r.MaxTimeout, Now: s.Now()})
	require.NoError(t, err)
	return a
}

// response is an HTTP answer, read.
type response struct {
	status int
	header http.Header
	body   string
	err    error // the connection ended early
}

func get(t *testing.T, url, name, value string) response {
	return within(t, 20*time.Second, url, name, value)
}

func within(t *testing.T, patience time.Duration, url, name, value string) response {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if name != "" {
		request.Header.Set(name, value)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return response{err: err}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return response{answer.StatusCode, answer.Header, string(body), err}
}

// challenge asks a path and reads what it wants.
func challenge(t *testing.T, s *World, path string) *x402.Challenge {
	answer := get(t, s.SellerURL+path, "", "")
	require.NoError(t, answer.err)
	c, err := x402.ReadChallenge(answer.status, answer.header, []byte(answer.body))
	require.NoError(t, err)
	return c
}

// pay presents a payload for the first option.
func pay(t *testing.T, s *World, path string, c *x402.Challenge, payload json.RawMessage) response {
	return payWithin(t, 20*time.Second, s, path, c, payload)
}

func payWithin(t *testing.T, patience time.Duration, s *World, path string, c *x402.Challenge,
	payload json.RawMessage) response {
	encoded, err := x402.EncodePayload(c, c.Accepts[0], payload, nil)
	require.NoError(t, err)
	paid := x402.Attach(c.Dialect, encoded)
	return within(t, patience, s.SellerURL+path, paid.Header, paid.Value)
}

// why is the seller's reason in a refusal.
func why(t *testing.T, r response) string {
	c, err := x402.ReadChallenge(r.status, r.header, []byte(r.body))
	require.NoError(t, err, "%+v", r)
	return c.Error
}

// ask puts one question to a node.
func ask(t *testing.T, url, method, params string) (result string) {
	answer, err := http.Post(url, "application/json",
		bytes.NewReader([]byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)))
	require.NoError(t, err)
	defer answer.Body.Close()
	var read struct{ Result, Error json.RawMessage }
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&read))
	return string(read.Result) + string(read.Error)
}
