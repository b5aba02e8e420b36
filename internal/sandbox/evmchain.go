package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
)

// reason is why something was refused, in the words of the reference facilitator (x402 2.27).
type reason string

func (r reason) Error() string { return string(r) }

const (
	blockTime  = 2 * time.Second // Base's
	firstBlock = uint64(400_000) // not 0: block numbers look like block numbers
	youngest   = 6               // seconds that an authorization must still live (reference facilitator 2.27)
)

// evmChain is one token with EIP-3009 and EIP-2612, Permit2 with x402's proxies (permit2.go) and the contract
// of batch-settlement (batch.go), on a chain that makes a block every two seconds, and one for each
// transaction.
type evmChain struct {
	asset    x402.AssetInfo
	now      func() time.Time
	finality time.Duration
	keep     int // how many transactions are remembered, at least; 0: all

	mu       sync.Mutex           // of what follows: whoever calls a method holds it
	blocks   []int64              // Unix seconds of block first+i; never go back
	first    uint64               // the oldest block that is known
	balances timeline             // by address
	allowed  timeline             // by owner and spender: what the spender may move
	permits  timeline             // by owner: the nonce that EIP-2612 takes next
	used     map[string]usedNonce // by payer and nonce, of EIP-3009
	spent    map[string]usedNonce // by payer and nonce, of Permit2
	coins    timeline             // by address: wei
	counts   timeline             // by address: the account nonce that its next transaction has
	shown    map[string]bool      // by hash: the accounts' transactions that a node was brought
	pulls    []Settlement         // what was taken by transferFrom
	vault    playVault
	channels channelsOnChain
	byHash   map[string]*evmTransaction
	txs      []*evmTransaction
}

// usedNonce is in which block a nonce was used, and until when (Unix seconds) what was signed with it could
// have been.
type usedNonce struct {
	block uint64
	until int64
}

// timeline is what was the amount for each address from a block on, oldest first.
type timeline map[string][]balance

type balance struct{ block, amount uint64 }

// at is the amount at a block, put sets it from a block on.
func (t timeline) at(address string, block uint64) uint64 {
	for _, known := range slices.Backward(t[strings.ToLower(address)]) {
		if known.block <= block {
			return known.amount
		}
	}
	return 0
}

func (t timeline) put(block uint64, address string, amount uint64) {
	address = strings.ToLower(address)
	t[address] = append(t[address], balance{block: block, amount: amount})
}

// evmTransaction is one that is in a block.
type evmTransaction struct {
	hash            string
	block           uint64
	from, to, input string
	logs            []evmLog
	gas, gasPrice   uint64 // used, and wei for each
	failed          bool
}

func newEVMChain(asset x402.AssetInfo, now func() time.Time, finality time.Duration) *evmChain {
	c := &evmChain{asset: asset, now: now, finality: finality, balances: timeline{},
		allowed: timeline{}, coins: timeline{}, counts: timeline{}, shown: map[string]bool{},
		permits: timeline{}, spent: map[string]usedNonce{}, used: map[string]usedNonce{}, first: firstBlock,
		channels: newChannelsOnChain(), byHash: map[string]*evmTransaction{}}
	const before = 100 // blocks that were there when the world began
	start := now().Unix() - before*int64(blockTime/time.Second)
	for i := range int64(before + 1) {
		c.blocks = append(c.blocks, start+i*int64(blockTime/time.Second))
	}
	return c
}

// head brings the chain up to the clock and is the latest block's number.
func (c *evmChain) head() uint64 {
	period := int64(blockTime / time.Second)
	c.forgetBlocks()
	for now := c.now().Unix(); c.blocks[len(c.blocks)-1]+period <= now; {
		c.blocks = append(c.blocks, c.blocks[len(c.blocks)-1]+period)
	}
	return c.first + uint64(len(c.blocks)) - 1
}

// final is the youngest block that is old enough to be final.
func (c *evmChain) final() uint64 {
	c.head()
	until := c.now().Add(-c.finality).Unix()
	older := sort.Search(len(c.blocks), func(i int) bool { return c.blocks[i] > until })
	return c.first + uint64(max(older-1, 0))
}

// next makes a block now and is its number.
func (c *evmChain) next() uint64 {
	c.head()
	c.blocks = append(c.blocks, max(c.now().Unix(), c.blocks[len(c.blocks)-1]))
	return c.first + uint64(len(c.blocks)) - 1
}

func (c *evmChain) balance(address string) uint64 { return c.balances.at(address, math.MaxUint64) }

// move moves tokens, and logs it.
func (c *evmChain) move(tx *evmTransaction, from, to string, amount uint64) {
	c.balances.put(tx.block, from, c.balance(from)-amount)
	c.balances.put(tx.block, to, c.balance(to)+amount)
	tx.emit(c.asset.Address, word(amount), topicTransfer, topicOf(from), topicOf(to))
}

func (c *evmChain) add(tx *evmTransaction) {
	if tx.gas == 0 { // the facilitator's own
		tx.gas, tx.gasPrice = callGas, baseFee+usualTip
	}
	c.byHash[tx.hash] = tx
	c.txs = append(c.txs, tx)
	c.forget()
}

func nonceKey(payer string, nonce [32]byte) string {
	return strings.ToLower(payer) + hex.EncodeToString(nonce[:])
}

// check is what the token's transferWithAuthorization checks, in the diagnosis order of the
// reference facilitator.
func (c *evmChain) check(payload json.RawMessage) (signer string, auth evm.Authorization3009, err error) {
	signer, auth, err = c.recover(payload)
	switch {
	case errors.Is(err, evm.ErrSignature):
		return signer, auth, reason("invalid_exact_evm_signature")
	case err != nil:
		return signer, auth, reason("invalid_payload")
	}
	now := c.now().Unix()
	amount, fits := auth.Value.Uint64()
	switch {
	case auth.ValidAfter >= now:
		return signer, auth, reason("invalid_exact_evm_payload_authorization_valid_after")
	case auth.ValidBefore <= now:
		return signer, auth, reason("invalid_exact_evm_payload_authorization_valid_before")
	case c.used[nonceKey(auth.From, auth.Nonce)].block != 0:
		return signer, auth, reason("invalid_exact_evm_nonce_already_used")
	case !fits || c.balance(auth.From) < amount:
		return signer, auth, reason("invalid_exact_evm_insufficient_balance")
	}
	return signer, auth, nil
}

const transferCall = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"

// execute runs a transferWithAuthorization that sender brings, in a block of its own.
func (c *evmChain) execute(sender string, payload json.RawMessage) (Settlement, error) {
	signer, auth, err := c.check(payload)
	if err != nil {
		return Settlement{}, err
	}
	amount, _ := auth.Value.Uint64()
	nonce := nonceKey(auth.From, auth.Nonce)
	in := &callData{}
	in.add(topicOf(auth.From), topicOf(auth.To), wordOf(auth.Value), word(uint64(auth.ValidAfter)),
		word(uint64(auth.ValidBefore)), hex.EncodeToString(auth.Nonce[:]))
	tx := &evmTransaction{hash: hashOf("transaction", nonce), block: c.next(), from: sender,
		to: c.asset.Address, input: in.end(transferCall, signatureIn(payload))}
	tx.emit(c.asset.Address, "0x", topicUsed, topicOf(auth.From), "0x"+hex.EncodeToString(auth.Nonce[:]))
	c.move(tx, auth.From, auth.To, amount)
	c.used[nonce] = usedNonce{tx.block, auth.ValidBefore}
	c.add(tx)
	return Settlement{Network: c.asset.Network, Transaction: tx.hash, Payer: auth.From, Signer: signer,
		PayTo: auth.To, Amount: amount, Nonce: "0x" + hex.EncodeToString(auth.Nonce[:])}, nil
}

// hashOf makes a 32-byte name, 0x-hex.
func hashOf(parts ...any) string {
	sum := sha256.Sum256(fmt.Append(nil, parts...))
	return "0x" + hex.EncodeToString(sum[:])
}
