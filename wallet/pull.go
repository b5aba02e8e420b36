package wallet

import (
	"bytes"
	"context"
	"slices"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
)

// PullTransaction is the one kind of transaction that the wallet's own key signs for payments: EIP-1559, with
// which this wallet takes tokens out of an account whose owner approved it (ERC-20), by transferFrom to
// itself. No coin of the network moves with it, but for its gas, which this wallet pays.
type PullTransaction struct {
	ChainID, Nonce, Gas uint64
	Tip, MaxFee         [32]byte // wei for each gas, big endian
	Token, Owner        string   // 0x and 40 hex digits in any letter case
	Amount              [32]byte // atomic units, big endian
}

// maxPullGas is more than any token takes for a transfer.
const maxPullGas = 300_000

// selectTransferFrom is of transferFrom(address,address,uint256).
var selectTransferFrom = []byte{0x23, 0xb8, 0x72, 0xdd}

// SignPull signs t: r ‖ s ‖ v, v 27 or 28. It makes the transaction itself, so that it cannot be another
// one, and unlocks the wallet. Errors: "the wallet does not sign this" for what moves nothing, or out of
// this wallet's own account; those of [Wallet.Unlock].
func (a *Account) SignPull(ctx context.Context, t PullTransaction) (sig [65]byte, err error) {
	o, err := t.order(a.self().evm)
	if err != nil {
		return sig, err
	}
	return a.signEVM(ctx, o)
}

func (t PullTransaction) order(self string) (o Order, err error) {
	token, owner, agent := curve.AddressWord(t.Token), curve.AddressWord(t.Owner), curve.AddressWord(self)
	var zero [32]byte
	switch {
	case token == nil || owner == nil || agent == nil || bytes.Equal(token, zero[:]):
		return o, coded.Unsupported("an address in it is not one")
	case bytes.Equal(owner, agent) || bytes.Equal(owner, token) || bytes.Equal(owner, zero[:]):
		return o, coded.Unsupported("it takes nothing out of an owner's account")
	case bytes.Equal(token, agent):
		return o, coded.Unsupported("it is for no token")
	case t.Amount == zero:
		return o, coded.Unsupported("it moves nothing")
	case t.ChainID == 0:
		return o, coded.Unsupported("it names no chain")
	case t.Gas > maxPullGas:
		return o, coded.Unsupported("it may take more gas than a transfer")
	case bytes.Compare(t.Tip[:], t.MaxFee[:]) > 0:
		return o, coded.Unsupported("its tip is above its fee")
	}
	data := slices.Concat(selectTransferFrom, owner, agent, t.Amount[:])
	return transactionOrder(EncodeTransaction(t.ChainID, t.Nonce, t.Gas, t.Tip, t.MaxFee, token[12:], data)),
		nil
}
