package evm

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rlp"

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
		return s, fmt.Errorf("%w: not a transaction of EIP-1559", errPayload)
	}
	if err := rlp.DecodeBytes(raw[1:], &f); err != nil {
		return s, fmt.Errorf("%w: %w", errPayload, err)
	}
	tip, tipFits := amountOfBig(f.Tip)
	most, mostFits := amountOfBig(f.MaxFee)
	switch {
	case len(f.To) != 0 && len(f.To) != common.AddressLength:
		return s, fmt.Errorf("%w: to: not an address", errPayload)
	case f.Value.Sign() != 0 || len(f.Access) != 0:
		return s, fmt.Errorf("%w: it moves coins, or has an access list", errPayload)
	case !tipFits || !mostFits:
		return s, fmt.Errorf("%w: fees that no transaction has", errPayload)
	case f.V > 1 || f.R.BitLen() > 256 || f.S.BitLen() > 256:
		return s, fmt.Errorf("%w: r, s or v out of range", ErrSignature)
	}
	var signature [65]byte
	f.R.FillBytes(signature[:32])
	f.S.FillBytes(signature[32:64])
	signature[64] = byte(f.V) + 27
	tx := transaction{chainID: f.ChainID, nonce: f.Nonce, gas: f.Gas, tip: tip, maxFee: most, to: f.To,
		data: f.Data}
	from, err := tx.signer(signature)
	if err != nil {
		return s, err
	}
	s = SignedTransaction{ChainID: f.ChainID, Nonce: f.Nonce, Gas: f.Gas, Tip: tip, MaxFee: most,
		From: from.Hex(), Data: f.Data, Hash: hashOf(raw)}
	if len(f.To) != 0 {
		s.To = common.BytesToAddress(f.To).Hex()
	}
	return s, nil
}
