package sandbox

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"x402-wallet/x402"
)

const (
	slotTime      = 400 * time.Millisecond
	firstSlot     = uint64(300_000_000)
	skippedSlots  = 12_345 // slots without a block before the world began: a height is not a slot
	blockhashLife = 150    // blocks that a blockhash is good for
)

// TokenAccount is the state of an SPL token account.
type TokenAccount struct {
	Address, Owner, Mint string
	Amount               uint64
	Delegate             string // "" when there is none
	Delegated            uint64
	Frozen               bool
}

// tokenAccount is the same with its keys.
type tokenAccount struct {
	owner, mint, delegate key
	amount, delegated     uint64
	frozen                bool
}

// solanaChain is one mint of the Token program, its accounts, and a slot every 400 ms.
type solanaChain struct {
	asset    x402.AssetInfo
	mint     key
	now      func() time.Time
	finality time.Duration
	born     time.Time

	mu       sync.Mutex
	accounts map[key]*tokenAccount
	issued   map[key]uint64 // blockhash → slot
	landed   []*solanaTransaction
	byID     map[string]*solanaTransaction
	messages map[[32]byte]bool // hashes of what landed: the same message lands once, whoever signs it
}

// solanaTransaction is one that was executed.
type solanaTransaction struct {
	id       string
	slot     uint64
	at       time.Time
	tx       *wireTx
	raw      []byte
	transfer *transfer
	before   map[int]tokenAccount // by index of tx.keys
	after    map[int]tokenAccount
}

// transfer is a TransferChecked that was executed.
type transfer struct {
	source, destination, authority key
	amount                         uint64
}

func newSolanaChain(asset x402.AssetInfo, now func() time.Time, finality time.Duration) *solanaChain {
	return &solanaChain{asset: asset, mint: mustKey(asset.Address), now: now, finality: finality, born: now(),
		accounts: map[key]*tokenAccount{}, issued: map[key]uint64{}, byID: map[string]*solanaTransaction{},
		messages: map[[32]byte]bool{}}
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

// issue gives the blockhash of a slot. The caller holds mu.
func (c *solanaChain) issue(slot uint64) key {
	seed := append(append([]byte{}, c.mint[:]...), c.born.Format(time.RFC3339Nano)...)
	hash := key(sha256.Sum256(binary.LittleEndian.AppendUint64(seed, slot)))
	c.issued[hash] = slot
	return hash
}

// alive reports whether a blockhash was issued and is good at a slot. The caller holds mu.
func (c *solanaChain) alive(blockhash key, slot uint64) bool {
	from, known := c.issued[blockhash]
	return known && height(slot) <= height(from)+blockhashLife
}

func (c *solanaChain) associated(owner string) string {
	k, err := parseKey(owner)
	if err != nil {
		return ""
	}
	return associatedAccount(k, programToken, c.mint).String()
}

// open makes the associated token account of an owner, or adds to the one that is there.
func (c *solanaChain) open(owner string, amount uint64) string {
	k, err := parseKey(owner)
	if err != nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := associatedAccount(k, programToken, c.mint)
	if c.accounts[at] == nil {
		c.accounts[at] = &tokenAccount{owner: k, mint: c.mint}
	}
	c.accounts[at].amount += amount
	return at.String()
}

func (c *solanaChain) approve(owner, agent string, amount uint64) string {
	delegate, err := parseKey(agent)
	if err != nil {
		return ""
	}
	at := c.open(owner, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	account := c.accounts[mustKey(at)]
	account.delegate, account.delegated = delegate, amount
	return at
}

func (c *solanaChain) freeze(address string, frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, err := parseKey(address); err == nil && c.accounts[k] != nil {
		c.accounts[k].frozen = frozen
	}
}

func (c *solanaChain) account(address string) TokenAccount {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, err := parseKey(address)
	if err != nil || c.accounts[k] == nil {
		return TokenAccount{}
	}
	a := c.accounts[k]
	shown := TokenAccount{Address: address, Owner: a.owner.String(), Mint: a.mint.String(), Amount: a.amount,
		Delegated: a.delegated, Frozen: a.frozen}
	if a.delegate != (key{}) {
		shown.Delegate = a.delegate.String()
	}
	return shown
}

// data is the account as it lies on chain: the SPL token program's 165 bytes.
func (a *tokenAccount) data() []byte {
	b := make([]byte, 165)
	copy(b[0:], a.mint[:])
	copy(b[32:], a.owner[:])
	binary.LittleEndian.PutUint64(b[64:], a.amount)
	if a.delegate != (key{}) {
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

// simulate says whether a transaction would execute now; the fee payer's signature may still be
// missing.
func (c *solanaChain) simulate(tx *wireTx) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.run(tx, 1)
	return err
}

// execute runs a transaction in the current slot, once.
func (c *solanaChain) execute(tx *wireTx) (*solanaTransaction, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, err := c.run(tx, 0)
	if err != nil {
		return nil, err
	}
	done := &solanaTransaction{id: tx.id(), slot: c.slot(), at: c.now(), tx: tx, raw: tx.bytes(),
		transfer: e.transfer,
		before:   map[int]tokenAccount{}, after: map[int]tokenAccount{}}
	for i, k := range tx.keys {
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
	return done, nil
}

func (c *solanaChain) settlement(t *solanaTransaction) Settlement {
	return Settlement{Network: c.asset.Network, Transaction: t.id, Payer: t.transfer.source.String(),
		Signer: t.transfer.authority.String(),
		PayTo:  t.transfer.destination.String(), Amount: t.transfer.amount, At: t.at}
}

// encoded is the transaction's bytes as nodes tell them.
func (t *solanaTransaction) encoded() []string {
	return []string{base64.StdEncoding.EncodeToString(t.raw), "base64"}
}
