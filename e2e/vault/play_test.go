package vault

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/schemes"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// windows is what a cheque's last moment, and what a vault allows of it, are multiples of: between two of
// them clock and chain agree.
const windows = 60

// play is the play chain's vault beside the model of the contract.
type play struct {
	*rand.Rand
	*schemes.World
	t      *testing.T
	model  *model
	keys   []*ecdsa.PrivateKey // the last is never an agent's
	asset  string
	domain [32]byte
}

// The vault of the play chain says and takes what the contract's model does, in sequences that are made up.
func TestThePlayVaultIsTheModel(t *testing.T) {
	paid := 0
	for seed := range uint64(20) {
		s := must.Get(schemes.Start(sandbox.Options{}))(t)
		p := &play{Rand: rand.New(rand.NewPCG(seed, 1)), World: s, t: t}
		dollar, _ := x402.NewRegistry(nil).Named(sandbox.EVM, "")
		p.asset = dollar.Address
		p.domain = [32]byte(crypto.Keccak256Hash(crypto.Keccak256([]byte("EIP712Domain(string name,"+
			"string version,uint256 chainId,address verifyingContract)")),
			crypto.Keccak256([]byte(dollar.Name)), crypto.Keccak256([]byte(dollar.Version)),
			Words(84532, common.HexToAddress(p.asset))))
		for range 3 {
			key := must.Get(crypto.GenerateKey())(t)
			p.keys = append(p.keys, key)
		}
		early := p.Uint64N(500_000)
		p.Fund(p.VaultEVM, early)
		p.model = newModel(0, Rule{Period: big.NewInt(1)}, new(big.Int).SetUint64(early), new(big.Int))
		p.allow()
		for range 40 {
			p.Advance(time.Duration(p.IntN(3000)) * time.Second)
			p.step()
			said := p.state()
			require.Equal(t, p.wanted(), said, "seed %d", seed)
		}
		require.True(t, p.model.keepsItsPromise(), "seed %d", seed)
		paid += len(p.Settlements())
		require.NoError(t, s.Close())
	}
	require.Greater(t, paid, 100)
}

func (p *play) step() {
	switch p.IntN(10) {
	case 0:
		p.allow()
	case 1:
		if p.IntN(3) == 0 {
			p.RevokeVault()
			p.model.revoke()
		}
	case 2:
		gift := p.Uint64N(200_000)
		p.Fund(p.VaultEVM, gift)
		p.model.give(new(big.Int).SetUint64(gift))
	default:
		p.cash()
	}
}

func (p *play) allow() {
	rule := Rule{Agent: addressOf(p.keys[p.IntN(2)]), PerPeriod: big.NewInt(p.Int64N(60_000)),
		Period: big.NewInt(60 + p.Int64N(5000)), PerPayment: big.NewInt(p.Int64N(60_000)),
		MaxWindow: big.NewInt(p.Int64N(9) * windows)}
	seconds := func(n *big.Int) time.Duration { return time.Duration(n.Int64()) * time.Second }
	p.OpenVault(rule.Agent.Hex(), onchain.VaultLimits{PerPeriod: money.NewAmount(rule.PerPeriod.Uint64()),
		Period: seconds(rule.Period), PerPayment: money.NewAmount(rule.PerPayment.Uint64()),
		MaxWindow: seconds(rule.MaxWindow)})
	p.now()
	require.True(p.t, p.model.allow(rule))
}

func (p *play) cash() {
	signer := p.keys[2]
	for _, key := range p.keys {
		if addressOf(key) == p.model.rule.Agent && p.IntN(5) > 0 {
			signer = key
		}
	}
	now := int64(p.awayFromPeriods())
	c := Cheque{To: common.HexToAddress(p.PayToEVM), Value: big.NewInt(1 + p.Int64N(30_000)),
		ValidAfter: big.NewInt(now - 600), ValidBefore: big.NewInt(now + 30 + p.Int64N(6)*windows)}
	copy(c.Nonce[:], crypto.Keccak256(fmt.Append(nil, p.Uint64())))
	bySigner := Sign(c.Digest(p.domain, common.HexToAddress(p.VaultEVM)), signer)
	terms := map[string]any{"scheme": "exact", "network": sandbox.EVM, "amount": c.Value.String(),
		"asset": p.asset, "payTo": p.PayToEVM, "maxTimeoutSeconds": 600,
		"extra": map[string]any{"name": "USDC", "version": "2"}}
	body := must.Get(json.Marshal(map[string]any{"x402Version": 2, "paymentRequirements": terms,
		"paymentPayload": map[string]any{"x402Version": 2, "accepted": terms, "payload": map[string]any{
			"signature": hexutil.Encode(c.Wrap(bySigner)), "authorization": map[string]any{"from": p.VaultEVM,
				"to": p.PayToEVM, "value": c.Value.String(), "validAfter": c.ValidAfter.String(),
				"validBefore": c.ValidBefore.String(), "nonce": hexutil.Encode(c.Nonce[:])}}}}))(p.t)
	answer := must.Get(http.Post(p.FacilitatorURL+"/settle", "application/json", bytes.NewReader(body)))(p.t)
	defer answer.Body.Close()
	var done struct {
		Success     bool
		ErrorReason string
	}
	require.NoError(p.t, json.NewDecoder(answer.Body).Decode(&done))
	require.Equal(p.t, p.model.cash(c, addressOf(signer)), done.Success, "%s %+v", done.ErrorReason, c)
	if !done.Success {
		require.Equal(p.t, "invalid_exact_evm_signature", done.ErrorReason)
	}
}

// now sets the model's clock by the newest block, and is that block's number.
func (p *play) now() (block string) {
	var newest struct{ Number, Timestamp string }
	p.ask(&newest, "eth_getBlockByNumber", "latest", false)
	seconds := must.Get(strconv.ParseUint(strings.TrimPrefix(newest.Timestamp, "0x"), 16, 64))(p.t)
	p.model.now = seconds
	return newest.Number
}

// awayFromPeriods is now, where no period ends within the seconds that clock and newest block may differ by.
func (p *play) awayFromPeriods() uint64 {
	for {
		p.now()
		into := (p.model.now - p.model.start) % p.model.rule.Period.Uint64()
		if into > 5 && into+10 < p.model.rule.Period.Uint64() {
			return p.model.now
		}
		p.Advance(15 * time.Second)
	}
}

// state is what the vault says of itself in the newest block, which the model's clock is set by.
func (p *play) state() (words string) {
	block := p.now()
	call := map[string]any{"to": p.VaultEVM, "data": hexutil.Encode(Data("state()"))}
	p.ask(&words, "eth_call", call, block)
	return words
}

// wanted is what the model says of it.
func (p *play) wanted() string {
	m := p.model
	return hexutil.Encode(Words(common.HexToAddress(p.OwnerEVM), common.HexToAddress(p.asset), m.rule.Agent,
		m.balance, m.available(), m.rule.PerPayment, m.rule.MaxWindow, m.rule.PerPeriod, m.rule.Period,
		m.nextPeriod()))
}

func (p *play) ask(into any, method string, params ...any) {
	question := must.Get(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method,
		"params": params}))(p.t)
	answer := must.Get(http.Post(p.EVMNodeURL, "application/json", bytes.NewReader(question)))(p.t)
	defer answer.Body.Close()
	var said struct{ Result json.RawMessage }
	require.NoError(p.t, json.NewDecoder(answer.Body).Decode(&said))
	require.NoError(p.t, json.Unmarshal(said.Result, into))
}
