package svm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// account is what a node says lies at an address.
type account struct {
	program    solana.PublicKey // the account's owner in Solana's sense
	data       []byte
	executable bool
}

// accountJSON is an account in Solana's JSON-RPC, with the encoding base64.
type accountJSON struct {
	Data       [2]string
	Owner      string
	Executable bool
}

func (w *accountJSON) read() (*account, error) {
	if w == nil {
		return nil, nil
	}
	program, err := parseKey(w.Owner)
	if err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(w.Data[0])
	if err != nil || w.Data[1] != "base64" {
		return nil, errors.New("not base64")
	}
	return &account{program: program, data: data, executable: w.Executable}, nil
}

var asBase64 = map[string]any{"commitment": confirmed, "encoding": "base64"}

// accounts asks for what lies at addresses, all at one slot; nil where nothing does.
func (n *node) accounts(ctx context.Context, addresses ...solana.PublicKey) ([]*account, error) {
	var answer struct{ Value []*accountJSON }
	const method = "getMultipleAccounts"
	if err := n.Call(ctx, &answer, method, addresses, asBase64); err != nil {
		return nil, err
	}
	if len(answer.Value) != len(addresses) {
		return nil, n.Failed(method, errors.New("not as many accounts as were asked for"))
	}
	list := make([]*account, len(addresses))
	for i, w := range answer.Value {
		var err error
		list[i], err = w.read()
		if err != nil {
			return nil, n.Failed(method, err)
		}
	}
	return list, nil
}

// tokenAccount reads one. nil: something else lies there, or, where missing, nothing.
func (n *node) tokenAccount(ctx context.Context, address solana.PublicKey) (t *tokenAccount, missing bool,
	err error) {
	list, err := n.accounts(ctx, address)
	if err != nil {
		return nil, false, err
	}
	if read, ok := readTokenAccount(address, list[0]); ok {
		t = &read
	}
	return t, list[0] == nil, nil
}

type tokenAccount struct {
	address, program      solana.PublicKey
	mint, owner, delegate solana.PublicKey // delegate means something only when hasDelegate
	hasDelegate, frozen   bool
	amount, delegated     uint64 // atomic units
}

// The layout of a token account (spl-token/program/src/state.rs): mint 0, owner 32, amount 64,
// delegate 72 (tag 4 + key), state 108, native 109, delegated amount 121, close authority 129.
// Under Token-2022 extensions may follow a type byte.
const (
	tokenAccountSize = 165
	multisigSize     = 355 // Token-2022 tells a multisig from an account by this length
	typeAccount      = 2
	stateInitialized = 1
	stateFrozen      = 2
)

// readTokenAccount reads what lies at an address; ok is false when it is not an initialized token
// account.
func readTokenAccount(address solana.PublicKey, a *account) (t tokenAccount, ok bool) {
	if a == nil || !isTokenProgram(a.program) || len(a.data) < tokenAccountSize {
		return t, false
	}
	d := a.data
	isExtended := len(d) > tokenAccountSize && a.program == token2022 && len(d) != multisigSize &&
		d[tokenAccountSize] == typeAccount
	if len(d) > tokenAccountSize && !isExtended {
		return t, false
	}
	tag, state := binary.LittleEndian.Uint32(d[72:]), d[108]
	if (state != stateInitialized && state != stateFrozen) || tag > 1 {
		return t, false
	}
	t = tokenAccount{
		address: address, program: a.program,
		mint: solana.PublicKey(d[:32]), owner: solana.PublicKey(d[32:64]),
		amount: binary.LittleEndian.Uint64(d[64:]),
		frozen: state == stateFrozen, hasDelegate: tag == 1,
	}
	if t.hasDelegate {
		t.delegate, t.delegated = solana.PublicKey(d[76:108]), binary.LittleEndian.Uint64(d[121:])
	}
	return t, true
}

// delegatesTo reports whether key is the account's delegate. The token program asks this before it
// asks for the owner, so an owner who is his own delegate is bound by what he delegated (spl-token
// processor.rs, process_transfer).
func (t tokenAccount) delegatesTo(key solana.PublicKey) bool {
	return t.hasDelegate && t.delegate == key
}

// spendable is what key may move out of the account.
func (t tokenAccount) spendable(key solana.PublicKey) uint64 {
	switch {
	case t.delegatesTo(key):
		return min(t.delegated, t.amount)
	case t.owner == key:
		return t.amount
	}
	return 0
}

// whyNotSpendable says why key cannot spend the mint from the account: NO_DELEGATION or
// DELEGATE_MISMATCH, with the reason in words and as the detail "reason"; nil when it can.
func (t tokenAccount) whyNotSpendable(key, mint, program solana.PublicKey) *x402.Error {
	switch {
	case t.mint != mint:
		return mismatch(t.address, "mint", "the token account %s holds another token than the asset",
			t.address).WithDetail("mint", t.mint.String())
	case t.program != program:
		return mismatch(t.address, "program",
			"the token account %s is under another token program than the asset", t.address)
	case t.frozen:
		return frozen(t.address)
	case t.delegatesTo(key) || t.owner == key:
		return nil
	case t.hasDelegate:
		return mismatch(t.address, "delegate",
			"the token account %s delegates to %s, which is not this wallet", t.address, t.delegate).
			WithDetail("delegate", t.delegate.String())
	}
	return noDelegation(t.address, "none", "the token account %s delegates to nobody: never, not any "+
		"more, or all of it is spent", t.address)
}

func mismatch(address solana.PublicKey, reason, format string, args ...any) *x402.Error {
	e := x402.Errorf(x402.DelegateMismatch, format, args...)
	return e.WithDetail("reason", reason).WithDetail("tokenAccount", address.String()).
		WithHint("the owner delegates the right token account to this wallet's Solana address, or "+
			"corrects token_account in config.toml").
		WithCommand(x402.Command("delegation", "show", "--token-account", address.String()), "I cannot "+
			"pay from your token account: "+e.Message+".")
}

func frozen(address solana.PublicKey) *x402.Error {
	return mismatch(address, "frozen", "the token account %s is frozen by the token's issuer", address).
		WithHint("only the token's issuer can lift that; the owner delegates another token account")
}

func noDelegation(address solana.PublicKey, reason, format string, args ...any) *x402.Error {
	return x402.Errorf(x402.NoDelegation, format, args...).
		WithDetail("reason", reason).WithDetail("tokenAccount", address.String()).
		WithHint("the owner runs: x402-wallet delegation approve")
}

func badTokenAccount(text string, err error) error {
	return x402.Errorf(x402.InvalidArgument, "tokenAccount is %w", err).
		WithDetail("tokenAccount", x402.Brief(text))
}

// Delegation reads a token account. Errors: INVALID_ARGUMENT when the text is no address or
// something else lies there, NO_DELEGATION when nothing does, INVALID_REQUIREMENT, RPC_ERROR and
// CHECK_FAILED as for any question to a node.
func (e *Exact) Delegation(ctx context.Context, network, tokenAccount string) (d onchain.Delegation,
	err error) {
	address, err := parseKey(tokenAccount)
	if err != nil {
		return d, badTokenAccount(tokenAccount, err)
	}
	n, err := e.node(network)
	if err != nil {
		return d, err
	}
	t, missing, err := n.tokenAccount(ctx, address)
	switch {
	case err != nil:
		return d, err
	case missing:
		return d, noDelegation(address, "missing", "nothing lies at %s", address)
	case t == nil:
		return d, x402.Errorf(x402.InvalidArgument, "%s is not a token account", address)
	}
	d = onchain.Delegation{
		Account: address.String(), Owner: t.owner.String(), Mint: t.mint.String(),
		Program: t.program.String(), Frozen: t.frozen,
		IsOurs: !e.agent.IsZero() && t.delegatesTo(e.agent), Remaining: money.NewAmount(t.delegated),
		Balance: money.NewAmount(t.amount),
	}
	if t.hasDelegate {
		d.Delegate = t.delegate.String()
	}
	return d, nil
}

// Funds reads what the chain lets the agent spend of an asset, at the commitment "confirmed". The
// source is
//
//  1. the token account that the config names for the network. It has to be right in every respect:
//     another one in its place would be a surprise. Errors: NO_DELEGATION, DELEGATE_MISMATCH.
//  2. else the account of the mint that is delegated to the agent and lets the most be spent, of
//     equals the lowest address;
//  3. else the agent's own associated token account, with a balance of 0 while it does not exist.
//
// Anybody can delegate to the agent. A stranger's account with nothing to spend therefore does not
// hide the agent's own money, and who wants to be sure whose money is spent names the account in
// the config. Delegated is nil for an account that the agent owns. Other errors: RPC_ERROR,
// CHECK_FAILED, WALLET_NOT_FOUND.
func (e *Exact) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	readAt := e.options.Now()
	self, err := e.self()
	if err != nil {
		return x402.Funds{}, err
	}
	mint, err := parseKey(asset.Address)
	if err != nil || asset.Network != network {
		return x402.Funds{}, invalid("the registry's asset is none of the network").
			WithDetail("asset", x402.Brief(asset.Address))
	}
	n, err := e.node(network)
	if err != nil {
		return x402.Funds{}, err
	}
	s := sources{node: n, agent: self, mint: mint, program: programOf(asset.Token2022)}
	var from tokenAccount
	if named := e.options.TokenAccounts[network]; named != "" {
		from, err = s.named(ctx, named)
	} else {
		from, err = s.found(ctx)
	}
	if err != nil {
		return x402.Funds{}, err
	}
	f := x402.Funds{Source: from.address.String(), Balance: money.NewAmount(from.amount),
		Free: money.NewAmount(from.spendable(self)), ReadAt: readAt}
	if from.delegatesTo(self) {
		delegated := money.NewAmount(from.delegated)
		f.Delegated = &delegated
	} else {
		f.Address = from.owner.String()
	}
	return f, nil
}

// sources looks for the token account to spend from.
type sources struct {
	node                 *node
	agent, mint, program solana.PublicKey
}

func (s sources) named(ctx context.Context, text string) (tokenAccount, error) {
	address, err := parseKey(text)
	if err != nil {
		return tokenAccount{}, x402.Errorf(x402.DelegateMismatch, "token_account in config.toml is %w", err).
			WithDetail("reason", "address").WithHint("the person corrects token_account in config.toml").
			WithCommand(x402.Command("policy", "seal"), "The token_account in config.toml is no address of "+
				"Solana: please correct it, and seal the rules.")
	}
	t, missing, err := s.node.tokenAccount(ctx, address)
	switch {
	case err != nil:
		return tokenAccount{}, err
	case missing:
		return tokenAccount{}, noDelegation(address, "missing",
			"the token account %s, which config.toml names, does not exist", address)
	case t == nil:
		return tokenAccount{}, mismatch(address, "kind",
			"%s, which config.toml names, is not a token account", address)
	}
	return s.spendable(t)
}

// spendable is t, and an error where the agent cannot spend from it.
func (s sources) spendable(t *tokenAccount) (tokenAccount, error) {
	if why := t.whyNotSpendable(s.agent, s.mint, s.program); why != nil {
		return *t, why
	}
	return *t, nil
}

// found is the best of the accounts that are delegated to the agent, or its own.
func (s sources) found(ctx context.Context) (tokenAccount, error) {
	var own tokenAccount
	var errOwn error
	askOwn := sync.OnceFunc(func() { own, errOwn = s.own(ctx) })
	if _, before := s.node.ownMints.Load(s.mint); before { // it is likely to be needed
		var asking sync.WaitGroup
		asking.Go(askOwn)
		defer asking.Wait()
	}
	delegated, err := s.delegated(ctx)
	if err != nil {
		return tokenAccount{}, err
	}
	var best, frozen *tokenAccount
	for i, t := range delegated {
		switch {
		case t.frozen:
			frozen = &delegated[i]
		case best == nil:
			best = &delegated[i]
		}
	}
	if best != nil && best.spendable(s.agent) > 0 {
		return *best, nil
	}
	askOwn()
	switch {
	case x402.HasCode(errOwn, x402.RPCError): // not a zero
		return own, errOwn
	case errOwn == nil && own.spendable(s.agent) > 0:
		s.node.ownMints.Store(s.mint, struct{}{})
		return own, nil
	case best != nil: // nothing anywhere: the delegation is the one that is exhausted
		return *best, nil
	case frozen != nil:
		return s.spendable(frozen)
	}
	return own, errOwn
}

// delegated lists the mint's accounts whose delegate is the agent, the most spendable first. The
// node's word is checked: what does not belong there is left out.
func (s sources) delegated(ctx context.Context) (list []tokenAccount, err error) {
	all, err := s.node.tokenAccountsOf(ctx, "getTokenAccountsByDelegate", s.agent,
		map[string]any{"mint": s.mint})
	if err != nil {
		return nil, x402.AsError(err).WithHint("try again; or the person names the account to pay from as " +
			"token_account in config.toml, then this is not asked")
	}
	for _, t := range all {
		if t.delegatesTo(s.agent) && t.mint == s.mint && t.program == s.program {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b tokenAccount) int {
		return cmp.Or(cmp.Compare(b.spendable(s.agent), a.spendable(s.agent)),
			bytes.Compare(a.address[:], b.address[:]))
	})
	return list, nil
}

// own is the agent's associated token account. Its owner may have been changed, so it is looked at
// like any other.
func (s sources) own(ctx context.Context) (tokenAccount, error) {
	address, _, err := solana.FindAssociatedTokenAddressWithProgram(s.agent, s.mint, s.program)
	if err != nil {
		return tokenAccount{}, err
	}
	t, _, err := s.node.tokenAccount(ctx, address)
	if err != nil {
		return tokenAccount{}, err
	}
	if t == nil { // nothing was ever sent there
		return tokenAccount{address: address, program: s.program, mint: s.mint, owner: s.agent}, nil
	}
	return s.spendable(t)
}
