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

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402"
)

// Reason is why something was refused, in the words of the reference facilitator (x402 2.27).
type Reason string

func (r Reason) Error() string { return string(r) }

const (
	blockTime  = 2 * time.Second // Base's
	firstBlock = uint64(400_000) // not 0: block numbers look like block numbers
	youngest   = 6               // seconds that an authorization must still live (reference facilitator 2.27)
)

// Chain is one token with EIP-3009, on a chain that makes a block every two seconds, and one for each
// transaction. Extra may put more contracts on it. Whoever calls a method holds the lock.
type Chain struct {
	Asset    x402.AssetInfo
	Now      func() time.Time
	finality time.Duration
	extra    *Extra

	sync.Mutex                   // of what follows
	blocks     []int64           // Unix seconds of block firstBlock+i; never go back
	Balances   Timeline          // by address
	used       map[string]uint64 // by payer and nonce of EIP-3009, the block
	byHash     map[string]*Transaction
	txs        []*Transaction
}

// Timeline is what was the amount for each address from a block on, oldest first.
type Timeline map[string][]balance

type balance struct{ block, amount uint64 }

func (t Timeline) At(address string, block uint64) uint64 {
	for _, known := range slices.Backward(t[strings.ToLower(address)]) {
		if known.block <= block {
			return known.amount
		}
	}
	return 0
}

// Put sets the amount from a block on.
func (t Timeline) Put(block uint64, address string, amount uint64) {
	address = strings.ToLower(address)
	t[address] = append(t[address], balance{block: block, amount: amount})
}

// Transaction is one that is in a block.
type Transaction struct {
	Hash            string
	Block           uint64
	From, To, Input string
	Gas, GasPrice   uint64 // used, and wei for each
	Failed          bool
	logs            []evmLog
}

// What the facilitator's transactions cost, and what the node suggests.
const (
	BaseFee  = 5_000_000 // wei for each gas, of every block
	UsualTip = 1_000_000 // wei
	CallGas  = 50_000    // what a call of the token takes
)

func newChain(asset x402.AssetInfo, now func() time.Time, finality time.Duration, extra *Extra) *Chain {
	c := &Chain{Asset: asset, Now: now, finality: finality, extra: extra, Balances: Timeline{},
		used: map[string]uint64{}, byHash: map[string]*Transaction{}}
	const before = 100 // blocks that were there when the world began
	start := now().Unix() - before*int64(blockTime/time.Second)
	for i := range int64(before + 1) {
		c.blocks = append(c.blocks, start+i*int64(blockTime/time.Second))
	}
	return c
}

// ID is the chain's number.
func (c *Chain) ID() uint64 {
	id, _ := x402.ChainID(c.Asset.Network) // of a network that is known
	return id
}

// Head brings the chain up to the clock and is the latest block's number.
func (c *Chain) Head() uint64 {
	period := int64(blockTime / time.Second)
	for now := c.Now().Unix(); c.blocks[len(c.blocks)-1]+period <= now; {
		c.blocks = append(c.blocks, c.blocks[len(c.blocks)-1]+period)
	}
	return firstBlock + uint64(len(c.blocks)) - 1
}

// final is the youngest block that is old enough to be final.
func (c *Chain) final() uint64 {
	c.Head()
	until := c.Now().Add(-c.finality).Unix()
	older := sort.Search(len(c.blocks), func(i int) bool { return c.blocks[i] > until })
	return firstBlock + uint64(max(older-1, 0))
}

// Next makes a block now and is its number.
func (c *Chain) Next() uint64 {
	c.Head()
	c.blocks = append(c.blocks, max(c.Now().Unix(), c.blocks[len(c.blocks)-1]))
	return firstBlock + uint64(len(c.blocks)) - 1
}

// TimeOf is a block's time, in Unix seconds.
func (c *Chain) TimeOf(block uint64) int64 { return c.blocks[block-firstBlock] }

func (c *Chain) Balance(address string) uint64 { return c.Balances.At(address, math.MaxUint64) }

// Move moves tokens, and logs it.
func (c *Chain) Move(tx *Transaction, from, to string, amount uint64) {
	c.Balances.Put(tx.Block, from, c.Balance(from)-amount)
	c.Balances.Put(tx.Block, to, c.Balance(to)+amount)
	tx.Emit(c.Asset.Address, Word(amount), topicTransfer, TopicOf(from), TopicOf(to))
}

// Add puts a transaction into its block.
func (c *Chain) Add(tx *Transaction) {
	if tx.Gas == 0 { // the facilitator's own
		tx.Gas, tx.GasPrice = CallGas, BaseFee+UsualTip
	}
	c.byHash[tx.Hash] = tx
	c.txs = append(c.txs, tx)
}

// Mined returns the transaction with a hash. It returns nil if there is none in a block.
func (c *Chain) Mined(hash string) *Transaction { return c.byHash[strings.ToLower(hash)] }

// NonceKey names a payer's nonce in maps.
func NonceKey(payer string, nonce [32]byte) string {
	return strings.ToLower(payer) + hex.EncodeToString(nonce[:])
}

func (c *Chain) IsUsed(payer string, nonce [32]byte) bool { return c.used[NonceKey(payer, nonce)] != 0 }

// Use uses a nonce of EIP-3009 up in a transaction, and logs it.
func (c *Chain) Use(tx *Transaction, payer string, nonce [32]byte) {
	c.used[NonceKey(payer, nonce)] = tx.Block
	tx.Emit(c.Asset.Address, "0x", topicUsed, TopicOf(payer), "0x"+hex.EncodeToString(nonce[:]))
}

// recover reads a payment by EIP-3009. signer is the payer, or who signed for the contract that pays. Errors
// are a Reason.
func (c *Chain) recover(sent json.RawMessage) (signer string, a message.Authorization3009, err error) {
	isContract := false
	if c.extra.Recover != nil {
		signer, a, isContract, err = c.extra.Recover(sent)
	}
	if !isContract {
		signer, a, err = payload.Recover(c.Asset.Network, c.Asset, sent)
	}
	switch {
	case errors.Is(err, message.ErrSignature):
		err = Reason("invalid_exact_evm_signature")
	case err != nil:
		err = Reason("invalid_payload")
	}
	return signer, a, err
}

// check is what the token's transferWithAuthorization checks, in the diagnosis order of the
// reference facilitator.
func (c *Chain) check(payload json.RawMessage) (signer string, auth message.Authorization3009, err error) {
	signer, auth, err = c.recover(payload)
	now := c.Now().Unix()
	amount, fits := auth.Value.Uint64()
	switch {
	case err != nil:
	case auth.ValidAfter >= now:
		err = Reason("invalid_exact_evm_payload_authorization_valid_after")
	case auth.ValidBefore <= now:
		err = Reason("invalid_exact_evm_payload_authorization_valid_before")
	case c.IsUsed(auth.From, auth.Nonce):
		err = Reason("invalid_exact_evm_nonce_already_used")
	case !fits || c.Balance(auth.From) < amount:
		err = Reason("invalid_exact_evm_insufficient_balance")
	}
	return signer, auth, err
}

const transferCall = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"

// execute runs a transferWithAuthorization that sender brings, in a block of its own.
func (c *Chain) execute(sender string, payload json.RawMessage) (Settlement, error) {
	signer, auth, err := c.check(payload)
	if err != nil {
		return Settlement{}, err
	}
	amount, _ := auth.Value.Uint64()
	in := &CallData{}
	in.Add(TopicOf(auth.From), TopicOf(auth.To), WordOf(auth.Value), Word(uint64(auth.ValidAfter)),
		Word(uint64(auth.ValidBefore)), hex.EncodeToString(auth.Nonce[:]))
	tx := &Transaction{Hash: HashOf("transaction", NonceKey(auth.From, auth.Nonce)), Block: c.Next(),
		From: sender, To: c.Asset.Address, Input: in.End(transferCall, SignatureIn(payload))}
	c.Use(tx, auth.From, auth.Nonce)
	c.Move(tx, auth.From, auth.To, amount)
	c.Add(tx)
	return Settlement{Network: c.Asset.Network, Transaction: tx.Hash, Payer: auth.From, Signer: signer,
		PayTo: auth.To, Amount: amount, Nonce: "0x" + hex.EncodeToString(auth.Nonce[:])}, nil
}

// HashOf makes a 32-byte name, 0x-hex.
func HashOf(parts ...any) string {
	sum := sha256.Sum256(fmt.Append(nil, parts...))
	return "0x" + hex.EncodeToString(sum[:])
}
