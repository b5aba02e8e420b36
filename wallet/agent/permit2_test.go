package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/e2e/asks"
	"x402-wallet/history"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// permit is the honest message for a payment.
func (w *world) permit(p history.Payment) message.PermitDraft {
	d := message.PermitDraft{Payment: p.ID, Asset: usdc, Authorization: message.Permit2Authorization{
		From: w.evm, To: p.PayTo, Token: usdc.Address, Amount: p.Amount, Spender: message.ExactProxy,
		Deadline: time.Now().Unix() + 60, Nonce: sha256.Sum256([]byte(p.ID)),
	}}
	if p.Scheme == x402.Upto {
		d.Authorization.Spender, d.Authorization.Facilitator = message.UptoProxy, ownersVault
	}
	d.Approval = message.ApprovalOf(d.Authorization, money.NewAmount(3))
	return d
}

func byWay(way string) func(*history.Payment) { return func(p *history.Payment) { p.Scheme = way } }

// The agent signs a permit that it finds reserved, with the approval that goes with it, and records it once.
func TestTheAgentSignsAPermit(t *testing.T) {
	w := newWorld(t)
	p := w.reserve(10_000, byWay(x402.Permit2))
	locked := must.Get(wallet.Open(w.home))(t)
	signer := w.signer(locked, &client.Client{Home: w.home, Before: locked.Locked})
	d := w.permit(p)
	signature, approval, err := signer.SignPermit2(t.Context(), d)
	require.NoError(t, err)
	object := must.Get(payload.EncodePermit2Authorization(d.Authorization))(t)
	sent := must.Get(json.Marshal(map[string]any{"permit2Authorization": json.RawMessage(object),
		"signature": "0x" + hex.EncodeToString(signature[:])}))(t)
	from, got, err := payload.RecoverPermit2(base, sent)
	require.NoError(t, err)
	require.Equal(t, []any{w.evm, d.Authorization}, []any{from, got})
	extension := must.Get(json.Marshal(map[string]any{"info": map[string]string{"from": w.evm,
		"asset": usdc.Address, "spender": message.Permit2Address, "amount": "10000", "nonce": "3",
		"deadline":  money.NewAmount(uint64(d.Authorization.Deadline)).String(),
		"signature": "0x" + hex.EncodeToString(approval[:])}}))(t)
	read := must.Get(payload.RecoverPermit(usdc, extension))(t)
	require.Equal(t, *d.Approval, read)

	_, _, err = signer.SignPermit2(t.Context(), d)
	w.refused(err, "the payment is submitted, not reserved")
	require.Equal(t, x402.Permit2, must.Get(w.store.Payment(t.Context(), p.ID))(t).Evidence.Way)
	require.True(t, locked.Locked(), "the key stays where it is")

	// without an approval there is one signature
	d = w.permit(w.reserve(10_000, byWay(x402.Permit2)))
	d.Approval = nil
	_, approval, err = signer.SignPermit2(t.Context(), d)
	require.NoError(t, err)
	require.Zero(t, approval)
}

func TestTheAgentSignsNoOtherPermit(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Unix()
	for _, c := range []struct {
		name, why, way string
		message        func(*message.Permit2Authorization)
	}{
		{"another payee", "its payee", x402.Permit2,
			func(a *message.Permit2Authorization) { a.To = usdc.Address }},
		{"another token", "its asset", x402.Permit2,
			func(a *message.Permit2Authorization) { a.Token = payee }},
		{"one unit more", "its amount", x402.Permit2, func(a *message.Permit2Authorization) {
			a.Amount = money.NewAmount(10_001)
		}},
		{"another payer", "its payer", x402.Permit2,
			func(a *message.Permit2Authorization) { a.From = payee }},
		{"for too long", "its validity", x402.Permit2,
			func(a *message.Permit2Authorization) { a.Deadline = now + 3600 }},
		{"over", "its validity", x402.Permit2,
			func(a *message.Permit2Authorization) { a.Deadline = now - 1 }},
		{"not yet", "its validity", x402.Permit2,
			func(a *message.Permit2Authorization) { a.ValidAfter = now + 30 }},
		{"upto for exact", "its scheme", x402.Permit2, func(a *message.Permit2Authorization) {
			a.Spender, a.Facilitator = message.UptoProxy, payee
		}},
		{"exact for upto", "its scheme", x402.Upto, func(a *message.Permit2Authorization) {
			a.Spender, a.Facilitator = message.ExactProxy, ""
		}},
		{"another spender", "cannot be read", x402.Permit2,
			func(a *message.Permit2Authorization) { a.Spender = payee }},
		{"a permit for EIP-3009", "cannot be read", x402.Exact, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := w.permit(w.reserve(10_000, byWay(c.way)))
			if c.message != nil {
				c.message(&d.Authorization)
			}
			_, _, err := w.client.SignPermit2(t.Context(), d)
			w.refused(err, c.why)
		})
	}
	p := w.reserve(10_000, byWay(x402.Permit2))
	_, err := w.client.SignTransfer(t.Context(), w.transfer(p))
	w.refused(err, "cannot be read")
	w.allow(func(r *Rules) { r.Schemes = []string{x402.Exact} })
	_, _, err = w.client.SignPermit2(t.Context(), w.permit(w.reserve(10_000, byWay(x402.Permit2))))
	w.refused(err, "by its scheme")
}

// The agent signs an approval by a transaction only where the owner's rules let its gas cost so much.
func TestTheAgentSignsAnApprovalByTransaction(t *testing.T) {
	w := newWorld(t)
	sign := func(gas uint64) ([65]byte, error) {
		d := w.permit(w.reserve(10_000, byWay(x402.Permit2)))
		d.Approval, d.Transaction = nil, &message.ApprovalGas{Gas: gas, MaxFee: money.NewAmount(2)}
		_, approval, err := w.client.SignPermit2(t.Context(), d)
		return approval, err
	}
	_, err := sign(50_000)
	w.refused(err, "approval_gas allows 0")
	_, err = sign(0) // which costs nothing
	w.refused(err, "approval_gas allows 0")
	w.set(func(s *settings) { s.approvalGas = map[string]money.Amount{base: money.NewAmount(100_000)} })
	require.NotZero(t, must.Get(sign(50_000))(t))
	_, err = sign(50_001)
	w.refused(err, "its approval may cost 100002 wei, and approval_gas allows 100000")
	w.set(func(s *settings) { s.approvalGas = map[string]money.Amount{"eip155:1": money.NewAmount(100_000)} })
	_, err = sign(50_000)
	w.refused(err, "approval_gas allows 0")
}

// known says that the owner's facilitators settle from one address.
func known(address string) func(*settings) {
	return func(s *settings) {
		s.knows = func(_ context.Context, network, a string) bool {
			return network == base &&
				a == address
		}
	}
}

// What alone says what an upto payment comes to is one of the owner's facilitators, or the owner approved it.
func TestUptoIsSettledByWhomTheOwnerKnows(t *testing.T) {
	w := newWorld(t)
	sign := func() error {
		_, _, err := w.client.SignPermit2(t.Context(), w.permit(w.reserve(1_000, byWay(x402.Upto))))
		return err
	}
	require.True(t, x402.HasCode(sign(), x402.ApprovalRequired))
	w.set(known(payee))
	require.True(t, x402.HasCode(sign(), x402.ApprovalRequired), "another one")
	w.set(known(ownersVault))
	require.NoError(t, sign())
	w.set(func(s *settings) { s.knows = nil })
	w.approve = true
	require.NoError(t, sign())

	// the same in the wallet's own process
	w.approve = false
	g := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: w.keys}
	own := w.recorder(w.keys, g, &Tally{})
	submit := func() error {
		p := w.reserve(1_000, byWay(x402.Upto))
		d := w.permit(p)
		e := d.Evidence()
		must.Get(own.Sign(t.Context(), p.ID, must.Get(asks.EncodePermit(d))(t)))(t)
		return own.Submit(t.Context(), p, history.Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
			Evidence:  e,
			UniqueKey: e.Unique()}, false)
	}
	require.True(t, x402.HasCode(submit(), x402.ApprovalRequired))
	w.set(known(ownersVault))
	own.Rules = *w.rules.Load()
	require.NoError(t, submit())
}

// What is given back of an upto payment is what the agent's own node says that it came to, once nothing else
// can come of it.
func TestTheAgentSeesWhatUptoCameTo(t *testing.T) {
	w := newWorld(t)
	w.set(known(ownersVault))
	w.allow(func(r *Rules) { r.Budget.Day = 1_000_000 })
	p := w.reserve(1_000_000, byWay(x402.Upto))
	_, _, err := w.client.SignPermit2(t.Context(), w.permit(p))
	require.NoError(t, err)
	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	full := func() {
		t.Helper()
		requireCode(t, must.Err(w.pays(1)), x402.BudgetExceeded)
	}
	came := func(amount uint64) *x402.Status {
		a := money.NewAmount(amount)
		return &x402.Status{State: x402.Settled, Transaction: "0x01", Amount: &a}
	}
	elsewhere := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: lockedKey{w.keys}}
	guard := client.Guard{Local: elsewhere,
		Recorder: &Recorder{Store: w.store, Guard: elsewhere, Tally: &Tally{}},
		Remote:   &client.Client{Home: w.home, Before: func() bool { return true }}}
	_, err = guard.Charge(t.Context(), p, *came(1)) // the caller's word
	w.refused(err, "what it came to is not proven")
	w.status.Store(came(250_000))
	w.refused(w.ask("charge", p.ID), "all that was signed for counts")
	w.ahead.Store(int64(20 * time.Minute)) // somebody set it forward
	w.refused(w.ask("charge", p.ID), "all that was signed for counts")
	full()
	w.ahead.Store(0)
	w.passes(p.ID)
	w.refused(w.ask("charge", p.ID), "all that was signed for counts")
	w.ahead.Store(int64(time.Until(p.Evidence.ExpiresAt.Add(Lateness))))
	w.bad.Store(x402.Errorf(x402.PolicyUnsealed, "changed"))
	require.True(t, x402.HasCode(w.ask("charge", p.ID), x402.PolicyUnsealed), "whose node is that?")
	w.bad.Store(nil)
	full()

	got := must.Get(guard.Charge(t.Context(), p, x402.Status{}))(t)
	require.Equal(t, []any{history.Settled, history.Chain, "250000"}, []any{got.State, got.Proof,
		got.Paid().String()})
	require.Error(t, w.ask("charge", p.ID), "once")
	requireCode(t, must.Err(w.pays(750_001)), x402.BudgetExceeded)
	require.NoError(t, must.Err(w.pays(750_000)), "the rest is free again")
	must.Get(verify.Ledger(t.Context(), w.guard.Store, history.Head{}))(t)
}
