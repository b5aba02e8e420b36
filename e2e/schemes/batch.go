package schemes

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// The contract of batch-settlement on the play chain, with its collector of deposits by EIP-3009. What the
// contracts refuse is refused here. A channel's money cannot be asked back without its seller: the two
// transactions for that are the payer's own. Nobody reads the data of these calls, so none is kept.

// The contracts, at their real addresses.
const (
	batchContract  = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003"
	batchCollector = "0x4020806089470a89826cB9fB1f4059150b550004"
)

// The contract's functions and events by their selectors and topics.
const (
	callChannels           = "7a7ebd7b" // channels(bytes32)
	callPendingWithdrawals = "b7f06ebe" // pendingWithdrawals(bytes32)
	callRefundNonce        = "f0dc792e" // refundNonce(bytes32)

	eventDeposited = "Deposited(bytes32,address,uint128,uint128)"
	eventClaimed   = "Claimed(bytes32,address,uint128,uint128)"
	eventRefunded  = "Refunded(bytes32,address,uint128)"
	eventSettled   = "Settled(address,address,address,uint128)"
)

// leastDelay and mostDelay are the contract's bounds of withdrawDelay, in seconds.
const leastDelay, mostDelay = 15 * 60, 30 * 24 * 3600

type channelsOnChain struct {
	balance sandbox.Timeline  // by channel: deposited and not given back
	claimed sandbox.Timeline  // by channel, of the balance
	refunds sandbox.Timeline  // by channel: the nonce that a refund takes next
	owed    map[string]uint64 // by receiver: claimed and not paid out
}

func newChannelsOnChain() channelsOnChain {
	return channelsOnChain{balance: sandbox.Timeline{}, claimed: sandbox.Timeline{},
		refunds: sandbox.Timeline{}, owed: map[string]uint64{}}
}

// channelState is a channel at the latest block.
type channelState struct{ balance, claimed, refunds uint64 }

func (c *chain) channel(id string) channelState {
	of := c.channels
	return channelState{of.balance.At(id, math.MaxUint64), of.claimed.At(id, math.MaxUint64),
		of.refunds.At(id, math.MaxUint64)}
}

// batchData hashes what is signed for the contract, tokenData what is signed for the token.
func (c *chain) batchData() typedData {
	return newTypedData(c.ID(), "x402 Batch Settlement", "1", batchContract)
}

func (c *chain) tokenData() typedData {
	return newTypedData(c.ID(), c.Asset.Name, c.Asset.Version, c.Asset.Address)
}

func (c *chain) viewBatch(selector, words string, block uint64, forgets bool) (answer string,
	known bool) {
	if len(words) != 64 {
		return "", false
	}
	if forgets {
		block = 0
	}
	id, of := "0x"+words, c.channels
	switch selector {
	case callChannels:
		return word(of.balance.At(id, block)) + bare(word(of.claimed.At(id, block))), true
	case callPendingWithdrawals:
		return word(0) + bare(word(0)), true
	case callRefundNonce:
		return word(of.refunds.At(id, block)), true
	}
	return "", false
}

// channelDeposit is a call of deposit: its nonce names the channel, so that the money can go into no other.
type channelDeposit struct {
	config                  x402.ChannelConfig
	id                      string
	amount                  uint64
	validAfter, validBefore int64
	salt, signature         string
}

func (d channelDeposit) nonce() [32]byte {
	return [32]byte(sandbox.Unhex(bare(hashWords(d.id, d.salt))))
}

func (c *chain) isSigned(d channelDeposit) bool {
	nonce := d.nonce()
	return isBy(d.config.Payer, c.tokenData().digest(receiveType, topicOf(d.config.Payer),
		topicOf(batchCollector), word(d.amount), word(uint64(d.validAfter)), word(uint64(d.validBefore)),
		hex.EncodeToString(nonce[:])), d.signature)
}

func (c *chain) checkDeposit(d channelDeposit) error {
	now := c.Now().Unix()
	switch {
	case d.amount == 0:
		return sandbox.Reverted("InvalidAmount()")
	case d.config.WithdrawDelay < leastDelay || d.config.WithdrawDelay > mostDelay:
		return sandbox.Reverted("WithdrawDelayOutOfRange()")
	case !strings.EqualFold(d.config.Token, c.Asset.Address) || d.id != c.batchData().channelID(d.config):
		return sandbox.Reverted("")
	case d.validAfter >= now || d.validBefore <= now:
		return sandbox.Reverted("authorization is not valid now")
	case c.IsUsed(d.config.Payer, d.nonce()):
		return sandbox.Reverted("authorization is used")
	case !c.isSigned(d):
		return sandbox.Reverted("invalid signature")
	case c.Balance(d.config.Payer) < d.amount:
		return sandbox.Reverted("transfer amount exceeds balance")
	}
	return nil
}

// executeDeposit runs a deposit in a block of its own.
func (c *chain) executeDeposit(sender string, d channelDeposit) (sandbox.Settlement, error) {
	if err := c.checkDeposit(d); err != nil {
		return sandbox.Settlement{}, err
	}
	payer, nonce := d.config.Payer, d.nonce()
	tx := c.callsBatch(sender, "deposit", sandbox.NonceKey(payer, nonce))
	c.Use(tx, payer, nonce)
	c.Move(tx, payer, batchCollector, d.amount)
	c.Move(tx, batchCollector, batchContract, d.amount)
	balance := c.channel(d.id).balance + d.amount
	c.channels.balance.Put(tx.Block, d.id, balance)
	tx.Emit(batchContract, word(d.amount)+bare(word(balance)), hashText(eventDeposited), d.id,
		topicOf(sender))
	c.Add(tx)
	return sandbox.Settlement{Network: c.Asset.Network, Transaction: tx.Hash, Payer: payer, Signer: payer,
		PayTo: batchContract, Amount: d.amount, Nonce: "0x" + hex.EncodeToString(nonce[:])}, nil
}

func (c *chain) callsBatch(sender string, name ...any) *sandbox.Transaction {
	return &sandbox.Transaction{Hash: sandbox.HashOf(name...), Block: c.Next(), From: sender,
		To: batchContract, Input: "0x"}
}

// channelClaim takes up to what a voucher promises.
type channelClaim struct {
	config    x402.ChannelConfig
	id        string
	ceiling   uint64
	signature string // the voucher's
	total     uint64 // claimed from then on
}

// checkClaims is claimWithSignature: all claims are of one authorizer, who signed them together.
func (c *chain) checkClaims(claims []channelClaim, signature string) error {
	digest := c.batchData().claims(claims)
	if len(claims) == 0 || !isBy(claims[0].config.ReceiverAuthorizer, digest, signature) {
		return sandbox.Reverted("InvalidSignature()")
	}
	for _, claim := range claims {
		at := c.channel(claim.id)
		switch {
		case claim.config.ReceiverAuthorizer != claims[0].config.ReceiverAuthorizer,
			claim.id != c.batchData().channelID(claim.config):
			return sandbox.Reverted("InvalidChannel()")
		case claim.total <= at.claimed: // nothing new
		case claim.total > claim.ceiling:
			return sandbox.Reverted("ClaimExceedsCeiling()")
		case claim.total > at.balance:
			return sandbox.Reverted("ClaimExceedsBalance()")
		case !isBy(claim.config.PayerAuthorizer, c.batchData().voucher(claim.id, claim.ceiling),
			claim.signature):
			return sandbox.Reverted("InvalidSignature()")
		}
	}
	return nil
}

func (c *chain) applyClaims(tx *sandbox.Transaction, claims []channelClaim) {
	for _, claim := range claims {
		at := c.channel(claim.id)
		if claim.total <= at.claimed {
			continue
		}
		more := claim.total - at.claimed
		c.channels.claimed.Put(tx.Block, claim.id, claim.total)
		c.channels.owed[strings.ToLower(claim.config.Receiver)] += more
		tx.Emit(batchContract, word(more)+bare(word(claim.total)), hashText(eventClaimed), claim.id,
			topicOf(tx.From))
	}
}

// executeClaims runs claims in a block of their own.
func (c *chain) executeClaims(sender string, claims []channelClaim, signature string) (transaction string,
	err error) {
	if err := c.checkClaims(claims, signature); err != nil {
		return "", err
	}
	tx := c.callsBatch(sender, "claim", signature, c.Head())
	c.applyClaims(tx, claims)
	c.Add(tx)
	return tx.Hash, nil
}

// payOut pays a receiver what was claimed, in a block of its own.
func (c *chain) payOut(sender, receiver string) (transaction string, amount uint64) {
	amount = c.channels.owed[strings.ToLower(receiver)]
	tx := c.callsBatch(sender, "settle", receiver, c.Head())
	c.Move(tx, batchContract, receiver, amount)
	delete(c.channels.owed, strings.ToLower(receiver))
	tx.Emit(batchContract, word(amount), hashText(eventSettled), topicOf(receiver), topicOf(c.Asset.Address),
		topicOf(sender))
	c.Add(tx)
	return tx.Hash, amount
}

// channelRefund gives back what a channel's seller did not claim: claims first, in the same transaction.
type channelRefund struct {
	config          x402.ChannelConfig
	id              string
	amount, nonce   uint64
	signature       string // of the receiver's authorizer
	claims          []channelClaim
	claimsSignature string
}

func (c *chain) checkRefund(r channelRefund) error {
	if len(r.claims) > 0 {
		if err := c.checkClaims(r.claims, r.claimsSignature); err != nil {
			return err
		}
	}
	switch {
	case r.id != c.batchData().channelID(r.config):
		return sandbox.Reverted("InvalidChannel()")
	case r.nonce != c.channel(r.id).refunds:
		return sandbox.Reverted("RefundNonceMismatch()")
	case !isBy(r.config.ReceiverAuthorizer, c.batchData().refund(r.id, r.nonce, r.amount), r.signature):
		return sandbox.Reverted("InvalidSignature()")
	}
	return nil
}

// executeRefund runs claims and refund in a block of their own. It pays back at most what is not claimed.
func (c *chain) executeRefund(sender string, r channelRefund) (transaction string, refunded uint64,
	err error) {
	if err := c.checkRefund(r); err != nil {
		return "", 0, err
	}
	tx := c.callsBatch(sender, "refund", r.id, r.nonce)
	c.applyClaims(tx, r.claims)
	at := c.channel(r.id)
	refunded = min(r.amount, at.balance-at.claimed)
	c.channels.refunds.Put(tx.Block, r.id, r.nonce+1)
	c.channels.balance.Put(tx.Block, r.id, at.balance-refunded)
	if refunded > 0 {
		c.Move(tx, batchContract, r.config.Payer, refunded)
	}
	tx.Emit(batchContract, word(refunded), hashText(eventRefunded), r.id, topicOf(sender))
	c.Add(tx)
	return tx.Hash, refunded, nil
}

// said is a channel's state as facilitators tell it.
func (at channelState) said(id string) map[string]any {
	return map[string]any{"channelId": id, "balance": fmt.Sprint(at.balance),
		"totalClaimed": fmt.Sprint(at.claimed), "withdrawRequestedAt": 0,
		"refundNonce": fmt.Sprint(at.refunds)}
}
