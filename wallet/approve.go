package wallet

import (
	"bytes"
	"context"
	"slices"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
)

// Permit2Approval is a transaction of EIP-1559 with which this wallet's own account says how much of a token
// Permit2 may move out of it: approve (ERC-20) with Permit2 as the spender, which comes from nobody. It
// replaces what was approved before. No coin of the network moves with it, but for its gas, which this wallet
// pays.
type Permit2Approval struct {
	ChainID, Nonce, Gas uint64
	Tip, MaxFee         [32]byte // wei for each gas, big endian
	Token               string   // 0x and 40 hex digits in any letter case
	Amount              [32]byte // atomic units, big endian; zero: nothing any more
}

// maxApproveGas is more than any token takes for an approval.
const maxApproveGas = 300_000

// unlimited is the least of what tokens take for an approval without a limit, which payments do not use up:
// those that count in 96 bits have it at 2^96-1, the others at 2^256-1.
var unlimited = [32]byte{20: 0xff, 21: 0xff, 22: 0xff, 23: 0xff, 24: 0xff, 25: 0xff, 26: 0xff, 27: 0xff,
	28: 0xff, 29: 0xff, 30: 0xff, 31: 0xff}

// selectApprove is of approve(address,uint256).
var selectApprove = []byte{0x09, 0x5e, 0xa7, 0xb3}

// SignPermit2Approval signs t: r ‖ s ‖ v, v 27 or 28. It makes the transaction itself, so that it cannot be
// another one, and unlocks the wallet. Errors: "the wallet does not sign this" for an approval without a
// limit, and for what is no approval of a token; those of [Wallet.Unlock].
func (a *Account) SignPermit2Approval(ctx context.Context, t Permit2Approval) (sig [65]byte, err error) {
	o, err := t.order(a.self().evm)
	if err != nil {
		return sig, err
	}
	return a.signEVM(ctx, o)
}

func (t Permit2Approval) order(self string) (o Order, err error) {
	token := curve.AddressWord(t.Token)
	switch {
	case token == nil || bytes.Equal(token, make([]byte, len(token))):
		return o, coded.Unsupported("it is for no token")
	case bytes.Equal(token, curve.AddressWord(self)) || isPermit2s(token):
		return o, coded.Unsupported("what it calls is no token")
	case bytes.Compare(t.Amount[:], unlimited[:]) >= 0:
		return o, coded.Unsupported("it approves without a limit")
	case t.ChainID == 0:
		return o, coded.Unsupported("it names no chain")
	case t.Gas > maxApproveGas:
		return o, coded.Unsupported("it may take more gas than an approval")
	case bytes.Compare(t.Tip[:], t.MaxFee[:]) > 0:
		return o, coded.Unsupported("its tip is above its fee")
	}
	data := slices.Concat(selectApprove, curve.AddressWord(permit2Contract), t.Amount[:])
	return transactionOrder(EncodeTransaction(t.ChainID, t.Nonce, t.Gas, t.Tip, t.MaxFee, token[12:], data)),
		nil
}
