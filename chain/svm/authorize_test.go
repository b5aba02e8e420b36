package svm

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/svm/decode"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

func transactionOf(t *testing.T, a onchain.Authorization) string {
	payload := must.JSON[map[string]string](a.Payload)(t)
	require.Len(t, payload, 1)
	return payload["transaction"]
}

// The same instructions as the reference client's, to the last number; the order of the accounts is
// the compiler's own.
func TestReferenceVectors(t *testing.T) {
	list, key := vectors(t)
	require.Len(t, list, 4)
	for name, v := range list {
		t.Run(name, func(t *testing.T) {
			theirs := must.Get(decode.Transaction(v.Transaction))(t)
			require.True(t, theirs.Signers[1].Verified)
			require.False(t, theirs.Signers[0].Verified)

			field := func(key string) (s string) {
				require.NoError(t, json.Unmarshal(v.Accepts[key], &s))
				return s
			}
			r := asks()
			r.Version, r.Asset, r.PayTo = v.Version, field("asset"), field("payTo")
			require.NoError(t, json.Unmarshal(v.Accepts["extra"], &r.Extra))
			asset := x402.AssetInfo{Network: devnet, Address: r.Asset, Decimals: 6,
				Token2022: name == "v2_exact_svm_token2022"}
			m, program := solana.MPK(r.Asset), programOf(asset.Token2022)

			c, s := newChain(t), &signer{private: key}
			c.blockhash = theirs.Blockhash
			source, _, _ := solana.FindAssociatedTokenAddressWithProgram(keyOf(key), m, program)
			destination, _, _ := solana.FindAssociatedTokenAddressWithProgram(solana.MPK(r.PayTo), m, program)
			c.put(source, token{mint: m, owner: keyOf(key), amount: 1000, is2022: asset.Token2022})
			c.put(destination, token{mint: m, owner: solana.MPK(r.PayTo), is2022: asset.Token2022})
			if asset.Token2022 {
				c.putMint(m)
			}
			random := make([]byte, 16)
			if theirs.Memo == "0102030405060708090a0b0c0d0e0f10" && v.Version == 2 {
				random, _ = hex.DecodeString(theirs.Memo)
			}
			e := New(Options{Signer: s, RPC: map[string]string{devnet: c.url}, Rand: bytes.NewReader(random)})
			a := must.Get(e.Authorize(t.Context(), onchain.Order{Requirement: r, Asset: asset,
				Source: source.String(), Now: now}))(t)
			require.Equal(t, 1, s.asked)

			ours := must.Get(decode.Transaction(transactionOf(t, a)))(t)
			require.True(t, ours.Signers[1].Verified)
			require.Equal(t, ours.Signers[1].Signature, a.Evidence.Signature)
			if v.Version == 1 { // the reference client sends its random memo here too; see makeUnique
				require.False(t, ours.HasMemo)
				theirs.HasMemo, theirs.Memo = false, ""
			} else {
				require.Equal(t, len(v.Transaction), len(transactionOf(t, a)))
			}
			for _, x := range []*decode.Transfer{&ours, &theirs} {
				x.Message, x.Signers[1].Signature = nil, ""
			}
			require.Equal(t, theirs, ours)
		})
	}
}

func TestPaysAsDelegate(t *testing.T) {
	e, c, s := newWallet(t)
	a := must.Get(e.Authorize(t.Context(), orderFrom(c.ata(owner), asks())))(t)
	got := must.Get(decode.Transaction(transactionOf(t, a)))(t)
	require.Equal(t, []string{c.ata(owner).String(), s.Address(), c.ata(seller).String(),
		keyOf(payer).String(), "1000"},
		[]string{got.Source, got.Authority, got.Destination, got.FeePayer, got.Amount.String()})
	require.Regexp(t, "^[0-9a-f]{32}$", got.Memo)
	require.Equal(t, x402.Evidence{
		Network: devnet, Asset: usdc.Address, Payer: s.Address(), PayTo: keyOf(seller).String(),
		Amount:    money.NewAmount(1000),
		Signature: got.Signers[1].Signature, Source: got.Source, Destination: got.Destination, Memo: got.Memo,
		FeePayer:  got.FeePayer,
		Blockhash: nodesHash, LastValidBlockHeight: c.height + 30 + 150,
		ExpiresAt: now.Add(150 * slowBlockTime),
	}, a.Evidence)

	o := orderFrom(c.ata(owner), asks())
	o.Now = time.Time{}
	a = must.Get(e.Authorize(t.Context(), o))(t)
	require.Equal(t, now.Add(150*slowBlockTime), a.Evidence.ExpiresAt)
}

func TestEveryTransactionIsItsOwn(t *testing.T) {
	for name, change := range map[string]func(r *x402.Requirement){
		"random memo":   func(*x402.Requirement) {},
		"seller's memo": func(r *x402.Requirement) { r.Extra["memo"] = text("always the same") },
		"no memo":       func(r *x402.Requirement) { r.Version, r.Dialect = 1, x402.DialectV1Body },
	} {
		t.Run(name, func(t *testing.T) {
			e, c, _ := newWallet(t)
			r := asks()
			change(&r)
			seen, limits, prices := map[string]bool{}, map[uint32]bool{}, map[uint64]bool{}
			for range 20 {
				a := must.Get(e.Authorize(t.Context(), orderFrom(c.ata(owner), r)))(t)
				seen[a.Evidence.Signature] = true
				got := must.Get(decode.Transaction(transactionOf(t, a)))(t)
				limits[got.UnitLimit], prices[got.UnitPrice] = true, true
				require.LessOrEqual(t, uint64(got.UnitLimit)*got.UnitPrice, uint64(790*1_000_000),
					"the fee payer's extra, in micro-lamports")
				require.GreaterOrEqual(t, got.UnitLimit, uint32(20_000))
				require.LessOrEqual(t, got.UnitLimit, uint32(24_095), "hosted facilitators refuse more")
				require.Equal(t, r.Version != 1, got.HasMemo)
				if name == "seller's memo" {
					require.Equal(t, "always the same", got.Memo)
				}
			}
			require.Len(t, seen, 20)
			if name == "random memo" {
				require.Equal(t, []int{1, 1}, []int{len(limits), len(prices)}, "as the reference client's")
			} else {
				require.Greater(t, min(len(limits), len(prices)), 15)
			}
		})
	}
}

// The random bits at their ends: the bounds that makeUnique's comment promises.
func TestTheRandomBitsAreBounded(t *testing.T) {
	for random, want := range map[byte][2]uint64{0: {20_000, 1}, 0xff: {24_095, 32_768}} {
		e, c, _ := newWallet(t)
		e.options.Rand = bytes.NewReader(bytes.Repeat([]byte{random}, 16))
		r := asks()
		r.Version = 1
		a := must.Get(e.Authorize(t.Context(), orderFrom(c.ata(owner), r)))(t)
		got := must.Get(decode.Transaction(transactionOf(t, a)))(t)
		require.Equal(t, want, [2]uint64{uint64(got.UnitLimit), got.UnitPrice})
		require.False(t, got.HasMemo)
	}
}

// When one bit of what is about to be signed changes, the signer is not asked.
func TestTamperedBitsAreNotSigned(t *testing.T) {
	for _, version := range []int{1, 2} {
		e, c, s := newWallet(t)
		r := asks()
		r.Version = version
		o, p := planned(t, e, orderFrom(c.ata(owner), r))
		message := must.Get(p.message())(t)
		for i := range message {
			e.tamper = func(m []byte) []byte { m[i] ^= 1 << (i % 8); return m }
			require.ErrorContains(t, must.Err(e.sign(t.Context(), o, p)), "was not signed", "byte %d", i)
		}
		for _, m := range [][]byte{nil, message[:len(message)-1], append(bytes.Clone(message), 0)} {
			e.tamper = func([]byte) []byte { return m }
			require.ErrorContains(t, must.Err(e.sign(t.Context(), o, p)), "was not signed")
		}
		require.Zero(t, s.asked)
		e.tamper = nil
		must.Get(e.sign(t.Context(), o, p))(t)
		require.Equal(t, 1, s.asked)
	}
}

func planned(t *testing.T, e *Exact, o onchain.Order) (onchain.Order, *plan) {
	p := must.Get(e.plan(o))(t)
	require.NoError(t, p.makeUnique(o.Requirement, bytes.NewReader(make([]byte, 16))))
	p.blockhash = solana.Hash(solana.MPK(nodesHash))
	return o, p
}

// A well-formed transaction that says another thing, each differing in one, and what else a
// traitor may add to it.
func TestAnotherTransactionIsNotSigned(t *testing.T) {
	another := func(change func(*plan)) func(*testing.T, plan, []byte) []byte {
		return func(t *testing.T, p plan, _ []byte) []byte {
			change(&p)
			return must.Get(p.message())(t)
		}
	}
	compiled := func(change func(*solana.Message)) func(*testing.T, plan, []byte) []byte {
		return func(t *testing.T, _ plan, message []byte) []byte {
			tx := must.Get(solana.TransactionFromBytes(serialize([64]byte{}, message)))(t)
			change(&tx.Message)
			return must.Get(tx.Message.MarshalBinary())(t)
		}
	}
	add := func(at int, in solana.CompiledInstruction) func(*solana.Message) {
		return func(m *solana.Message) { m.Instructions = slices.Insert(m.Instructions, at, in) }
	}
	stranger := keyOf(person(9))
	for name, test := range map[string]struct {
		message func(*testing.T, plan, []byte) []byte
		words   string
	}{
		"amount":                 {another(func(p *plan) { p.amount++ }), "amount"},
		"a unit less":            {another(func(p *plan) { p.amount-- }), "amount"},
		"all there is":           {another(func(p *plan) { p.amount = 1<<64 - 1 }), "amount"},
		"decimals":               {another(func(p *plan) { p.decimals = 9 }), "decimals"},
		"destination":            {another(func(p *plan) { p.destination = stranger }), "destination"},
		"payee, not his account": {another(func(p *plan) { p.destination = p.payee }), "destination"},
		"source":                 {another(func(p *plan) { p.source = stranger }), "source"},
		"there and back": {another(func(p *plan) {
			p.source, p.destination = p.destination, p.source
		}), "source"},
		"mint":            {another(func(p *plan) { p.mint = stranger }), "mint"},
		"token program":   {another(func(p *plan) { p.program = token2022 }), "program"},
		"another program": {another(func(p *plan) { p.program = stranger }), "TransferChecked"},
		"authority":       {another(func(p *plan) { p.agent = stranger }), "authority"},
		"fee payer":       {another(func(p *plan) { p.feePayer = stranger }), "fee payer"},
		"we pay the fee":  {another(func(p *plan) { p.feePayer = p.agent }), "signers"},
		"memo":            {another(func(p *plan) { p.memo = "0" + p.memo[1:] + "x" }), "memo"},
		"no memo":         {another(func(p *plan) { p.memo = "" }), "memo"},
		"blockhash":       {another(func(p *plan) { p.blockhash[0]++ }), "blockhash"},
		"unit limit":      {another(func(p *plan) { p.limit = 1_400_000 }), "unit limit"},
		"unit price":      {another(func(p *plan) { p.price = 5_000_000 }), "unit price"},
		"legacy": {compiled(func(m *solana.Message) {
			m.SetVersion(solana.MessageVersionLegacy)
		}), "version 0"},
		"lookup table": {compiled(func(m *solana.Message) {
			m.AddressTableLookups = append(m.AddressTableLookups,
				solana.MessageAddressTableLookup{AccountKey: stranger, WritableIndexes: []uint8{0}})
		}), "behind its end"},
		"third signer": {compiled(func(m *solana.Message) {
			m.AccountKeys = slices.Insert(m.AccountKeys, 2, stranger)
			m.Header.NumRequiredSignatures++
		}), "signers"},
		"second transfer": {compiled(func(m *solana.Message) {
			add(3, m.Instructions[2])(m)
		}), "instructions"},
		"transfer for the memo": {compiled(func(m *solana.Message) {
			m.Instructions[3] = m.Instructions[2]
		}), "Memo"},
		"a third budget": {compiled(func(m *solana.Message) {
			add(0, m.Instructions[0])(m)
		}), "instructions"},
		"approve for a transfer": {compiled(func(m *solana.Message) {
			m.Instructions[2].Data[0] = 13
		}), "TransferChecked"},
		"accounts swapped": {compiled(func(m *solana.Message) {
			a := m.Instructions[2].Accounts
			a[0], a[2] = a[2], a[0]
		}), "source"},
		"mint and source swapped": {compiled(func(m *solana.Message) {
			a := m.Instructions[2].Accounts
			a[0], a[1] = a[1], a[0]
		}), "roles"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s := newWallet(t)
			o, p := planned(t, e, orderFrom(c.ata(owner), asks()))
			good := must.Get(p.message())(t)
			bad := test.message(t, *p, bytes.Clone(good))
			require.NotEqual(t, good, bad)
			e.tamper = func([]byte) []byte { return bad }
			_, err := e.sign(t.Context(), o, p)
			require.ErrorContains(t, err, "was not signed")
			require.ErrorContains(t, err, test.words)
			require.Zero(t, s.asked)
		})
	}
	t.Run("the plan itself", func(t *testing.T) { // the seller's memo comes from the order, not from the plan
		e, c, s := newWallet(t)
		r := asks()
		r.Extra["memo"] = text("the seller's")
		o, p := planned(t, e, orderFrom(c.ata(owner), r))
		p.memo = "another"
		require.ErrorContains(t, must.Err(e.sign(t.Context(), o, p)), "not the seller's")
		require.Zero(t, s.asked)
	})
}

func TestAuthorizeLooksAtTheChain(t *testing.T) {
	agent := keyOf(person(1))
	good := token{mint: mint, owner: keyOf(owner), delegate: agent, amount: 9_000_000, delegated: 5_000_000}
	source := func(change func(*token)) func(*chain, *onchain.Order) {
		return func(c *chain, _ *onchain.Order) { a := good; change(&a); c.put(c.ata(owner), a) }
	}
	sink := func(change func(*token)) func(*chain, *onchain.Order) {
		return func(c *chain, _ *onchain.Order) {
			a := token{mint: mint, owner: keyOf(seller)}
			change(&a)
			c.put(c.ata(seller), a)
		}
	}
	for name, test := range map[string]struct {
		change func(*chain, *onchain.Order)
		code   x402.Code
		words  string
	}{
		"no source": {func(c *chain, _ *onchain.Order) {
			delete(c.accounts, c.ata(owner))
		}, x402.NoDelegation, "no token account"},
		"revoked": {source(func(a *token) {
			a.delegate = solana.PublicKey{}
		}), x402.NoDelegation, "delegates to nobody"},
		"another delegate": {source(func(a *token) {
			a.delegate = keyOf(seller)
		}), x402.DelegateMismatch, "not this wallet"},
		"another mint": {source(func(a *token) {
			a.mint = keyOf(seller)
		}), x402.DelegateMismatch, "another token than"},
		"another program": {source(func(a *token) {
			a.is2022 = true
		}), x402.DelegateMismatch, "another token program"},
		"frozen source": {source(func(a *token) { a.frozen = true }), x402.DelegateMismatch, "frozen"},
		"delegation too small": {source(func(a *token) {
			a.delegated = 999
		}), x402.DelegationExhausted, "does not cover the price any more"},
		"balance too small": {source(func(a *token) {
			a.amount = 999
		}), x402.InsufficientFunds, "does not cover the price any more"},
		"fee payer is owner": {source(func(a *token) {
			a.owner = keyOf(payer)
		}), x402.InvalidRequirement, "owns the money"},
		"fee payer is source": {func(c *chain, o *onchain.Order) {
			c.put(keyOf(payer), good)
			o.Source = keyOf(payer).String()
		}, x402.InvalidRequirement, "owns the money"},
		"no token account": {func(c *chain, _ *onchain.Order) {
			delete(c.accounts, c.ata(seller))
		}, x402.InvalidRequirement, "does not exist"},
		"payTo is one": {func(c *chain, _ *onchain.Order) {
			c.put(keyOf(seller), token{mint: mint, owner: keyOf(owner)})
		}, x402.InvalidRequirement, "has to be a token account's owner"},
		"payTo is a mint": {func(c *chain, _ *onchain.Order) {
			c.set(keyOf(seller), token2022, make([]byte, 200))
		}, x402.InvalidRequirement, "has to be a token account's owner"},
		"payTo is a program": {func(c *chain, _ *onchain.Order) {
			c.set(keyOf(seller), solana.BPFLoaderUpgradeableProgramID, nil)
			c.accounts[keyOf(seller)]["executable"] = true
		}, x402.InvalidRequirement, "has to be a token account's owner"},
		"sold token account": {sink(func(a *token) {
			a.owner = keyOf(payer)
		}), x402.InvalidRequirement, "somebody else"},
		"token account of another mint": {sink(func(a *token) {
			a.mint = keyOf(payer)
		}), x402.InvalidRequirement, "somebody else"},
		"of another token program": {sink(func(a *token) {
			a.is2022 = true
		}), x402.InvalidRequirement, "somebody else"},
		"frozen token account": {sink(func(a *token) {
			a.frozen = true
		}), x402.InvalidRequirement, "is frozen"},
		"its own money": {func(c *chain, o *onchain.Order) {
			o.Requirement.PayTo = keyOf(owner).String()
		}, x402.InvalidRequirement, "is the one that would pay"},
		"node elsewhere": {func(c *chain, _ *onchain.Order) {
			c.genesis = "4uhcVJyU9pJkvQyS88uRDiswHXSCkY3zQawwpjk2NsNY"
		}, x402.CheckFailed, "another chain"},
		"half an account": {func(c *chain, _ *onchain.Order) {
			c.lies["getMultipleAccounts"] = map[string]any{"value": []any{nil}}
		}, x402.RPCError, "getMultipleAccounts"},
		"an account in base58": {func(c *chain, _ *onchain.Order) {
			c.accounts[c.ata(owner)]["data"] = []string{"AAAA", "base64+zstd"}
		}, x402.RPCError, "getMultipleAccounts"},
		"no blockhash": {func(c *chain, _ *onchain.Order) {
			c.blockhash = "11111111111111111111111111111111"
		}, x402.RPCError, "getLatestBlockhash"},
		"a blockhash without a slot": {func(c *chain, _ *onchain.Order) {
			c.slot = 0
		}, x402.RPCError, "getLatestBlockhash"},
		"a blockhash for nothing": {func(c *chain, _ *onchain.Order) {
			c.lastValid = 149
		}, x402.RPCError, "getLatestBlockhash"},
		"source is no address": {func(_ *chain, o *onchain.Order) {
			o.Source = "x"
		}, x402.Internal, "the source"},
		"not payable": {func(_ *chain, o *onchain.Order) {
			o.Requirement.Scheme = "upto"
		}, x402.InvalidRequirement, "scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s := newWallet(t)
			o := orderFrom(c.ata(owner), asks())
			test.change(c, &o)
			a, err := e.Authorize(t.Context(), o)
			requireCode(t, test.code, err)
			require.ErrorContains(t, err, test.words)
			require.Zero(t, s.asked)
			require.Zero(t, a)
		})
	}
}

func TestTheConfigsSourceIsTheSource(t *testing.T) {
	e, c, s := newWallet(t)
	e.options.TokenAccounts = map[string]string{devnet: c.ata(seller).String()}
	_, err := e.Authorize(t.Context(), orderFrom(c.ata(owner), asks()))
	require.ErrorContains(t, err, "not the token account of the config")
	require.Zero(t, s.asked)
}

// Decimals are the registry's, and the amount has none: a node can lie about both in vain.
func TestDecimalsAreTheRegistrys(t *testing.T) {
	e, c, _ := newWallet(t)
	c.set(mint, tokenProgram, make([]byte, 82)) // a mint of 0 decimals
	a := must.Get(e.Authorize(t.Context(), orderFrom(c.ata(owner), asks())))(t)
	got, _ := decode.Transaction(transactionOf(t, a))
	require.EqualValues(t, 6, got.Decimals)
}

func TestBlockhash(t *testing.T) {
	const hint = "GfVcyD4kkTrj4bKc7WA9sZCin9JDbdT4Zkd3EittNR1W"
	for name, test := range map[string]struct {
		said, lastSaid json.RawMessage
		alive          bool
		lies           map[string]any
		blockhash      string
		lastValid      uint64 // above the confirmed height
	}{
		"none":  {blockhash: nodesHash, lastValid: 150},
		"alive": {said: text(hint), alive: true, blockhash: hint, lastValid: 300},
		"alive, a lie about when": {said: text(hint), lastSaid: text("1"), alive: true, blockhash: hint,
			lastValid: 300},
		"stale":      {said: text(hint), blockhash: nodesHash, lastValid: 150},
		"not base58": {said: text("0OIl"), blockhash: nodesHash, lastValid: 150},
		"not a text": {said: json.RawMessage(`{"a":1}`), blockhash: nodesHash, lastValid: 150},
		"zero": {said: text("11111111111111111111111111111111"), alive: true,
			blockhash: nodesHash, lastValid: 150},
		"node does not say": {said: text(hint),
			lies: map[string]any{"isBlockhashValid": map[string]any{}}, blockhash: nodesHash, lastValid: 150},
		"node does not know": {said: text(hint),
			lies: map[string]any{"isBlockhashValid": rpcFault{-32601, "no"}}, blockhash: nodesHash,
			lastValid: 150},
		"node keeps its height": {said: text(hint), alive: true,
			lies: map[string]any{"getBlockHeight": rpcFault{-32601, "no"}}},
		"node's height is nothing": {said: text(hint), alive: true,
			lies: map[string]any{"getBlockHeight": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s := newWallet(t)
			c.alive[hint], c.alive["11111111111111111111111111111111"] = test.alive, test.alive
			c.lies = map[string]any{}
			for method, lie := range test.lies {
				c.lies[method] = lie
			}
			r := asks()
			if test.said != nil {
				r.Extra["recentBlockhash"] = test.said
			}
			if test.lastSaid != nil {
				r.Extra["lastValidBlockHeight"] = test.lastSaid
			}
			a, err := e.Authorize(t.Context(), orderFrom(c.ata(owner), r))
			if test.blockhash == "" {
				requireCode(t, x402.RPCError, err)
				require.Zero(t, s.asked)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.blockhash, a.Evidence.Blockhash)
			require.Equal(t, c.height+30+test.lastValid, a.Evidence.LastValidBlockHeight)
		})
	}
}

func TestFeePayerFromTheFacilitator(t *testing.T) {
	e, c, s := newWallet(t)
	r := asks()
	r.Dialect, r.Extra = "x-proof", nil
	require.NoError(t, e.Payable(r, usdc))
	o := orderFrom(c.ata(owner), r)
	require.ErrorContains(t, must.Err(e.Authorize(t.Context(), o)), "nobody is named")
	for _, wrong := range []string{"x", s.Address(), r.PayTo, mint.String(), tokenProgram.String()} {
		t.Run(wrong, func(t *testing.T) {
			o.FeePayer = wrong
			_, err := e.Authorize(t.Context(), o)
			require.True(t, x402.HasCode(err, x402.InvalidRequirement), "%s: %v", wrong, err)
		})
	}
	require.Zero(t, s.asked)
	o.FeePayer = keyOf(payer).String()
	a := must.Get(e.Authorize(t.Context(), o))(t)
	require.Equal(t, o.FeePayer, a.Evidence.FeePayer)

	o.Requirement = asks() // the challenge's own comes first
	o.FeePayer = keyOf(person(9)).String()
	a = must.Get(e.Authorize(t.Context(), o))(t)
	require.Equal(t, keyOf(payer).String(), a.Evidence.FeePayer)
}

func TestSignersFailures(t *testing.T) {
	e, c, s := newWallet(t)
	s.err = errors.New("locked")
	_, err := e.Authorize(t.Context(), orderFrom(c.ata(owner), asks()))
	require.ErrorIs(t, err, s.err)
	s.err, s.wrong = nil, true
	_, err = e.Authorize(t.Context(), orderFrom(c.ata(owner), asks()))
	require.ErrorContains(t, err, "does not verify")
	s.wrong, e.options.Rand = false, iotest.ErrReader(errors.New("no entropy"))
	before := s.asked
	_, err = e.Authorize(t.Context(), orderFrom(c.ata(owner), asks()))
	require.ErrorContains(t, err, "no entropy")
	require.Equal(t, before, s.asked)
}

func complete(t *testing.T, a onchain.Authorization) []byte {
	wire := must.Get(base64.StdEncoding.DecodeString(transactionOf(t, a)))(t)
	copy(wire[1:], ed25519.Sign(payer, wire[129:]))
	return wire
}
