package agent_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// permitCall reserves a call with a deposit of a seller who takes deposits by Permit2, and is its honest
// message.
func (w *batchWorld) permitCall(deposit uint64) (history.Payment, message.Channel) {
	p := w.reserve(1000, func(p *history.Payment) {
		p.Scheme, p.Amount, p.Price = x402.BatchSettlement, money.NewAmount(deposit), money.Dollars(deposit)
		p.Requirement = json.RawMessage(strings.Replace(w.asked(), "{",
			`{"extra":{"assetTransferMethod":"permit2"},`, 1))
	})
	m := w.message(p, 1000, deposit)
	m.Deposit.ByPermit2 = true
	return p, m
}

// The agent signs a deposit by Permit2, with the approval of exactly what it brings, and its channel goes on
// from there.
func TestTheAgentSignsADepositByPermit2(t *testing.T) {
	w := newBatchWorld(t)
	p, m := w.permitCall(10_000)
	permit := must.Get(m.Deposit.Permit(base, m.Config))(t)
	m.Deposit.Approval = message.ApprovalOf(permit, money.NewAmount(3))
	s := must.Get(w.client.SignChannel(t.Context(), m))(t)
	require.NoError(t, payload.CheckChannel(m, s))
	extension := must.Get(payload.EncodePermit(usdc, *m.Deposit.Approval, s.Approval))(t)
	require.Equal(t, *m.Deposit.Approval, must.Get(payload.RecoverPermit(usdc, extension))(t))
	require.Equal(t, "10000", m.Deposit.Approval.Value.String())

	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.Equal(t, []string{x402.Permit2, message.BatchContract, w.id}, []string{p.Evidence.Way,
		p.Evidence.PayTo, p.Evidence.Channel})
	_, book, err := must.Get(w.store.Channel(t.Context(), w.id, w.evm))(t).Batch()
	require.NoError(t, err)
	require.Equal(t, p.ID, book.Deposit.Payment)
}

// An approval of a deposit by a transaction is signed for as much gas as the owner's rules let it cost.
func TestTheAgentSignsADepositsApprovalByTransaction(t *testing.T) {
	w := newBatchWorld(t)
	_, m := w.permitCall(10_000)
	m.Deposit.Transaction = &message.ApprovalGas{Gas: 50_000, MaxFee: money.NewAmount(2)}
	_, err := w.client.SignChannel(t.Context(), m)
	w.refused(err, "approval_gas allows 0")
	w.set(func(s *settings) { s.approvalGas = map[string]money.Amount{base: money.NewAmount(100_000)} })
	s := must.Get(w.client.SignChannel(t.Context(), m))(t)
	d := must.Get(m.PermitDraft())(t)
	tx := must.Get(payload.ApprovalTransaction(d))(t)
	by := must.Get(tx.Signer(s.Approval))(t)
	require.Equal(t, w.evm, by.Hex())
}

func TestTheAgentSignsNoOtherDepositByPermit2(t *testing.T) {
	for name, c := range map[string]struct {
		why    string
		change func(d *message.Deposit)
	}{
		"by EIP-3009": {"its way", func(d *message.Deposit) { d.ByPermit2 = false }},
		"for too long": {"its validity", func(d *message.Deposit) {
			d.ValidBefore = time.Now().Unix() + 3600
		}},
		"over": {"its validity", func(d *message.Deposit) { d.ValidBefore = time.Now().Unix() - 1 }},
		"approved, by EIP-3009": {"not by Permit2", func(d *message.Deposit) {
			d.ByPermit2, d.Approval = false, &message.Permit{}
		}},
		"approved twice": {"approved twice", func(d *message.Deposit) {
			d.Approval, d.Transaction = &message.Permit{}, &message.ApprovalGas{Gas: 1,
				MaxFee: money.NewAmount(1)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBatchWorld(t)
			w.set(func(s *settings) { s.approvalGas = map[string]money.Amount{base: money.NewAmount(9)} })
			p, m := w.permitCall(10_000)
			c.change(m.Deposit)
			_, err := w.client.SignChannel(t.Context(), m)
			require.ErrorContains(t, err, c.why)
			require.Equal(t, history.Reserved, must.Get(w.store.Payment(t.Context(), p.ID))(t).State)
		})
	}
	w := newBatchWorld(t)
	w.set(func(s *settings) { s.noPermits = true })
	_, m := w.permitCall(10_000)
	_, err := w.client.SignChannel(t.Context(), m)
	w.refused(err, "its scheme")
	p := w.call(10_000) // of a seller who does not ask for Permit2
	m = w.message(p, 1000, 10_000)
	m.Deposit.ByPermit2 = true
	w.refused(must.Err(w.client.SignChannel(t.Context(), m)), "its way")
}
