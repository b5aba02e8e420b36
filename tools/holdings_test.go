package tools

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// holder is a chain where the wallet has what a test says; the node of others is silent.
type holder struct {
	traitor
	tokens map[string]uint64 // by network and symbol
	coins  map[string]uint64 // by network
	onlyIn string            // Funds alone answers on it
}

func (h holder) Address() string { return "0xagent" }

func (h holder) Funds(_ context.Context, network string, a x402.AssetInfo) (x402.Funds, error) {
	if _, answers := h.coins[network]; !answers && network != h.onlyIn {
		return x402.Funds{}, x402.Errorf(x402.RPCError, "silent")
	}
	amount := money.NewAmount(h.tokens[network+" "+a.Symbol])
	return x402.Funds{Source: "0xagent", Balance: amount, Free: amount}, nil
}

func (h holder) Holdings(_ context.Context, network string, tokens []x402.AssetInfo) (some []x402.AssetInfo,
	coin money.Amount, err error) {
	units, answers := h.coins[network]
	if !answers {
		return nil, coin, errors.New("silent")
	}
	for _, a := range tokens {
		if h.tokens[network+" "+a.Symbol] > 0 {
			some = append(some, a)
		}
	}
	return some, money.NewAmount(units), nil
}

// Each token that there is something of has a row, the default one always, and so has the network's own
// money. A silent node is an error on one row, and never a zero.
func TestOthers(t *testing.T) {
	const base, polygon, avalanche, celo = "eip155:8453", "eip155:137", "eip155:43114", "eip155:42220"
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	store := must.Get(ledgers.Open(t.Context(), home, history.Options{}))(t)
	defer func() { _ = store.Close() }()
	own := x402.AssetInfo{Network: base, Address: "0x00000000000000000000000000000000000000AA",
		Symbol: "MINE", Decimals: 2}
	w := &Wallet{Store: store, Networks: []string{base, polygon, avalanche, celo, "rooch:main"},
		Engine: &pay.Engine{Assets: x402.NewRegistry([]x402.AssetInfo{own}),
			Log: slog.New(slog.DiscardHandler)},
		EVM: holder{tokens: map[string]uint64{base + " USDC": 5, base + " MINE": 7, celo + " USDT": 3},
			coins: map[string]uint64{base: 9, polygon: 1, celo: 0}, onlyIn: ""}}
	seen := func() (list []string) {
		rows, _, err := w.onChain(t.Context(), "", "", true)
		require.NoError(t, err)
		for _, r := range rows {
			amount := string(r.ErrorCode)
			if r.Error == "" {
				amount = r.Balance.Units(r.Decimals)
				require.Equal(t, r.IsCoin(), r.Available == nil, "fees alone are paid with it")
			}
			list = append(list, x402.NetworkName(r.Network)+" "+r.Symbol+" "+amount)
		}
		return list
	}
	require.Equal(t, []string{"Base USDC 0.000005", "Base MINE 0.07", "Base ETH 0.000000000000000009",
		"Polygon USDC 0", "Polygon POL 0.000000000000000001", "Avalanche USDC RPC_ERROR", "Celo USDC 0",
		"Celo USDT 0.000003"}, seen())
	alone := w.EVM.(holder)
	alone.onlyIn = avalanche
	w.EVM = alone
	require.Contains(t, seen(), "Avalanche USDC 0")
	require.Contains(t, seen(), "Avalanche AVAX CHECK_FAILED", "what else there is, is not known")
	w.Unnamed = []string{celo, polygon, avalanche}
	require.Equal(t, []string{"Base USDC 0.000005", "Base MINE 0.07", "Base ETH 0.000000000000000009",
		"Polygon USDC 0", "Polygon POL 0.000000000000000001", "Celo USDC 0", "Celo USDT 0.000003"}, seen())
	w.EVM = traitor{}
	for _, row := range seen() {
		require.Contains(t, row, "INTERNAL")
	}
	rows, _, err := w.OnChain(t.Context(), base, "")
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, x402.AskPerson, afterLook([]BalanceRow{{Asset: coinAsset, Balance: new(money.Amount)},
		{Available: new(money.Amount)}}, "").Do)
}

// The money that fees are paid in is no second balance where it is a token of the network itself.
func TestOthers_ACoinThatIsAToken(t *testing.T) {
	const arc, stable, robinhood = "eip155:5042", "eip155:988", "eip155:4663"
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	store := must.Get(ledgers.Open(t.Context(), home, history.Options{}))(t)
	defer func() { _ = store.Close() }()
	own := x402.AssetInfo{Network: arc, Address: "0x00000000000000000000000000000000000000AA",
		Symbol: "MINE", Decimals: 2}
	w := &Wallet{Store: store, Networks: []string{arc, stable, robinhood},
		Engine: &pay.Engine{Log: slog.New(slog.DiscardHandler)},
		EVM: holder{tokens: map[string]uint64{arc + " USDC": 5, arc + " MINE": 7},
			coins: map[string]uint64{arc: 5e12, stable: 1, robinhood: 9}}}
	seen := func(own ...x402.AssetInfo) (list []string) {
		w.Engine.Assets = x402.NewRegistry(own)
		rows, _, err := w.onChain(t.Context(), "", "", true)
		require.NoError(t, err)
		for _, r := range rows {
			require.Empty(t, r.Error)
			list = append(list, x402.NetworkName(r.Network)+" "+r.Symbol+" "+r.Balance.Units(r.Decimals))
		}
		return list
	}
	rest := []string{"Stable USDT0 0", "Robinhood Chain USDG 0", "Robinhood Chain ETH 0.000000000000000009"}
	require.Equal(t, append([]string{"Arc USDC 0.000005"}, rest...), seen())
	require.Equal(t, append([]string{"Arc USDC 0.000005", "Arc MINE 0.07"}, rest...), seen(own))
	w.Networks = []string{arc}
	w.EVM = holder{onlyIn: arc}
	rows, _, err := w.onChain(t.Context(), "", "", true)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, "coin", rows[1].Symbol)
	require.Equal(t, x402.CheckFailed, rows[1].ErrorCode, "what else there is, is not known")
	w.Engine.Assets = x402.NewRegistry(nil)
	rows, _, err = w.onChain(t.Context(), "", "", true)
	require.NoError(t, err)
	require.Len(t, rows, 1, "there is nothing else")
}
