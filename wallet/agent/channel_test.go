package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/e2e/asks"
	"x402-wallet/history"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// batchWorld is a world with a channel of batch-settlement in its ledger.
type batchWorld struct {
	*world
	config x402.ChannelConfig
	id     string
}

const sellersAuthorizer = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"

func newBatchWorld(t *testing.T) *batchWorld {
	w := &batchWorld{world: newWorld(t)}
	w.set(func(s *settings) { s.channelDelay = 24 * time.Hour })
	w.config = x402.ChannelConfig{Payer: w.evm, PayerAuthorizer: w.evm, Receiver: payee,
		ReceiverAuthorizer: sellersAuthorizer, Token: usdc.Address, WithdrawDelay: 900,
		Salt: "0x0000000000000000000000000000000000000000000000000000000000000000"}
	id := must.Get(message.ChannelID(base, w.config))(t)
	w.id = id.Hex()
	row := history.Channel{Service: w.id, Key: w.evm, Server: "api.example", Network: base, Source: w.evm,
		ID: w.id}
	require.NoError(t, w.store.SaveChannel(t.Context(),
		row.WithSigned(history.BatchSigned{Config: w.config}).WithBook(history.BatchBook{})))
	return w
}

// call reserves a call of 1000 units, with a deposit or, for 0, paid from what was deposited.
func (w *batchWorld) call(deposit uint64) history.Payment {
	return w.reserve(1000, func(p *history.Payment) {
		p.Scheme, p.Price = x402.BatchSettlement, 0
		if deposit > 0 {
			p.Amount, p.Price = money.NewAmount(deposit), money.Dollars(deposit)
		}
		p.Requirement = json.RawMessage(w.asked())
	})
}

// asked is what the seller asks for a call.
func (w *batchWorld) asked() string {
	return `{"scheme":"batch-settlement","network":"` + base + `","amount":"1000","asset":"` + usdc.Address +
		`","payTo":"` + payee + `"}`
}

func (w *batchWorld) message(p history.Payment, ceiling, deposit uint64) message.Channel {
	m := message.Channel{Payment: p.ID, Asset: usdc, Config: w.config, Ceiling: money.NewAmount(ceiling)}
	if deposit > 0 {
		m.Deposit = &message.Deposit{Value: money.NewAmount(deposit),
			ValidBefore: time.Now().Unix() + 60, Salt: sha256.Sum256([]byte(p.ID))}
	}
	return m
}

// The agent signs a deposit and its voucher, then vouchers that each add the price; the channel in the ledger
// has come as far as what it signed, in the same transaction.
func TestTheAgentSignsForAChannel(t *testing.T) {
	w := newBatchWorld(t)
	p := w.call(10_000)
	s := must.Get(w.client.SignChannel(t.Context(), w.message(p, 1000, 10_000)))(t)
	require.NotZero(t, s.Deposit)
	row := must.Get(w.store.Channel(t.Context(), w.id, w.evm))(t)
	require.Equal(t, uint64(1), row.Nonce)
	signed, book, err := row.Batch()
	require.NoError(t, err)
	id := must.Get(message.ChannelID(base, w.config))(t)
	require.True(t, message.IsOwnVoucher(base, id, *signed.Voucher, w.evm))
	require.Equal(t, &history.BatchOpen{Payment: p.ID, Amount: money.NewAmount(10_000)}, book.Deposit)

	s = must.Get(w.client.SignChannel(t.Context(), w.message(w.call(0), 2000, 0)))(t)
	require.Zero(t, s.Deposit)
	row = must.Get(w.store.Channel(t.Context(), w.id, w.evm))(t)
	require.Equal(t, "2000", row.Amount.String())

	// a row that says less than was signed is not what the wallet wrote
	w.sql(`UPDATE channels SET amount = '1000', nonce = '9'`)
	_, err = w.client.SignChannel(t.Context(), w.message(w.call(0), 2000, 0))
	requireCode(t, err, x402.LedgerCorrupt)
}

// The process that pays adds the payload to what the agent recorded. The channel is at its next voucher by
// then.
func TestSubmit_VoucherOfTheAgent(t *testing.T) {
	w := newBatchWorld(t)
	for n, deposit := range []uint64{10_000, 0} {
		p := w.call(deposit)
		row := must.Get(w.store.Channel(t.Context(), w.id, w.evm))(t)
		m := w.message(p, 1000*uint64(n+1), deposit)
		s := must.Get(w.client.SignChannel(t.Context(), m))(t)
		m.Number, m.Amount = row.Nonce+1, p.Amount
		voucher := x402.ChannelVoucher{Ceiling: m.Ceiling, Signature: "0x" + hex.EncodeToString(s.Voucher[:])}
		next := must.Get(row.WithVoucher(p.ID, voucher, money.NewAmount(deposit)))(t)
		evidence := must.Get(m.Evidence())(t)
		require.NoError(t, w.store.Submit(t.Context(), p, history.Signed{Payload: []byte(`{}`),
			Requirement: p.Requirement, Evidence: evidence, UniqueKey: evidence.Unique(), Channel: &next},
			history.Keyholder{}))
		require.Equal(t, `{}`, string(must.Get(w.store.Payment(t.Context(), p.ID))(t).Payload))
		require.Equal(t, uint64(n+1), must.Get(w.store.Channel(t.Context(), w.id, w.evm))(t).Nonce)
	}
	require.NoError(t, verify.Owned(t.Context(), w.guard.Store, w.guard))
}

func TestTheAgentSignsNothingElseForAChannel(t *testing.T) {
	for name, c := range map[string]struct {
		why     string
		deposit uint64
		change  func(w *batchWorld, m *message.Channel)
	}{
		"more than the price": {"its sum is not", 10_000, func(_ *batchWorld, m *message.Channel) {
			m.Ceiling = money.NewAmount(1001)
		}},
		"a voucher of a stranger's as ours": {"its sum is not", 10_000,
			func(_ *batchWorld, m *message.Channel) {
				m.Ceiling = money.NewAmount(6000)
				m.Shown = &x402.ChannelVoucher{Ceiling: money.NewAmount(5000),
					Signature: "0x" + hex.EncodeToString(make([]byte, 65))}
			}},
		"a channel that the ledger does not know": {"no such channel", 10_000,
			func(_ *batchWorld, m *message.Channel) { m.Config.WithdrawDelay = 901 }},
		"somebody else's channel": {"no such channel", 10_000, func(_ *batchWorld, m *message.Channel) {
			m.Config.Payer = payee
		}},
		"a deposit for too long": {"its validity is not", 10_000, func(_ *batchWorld, m *message.Channel) {
			m.Deposit.ValidBefore = time.Now().Unix() + 3600
		}},
		"no deposit for a payment that holds one": {"its source is not", 10_000,
			func(_ *batchWorld, m *message.Channel) { m.Deposit = nil }},
		"a deposit for a payment that holds none": {"its source is not", 0,
			func(_ *batchWorld, m *message.Channel) {
				m.Deposit = &message.Deposit{Value: money.NewAmount(1000),
					ValidBefore: time.Now().Unix() + 60}
			}},
		"a delay that the owner does not allow": {"its delay is not", 10_000,
			func(w *batchWorld, _ *message.Channel) {
				w.set(func(s *settings) { s.channelDelay = time.Minute })
			}},
		"a channel of another host": {"its channel is not", 10_000,
			func(w *batchWorld, _ *message.Channel) {
				row := must.Get(w.store.Channel(w.t.Context(), w.id, w.evm))(w.t)
				row.Server = "other.example"
				require.NoError(w.t, w.store.SaveChannel(w.t.Context(), row))
			}},
		"a channel that is stopped": {"its channel is not", 10_000,
			func(w *batchWorld, _ *message.Channel) {
				row := must.Get(w.store.Channel(w.t.Context(), w.id, w.evm))(w.t)
				require.NoError(w.t, w.store.SaveChannel(w.t.Context(),
					row.WithBook(history.BatchBook{Stopped: "it charged too much"})))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBatchWorld(t)
			p := w.call(c.deposit)
			m := w.message(p, 1000, c.deposit)
			c.change(w, &m)
			_, err := w.client.SignChannel(t.Context(), m)
			w.refused(err, c.why)
			require.Equal(t, history.Reserved, must.Get(w.store.Payment(t.Context(), p.ID))(t).State)
		})
	}
}

// What was promised in a channel is what the last sealed voucher promised: a row that says more raises
// nothing, in the unlock agent as in a process that signs for itself.
func TestSignVoucher_RaiseIsAtMostThePrice(t *testing.T) {
	for name, sign := range map[string]func(w *batchWorld) asks.Asks{
		"unlock agent": func(w *batchWorld) asks.Asks { return w.client.Asks },
		"this process": func(w *batchWorld) asks.Asks { return w.signsItself() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newBatchWorld(t)
			forge := func(nonce, amount uint64) {
				w.sql(`UPDATE channels SET nonce = ?, amount = ?, claimed = ?`, fmt.Sprint(nonce),
					fmt.Sprint(amount),
					fmt.Sprint(amount))
			}
			refused := func(ceiling uint64, why string) {
				t.Helper()
				p := w.call(0)
				err := must.Err(sign(w).SignChannel(t.Context(), w.message(p, ceiling, 0)))
				require.ErrorContains(t, err, why)
			}
			forge(0, 9000) // as a lost ledger's row, of which the chain knows nothing
			refused(10_000, "beyond what is sealed")
			forge(1, 9000)
			refused(10_000, "beyond what is sealed")
			w.set(func(s *settings) { s.claimed = money.NewAmount(9000) })
			forge(0, 9000)
			refused(10_001, "its sum is not")
			must.Get(sign(w).SignChannel(t.Context(), w.message(w.call(10_000), 10_000, 10_000)))(t)

			forge(2, 19_000)
			refused(20_000, "not where the last voucher left it")
			w.sql(`UPDATE channels SET claimed = '19000', nonce = '1', amount = '10000'`)
			refused(20_000, "its sum is not")
		})
	}
}

// A row that says more than was promised is not sealed with a small voucher, after which a large one would go
// on from it.
func TestSignVoucher_SealsNoForgedSum(t *testing.T) {
	const huge = 1 << 40
	for name, test := range map[string]struct {
		edit   string
		isUsed bool // the channel has a voucher that was sealed
	}{
		"before its first voucher": {`UPDATE channels SET amount = '1099511627776'`, false},
		"what the seller showed, before its first voucher": {`UPDATE channels SET
			call = json_set(call, '$.shown', json('{"ceiling":"1099511627776","signature":"0x"}'))`, false},
		"what the seller showed": {`UPDATE channels SET
			call = json_set(call, '$.shown', json('{"ceiling":"1099511627776","signature":"0x"}'))`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBatchWorld(t)
			ceiling, deposit := uint64(1000), uint64(10_000)
			if test.isUsed {
				must.Get(w.client.SignChannel(t.Context(), w.message(w.call(deposit), ceiling, deposit)))(t)
				ceiling, deposit = 2000, 0
			}
			w.sql(test.edit)
			_, _ = w.client.SignChannel(t.Context(), w.message(w.call(deposit), ceiling, deposit))
			_, err := w.client.SignChannel(t.Context(), w.message(w.call(0), huge+1000, 0))
			require.Error(t, err, "it promises what nobody paid for")
		})
	}
}

// signsItself is a process with the key, which records what it signs with a payload.
func (w *batchWorld) signsItself() asks.Asks {
	guard := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: w.keys}
	r := w.recorder(w.keys, guard, &Tally{})
	return func(ctx context.Context, d onchain.Draft) ([]byte, error) {
		signatures, err := r.Sign(ctx, d.Payment, d.Message)
		if err != nil {
			return nil, err
		}
		p := must.Get(w.store.Payment(ctx, d.Payment))(w.t)
		return signatures, r.Submit(ctx, p, history.Signed{Payload: []byte(`{}`), Requirement: p.Requirement,
			Evidence: r.Kept(p.ID).Evidence}, false)
	}
}

// A payment that is said to be prepaid gets no signature that moves money by itself.
func TestAPrepaidPaymentIsNoTransfer(t *testing.T) {
	w := newBatchWorld(t)
	p := w.call(0)
	_, err := w.client.SignTransfer(t.Context(), w.transfer(p))
	w.refused(err, "cannot be read")
	p = w.reserve(1000, func(p *history.Payment) { p.Price = 0 }) // of another scheme
	_, err = w.client.SignTransfer(t.Context(), w.transfer(p))
	w.refused(err, "not what its amount is worth")
}

// The limits hold for what is prepaid, at its price, but for the windows, in which it was counted.
func TestAPrepaidPaymentKeepsTheOtherRules(t *testing.T) {
	w := newBatchWorld(t)
	must.Get(w.client.SignChannel(t.Context(), w.message(w.call(10_000), 1000, 10_000)))(t)
	w.allow(func(r *Rules) {
		r.Budget.Day, r.Budget.PerCall = 10_000, 999
	})
	_, err := w.client.SignChannel(t.Context(), w.message(w.call(0), 2000, 0))
	requireCode(t, err, x402.BudgetExceeded)
	w.allow(func(r *Rules) {
		r.Budget.Day = 10_000 // used up by the deposit
	})
	must.Get(w.client.SignChannel(t.Context(), w.message(w.call(0), 2000, 0)))(t)
	_, err = w.client.SignChannel(t.Context(), w.message(w.call(10_000), 3000, 10_000))
	requireCode(t, err, x402.BudgetExceeded)
}

// A deposit of less than the price carries no voucher: it is the deposit that the rules are asked about.
func TestASmallDepositCarriesNoDearVoucher(t *testing.T) {
	w := newBatchWorld(t)
	must.Get(w.client.SignChannel(t.Context(), w.message(w.call(10_000), 1000, 10_000)))(t)
	_, err := w.client.SignChannel(t.Context(), w.message(w.call(999), 2000, 999))
	w.refused(err, "its amount is not")
	must.Get(w.client.SignChannel(t.Context(), w.message(w.call(1000), 2000, 1000)))(t)
}

// A voucher that its seller did not charge is ended without the chain: it frees nothing.
func TestAPrepaidPaymentEnds(t *testing.T) {
	w := newBatchWorld(t)
	deposit := w.call(10_000)
	must.Get(w.client.SignChannel(t.Context(), w.message(deposit, 1000, 10_000)))(t)
	voucher := w.call(0)
	must.Get(w.client.SignChannel(t.Context(), w.message(voucher, 2000, 0)))(t)
	require.NoError(t, w.ask("expire", voucher.ID))
	require.Equal(t, history.Failed, must.Get(w.store.Payment(t.Context(), voucher.ID))(t).State)
	w.refused(w.ask("expire", deposit.ID), "it can still settle")
	require.NoError(t, verify.Owned(t.Context(), w.guard.Store, w.guard))
}
