package svm

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// No node of another chain is believed; one that was wrong or silent is asked again.
func TestAReferenceIsTheBeginningOfAGenesisHash(t *testing.T) {
	require.True(t, isGenesis(devnet, genesis))
	require.False(t, isGenesis("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", genesis))
	require.False(t, isGenesis(devnet, genesis[:32]), "a reference is no hash")
	require.False(t, isGenesis("solana:", genesis))
	require.False(t, isGenesis("eip155:1", genesis))
}

func TestGenesis(t *testing.T) {
	e, c, _ := newWallet(t)
	for i, wrong := range []any{"5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d", genesis[:32], "", 7, nil,
		rpcFault{-32000, "no"}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c.locked(func() { c.lies["getGenesisHash"] = wrong })
			_, err := e.Funds(t.Context(), devnet, usdc)
			require.True(t, x402.HasCode(err, x402.CheckFailed) || x402.HasCode(err, x402.RPCError), "%v",
				err)
			require.Equal(t, x402.HasCode(err, x402.CheckFailed),
				x402.AsError(err).FixableBy() == x402.ByPerson,
				"%v", err)
			status, err := e.Status(t.Context(), x402.Evidence{Network: devnet, Payer: keyOf(seller).String(),
				Source: mint.String(), Blockhash: nodesHash, Signature: solana.Signature{1}.String()})
			require.Error(t, err)
			require.Equal(t, x402.Status{}, status)
			c.locked(func() {
				require.LessOrEqual(t, sum(c.asked), 2*c.asked["getGenesisHash"],
					"no answer led to a question")
			})
		})
	}
	c.locked(func() { delete(c.lies, "getGenesisHash") })
	for range 3 {
		must.Get(e.Funds(t.Context(), devnet, usdc))(t)
	}
	c.locked(func() { require.Equal(t, 13, c.asked["getGenesisHash"], "asked once when it is right") })
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

func TestCancelled(t *testing.T) {
	e, _, _ := newWallet(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Funds(ctx, devnet, usdc)
	require.True(t, x402.HasCode(err, x402.RPCError), "%v", err)
	require.ErrorIs(t, err, context.Canceled)
}

// u64 above 2^53 are exact, and nothing that is not an integer is read as one.
func TestNumbers(t *testing.T) {
	e, c, _ := newWallet(t)
	n := must.Get(e.node(devnet))(t)
	for lie, want := range map[string]uint64{"9007199254740993": 9007199254740993,
		"18446744073709551615": 1<<64 - 1, "1e3": 0, "-1": 0, `"7"`: 0, "18446744073709551616": 0, "1.0": 0} {
		t.Run(lie, func(t *testing.T) {
			c.lies["getBlockHeight"] = json.RawMessage(lie)
			height, err := n.blockHeight(t.Context(), finalized)
			require.Equal(t, want, height, lie)
			require.Equal(t, want == 0, err != nil, lie)
		})
	}
}
