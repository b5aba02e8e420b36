// Package schemes adds to the sandbox the ways of paying that only this project's own tests use: Permit2,
// upto, batch-settlement, MPP, sign-in, and on the EVM chain accounts' own transactions, allowances and a
// vault.
//
// As in the sandbox the money is play money, the signatures are real, and everything that real parties check
// is checked.
package schemes

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Atomic units of the play dollar.
const (
	mill  = sandbox.USDC / 1000
	purse = uint64(1_000 * sandbox.USDC) // what the owner has at the start
)

// youngest is how many seconds an authorization must still live (reference facilitator 2.27).
const youngest = 6

// World is a sandbox with all ways of paying.
type World struct {
	*sandbox.Sandbox
	OwnerEVM string // the owner's account on EVM, of which an agent may be let take floats
	VaultEVM string // where the owner's vault on EVM is, once OpenVault was called

	chain      *chain
	authorizer sandbox.Account // the seller's, of channels

	mu         sync.Mutex // of what follows
	challenges map[string]mppChallenge
	nonces     map[string]signInNonce // seller: sign-in messages that it made, by nonce
	signIns    int                    // seller: those that it let in
	shownTexts []string               // seller: the nonces of sign-ins that were shown to it, let in or not
	records    map[string]*channelRecord
	books      map[string]*channelBook // what was shown and charged in each channel
}

// chain is the EVM chain with more contracts and with accounts' own transactions.
type chain struct {
	*sandbox.Chain
	world *World

	allowed  sandbox.Timeline     // by owner and spender: what the spender may move
	permits  sandbox.Timeline     // by owner: the nonce that EIP-2612 takes next
	spent    map[string]uint64    // by payer and nonce of Permit2, the block
	coins    sandbox.Timeline     // by address: wei
	counts   sandbox.Timeline     // by address: the account nonce that its next transaction has
	shown    map[string]bool      // by hash: the accounts' transactions that a node was brought
	pulls    []sandbox.Settlement // what was taken by transferFrom
	vault    playVault
	channels channelsOnChain
}

// Start starts a sandbox with all ways of paying.
func Start(o sandbox.Options) (*World, error) {
	s := &World{challenges: map[string]mppChallenge{}, nonces: map[string]signInNonce{},
		records: map[string]*channelRecord{}, books: map[string]*channelBook{}}
	var extendErr error
	o.Extend = func(core *sandbox.Sandbox) (extra sandbox.Extra) {
		s.Sandbox = core
		extra, extendErr = s.extend()
		return extra
	}
	started, err := sandbox.Start(o)
	if err == nil && extendErr != nil {
		err = errors.Join(extendErr, started.Close())
	}
	return s, err
}

// extend builds the contracts, and puts the goods on sale.
func (s *World) extend() (sandbox.Extra, error) {
	c := &chain{Chain: s.Chain(), world: s, allowed: sandbox.Timeline{}, permits: sandbox.Timeline{},
		spent: map[string]uint64{}, coins: sandbox.Timeline{}, counts: sandbox.Timeline{},
		shown: map[string]bool{}, channels: newChannelsOnChain()}
	s.chain = c
	s.OwnerEVM, _ = message.Address(sandbox.HashOf("owner", s.Owner)[:42]) // of 20 bytes: cannot fail
	s.VaultEVM, _ = message.Address(sandbox.HashOf("vault", s.Owner)[:42])
	c.vault.address = s.VaultEVM
	s.Fund(s.OwnerEVM, purse)
	for path, w := range ways {
		if err := s.Sell(path, w.Product); err != nil {
			return sandbox.Extra{}, err
		}
	}
	var err error
	s.authorizer, err = s.NewAccount("evm", 0)
	network := c.Asset.Network
	return sandbox.Extra{
		Seller: func(others http.Handler) http.Handler {
			return s.seller(WalletSettles(s.Sandbox).Seller(others))
		},
		Kinds: []any{
			map[string]any{"x402Version": 2, "scheme": x402.Upto, "network": network,
				"extra": map[string]any{"facilitatorAddress": s.Settler}},
			map[string]any{"x402Version": 2, "scheme": x402.BatchSettlement, "network": network,
				"extra": map[string]any{"receiverAuthorizer": s.authorizer.Address}}},
		Extensions: []string{x402.EIP2612Sponsoring},
		Terms:      terms,
		Scheme:     s.schemeOf,
		Unpaid:     asksBack,
		Methods: map[string]sandbox.Method{
			"eth_getBalance":           c.account(c.coins),
			"eth_getTransactionCount":  c.account(c.counts),
			"eth_getCode":              c.getCode,
			"eth_getTransactionByHash": c.getTransaction,
			"eth_estimateGas":          c.estimateGas,
			"eth_maxPriorityFeePerGas": func([]json.RawMessage) (any, error) {
				return quantity(sandbox.UsualTip), nil
			},
			"eth_sendRawTransaction": s.sendRaw,
		},
		View:    c.view,
		HasCode: c.isContract,
		Recover: c.recover,
		Faults:  []string{evmNodeMute, evmNodeDrops, evmNodeKnows},
	}, err
}

// The EVM node's faults, when an account's transaction is brought to it.
const (
	evmNodeMute  = "evm node mute"  // takes it, and cuts the connection
	evmNodeDrops = "evm node drops" // says that it took it, and did not
	evmNodeKnows = "evm node knows" // takes it, and says that it has it already

	evmNodeForgets = "evm node forgets" // the sandbox's
)

func units(dollars string) uint64 {
	price, _ := money.ParseDollars(dollars) // of the ways: cannot fail
	return uint64(price)
}

func quantity(n uint64) string { return fmt.Sprintf("%#x", n) }

// Rules are the owner's rules in Config, with those of the EVM chain's caps.
type Rules struct {
	sandbox.Rules
	Vault bool   // EVM is paid out of VaultEVM
	Float string // how much is taken at a time out of OwnerEVM; "": nothing is
}

// Config is a config.toml for a wallet that lives in this world.
func (s *World) Config(r Rules) string {
	if r.Float != "" {
		r.OnEVM += fmt.Sprintf("allowance_from = %q\nfloat = %q\n", s.OwnerEVM, r.Float)
	}
	if r.Vault {
		r.OnEVM += fmt.Sprintf("vault = %q\n", s.VaultEVM)
	}
	return s.Sandbox.Config(r.Rules)
}

// schemeOf is how the facilitator treats a payment. It returns nil for exact by EIP-3009 and on Solana.
func (s *World) schemeOf(q *sandbox.Submission) *sandbox.Scheme {
	isOnEVM := q.Terms.Network == s.chain.Asset.Network
	switch {
	case !isOnEVM:
		return nil
	case q.Terms.Scheme == x402.BatchSettlement && q.Version == 2:
		return &sandbox.Scheme{Verify: s.batchVerdict, Settle: s.settleBatch}
	case q.Terms.Scheme == x402.Upto, q.Terms.Scheme == x402.Exact && payload.IsPermit2(q.Payload):
		return &sandbox.Scheme{Verify: s.permit2Verdict, Settle: s.settlePermit2}
	}
	return nil
}

// terms reads the terms of upto, whose settlement names what the call came to, and of what sellers ask for
// themselves.
func terms(path string, accepted, said json.RawMessage) (*money.Amount, json.RawMessage, json.RawMessage) {
	if path != "/settle" {
		return nil, said, sellersTerms(said)
	}
	comesTo, asked := uptoTerms(accepted, said)
	return comesTo, asked, sellersTerms(asked)
}

// view answers the view functions of the contracts here, and the token's EIP-2612 and allowances.
func (c *chain) view(contract, selector, words string, block uint64, forgets bool) (answer string,
	known bool) {
	switch {
	case c.IsToken(contract) && selector == callNonces && len(words) == 64:
		return word(c.permits.At("0x"+words[24:], block)), true
	case c.IsToken(contract) && selector == callAllowance && len(words) == 128:
		return word(c.allowance("0x"+words[24:64], "0x"+words[88:], block)), true
	case strings.EqualFold(contract, message.Permit2Address):
		return c.viewPermit2(selector, words, block, forgets)
	case strings.EqualFold(contract, batchContract):
		return c.viewBatch(selector, words, block, forgets)
	case c.isVault(contract):
		return c.viewVault(selector, words, block)
	}
	return "", false
}

func (c *chain) isContract(address string) bool {
	for _, contract := range []string{message.Permit2Address, message.ExactProxy, message.UptoProxy,
		batchContract,
		batchCollector} {
		if strings.EqualFold(address, contract) {
			return true
		}
	}
	return c.isVault(address)
}

// Allow lets an agent take up to amount from the owner's account on EVM, and returns the account. As on the
// real chain it replaces whatever was approved before.
func (s *World) Allow(agent string, amount uint64) (owner string) {
	s.chain.Lock()
	defer s.chain.Unlock()
	s.chain.allow(s.chain.Next(), s.OwnerEVM, agent, amount)
	return s.OwnerEVM
}

// Approve lets Permit2 move up to amount of an EVM address's tokens, as its owner's own transaction would.
func (s *World) Approve(owner string, amount uint64) {
	s.chain.Lock()
	defer s.chain.Unlock()
	s.chain.allow(s.chain.Next(), owner, message.Permit2Address, amount)
}

// Approved is what Permit2 may still move of an EVM address's tokens.
func (s *World) Approved(owner string) uint64 {
	s.chain.Lock()
	defer s.chain.Unlock()
	return s.chain.allowance(owner, message.Permit2Address, math.MaxUint64)
}

func word(n uint64) string { return sandbox.Word(n) }

func wordOf(amount money.Amount) string { return sandbox.WordOf(amount) }

func topicOf(address string) string { return sandbox.TopicOf(address) }
