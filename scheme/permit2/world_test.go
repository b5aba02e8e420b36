package permit2

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/evmtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const (
	sepolia  = evmtest.Sepolia
	payee    = evmtest.Payee
	stranger = evmtest.Stranger
	us       = evmtest.Us
	owner    = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"
)

var usdc, noon = evmtest.USDC, evmtest.Noon

type keySigner = evmtest.Signer

// fakeNode is a strict node.
type fakeNode struct{ *evmtest.Node }

func newFakeNode(t testing.TB) *fakeNode { return &fakeNode{evmtest.NewNode(t)} }

func testSigner(t testing.TB) *keySigner { return evmtest.NewSigner(t) }

func topic(address string) common.Hash { return evmtest.Topic(address) }

func hexOf(b []byte) string { return evmtest.HexOf(b) }

func requireCode(t *testing.T, want x402.Code, err error) {
	t.Helper()
	require.True(t, x402.HasCode(err, want), "%v", err)
}

func (f *fakeNode) exact(signer onchain.Signer) *evm.Exact {
	return evm.New(evm.Options{Signer: signer, RPC: map[string]string{sepolia: f.URL},
		Rand: &evmtest.Counting{}, Now: func() time.Time { return noon }})
}

func (f *fakeNode) payer(signer onchain.Signer) *Payer { return NewPayer(f.exact(signer), nil) }

// paid is a payment's evidence whose permit ended before seconds ago, by the fake node's latest block.
func paid(ago time.Duration) x402.Evidence {
	end := noon.Add(-ago).Unix()
	return x402.Evidence{Network: sepolia, Asset: usdc.Address, Payer: us, PayTo: payee,
		Amount: money.NewAmount(10000), ValidBefore: end, ExpiresAt: time.Unix(end, 0),
		Nonce: "0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"}
}
