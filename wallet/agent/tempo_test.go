package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	tempotx "x402-wallet/chain/tempo"
	"x402-wallet/chain/tempo/decode"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	. "x402-wallet/wallet/agent"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var pathUSD, _ = x402.NewRegistry(nil).Named(x402.TempoTestnet, "")

// onTempo is a payment that is reserved, and the honest transfer for it.
func (w *world) onTempo(units, fee uint64) (history.Payment, x402.TempoTransfer) {
	p := w.reserve(units+fee, func(p *history.Payment) {
		p.Scheme, p.Network = x402.Tempo, x402.TempoTestnet
		p.Asset, p.Symbol = pathUSD.Address, pathUSD.Symbol
	})
	return p, x402.TempoTransfer{Network: p.Network, Token: p.Asset, From: w.evm, To: p.PayTo,
		Amount: money.NewAmount(units), Fee: money.NewAmount(fee), Memo: tempotx.Memo("a", "", p.ID).Hex(),
		ValidBefore: time.Now().Add(20 * time.Second).Unix()}
}

// The agent signs a transfer that the ledger has reserved, once; and one for each challenge, which the memo
// names, in any spelling.
func TestTheAgentSignsATransferOnTempo(t *testing.T) {
	w := newWorld(t)
	w.set(func(s *settings) { s.networkFee = 20_000 })
	p, transfer := w.onTempo(10_000, 0)
	must.Get(w.asker().SignTempo(t.Context(), p.ID, transfer))(t)
	signed := must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.Equal(t, history.Submitted, signed.State)
	require.Equal(t, transfer.Memo, signed.Evidence.Memo)
	require.Empty(t, signed.Evidence.Hash)
	_, err := w.asker().SignTempo(t.Context(), p.ID, transfer)
	w.refused(err, "the payment is submitted, not reserved")

	again, same := w.onTempo(10_000, 0)
	same.Memo = "0x" + strings.ToUpper(transfer.Memo[2:])
	same.From = strings.ToLower(same.From)
	requireCode(t, must.Err(w.asker().SignTempo(t.Context(), again.ID, same)), x402.CheckFailed)

	// with a fee: the hash is that of the transaction, and the whole sum counts
	p, transfer = w.onTempo(10_000, 20_000)
	signature := must.Get(w.asker().SignTempo(t.Context(), p.ID, transfer))(t)
	token, memo := must.Get(message.ParseAddress(transfer.Token))(t), tempotx.Memo("a", "", p.ID)
	tx := tempotx.Transaction{ChainID: 42431, Gas: x402.TempoGas, Tip: x402.TempoTip,
		MaxFee: transfer.MaxFeePerGas(), Token: token, FeeToken: token,
		ValidBefore: uint64(transfer.ValidBefore), Transfers: []tempotx.Transfer{
			{To: must.Get(message.ParseAddress(payee))(t), Amount: transfer.Amount, Memo: &memo}}}
	bytes, hash, err := tx.Signed(signature, w.evm)
	require.NoError(t, err)
	read := must.Get(decode.Rules{}.Transaction(bytes))(t)
	require.Equal(t, "20000", read.Fee().String())
	signed = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.Equal(t, hash, signed.Evidence.Hash)
	require.Equal(t, "30000", signed.Evidence.Amount.String())
}

func TestTheAgentSignsNoOtherTransferOnTempo(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Unix()
	for _, c := range []struct {
		name, why string
		fee       uint64
		message   func(m *x402.TempoTransfer)
	}{
		{"another payee", "its payee", 0, func(m *x402.TempoTransfer) { m.To = w.evm }},
		{"no payee", "its payee", 0, func(m *x402.TempoTransfer) { m.To = "" }},
		{"another payer", "its payer", 0, func(m *x402.TempoTransfer) { m.From = payee }},
		{"another token", "its asset", 0, func(m *x402.TempoTransfer) { m.Token = usdc.Address }},
		{"another network", "its chain", 0, func(m *x402.TempoTransfer) { m.Network = x402.TempoMainnet }},
		{"a unit more", "its amount", 0, func(m *x402.TempoTransfer) { m.Amount = money.NewAmount(10_001) }},
		{"one unit less", "its amount", 0, func(m *x402.TempoTransfer) { m.Amount = money.NewAmount(9_999) }},
		{"a fee besides", "its amount", 0, func(m *x402.TempoTransfer) { m.Fee = money.NewAmount(1) }},
		{"nothing but a fee", "its amount", 0, func(m *x402.TempoTransfer) {
			m.Amount, m.Fee = m.Fee, m.Amount
		}},
		{"a fee that is too high", "network_fee allows 0", 1, nil},
		{"no memo", "its memo", 0, func(m *x402.TempoTransfer) { m.Memo = "" }},
		{"a short memo", "its memo", 0, func(m *x402.TempoTransfer) { m.Memo = m.Memo[:64] }},
		{"a memo of zeros", "its memo", 0, func(m *x402.TempoTransfer) {
			m.Memo = "0x" + strings.Repeat("0", 64)
		}},
		{"for 30 seconds", "its validity", 0, func(m *x402.TempoTransfer) { m.ValidBefore = now + 30 }},
		{"over", "its validity", 0, func(m *x402.TempoTransfer) { m.ValidBefore = now }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, transfer := w.onTempo(10_000, c.fee)
			if c.message != nil {
				c.message(&transfer)
			}
			_, err := w.asker().SignTempo(t.Context(), p.ID, transfer)
			w.refused(err, c.why)
		})
	}
	// of another scheme, and for a payment of another scheme
	p, transfer := w.onTempo(10_000, 0)
	_, err := w.client.SignTransfer(t.Context(), w.transfer(p))
	w.refused(err, "cannot be read")
	p = w.reserve(10_000, nil)
	_, err = w.asker().SignTempo(t.Context(), p.ID, transfer)
	w.refused(err, "cannot be read")
	w.allow(func(r *Rules) { r.Schemes = []string{x402.Exact} })
	p, transfer = w.onTempo(10_000, 0)
	_, err = w.asker().SignTempo(t.Context(), p.ID, transfer)
	w.refused(err, "by its scheme")
}
