package sandbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// sizes are how much a sandbox remembers, of everything that grows.
func (s *Sandbox) sizes() map[string]int {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := 0
	for _, t := range []timeline{s.evm.balances, s.evm.permits, s.evm.allowed} {
		for _, known := range t {
			lines += len(known)
		}
	}
	return map[string]int{"settlements": len(s.settlements), "presented": len(s.presented.values),
		"challenges": len(s.challenges.values), "nonces": len(s.nonces.values),
		"buyers": len(s.buyers.values), "redeemed": len(s.redeemed.values),
		"transactions": len(s.evm.txs), "by hash": len(s.evm.byHash),
		"lines": lines, "landed": len(s.solana.landed), "by id": len(s.solana.byID),
		"used": len(s.evm.used) + len(s.evm.spent)}
}

// A sandbox that forgets stays as small as it is told, and still lets nobody pay twice.
func TestForgets(t *testing.T) {
	const keep = 5
	told := 0
	s := start(t, Options{Keep: keep, Finality: time.Second, OnPayment: func(Settlement) { told++ }})
	payer := newEVMPayer(t, s, USDC)
	agent := newKey()
	account := s.Delegate(keyOf(agent).String(), USDC)
	buyOnce := func(path string) (*x402.Challenge, x402.Authorization) {
		c := challenge(t, s, path)
		a := payer.sign(t, s, c.Accepts[0])
		require.Equal(t, 200, pay(t, s, path, c, a.Payload).status)
		return c, a
	}
	first, signed := buyOnce("/weather")
	for range 8 * keep {
		buyOnce("/archive")
		buyOnce("/mpp/weather")
		d := newDraft(t, s, agent, account, mill)
		d.memo = fmt.Sprint(told)
		c := challenge(t, s, "/solana")
		require.Equal(t, 200, pay(t, s, "/solana", c, transactionPayload(d.wire(agent))).status)
		for what, n := range s.sizes() {
			if what != "used" {
				require.LessOrEqual(t, n, 6*keep, what)
			}
		}
	}
	require.Equal(t, 24*keep+1, told)
	require.Equal(t, told, s.Signatures())
	require.Equal(t, told, s.Presentations())
	answer := pay(t, s, "/weather", first, signed.Payload)
	require.Equal(t, "invalid_exact_evm_nonce_already_used", why(t, answer), "its nonce is not forgotten")
	require.EqualValues(t, USDC-uint64(16*keep+1)*mill, s.Balance(payer.Address()))
}

// When there is no room for one more nonce that could still be used, nothing is taken any more; once they
// have expired there is.
func TestFullTakesNothing(t *testing.T) {
	const keep = 2
	s := start(t, Options{Keep: keep, Finality: time.Second})
	payer := newEVMPayer(t, s, USDC)
	buyOnce := func() response {
		c := challenge(t, s, "/weather")
		return pay(t, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload)
	}
	taken := 0
	for ; taken < 2*maxKept*keep; taken++ {
		if answer := buyOnce(); answer.status != 200 {
			receipt, err := x402.ReadSettlement(answer.header)
			require.NoError(t, err)
			require.Equal(t, string(refusesFull), receipt.ErrorReason)
			break
		}
	}
	require.LessOrEqual(t, taken, maxKept*keep)
	require.Greater(t, taken, maxKept*keep/2)
	require.LessOrEqual(t, s.sizes()["used"], maxKept*keep)
	s.Advance(2 * time.Minute)
	require.Equal(t, 200, buyOnce().status)
	require.Less(t, s.sizes()["used"], maxKept*keep/2)
}

// Blocks of long ago, and blockhashes, are not kept for ever.
func TestForgetsBlocks(t *testing.T) {
	s := start(t, Options{Keep: 5, Finality: time.Second})
	for range 5 {
		s.Advance(24 * time.Hour)
		s.evm.mu.Lock()
		head := s.evm.head()
		require.LessOrEqual(t, len(s.evm.blocks), 2*maxBlocks)
		_, exists, _ := s.evm.number(quantity(head))
		require.True(t, exists)
		require.InDelta(t, s.now().Unix(), s.evm.blocks[head-s.evm.first], 3)
		s.evm.mu.Unlock()
	}
	_, exists, _ := s.evm.number(quantity(firstBlock))
	require.False(t, exists)
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	for range 3 * maxBlockhashes {
		s.mu.Lock()
		s.ahead += 100 * slotTime
		s.mu.Unlock()
		s.solana.issue(s.solana.slot())
		require.LessOrEqual(t, len(s.solana.issued), maxBlockhashes)
	}
	require.True(t, s.solana.alive(s.solana.issue(s.solana.slot()), s.solana.slot()))
}
