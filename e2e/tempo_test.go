package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
)

// tempoRules is a config.toml for a wallet on Tempo alone.
func tempoRules(tempo *testlab.Tempo, policy string, loopback ...string) string {
	return fmt.Sprintf("[budget]\n%s\n\n[policy]\nloopback = [\"%s\"]\n%s\n\n%s", plenty,
		strings.Join(append(tempo.Loopback(), loopback...), `", "`), policy, tempo.Tables())
}

// onTempo starts a wallet with a dollar of pathUSD.
func onTempo(t *testing.T, tempo *testlab.Tempo, policy string) (*Wallet, testworld.Home) {
	t.Helper()
	home := testworld.NewHome(t, tempoRules(tempo, policy))
	tempo.Fund(home.EVM, tempo.PathUSD, 1_000_000)
	return testworld.StartWallet(t, testworld.Build(t), home), home
}

const tempoPrice = 10_000

// The seller pays the network's fee: the buyer pays the price and nothing else.
func TestPaysOnTempo(t *testing.T) {
	tempo := testlab.StartTempo(t)
	w, home := onTempo(t, tempo, "")
	tempo.Fund(home.EVM, tempo.USDC, 50_000)
	for i, path := range []string{"/goods", "/goods", "/usdc"} {
		p := payFor(t, w, tempo.HTTP+path)
		require.Equal(t, "paid", p.Status, "%d %+v", i, p)
	}
	require.Equal(t, uint64(1_000_000-2*tempoPrice), tempo.Balance(tempo.PathUSD, home.EVM))
	require.Equal(t, uint64(50_000-tempoPrice), tempo.Balance(tempo.USDC, home.EVM))
	p := call(t, w, "x402_call_tool", map[string]any{"server": tempo.MCP, "tool": "weather"})
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(3*tempoPrice), tempo.Balance(tempo.PathUSD, tempo.Shop))
	runWallet(t, home, testworld.Build(t), nil, "reconcile")
	rows := history(t, w)
	require.Len(t, rows, 4)
	for _, row := range rows {
		require.Equal(t, []string{"settled", "chain", "$0.01"}, []string{row.Status, row.Proof, row.Price})
		requireReceipt(t, home, row.PaymentID)
	}
}

// Where the seller does not pay the network's fee, the owner says what it may be. It counts with the price
// until the chain shows what it came to.
func TestPaysTheFeeOnTempo(t *testing.T) {
	tempo := testlab.StartTempo(t)
	w, home := onTempo(t, tempo, `network_fee = "0.03"`)
	tempo.Fund(home.EVM, tempo.USDC, 50_000)
	for _, path := range []string{"/own-fee", "/push", "/usdc-own-fee"} {
		p := payFor(t, w, tempo.HTTP+path)
		require.Equal(t, "paid", p.Status, "%s %+v", path, p)
		t.Logf("%s: %+v", path, p)
	}
	t.Log(tempo.Balance(tempo.PathUSD, home.EVM), tempo.Balance(tempo.USDC, home.EVM))

	none, own := onTempo(t, tempo, "")
	p := payFor(t, none, tempo.HTTP+"/own-fee")
	require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
	require.Contains(t, p.Message, "policy.network_fee")
	require.Equal(t, "x402-wallet policy seal", p.Next.Command, "%+v", p)
	require.Equal(t, uint64(1_000_000), tempo.Balance(tempo.PathUSD, own.EVM))
}

// A lost answer: the money has moved once, and no second transaction is signed for the same call.
func TestTempoIsPaidOnce(t *testing.T) {
	tempo := testlab.StartTempo(t)
	for _, spoil := range []string{`{"lose":1}`, `{"down":"after"}`} {
		w, home := onTempo(t, tempo, "")
		tempo.Do(spoil)
		first := payFor(t, w, tempo.HTTP+"/goods")
		tempo.Do(`{"down":""}`)
		second := payFor(t, w, tempo.HTTP+"/goods")
		t.Logf("%s\n%+v\n%+v", spoil, first, second)
		require.Equal(t, uint64(1_000_000-tempoPrice), tempo.Balance(tempo.PathUSD, home.EVM))
		require.Len(t, history(t, w), 1)
	}
}

func TestTempoChallengesThatAreNotPaid(t *testing.T) {
	tempo := testlab.StartTempo(t)
	w, home := onTempo(t, tempo, "")
	memo := "0x" + strings.Repeat("ab", 32)
	for _, c := range []struct{ change, code, says string }{
		{`{"request":{"methodDetails":{"chainId":8453}}}`, "INVALID_REQUIREMENT", `the chainId is "8453"`},
		{`{"request":{"methodDetails":{"chainId":null}}}`, "INVALID_REQUIREMENT", "has no chainId"},
		{`{"request":{"methodDetails":{"chainId":42431}}}`, "INVALID_REQUIREMENT", "no node"},
		{`{"request":{"methodDetails":{"memo":"` + memo + `00"}}}`, "INVALID_REQUIREMENT", "64 hex digits"},
		{`{"request":{"currency":"0x20c0000000000000000000000000000000000007"}}`, "UNTRUSTED_ASSET", "registry"},
		{`{"request":{"currency":"` + tempo.Shop + `"}}`, "UNTRUSTED_ASSET", "registry"},
		{`{"request":{"recipient":"` + home.EVM + `"}}`, "INVALID_REQUIREMENT", "own address"},
		{`{"request":{"amount":"0"}}`, "INVALID_REQUIREMENT", "at least 1"},
		{`{"request":{"amount":"2000000"}}`, "BUDGET_EXCEEDED", "per_call"},
		{`{"request":{"methodDetails":{"splits":[{"amount":"1","recipient":"` + tempo.Shop + `"}]}}}`,
			"INVALID_REQUIREMENT", "split"},
		{`{"request":{"methodDetails":{"supportedModes":["post"]}}}`, "INVALID_REQUIREMENT", "neither pull"},
		{`{"request":{"methodDetails":{"supportedModes":["push"]}}}`, "INVALID_REQUIREMENT", "both cannot be"},
		{`{"expires":"2020-01-01T00:00:00Z"}`, "INVALID_REQUIREMENT", "ended at"},
	} {
		tempo.Do(`{"request":{},"expires":""}`)
		tempo.Do(c.change)
		p := payFor(t, w, tempo.HTTP+"/custom")
		require.Equal(t, c.code, p.Error, "%s %+v", c.change, p)
		require.Contains(t, p.Message+fmt.Sprint(p.Details), c.says, "%s %+v", c.change, p)
		require.Equal(t, "0", p.Spent)
	}
	p := payFor(t, w, tempo.HTTP+"/session")
	require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
	require.Contains(t, p.Message, "tempo/session")
	require.Empty(t, history(t, w))
	require.Equal(t, uint64(1_000_000), tempo.Balance(tempo.PathUSD, home.EVM))
}

// A seller that asks twice with the same challenge takes two transactions for it. The wallet signs one.
func TestTempoSignsOnceForAChallenge(t *testing.T) {
	tempo := testlab.StartTempo(t)
	w, home := onTempo(t, tempo, "")
	tempo.Do(`{"expires":"2099-01-01T00:00:00.000Z"}`)
	p := payFor(t, w, tempo.HTTP+"/custom?n=1")
	require.Equal(t, "paid", p.Status, "%+v", p)
	p = payFor(t, w, tempo.HTTP+"/custom?n=2")
	require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
	require.Contains(t, p.Message, "answered with another payment before")
	require.Equal(t, uint64(1_000_000-tempoPrice), tempo.Balance(tempo.PathUSD, home.EVM))
}

// A seller that never sends what it was shown: the same bytes are shown again while they can run, and no
// other challenge is paid for the same call until the chain shows that they cannot. What the network took of
// a fee counts, and not what it might have taken.
func TestTempoUntilAPaymentIsOver(t *testing.T) {
	if !*patient {
		t.Skip("it takes three minutes: go test ./e2e -run TempoUntil -args -patient")
	}
	tempo := testlab.StartTempo(t)
	w, home := onTempo(t, tempo, `network_fee = "0.03"`)
	p := payFor(t, w, tempo.HTTP+"/own-fee")
	require.Equal(t, "paid", p.Status, "%+v", p)
	withFee := 1_000_000 - tempo.Balance(tempo.PathUSD, home.EVM)
	require.Less(t, withFee, uint64(tempoPrice+30_000))

	tempo.Do(`{"down":"before"}`)
	p = payFor(t, w, tempo.HTTP+"/goods")
	require.Equal(t, "OUTCOME_UNKNOWN", p.Error, "%+v", p)
	require.Equal(t, fmt.Sprint(tempoPrice), p.Spent)
	tempo.Do(`{"down":""}`)
	again := payFor(t, w, tempo.HTTP+"/goods")
	require.Equal(t, "PAYMENT_REJECTED", again.Error, "%+v", again)
	require.Equal(t, p.PaymentID, again.PaymentID)
	require.Equal(t, 1_000_000-withFee, tempo.Balance(tempo.PathUSD, home.EVM))

	time.Sleep(2*time.Minute + 30*time.Second) // by the wallet's own clock, too
	tempo.Do(`{"mine":70}`)                    // of which the last 64 are not final on anvil
	once := payFor(t, w, tempo.HTTP+"/goods")
	require.Equal(t, "paid", once.Status, "%+v", once)
	require.NotEqual(t, p.PaymentID, once.PaymentID)
	require.Equal(t, 1_000_000-withFee-tempoPrice, tempo.Balance(tempo.PathUSD, home.EVM))
	runWallet(t, home, testworld.Build(t), nil, "reconcile")
	rows := history(t, w)
	require.Len(t, rows, 3)
	require.Equal(t, []string{"settled", "failed", "settled"},
		[]string{rows[0].Status, rows[1].Status, rows[2].Status})
	require.Equal(t, fmt.Sprintf("$%d.%06d", withFee/1_000_000, withFee%1_000_000), rows[2].Price)
	receipt := requireReceipt(t, home, rows[2].PaymentID)
	require.Contains(t, receipt, fmt.Sprintf(`"amount": "%d"`, withFee))
	require.Contains(t, receipt, `"upTo": "40000"`)
}
