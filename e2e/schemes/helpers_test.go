package schemes

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/scheme/permit2"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

func start(t *testing.T, o sandbox.Options) *World {
	s := must.Get(Start(o))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type evmPayer struct {
	*evm.Exact
}

func newEVMPayer(t *testing.T, s *World, balance uint64) *evmPayer {
	return newEVMPayerOf(s, testworld.NewEVMKey(t), balance)
}

func newEVMPayerOf(s *World, key onchain.Signer, balance uint64) *evmPayer {
	p := &evmPayer{}
	p.Exact = evm.New(evm.Options{Signer: key, RPC: map[string]string{sandbox.EVM: s.EVMNodeURL}, Now: s.Now})
	s.Fund(p.Address(), balance)
	return p
}

// byPermit2 pays from the same account by Permit2.
func (p *evmPayer) byPermit2() *permit2.Payer { return permit2.NewPayer(p.Exact, nil) }

// sign authorizes an offer; change may spoil what is signed.
func (p *evmPayer) sign(t *testing.T, s *World, r x402.Requirement) onchain.Authorization {
	return must.Get(p.Authorize(t.Context(), onchain.Order{Requirement: r, Asset: s.chain.Asset,
		Source: p.Address(), Validity: r.MaxTimeout, Now: s.Now()}))(t)
}

// pay presents a payload for the first option of a challenge.
func pay(t *testing.T, s *World, path string, c *wire.Challenge, payload json.RawMessage) testworld.Answer {
	return testworld.Pay(t, s.SellerURL+path, c, payload)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signDigest has a key sign a digest.
func signDigest(t *testing.T, key onchain.Signer, digest [32]byte) [65]byte {
	t.Helper()
	return [65]byte(must.Get(key.Sign(t.Context(), onchain.Draft{Signs: [][]byte{digest[:]}}))(t))
}
