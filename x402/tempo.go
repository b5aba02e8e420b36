package x402

import (
	"math"
	"math/bits"

	"x402-wallet/x402/money"
)

// Tempo is the scheme, in policy.schemes and the ledger, of challenges of MPP with the method "tempo" and the
// intent "charge" (draft-tempo-charge-00).
const Tempo = "tempo"

// The networks of Tempo. Their tokens (TIP-20) are paid by the scheme Tempo alone.
const (
	TempoMainnet = "eip155:4217"
	TempoTestnet = "eip155:42431" // Moderato
)

// IsTempo reports whether caip2 names a network of Tempo.
func IsTempo(caip2 string) bool { return caip2 == TempoMainnet || caip2 == TempoTestnet }

// What the gas of a transfer is signed with. A transfer to a new account took 309,287 gas, a later one
// 51,287 (anvil 1.7.1, rules T4). The base fee is at most 20·10^9 for each gas. Sellers that pay the fee take
// at most 2,000,000 gas and 100·10^9 (mppx 0.11).
const (
	TempoGas     uint64 = 800_000
	tempoMaxFee  uint64 = 25_000_000_000 // where the seller pays the fee
	TempoTip     uint64 = 1_000_000_000
	tempoPerUnit uint64 = 1_000_000_000_000 // of the price of gas, in a unit of a token (6 decimals)
)

// TempoTransfer is a transaction of type 0x76 that is nothing but transferWithMemo(To, Amount, Memo) of a
// token by From. It expires, and has no order among the account's transactions.
type TempoTransfer struct {
	Network         string
	Token, From, To string       // addresses, EIP-55
	Amount          money.Amount // units of the token
	// Fee is the most that the network's fee may take, in units of the token. Where it is 0 the seller
	// pays the fee.
	Fee         money.Amount
	Memo        string // 0x and 64 hex digits
	ValidBefore int64  // Unix seconds
}

// Total is the most that leaves the account. It is false where that has more than 256 bits.
func (t TempoTransfer) Total() (money.Amount, bool) { return t.Amount.Add(t.Fee) }

// MaxFeePerGas is the highest price of gas, in 10^-18 dollars, at which TempoGas costs no more than the fee.
func (t TempoTransfer) MaxFeePerGas() uint64 {
	if t.Fee.IsZero() {
		return tempoMaxFee
	}
	fee, fits := t.Fee.Uint64()
	high, low := bits.Mul64(fee, tempoPerUnit)
	if !fits || high >= TempoGas {
		return math.MaxUint64
	}
	price, _ := bits.Div64(high, low, TempoGas)
	return price
}

// IsTIP20 reports whether a token is one of Tempo's, which have neither EIP-3009 nor the EIP-712 domain of
// one.
func (a AssetInfo) IsTIP20() bool { return IsTempo(a.Network) }
