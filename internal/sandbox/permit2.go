package sandbox

import (
	"encoding/hex"
	"math"
	"strings"

	"x402-wallet/chain/evm"
)

// Permit2, x402's two proxies and the token's EIP-2612 on the play chain. What the contracts refuse is
// refused here, in the reference facilitator's words for it (x402 2.27).

const (
	refusesAllowance  = reason("permit2_allowance_required")
	refusesBalance    = reason("permit2_insufficient_balance")
	refusesSimulation = reason("permit2_simulation_failed")
)

// permit2Call is a call of one of the proxies, with what its payer signed.
type permit2Call struct {
	evm.Permit2Authorization
	signature []byte
	moves     uint64 // atomic units
	sender    string // of the transaction
	approval  *permit
}

// permit is an approval of Permit2 that comes with a payment (EIP-2612).
type permit struct {
	evm.Permit
	signature []byte
}

// checkPermit2 is what the contracts check, but for the signatures, which whoever reads a payload checks.
func (c *evmChain) checkPermit2(p permit2Call) error {
	now := c.now().Unix()
	most, fits := p.Amount.Uint64()
	switch {
	case p.IsUpto() && !strings.EqualFold(p.sender, p.Facilitator):
		return reason("upto_unauthorized_facilitator")
	case p.moves == 0:
		return reason("permit2_invalid_amount")
	case !fits || p.moves > most || (!p.IsUpto() && p.moves != most):
		return reason("upto_amount_exceeds_permitted")
	case p.ValidAfter > now:
		return reason("permit2_payment_too_early")
	case p.approval != nil && p.approval.Value != p.Amount:
		return refusesSimulation
	case p.Deadline < now || c.spent[nonceKey(p.From, p.Nonce)].block != 0:
		return refusesSimulation
	case c.balance(p.From) < p.moves:
		return refusesBalance
	case c.allowanceFor(p) < p.moves:
		return refusesAllowance
	}
	return nil
}

// allowanceFor is what Permit2 may move once the call's approval has been tried: the proxy goes on where the
// token does not take it.
func (c *evmChain) allowanceFor(p permit2Call) uint64 {
	if value, good := c.approves(p.approval); good {
		return value
	}
	return c.allowance(p.From, evm.Permit2Address, math.MaxUint64)
}

// approves is what the token's permit would approve.
func (c *evmChain) approves(p *permit) (value uint64, good bool) {
	if p == nil || p.Deadline < c.now().Unix() {
		return 0, false
	}
	nonce, fits := p.Nonce.Uint64()
	if !fits || nonce != c.permits.at(p.Owner, math.MaxUint64) {
		return 0, false
	}
	return p.Value.Uint64()
}

// executePermit2 runs a call in a block of its own.
func (c *evmChain) executePermit2(p permit2Call) (Settlement, error) {
	if err := c.checkPermit2(p); err != nil {
		return Settlement{}, err
	}
	nonce := nonceKey(p.From, p.Nonce)
	tx := &evmTransaction{hash: hashOf("permit2", nonce), block: c.next(), from: p.sender, to: p.Spender,
		input: p.input()}
	if value, good := c.approves(p.approval); good {
		c.permits.put(tx.block, p.From, c.permits.at(p.From, math.MaxUint64)+1)
		c.allow(tx.block, p.From, evm.Permit2Address, value)
		tx.emit(c.asset.Address, wordOf(p.approval.Value), topicApproval, topicOf(p.From),
			topicOf(evm.Permit2Address))
	}
	left := c.allowance(p.From, evm.Permit2Address, math.MaxUint64) - p.moves
	c.allow(tx.block, p.From, evm.Permit2Address, left)
	c.spent[nonce] = usedNonce{tx.block, p.Deadline}
	c.move(tx, p.From, p.To, p.moves)
	c.add(tx)
	return Settlement{Network: c.asset.Network, Transaction: tx.hash, Payer: p.From, Signer: p.From,
		PayTo: p.To, Amount: p.moves, Nonce: "0x" + hex.EncodeToString(p.Nonce[:])}, nil
}

// nonceBitmap is a word of Permit2's bitmap of used nonces, at a block: owner and word are 64 hex digits.
func (c *evmChain) nonceBitmap(owner, word string, block uint64) string {
	bits := make([]byte, 32)
	for bit := range 256 {
		var nonce [32]byte
		place, _ := hex.DecodeString(word) // the caller has read it
		copy(nonce[:], place[1:])
		nonce[31] = byte(bit)
		used := c.spent[nonceKey("0x"+owner[24:], nonce)].block
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
	in := &callData{}
	if a := p.approval; a != nil {
		in.add(wordOf(a.Value), word(uint64(a.Deadline)), hex.EncodeToString(a.signature[:64]),
			word(uint64(a.signature[64])))
	}
	in.add(topicOf(p.Token), wordOf(p.Amount), hex.EncodeToString(p.Nonce[:]), word(uint64(p.Deadline)))
	if p.IsUpto() {
		in.add(word(p.moves))
	}
	in.add(topicOf(p.From), topicOf(p.To))
	if p.IsUpto() {
		in.add(topicOf(p.Facilitator))
	}
	in.add(word(uint64(p.ValidAfter)))
	return in.end(name+permitTuple+tail, p.signature)
}

// callData is a function's arguments in words, with one of variable length at the end.
type callData struct{ words strings.Builder }

func (d *callData) add(words ...string) {
	for _, w := range words {
		d.words.WriteString(strings.TrimPrefix(w, "0x"))
	}
}

func (d *callData) end(signature string, last []byte) string {
	d.add(word(uint64(d.words.Len()/2+32)), word(uint64(len(last))))
	padded := append(last[:len(last):len(last)], make([]byte, (32-len(last)%32)%32)...)
	return "0x" + hex.EncodeToString(keccak(signature)[:4]) + d.words.String() + hex.EncodeToString(padded)
}
