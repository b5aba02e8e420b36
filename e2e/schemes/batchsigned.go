package schemes

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// What is signed for channels of batch-settlement (EIP-712), hashed here by this package alone, so that a
// mistake of the wallet's is not made twice.

// typedData hashes what is signed in one domain. Words are hex, with 0x or without.
type typedData struct{ domain string }

func newTypedData(chain uint64, name, version, contract string) typedData {
	return typedData{hashWords(hashText("EIP712Domain(string name,string version,uint256 chainId,"+
		"address verifyingContract)"), hashText(name), hashText(version), word(chain), topicOf(contract))}
}

// digest is what is signed for a message of members that are one word each.
func (t typedData) digest(messageType string, members ...string) [32]byte {
	message := hashWords(append([]string{hashText(messageType)}, members...)...)
	return [32]byte(sandbox.Keccak(string(sandbox.Unhex("1901" + bare(t.domain) + bare(message)))))
}

// hashWords is keccak256 of words, one behind the other.
func hashWords(words ...string) string {
	in := &sandbox.CallData{}
	in.Add(words...)
	return hashText(string(sandbox.Unhex(in.Words.String())))
}

func hashText(text string) string { return "0x" + hex.EncodeToString(sandbox.Keccak(text)) }

func bare(word string) string { return strings.TrimPrefix(word, "0x") }

// The messages of the contract's domain.
const (
	channelType = "ChannelConfig(address payer,address payerAuthorizer,address receiver," +
		"address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"
	voucherType = "Voucher(bytes32 channelId,uint128 maxClaimableAmount)"
	refundType  = "Refund(bytes32 channelId,uint256 nonce,uint128 amount)"
	entryType   = "ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)"
	receiveType = "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter," +
		"uint256 validBefore,bytes32 nonce)"
)

// channelID is the hash of a config that was read by readBatch.
func (t typedData) channelID(c x402.ChannelConfig) string {
	id := t.digest(channelType, topicOf(c.Payer), topicOf(c.PayerAuthorizer), topicOf(c.Receiver),
		topicOf(c.ReceiverAuthorizer), topicOf(c.Token), word(uint64(c.WithdrawDelay)), c.Salt)
	return "0x" + hex.EncodeToString(id[:])
}

func (t typedData) voucher(id string, ceiling uint64) [32]byte {
	return t.digest(voucherType, id, word(ceiling))
}

func (t typedData) refund(id string, nonce, amount uint64) [32]byte {
	return t.digest(refundType, id, word(nonce), word(amount))
}

// claims is what an authorizer signs for claims in channels of its own.
func (t typedData) claims(claims []channelClaim) [32]byte {
	var entries []string
	for _, c := range claims {
		entries = append(entries, hashWords(hashText(entryType), c.id, word(c.ceiling), word(c.total)))
	}
	return t.digest("ClaimBatch(ClaimEntry[] claims)"+entryType, hashWords(entries...))
}

// isBy reports whether an account signed a digest: r ‖ s ‖ v in hex.
func isBy(account string, digest [32]byte, signature string) bool {
	if !isHex(signature, 65) {
		return false
	}
	by, err := payload.RecoverDigest(digest, [65]byte(sandbox.Unhex(bare(signature))))
	return err == nil && strings.EqualFold(by, account)
}

// isHex reports whether a text is 0x and so many bytes.
func isHex(text string, bytes int) bool {
	return regexp.MustCompile(fmt.Sprintf("^0x[0-9a-fA-F]{%d}$", 2*bytes)).MatchString(text)
}

func signedBy(a sandbox.Account, digest [32]byte) string {
	signature := a.SignDigest(digest)
	return "0x" + hex.EncodeToString(signature[:])
}
