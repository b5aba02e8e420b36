package paywall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// channelBuyer signs whatever it is told to, and hashes it itself.
type channelBuyer struct {
	t       *testing.T
	lab     *lab
	key     signingKey
	config  x402.ChannelConfig
	asset   x402.AssetInfo
	c       *x402.Challenge
	deposit uint64
}

// signingKey signs digests.
type signingKey struct {
	sign    func(digest [32]byte) string
	address string
}

func newSigningKey(t *testing.T) signingKey {
	t.Helper()
	key, err := crypto.GenerateKey()
	require.NoError(t, err)
	return signingKey{address: crypto.PubkeyToAddress(key.PublicKey).Hex(), sign: func(digest [32]byte) string {
		signature, err := crypto.Sign(digest[:], key)
		require.NoError(t, err)
		signature[64] += 27
		return fmt.Sprintf("0x%x", signature)
	}}
}

// word is a number as 32 bytes; hashed is keccak256 of words.
func word(n uint64) []byte { b := money.NewAmount(n).Bytes32(); return b[:] }

func hashed(words ...[]byte) []byte { return crypto.Keccak256(words...) }

func ofText(text string) []byte { return hashed([]byte(text)) }

func ofAddress(t *testing.T, address string) []byte {
	t.Helper()
	var raw []byte
	_, err := fmt.Sscanf(strings.TrimPrefix(address, "0x"), "%x", &raw)
	require.NoError(t, err)
	return append(make([]byte, 32-len(raw)), raw...)
}

func typedDigest(t *testing.T, name, version, contract string, message []byte) [32]byte {
	t.Helper()
	domain := hashed(ofText("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
		ofText(name), ofText(version), word(84532), ofAddress(t, contract))
	return [32]byte(hashed([]byte{0x19, 0x01}, domain, message))
}

const (
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
	terms, err := r.ChannelTerms()
	require.NoError(t, err)
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

// payload is one of a type with a voucher for a ceiling.
func (b *channelBuyer) payload(kind string, ceiling uint64) map[string]any {
	id := ofAddress(b.t, b.id())
	voucher := typedDigest(b.t, "x402 Batch Settlement", "1", batchContract,
		hashed(ofText("Voucher(bytes32 channelId,uint128 maxClaimableAmount)"), id, word(ceiling)))
	p := map[string]any{"type": kind, "channelConfig": b.config, "voucher": map[string]any{"channelId": b.id(),
		"maxClaimableAmount": fmt.Sprint(ceiling), "signature": b.key.sign(voucher)}}
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

// shown is a payload as it is shown with a call.
func (b *channelBuyer) shown(payload map[string]any, ext map[string]json.RawMessage) map[string]any {
	b.t.Helper()
	text, err := x402.EncodePayload(b.c, b.c.Accepts[0], jsonOf(payload), ext)
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
func hasOwnStore(t *testing.T, o *Options) {
	t.Helper()
	o.Store = testworld.NewStore(t, t.TempDir())
}

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

// owed is what can be claimed for this lab's payee.
func (l *batchLab) owed(t *testing.T) (sum uint64) {
	t.Helper()
	list, err := l.paywall.channels.OwedChannels(t.Context())
	require.NoError(t, err)
	for _, c := range list {
		if c.Config.Receiver == l.PayToEVM {
			units, _ := c.Owed().Uint64()
			sum += units
		}
	}
	return sum
}

func (g got) isMismatch(t *testing.T, charged string) *x402.ChannelCount {
	t.Helper()
	c := g.challenge()
	require.Equal(t, batchMismatch, c.Error)
	n, err := c.CorrectiveCount(sandbox.EVM)
	require.NoError(t, err)
	require.NotNil(t, n)
	require.Equal(t, charged, n.Charged.String())
	return n
}

var stores = map[string]func(o *Options){"on disk": func(*Options) {}, "in memory": func(o *Options) {
	o.Store = nil
}}

// One deposit, then vouchers alone; what was charged is claimed, and no more.
func TestSellsByBatchSettlement(t *testing.T) {
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			l := newBatchLab(t, func(_ *lab, o *Options) { change(o) })
			b := l.newBuyer(t)
			terms, err := b.c.Accepts[0].ChannelTerms()
			require.NoError(t, err)
			require.Equal(t, []any{24 * time.Hour, "10000"}, []any{terms.WithdrawDelay,
				terms.MinDeposit.String()})
			g := b.pay("deposit", 1000)
			require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
			require.Equal(t, "10000", g.receipt().Amount)
			require.NotEmpty(t, g.receipt().Transaction)
			for n := uint64(2); n <= 4; n++ {
				g = b.pay("voucher", n*1000)
				require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
				require.Empty(t, g.receipt().Transaction)
				count, err := g.receipt().ChannelCount()
				require.NoError(t, err)
				require.Equal(t, []string{fmt.Sprint(n * 1000), "1000", "10000"}, []string{count.Charged.String(),
					count.ChargedNow.String(), count.Balance.String()})
			}
			require.Equal(t, uint64(990_000), l.Balance(b.key.address))
			before := l.Balance(l.PayToEVM)
			require.Equal(t, uint64(4000), l.owed(t))
			done, err := l.paywall.Claim(t.Context())
			require.NoError(t, err)
			require.Len(t, done, 1)
			require.Equal(t, []any{"4000", 1, 2}, []any{done[0].Amount.String(), done[0].Channels,
				len(done[0].Transactions)})
			require.Equal(t, before+4000, l.Balance(l.PayToEVM))
			require.Zero(t, l.owed(t))
			again, err := l.paywall.Claim(t.Context())
			require.NoError(t, err)
			require.Empty(t, again)
			require.Equal(t, product, b.pay("voucher", 5000).text, "the channel goes on")
		})
	}
}

// A voucher that was served is answered by the count; the same call under its name by the answer again.
func TestAVoucherThatWasServed(t *testing.T) {
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			l := newBatchLab(t, func(_ *lab, o *Options) { change(o) })
			b := l.newBuyer(t)
			require.Equal(t, product, b.pay("deposit", 1000).text)
			n := b.pay("voucher", 1000).isMismatch(t, "1000")
			require.NotNil(t, n.Voucher)
			id, err := evm.ChannelID(sandbox.EVM, b.config)
			require.NoError(t, err)
			require.True(t, evm.IsOwnVoucher(sandbox.EVM, id, *n.Voucher, b.key.address))
			b.pay("voucher", 3000).isMismatch(t, "1000")
			require.EqualValues(t, 1, l.runs.Load())

			shown := b.shown(b.payload("voucher", 2000), named)
			for range 2 {
				g := l.call(t, nil, shown)
				require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
				count, err := g.receipt().ChannelCount()
				require.NoError(t, err)
				require.Equal(t, "2000", count.Charged.String())
			}
			l.call(t, map[string]string{"other": "call"}, shown).isMismatch(t, "2000")
			require.EqualValues(t, 2, l.runs.Load())
			require.Equal(t, uint64(2000), l.owed(t))
		})
	}
}

// Of two who show one voucher at once one is served; the other learns that the channel is busy, or the count.
func TestCopiesOfAVoucherRunOnce(t *testing.T) {
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			l := newBatchLab(t, func(_ *lab, o *Options) { change(o) })
			b := l.newBuyer(t)
			require.Equal(t, product, b.pay("deposit", 1000).text)
			l.tool = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				time.Sleep(100 * time.Millisecond)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: product}},
					StructuredContent: json.RawMessage(`{"sky":"clear"}`)}, nil
			}
			shown := b.shown(b.payload("voucher", 2000), nil)
			answers := make([]got, 8)
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() { answers[i] = l.call(t, nil, shown) })
			}
			all.Wait()
			served := 0
			for _, g := range answers {
				if g.text == product {
					served++
				} else {
					require.Contains(t, []string{batchBusy, batchMismatch}, g.challenge().Error)
				}
			}
			require.Equal(t, 1, served)
			require.EqualValues(t, 2, l.runs.Load())
			require.Equal(t, uint64(2000), l.owed(t))
		})
	}
}

// A call that failed is not charged: its voucher is good for the next one, which may have another name.
func TestAFailedCallIsNotCharged(t *testing.T) {
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			l := newBatchLab(t, func(_ *lab, o *Options) { change(o) })
			b := l.newBuyer(t)
			given := l.tool
			l.tool = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{IsError: true}, nil
			}
			require.True(t, b.pay("deposit", 1000).isError)
			require.Empty(t, l.Settlements(), "no deposit is made for nothing")
			l.tool = given
			require.Equal(t, product, b.pay("deposit", 1000).text)
			l.tool = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{IsError: true}, nil
			}
			require.True(t, b.pay("voucher", 2000).isError)
			require.Equal(t, uint64(1000), l.owed(t))
			l.tool = given
			require.Equal(t, product, b.pay("voucher", 2000).text)
			require.Equal(t, uint64(2000), l.owed(t))
		})
	}
}

// gullible is a facilitator that finds everything good, in channels of a million units.
type gullible struct{ *facilitator.Client }

func (g gullible) Judge(context.Context, facilitator.Submission) (facilitator.Verdict, error) {
	return facilitator.Verdict{Valid: true, Extra: map[string]json.RawMessage{"balance": jsonOf("1000000"),
		"totalClaimed": jsonOf("0"), "withdrawRequestedAt": jsonOf(0), "refundNonce": jsonOf("0")}}, nil
}

// What is not as it was asked is refused before anything runs, in the reference's words; most of it whatever
// the facilitator says.
func TestWhatAVoucherMayNotBe(t *testing.T) {
	l, other := newBatchLab(t, nil), newSigningKey(t)
	strict := l.paywall.options.Facilitators
	for name, c := range map[string]struct {
		change       func(b *channelBuyer)
		spoil        func(p map[string]any)
		kind         string
		want         string
		byChainAlone bool // the facilitator has to look
	}{
		"another receiver": {change: func(b *channelBuyer) { b.config.Receiver = other.address },
			want: "receiver_mismatch"},
		"another authorizer": {change: func(b *channelBuyer) { b.config.ReceiverAuthorizer = other.address },
			want: "receiver_authorizer_mismatch"},
		"another token": {change: func(b *channelBuyer) { b.config.Token = other.address },
			want: "token_mismatch"},
		"another delay": {change: func(b *channelBuyer) { b.config.WithdrawDelay-- },
			want: "withdraw_delay_mismatch"},
		"another's voucher": {change: func(b *channelBuyer) { b.key.sign = other.sign },
			want: "voucher_signature"},
		"a contract's voucher": {change: func(b *channelBuyer) { b.config.PayerAuthorizer = zeroAddress },
			want: "voucher_signature"},
		"a small deposit": {change: func(b *channelBuyer) { b.deposit = 9_999 },
			want: "deposit_below_min_deposit"},
		"more than is there": {change: func(b *channelBuyer) { b.deposit = 1_000_001 },
			want: "insufficient_balance", byChainAlone: true},
		"another id": {spoil: func(p map[string]any) {
			p["voucher"].(map[string]any)["channelId"] = fmt.Sprintf("0x%064x", 7)
		}, want: "channel_id_mismatch"},
		"another type": {spoil: func(p map[string]any) { p["type"] = "claim" }, want: "payload_type"},
		"no deposit":   {spoil: func(p map[string]any) { delete(p, "deposit") }, want: "payload_type"},
		"a deposit by permit": {spoil: func(p map[string]any) {
			p["deposit"].(map[string]any)["authorization"] = map[string]any{"permit2Authorization": 1}
		}, want: "erc3009_authorization_required"},
		"no channel": {kind: "voucher", want: "channel_not_found", byChainAlone: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asked := range []Facilitators{strict, gullible{newFacilitators(l.Sandbox)}} {
				if asked != strict && c.byChainAlone {
					continue
				}
				l.paywall.options.Facilitators = asked
				b := l.newBuyer(t)
				if c.change != nil {
					c.change(b)
				}
				p := b.payload(cmp.Or(c.kind, "deposit"), 1000)
				if c.spoil != nil {
					c.spoil(p)
				}
				g := l.call(t, nil, b.shown(p, nil))
				require.Contains(t, g.challenge().Error, "invalid_batch_settlement_evm_"+c.want)
				l.nothingMoved(t, g)
			}
		})
	}
	require.Zero(t, l.runs.Load())
	require.Zero(t, l.owed(t))
	l.paywall.options.Facilitators = strict
}

// A deposit that will have expired, and one that says no time, are not taken.
func TestADepositsTime(t *testing.T) {
	l := newBatchLab(t, nil)
	for before, want := range map[string]string{fmt.Sprint(time.Now().Unix() + 5): "expired", "soon": "not a time",
		"-1": "not a time"} {
		b := l.newBuyer(t)
		p := b.payload("deposit", 1000)
		p["deposit"].(map[string]any)["authorization"].(map[string]any)["erc3009Authorization"].(map[string]any)["validBefore"] = before
		require.Contains(t, fmt.Sprint(l.call(t, nil, b.shown(p, nil))), want)
	}
	require.Zero(t, l.runs.Load())
}

// A voucher for more than the chain shows is not served, even if the facilitator finds it good.
func TestAVoucherIsCovered(t *testing.T) {
	l := newBatchLab(t, func(l *lab, o *Options) { o.Facilitators = gullible{newFacilitators(l.Sandbox)} })
	b := l.newBuyer(t)
	require.Equal(t, batchShort, b.pay("voucher", 1_000_001).challenge().Error)
	require.Zero(t, l.runs.Load())
	require.Equal(t, product, b.pay("voucher", 1_000_000).text, "a channel that the book lost: its buyer counts")
	l.paywall.options.Facilitators = newFacilitators(l.Sandbox)
	require.NoError(t, l.paywall.channels.UpdateSoldChannel(t.Context(), sandbox.EVM, b.id(), "",
		func(c *history.SoldChannel) { c.OwedSince = time.Time{} })) // there is no such channel
}

// fullDisk is a store that cannot write a charge.
type fullDisk struct{ *history.Store }

func (fullDisk) ChargeChannel(context.Context, history.Sale, history.SoldChannel) error {
	return errors.New("no space left on device")
}

// What cannot be written down is not given; its deposit is in the channel, and its voucher good.
func TestNothingIsGivenThatIsNotOnDisk(t *testing.T) {
	l := newBatchLab(t, func(_ *lab, o *Options) { o.Store = fullDisk{o.Store.(*history.Store)} })
	b := l.newBuyer(t)
	g := b.pay("deposit", 1000)
	require.NotContains(t, string(g.Result), product)
	g.asksNothing()
	require.Contains(t, g.text, "nothing was charged")
	require.Zero(t, l.owed(t))
	require.Equal(t, uint64(990_000), l.Balance(b.key.address))
	l.paywall.channels = l.paywall.options.Store.(fullDisk).Store
	require.Equal(t, product, b.pay("voucher", 1000).text)
	require.Equal(t, uint64(1000), l.owed(t))
}

// busyClient sells while it pays out.
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
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			var client *busyClient
			l := newBatchLab(t, func(l *lab, o *Options) {
				change(o)
				client = &busyClient{Client: newFacilitators(l.Sandbox)}
				o.Facilitators = client
			})
			b := l.newBuyer(t)
			require.Equal(t, product, b.pay("deposit", 1000).text)
			client.meanwhile = func() { require.Equal(t, product, b.pay("voucher", 2000).text) }
			_, err := l.paywall.Claim(t.Context())
			require.NoError(t, err)
			require.Equal(t, uint64(1000), l.owed(t))
			_, err = l.paywall.Claim(t.Context())
			require.NoError(t, err)
			require.Equal(t, uint64(2000), l.Balance(l.PayToEVM))
		})
	}
}

// A claim that fails is owed still, and one that was claimed and not paid out is paid out by the next.
func TestAClaimThatFails(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	working := l.paywall.options.Facilitators
	for _, kind := range []string{`"claim"`, `"settle"`} {
		l.paywall.options.Facilitators = refusing{newFacilitators(l.Sandbox), kind}
		_, err := l.paywall.Claim(t.Context())
		require.ErrorContains(t, err, l.PayToEVM)
		require.Zero(t, l.Balance(l.PayToEVM))
	}
	l.paywall.options.Facilitators = working
	done, err := l.paywall.Claim(t.Context())
	require.NoError(t, err)
	require.Len(t, done, 1)
	require.Len(t, done[0].Transactions, 1)
	require.Equal(t, uint64(1000), l.Balance(l.PayToEVM))
}

// refusing is a facilitator that settles no payload of a kind.
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

// What cannot be sold by batch-settlement is refused when the paywall is made.
func TestWhatCannotBeSoldByBatchSettlement(t *testing.T) {
	l := newBatchLab(t, nil)
	for name, c := range map[string]struct {
		change func(o *Options, option *Option)
		want   string
	}{
		"upfront":       {func(o *Options, _ *Option) { o.Tools[0].Upfront = true }, "not paid upfront"},
		"verify only":   {func(o *Options, _ *Option) { o.VerifyOnly = true }, "verified only"},
		"Solana":        {func(_ *Options, a *Option) { a.Network = sandbox.Solana }, "for EVM networks"},
		"version 1":     {func(o *Options, _ *Option) { o.Version = 1 }, "version 1 has no batch-settlement"},
		"Permit2":       {func(_ *Options, a *Option) { a.Permit2 = true }, "by EIP-3009"},
		"a short delay": {func(_ *Options, a *Option) { a.WithdrawDelay = 14 * time.Minute }, "15m0s to 720h"},
		"a long call": {func(o *Options, a *Option) {
			a.WithdrawDelay, o.Tools[0].MaxTimeout = 15*time.Minute, 6*time.Minute
		}, "three times"},
		"a deposit below the price": {func(_ *Options, a *Option) { a.MinDeposit = "0.0009" }, "does not cover"},
		"a delay for exact":         {func(_ *Options, a *Option) { a.Scheme, a.WithdrawDelay = "", time.Hour }, "are for"},
		"late claims":               {func(o *Options, _ *Option) { o.ClaimAfter = 13 * time.Hour }, "within 12h"},
		"no sum":                    {func(o *Options, _ *Option) { o.ClaimAbove = "0" }, "it is nothing"},
		"a store without channels": {func(o *Options, _ *Option) { o.Store = struct{ SaleStore }{ledger} },
			"a Store that is a ChannelStore"},
		"facilitators that tell nothing": {func(o *Options, _ *Option) { o.Facilitators = newPermitBank() }, "Judge"},
	} {
		t.Run(name, func(t *testing.T) {
			option := Option{Network: "84532", PayTo: l.PayToEVM, Price: "0.001", Scheme: "batch-settlement"}
			o := Options{Facilitators: newFacilitators(l.Sandbox), Store: ledger, Tools: []Tool{{Name: "search"}}}
			c.change(&o, &option)
			if option.Network == sandbox.Solana {
				option.PayTo = l.PayToSolana
			}
			o.Tools[0].Accepts = []Option{option}
			_, err := New(o)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// authorizerless is a facilitator that signs for no receiver.
type authorizerless struct{ *facilitator.Client }

func (authorizerless) Supported(context.Context, string) ([]facilitator.Kind, error) {
	return []facilitator.Kind{{Version: 2, Scheme: "batch-settlement", Network: sandbox.EVM}}, nil
}

func TestNoChannelWithoutAnAuthorizer(t *testing.T) {
	l := newBatchLab(t, nil)
	require.NoError(t, l.paywall.CheckChannels(t.Context()))
	without := newBatchLab(t, func(l *lab, o *Options) {
		o.Facilitators = authorizerless{newFacilitators(l.Sandbox)}
	})
	require.ErrorContains(t, without.paywall.CheckChannels(t.Context()), "receiverAuthorizer")
	g := without.call(t, nil, nil)
	g.asksNothing()
}

// A buyer has the rest back, and buys again after another deposit.
func TestARefund(t *testing.T) {
	for name, change := range stores {
		t.Run(name, func(t *testing.T) {
			l := newBatchLab(t, func(_ *lab, o *Options) { change(o) })
			b := l.newBuyer(t)
			require.Equal(t, product, b.pay("deposit", 1000).text)
			require.Equal(t, product, b.pay("voucher", 2000).text)
			b.pay("refund", 1000).isMismatch(t, "2000")
			before := l.Balance(l.PayToEVM)

			part := b.payload("refund", 2000)
			part["amount"] = "3000"
			g := l.call(t, nil, b.shown(part, nil))
			require.Contains(t, g.text, "Refund acknowledged", "%s %s", g.Result, g.Data)
			require.Equal(t, uint64(993_000), l.Balance(b.key.address))
			part["amount"] = "0"
			require.Equal(t, batchBadRefund, l.call(t, nil, b.shown(part, nil)).challenge().Error)

			g = b.pay("refund", 2000)
			require.Contains(t, g.text, "Refund acknowledged", "%s %s", g.Result, g.Data)
			require.Equal(t, "5000", g.receipt().Amount)
			require.Equal(t, uint64(998_000), l.Balance(b.key.address))
			require.EqualValues(t, 2, l.runs.Load())
			require.Equal(t, batchNoRest, b.pay("refund", 2000).challenge().Error)

			done, err := l.paywall.Claim(t.Context())
			require.NoError(t, err)
			require.Len(t, done, 1, "it is claimed, and paid out now")
			require.Equal(t, before+2000, l.Balance(l.PayToEVM))
			require.Equal(t, product, b.pay("deposit", 3000).text)
		})
	}
}

// deafClient is a facilitator whose answers to deposits get lost.
type deafClient struct {
	*facilitator.Client
	settles bool // it does what it is asked
}

func (d deafClient) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if d.settles {
		d.Client.Settle(ctx, s)
	}
	return facilitator.Result{Outcome: facilitator.Unknown, Err: context.DeadlineExceeded}
}

// A deposit of which nobody says whether it came: where the chain covers the voucher it is served, else not
// charged, and the same payment may come again.
func TestALostDeposit(t *testing.T) {
	for settles, want := range map[bool]uint64{true: 1000, false: 0} {
		t.Run(fmt.Sprint(settles), func(t *testing.T) {
			l := newBatchLab(t, func(l *lab, o *Options) {
				o.Facilitators = deafClient{newFacilitators(l.Sandbox), settles}
			})
			l.paywall.confirmTimeout = 500 * time.Millisecond
			b := l.newBuyer(t)
			g := b.pay("deposit", 1000)
			require.Equal(t, want, l.owed(t))
			l.paywall.options.Facilitators = newFacilitators(l.Sandbox)
			if settles {
				require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
				return
			}
			g.asksNothing()
			require.Contains(t, g.text, "the voucher is still good")
			sales, _, _, err := l.paywall.options.Store.(*history.Store).Sales(t.Context(), history.SaleFilter{})
			require.NoError(t, err)
			require.Equal(t, history.SaleFailed, sales[0].State)
			require.Equal(t, product, b.pay("deposit", 1000).text)
		})
	}
}

// withdrawing is a facilitator that says of each channel that its payer takes the money back.
type withdrawing struct{ *facilitator.Client }

func (w withdrawing) Judge(ctx context.Context, s facilitator.Submission) (facilitator.Verdict, error) {
	v, err := w.Client.Judge(ctx, s)
	if v.Extra != nil {
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
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { l.paywall.KeepClaiming(ctx) })
	defer ended.Wait()
	defer stop()
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, before, l.Balance(l.PayToEVM), "nothing is due")
	l.paywall.options.Facilitators = withdrawing{newFacilitators(l.Sandbox)}
	require.Equal(t, batchWithdrawn, b.pay("voucher", 2000).challenge().Error)
	require.Eventually(t, func() bool { return l.Balance(l.PayToEVM) == before+1000 }, 10*time.Second,
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
			l := newBatchLab(t, func(_ *lab, o *Options) { o.Store = nil; c.change(o) })
			require.False(t, l.paywall.isClaimDue(t.Context()))
			require.Equal(t, product, l.newBuyer(t).pay("deposit", 1000).text)
			l.paywall.now = func() time.Time { return time.Now().Add(c.later) }
			require.Equal(t, c.want, l.paywall.isClaimDue(t.Context()))
		})
	}
}

// What was charged is claimed when the paywall is closed.
func TestCloseClaims(t *testing.T) {
	l := newBatchLab(t, nil)
	require.Equal(t, product, l.newBuyer(t).pay("deposit", 1000).text)
	before := l.Balance(l.PayToEVM)
	require.NoError(t, l.paywall.Close(t.Context()))
	require.Equal(t, before+1000, l.Balance(l.PayToEVM))
}
