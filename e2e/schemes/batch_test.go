package schemes

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/scheme/batch"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

type channelPayer struct {
	*batch.Contract
	t   *testing.T
	s   *World
	key onchain.Signer
	c   *wire.Challenge
}

func newChannelPayer(t *testing.T, s *World, balance uint64) *channelPayer {
	key := testworld.NewEVMKey(t)
	return &channelPayer{t: t, s: s, key: key, c: testworld.Challenge(t, s.SellerURL+"/batch"),
		Contract: batch.NewContract(newEVMPayerOf(s, key, balance).byPermit2(), 24*time.Hour)}
}

// signed is a payment that promises ceiling in all, with a deposit unless that is 0.
func (p *channelPayer) signed(ceiling, deposit uint64) onchain.Authorization {
	r := p.c.Accepts[0]
	config, _, err := p.Config(r, p.s.chain.Asset, "", "")
	require.NoError(p.t, err)
	return must.Get(p.Authorize(p.t.Context(), onchain.Order{Requirement: r, Asset: p.s.chain.Asset,
		Source: p.Address(), Validity: r.MaxTimeout, Now: p.s.Now(), Channel: &onchain.ChannelOrder{
			Config: config, Number: 1, Ceiling: money.NewAmount(ceiling),
			Deposit: money.NewAmount(deposit)}}))(p.t)
}

func (p *channelPayer) pay(payload json.RawMessage) testworld.Answer {
	return pay(p.t, p.s, "/batch", p.c, payload)
}

// forgotten pays at a seller that has lost its memory.
func (p *channelPayer) forgotten(payload json.RawMessage) testworld.Answer {
	p.s.mu.Lock()
	clear(p.s.records)
	p.s.mu.Unlock()
	return p.pay(payload)
}

// paid pays, and is what the seller says that it counted.
func (p *channelPayer) paid(ceiling, deposit uint64) (onchain.Authorization, *wire.Settlement,
	*wire.ChannelCount) {
	a := p.signed(ceiling, deposit)
	answer := p.pay(a.Payload)
	require.Equal(p.t, 200, answer.Status, "%+v", answer)
	require.Equal(p.t, Content("/batch"), answer.Body)
	receipt := must.Get(wire.ReadSettlement(answer.Header))(p.t)
	count := must.Get(wire.CountOf(*receipt))(p.t)
	require.Equal(p.t, a.Evidence.Channel, count.ID)
	return a, receipt, count
}

// A deposit, vouchers, a claim and the rest back, each as the wallet's own code sees it on the chain.
func TestAChannelFromDepositToRefund(t *testing.T) {
	s := start(t, sandbox.Options{Finality: time.Second})
	payer := newChannelPayer(t, s, sandbox.USDC)
	first, receipt, count := payer.paid(mill, leastDeposit)
	require.Equal(t, "10000", receipt.Amount, "of a deposit, not of the call")
	require.Equal(t, s.Settlements()[0].Transaction, receipt.Transaction)
	require.Equal(t, []string{"1000", "1000"}, []string{count.Charged.String(), count.ChargedNow.String()})
	s.Advance(3 * time.Second)
	status := must.Get(payer.Status(t.Context(), first.Evidence))(t)
	require.Equal(t, x402.Settled, status.State, status.Note)
	require.Equal(t, receipt.Transaction, status.Transaction)
	require.Empty(t, status.Note)

	second, receipt, count := payer.paid(2*mill, 0)
	require.Empty(t, receipt.Transaction)
	require.Equal(t, "2000", count.Charged.String())
	require.EqualValues(t, sandbox.USDC-leastDeposit, s.Balance(payer.Address()))
	require.Len(t, s.Settlements(), 1)
	require.Equal(t, 2, s.Signatures())
	status = must.Get(payer.Status(t.Context(), second.Evidence))(t)
	require.Equal(t, x402.Open, status.State)
	require.NoError(t, s.Claim())
	status = must.Get(payer.Status(t.Context(), second.Evidence))(t)
	require.Equal(t, x402.Settled, status.State)
	require.EqualValues(t, 2*mill, s.Balance(s.PayToEVM))

	_, _, _ = payer.paid(3*mill, 0)
	third := payer.signed(3*mill, 0)
	config, _, err := payer.Config(payer.c.Accepts[0], s.chain.Asset, "", "")
	require.NoError(t, err)
	asks := must.Get(payer.Refund(sandbox.EVM, config, *third.Voucher))(t)
	answer := payer.pay(asks)
	require.Equal(t, 200, answer.Status, "%+v", answer)
	receipt = must.Get(wire.ReadSettlement(answer.Header))(t)
	require.Equal(t, "7000", receipt.Amount)
	require.EqualValues(t, sandbox.USDC-3*mill, s.Balance(payer.Address()))
	at := must.Get(payer.ReadChannel(t.Context(), sandbox.EVM, second.Evidence.Channel))(t)
	require.NotZero(t, at.Block)
	require.Equal(t, []money.Amount{money.NewAmount(3 * mill), money.NewAmount(3 * mill)},
		[]money.Amount{at.Balance, at.Claimed})
	require.Equal(t, []Channel{{ID: second.Evidence.Channel, Payer: payer.Address(), Balance: 3 * mill,
		Claimed: 3 * mill, Charged: 3 * mill, Claimable: 3 * mill, Ahead: mill, Vouchers: 3}}, s.Channels())
	require.Equal(t, 3, s.Signatures(), "asking back signs nothing")
	require.Len(t, s.Settlements(), 1, "and is no payment")
	require.Equal(t, string(refusesBatch("refund_no_balance")), payer.pay(asks).Why(t))
	require.Equal(t, string(refusesBatch("cumulative_below_claimed")),
		payer.forgotten(second.Payload).Why(t), "the seller believes the voucher, the chain has it claimed")
	_, _, count = payer.paid(4*mill, leastDeposit)
	require.Equal(t, "4000", count.Charged.String(), "it goes on from what was claimed")
}

// A voucher for another sum than what was charged and the price gets none served: the seller shows its count.
func TestTheSellerShowsItsCount(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newChannelPayer(t, s, sandbox.USDC)
	first, _, _ := payer.paid(mill, leastDeposit)
	for _, ceiling := range []uint64{mill, 3 * mill} {
		answer := payer.pay(payer.signed(ceiling, 0).Payload)
		c := must.Get(wire.ReadChallenge(answer.Status, answer.Header, []byte(answer.Body)))(t)
		require.Equal(t, "invalid_batch_settlement_evm_cumulative_amount_mismatch", c.Error)
		count := must.Get(c.CorrectiveCount(sandbox.EVM))(t)
		require.Equal(t, "1000", count.Charged.String())
		require.Equal(t, first.Voucher, count.Voucher)
	}
	require.EqualValues(t, mill, s.Channels()[0].Charged)
	require.EqualValues(t, 3*mill, s.Channels()[0].Claimable, "shown, and so good to claim")
	require.EqualValues(t, 2*mill, s.Channels()[0].Ahead)
}

// One request at a time uses a channel; what a fault cut off frees it.
func TestAChannelIsBusy(t *testing.T) {
	s := start(t, sandbox.Options{Delay: 10 * time.Second})
	payer := newChannelPayer(t, s, sandbox.USDC)
	s.Inject("seller slow", 1)
	slow := make(chan testworld.Answer, 1)
	go func() {
		slow <- testworld.PayWithin(t, 2*time.Second, s.SellerURL+"/batch", payer.c,
			payer.signed(mill, leastDeposit).Payload)
	}()
	require.Eventually(t, func() bool {
		list := s.Channels()
		return len(list) == 1 && list[0].Charged == mill
	}, 5*time.Second, 5*time.Millisecond)
	second := payer.signed(2*mill, 0).Payload
	require.Equal(t, "invalid_batch_settlement_evm_channel_busy", payer.pay(second).Why(t))
	require.Error(t, (<-slow).Err)
	require.Eventually(t, func() bool { return payer.pay(second).Status == 200 }, 5*time.Second,
		20*time.Millisecond)
}

// What the reference facilitator and the contracts refuse is refused, in their words, and moves nothing.
func TestBatchRefuses(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newChannelPayer(t, s, sandbox.USDC)
	poor := newChannelPayer(t, s, leastDeposit-1)
	const stranger = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	// signs makes a payload whose voucher is good for a config that was changed
	signs := func(p *channelPayer, ceiling, deposit uint64, change func(*batchPayload)) json.RawMessage {
		b := must.Get(readBatch(p.signed(ceiling, deposit).Payload))(t)
		change(b)
		data := s.chain.batchData()
		b.Voucher.ID = data.channelID(b.Config)
		signature := signDigest(t, p.key, data.voucher(b.Voucher.ID, ceiling))
		b.Voucher.Signature = "0x" + hex.EncodeToString(signature[:])
		return must.Get(json.Marshal(b))(t)
	}
	spoiled := func(payload json.RawMessage, old, with string) json.RawMessage {
		changed := strings.Replace(string(payload), old, with, 1)
		require.NotEqual(t, string(payload), changed)
		return json.RawMessage(changed)
	}
	deposit := payer.signed(mill, leastDeposit)
	asIs := func(*batchPayload) {}
	for _, row := range []struct {
		reason  string
		payload json.RawMessage
	}{
		{"payload_type", spoiled(deposit.Payload, `"type":"deposit"`, `"type":"gift"`)},
		{"channel_id_invalid", spoiled(deposit.Payload, `"channelId":"0x`, `"channelId":"`)},
		{"channel_id_mismatch", spoiled(deposit.Payload, deposit.Evidence.Channel,
			common.HexToHash("0x01").Hex())},
		{"receiver_mismatch", signs(payer, mill, 0, func(b *batchPayload) { b.Config.Receiver = stranger })},
		{"receiver_authorizer_mismatch", signs(payer, mill, 0, func(b *batchPayload) {
			b.Config.ReceiverAuthorizer = stranger
		})},
		{"token_mismatch", signs(payer, mill, 0, func(b *batchPayload) { b.Config.Token = stranger })},
		{"withdraw_delay_mismatch", signs(payer, mill, 0, func(b *batchPayload) {
			b.Config.WithdrawDelay = 901
		})},
		{"voucher_signature", signs(payer, mill, 0, func(b *batchPayload) {
			b.Config.PayerAuthorizer = stranger
		})},
		{"channel_not_found", signs(payer, mill, 0, asIs)},
		{"deposit_below_min_deposit", payer.signed(mill, leastDeposit-1).Payload},
		{"receive_authorization_signature", spoiled(deposit.Payload, `"amount":"10000"`,
			`"amount":"10001"`)},
		{"payload_authorization_valid_before", signs(payer, mill, leastDeposit, func(b *batchPayload) {
			b.Deposit.Authorization.By3009.ValidBefore = fmt.Sprint(s.Now().Unix() + 5)
		})},
		{"payload_authorization_valid_after", signs(payer, mill, leastDeposit, func(b *batchPayload) {
			b.Deposit.Authorization.By3009.ValidAfter = fmt.Sprint(s.Now().Unix() + 30)
		})},
		{"erc3009_authorization_required", signs(payer, mill, leastDeposit, func(b *batchPayload) {
			b.Deposit.Authorization.By3009 = nil
		})},
		{"insufficient_balance", poor.signed(mill, leastDeposit).Payload},
		{"cumulative_exceeds_balance", payer.signed(leastDeposit+mill, leastDeposit).Payload},
	} {
		t.Run(row.reason, func(t *testing.T) {
			require.Equal(t, "invalid_batch_settlement_evm_"+row.reason, payer.pay(row.payload).Why(t))
		})
	}
	require.Empty(t, s.Settlements())
	require.EqualValues(t, sandbox.USDC, s.Balance(payer.Address()))
	_, served := s.Requests("/batch")
	require.Zero(t, served)

	require.Equal(t, 200, payer.pay(deposit.Payload).Status)
	require.Equal(t, string(errMismatch), payer.pay(deposit.Payload).Why(t))
	require.Equal(t, "invalid_batch_settlement_evm_deposit_simulation_failed",
		payer.forgotten(deposit.Payload).Why(t), "a nonce is used once")
	require.Len(t, s.Settlements(), 1)
}

// A refund that the seller's authorizer did not sign, or that claims more than was promised, moves nothing.
func TestARefundIsTheAuthorizers(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newChannelPayer(t, s, sandbox.USDC)
	a, _, _ := payer.paid(mill, leastDeposit)
	var record channelRecord
	s.mu.Lock()
	record = *s.records[a.Evidence.Channel]
	s.mu.Unlock()
	refund := func() channelRefund {
		r := channelRefund{config: record.config, id: record.id, amount: 9 * mill,
			claims: []channelClaim{record.claim()}}
		r.claimsSignature = signedBy(s.authorizer, s.chain.batchData().claims(r.claims))
		r.signature = signedBy(s.authorizer, s.chain.batchData().refund(r.id, r.nonce, r.amount))
		return r
	}
	other := must.Get(s.NewAccount("evm", 0))(t)
	s.chain.Lock()
	defer s.chain.Unlock()
	for why, change := range map[string]func(*channelRefund){
		"InvalidSignature()": func(r *channelRefund) {
			r.signature = signedBy(other, s.chain.batchData().refund(r.id, r.nonce, r.amount))
		},
		"RefundNonceMismatch()": func(r *channelRefund) { r.nonce = 1 },
		"ClaimExceedsCeiling()": func(r *channelRefund) {
			r.claims[0].total = 2 * mill
			r.claimsSignature = signedBy(s.authorizer, s.chain.batchData().claims(r.claims))
		},
		"ClaimExceedsBalance()": func(r *channelRefund) {
			r.claims[0].total, r.claims[0].ceiling = 11*mill, 11*mill
			r.claimsSignature = signedBy(s.authorizer, s.chain.batchData().claims(r.claims))
		},
	} {
		r := refund()
		change(&r)
		_, _, err := s.chain.executeRefund(s.Settler, r)
		require.Equal(t, sandbox.Reverted(why), err)
	}
	r := refund()
	r.claims[0].ceiling = 2 * mill // that nobody promised
	r.claims[0].total = 2 * mill
	r.claimsSignature = signedBy(s.authorizer, s.chain.batchData().claims(r.claims))
	_, _, err := s.chain.executeRefund(s.Settler, r)
	require.Equal(t, sandbox.Reverted("InvalidSignature()"), err)
	require.Equal(t, channelState{balance: leastDeposit}, s.chain.channel(record.id))
	_, refunded, err := s.chain.executeRefund(s.Settler, refund())
	require.NoError(t, err)
	require.EqualValues(t, 9*mill, refunded)
	_, _, err = s.chain.executeRefund(s.Settler, refund())
	require.Equal(t, sandbox.Reverted("RefundNonceMismatch()"), err)
}

// The wallet's code and this package's, written apart, name a channel alike; and so do the contract's names.
func TestChannelNames(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newChannelPayer(t, s, 0)
	config, id, err := payer.Config(payer.c.Accepts[0], s.chain.Asset, "", "")
	require.NoError(t, err)
	require.Equal(t, id, s.chain.batchData().channelID(config))
	for signature, selector := range map[string]string{"channels(bytes32)": callChannels,
		"pendingWithdrawals(bytes32)": callPendingWithdrawals, "refundNonce(bytes32)": callRefundNonce} {
		require.Equal(t, selector, hex.EncodeToString(sandbox.Keccak(signature)[:4]), signature)
	}
}
