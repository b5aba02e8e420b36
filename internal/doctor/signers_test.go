package doctor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet"
	"x402-wallet/x402"
)

type asked struct {
	name string
	err  error
}

func (a asked) Account() (name, address string)                    { return a.name, "0xabc" }
func (a asked) Sign(context.Context, wallet.Order) ([]byte, error) { panic("nothing is signed") }
func (a asked) Check(context.Context) error                        { return a.err }

// Each signer is asked whether it is there; one that is not keeps the wallet from paying.
func TestSigners(t *testing.T) {
	list := askSigners(t.Context(), map[string]wallet.Signer{
		wallet.ChainEVM: asked{name: "hsm"},
		wallet.ChainSolana: asked{name: "cloud", err: x402.Errorf(x402.NetworkError,
			"the signer cloud could not be reached").WithHint("look at the network")},
	})
	require.Equal(t, findings{
		{Status: ok, Message: "the signer hsm is there, with the key of 0xabc"},
		{Status: fail, Message: "the signer cloud could not be reached", Remedy: "look at the network"},
	}, list)
}
