package evm

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

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
)

var usdc, noon = evmtest.USDC, evmtest.Noon

type (
	counting  = evmtest.Counting
	keySigner = evmtest.Signer
	saying    = evmtest.Saying
)

// fakeNode is a strict node.
type fakeNode struct{ *evmtest.Node }

func newFakeNode(t testing.TB) *fakeNode { return &fakeNode{evmtest.NewNode(t)} }

func testSigner(t testing.TB) *keySigner { return evmtest.NewSigner(t) }

func topic(address string) common.Hash { return evmtest.Topic(address) }

func requirement(version int) x402.Requirement {
	return x402.Requirement{Version: version, Scheme: "exact", Network: evmtest.Sepolia,
		Amount: money.NewAmount(10000), Asset: evmtest.USDC.Address, PayTo: evmtest.Payee,
		MaxTimeout: time.Minute, Extra: map[string]json.RawMessage{"name": json.RawMessage(`"USDC"`),
			"version": json.RawMessage(`"2"`)}}
}

func order(version int) onchain.Order {
	return onchain.Order{Requirement: requirement(version), Asset: evmtest.USDC, Source: evmtest.Us,
		Validity: time.Minute, Now: evmtest.Noon}
}

func readJSON[T any](t testing.TB, path string) T {
	t.Helper()
	return evmtest.ReadJSON[T](t, path)
}

func (f *fakeNode) exact(t testing.TB, signer onchain.Signer) *Exact {
	return New(Options{Signer: signer, RPC: map[string]string{sepolia: f.URL}, Rand: &counting{},
		Now: func() time.Time {
			return noon
		}})
}

func requireCode(t *testing.T, want x402.Code, err error) {
	require.True(t, x402.HasCode(err, want), "%v", err)
}

// vectors are the reference client's (@x402/* 2.27.0), with the public test key of Anvil and
// Hardhat.
type vectors struct {
	EVMPrivateKey, EVMAddress string
	Vectors                   map[string]struct {
		Payload   struct{ Payload json.RawMessage }
		TypedData []struct{ Digest, DomainSeparator, Signature string }
	}
}

// answeredBy is an Exact whose node says this.
func answeredBy(s saying) *Exact {
	return New(Options{RPC: map[string]string{sepolia: "http://node"}, HTTP: &http.Client{Transport: s},
		Now: func() time.Time { return noon }})
}

func hexOf(b []byte) string { return evmtest.HexOf(b) }
