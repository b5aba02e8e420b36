package sandbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

func TestFaultsHaveNames(t *testing.T) {
	require.Len(t, faultNames, int(lastFault))
	seen := map[string]bool{}
	for _, f := range between(1, lastFault-1) {
		require.False(t, seen[f.String()], f)
		seen[f.String()] = true
	}
}

// Each fault does what it says: what the buyer sees, and whether the money moved.
func TestFaults(t *testing.T) {
	const ended = 0 // the connection ended without a whole answer
	s := start(t, Options{Delay: 20 * time.Millisecond})
	payer := newEVMPayer(t, s, USDC)
	for _, row := range []struct {
		fault   Fault
		status  int
		receipt string // "", "yes", "no" or an errorReason
		moved   bool
	}{
		{0, 200, "yes", true},
		{FacilitatorRefusesVerify, 402, "", false},
		{FacilitatorRefuses, 402, "unexpected_settle_error", false},
		{FacilitatorFails, 502, "", false},
		{FacilitatorCutsBefore, 502, "", false},
		{FacilitatorCutsAfter, 502, "", true},
		{FacilitatorFailsAfter, 502, "", true},
		{FacilitatorSlow, 200, "yes", true},
		{FacilitatorLies, 200, "yes", false},
		{FacilitatorPending, 402, "settlement_pending", true},
		{FacilitatorNeverLands, 402, "settlement_pending", false},
		{FacilitatorBusy, 502, "", false},
		{FacilitatorDown, 502, "", false},
		{SellerAsksAgain, 402, "", false},
		{SellerRaises, 402, "", false},
		{SellerFails, 500, "yes", true},
		{SellerFailsMute, 500, "", true},
		{SellerNoReceipt, 200, "", true},
		{SellerFalseReceipt, 200, "yes", false},
		{SellerGarbles, 200, "garbled", true},
		{SellerRedirects, 307, "", false},
		{SellerHangsBefore, ended, "", false},
		{SellerHangs, ended, "", true},
		{SellerCutsBefore, ended, "", false},
		{SellerCuts, 200, "yes", true},
		{SellerSlow, 200, "yes", true},
	} {
		t.Run(row.fault.String(), func(t *testing.T) {
			c := challenge(t, s, "/weather")
			before := len(s.Settlements())
			s.Inject(row.fault, 1)
			patience := 20 * time.Second
			if row.fault == SellerHangsBefore || row.fault == SellerHangs {
				patience = 500 * time.Millisecond
			}
			answer := payWithin(t, patience, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload)
			require.Equal(t, row.status, answer.status)
			require.Equal(t, row.status == ended || row.fault == SellerCuts, answer.err != nil)
			require.Equal(t, row.moved, len(s.Settlements()) > before)
			receipt, err := x402.ReadSettlement(answer.header)
			switch row.receipt {
			case "":
				require.Nil(t, receipt)
			case "yes":
				require.True(t, receipt.Success)
				require.Equal(t, row.moved, s.evm.transaction(receipt.Transaction) != nil)
			case "garbled":
				require.Error(t, err)
			default:
				require.Equal(t, row.receipt, receipt.ErrorReason)
				require.NotEqual(t, row.fault == FacilitatorRefuses, receipt.Transaction != "")
			}
			if row.fault != 0 { // used up
				require.Equal(t, 200, pay(t, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload).status)
			}
		})
	}
	c := challenge(t, s, "/weather")
	s.Inject(SellerRaises, Always)
	for range 2 {
		answer := pay(t, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload)
		again, err := x402.ReadChallenge(answer.status, answer.header, []byte(answer.body))
		require.NoError(t, err)
		require.Equal(t, "2000", again.Accepts[0].Amount.String())
	}
	s.Heal()
	require.Equal(t, 200, pay(t, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload).status)
}

func TestNodeFaults(t *testing.T) {
	s := start(t, Options{Delay: time.Millisecond})
	payer := newEVMPayer(t, s, USDC)
	c := challenge(t, s, "/weather")
	a := payer.sign(t, s, c.Accepts[0])
	require.Equal(t, 200, pay(t, s, "/weather", c, a.Payload).status)
	_, err := payer.Status(t.Context(), a.Evidence)
	require.NoError(t, err)

	s.Inject(EVMNodeForgets, Always)
	fate, err := payer.Status(t.Context(), a.Evidence)
	require.NoError(t, err)
	require.Equal(t, x402.Open, fate.State)
	s.Heal()
	s.Inject(EVMNodeDown, 1)
	_, err = payer.Status(t.Context(), a.Evidence)
	require.True(t, x402.HasCode(err, x402.RPCError), err)
	s.Inject(EVMNodeElsewhere, 1)
	_, err = newEVMPayer(t, s, 0).Funds(t.Context(), EVM, s.evm.asset)
	require.True(t, x402.HasCode(err, x402.CheckFailed), err)
	s.Inject(SolanaNodeElsewhere, 1)
	require.Contains(t, ask(t, s.SolanaNodeURL, "getGenesisHash", "[]"), genesisTestnet)
}
