package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme/vault"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const testVault = "0x5FbDB2315678afecb367f032d93F642f64180aa3"

// vaultChain pays out of a vault on the same play chain: its own money, and what its contract lets be
// spent.
type vaultChain struct {
	*chain
	vault.Source
	available, perPayment, lies uint64
	why                         error // of it not letting us spend
	validity                    []time.Duration
}

func (v *vaultChain) Account(network string) string {
	if network == testNetwork {
		return testVault
	}
	return ""
}

func (v *vaultChain) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	if v.why != nil {
		return x402.Funds{}, v.why
	}
	available, most := money.NewAmount(v.available), money.NewAmount(v.perPayment)
	return x402.Funds{Source: testVault, Balance: money.NewAmount(v.lies), Delegated: &available,
		Free: available, ReadAt: time.Now(), MaxPayment: &most, MaxValidity: 40 * time.Second,
		MoreAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
}

func (v *vaultChain) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	v.validity = append(v.validity, o.Validity)
	a, err := v.chain.Authorize(ctx, o)
	a.Evidence.Payer = testVault
	return a, err
}

func newVaultBench(t *testing.T, answers script) (*bench, *vaultChain) {
	b := newBench(t, "10000", answers)
	v := &vaultChain{chain: b.chain, available: 50_000, perPayment: 20_000, lies: 1_000_000}
	b.Owners = uncomparable{vaultChain: v}
	return b, v
}

// uncomparable is a vault that == panics on, as on the real one.
type uncomparable struct {
	*vaultChain
	_ func()
}

// The owner's vault pays where there is one, for no longer than it takes, and what is held of it counts.
func TestTheVaultPaysFirst(t *testing.T) {
	b, v := newVaultBench(t, honest)
	b.mustPay(t, testURL)
	p := b.only(t)
	require.Equal(t, testVault, p.Source)
	require.Equal(t, testVault, p.Evidence.Payer)
	require.Equal(t, []time.Duration{40 * time.Second}, v.validity)
	require.Equal(t, 1, b.chain.settlements())

	e := b.estimate(t, testURL)
	require.NotNil(t, e.Chosen)
}

// What is signed and not settled is held of what the vault lets the agent spend: the chain shows none of it
// yet.
func TestHoldsOfAVault(t *testing.T) {
	b, v := newVaultBench(t, silent)
	v.available = 25_000
	b.chain.balance = 0 // the agent has nothing of its own
	for i := range 2 {
		b.mustRefuse(t, x402.OutcomeUnknown, testURL+"?"+string(rune('a'+i)))
	}
	require.Contains(t, b.mustRefuse(t, x402.DelegationExhausted, testURL+"?c").Message, "$0.005 is left")
	require.Equal(t, 2, b.chain.signed)
}

// Each of the vault's reasons is told with the number that would have passed and what the owner types; the
// agent's own account is the other way, if it has the money.
func TestWhyAVaultDoesNotPay(t *testing.T) {
	for name, c := range map[string]struct {
		set        func(v *vaultChain)
		code       x402.Code
		hint, line string
	}{
		"too much at once": {func(v *vaultChain) { v.perPayment = 9_999 }, x402.DelegationExhausted,
			"$0.009999 or less would pass", "x402-wallet vault allow --network eip155:84532"},
		"used up": {func(v *vaultChain) { v.available = 9_999 }, x402.DelegationExhausted,
			"the vault allows more from 2030-01-01T00:00:00Z, or when the owner does",
			"x402-wallet vault allow --network eip155:84532"},
		"empty": {func(v *vaultChain) { v.available, v.lies = 9_999, 9_999 }, x402.InsufficientFunds,
			"the owner has to deposit at least $0.000001",
			"x402-wallet vault deposit --network eip155:84532"},
		"revoked": {func(v *vaultChain) {
			v.why = x402.Errorf(x402.NoDelegation, "the vault on Base Sepolia lets nobody spend")
		}, x402.NoDelegation, "", "x402-wallet vault show --network eip155:84532"},
	} {
		t.Run(name, func(t *testing.T) {
			b, v := newVaultBench(t, honest)
			c.set(v)
			own := b.chain.balance
			b.chain.balance = 5
			coded := b.mustRefuse(t, c.code, testURL)
			require.Contains(t, coded.Hint, c.hint)
			require.Equal(t, c.line, coded.NextStep().Command)
			require.Zero(t, b.chain.signed)
			e := b.estimate(t, testURL)
			require.Nil(t, e.Chosen)
			require.Equal(t, c.code, e.Options[0].Code)

			b.chain.balance = own
			b.mustPay(t, testURL)
			require.Equal(t, "0xagent", b.only(t).Source)
		})
	}
}

// A facilitator that checks no signatures of contracts refuses a vault's payment once. It stays held until
// it is dead, and what is bought there afterwards the agent's own money pays, also in the next process;
// without any, the vault is tried all the same.
func TestAHostThatRefusesVaultsIsRemembered(t *testing.T) {
	refusesVaults := func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		if s.chain.signed == 1 {
			return s.asks(), nil
		}
		return honest(s, nonce, amount)
	}
	b, v := newVaultBench(t, refusesVaults)
	b.mustRefuse(t, x402.PaymentRejected, testURL)
	first := b.only(t)
	require.Equal(t, testVault, first.Source)
	require.Equal(t, history.Unknown, first.State)
	b.mustPay(t, testURL+"?again")
	require.Equal(t, "0xagent", b.newest(t).Source)

	b.chain.dead[first.Evidence.Nonce] = true
	b.later()
	require.NoError(t, b.store.Close())
	next := openBench(t, b.home, b.chain, "10000", honest)
	next.Owners, next.Now = v, b.Now
	next.reconcile(t)
	after := openBench(t, b.home, b.chain, "10000", honest)
	after.Owners, after.Now = v, b.Now
	after.mustPay(t, testURL+"?next")
	require.Equal(t, "0xagent", after.newest(t).Source)

	poor := &readChain{chain: newChain(0), begun: make(chan struct{}, 9)} // nothing of its own
	after.Schemes[exactEVM] = poor
	after.mustPay(t, testURL+"?poor")
	require.Equal(t, testVault, after.newest(t).Source)
}

func (b *bench) newest(t *testing.T) history.Payment {
	t.Helper()
	list := must.Get(b.store.Recent(t.Context(), 1))(t)
	return list[0]
}
