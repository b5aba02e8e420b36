package pay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme/allowance"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const (
	testOwner = "0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc"
	testFloat = 50_000
)

// ownersChain is the play chain with an owner's account, of which the agent may take what is approved. Its
// transactions have the account's nonces, one after the other, each once.
type ownersChain struct {
	*chain
	allowance.Texts
	mu               sync.Mutex
	owners, approved uint64
	transactions     []string // in blocks, by their hashes, in the order of their nonces
	failed           map[string]bool
	drafted, signed  int
	sent             []string
	lost             bool // what is sent is not seen by the chain
	errs             int  // how often it is asked in vain what became of a float
	atSigning        func()
}

func (c *ownersChain) AllowanceOn(network string) *x402.AllowanceRule {
	if network != testNetwork {
		return nil
	}
	return &x402.AllowanceRule{Owner: testOwner, Float: testFloat}
}

func (c *ownersChain) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, err := c.chain.Funds(ctx, network, asset)
	a := x402.OwnerAllowance{Network: network, Owner: testOwner, Agent: own.Source, Asset: asset.Address,
		Approved: money.NewAmount(c.approved), Balance: money.NewAmount(c.owners), Float: own.Balance}
	own.Free, _ = own.Balance.Add(a.Pullable())
	own.Allowance, own.Delegated = &a, &own.Free
	return own, err
}

func (c *ownersChain) DraftPull(_ context.Context, asset x402.AssetInfo, amount money.Amount) (x402.Pull,
	error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drafted++
	return x402.Pull{Network: asset.Network, Token: asset.Address, Owner: testOwner, Agent: "0xagent",
		Amount: amount, Nonce: uint64(len(c.transactions)), Made: time.Now()}, nil
}

func (c *ownersChain) SignPull(_ context.Context, _ string, p x402.Pull) (onchain.Authorization, error) {
	c.mu.Lock()
	c.signed++
	hash := fmt.Sprintf("0x%d", c.signed)
	at := c.atSigning
	c.mu.Unlock()
	if at != nil {
		at()
	}
	amount, _ := p.Amount.Uint64()
	payload, err := json.Marshal(map[string]any{"hash": hash, "nonce": p.Nonce, "amount": amount})
	return onchain.Authorization{Payload: payload, Evidence: x402.Evidence{Network: p.Network, Asset: p.Token,
		Payer: p.Agent, PayTo: p.Agent, Source: p.Owner, Amount: p.Amount, Transaction: hash,
		Nonce: strconv.FormatUint(p.Nonce, 10), ExpiresAt: p.Made}}, err
}

func (c *ownersChain) SendPull(_ context.Context, _ string, payload []byte) error {
	var t struct {
		Hash          string
		Nonce, Amount uint64
	}
	if err := json.Unmarshal(payload, &t); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, t.Hash)
	if c.lost {
		return errors.New("no answer")
	}
	if t.Nonce != uint64(len(c.transactions)) {
		return nil
	}
	c.transactions = append(c.transactions, t.Hash)
	if c.approved < t.Amount || c.owners < t.Amount {
		c.failed[t.Hash] = true
		return nil
	}
	c.owners, c.approved = c.owners-t.Amount, c.approved-t.Amount
	c.chain.mu.Lock()
	c.chain.balance += t.Amount
	c.chain.mu.Unlock()
	return nil
}

func (c *ownersChain) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	if !e.IsPull() {
		return c.chain.Status(ctx, e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errs > 0 {
		c.errs--
		return x402.Status{State: x402.Expired}, errors.New("nonsense")
	}
	for nonce, hash := range c.transactions {
		switch {
		case hash == e.Transaction && c.failed[hash]:
			return x402.Status{State: x402.Expired, Note: "failed"}, nil
		case hash == e.Transaction:
			return x402.Status{State: x402.Settled, Transaction: hash}, nil
		case strconv.Itoa(nonce) == e.Nonce:
			return x402.Status{State: x402.Expired, Note: "another transaction"}, nil
		}
	}
	return x402.Status{Unused: true}, nil
}

// newFloatBench is an agent that has nothing, and an owner who lets 100,000 of 1,000,000 be taken.
func newFloatBench(t *testing.T, answers script) (*bench, *ownersChain) {
	b := newBench(t, "10000", answers)
	b.chain.balance = 0
	session := money.Dollars(1_000_000) // else what may be taken at its start is its cap
	b.Rules.Session = &session
	c := &ownersChain{chain: b.chain, owners: 1_000_000, approved: 100_000, failed: map[string]bool{}}
	b.withFloats(c)
	return b, c
}

func (b *bench) withFloats(c *ownersChain) {
	b.Schemes = map[SchemeKey]Scheme{exactEVM: c}
	b.Statuses = map[SchemeKey]StatusReader{{Scheme: x402.Allowance, Family: "eip155"}: c}
	b.Floats = c
}

func (b *bench) floats(t *testing.T) (list []history.Payment) {
	t.Helper()
	all := must.Get(b.store.Recent(t.Context(), 100))(t)
	for _, p := range all {
		if p.IsPull() {
			list = append(list, p)
		}
	}
	return list
}

// A float is taken where the agent's account has too little, as a payment of its own that costs nothing; and
// not again before it is used up.
func TestAFloatIsTakenWhenItIsNeeded(t *testing.T) {
	b, c := newFloatBench(t, honest)
	for i := range 5 {
		b.mustPay(t, testURL+"?"+strconv.Itoa(i))
	}
	floats := b.floats(t)
	require.Len(t, floats, 1)
	f := floats[0]
	require.Equal(t, []any{history.Settled, history.Chain, testOwner, "0xagent", money.NewAmount(testFloat),
		money.Dollars(0)}, []any{f.State, f.Proof, f.Source, f.PayTo, f.Amount, f.Price})
	require.Equal(t, []uint64{50_000, 950_000, 0}, []uint64{c.approved, c.owners, b.chain.balance})
	facts := b.facts(t)
	require.Equal(t, money.Dollars(50_000), facts.Used.Day.Total(), "the payments, and not the float")

	b.seller.price = "80000" // more than is left: 50,000
	e := b.mustRefuse(t, x402.DelegationExhausted, testURL+"?dear")
	require.Equal(t, money.NewAmount(30_000), e.Details["short"])
	require.Len(t, b.floats(t), 1)
	b.seller.price = "50000" // all of it
	b.mustPay(t, testURL+"?most")
	require.Len(t, b.floats(t), 2)
	require.Zero(t, c.approved)
}

// What a payment needs is taken where that is more than a float.
func TestAFloatForADearPayment(t *testing.T) {
	b, c := newFloatBench(t, honest)
	b.chain.balance = 1_000
	b.seller.price = "90000"
	b.mustPay(t, testURL)
	require.Equal(t, money.NewAmount(89_000), b.floats(t)[0].Amount)
	require.EqualValues(t, 11_000, c.approved)
}

// A float that was signed, and whose process died before it left: the next payment that needs one brings the
// same bytes to the chain, and signs none.
func TestAFloatThatNeverLeftIsBrought(t *testing.T) {
	b, c := newFloatBench(t, honest)
	c.lost = true
	ctx, cancel := context.WithCancel(t.Context())
	require.Error(t, must.Err(b.Pay(OnStage(ctx, func(s Stage, _ history.Payment) {
		if s == StageFloat {
			cancel()
		}
	}), get(testURL))))
	require.Equal(t, 1, c.signed)
	require.Empty(t, b.seller.sent())
	require.NoError(t, b.store.Close())
	c.lost = false

	heir := openBench(t, b.home, b.chain, "10000", honest)
	heir.withFloats(c)
	heir.mustPay(t, testURL)
	require.Equal(t, 1, c.signed, "the same bytes")
	require.Len(t, c.transactions, 1)
	floats := heir.floats(t)
	require.Len(t, floats, 1)
	require.Equal(t, history.Settled, floats[0].State)
}

// An error of the node's says nothing, whatever else it answers with it.
func TestAnErrorEndsNoFloat(t *testing.T) {
	b, c := newFloatBench(t, honest)
	b.later() // by our own clocks it could be over
	c.errs = 2
	b.mustPay(t, testURL)
	require.Equal(t, 1, c.signed)
	require.Equal(t, history.Settled, b.floats(t)[0].State)
}

// The owner takes the allowance back while a float is signed: its transfer fails, no payment is signed, and
// nothing stays held of the budgets.
func TestTheOwnerTakesItBackMeanwhile(t *testing.T) {
	b, c := newFloatBench(t, honest)
	c.atSigning = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.approved = 0
	}
	b.mustRefuse(t, x402.DelegationExhausted, testURL)
	require.Zero(t, b.chain.signed)
	require.Equal(t, 1, c.signed)
	facts := b.facts(t)
	require.Zero(t, facts.Used.Day.Total())
	b.later()
	b.reconcile(t)
	require.Equal(t, history.Failed, b.floats(t)[0].State)
}

// What is frozen is not taken from; what the agent has it pays with.
func TestAFrozenOwnersAccount(t *testing.T) {
	b, c := newFloatBench(t, honest)
	require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{Network: testNetwork, Account: testOwner,
		By: "owner", Why: "test"}))
	b.mustRefuse(t, x402.WalletFrozen, testURL)
	require.Zero(t, c.signed)
	b.chain.balance = 10_000
	b.mustPay(t, testURL)
}

// A float that was signed before the owner's account was frozen is not brought to the chain until that is
// lifted; what the chain has of it counts all the same.
func TestASignedFloatIsNotBroughtFromAFrozenAccount(t *testing.T) {
	b, c := newFloatBench(t, honest)
	c.lost = true
	ctx, cancel := context.WithCancel(t.Context())
	require.Error(t, must.Err(b.Pay(OnStage(ctx, func(s Stage, _ history.Payment) {
		if s == StageFloat {
			cancel()
		}
	}), get(testURL))))
	require.Len(t, c.sent, 1)
	c.lost = false
	require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{Network: testNetwork, Account: testOwner,
		By: "owner", Why: "test"}))
	b.mustRefuse(t, x402.WalletFrozen, testURL)
	require.Len(t, c.sent, 1)
	require.EqualValues(t, 1_000_000, c.owners)

	// it had reached another node, and brings less than is asked next
	require.NoError(t, c.SendPull(t.Context(), testNetwork, b.floats(t)[0].Payload))
	b.seller.price = "60000"
	b.mustRefuse(t, x402.WalletFrozen, testURL+"?dear")
	require.Len(t, b.floats(t), 1)
	require.Equal(t, history.Settled, b.floats(t)[0].State)
}

// Where a seller refuses the owner's vault, the agent's own account pays, with a float if it has to.
func TestAFloatWhereTheVaultIsRefused(t *testing.T) {
	b, c := newFloatBench(t, honest)
	b.Owners = &vaultChain{chain: b.chain, available: 50_000, perPayment: 20_000, lies: 1_000_000}
	b.Engine.noteRefusal(history.Payment{Host: "api.example", Network: testNetwork, Source: testVault},
		x402.PaymentRejected)
	b.mustPay(t, testURL)
	require.Equal(t, 1, c.signed)
	require.EqualValues(t, 40_000, b.chain.balance)
}
