package batch

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/locks"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

const (
	testAgent   = "0xAgent"
	testFunder  = "0xOwner"
	testHost    = "api.example"
	testURL     = "https://api.example/weather"
	testNetwork = "eip155:84532"
	testUSDC    = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
	testPayee   = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
)

// playChain knows channels by their parts, and what a chain says of them.
type playChain struct {
	Chain
	state onchain.ChannelBalance
	used  bool
}

func (*playChain) Address() string { return testAgent }

func (*playChain) Config(r x402.Requirement, asset x402.AssetInfo, payer, salt string) (
	x402.ChannelConfig, string, error) {
	if payer == "" {
		payer = testAgent
	}
	c := x402.ChannelConfig{Payer: payer, PayerAuthorizer: testAgent, Receiver: r.PayTo, Token: asset.Address,
		ReceiverAuthorizer: r.ExtraString("receiverAuthorizer"), Salt: salt}
	sum := fnv.New64()
	fmt.Fprint(sum, c, r.Network)
	return c, fmt.Sprintf("0x%064x", sum.Sum64()), nil
}

func (c *playChain) ReadChannel(context.Context, string, string) (onchain.ChannelBalance, error) {
	return c.state, nil
}

func (*playChain) Withdrawal(context.Context, string, string, x402.ChannelConfig, onchain.ChannelBalance) (
	t onchain.OwnerTransaction, err error) {
	return t, nil
}

func (c *playChain) OwnersUsed(context.Context, string, x402.ChannelConfig, x402.OwnersDeposit) (bool,
	error) {
	return c.used, nil
}

// payments is a ledger whose payments a test writes down as it likes.
type payments struct {
	*locks.Book
	list map[string]history.Payment
}

func (l *payments) put(p history.Payment) { l.list[p.ID] = p }

func (l *payments) Payment(_ context.Context, id string) (history.Payment, error) {
	p, there := l.list[id]
	if !there {
		return p, history.ErrNotFound
	}
	return p, nil
}

// quiet is an engine that asks no chain, and a guard that lets everything pass.
type quiet struct{ Engine }

func (quiet) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

func (quiet) CheckConfig(context.Context) error { return nil }

func (quiet) Expire(_ context.Context, p history.Payment, _ x402.Status) (history.Payment, error) {
	return p, nil
}

// asked is a call that a seller asks 1,000 units for, and names an authorizer of its channels.
func asked(authorizer string) scheme.ChannelCall {
	return scheme.ChannelCall{Host: testHost, URL: testURL, Option: scheme.Option{
		Requirement: x402.Requirement{Version: 2, Scheme: x402.BatchSettlement, Network: testNetwork,
			Amount: units(1000), PayTo: testPayee,
			Extra: map[string]json.RawMessage{"receiverAuthorizer": json.RawMessage(`"` + authorizer + `"`)}},
		Token: x402.AssetInfo{Network: testNetwork, Address: testUSDC, Decimals: 6, Symbol: "USDC",
			USD: 1_000_000},
		Price: 1000}}
}

type bench struct {
	*Channels
	chain    *playChain
	payments *payments
}

func newBench(t *testing.T) *bench {
	t.Helper()
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	store := must.Get(ledgers.Open(t.Context(), home, history.Options{}))(t)
	t.Cleanup(func() { store.Close() })
	b := &bench{chain: &playChain{}, payments: &payments{locks.New(store), map[string]history.Payment{}}}
	b.Channels = &Channels{Chain: b.chain, Ledger: b.payments, Guard: quiet{}, Engine: quiet{},
		Assets: x402.NewRegistry(nil), Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	return b
}

// channelOf writes down a channel with testHost that payer funds; "": the agent.
func channelOf(t *testing.T, b *bench, payer string, amount uint64, book history.BatchBook) channel {
	t.Helper()
	call := asked("0xSeller")
	config, id, err := b.Chain.Config(call.Requirement, call.Token, payer, "")
	require.NoError(t, err)
	c := newChannel(testHost, testNetwork, id, config, onchain.ChannelBalance{Claimed: units(amount)})
	c.book = book
	require.NoError(t, b.save(t.Context(), c))
	return c
}

// known is a channel as the ledger has it.
func known(t *testing.T, b *bench, id string) channel {
	t.Helper()
	return must.Get(b.find(t.Context(), id, b.Chain.Address()))(t)
}
