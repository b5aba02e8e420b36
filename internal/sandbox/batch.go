package sandbox

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"

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

// channelsOnChain is the contract's storage.
type channelsOnChain struct {
	balance timeline          // by channel: deposited and not given back
	claimed timeline          // by channel, of the balance
	refunds timeline          // by channel: the nonce that a refund takes next
	owed    map[string]uint64 // by receiver: claimed and not paid out
}

func newChannelsOnChain() channelsOnChain {
	return channelsOnChain{balance: timeline{}, claimed: timeline{}, refunds: timeline{},
		owed: map[string]uint64{}}
}

// channelState is a channel at the latest block.
type channelState struct{ balance, claimed, refunds uint64 }

func (c *evmChain) channel(id string) channelState {
	of := c.channels
	return channelState{of.balance.at(id, math.MaxUint64), of.claimed.at(id, math.MaxUint64),
		of.refunds.at(id, math.MaxUint64)}
}

// batchData hashes what is signed for the contract, tokenData what is signed for the token.
func (c *evmChain) batchData() typedData {
	return newTypedData(c.chainID(), "x402 Batch Settlement", "1", batchContract)
}

func (c *evmChain) tokenData() typedData {
	return newTypedData(c.chainID(), c.asset.Name, c.asset.Version, c.asset.Address)
}

func (c *evmChain) chainID() uint64 {
	id, _ := x402.ChainID(c.asset.Network) // of a network that is known
	return id
}

// viewBatch answers a view function of the contract.
func (c *evmChain) viewBatch(selector, words string, block uint64, forgets bool) (answer string,
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
		return word(of.balance.at(id, block)) + bare(word(of.claimed.at(id, block))), true
	case callPendingWithdrawals:
		return word(0) + bare(word(0)), true
	case callRefundNonce:
		return word(of.refunds.at(id, block)), true
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

func (d channelDeposit) nonce() [32]byte { return [32]byte(unhex(bare(hashWords(d.id, d.salt)))) }

// isSigned reports whether the payer signed it, for the collector.
func (c *evmChain) isSigned(d channelDeposit) bool {
	nonce := d.nonce()
	return isBy(d.config.Payer, c.tokenData().digest(receiveType, topicOf(d.config.Payer),
		topicOf(batchCollector), word(d.amount), word(uint64(d.validAfter)), word(uint64(d.validBefore)),
		hex.EncodeToString(nonce[:])), d.signature)
}

func (c *evmChain) checkDeposit(d channelDeposit) error {
	now := c.now().Unix()
	switch {
	case d.amount == 0:
		return reverted("InvalidAmount()")
	case d.config.WithdrawDelay < leastDelay || d.config.WithdrawDelay > mostDelay:
		return reverted("WithdrawDelayOutOfRange()")
	case !strings.EqualFold(d.config.Token, c.asset.Address) || d.id != c.batchData().channelID(d.config):
		return reverted("")
	case d.validAfter >= now || d.validBefore <= now:
		return reverted("authorization is not valid now")
	case c.used[nonceKey(d.config.Payer, d.nonce())].block != 0:
		return reverted("authorization is used")
	case !c.isSigned(d):
		return reverted("invalid signature")
	case c.balance(d.config.Payer) < d.amount:
		return reverted("transfer amount exceeds balance")
	}
	return nil
}

// executeDeposit runs a deposit in a block of its own.
func (c *evmChain) executeDeposit(sender string, d channelDeposit) (Settlement, error) {
	if err := c.checkDeposit(d); err != nil {
		return Settlement{}, err
	}
	payer, nonce := d.config.Payer, d.nonce()
	tx := c.callsBatch(sender, "deposit", nonceKey(payer, nonce))
	tx.emit(c.asset.Address, "0x", topicUsed, topicOf(payer), "0x"+hex.EncodeToString(nonce[:]))
	c.move(tx, payer, batchCollector, d.amount)
	c.move(tx, batchCollector, batchContract, d.amount)
	c.used[nonceKey(payer, nonce)] = usedNonce{tx.block, d.validBefore}
	balance := c.channel(d.id).balance + d.amount
	c.channels.balance.put(tx.block, d.id, balance)
	tx.emit(batchContract, word(d.amount)+bare(word(balance)), hashText(eventDeposited), d.id,
		topicOf(sender))
	c.add(tx)
	return Settlement{Network: c.asset.Network, Transaction: tx.hash, Payer: payer, Signer: payer,
		PayTo: batchContract, Amount: d.amount, Nonce: "0x" + hex.EncodeToString(nonce[:])}, nil
}

func (c *evmChain) callsBatch(sender string, name ...any) *evmTransaction {
	return &evmTransaction{hash: hashOf(name...), block: c.next(), from: sender, to: batchContract,
		input: "0x"}
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
func (c *evmChain) checkClaims(claims []channelClaim, signature string) error {
	digest := c.batchData().claims(claims)
	if len(claims) == 0 || !isBy(claims[0].config.ReceiverAuthorizer, digest, signature) {
		return reverted("InvalidSignature()")
	}
	for _, claim := range claims {
		at := c.channel(claim.id)
		switch {
		case claim.config.ReceiverAuthorizer != claims[0].config.ReceiverAuthorizer,
			claim.id != c.batchData().channelID(claim.config):
			return reverted("InvalidChannel()")
		case claim.total <= at.claimed: // nothing new
		case claim.total > claim.ceiling:
			return reverted("ClaimExceedsCeiling()")
		case claim.total > at.balance:
			return reverted("ClaimExceedsBalance()")
		case !isBy(claim.config.PayerAuthorizer, c.batchData().voucher(claim.id, claim.ceiling),
			claim.signature):
			return reverted("InvalidSignature()")
		}
	}
	return nil
}

// applyClaims is what claims do that were checked.
func (c *evmChain) applyClaims(tx *evmTransaction, claims []channelClaim) {
	for _, claim := range claims {
		at := c.channel(claim.id)
		if claim.total <= at.claimed {
			continue
		}
		more := claim.total - at.claimed
		c.channels.claimed.put(tx.block, claim.id, claim.total)
		c.channels.owed[strings.ToLower(claim.config.Receiver)] += more
		tx.emit(batchContract, word(more)+bare(word(claim.total)), hashText(eventClaimed), claim.id,
			topicOf(tx.from))
	}
}

// executeClaims runs claims in a block of their own.
func (c *evmChain) executeClaims(sender string, claims []channelClaim, signature string) (transaction string,
	err error) {
	if err := c.checkClaims(claims, signature); err != nil {
		return "", err
	}
	tx := c.callsBatch(sender, "claim", signature, c.head())
	c.applyClaims(tx, claims)
	c.add(tx)
	return tx.hash, nil
}

// payOut pays a receiver what was claimed, in a block of its own.
func (c *evmChain) payOut(sender, receiver string) (transaction string, amount uint64) {
	amount = c.channels.owed[strings.ToLower(receiver)]
	tx := c.callsBatch(sender, "settle", receiver, c.head())
	c.move(tx, batchContract, receiver, amount)
	delete(c.channels.owed, strings.ToLower(receiver))
	tx.emit(batchContract, word(amount), hashText(eventSettled), topicOf(receiver), topicOf(c.asset.Address),
		topicOf(sender))
	c.add(tx)
	return tx.hash, amount
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

func (c *evmChain) checkRefund(r channelRefund) error {
	if len(r.claims) > 0 {
		if err := c.checkClaims(r.claims, r.claimsSignature); err != nil {
			return err
		}
	}
	switch {
	case r.id != c.batchData().channelID(r.config):
		return reverted("InvalidChannel()")
	case r.nonce != c.channel(r.id).refunds:
		return reverted("RefundNonceMismatch()")
	case !isBy(r.config.ReceiverAuthorizer, c.batchData().refund(r.id, r.nonce, r.amount), r.signature):
		return reverted("InvalidSignature()")
	}
	return nil
}

// executeRefund runs claims and refund in a block of their own. It pays back at most what is not claimed.
func (c *evmChain) executeRefund(sender string, r channelRefund) (transaction string, refunded uint64,
	err error) {
	if err := c.checkRefund(r); err != nil {
		return "", 0, err
	}
	tx := c.callsBatch(sender, "refund", r.id, r.nonce)
	c.applyClaims(tx, r.claims)
	at := c.channel(r.id)
	refunded = min(r.amount, at.balance-at.claimed)
	c.channels.refunds.put(tx.block, r.id, r.nonce+1)
	c.channels.balance.put(tx.block, r.id, at.balance-refunded)
	if refunded > 0 {
		c.move(tx, batchContract, r.config.Payer, refunded)
	}
	tx.emit(batchContract, word(refunded), hashText(eventRefunded), r.id, topicOf(sender))
	c.add(tx)
	return tx.hash, refunded, nil
}

// said is a channel's state as facilitators tell it.
func (at channelState) said(id string) map[string]any {
	return map[string]any{"channelId": id, "balance": fmt.Sprint(at.balance),
		"totalClaimed": fmt.Sprint(at.claimed), "withdrawRequestedAt": 0,
		"refundNonce": fmt.Sprint(at.refunds)}
}
