package batch

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// permitOrder is the deposit of the vectors by Permit2.
func permitOrder(t *testing.T, name string) (v batchVector, o onchain.Order) {
	t.Helper()
	v = batchVectors(t)[name]
	o = batchOrder(t, v, 1000, 5000)
	o.Extensions = v.PaymentRequired.Extensions
	return v, o
}

// The reference client 2.27 signs the same deposit by Permit2, byte for byte: with an approval that is there,
// and with one by EIP-2612.
func TestDepositsByPermit2EqualTheVectors(t *testing.T) {
	for name, allowance := range map[string]uint64{"batch_deposit_permit2": 5000,
		"batch_deposit_permit2_eip2612": 4999} {
		t.Run(name, func(t *testing.T) {
			v, o := permitOrder(t, name)
			f, signer := newFakeNode(t), testSigner(t)
			f.Allowance = money.NewAmount(allowance)
			made := must.Get(f.contractFor(signer, 24*time.Hour).Authorize(t.Context(), o))(t)
			require.Equal(t, compacted(t, v.Payload.Payload), string(made.Payload))
			require.Len(t, signer.Digests, len(v.TypedData))
			for _, signed := range v.TypedData {
				require.Contains(t, signer.Digests,
					[32]byte(must.Get(hex.DecodeString(signed.Digest[2:]))(t)))
			}
			whole := must.Get(wire.EncodePayload(&wire.Challenge{Version: 2, Extensions: o.Extensions},
				o.Requirement, made.Payload, made.Extensions))(t)
			sent := must.JSON[struct{ Extensions json.RawMessage }](whole)(t)
			if len(v.Payload.Extensions) == 0 {
				require.Empty(t, made.Extensions)
			} else {
				want := must.Get(json.Marshal(v.Payload.Extensions))(t)
				require.JSONEq(t, string(want), string(sent.Extensions))
			}

			e := made.Evidence
			require.Equal(t, []any{x402.Permit2, message.BatchContract, "5000", false},
				[]any{e.Way, e.PayTo, e.Amount.String(), e.IsVoucher()})
			require.Equal(t, noon.Add(time.Hour).Unix(), e.ValidBefore)
			require.Equal(t, sepolia+" permit2 "+us+" "+e.Nonce, e.Unique())
		})
	}
}

// Nothing is signed where Permit2 may not move the deposit, and nobody brings an approval of it.
func TestDepositsByPermit2AreRefusedBeforeSigning(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *onchain.Order, f *fakeNode)
		code   x402.Code
	}{
		"no approval": {func(o *onchain.Order, _ *fakeNode) { o.Extensions = nil }, x402.NoDelegation},
		"a token without EIP-2612": {func(_ *onchain.Order, f *fakeNode) { f.NoPermits = true },
			x402.InvalidRequirement},
		"no Permit2 there": {func(_ *onchain.Order, f *fakeNode) { f.NoPermit2 = true },
			x402.InvalidRequirement},
		"a used nonce": {func(_ *onchain.Order, f *fakeNode) { f.PermitUsed = true }, x402.Internal},
		"an owner's": {func(o *onchain.Order, _ *fakeNode) {
			o.Channel.Deposit = money.Amount{}
			o.Channel.Owners = &x402.OwnersDeposit{Salt: common.Hash{}.Hex(),
				Signature: "0x" + strings.Repeat("00", 65)}
		}, x402.InvalidRequirement},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := permitOrder(t, "batch_deposit_permit2_eip2612")
			f, signer := newFakeNode(t), testSigner(t)
			c.change(&o, f)
			requireCode(t, c.code,
				must.Err(f.contractFor(signer, 24*time.Hour).Authorize(t.Context(), o)))
			require.Empty(t, signer.Digests, "the signer was asked")
		})
	}
}

// A token that is paid by Permit2 alone has channels, by sellers who ask for Permit2.
func TestChannelsOfATokenWithoutEIP3009(t *testing.T) {
	_, o := permitOrder(t, "batch_deposit_permit2")
	c := newFakeNode(t).contractFor(testSigner(t), 24*time.Hour)
	asset := usdc
	asset.Permit2Only, asset.Name = true, ""
	require.NoError(t, c.Payable(o.Requirement, asset))
	for _, method := range []string{`"eip3009"`, `"erc7710"`, `7`} {
		o.Requirement.Extra["assetTransferMethod"] = json.RawMessage(method)
		require.Error(t, c.Payable(o.Requirement, asset))
	}
}

// What became of a deposit by Permit2: its transaction has the nonce somewhere in it, and moved the money to
// the contract of channels.
func TestStatusOfADepositByPermit2(t *testing.T) {
	_, o := permitOrder(t, "batch_deposit_permit2")
	f := newFakeNode(t)
	f.Allowance = money.NewAmount(5000)
	e := must.Get(f.contractFor(testSigner(t), 24*time.Hour).Authorize(t.Context(), o))(t).Evidence
	id, used := common.Hash{7}, true
	value := e.Amount.Bytes32()
	entry := evm.LogEntry{Address: common.HexToAddress(e.Asset), Topics: []common.Hash{evm.TopicTransfer,
		topic(us), topic(message.BatchContract)}, Data: value[:], BlockNumber: 90, TransactionHash: id}
	said := func(v any) string { return string(must.Get(json.Marshal(v))(t)) }
	input := "0x" + hex.EncodeToString(crypto.Keccak256([]byte("deposit(…)"))[:4]) + e.Nonce[2:]
	node := saying(func(method, tag string) string {
		switch method {
		case "eth_chainId":
			return `"0x14a34"`
		case "eth_getBlockByNumber":
			number, err := hexutil.DecodeUint64(tag)
			if err != nil {
				number = 99
			}
			return fmt.Sprintf(`{"number":"0x%x","timestamp":"0x%x"}`, number, noon.Unix()-69+int64(number))
		case "eth_call":
			bits := strings.Repeat("0", 64)
			if used {
				bits = strings.Repeat("f", 64)
			}
			return `"0x` + bits + `"`
		case "eth_getLogs":
			return said([]evm.LogEntry{entry})
		case "eth_getTransactionByHash":
			return said(map[string]any{"hash": id, "to": message.BatchContract, "input": input})
		case "eth_getTransactionReceipt":
			return said(map[string]any{"transactionHash": id, "status": "0x1", "logs": []evm.LogEntry{entry}})
		}
		return "null"
	})
	channels := contractOf(node)
	got := must.Get(channels.Status(t.Context(), e))(t)
	require.Equal(t, []any{x402.Settled, id.Hex()}, []any{got.State, got.Transaction}, "%+v", got)
	input = "0x12345678" // another deposit of the same amount
	got = must.Get(channels.Status(t.Context(), e))(t)
	require.Empty(t, got.Transaction, "%+v", got)
	used = false
	got = must.Get(channels.Status(t.Context(), e))(t)
	require.Equal(t, []any{x402.Open, true}, []any{got.State, got.Unused})
	e.ValidBefore = noon.Unix() + 29
	require.Equal(t, x402.Expired, must.Get(channels.Status(t.Context(), e))(t).State)
}

// A voucher alone is the same promise, and says nothing of the deposit by Permit2.
func TestVoucherOfADepositByPermit2(t *testing.T) {
	v, _ := permitOrder(t, "batch_deposit_permit2")
	c := newFakeNode(t).contractFor(testSigner(t), 24*time.Hour)
	alone := must.Get(c.VoucherAlone(sepolia, v.Payload.Payload))(t)
	is, _, err := payload.DecodeChannel(usdc, alone)
	require.NoError(t, err)
	require.Nil(t, is.Deposit)
	require.NotContains(t, string(alone), "permit2Authorization")
	require.False(t, must.Get(c.IsBrought(t.Context(), sepolia, v.Payload.Payload))(t))
}
