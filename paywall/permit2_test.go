package paywall

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall/book"
	mpp "x402-wallet/scheme/mpp/sell"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// permitBank is a facilitator of payments by Permit2 with its own chain: it checks what it is shown as the
// reference does (x402 2.27, permit2.ts), in words and order, settles each nonce once, and moves money. What
// a used permit is answered is no word of its own, as on the real one.
type permitBank struct {
	mu       sync.Mutex
	now      func() time.Time
	balances map[string]money.Amount // by payer
	used     map[string]string       // transaction, by payer and nonce
	moved    []permitMove
	settles  int                                              // how often it was asked to
	fault    func(facilitator.Submission) *facilitator.Result // answers in its place; nil: nothing
	address  string                                           // that upto's buyers have to name
}

type permitMove struct {
	from, to, transaction, nonce string
	amount                       money.Amount
}

const bankAddress = "0x857b06519E91e3A54538791bDbb0E22373e36b66"

func newPermitBank() *permitBank {
	return &permitBank{now: time.Now, balances: map[string]money.Amount{}, used: map[string]string{},
		address: bankAddress}
}

func (b *permitBank) Supported(context.Context, string) ([]facilitator.Kind, error) {
	kinds := []facilitator.Kind{{Facilitator: "bank", Version: 2, Scheme: "exact", Network: "eip155:84532"},
		{Facilitator: "bank", Version: 2, Scheme: "upto", Network: "eip155:84532",
			Extra: map[string]json.RawMessage{"facilitatorAddress": jsonOf(strings.ToLower(b.address))}}}
	return kinds, nil
}

// check is the reference's verification; amount is what requirements ask for, or at most that.
func (b *permitBank) check(s facilitator.Submission) (a evm.Permit2Authorization, reason string) {
	var p struct {
		Accepted struct{ Scheme string }
		Payload  json.RawMessage
	}
	var r struct {
		Scheme, Asset, PayTo string
		Amount               money.Amount
		Extra                struct{ FacilitatorAddress, AssetTransferMethod string }
	}
	if json.Unmarshal(s.Payload, &p) != nil || json.Unmarshal(s.Requirements, &r) != nil {
		return a, "unreadable"
	}
	from, a, err := payload.RecoverPermit2(s.Network, p.Payload)
	switch isUpto := r.Scheme == "upto"; {
	case p.Accepted.Scheme != r.Scheme || r.Extra.AssetTransferMethod != "permit2":
		return a, "unsupported_scheme"
	case err != nil:
		return a, "invalid_permit2_signature"
	case a.IsUpto() != isUpto:
		return a, "invalid_permit2_spender"
	case a.To != r.PayTo:
		return a, "invalid_permit2_recipient_mismatch"
	case isUpto && a.Facilitator != b.address:
		return a, "upto_facilitator_mismatch"
	case a.Deadline < b.now().Unix()+6:
		return a, "permit2_deadline_expired"
	case a.ValidAfter > b.now().Unix():
		return a, "permit2_not_yet_valid"
	case !isUpto && a.Amount != r.Amount:
		return a, "permit2_amount_mismatch"
	case isUpto && r.Amount.Cmp(a.Amount) > 0:
		return a, "invalid_upto_evm_payload_settlement_exceeds_amount"
	case !strings.EqualFold(a.Token, r.Asset):
		return a, "permit2_token_mismatch"
	case b.used[from+string(a.Nonce[:])] != "" || b.balances[from].Cmp(a.Amount) < 0:
		return a, "permit2_allowance_required"
	}
	return a, ""
}

func (b *permitBank) Verify(_ context.Context, s facilitator.Submission) (facilitator.Verdict, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, reason := b.check(s)
	return facilitator.Verdict{Valid: reason == "", Reason: reason}, nil
}

func (b *permitBank) Settle(_ context.Context, s facilitator.Submission) facilitator.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settles++
	if b.fault != nil {
		if said := b.fault(s); said != nil {
			return *said
		}
	}
	return b.settle(s)
}

func (b *permitBank) settle(s facilitator.Submission) facilitator.Result {
	a, reason := b.check(s)
	if reason != "" {
		return facilitator.Result{Outcome: facilitator.Refused, Facilitator: "bank",
			Settlement: &wire.Settlement{ErrorReason: reason, Network: s.Network}}
	}
	var r struct{ Amount money.Amount }
	_ = json.Unmarshal(s.Requirements, &r)
	said := wire.Settlement{Success: true, Network: s.Network, Payer: a.From, Amount: r.Amount.String(),
		Transaction: fmt.Sprintf("0x%064x", len(b.moved)+1)}
	b.balances[a.From] = b.balances[a.From].SubFloor(r.Amount)
	b.used[a.From+string(a.Nonce[:])] = said.Transaction
	b.moved = append(b.moved, permitMove{a.From, a.To, said.Transaction, string(a.Nonce[:]), r.Amount})
	return facilitator.Result{Outcome: facilitator.Settled, Settlement: &said, Facilitator: "bank"}
}

func (b *permitBank) received(_ context.Context, e x402.Evidence) (x402.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.moved {
		if m.from == e.Payer && fmt.Sprintf("0x%x", m.nonce) == e.Nonce {
			if m.to == e.PayTo && m.amount == e.Amount {
				return x402.Status{State: x402.Settled, Transaction: m.transaction}, nil
			}
			return x402.Status{Note: "something else"}, nil
		}
	}
	return x402.Status{Unused: true}, nil
}

type permitPayer struct {
	key     *ecdsa.PrivateKey
	address string
	nonce   byte
}

func newPermitPayer(t *testing.T, b *permitBank) *permitPayer {
	t.Helper()
	key := must.Get(crypto.GenerateKey())(t)
	p := &permitPayer{key: key, address: crypto.PubkeyToAddress(key.PublicKey).Hex()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balances[p.address] = money.NewAmount(1_000_000)
	return p
}

// permit is what an option asks for, with a nonce of its own.
func (p *permitPayer) permit(r x402.Requirement) evm.Permit2Authorization {
	p.nonce++
	a := evm.Permit2Authorization{From: p.address, To: r.PayTo, Token: r.Asset, Amount: r.Amount,
		Spender: evm.ExactProxy, Deadline: time.Now().Add(r.MaxTimeout).Unix(), Nonce: [32]byte{31: p.nonce}}
	if r.Scheme == x402.Upto {
		a.Spender, a.Facilitator = evm.UptoProxy, r.ExtraString("facilitatorAddress")
	}
	return a
}

func (p *permitPayer) sign(t *testing.T, c *wire.Challenge, r x402.Requirement, a evm.Permit2Authorization,
	ext map[string]json.RawMessage) json.RawMessage {
	t.Helper()
	text := must.Get(payload.EncodePermit2Authorization(a))(t)
	digest := must.Get(payload.Permit2Digest(r.Network, a))(t)
	signature := must.Get(crypto.Sign(digest[:], p.key))(t)
	signature[64] += 27
	return must.Get(wire.EncodePayload(c, r, jsonOf(map[string]any{"signature": fmt.Sprintf("0x%x",
		signature),
		"permit2Authorization": json.RawMessage(text)}), ext))(t)
}

func (p *permitPayer) pay(t *testing.T, c *wire.Challenge, i int,
	ext map[string]json.RawMessage) json.RawMessage {
	t.Helper()
	return p.sign(t, c, c.Accepts[i], p.permit(c.Accepts[i]), ext)
}

// permitLab sells "search" by Permit2 (0) and upto (1), for a tenth of a cent and at most ten.
type permitLab struct {
	*lab
	bank  *permitBank
	buyer *permitPayer
}

func newPermitLab(t *testing.T, change func(*permitLab, *Options)) *permitLab {
	t.Helper()
	p := &permitLab{bank: newPermitBank()}
	p.lab = newLab(t, func(l *lab, o *Options) {
		p.lab = l
		o.Facilitators, o.Received = p.bank, p.bank.received
		o.Tools = []Tool{{Name: "search", Accepts: []Option{
			{Network: "84532", PayTo: l.PayToEVM, Price: "0.001", Permit2: true},
			{Network: "84532", PayTo: l.PayToEVM, Price: "0.1", Scheme: "upto"}}}}
		if change != nil {
			change(p, o)
		}
	})
	p.buyer = newPermitPayer(t, p.bank)
	p.paywall.confirmTimeout = 200 * time.Millisecond
	return p
}

func TestSellsByPermit2(t *testing.T) {
	l := newPermitLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	require.Len(t, c.Accepts, 2)
	require.Equal(t, []string{x402.Permit2, x402.Upto}, []string{c.Accepts[0].Way(), c.Accepts[1].Way()})
	require.Equal(t, []string{"permit2", "USDC", "2"}, []string{c.Accepts[0].ExtraString(
		"assetTransferMethod"),
		c.Accepts[0].ExtraString("name"), c.Accepts[0].ExtraString("version")})
	require.Contains(t, c.Extensions, x402.EIP2612Sponsoring)

	shown := meta(c, l.buyer.pay(t, c, 0, named))
	g := l.call(t, nil, shown)
	require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
	require.Len(t, l.bank.moved, 1)
	require.Equal(t, "1000", l.bank.moved[0].amount.String())
	require.Equal(t, l.PayToEVM, l.bank.moved[0].to)
	require.Equal(t, l.bank.moved[0].transaction, g.receipt().Transaction)
	sale := l.sales(t)[0]
	require.Equal(t, []any{book.SaleSettled, x402.Permit2, l.buyer.address}, []any{sale.State, sale.Scheme,
		sale.Payer})
	require.Equal(t, "eip155:84532 permit2 "+strings.ToLower(l.buyer.address)+" 0x"+strings.Repeat("0",
		62)+"01", sale.UniqueKey)
	require.Equal(t, product, l.call(t, nil, shown).text, "the answer once more")
	require.EqualValues(t, -32602, l.call(t, 7, shown).Code)
	require.EqualValues(t, 1, l.runs.Load())
}

// The nonces are the payer's, whatever the token or scheme: one permit's nonce in another is the same
// payment.
func TestAPermitsNonceHasOneRun(t *testing.T) {
	l := newPermitLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	exact, upto := l.buyer.permit(c.Accepts[0]), l.buyer.permit(c.Accepts[1])
	upto.Nonce = exact.Nonce
	require.Equal(t, product, l.call(t, nil, meta(c, l.buyer.sign(t, c, c.Accepts[0], exact, nil))).text)
	g := l.call(t, nil, meta(c, l.buyer.sign(t, c, c.Accepts[1], upto, nil)))
	require.EqualValues(t, -32602, g.Code, "%s", g.Result)
	require.EqualValues(t, 1, l.runs.Load())
}

// What is signed has to be what was asked for, though the payment says it is: each is refused before anybody
// is asked, and runs nothing.
func TestPermitsForSomethingElse(t *testing.T) {
	l := newPermitLab(t, nil)
	l.paywall.options.Facilitators = noFacilitators{l.bank}
	c := l.call(t, nil, nil).challenge()
	other := "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	for name, test := range map[string]struct {
		option int
		change func(*evm.Permit2Authorization)
		says   string
	}{
		"another payee": {0, func(a *evm.Permit2Authorization) { a.To = other }, "another payee"},
		"another token": {0, func(a *evm.Permit2Authorization) { a.Token = other }, "another asset"},
		"less": {0, func(a *evm.Permit2Authorization) { a.Amount = money.NewAmount(999) },
			"another amount"},
		"more": {0, func(a *evm.Permit2Authorization) { a.Amount = money.NewAmount(1001) },
			"another amount"},
		"not yet": {0, func(a *evm.Permit2Authorization) { a.ValidAfter = a.Deadline }, "not valid yet"},
		"over":    {0, func(a *evm.Permit2Authorization) { a.Deadline = time.Now().Unix() + 7 }, "expired"},
		"upto's for exact": {0, func(a *evm.Permit2Authorization) {
			a.Spender,
				a.Facilitator = evm.UptoProxy, other
		}, "another contract"},
		"exact's for upto": {1, func(a *evm.Permit2Authorization) {
			a.Spender,
				a.Facilitator = evm.ExactProxy, ""
		}, "another contract"},
		"another facilitator": {1, func(a *evm.Permit2Authorization) { a.Facilitator = other },
			"another facilitator"},
		"a lower ceiling": {1, func(a *evm.Permit2Authorization) { a.Amount = money.NewAmount(1000) },
			"another amount"},
		"upto, another payee": {1, func(a *evm.Permit2Authorization) { a.To = other }, "another payee"},
		"upto, another token": {1, func(a *evm.Permit2Authorization) { a.Token = other }, "another asset"},
	} {
		t.Run(name, func(t *testing.T) {
			a := l.buyer.permit(c.Accepts[test.option])
			test.change(&a)
			g := l.call(t, nil, meta(c, l.buyer.sign(t, c, c.Accepts[test.option], a, nil)))
			require.Contains(t, g.challenge().Error, test.says)
			require.Zero(t, l.runs.Load())
			require.Empty(t, l.bank.moved)
		})
	}
	good := l.buyer.pay(t, c, 0, nil)
	for name, spoilt := range map[string]json.RawMessage{
		"an authorization as well": replaced(t, good, `"signature":`, `"authorization":{},"signature":`),
		"no signature":             replaced(t, good, `"signature":`, `"signatures":`),
		"a short signature":        replaced(t, good, `"signature":"0x`, `"signature":"0xzz`),
		"another spender":          replaced(t, good, evm.ExactProxy, other),
		"a number":                 replaced(t, good, `"validAfter":"0"`, `"validAfter":0`),
		"a witness of upto": replaced(t, good, `"validAfter":"0"`,
			`"validAfter":"0","facilitator":"`+other+`"`),
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualValues(t, -32602, l.call(t, nil, meta(c, spoilt)).Code)
		})
	}
}

// noFacilitators lists what is supported, and fails a test that asks it anything else.
type noFacilitators struct{ *permitBank }

func (noFacilitators) Verify(context.Context, facilitator.Submission) (facilitator.Verdict, error) {
	panic("a payment for something else was shown to a facilitator")
}

// Anybody can settle a permit of exact, and what a facilitator then answers proves nothing. One that was
// settled before it was brought here may have bought something elsewhere, and buys nothing here; where the
// chain shows it unused the buyer may pay again; and where there is no chain to ask nobody knows.
func TestAPermitThatAStrangerSettled(t *testing.T) {
	for name, test := range map[string]struct {
		settles, sees bool
		state         book.SaleState
	}{
		"settled elsewhere": {true, true, book.SaleFailed},
		"not settled":       {false, true, book.SaleFailed},
		"no chain to ask":   {true, false, book.SaleUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			l := newPermitLab(t, func(l *permitLab, o *Options) {
				if !test.sees {
					o.Received = nil
				}
			})
			c := l.call(t, nil, nil).challenge()
			l.bank.fault = func(s facilitator.Submission) *facilitator.Result {
				if test.settles {
					l.bank.settle(s) // a stranger's
				} else {
					l.bank.balances[l.buyer.address] = money.Amount{}
				}
				return nil
			}
			g := l.call(t, nil, meta(c, l.buyer.pay(t, c, 0, nil)))
			require.Equal(t, test.state, l.sales(t)[0].State)
			if test.settles {
				g.asksNothing()
			} else {
				g.challenge()
			}
			require.Equal(t, test.settles && test.sees, g.Code == -32602)
			require.NotContains(t, string(g.Result)+string(g.Data), product)
		})
	}
}

// A token that has nothing but Permit2 is sold in it by itself; version 1 and Solana have none.
func TestWhatIsSoldByPermit2(t *testing.T) {
	options := func(o Option, version int) error {
		_, err := New(Options{Version: version, Facilitators: newPermitBank(), Store: testBook,
			Tools: []Tool{{Name: "a", Accepts: []Option{o}}}})
		return err
	}
	const payTo = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	mega := Option{Network: "4326", PayTo: payTo, Price: "0.01"}
	require.NoError(t, options(mega, 2))
	require.ErrorContains(t, options(mega, 1), "version 1 has no")
	sepolia := Option{Network: "84532", PayTo: payTo, Price: "0.01", Scheme: "upto"}
	require.NoError(t, options(sepolia, 2))
	require.ErrorContains(t, options(sepolia, 1), "version 1 has no upto")
	sepolia.Scheme = "auth-capture"
	require.ErrorContains(t, options(sepolia, 2), "no scheme that is sold in")
	solana := Option{Network: "solana-devnet", PayTo: "9C6hybhQ6Aycep9jaUnP6uL9ZYvDjUp1aSkFWPUFJtpj",
		Price: "0.01", Permit2: true}
	require.ErrorContains(t, options(solana, 2), "is for EVM networks")

	w, err := New(Options{Facilitators: newPermitBank(), Store: testBook,
		Tools: []Tool{{Name: "a", Accepts: []Option{mega}},
			{Name: "b", Accepts: []Option{{Network: "38833", PayTo: payTo, Price: "0.01"}}}}})
	require.NoError(t, err)
	terms := func(name string) x402.Requirement { return *w.tools[name].options[0].terms }
	require.Equal(t, []string{x402.Permit2, "MegaUSD", "10000000000000000"}, []string{terms("a").Way(),
		terms("a").ExtraString("name"), terms("a").Amount.String()})
	require.Empty(t, mpp.Protocol{}.Ask(w.tools["a"].options[0].Option, terms("a"), "", time.Now()),
		"MPP has authorizations only")
	require.Equal(t, []string{x402.Permit2, ""}, []string{terms("b").Way(), terms("b").ExtraString("name")})
	for name, isSponsored := range map[string]bool{"a": true, "b": false} {
		_, is := w.declaredExtensions(w.tools[name], []offer{{
			option: w.tools[name].options[0]}})[x402.EIP2612Sponsoring]
		require.Equal(t, isSponsored, is, name)
	}
}
