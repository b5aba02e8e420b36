// Package tempo builds the transactions that pay charges of MPP on Tempo (draft-tempo-charge-00): type 0x76,
// which transfers a TIP-20 token with the challenge's memo. It asks no node, and holds no key.
//
// What must stay true: a transaction can run once, and soon or never, because it has the nonce key of
// transactions that expire, and an end. Package decode reads it, and shares no code with this one.
package tempo

import (
	"bytes"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Transaction is one of type 0x76 that pays a charge.
type Transaction struct {
	ChainID, Gas            uint64
	Tip, MaxFee             uint64         // for each gas, in 10^-18 dollars
	Token                   common.Address // of all transfers
	Transfers               []Transfer
	ValidBefore, ValidAfter uint64         // Unix seconds; ValidAfter is 0 where it holds at once
	SellerPaysFee           bool           // the seller signs too, and chooses the fee's token
	FeeToken                common.Address // of a fee that the payer bears; zero: the chain chooses
}

// Transfer is one call of the token.
type Transfer struct {
	To     common.Address
	Amount money.Amount
	Memo   *common.Hash // nil: none, which only a split may have
}

// transactionType is the first byte of what is signed and of what is sent.
const transactionType = 0x76

// The token's functions: transferWithMemo(address,uint256,bytes32) and transfer(address,uint256).
var (
	selectTransferWithMemo = []byte{0x95, 0x77, 0x7d, 0x59}
	selectTransfer         = []byte{0xa9, 0x05, 0x9c, 0xbb}
)

// nonceKey is that of transactions that expire: 2^256-1. They have no order among them, and the nonce 0.
var nonceKey = bytes.Repeat([]byte{0xff}, 32)

// Memo binds a transfer to a challenge. client is what the buyer's program calls itself; it may be "".
func Memo(realm, client, challenge string) (memo common.Hash) {
	finger := func(text string, size int) []byte { return crypto.Keccak256([]byte(text))[:size] }
	named := make([]byte, 10)
	if client != "" {
		named = finger(client, 10)
	}
	return common.Hash(slices.Concat(finger("mpp", 4), []byte{1}, finger(realm, 10), named,
		finger(challenge, 7)))
}

// call is the token's, as it stands in a transaction: to, value, data.
func (t Transfer) call(token common.Address) []any {
	amount := t.Amount.Bytes32()
	data := slices.Concat(selectTransfer, message.Word(t.To), amount[:])
	if t.Memo != nil {
		data = slices.Concat(selectTransferWithMemo, data[len(selectTransfer):], t.Memo[:])
	}
	return []any{token, uint64(0), data}
}

// Unsigned is what is signed, by its Keccak-256: 0x76 and the list without a signature.
func (t Transaction) Unsigned() ([]byte, error) { return t.encode() }

// encode writes it, with its signature where it is signed.
func (t Transaction) encode(signature ...any) ([]byte, error) {
	if len(t.Transfers) == 0 || t.Transfers[0].Memo == nil || t.ValidBefore == 0 ||
		(t.SellerPaysFee && t.FeeToken != common.Address{}) {
		return nil, internal("a transaction without a memo or an end, or with a fee that two pay", nil)
	}
	calls := make([]any, len(t.Transfers))
	for i, transfer := range t.Transfers {
		calls[i] = transfer.call(t.Token)
	}
	var feePayer, feeToken []byte
	if t.SellerPaysFee {
		feePayer = []byte{0}
	}
	if t.FeeToken != (common.Address{}) {
		feeToken = t.FeeToken[:]
	}
	none := []any{} // an access list, and a list of authorizations
	fields := []any{t.ChainID, t.Tip, t.MaxFee, t.Gas, calls, none, nonceKey, uint64(0), t.ValidBefore,
		t.ValidAfter, feeToken, feePayer, none}
	encoded, err := rlp.EncodeToBytes(append(fields, signature...))
	return append([]byte{transactionType}, encoded...), err
}

// SignHash is what the payer signs.
func (t Transaction) SignHash() (common.Hash, error) {
	unsigned, err := t.Unsigned()
	return crypto.Keccak256Hash(unsigned), err
}

// Signed is the transaction with a signature of from, r ‖ s ‖ v with v 27 or 28. hash is that of the chain's
// transaction; "" where the seller bears the fee and adds a signature, by which the hash is another.
func (t Transaction) Signed(signature [65]byte, from string) (signed []byte, hash string, err error) {
	digest, err := t.SignHash()
	if err != nil {
		return nil, "", err
	}
	signer, err := message.SignerOf(digest, signature)
	if err != nil || !message.SameAddress(signer.Hex(), from) {
		return nil, "", internal("the transaction's signature is not that of its account", err)
	}
	signed, err = t.encode(signature[:])
	if err != nil || t.SellerPaysFee {
		return signed, "", err
	}
	return signed, message.HashOf(signed), nil
}

func internal(what string, cause error) *x402.Error {
	return &x402.Error{Code: x402.Internal, Message: what, Err: cause}
}
