package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

type busyClient struct {
	*facilitator.Client
	meanwhile func()
}

func (c *busyClient) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if does := c.meanwhile; does != nil && strings.Contains(string(s.Payload), `"settle"`) {
		c.meanwhile = nil
		does()
	}
	return c.Client.Settle(ctx, s)
}

// What is charged while a claim is under way stays owed.
func TestAChargeDuringAClaim(t *testing.T) {
	var client *busyClient
	l := newBatchLab(t, func(l *lab, o *Options) {
		client = &busyClient{Client: newFacilitators(l.Sandbox)}
		o.Facilitators = client
	})
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	client.meanwhile = func() { require.Equal(t, product, b.pay("voucher", 2000).text) }
	must.Get(l.paywall.Claim(t.Context()))(t)
	require.Equal(t, uint64(1000), l.owed(t))
	must.Get(l.paywall.Claim(t.Context()))(t)
	require.Equal(t, uint64(2000), l.Balance(l.PayToEVM))
}

// A claim that fails is owed still, and one that was claimed and not paid out is paid out by the next.
func TestAClaimThatFails(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	working := l.paywall.options.Facilitators
	for _, kind := range []string{`"claim"`, `"settle"`} {
		l.paywall.options.Facilitators = refusing{newFacilitators(l.Sandbox), kind}
		require.ErrorContains(t, must.Err(l.paywall.Claim(t.Context())), l.PayToEVM)
		require.Zero(t, l.Balance(l.PayToEVM))
	}
	l.paywall.options.Facilitators = working
	done := must.Get(l.paywall.Claim(t.Context()))(t)
	require.Len(t, done, 1)
	require.Len(t, done[0].Transactions, 1)
	require.Equal(t, uint64(1000), l.Balance(l.PayToEVM))
}

type refusing struct {
	*facilitator.Client
	kind string
}

func (r refusing) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if strings.Contains(string(s.Payload), `"type":`+r.kind) {
		return facilitator.Result{Outcome: facilitator.Refused, Err: errors.New("refused")}
	}
	return r.Client.Settle(ctx, s)
}

// withdrawing is a facilitator that says of each channel, once begun, that its payer takes the money back.
type withdrawing struct {
	*facilitator.Client
	begun *atomic.Bool
}

func (w withdrawing) Verify(ctx context.Context, s facilitator.Submission) (facilitator.Verdict, error) {
	v, err := w.Client.Verify(ctx, s)
	if v.Extra != nil && w.begun.Load() {
		v.Extra["withdrawRequestedAt"] = json.RawMessage("1740672089")
	}
	return v, err
}

// Who takes their money back buys nothing more, and what was charged is claimed at once.
func TestAWithdrawalIsNoticed(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	before := l.Balance(l.PayToEVM)
	var begun atomic.Bool
	l.paywall.options.Facilitators = withdrawing{newFacilitators(l.Sandbox), &begun}
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { l.paywall.KeepClaiming(ctx) })
	defer ended.Wait()
	defer stop()
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, before, l.Balance(l.PayToEVM), "nothing is due")
	begun.Store(true)
	require.Equal(t, batchWithdrawn, b.pay("voucher", 2000).challenge().Error)
	require.Eventually(t, func() bool { return l.Balance(l.PayToEVM) == before+1000 }, time.Minute,
		20*time.Millisecond)
	require.EqualValues(t, 1, l.runs.Load())
}

// A claim is due at an age, and at a sum.
func TestWhenAClaimIsDue(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *Options)
		later  time.Duration
		want   bool
	}{
		"young":           {func(*Options) {}, 59 * time.Minute, false},
		"an hour old":     {func(*Options) {}, time.Hour, true},
		"as old as said":  {func(o *Options) { o.ClaimAfter = time.Minute }, time.Minute, true},
		"less than a sum": {func(o *Options) { o.ClaimAbove = "0.001001" }, 0, false},
		"a sum":           {func(o *Options) { o.ClaimAbove = "0.001" }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newBatchLab(t, func(_ *lab, o *Options) { c.change(o) })
			require.False(t, l.paywall.isClaimDue(t.Context()))
			require.Equal(t, product, l.newBuyer(t).pay("deposit", 1000).text)
			l.paywall.now = func() time.Time { return time.Now().Add(c.later) }
			require.Equal(t, c.want, l.paywall.isClaimDue(t.Context()))
		})
	}
}

func TestCloseClaims(t *testing.T) {
	l := newBatchLab(t, nil)
	require.Equal(t, product, l.newBuyer(t).pay("deposit", 1000).text)
	before := l.Balance(l.PayToEVM)
	require.NoError(t, l.paywall.Close(t.Context()))
	require.Equal(t, before+1000, l.Balance(l.PayToEVM))
}

// emptied is a facilitator on whose chain nothing can be claimed out of one channel.
type emptied struct {
	*facilitator.Client
	payer string
}

func (e emptied) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if strings.Contains(string(s.Payload), `"type":"claim"`) && strings.Contains(string(s.Payload), e.payer) {
		return facilitator.Result{Outcome: facilitator.Refused, Err: errors.New("ClaimExceedsBalance()")}
	}
	return e.Client.Settle(ctx, s)
}

// A channel that cannot be claimed out of keeps nobody else's money; it stays owed.
func TestAnEmptyChannel(t *testing.T) {
	l := newBatchLab(t, nil)
	buyers := []*channelBuyer{}
	for range 3 {
		b := l.newBuyer(t)
		require.Equal(t, product, b.pay("deposit", 1000).text)
		buyers = append(buyers, b)
	}
	working := l.paywall.options.Facilitators
	l.paywall.options.Facilitators = emptied{newFacilitators(l.Sandbox), buyers[1].key.address}
	done, err := l.paywall.Claim(t.Context())
	require.ErrorContains(t, err, buyers[1].id())
	require.Len(t, done, 1)
	require.Equal(t, 2, done[0].Channels)
	require.Equal(t, uint64(2000), l.Balance(l.PayToEVM))
	require.Equal(t, uint64(1000), l.owed(t))
	l.paywall.options.Facilitators = working
}

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
	t.Helper()
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
	t.Helper()
	var raw []byte
	must.Get(fmt.Sscanf(strings.TrimPrefix(address, "0x"), "%x", &raw))(t)
	return append(make([]byte, 32-len(raw)), raw...)
}

func typedDigest(t *testing.T, name, version, contract string, message []byte) [32]byte {
	t.Helper()
	domain := hashed(ofText("EIP712Domain(string name,string version,uint256 chainId,"+
		"address verifyingContract)"), ofText(name), ofText(version), word(84532), ofAddress(t, contract))
	return [32]byte(hashed([]byte{0x19, 0x01}, domain, message))
}

const (
	// the reference's words, which clients act upon
	batchMismatch  = "invalid_batch_settlement_evm_cumulative_amount_mismatch"
	batchBusy      = "invalid_batch_settlement_evm_channel_busy"
	batchShort     = "invalid_batch_settlement_evm_cumulative_exceeds_balance"
	batchWithdrawn = "invalid_batch_settlement_evm_withdrawal_pending"
	batchNoRest    = "invalid_batch_settlement_evm_refund_no_balance"
	batchBadRefund = "invalid_batch_settlement_evm_refund_amount_invalid"
	zeroAddress    = "0x0000000000000000000000000000000000000000"

	batchContract  = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003"
	batchCollector = "0x4020806089470a89826cB9fB1f4059150b550004"
)

// newBuyer has a million units, and asked for the price.
func (l *batchLab) newBuyer(t *testing.T) *channelBuyer {
	t.Helper()
	b := &channelBuyer{t: t, lab: l.lab, key: newSigningKey(t), deposit: 10_000}
	l.Fund(b.key.address, 1_000_000)
	b.c = l.call(t, nil, nil).challenge()
	r := b.c.Accepts[0]
	terms := must.Get(channelterms.Of(r))(t)
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
	b.t.Helper()
	text, err := wire.EncodePayload(b.c, b.c.Accepts[0], jsonOf(payload), ext)
	require.NoError(b.t, err)
	return meta(b.c, text)
}

func (b *channelBuyer) pay(kind string, ceiling uint64) got {
	b.t.Helper()
	return b.lab.call(b.t, nil, b.shown(b.payload(kind, ceiling), nil))
}

// batchLab sells "search" by batch-settlement, for 1000 units.
type batchLab struct{ *lab }

// hasOwnStore keeps what other tests are owed out of a paywall's claims.
func hasOwnStore(t *testing.T, o *Options) { o.Store = testworld.NewBook(t, t.TempDir()) }

func newBatchLab(t *testing.T, change func(*lab, *Options)) *batchLab {
	t.Helper()
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
	t.Helper()
	list := must.Get(l.paywall.options.Store.OwedChannels(t.Context()))(t)
	for _, c := range list {
		if c.Config.Receiver == l.PayToEVM {
			units, _ := c.Owed().Uint64()
			sum += units
		}
	}
	return sum
}

func (g got) isMismatch(t *testing.T, charged string) *wire.ChannelCount {
	t.Helper()
	c := g.challenge()
	require.Equal(t, batchMismatch, c.Error)
	n := must.Get(c.CorrectiveCount(sandbox.EVM))(t)
	require.NotNil(t, n)
	require.Equal(t, charged, n.Charged.String())
	return n
}

// gullible is a facilitator that finds everything good, in channels of a million units.
type gullible struct{ *facilitator.Client }

func (g gullible) Verify(context.Context, facilitator.Submission) (facilitator.Verdict, error) {
	return facilitator.Verdict{Valid: true, Extra: map[string]json.RawMessage{"balance": jsonOf("1000000"),
		"totalClaimed": jsonOf("0"), "withdrawRequestedAt": jsonOf(0), "refundNonce": jsonOf("0")}}, nil
}
