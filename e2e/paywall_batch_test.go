package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall"
	"x402-wallet/x402"
)

// newBatchShop is a handler of ours that sells by batch-settlement, by the reference facilitator, whose news
// come by the control of its seller. It is paid to an address of its own, because whoever pays out pays all
// that was claimed for one; earned is what came there.
func newBatchShop(t *testing.T, lab *Lab) (s *waysShop, reference *batchSeller, earned func() uint64) {
	t.Helper()
	payTo := testworld.NewEVMKey(t).Address()
	reference = startBatch(t, lab)
	s = newWaysShop(t, lab, func(o *paywall.Options) {
		o.Facilitators = facilitator.New(facilitator.Options{List: []facilitator.Facilitator{
			{Name: "batch", URL: reference.Facilitator}}})
	}, paywall.Tool{Name: "report", Accepts: at(lab, "0.001", func(o *paywall.Option) {
		o.Scheme, o.PayTo = x402.BatchSettlement, payTo
	})})
	require.NoError(t, s.paywall.CheckChannels(t.Context()))
	return s, reference, func() uint64 { return lab.EVMBalance(payTo) }
}

// channelVisits lets a reference client with a new key and a million units visit one after the other.
func (s *waysShop) channelVisits(t *testing.T, lab *Lab, visits ...map[string]any) (all []channelVisit,
	balance func() uint64) {
	t.Helper()
	key := make([]byte, 32)
	must.Get(rand.Read(key))(t)
	return s.channelVisitsAs(t, lab, fmt.Sprintf("0x%x", key), visits...)
}

type channelVisit struct {
	Status               int
	Body, Error, Address string
	Receipt              *struct {
		Success             bool
		Transaction, Amount string
		Extra               struct {
			ChargedAmount string
			ChannelState  struct{ Balance, TotalClaimed, ChargedCumulativeAmount string }
		}
	}
}

func (s *waysShop) channelVisitsAs(t *testing.T, lab *Lab, key string, visits ...map[string]any) (
	all []channelVisit, balance func() uint64) {
	t.Helper()
	home := homeOf(t, lab.Config(ConfigOptions{}), key)
	lab.EVMMint(home.EVM, 1_000_000)
	options := map[string]any{"url": s.url, "node": lab.EVM.URL, "key": key,
		"visits": visits}
	testlab.StartParty(t, "parties/buyer.mjs", options, &all)
	require.Len(t, all, len(visits))
	return all, func() uint64 { return lab.EVMBalance(home.EVM) }
}

// The reference client buys at a handler of ours with one deposit and vouchers alone; what was charged is
// claimed, and no more; a client that forgot its channel is told the count; the rest comes back.
func TestReferenceClientBuysByBatchSettlement(t *testing.T) {
	lab := Start(t)
	s, reference, earned := newBatchShop(t, lab)
	buy := map[string]any{"path": "/report", "scheme": x402.BatchSettlement}
	got, balance := s.channelVisits(t, lab, buy, buy, buy, buy, buy,
		map[string]any{"path": "/report", "again": true},
		map[string]any{"path": "/report", "scheme": x402.BatchSettlement, "forget": true},
		map[string]any{"path": "/report", "refund": true})
	for i, v := range got[:5] {
		require.Equal(t, 200, v.Status, "%d: %+v", i, got)
		require.Equal(t, fmt.Sprintf("goods %d", i+1), v.Body)
		require.Equal(t, i == 0, v.Receipt.Transaction != "", "%d", i)
		require.Equal(t, []string{"1000", fmt.Sprint((i + 1) * 1000)}, []string{v.Receipt.Extra.ChargedAmount,
			v.Receipt.Extra.ChannelState.ChargedCumulativeAmount})
	}
	require.Equal(t, "10000", got[0].Receipt.Amount)
	require.Equal(t, 402, got[5].Status, "%+v", got[5])
	require.Contains(t, got[5].Body, "invalid_batch_settlement_evm_cumulative_amount_mismatch")
	require.Equal(t, 200, got[6].Status, "%+v", got[6])
	require.Equal(t, "goods 6", got[6].Body)
	require.Equal(t, []string{"4000", "6000"}, []string{got[7].Receipt.Amount,
		got[7].Receipt.Extra.ChannelState.TotalClaimed}, "%+v", got[7])
	require.Equal(t, uint64(1_000_000-6000), balance())
	require.Equal(t, []string{"deposit", "multicall"}, reference.control(t, `{}`).Sent)
	require.Zero(t, earned(), "it is not paid out yet")

	require.Len(t, must.Get(s.paywall.Claim(t.Context()))(t), 1)
	require.Equal(t, []string{"settle"}, reference.control(t, `{}`).Sent)
	require.Equal(t, uint64(6000), earned())
}

// Many buyers' vouchers are claimed in one transaction: exactly what was charged.
func TestOurPaywallClaimsWhatItCharged(t *testing.T) {
	lab := Start(t)
	s, reference, earned := newBatchShop(t, lab)
	buy := map[string]any{"path": "/report", "scheme": x402.BatchSettlement}
	for n := range 2 {
		got, _ := s.channelVisits(t, lab, []map[string]any{buy, buy, buy}[:2+n]...)
		require.Equal(t, 200, got[1+n].Status, "%+v", got)
	}
	reference.control(t, `{}`)
	done := must.Get(s.paywall.Claim(t.Context()))(t)
	require.Len(t, done, 1)
	require.Equal(t, []any{"5000", 2}, []any{done[0].Amount.String(), done[0].Channels})
	require.Equal(t, []string{"claimWithSignature", "settle"}, reference.control(t, `{}`).Sent)
	require.Equal(t, uint64(5000), earned())
	require.Empty(t, must.Get(s.paywall.Claim(t.Context()))(t))
	require.Empty(t, reference.control(t, `{}`).Sent)
}

// Our own wallet buys at our own paywall, and has the rest back.
func TestOurWalletBuysAtOurPaywallByBatchSettlement(t *testing.T) {
	lab := Start(t)
	s, reference, _ := newBatchShop(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{testlab.HostPort(s.url)}})
	for n := range 3 {
		p := payFor(t, w, fmt.Sprintf("%s/report?n=%d", s.url, n))
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	require.Equal(t, []string{"deposit"}, reference.control(t, `{}`).Sent)
	require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
	w.Close()
	var refunds struct {
		Refunds []struct{ Refunded, Transaction string }
	}
	channelCommand(t, home, 0, &refunds, "refund", testlab.HostPort(s.url))
	require.Len(t, refunds.Refunds, 1)
	require.Equal(t, "7000", refunds.Refunds[0].Refunded)
	require.Equal(t, uint64(997_000), lab.EVMBalance(home.EVM))
}

// A paywall that is killed after it served has its vouchers on disk: the command claims them, and the program
// that starts again goes on with the count. One that is told to end claims by itself.
func TestAKilledPaywallLosesNoVoucher(t *testing.T) {
	lab := Start(t)
	reference := startBatch(t, lab)
	own := must.Get(os.Executable())(t)
	bin, dir := testworld.Build(t), t.TempDir()
	home := testworld.NewHome(t, lab.Config(ConfigOptions{}))
	file := filepath.Join(dir, "shop.toml")
	writePrivate(t, file, fmt.Sprintf("command = [\"/usr/bin/env\", %q, %q]\nnetwork = %q\nlisten = "+
		"\"127.0.0.1:0\"\n[[facilitators]]\nname = \"batch\"\nurl = %q\n[tools.search]\nprice = \"0.001\"\n"+
		"scheme = \"batch-settlement\"\nmin_deposit = \"0.02\"\n",
		behindEnv+"="+filepath.Join(dir, "runs"), own, lab.EVM.Network, reference.Facilitator))
	seller := startPaywall(t, home, bin, file)
	w, buyer := funded(t, lab, ConfigOptions{Loopback: []string{seller.url}})
	buy := func() {
		t.Helper()
		p := call(t, w, "x402_call_tool", map[string]any{"server": seller.url, "tool": "search"})
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	buy()
	buy()
	require.Error(t, seller.stop(syscall.SIGKILL))
	require.Equal(t, uint64(980_000), lab.EVMBalance(buyer.EVM))
	require.Zero(t, lab.EVMBalance(home.EVM))

	var claimed struct {
		Count  int
		Claims []struct{ Amount, Price, Symbol string }
	}
	runWallet(t, home, bin, &claimed, "paywall", "claim", "--config", file, "--json")
	require.Equal(t, 1, claimed.Count)
	require.Equal(t, []string{"2000", "$0.002"}, []string{claimed.Claims[0].Amount, claimed.Claims[0].Price})
	require.Equal(t, uint64(2000), lab.EVMBalance(home.EVM))
	runWallet(t, home, bin, &claimed, "paywall", "claim", "--config", file, "--json")
	require.Zero(t, claimed.Count)

	text := must.Get(os.ReadFile(file))(t)
	writePrivate(t, file, "claim_above = \"0.002\"\n"+strings.Replace(string(text), "127.0.0.1:0",
		testlab.HostPort(seller.url), 1))
	seller = startPaywall(t, home, bin, file)
	reference.control(t, `{}`)
	buy()
	require.Empty(t, reference.control(t, `{}`).Sent, "it is the same channel")
	buy()
	require.Eventually(t, func() bool { return lab.EVMBalance(home.EVM) == 4000 }, testlab.StartWait,
		50*time.Millisecond, "a sum is claimed")
	buy()
	require.NoError(t, seller.stop(syscall.SIGTERM))
	require.Equal(t, uint64(5000), lab.EVMBalance(home.EVM), "and what is left at the end")
}
