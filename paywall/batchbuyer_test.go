package paywall

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// channelBuyer signs whatever it is told to, and hashes it itself.
type channelBuyer struct {
	t       *testing.T
	lab     *lab
	key     signingKey
	config  x402.ChannelConfig
	asset   x402.AssetInfo
	c       *wire.Challenge
	deposit uint64
}

type signingKey struct {
	sign    func(digest [32]byte) string
	address string
}

func newSigningKey(t *testing.T) signingKey {
	key := must.Get(crypto.GenerateKey())(t)
	sign := func(digest [32]byte) string {
		signature := must.Get(crypto.Sign(digest[:], key))(t)
		signature[64] += 27
		return fmt.Sprintf("0x%x", signature)
	}
	return signingKey{sign: sign, address: crypto.PubkeyToAddress(key.PublicKey).Hex()}
}

func word(n uint64) []byte { b := money.NewAmount(n).Bytes32(); return b[:] }

func hashed(words ...[]byte) []byte { return crypto.Keccak256(words...) }

func ofText(text string) []byte { return hashed([]byte(text)) }

func ofAddress(t *testing.T, address string) []byte {
	var raw []byte
	must.Get(fmt.Sscanf(strings.TrimPrefix(address, "0x"), "%x", &raw))(t)
	return append(make([]byte, 32-len(raw)), raw...)
}

func typedDigest(t *testing.T, name, version, contract string, message []byte) [32]byte {
	domain := hashed(ofText("EIP712Domain(string name,string version,uint256 chainId,"+
		"address verifyingContract)"), ofText(name), ofText(version), word(84532), ofAddress(t, contract))
	return [32]byte(hashed([]byte{0x19, 0x01}, domain, message))
}

const (
	batchContract  = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003"
	batchCollector = "0x4020806089470a89826cB9fB1f4059150b550004"
)

// newBuyer has a million units, and asked for the price.
func (l *batchLab) newBuyer(t *testing.T) *channelBuyer {
	b := &channelBuyer{t: t, lab: l.lab, key: newSigningKey(t), deposit: 10_000}
	l.Fund(b.key.address, 1_000_000)
	b.c = l.call(t, nil, nil).challenge()
	r := b.c.Accepts[0]
	terms := must.Get(r.ChannelTerms())(t)
	b.asset, _ = x402.NewRegistry(nil).Asset(r.Network, r.Asset)
	b.config = x402.ChannelConfig{Payer: b.key.address, PayerAuthorizer: b.key.address, Receiver: r.PayTo,
		ReceiverAuthorizer: terms.ReceiverAuthorizer, Token: r.Asset,
		WithdrawDelay: int64(terms.WithdrawDelay / time.Second), Salt: fmt.Sprintf("0x%064x", 1)}
	return b
}

func (b *channelBuyer) id() string {
	id, err := evm.ChannelID(sandbox.EVM, b.config)
	require.NoError(b.t, err)
	return id.Hex()
}

func (b *channelBuyer) payload(kind string, ceiling uint64) map[string]any {
	id := ofAddress(b.t, b.id())
	voucher := typedDigest(b.t, "x402 Batch Settlement", "1", batchContract,
		hashed(ofText("Voucher(bytes32 channelId,uint128 maxClaimableAmount)"), id, word(ceiling)))
	p := map[string]any{"type": kind, "channelConfig": b.config, "voucher": map[string]any{
		"channelId": b.id(), "maxClaimableAmount": fmt.Sprint(ceiling), "signature": b.key.sign(voucher)}}
	if kind == "deposit" {
		before, salt := time.Now().Add(5*time.Minute).Unix(), word(ceiling)
		nonce := hashed(id, salt)
		digest := typedDigest(b.t, b.asset.Name, b.asset.Version, b.asset.Address, hashed(ofText(
			"ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,"+
				"uint256 validBefore,bytes32 nonce)"), ofAddress(b.t, b.config.Payer),
			ofAddress(b.t, batchCollector), word(b.deposit), word(0), word(uint64(before)), nonce))
		p["deposit"] = map[string]any{"amount": fmt.Sprint(b.deposit), "authorization": map[string]any{
			"erc3009Authorization": map[string]any{"validAfter": "0", "validBefore": fmt.Sprint(before),
				"salt": fmt.Sprintf("0x%x", salt), "signature": b.key.sign(digest)}}}
	}
	return p
}

func (b *channelBuyer) shown(payload map[string]any, ext map[string]json.RawMessage) map[string]any {
	text, err := wire.EncodePayload(b.c, b.c.Accepts[0], jsonOf(payload), ext)
	require.NoError(b.t, err)
	return meta(b.c, text)
}

func (b *channelBuyer) pay(kind string, ceiling uint64) got {
	return b.lab.call(b.t, nil, b.shown(b.payload(kind, ceiling), nil))
}

// batchLab sells "search" by batch-settlement, for 1000 units.
type batchLab struct{ *lab }

// hasOwnStore keeps what other tests are owed out of a paywall's claims.
func hasOwnStore(t *testing.T, o *Options) { o.Store = testworld.NewBook(t, t.TempDir()) }

func newBatchLab(t *testing.T, change func(*lab, *Options)) *batchLab {
	return &batchLab{newLab(t, func(l *lab, o *Options) {
		hasOwnStore(t, o)
		o.Tools = []Tool{{Name: "search", Accepts: []Option{
			{Network: "84532", PayTo: l.PayToEVM, Price: "0.001", Scheme: "batch-settlement"}}}}
		if change != nil {
			change(l, o)
		}
	})}
}

func (l *batchLab) owed(t *testing.T) (sum uint64) {
	list := must.Get(l.paywall.channels.OwedChannels(t.Context()))(t)
	for _, c := range list {
		if c.Config.Receiver == l.PayToEVM {
			units, _ := c.Owed().Uint64()
			sum += units
		}
	}
	return sum
}

func (g got) isMismatch(t *testing.T, charged string) *wire.ChannelCount {
	c := g.challenge()
	require.Equal(t, batchMismatch, c.Error)
	n := must.Get(c.CorrectiveCount(sandbox.EVM))(t)
	require.NotNil(t, n)
	require.Equal(t, charged, n.Charged.String())
	return n
}

var stores = map[string]func(o *Options){"on disk": func(*Options) {}, "in memory": func(o *Options) {
	o.Store = nil
}}

func inEachStore(t *testing.T, test func(t *testing.T, l *batchLab)) {
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			test(t, newBatchLab(t, func(_ *lab, o *Options) { change(o) }))
		})
	}
}

// gullible is a facilitator that finds everything good, in channels of a million units.
type gullible struct{ *facilitator.Client }

func (g gullible) Judge(context.Context, facilitator.Submission) (facilitator.Verdict, error) {
	return facilitator.Verdict{Valid: true, Extra: map[string]json.RawMessage{"balance": jsonOf("1000000"),
		"totalClaimed": jsonOf("0"), "withdrawRequestedAt": jsonOf(0), "refundNonce": jsonOf("0")}}, nil
}
