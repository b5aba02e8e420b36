package wallet

import (
	"bytes"
	"context"
	"math/bits"
	"slices"
	"time"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
)

// TempoTransaction is a transaction of Tempo (type 0x76) that is nothing but transferWithMemo of a token out
// of this wallet's account. It expires, so it has no order among the account's transactions and no nonce.
type TempoTransaction struct {
	ChainID, Gas  uint64
	Tip, MaxFee   uint64   // for each gas, in 10^-18 dollars
	Token, To     string   // 0x and 40 hex digits in any letter case
	Amount        [32]byte // units of the token, big endian
	Memo          [32]byte
	ValidBefore   uint64 // Unix seconds
	SellerPaysFee bool   // by a signature that the seller adds; else the fee is paid in Token
}

const (
	// maxTempoLife is longer than the chain takes a transaction that expires, 30 seconds.
	maxTempoLife = time.Minute
	// maxTempoGas is the most that sellers accept who pay the fee (mppx 0.11).
	maxTempoGas = 2_000_000
	// maxTempoFee is one dollar, the most that this wallet's account ever pays as a fee, in 10^-18 dollars.
	maxTempoFee = 1_000_000_000_000_000_000
	tempoType   = 0x76
)

// selectTransferWithMemo is of transferWithMemo(address,uint256,bytes32).
var selectTransferWithMemo = []byte{0x95, 0x77, 0x7d, 0x59}

// SignTempo signs t: r ‖ s ‖ v, v 27 or 28. It makes the transaction itself, so that it cannot be another
// one, and unlocks the wallet. Errors: "the wallet does not sign this" for what pays nobody, lives too long
// or may cost too much; those of [Wallet.Unlock].
func (a *Account) SignTempo(ctx context.Context, t TempoTransaction) (sig [65]byte, err error) {
	o, err := t.order(a.self().evm, a.wallet.now())
	if err != nil {
		return sig, err
	}
	return a.signEVM(ctx, o)
}

func (t TempoTransaction) order(self string, now time.Time) (o Order, err error) {
	token, to := curve.AddressWord(t.Token), curve.AddressWord(t.To)
	agent, seconds := curve.AddressWord(self), uint64(max(now.Unix(), 0))
	high, fee := bits.Mul64(t.Gas, t.MaxFee)
	var zero [32]byte
	switch {
	case token == nil || to == nil || agent == nil || !bytes.HasPrefix(token[12:], tip20):
		return o, coded.Unsupported("an address in it is not one, or its token is none of TIP-20")
	case bytes.Equal(to, agent) || bytes.Equal(to, zero[:]) || bytes.Equal(to, token):
		return o, coded.Unsupported("it pays nobody")
	case t.Amount == zero:
		return o, coded.Unsupported("it pays nothing")
	case t.Memo == zero:
		return o, coded.Unsupported("it has no memo")
	case t.ChainID == 0:
		return o, coded.Unsupported("it names no chain")
	case t.Gas > maxTempoGas || t.Tip > t.MaxFee || high != 0 || (fee > maxTempoFee && !t.SellerPaysFee):
		return o, coded.Unsupported("its gas is more than a transfer takes")
	case t.ValidBefore <= seconds || t.ValidBefore > seconds+uint64(maxTempoLife/time.Second):
		return o, coded.Unsupported("it is not valid now, or for longer than %v", maxTempoLife)
	}
	return transactionOrder(t.encode()), nil
}

// Hash is the transaction's on the chain, 0x and 64 hex digits, where no seller adds a signature.
func (t TempoTransaction) Hash(signature [65]byte) string {
	return hex0x(curve.Keccak256(t.encode(rlpString(signature[:]))))
}

// tip20 is the prefix of the addresses of all TIP-20 tokens.
var tip20 = append([]byte{0x20, 0xc0}, make([]byte, 10)...)

// encode returns the bytes to hash and sign, or with a signature the bytes to send (draft-tempo-charge-00).
func (t TempoTransaction) encode(signature ...[]byte) []byte {
	to, token := curve.AddressWord(t.To), curve.AddressWord(t.Token)[12:]
	feeToken, feePayer := token, []byte{}
	if t.SellerPaysFee {
		feeToken, feePayer = nil, []byte{0} // the seller chooses the token
	}
	number := func(n uint64) []byte { return rlpNumber(curve.UintWord(n)) }
	data := slices.Concat(selectTransferWithMemo, to, t.Amount[:], t.Memo[:])
	call := rlpList(rlpString(token), number(0), rlpString(data))
	noList := rlpList()
	anyOrder := bytes.Repeat([]byte{0xff}, 32) // the nonce key of transactions that expire
	fields := [][]byte{number(t.ChainID), number(t.Tip), number(t.MaxFee), number(t.Gas), rlpList(call),
		noList, rlpString(anyOrder), number(0), number(t.ValidBefore), number(0), rlpString(feeToken),
		rlpString(feePayer), noList}
	return append([]byte{tempoType}, rlpList(append(fields, signature...)...)...)
}
