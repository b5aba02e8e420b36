package sandbox

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

const (
	slotTime      = 400 * time.Millisecond
	firstSlot     = uint64(300_000_000)
	skippedSlots  = 12_345 // slots without a block before the world began: a height is not a slot
	blockhashLife = 150    // blocks that a blockhash is good for
)

type tokenAccount struct {
	owner, mint, delegate solana.PublicKey // no delegate: zero
	amount, delegated     uint64
	frozen                bool
}

// solanaChain is one mint of the Token program, its accounts, and a slot every 400 ms.
type solanaChain struct {
	asset    x402.AssetInfo
	mint     solana.PublicKey
	now      func() time.Time
	finality time.Duration
	born     time.Time

	mu       sync.Mutex // of what follows: whoever calls a method holds it
	accounts map[solana.PublicKey]*tokenAccount
	issued   map[solana.PublicKey]uint64 // blockhash → slot
	landed   []*solanaTransaction
	byID     map[string]*solanaTransaction
	messages map[[32]byte]bool // by the hashes of what landed: the same message lands once, whoever signs it
}

type solanaTransaction struct {
	id     string
	slot   uint64
	at     time.Time
	tx     *transaction
	before map[int]tokenAccount // by index of the account keys
	after  map[int]tokenAccount
}

func newSolanaChain(asset x402.AssetInfo, now func() time.Time, finality time.Duration) *solanaChain {
	return &solanaChain{asset: asset, mint: solana.MPK(asset.Address), now: now, finality: finality,
		born: now(), accounts: map[solana.PublicKey]*tokenAccount{}, issued: map[solana.PublicKey]uint64{},
		byID: map[string]*solanaTransaction{}, messages: map[[32]byte]bool{}}
}

// slot is the current slot, finalSlot the youngest that is final.
func (c *solanaChain) slot() uint64 { return firstSlot + uint64(c.now().Sub(c.born)/slotTime) }

func (c *solanaChain) finalSlot() uint64 { return c.slot() - uint64(c.finality/slotTime) }

func height(slot uint64) uint64 { return slot - skippedSlots }

// at is the slot that a commitment speaks of.
func (c *solanaChain) at(commitment string) uint64 {
	if commitment == "" || commitment == "finalized" { // finalized is Solana's default
		return c.finalSlot()
	}
	return c.slot()
}

// issue gives the blockhash of a slot.
func (c *solanaChain) issue(slot uint64) solana.PublicKey {
	world := append(append([]byte{}, c.mint[:]...), c.born.Format(time.RFC3339Nano)...)
	hash := solana.PublicKey(sha256.Sum256(binary.LittleEndian.AppendUint64(world, slot)))
	c.issued[hash] = slot
	return hash
}

// alive reports whether a blockhash was issued and is good at a slot.
func (c *solanaChain) alive(blockhash solana.PublicKey, slot uint64) bool {
	from, known := c.issued[blockhash]
	return known && height(slot) <= height(from)+blockhashLife
}

func (c *solanaChain) associated(owner solana.PublicKey) solana.PublicKey {
	return associatedAccount(owner, solana.TokenProgramID, c.mint)
}

// open makes the associated token account of an owner, or adds to the one that is there.
func (c *solanaChain) open(owner solana.PublicKey, amount uint64) solana.PublicKey {
	at := c.associated(owner)
	if c.accounts[at] == nil {
		c.accounts[at] = &tokenAccount{owner: owner, mint: c.mint}
	}
	c.accounts[at].amount += amount
	return at
}

// account is a copy of an account; zero when there is none. It takes mu itself.
func (c *solanaChain) account(address string) tokenAccount {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.accounts[solana.MPK(address)]; a != nil {
		return *a
	}
	return tokenAccount{}
}

// data is the account as it lies on chain: the SPL token program's 165 bytes.
func (a *tokenAccount) data() []byte {
	b := make([]byte, 165)
	copy(b[0:], a.mint[:])
	copy(b[32:], a.owner[:])
	binary.LittleEndian.PutUint64(b[64:], a.amount)
	if !a.delegate.IsZero() {
		b[72] = 1
		copy(b[76:], a.delegate[:])
		binary.LittleEndian.PutUint64(b[121:], a.delegated)
	}
	b[108] = 1 // initialized
	if a.frozen {
		b[108] = 2
	}
	return b
}

// mintData is the mint as it lies on chain: 82 bytes, no authorities.
func (c *solanaChain) mintData() []byte {
	b := make([]byte, 82)
	binary.LittleEndian.PutUint64(b[36:], math.MaxUint32*uint64(USDC))
	b[44], b[45] = c.asset.Decimals, 1
	return b
}

// execute runs a transaction in the current slot, once.
func (c *solanaChain) execute(tx *transaction) (Settlement, error) {
	e, err := c.run(tx, 0)
	if err != nil {
		return Settlement{}, err
	}
	done := &solanaTransaction{id: tx.Signatures[0].String(), slot: c.slot(), at: c.now(), tx: tx,
		before: map[int]tokenAccount{}, after: map[int]tokenAccount{}}
	for i, k := range tx.Message.AccountKeys {
		if old := c.accounts[k]; old != nil {
			done.before[i] = *old
			if changed := e.changed[k]; changed != nil {
				c.accounts[k] = changed
			}
			done.after[i] = *c.accounts[k]
		}
	}
	c.landed = append(c.landed, done)
	c.byID[done.id] = done
	c.messages[sha256.Sum256(tx.message)] = true
	moved := e.moved
	moved.Network, moved.Transaction, moved.Nonce = c.asset.Network, done.id, tx.memo()
	return moved, nil
}
