package message

import (
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// permitType is the EIP-712 type of EIP-2612, in the token's own domain.
const permitType = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"

// Permit is EIP-2612's message: it lets Permit2 move Value of the owner's token.
type Permit struct {
	Owner    string // EIP-55
	Value    money.Amount
	Nonce    money.Amount // the token's nonces(owner)
	Deadline int64        // Unix seconds
}

// PermitDigest is what is signed for p in the domain that the registry knows for asset; the spender is always
// Permit2.
func PermitDigest(asset x402.AssetInfo, p Permit) (digest [32]byte, err error) {
	domain, err := DomainSeparator(asset)
	if err != nil {
		return digest, err
	}
	owner, err := ParseAddress(p.Owner)
	if err != nil {
		return digest, err
	}
	if p.Deadline < 0 {
		return digest, errors.New("a time before 1970")
	}
	value, nonce := p.Value.Bytes32(), p.Nonce.Bytes32()
	message := crypto.Keccak256(crypto.Keccak256([]byte(permitType)), Word(owner),
		Word(common.HexToAddress(Permit2Address)), value[:], nonce[:], WordOfUint(uint64(p.Deadline)))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message), nil
}

// ApprovalGas is what a payment's approval by a transaction has of its own; all else in it is the payment's.
type ApprovalGas struct {
	Nonce  uint64       `json:"nonce"` // of the account that pays
	Gas    uint64       `json:"gas"`
	MaxFee money.Amount `json:"maxFee"` // wei for each gas, as is Tip
	Tip    money.Amount `json:"tip"`
}

// MaxCost is the most that its gas may cost, in wei.
func (g ApprovalGas) MaxCost() money.Amount { return g.MaxFee.Times(g.Gas) }
