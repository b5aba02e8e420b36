package schemes

import (
	"encoding/hex"
	"math"
	"strings"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/sandbox"
)

// Permit2, x402's two proxies and the token's EIP-2612 on the play chain. What the contracts refuse is
// refused here, in the reference facilitator's words for it (x402 2.27).

const (
	refusesAllowance  = sandbox.Reason("permit2_allowance_required")
	refusesBalance    = sandbox.Reason("permit2_insufficient_balance")
	refusesSimulation = sandbox.Reason("permit2_simulation_failed")
)

// permit2Call is a call of one of the proxies, with what its payer signed.
type permit2Call struct {
	message.Permit2Authorization
	signature []byte
	moves     uint64 // atomic units
	sender    string // of the transaction
	approval  *permit
}

// permit is an approval of Permit2 that comes with a payment (EIP-2612).
type permit struct {
	message.Permit
	signature []byte
}

// checkPermit2 is what the contracts check, but for the signatures, which whoever reads a payload checks.
func (c *chain) checkPermit2(p permit2Call) error {
	now := c.Now().Unix()
	most, fits := p.Amount.Uint64()
	switch {
	case p.IsUpto() && !strings.EqualFold(p.sender, p.Facilitator):
		return sandbox.Reason("upto_unauthorized_facilitator")
	case p.moves == 0:
		return sandbox.Reason("permit2_invalid_amount")
	case !fits || p.moves > most || (!p.IsUpto() && p.moves != most):
		return sandbox.Reason("upto_amount_exceeds_permitted")
	case p.ValidAfter > now:
		return sandbox.Reason("permit2_payment_too_early")
	case p.approval != nil && p.approval.Value != p.Amount:
		return refusesSimulation
	case p.Deadline < now || c.spent[sandbox.NonceKey(p.From, p.Nonce)] != 0:
		return refusesSimulation
	case c.Balance(p.From) < p.moves:
		return refusesBalance
	case c.allowanceFor(p) < p.moves:
		return refusesAllowance
	}
	return nil
}

// allowanceFor is what Permit2 may move once the call's approval has been tried: the proxy goes on where the
// token does not take it.
func (c *chain) allowanceFor(p permit2Call) uint64 {
	if value, good := c.approves(p.approval); good {
		return value
	}
	return c.allowance(p.From, message.Permit2Address, math.MaxUint64)
}

// approves is what the token's permit would approve.
func (c *chain) approves(p *permit) (value uint64, good bool) {
	if p == nil || p.Deadline < c.Now().Unix() {
		return 0, false
	}
	nonce, fits := p.Nonce.Uint64()
	if !fits || nonce != c.permits.At(p.Owner, math.MaxUint64) {
		return 0, false
	}
	return p.Value.Uint64()
}

// executePermit2 runs a call in a block of its own.
func (c *chain) executePermit2(p permit2Call) (sandbox.Settlement, error) {
	if err := c.checkPermit2(p); err != nil {
		return sandbox.Settlement{}, err
	}
	nonce := sandbox.NonceKey(p.From, p.Nonce)
	tx := &sandbox.Transaction{Hash: sandbox.HashOf("permit2", nonce), Block: c.Next(), From: p.sender,
		To: p.Spender, Input: p.input()}
	if value, good := c.approves(p.approval); good {
		c.permits.Put(tx.Block, p.From, c.permits.At(p.From, math.MaxUint64)+1)
		c.allow(tx.Block, p.From, message.Permit2Address, value)
		tx.Emit(c.Asset.Address, wordOf(p.approval.Value), topicApproval, topicOf(p.From),
			topicOf(message.Permit2Address))
	}
	left := c.allowance(p.From, message.Permit2Address, math.MaxUint64) - p.moves
	c.allow(tx.Block, p.From, message.Permit2Address, left)
	c.spent[nonce] = tx.Block
	c.Move(tx, p.From, p.To, p.moves)
	c.Add(tx)
	return sandbox.Settlement{Network: c.Asset.Network, Transaction: tx.Hash, Payer: p.From, Signer: p.From,
		PayTo: p.To, Amount: p.moves, Nonce: "0x" + hex.EncodeToString(p.Nonce[:])}, nil
}

// callNonceBitmap is nonceBitmap(address,uint256) of Permit2.
const callNonceBitmap = "4fe02b44"

func (c *chain) viewPermit2(selector, words string, block uint64, forgets bool) (answer string, known bool) {
	if selector != callNonceBitmap || len(words) != 128 {
		return "", false
	}
	if forgets {
		return word(0), true
	}
	return c.nonceBitmap(words[:64], words[64:], block), true
}

// nonceBitmap is a word of Permit2's bitmap of used nonces, at a block: owner and word are 64 hex digits.
func (c *chain) nonceBitmap(owner, word string, block uint64) string {
	bits := make([]byte, 32)
	for bit := range 256 {
		var nonce [32]byte
		place, _ := hex.DecodeString(word) // the caller has read it
		copy(nonce[:], place[1:])
		nonce[31] = byte(bit)
		used := c.spent[sandbox.NonceKey("0x"+owner[24:], nonce)]
		if place[0] == 0 && used != 0 && used <= block {
			bits[31-bit/8] |= 1 << (bit % 8)
		}
	}
	return "0x" + hex.EncodeToString(bits)
}

// The proxies' functions.
const (
	permitTuple   = "((address,uint256),uint256,uint256)"
	approvalTuple = "(uint256,uint256,bytes32,bytes32,uint8),"
	exactTail     = ",address,(address,uint256),bytes)"
	uptoTail      = ",uint256,address,(address,address,uint256),bytes)"
)

// input is the call as its transaction carries it.
func (p permit2Call) input() string {
	name, tail := "settle(", exactTail
	if p.approval != nil {
		name = "settleWithPermit(" + approvalTuple
	}
	if p.IsUpto() {
		tail = uptoTail
	}
	in := &sandbox.CallData{}
	if a := p.approval; a != nil {
		in.Add(wordOf(a.Value), word(uint64(a.Deadline)), hex.EncodeToString(a.signature[:64]),
			word(uint64(a.signature[64])))
	}
	in.Add(topicOf(p.Token), wordOf(p.Amount), hex.EncodeToString(p.Nonce[:]), word(uint64(p.Deadline)))
	if p.IsUpto() {
		in.Add(word(p.moves))
	}
	in.Add(topicOf(p.From), topicOf(p.To))
	if p.IsUpto() {
		in.Add(topicOf(p.Facilitator))
	}
	in.Add(word(uint64(p.ValidAfter)))
	return in.End(name+permitTuple+tail, p.signature)
}
