package payload

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rlp"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402/money"
)

// SignedTransaction is one of EIP-1559 that moves none of the network's own money, with who signed it.
type SignedTransaction struct {
	ChainID, Nonce, Gas uint64
	Tip, MaxFee         money.Amount // wei for each gas
	From, To            string       // EIP-55; To is "" where it makes a contract
	Data                []byte
	Hash                string
}

// maxTransaction bounds what is read, in bytes, as nodes do.
const maxTransaction = 128 << 10

// RecoverTransaction reads a signed transaction strictly, as it is brought to a node, and says who signed it.
// It asks no chain: chain id, account nonce, fees and coins are the caller's to compare.
func RecoverTransaction(raw []byte) (s SignedTransaction, err error) {
	var f struct {
		ChainID, Nonce uint64
		Tip, MaxFee    *big.Int
		Gas            uint64
		To             []byte
		Value          *big.Int
		Data           []byte
		Access         []rlp.RawValue
		V              uint64
		R, S           *big.Int
	}
	if len(raw) == 0 || len(raw) > maxTransaction || raw[0] != 2 {
		return s, fmt.Errorf("%w: not a transaction of EIP-1559", message.ErrPayload)
	}
	if err := rlp.DecodeBytes(raw[1:], &f); err != nil {
		return s, fmt.Errorf("%w: %w", message.ErrPayload, err)
	}
	tip, tipFits := message.AmountOfBig(f.Tip)
	most, mostFits := message.AmountOfBig(f.MaxFee)
	switch {
	case len(f.To) != 0 && len(f.To) != common.AddressLength:
		return s, fmt.Errorf("%w: to: not an address", message.ErrPayload)
	case f.Value.Sign() != 0 || len(f.Access) != 0:
		return s, fmt.Errorf("%w: it moves coins, or has an access list", message.ErrPayload)
	case !tipFits || !mostFits:
		return s, fmt.Errorf("%w: fees that no transaction has", message.ErrPayload)
	case f.V > 1 || f.R.BitLen() > 256 || f.S.BitLen() > 256:
		return s, fmt.Errorf("%w: r, s or v out of range", message.ErrSignature)
	}
	var signature [65]byte
	f.R.FillBytes(signature[:32])
	f.S.FillBytes(signature[32:64])
	signature[64] = byte(f.V) + 27
	tx := message.Transaction{ChainID: f.ChainID, Nonce: f.Nonce, Gas: f.Gas, Tip: tip, MaxFee: most,
		To:   f.To,
		Data: f.Data}
	from, err := tx.Signer(signature)
	if err != nil {
		return s, err
	}
	s = SignedTransaction{ChainID: f.ChainID, Nonce: f.Nonce, Gas: f.Gas, Tip: tip, MaxFee: most,
		From: from.Hex(), Data: f.Data, Hash: message.HashOf(raw)}
	if len(f.To) != 0 {
		s.To = common.BytesToAddress(f.To).Hex()
	}
	return s, nil
}
