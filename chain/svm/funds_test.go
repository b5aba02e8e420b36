package svm

import (
	"encoding/base64"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

func amount(n uint64) *money.Amount { a := money.NewAmount(n); return &a }

func TestFundsFromTheConfig(t *testing.T) {
	agent := keyOf(person(1))
	for name, test := range map[string]struct {
		change func(c *chain, at solana.PublicKey, a *token)
		free   uint64
		code   x402.Code
		reason string
	}{
		"capped by the delegation": {func(*chain, solana.PublicKey, *token) {}, 5_000_000, "", ""},
		"capped by the balance": {func(_ *chain, _ solana.PublicKey, a *token) {
			a.amount = 3
		}, 3, "", ""},
		"a delegation of 2^64-1": {func(_ *chain, _ solana.PublicKey, a *token) {
			a.delegated = 1<<64 - 1
		}, 9_000_000, "", ""},
		"nothing left": {func(_ *chain, _ solana.PublicKey, a *token) { a.delegated = 0 }, 0, "", ""},
		"spent to the end, cleared": {func(_ *chain, _ solana.PublicKey, a *token) {
			a.delegate = solana.PublicKey{}
		}, 0, x402.NoDelegation, "none"},
		"missing": {func(c *chain, _ solana.PublicKey, a *token) {
			a.amount = 0
			*a = token{}
		}, 0, x402.NoDelegation, "missing"},
		"wrong delegate": {func(_ *chain, _ solana.PublicKey, a *token) {
			a.delegate = keyOf(seller)
		}, 0, x402.DelegateMismatch, "delegate"},
		"wrong mint": {func(_ *chain, _ solana.PublicKey, a *token) {
			a.mint = keyOf(seller)
		}, 0, x402.DelegateMismatch, "mint"},
		"wrong program": {func(_ *chain, _ solana.PublicKey, a *token) {
			a.is2022 = true
		}, 0, x402.DelegateMismatch, "program"},
		"frozen": {func(_ *chain, _ solana.PublicKey, a *token) {
			a.frozen = true
		}, 0, x402.DelegateMismatch, "frozen"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, _ := newWallet(t)
			a := token{mint: mint, owner: keyOf(owner), delegate: agent, amount: 9_000_000,
				delegated: 5_000_000}
			at := keyOf(person(7)) // any account, not only an associated one
			e.options.TokenAccounts = map[string]string{devnet: at.String()}
			test.change(c, at, &a)
			if test.reason != "missing" {
				c.put(at, a)
			}
			f, err := e.Funds(t.Context(), devnet, usdc)
			require.Zero(t, c.asked["getTokenAccountsByDelegate"], "no other account is looked for")
			if test.code != "" {
				requireCode(t, test.code, err)
				require.Equal(t, test.reason, x402.AsError(err).Details["reason"])
				require.NotEmpty(t, x402.AsError(err).Hint)
				require.Zero(t, f)
				return
			}
			require.NoError(t, err)
			require.Equal(t, x402.Funds{Source: at.String(), Balance: *amount(a.amount),
				Delegated: amount(a.delegated), Free: *amount(test.free), ReadAt: now}, f)
		})
	}
}

func TestFundsOfTheConfigsOtherKinds(t *testing.T) {
	e, c, s := newWallet(t)
	named := func(address string) (x402.Funds, error) {
		e.options.TokenAccounts = map[string]string{devnet: address}
		return e.Funds(t.Context(), devnet, usdc)
	}
	own := c.put(keyOf(person(8)), token{mint: mint, owner: keyOf(s.private), amount: 70})
	f := must.Get(named(own.String()))(t)
	require.Nil(t, f.Delegated)
	require.Equal(t, *amount(70), f.Free)

	c.put(own, token{mint: mint, owner: keyOf(s.private), delegate: keyOf(s.private), amount: 70,
		delegated: 20})
	f = must.Get(named(own.String()))(t)
	require.Equal(t, *amount(20), f.Free, "the token program asks for the delegate first")
	require.Equal(t, amount(20), f.Delegated)

	requireCode(t, x402.DelegateMismatch, must.Err(named("not an address")))
	c.set(own, tokenProgram, make([]byte, 82))
	_, err := named(own.String())
	requireCode(t, x402.DelegateMismatch, err)
	require.ErrorContains(t, err, "not a token account")
}

func TestFundsFound(t *testing.T) {
	agent := keyOf(person(1))
	one, two := keyOf(person(11)), keyOf(person(12))
	if two.String() < one.String() {
		one, two = two, one
	}
	lower := one
	if string(two[:]) < string(one[:]) {
		lower = two
	}
	ownAccount, _, err := solana.FindAssociatedTokenAddressWithProgram(agent, mint, tokenProgram)
	require.NoError(t, err)
	delegated := func(balance, left uint64) token {
		return token{mint: mint, owner: keyOf(owner), delegate: agent, amount: balance, delegated: left}
	}
	type list map[solana.PublicKey]token
	mine := func(n uint64) token { return token{mint: mint, owner: agent, amount: n} }
	with := func(a token, change func(*token)) token { change(&a); return a }
	for name, test := range map[string]struct {
		there  list
		source solana.PublicKey
		free   uint64
		code   x402.Code
	}{
		"nothing":                     {list{}, ownAccount, 0, ""},
		"own money":                   {list{ownAccount: mine(7)}, ownAccount, 7, ""},
		"one":                         {list{one: delegated(5, 3), ownAccount: mine(7)}, one, 3, ""},
		"the largest that is covered": {list{one: delegated(2, 1<<63), two: delegated(9, 3)}, two, 3, ""},
		"equal":                       {list{one: delegated(9, 3), two: delegated(3, 9)}, lower, 3, ""},
		"exhausted":                   {list{one: delegated(9, 0)}, one, 0, ""},
		"exhausted, but own money":    {list{one: delegated(9, 0), ownAccount: mine(7)}, ownAccount, 7, ""},
		"lie: another delegate": {list{one: with(delegated(9, 9), func(a *token) {
			a.delegate = keyOf(seller)
		})}, ownAccount, 0, ""},
		"lie: another mint": {list{one: with(delegated(9, 9), func(a *token) {
			a.mint = keyOf(seller)
		})}, ownAccount, 0, ""},
		"lie: another program": {list{one: with(delegated(9, 9), func(a *token) {
			a.is2022 = true
		})}, ownAccount, 0, ""},
		"frozen beside another": {list{one: with(delegated(9, 9), func(a *token) {
			a.frozen = true
		}), two: delegated(1, 1)}, two, 1, ""},
		"frozen": {list{one: with(delegated(9, 9), func(a *token) {
			a.frozen = true
		})}, one, 0, x402.DelegateMismatch},
		"own frozen": {list{ownAccount: with(mine(9), func(a *token) {
			a.frozen = true
		})}, one, 0, x402.DelegateMismatch},
		"own is another's": {list{ownAccount: with(mine(9), func(a *token) {
			a.owner = keyOf(seller)
		})}, one, 0, x402.NoDelegation},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, _ := newWallet(t)
			c.accounts, c.delegated = map[solana.PublicKey]map[string]any{}, nil
			for at, a := range test.there {
				c.put(at, a)
				if at != ownAccount {
					c.delegated = append(c.delegated, at)
				}
			}
			f, err := e.Funds(t.Context(), devnet, usdc)
			if test.code != "" {
				requireCode(t, test.code, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []any{test.source.String(), *amount(test.free)}, []any{f.Source, f.Free})
			require.Equal(t, test.source == ownAccount, f.Delegated == nil)
		})
	}
}

// A node that cannot say is an error, never a zero and never another account.
func TestFundsUnknown(t *testing.T) {
	for _, method := range []string{"getGenesisHash", "getTokenAccountsByDelegate", "getMultipleAccounts"} {
		for name, lie := range map[string]any{
			"refused": rpcFault{-32000, "no"}, "null": nil, "text": "x", "no value": map[string]any{},
			"half": map[string]any{"value": []any{map[string]any{}}},
		} {
			if (name == "no value" && method == "getTokenAccountsByDelegate") || (name == "null" &&
				method == "getTokenAccountsByDelegate") {
				continue // an empty list is what it is when nothing is delegated
			}
			t.Run(method+" "+name, func(t *testing.T) {
				e, c, _ := newWallet(t)
				c.delegated = nil
				c.lies[method] = lie
				_, err := e.Funds(t.Context(), devnet, usdc)
				want := x402.RPCError
				if method == "getGenesisHash" && (name == "null" || name == "text") {
					want = x402.CheckFailed
				}
				requireCode(t, want, err)
			})
		}
	}
	e, c, _ := newWallet(t)
	c.put(c.ata(owner), token{mint: mint, owner: keyOf(owner), delegate: keyOf(person(1))}) // exhausted
	c.lies["getMultipleAccounts"] = rpcFault{-32000, "no"}
	_, err := e.Funds(t.Context(), devnet, usdc)
	require.True(t, x402.HasCode(err, x402.RPCError), "own money may be there: %v", err)

	_, err = e.Funds(t.Context(), "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
		x402.AssetInfo{Network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", Address: mint.String()})
	requireCode(t, x402.InvalidRequirement, err)
	_, err = e.Funds(t.Context(), devnet, x402.AssetInfo{Network: devnet, Address: "x"})
	requireCode(t, x402.InvalidRequirement, err)
	elsewhere := usdc
	elsewhere.Network = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	requireCode(t, x402.InvalidRequirement, must.Err(e.Funds(t.Context(), devnet, elsewhere)))
	_, err = New(Options{RPC: e.options.RPC}).Funds(t.Context(), devnet, usdc)
	requireCode(t, x402.WalletNotFound, err)
}

func TestFundsReadAtIsBeforeTheQuestion(t *testing.T) {
	e, _, _ := newWallet(t)
	clock := now
	e.options.Now = func() time.Time { clock = clock.Add(time.Second); return clock }
	f := must.Get(e.Funds(t.Context(), devnet, usdc))(t)
	require.Equal(t, now.Add(time.Second), f.ReadAt)
}

// Where the agent's own account was spent from, it is asked for together with what others delegated; and an
// order asks for the accounts together with a blockhash.
func TestTheNodeIsAskedTogether(t *testing.T) {
	e, c, _ := newWallet(t)
	own, _, err := solana.FindAssociatedTokenAddressWithProgram(e.agent, mint, tokenProgram)
	require.NoError(t, err)
	c.delegated = nil
	c.put(own, token{mint: mint, owner: e.agent, amount: 50_000})
	delete(e.options.TokenAccounts, devnet)
	must.Get(e.Funds(t.Context(), devnet, usdc))(t)
	for name, ask := range map[string]func() error{
		"funds": func() error { _, err := e.Funds(t.Context(), devnet, usdc); return err },
		"order": func() error { _, err := e.Authorize(t.Context(), orderFrom(own, asks())); return err },
	} {
		t.Run(name, func(t *testing.T) {
			var came atomic.Int32
			both := make(chan struct{})
			c.arrived = func() {
				if came.Add(1) == 2 {
					close(both)
				}
				select {
				case <-both:
				case <-time.After(time.Minute):
					t.Error("a question waits for the answer to another")
				}
			}
			require.NoError(t, ask())
			require.EqualValues(t, 2, came.Load())
		})
	}
}

func TestDelegation(t *testing.T) {
	e, c, s := newWallet(t)
	d := must.Get(e.Delegation(t.Context(), devnet, c.ata(owner).String()))(t)
	require.Equal(t, onchain.Delegation{Account: c.ata(owner).String(), Owner: keyOf(owner).String(),
		Mint: mint.String(), Delegate: s.Address(),
		Program: tokenProgram.String(), IsOurs: true, Remaining: *amount(5_000_000),
		Balance: *amount(9_000_000)}, d)

	at := c.put(keyOf(person(7)), token{mint: mint, owner: keyOf(owner), delegate: keyOf(seller), amount: 1,
		delegated: 2, frozen: true, is2022: true})
	d = must.Get(e.Delegation(t.Context(), devnet, at.String()))(t)
	require.Equal(t, []any{false, true, token2022.String(), keyOf(seller).String()},
		[]any{d.IsOurs, d.Frozen, d.Program, d.Delegate})

	d = must.Get(e.Delegation(t.Context(), devnet, c.ata(seller).String()))(t)
	require.Equal(t, []any{false, "", *amount(0)}, []any{d.IsOurs, d.Delegate, d.Remaining})

	c.put(at, token{mint: mint, owner: keyOf(owner)})
	d = must.Get(New(Options{RPC: e.options.RPC}).Delegation(t.Context(), devnet, at.String()))(t)
	require.False(t, d.IsOurs, "no key is no delegate")
	data := must.Get(base64.StdEncoding.DecodeString(c.wire(at).Data[0]))(t)
	data[72] = 1 // the delegate is 32 zero bytes
	c.set(at, tokenProgram, data)
	d = must.Get(New(Options{RPC: e.options.RPC}).Delegation(t.Context(), devnet, at.String()))(t)
	require.Equal(t, []any{false, solana.SystemProgramID.String()}, []any{d.IsOurs, d.Delegate},
		"no key is not the zero key")

	for account, code := range map[string]x402.Code{
		"x": x402.InvalidArgument, keyOf(person(30)).String(): x402.NoDelegation,
		mint.String(): x402.InvalidArgument,
	} {
		t.Run(account, func(t *testing.T) {
			c.set(mint, tokenProgram, make([]byte, 82))
			_, err := e.Delegation(t.Context(), devnet, account)
			require.True(t, x402.HasCode(err, code), "%s: %v", account, err)
		})
	}
}

func TestReadTokenAccount(t *testing.T) {
	c := newChain(t)
	build := func(is2022 bool, change func([]byte) []byte) *account {
		c.put(keyOf(person(7)), token{mint: mint, owner: keyOf(owner), delegate: keyOf(seller), amount: 1,
			delegated: 2, is2022: is2022})
		a := must.Get(c.wire(keyOf(person(7))).read())(t)
		a.data = change(a.data)
		return a
	}
	same := func(d []byte) []byte { return d }
	for name, test := range map[string]struct {
		a  *account
		ok bool
	}{
		"classic":            {build(false, same), true},
		"Token-2022":         {build(true, same), true},
		"Token-2022, short":  {build(true, func(d []byte) []byte { return d[:165] }), true},
		"nothing":            {nil, false},
		"short":              {build(false, func(d []byte) []byte { return d[:164] }), false},
		"classic, long":      {build(false, func(d []byte) []byte { return append(d, 2) }), false},
		"Token-2022, a mint": {build(true, func(d []byte) []byte { d[165] = 1; return d }), false},
		"Token-2022, multisig": {build(true, func(d []byte) []byte {
			return append(d, make([]byte, 355-len(d))...)
		}), false},
		"uninitialized":         {build(false, func(d []byte) []byte { d[108] = 0; return d }), false},
		"state 3":               {build(false, func(d []byte) []byte { d[108] = 3; return d }), false},
		"delegate's tag is 2":   {build(false, func(d []byte) []byte { d[72] = 2; return d }), false},
		"delegate's tag is 256": {build(false, func(d []byte) []byte { d[73] = 1; return d }), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, ok := readTokenAccount(mint, test.a)
			require.Equal(t, test.ok, ok, name)
		})
	}
	a := build(false, same)
	a.program = solana.SystemProgramID
	_, ok := readTokenAccount(mint, a)
	require.False(t, ok)
	none := build(false, func(d []byte) []byte { d[72] = 0; return d })
	read, ok := readTokenAccount(mint, none)
	require.True(t, ok && !read.hasDelegate && read.delegated == 0,
		"an absent delegate's amount means nothing")
}
