package schemes

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// account is one whose transactions are written here, by go-ethereum's encoder and not by the wallet's.
type account struct{ key *ecdsa.PrivateKey }

func newAccount(t *testing.T) account {
	key := must.Get(crypto.GenerateKey())(t)
	return account{key: key}
}

func (a account) Address() string { return crypto.PubkeyToAddress(a.key.PublicKey).Hex() }

type rawTransaction struct {
	chainID, nonce, gas, tip, maxFee uint64
	to                               string
	data                             []byte
}

func plainTransaction(s *World, nonce uint64, data []byte) rawTransaction {
	return rawTransaction{chainID: 84532, nonce: nonce, gas: 60_000, tip: sandbox.UsualTip,
		maxFee: 3 * sandbox.BaseFee, to: s.chain.Asset.Address, data: data}
}

func (tx rawTransaction) fields() []any {
	return []any{tx.chainID, tx.nonce, tx.tip, tx.maxFee, tx.gas, common.FromHex(tx.to), uint64(0), tx.data,
		[]any{}}
}

func (a account) signature(tx rawTransaction) (signature [65]byte, err error) {
	unsigned, err := rlp.EncodeToBytes(tx.fields())
	if err != nil {
		return signature, err
	}
	made, err := crypto.Sign(crypto.Keccak256([]byte{2}, unsigned), a.key)
	return [65]byte(made), err
}

func (a account) raw(t *testing.T, tx rawTransaction) hexutil.Bytes {
	signature := must.Get(a.signature(tx))(t)
	encoded := must.Get(rlp.EncodeToBytes(append(tx.fields(), uint64(signature[64]),
		new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:64]))))(t)
	return append([]byte{2}, encoded...)
}

// Sign implements onchain.Signer.
func (a account) Sign(_ context.Context, d onchain.Draft) ([]byte, error) {
	signature, err := crypto.Sign(d.Signs[0], a.key)
	if err == nil {
		signature[64] += 27
	}
	return signature, err
}

// callOf is a call's data: addresses and amounts in words.
func callOf(selector string, args ...any) []byte {
	data := common.FromHex(selector)
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			data = append(data, common.LeftPadBytes(common.FromHex(arg), 32)...)
		case uint64:
			data = append(data, common.LeftPadBytes(new(big.Int).SetUint64(arg).Bytes(), 32)...)
		}
	}
	return data
}

func asked(t *testing.T, s *World, into any, method string, params ...any) string {
	question := must.Get(json.Marshal(params))(t)
	answer := []byte(testworld.AskNode(t, s.EVMNodeURL, method, string(question)))
	var refusal struct {
		Code    int
		Message string
	}
	if json.Unmarshal(answer, &refusal) == nil && refusal.Code != 0 {
		return refusal.Message
	}
	if into != nil {
		require.NoError(t, json.Unmarshal(answer, into))
	}
	return ""
}

// A node takes an account's transactions in the order of its nonces, for gas that it can pay, and refuses
// others; what was refused changes nothing.
func TestWhatANodeRefuses(t *testing.T) {
	s := start(t, sandbox.Options{})
	a := newAccount(t)
	const coins = 10_000_000 * 3 * sandbox.BaseFee
	s.FundGas(a.Address(), coins)
	approve := callOf(callApprove, s.Settler, uint64(5))
	first := a.raw(t, plainTransaction(s, 0, approve))
	require.Empty(t, asked(t, s, nil, "eth_sendRawTransaction", first))
	for refusal, spoil := range map[string]func(*rawTransaction){
		"nonce too low":               func(tx *rawTransaction) { tx.nonce = 0; tx.gas++ },
		"nonce too high":              func(tx *rawTransaction) { tx.nonce = 2 },
		"invalid chain id":            func(tx *rawTransaction) { tx.chainID = 8453 },
		"intrinsic gas too low":       func(tx *rawTransaction) { tx.gas = plainGas - 1 },
		"exceeds block gas limit":     func(tx *rawTransaction) { tx.gas = blockGas + 1 },
		"priority fee per gas higher": func(tx *rawTransaction) { tx.tip = tx.maxFee + 1 },
		"less than block base fee": func(tx *rawTransaction) {
			tx.maxFee, tx.tip = sandbox.BaseFee-1, 0
		},
		"insufficient funds for gas":      func(tx *rawTransaction) { tx.maxFee = coins / 60_000 },
		"not a transaction of EIP-1559":   nil,
		"insufficient funds for gas * pr": func(tx *rawTransaction) { tx.maxFee = math.MaxUint64 },
	} {
		t.Run(refusal, func(t *testing.T) {
			tx := plainTransaction(s, 1, approve)
			var raw hexutil.Bytes
			if spoil != nil {
				spoil(&tx)
				raw = a.raw(t, tx)
			}
			require.Contains(t, asked(t, s, nil, "eth_sendRawTransaction", raw), refusal)
		})
	}
	require.Contains(t, asked(t, s, nil, "eth_sendRawTransaction", first), "already known")
	mined, shown := s.Transactions(a.Address())
	require.Equal(t, []uint64{1, 10}, []uint64{mined, shown})
	require.EqualValues(t, coins-sandbox.CallGas*(sandbox.BaseFee+sandbox.UsualTip), s.Gas(a.Address()))
	require.EqualValues(t, 5, s.chain.allowance(a.Address(), s.Settler, math.MaxUint64))
}

// A transaction that the token reverts, or that has too little gas, is in a block, failed, and has cost gas.
func TestATransactionThatFails(t *testing.T) {
	s := start(t, sandbox.Options{})
	a := newAccount(t)
	s.FundGas(a.Address(), 1e15)
	s.Allow(a.Address(), 7)
	take := func(amount uint64) []byte { return callOf(callTransferFrom, s.OwnerEVM, a.Address(), amount) }
	for nonce, row := range []struct {
		data   []byte
		gas    uint64
		status string
		used   uint64
	}{
		{take(8), 60_000, "0x0", sandbox.CallGas},
		{take(7), sandbox.CallGas - 1, "0x0", sandbox.CallGas - 1},
		{[]byte{1, 2, 3, 4}, 60_000, "0x0", sandbox.CallGas},
		{take(7), 60_000, "0x1", sandbox.CallGas},
		{take(1), 60_000, "0x0", sandbox.CallGas},
	} {
		tx := plainTransaction(s, uint64(nonce), row.data)
		tx.gas = row.gas
		before := s.Gas(a.Address())
		var hash string
		require.Empty(t, asked(t, s, &hash, "eth_sendRawTransaction", a.raw(t, tx)))
		var r struct {
			Status, EffectiveGasPrice string
			GasUsed                   hexutil.Uint64
			Logs                      []json.RawMessage
		}
		require.Empty(t, asked(t, s, &r, "eth_getTransactionReceipt", hash))
		require.Equal(t, row.status, r.Status, "%d", nonce)
		require.EqualValues(t, row.used, r.GasUsed)
		require.Equal(t, before-row.used*(sandbox.BaseFee+sandbox.UsualTip), s.Gas(a.Address()))
		require.Equal(t, r.Status == "0x1", len(r.Logs) == 1)
	}
	require.EqualValues(t, 7, s.Balance(a.Address()))
	require.Equal(t, purse-7, s.Balance(s.OwnerEVM))
	pulls := s.Pulls()
	require.Len(t, pulls, 1)
	spelled := func(address string) string { return common.HexToAddress(address).Hex() }
	require.Equal(t, []any{s.OwnerEVM, a.Address(), uint64(7)},
		[]any{spelled(pulls[0].Payer), spelled(pulls[0].PayTo), pulls[0].Amount})
	message := map[string]any{"from": a.Address(), "to": s.chain.Asset.Address,
		"data": hexutil.Bytes(take(1))}
	require.Equal(t, "execution reverted: ERC20: transfer amount exceeds allowance",
		asked(t, s, nil, "eth_estimateGas", message))
}

// The wallet's own way of taking a float, by this node, honest or not: SendPull may be repeated, and Status
// finds what came of it.
func TestTheWalletsFloat(t *testing.T) {
	for _, fault := range []string{"", evmNodeMute, evmNodeDrops, evmNodeKnows} {
		t.Run(fault, func(t *testing.T) {
			s := start(t, sandbox.Options{})
			a := newAccount(t)
			rule := x402.AllowanceRule{Owner: s.OwnerEVM, Float: 2000, MaxGas: money.NewAmount(1e15)}
			wallet := evm.New(evm.Options{Signer: a, Now: s.Now,
				RPC:        map[string]string{sandbox.EVM: s.EVMNodeURL},
				Allowances: map[string]x402.AllowanceRule{sandbox.EVM: rule}})
			funds := func() x402.Funds {
				return must.Get(wallet.Funds(t.Context(), sandbox.EVM, s.chain.Asset))(t)
			}
			draft := func() (x402.Pull, error) {
				return wallet.DraftPull(t.Context(), s.chain.Asset, money.NewAmount(2*mill))
			}
			_, err := draft()
			require.True(t, x402.HasCode(err, x402.DelegationExhausted), "%v", err)
			s.Allow(a.Address(), 3*mill)
			require.Equal(t, "3000", funds().Free.String())
			_, err = draft()
			require.True(t, x402.HasCode(err, x402.InsufficientFunds), "gas: %v", err)
			s.FundGas(a.Address(), 1e15)

			p := must.Get(draft())(t)
			signed := must.Get(wallet.SignPull(t.Context(), "pay_1", p))(t)
			if fault != "" {
				s.Inject(fault, 1)
			}
			err = wallet.SendPull(t.Context(), sandbox.EVM, signed.Payload)
			require.Equal(t, fault == evmNodeMute, err != nil, "%v", err)
			status := must.Get(wallet.Status(t.Context(), signed.Evidence))(t)
			if fault == evmNodeDrops {
				require.Equal(t, x402.Open, status.State)
				require.True(t, status.Unused)
			}
			require.NoError(t, wallet.SendPull(t.Context(), sandbox.EVM, signed.Payload))
			status = must.Get(wallet.Status(t.Context(), signed.Evidence))(t)
			require.Equal(t, []any{x402.Settled, s.Pulls()[0].Transaction}, []any{status.State,
				status.Transaction})
			require.Contains(t, status.Note, "gas: 0.0000003")
			require.Len(t, s.Pulls(), 1)
			mined, shown := s.Transactions(a.Address())
			require.Equal(t, []uint64{1, 1}, []uint64{mined, shown})
			require.Equal(t, []uint64{2 * mill, mill, purse - 2*mill},
				[]uint64{s.Balance(a.Address()), s.Allowed(a.Address()), s.Balance(s.OwnerEVM)})
			require.Equal(t, "3000", funds().Free.String(), "between the two accounts nothing is lost")
		})
	}
}

// What an account approves by a transaction of its own is what Permit2 may move, and anybody else it names.
func TestAnAccountApproves(t *testing.T) {
	s := start(t, sandbox.Options{})
	a := newAccount(t)
	s.FundGas(a.Address(), 1e15)
	for nonce, row := range []struct {
		spender string
		amount  []byte
		want    uint64
	}{
		{message.Permit2Address, callOf("", uint64(9)), 9},
		{s.Settler, slices.Repeat([]byte{0xff}, 32), math.MaxUint64},
		{message.Permit2Address, callOf("", uint64(0)), 0},
	} {
		data := append(callOf(callApprove, row.spender), row.amount...)
		raw := a.raw(t, plainTransaction(s, uint64(nonce), data))
		require.Empty(t, asked(t, s, nil, "eth_sendRawTransaction", raw))
		var said hexutil.Bytes
		require.Empty(t, asked(t, s, &said, "eth_call", map[string]any{"to": s.chain.Asset.Address,
			"data": hexutil.Bytes(callOf(callAllowance, a.Address(), row.spender))}, "latest"))
		require.Equal(t, row.want, new(big.Int).SetBytes(said).Uint64(), "%d", nonce)
		if row.spender == message.Permit2Address {
			require.Equal(t, row.want, s.Approved(a.Address()))
		}
	}
}
