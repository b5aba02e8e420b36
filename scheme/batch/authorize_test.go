package batch

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/evmtest"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

type batchVector struct {
	PaymentRequired struct {
		Accepts    []json.RawMessage
		Extensions map[string]json.RawMessage
	}
	Payload struct {
		Payload    json.RawMessage
		Extensions map[string]json.RawMessage
	}
	TypedData     []struct{ Digest string }
	ChannelConfig x402.ChannelConfig
	ChannelID     string `json:"channelId"`
	Erc3009Nonce  string
}

func batchVectors(t testing.TB) map[string]batchVector {
	return evmtest.ReadJSON[map[string]batchVector](t, "../../chain/evm/testdata/batch-vectors.json")
}

func batchOrder(t testing.TB, v batchVector, ceiling, deposit uint64) onchain.Order {
	r := must.Get(x402.DecodeRequirement(v.PaymentRequired.Accepts[0], 2))(t)
	return onchain.Order{Requirement: r, Asset: usdc, Source: us, Validity: time.Hour, Now: noon,
		Channel: &onchain.ChannelOrder{Config: batchVectors(t)["batch_channel_id"].ChannelConfig, Number: 1,
			Ceiling: money.NewAmount(ceiling), Deposit: money.NewAmount(deposit)}}
}

// The reference client 2.27 signs the same, byte for byte.
func TestChannelPayloadsEqualTheVectors(t *testing.T) {
	all := batchVectors(t)
	for name, c := range map[string]struct{ ceiling, deposit uint64 }{
		"batch_deposit_eip3009": {1000, 5000}, "batch_voucher_second": {1700, 0},
		"batch_top_up": {5500, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			made := must.Get(newFakeNode(t).contractFor(testSigner(t), 24*time.Hour).Authorize(
				t.Context(), batchOrder(t, all[name], c.ceiling, c.deposit)))(t)
			require.JSONEq(t, string(all[name].Payload.Payload), string(made.Payload))
			require.Equal(t, c.deposit == 0, made.Evidence.IsVoucher())
		})
	}
}

func TestRefundEqualsTheVector(t *testing.T) {
	all := batchVectors(t)
	v := all["batch_refund_full"]
	shown := must.JSON[struct {
		Voucher struct{ MaxClaimableAmount, Signature string }
	}](v.Payload.Payload)(t)
	ceiling := must.Get(money.ParseAmount(shown.Voucher.MaxClaimableAmount))(t)
	c := newFakeNode(t).contractFor(testSigner(t), 24*time.Hour)
	config := all["batch_channel_id"].ChannelConfig
	of := x402.ChannelVoucher{Ceiling: ceiling, Signature: shown.Voucher.Signature}
	require.JSONEq(t, string(v.Payload.Payload), string(must.Get(c.Refund(sepolia, config, of))(t)))
	of.Ceiling = money.NewAmount(3201)
	require.Error(t, must.Err(c.Refund(sepolia, config, of)))
}

// The voucher of a deposit by itself is the same promise, and nothing of the deposit.
func TestVoucherAlone(t *testing.T) {
	v := batchVectors(t)["batch_deposit_eip3009"]
	c := newFakeNode(t).contractFor(testSigner(t), 24*time.Hour)
	alone := must.Get(c.VoucherAlone(sepolia, v.Payload.Payload))(t)
	was, signed, err := payload.DecodeChannel(usdc, v.Payload.Payload)
	require.NoError(t, err)
	is, shown, err := payload.DecodeChannel(usdc, alone)
	require.NoError(t, err)
	require.Nil(t, is.Deposit)
	require.Equal(t, signed.Voucher, shown.Voucher)
	was.Deposit = nil
	require.Equal(t, was, is)
	require.Contains(t, string(alone), `"type":"voucher"`)
	require.Error(t, must.Err(c.VoucherAlone(sepolia, []byte(`{}`))))
}

// The reference's corrective 402: our own voucher recovers, a damaged one does not.
func TestACorrectiveChallengeShowsOurVoucher(t *testing.T) {
	v := batchVectors(t)["batch_corrective_402"]
	r := must.Get(x402.DecodeRequirement(v.PaymentRequired.Accepts[0], 2))(t)
	n := must.Get(wire.Challenge{Accepts: []x402.Requirement{r}}.CorrectiveCount(sepolia))(t)
	require.Equal(t, "2900", n.Charged.String())
	require.Equal(t, "3200", n.Voucher.Ceiling.String())
	c := newFakeNode(t).contractFor(testSigner(t), 24*time.Hour)
	require.True(t, c.OwnVoucher(sepolia, n.ID, *n.Voucher))
	require.False(t, c.OwnVoucher(sepolia, n.ID, x402.ChannelVoucher{Ceiling: money.NewAmount(3201),
		Signature: n.Voucher.Signature}))
	forged := []byte(n.Voucher.Signature)
	forged[10] ^= 1
	require.False(t, c.OwnVoucher(sepolia, n.ID, x402.ChannelVoucher{Ceiling: n.Voucher.Ceiling,
		Signature: string(forged)}))
	require.False(t, c.OwnVoucher(sepolia, common.Hash{1}.Hex(), *n.Voucher))
}

func TestChannelsThatAreNotPaidThrough(t *testing.T) {
	v := batchVectors(t)["batch_deposit_eip3009"]
	signer := testSigner(t)
	c := newFakeNode(t).contractFor(signer, time.Hour)
	extra := func(key, value string) func(r *x402.Requirement) {
		return func(r *x402.Requirement) { r.Extra[key] = json.RawMessage(value) }
	}
	for name, change := range map[string]func(r *x402.Requirement){
		"version 1":            func(r *x402.Requirement) { r.Version = 1 },
		"another scheme":       func(r *x402.Requirement) { r.Scheme = x402.Exact },
		"no authorizer":        func(r *x402.Requirement) { delete(r.Extra, "receiverAuthorizer") },
		"authorizer zero":      extra("receiverAuthorizer", `"0x0000000000000000000000000000000000000000"`),
		"we as authorizer":     extra("receiverAuthorizer", `"`+us+`"`),
		"a delay of two hours": extra("withdrawDelay", "7200"),
		"a delay too short":    extra("withdrawDelay", "899"),
		"a delay as a text":    extra("withdrawDelay", `"900"`),
		"by another method":    extra("assetTransferMethod", `"erc7710"`),
		"another domain":       extra("name", `"GatewayWalletBatched"`),
		"a deposit of nothing": extra("minDeposit", `"-1"`),
		"to us":                func(r *x402.Requirement) { r.PayTo = us },
	} {
		t.Run(name, func(t *testing.T) {
			o := batchOrder(t, v, 1000, 5000)
			change(&o.Requirement)
			require.Error(t, c.Payable(o.Requirement, usdc))
			require.Error(t, must.Err(c.Authorize(t.Context(), o)))
		})
	}
	for name, change := range map[string]func(o *onchain.Order){
		"another salt":  func(o *onchain.Order) { o.Channel.Config.Salt = common.Hash{1}.Hex() },
		"an agent's":    func(o *onchain.Order) { o.Channel.Salt = common.Hash{1}.Hex() },
		"another payer": func(o *onchain.Order) { o.Channel.Config.Payer = o.Requirement.PayTo },
		"another authorizer": func(o *onchain.Order) {
			o.Channel.Config.PayerAuthorizer = o.Requirement.PayTo
		},
		"less than the price":   func(o *onchain.Order) { o.Channel.Ceiling = money.NewAmount(999) },
		"a deposit for a month": func(o *onchain.Order) { o.Validity = 30 * 24 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			o := batchOrder(t, v, 1000, 5000)
			change(&o)
			require.Error(t, must.Err(c.Authorize(t.Context(), o)))
		})
	}
	require.Empty(t, signer.Digests, "nothing was signed")
	o := batchOrder(t, v, 1000, 5000) // of the channel that one agent has by itself
	o.Channel.Salt = common.Hash{1}.Hex()
	var id string
	var err error
	o.Channel.Config, id, err = c.Config(o.Requirement, usdc, "", o.Channel.Salt)
	require.NoError(t, err)
	require.NotEqual(t, v.ChannelID, id)
	must.Get(c.Authorize(t.Context(), o))(t)
	require.NoError(t, c.Payable(batchOrder(t, v, 1000, 5000).Requirement, usdc))
}

func TestStatusOfAVoucher(t *testing.T) {
	word := func(n uint64) string { return fmt.Sprintf("%064x", n) }
	for name, c := range map[string]struct {
		latest, finalized [2]uint64 // balance, claimed
		want              x402.StatusState
	}{
		"not claimed":              {[2]uint64{10, 0}, [2]uint64{10, 0}, x402.Open},
		"claimed below it":         {[2]uint64{10, 4}, [2]uint64{10, 4}, x402.Open},
		"claimed":                  {[2]uint64{10, 5}, [2]uint64{10, 0}, x402.Settled},
		"claimed beyond it":        {[2]uint64{10, 9}, [2]uint64{10, 0}, x402.Settled},
		"nothing is left":          {[2]uint64{4, 4}, [2]uint64{4, 4}, x402.Expired},
		"nothing is left, not yet": {[2]uint64{4, 4}, [2]uint64{10, 4}, x402.Open},
		"there is no channel":      {[2]uint64{}, [2]uint64{}, x402.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			node := saying(func(method, tag string) string {
				switch {
				case method == "eth_chainId":
					return `"0x14a34"`
				case method == "eth_getBlockByNumber" && tag == "finalized":
					return `{"number":"0x63","timestamp":"0x1"}`
				case tag == "0x63":
					return `"0x` + word(c.finalized[0]) + word(c.finalized[1]) + `"`
				}
				return `"0x` + word(c.latest[0]) + word(c.latest[1]) + `"`
			})
			status := must.Get(contractOf(node).Status(t.Context(), x402.Evidence{
				Network: sepolia, Channel: common.Hash{7}.Hex(), Ceiling: money.NewAmount(5)}))(t)
			require.Equal(t, c.want, status.State)
			require.Equal(t, c.want == x402.Expired, status.Block == 0x63)
		})
	}
	silent := saying(func(method, _ string) string {
		if method == "eth_chainId" {
			return `"0x14a34"`
		}
		return `"0x"`
	})
	status, err := contractOf(silent).Status(t.Context(), x402.Evidence{Network: sepolia,
		Channel: common.Hash{7}.Hex(), Ceiling: money.NewAmount(5)})
	require.Error(t, err, "an address without code is no empty channel")
	require.Equal(t, x402.Open, status.State)
}

// What a channel holds and what was asked back of it are of one block, which is named.
func TestAChannelIsReadAtOneBlock(t *testing.T) {
	node := saying(func(method, tag string) string {
		switch {
		case method == "eth_chainId":
			return `"0x14a34"`
		case method == "eth_getBlockByNumber" && tag == "latest":
			return `{"number":"0x64","timestamp":"0xc8"}`
		case method == "eth_call" && tag == "0x64":
			return fmt.Sprintf(`"0x%064x%064x"`, 10, 4)
		}
		return "null"
	})
	got, err := contractOf(node).ReadChannel(t.Context(), sepolia, common.Hash{7}.Hex())
	require.NoError(t, err)
	require.Equal(t, onchain.ChannelBalance{Block: 100, At: time.Unix(200, 0).UTC(),
		Balance: money.NewAmount(10), Claimed: money.NewAmount(4), Withdrawing: money.NewAmount(10),
		WithdrawBegan: time.Unix(4, 0).UTC()}, got)
}

func TestBatchSelectors(t *testing.T) {
	for signature, selector := range map[string][]byte{
		"channels(bytes32)": selectChannels, "pendingWithdrawals(bytes32)": selectWithdrawals,
		"initiateWithdraw((address,address,address,address,address,uint40,bytes32),uint128)": selectInitiate,
		"finalizeWithdraw((address,address,address,address,address,uint40,bytes32))":         selectFinalize,
	} {
		require.Equal(t, crypto.Keccak256([]byte(signature))[:4], selector, signature)
	}
}
