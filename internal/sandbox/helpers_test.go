package sandbox

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

func start(t *testing.T, o Options) *Sandbox {
	s := must.Get(Start(o))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type evmPayer struct {
	*evm.Exact
}

func newEVMPayer(t *testing.T, s *Sandbox, balance uint64) *evmPayer {
	p := &evmPayer{evm.New(evm.Options{Signer: testworld.NewEVMKey(t),
		RPC: map[string]string{EVM: s.EVMNodeURL}, Now: s.Now})}
	s.Fund(p.Address(), balance)
	return p
}

// sign authorizes an offer; change may spoil what is signed.
func (p *evmPayer) sign(t *testing.T, s *Sandbox, r x402.Requirement) onchain.Authorization {
	return must.Get(p.Authorize(t.Context(), onchain.Order{Requirement: r, Asset: s.evm.Asset,
		Source:   p.Address(),
		Validity: r.MaxTimeout, Now: s.Now()}))(t)
}

// pay presents a payload for the first option of a challenge.
func pay(t *testing.T, s *Sandbox, path string, c *wire.Challenge, payload json.RawMessage) testworld.Answer {
	return testworld.Pay(t, s.SellerURL+path, c, payload)
}

type draftStep struct {
	program  solana.PublicKey
	accounts []int
	data     []byte
}

// draft is a Solana payment that tests spoil before it is signed.
type draft struct {
	feePayer, agent, source, destination, mint solana.PublicKey
	amount, price                              uint64
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
