package batch

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/evmtest"
	"x402-wallet/scheme/permit2"
	"x402-wallet/x402"
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

type (
	keySigner = evmtest.Signer
	saying    = evmtest.Saying
)

// fakeNode is a strict node.
type fakeNode struct{ *evmtest.Node }

func newFakeNode(t testing.TB) *fakeNode { return &fakeNode{evmtest.NewNode(t)} }

func testSigner(t testing.TB) *keySigner { return evmtest.NewSigner(t) }

func topic(address string) common.Hash { return evmtest.Topic(address) }

func requireCode(t *testing.T, want x402.Code, err error) {
	t.Helper()
	require.True(t, x402.HasCode(err, want), "%v", err)
}

func (f *fakeNode) exact(signer onchain.Signer) *evm.Exact {
	return evm.New(evm.Options{Signer: signer, RPC: map[string]string{sepolia: f.URL},
		Rand: &evmtest.Counting{}, Now: func() time.Time { return noon }})
}

// answering is an Exact whose node says this.
func answering(s saying) *evm.Exact {
	return evm.New(evm.Options{RPC: map[string]string{sepolia: "http://node"},
		HTTP: &http.Client{Transport: s}, Now: func() time.Time { return noon }})
}

func (f *fakeNode) contractFor(signer onchain.Signer, longest time.Duration) *Contract {
	return NewContract(permit2.NewPayer(f.exact(signer), nil), longest)
}

func contractOf(s saying) *Contract {
	return NewContract(permit2.NewPayer(answering(s), nil), time.Hour)
}

func compacted(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, raw))
	return b.String()
}
