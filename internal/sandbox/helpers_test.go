package sandbox

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/x402"
)

func start(t *testing.T, o Options) *Sandbox {
	s, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// evmPayer signs as the wallet does.
type evmPayer struct {
	*evm.Exact
}

func newEVMPayer(t *testing.T, s *Sandbox, balance uint64) *evmPayer {
	return newEVMPayerOf(s, testworld.NewEVMKey(t), balance)
}

func newEVMPayerOf(s *Sandbox, key evm.Signer, balance uint64) *evmPayer {
	p := &evmPayer{}
	p.Exact = evm.New(evm.Options{Signer: key, RPC: map[string]string{EVM: s.EVMNodeURL}, Now: s.now})
	s.Fund(p.Address(), balance)
	return p
}

// sign authorizes an offer; change may spoil what is signed.
func (p *evmPayer) sign(t *testing.T, s *Sandbox, r x402.Requirement) x402.Authorization {
	a, err := p.Authorize(t.Context(), x402.Order{Requirement: r, Asset: s.evm.Asset, Source: p.Address(),
		Validity: r.MaxTimeout, Now: s.now()})
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
func challenge(t *testing.T, s *Sandbox, path string) *x402.Challenge {
	answer := get(t, s.SellerURL+path, "", "")
	require.NoError(t, answer.err)
	c, err := x402.ReadChallenge(answer.status, answer.header, []byte(answer.body))
	require.NoError(t, err)
	return c
}

// pay presents a payload for the first option.
func pay(t *testing.T, s *Sandbox, path string, c *x402.Challenge, payload json.RawMessage) response {
	return payWithin(t, 20*time.Second, s, path, c, payload)
}

func payWithin(t *testing.T, patience time.Duration, s *Sandbox, path string, c *x402.Challenge,
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

// facilitate calls /settle as a wallet would.
func facilitate(t *testing.T, s *Sandbox, path string, c *x402.Challenge, payload json.RawMessage) (int,
	*x402.Settlement) {
	encoded, err := x402.EncodePayload(c, c.Accepts[0], payload, nil)
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{"x402Version": c.Version, "paymentPayload": encoded,
		"paymentRequirements": x402.RequirementJSON(c.Accepts[0])})
	require.NoError(t, err)
	answer, err := http.Post(s.FacilitatorURL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	settlement, _ := x402.DecodeSettlement(text)
	return answer.StatusCode, settlement
}

// draftStep is an instruction with its accounts as indexes.
type draftStep struct {
	program  solana.PublicKey
	accounts []int
	data     []byte
}

// draft is a Solana payment that tests spoil before it is signed.
type draft struct {
	feePayer, agent, source, destination, mint solana.PublicKey
	amount                                     uint64
	price                                      uint64
	memo                                       string
	blockhash                                  solana.PublicKey
	authority                                  byte // index of the authority among the keys
	more                                       []draftStep
	legacy                                     bool
}

func newDraft(t *testing.T, s *Sandbox, agent solana.PrivateKey, source string, amount uint64) *draft {
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	return &draft{feePayer: solana.MPK(s.FeePayer), agent: agent.PublicKey(), source: solana.MPK(source),
		destination: s.solana.associated(solana.MPK(s.PayToSolana)), mint: s.solana.mint,
		amount: amount, price: 1, memo: "0123456789abcdef", blockhash: s.solana.issue(s.solana.slot()),
		authority: 1}
}

// wire is the transaction with the agent's signature, base64.
func (d *draft) wire(agent solana.PrivateKey) string {
	le := binary.LittleEndian
	keys := []solana.PublicKey{d.feePayer, d.agent, d.source, d.destination, d.mint, solana.ComputeBudget,
		solana.MemoProgramID, solana.TokenProgramID}
	steps := []draftStep{
		{program: solana.ComputeBudget, data: le.AppendUint32([]byte{2}, 20_000)},
		{program: solana.ComputeBudget, data: le.AppendUint64([]byte{3}, d.price)},
		{program: solana.TokenProgramID, accounts: []int{2, 4, 3, int(d.authority)},
			data: append(le.AppendUint64([]byte{12}, d.amount), 6)},
	}
	if d.memo != "" {
		steps = append(steps, draftStep{program: solana.MemoProgramID, data: []byte(d.memo)})
	}
	message := assemble([3]byte{2, 1, 4}, keys, d.blockhash, append(steps, d.more...), d.legacy)
	raw := append([]byte{2}, make([]byte, 64)...)
	signature := sign(agent, message)
	raw = append(append(raw, signature[:]...), message...)
	return base64.StdEncoding.EncodeToString(raw)
}

// assemble writes a message: how many keys sign, how many of those and of the others are read only,
// then the rest.
func assemble(header [3]byte, keys []solana.PublicKey, blockhash solana.PublicKey, steps []draftStep,
	legacy bool) []byte {
	message := append([]byte{0x80}, header[:]...)
	if legacy {
		message = message[1:]
	}
	message = append(message, byte(len(keys)))
	for _, k := range keys {
		message = append(message, k[:]...)
	}
	message = append(append(message, blockhash[:]...), byte(len(steps)))
	for _, step := range steps {
		message = append(message, byte(slices.Index(keys, step.program)), byte(len(step.accounts)))
		for _, i := range step.accounts {
			message = append(message, byte(i))
		}
		message = append(append(message, byte(len(step.data))), step.data...)
	}
	if !legacy {
		message = append(message, 0)
	}
	return message
}

func transactionPayload(text string) json.RawMessage {
	payload, _ := json.Marshal(map[string]string{"transaction": text})
	return payload
}
