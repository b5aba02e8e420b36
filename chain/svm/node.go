package svm

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/chain/rpc"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/x402"
	"x402-wallet/x402/remedy"
)

// Commitments of Solana's JSON-RPC.
const (
	confirmed = "confirmed" // voted for by two thirds of the stake: what may be spent, what has landed
	finalized = "finalized" // cannot be rolled back: what is proven not to have landed
)

// JSON-RPC errors that mean something to us.
const (
	methodNotFound     = -32601
	unsupportedVersion = -32015 // a transaction of a version we did not say we read
)

type node struct {
	*rpc.Node
	clock      atomic.Int64 // the Date of its last answer in Unix seconds; 0: it sends none
	signatures signatureCache
	ownMints   sync.Map // of which the agent's own account was the one to spend from
}

func newNode(network, url string, o Options) *node {
	n := &node{}
	n.Node = rpc.New(rpc.Options{Network: network, URL: url, HTTP: o.HTTP, Identify: n.identify,
		Observe: o.Observe,
		OnDate:  func(date time.Time) { n.clock.Store(date.Unix()) }})
	return n
}

func notConfigured(network string) *x402.Error {
	if named, ok := x402.Network(network); !ok || !x402.IsSolana(named) {
		return invalid("the network is no Solana network").WithDetail("network", x402.Brief(network))
	}
	return remedy.NetworkOff(network)
}

// node finds the network's node. Error: INVALID_REQUIREMENT when none is configured.
func (e *Exact) node(network string) (*node, error) {
	if n := e.nodes[network]; n != nil {
		return n, nil
	}
	return nil, notConfigured(network)
}

// identify errs with CHECK_FAILED when the node is on another chain.
func (n *node) identify(ask rpc.Ask) error {
	var genesis string
	if err := ask(&genesis, "getGenesisHash"); err != nil {
		return err
	}
	if !isGenesis(n.Network, genesis) {
		e := x402.Errorf(x402.CheckFailed, "the node for %s is on another chain", x402.Title(n.Network)).
			WithHint("the person corrects rpc in config.toml: nothing is signed, and nothing released, on "+
				"the word of this node").WithDetail("genesis", x402.Brief(genesis))
		e.WithCommand(x402.Command("policy", "seal"), "The node in config.toml for "+x402.Title(n.Network)+
			" is one of another chain: please correct rpc there, and seal the rules.")
		return e
	}
	return nil
}

// isGenesis reports whether a full genesis hash is that of a network, whose CAIP-2 reference is the
// hash's first 32 characters.
func isGenesis(network, hash string) bool {
	reference, ok := strings.CutPrefix(network, "solana:")
	return ok && len(reference) == 32 && len(hash) > 32 && strings.HasPrefix(hash, reference)
}

// latestBlockhash asks for the newest blockhash at a commitment, and which slot the node was at.
// The answer has to make sense: no block is without a slot, so a block's height is at most its
// slot.
func (n *node) latestBlockhash(ctx context.Context, commitment string) (hash solana.Hash, lastValid,
	slot uint64, err error) {
	var answer struct {
		Context struct{ Slot uint64 }
		Value   struct {
			Blockhash            string
			LastValidBlockHeight uint64
		}
	}
	const method = "getLatestBlockhash"
	if err := n.Call(ctx, &answer, method, map[string]any{"commitment": commitment}); err != nil {
		return hash, 0, 0, err
	}
	key, err := parseKey(answer.Value.Blockhash)
	if err != nil || key.IsZero() || answer.Value.LastValidBlockHeight < decode.BlockhashLife ||
		answer.Context.Slot+decode.BlockhashLife < answer.Value.LastValidBlockHeight {
		err := errors.New("no blockhash, or no slot and block height that belong to it")
		return hash, 0, 0, n.Failed(method, err)
	}
	return solana.Hash(key), answer.Value.LastValidBlockHeight, answer.Context.Slot, nil
}

// isBlockhashValid asks whether a transaction with the blockhash could still land, as seen at a
// commitment.
func (n *node) isBlockhashValid(ctx context.Context, hash, commitment string) (bool, error) {
	var answer struct{ Value *bool }
	const method = "isBlockhashValid"
	err := n.Call(ctx, &answer, method, hash, map[string]any{"commitment": commitment})
	if err == nil && answer.Value == nil {
		err = n.Failed(method, errors.New("neither true nor false"))
	}
	return err == nil && *answer.Value, err
}

func (n *node) blockHeight(ctx context.Context, commitment string) (height uint64, err error) {
	const method = "getBlockHeight"
	err = n.Call(ctx, &height, method, map[string]any{"commitment": commitment})
	if err == nil && height == 0 {
		err = n.Failed(method, errors.New("no block height"))
	}
	return height, err
}

// Clock asks a network's node what time it is, for people who look for what is wrong; zero when it
// does not say. Its errors are node's: a node of another chain is one.
func (e *Exact) Clock(ctx context.Context, network string) (time.Time, error) {
	n, err := e.node(network)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := n.blockHeight(ctx, confirmed); err != nil {
		return time.Time{}, err
	}
	at := n.clock.Load()
	if at == 0 {
		return time.Time{}, nil
	}
	return time.Unix(at, 0).UTC(), nil
}
