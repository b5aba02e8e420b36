package message

import (
	"math/big"
	"slices"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Transaction is one of type 2 (EIP-1559) that moves none of the network's own money.
type Transaction struct {
	ChainID, Nonce, Gas uint64
	Tip, MaxFee         money.Amount // wei for each gas
	To                  []byte       // 20 bytes; empty: it makes a contract
	Data                []byte
}

// Encode writes it (EIP-2718), with its signature where it is signed.
func (t Transaction) Encode(signature ...any) ([]byte, error) {
	big := func(a money.Amount) *big.Int { word := a.Bytes32(); return new(big.Int).SetBytes(word[:]) }
	fields := []any{t.ChainID, t.Nonce, big(t.Tip), big(t.MaxFee), t.Gas, t.To, uint64(0), t.Data, []any{}}
	encoded, err := rlp.EncodeToBytes(append(fields, signature...))
	return append([]byte{2}, encoded...), err
}

// Signed is the transaction with a signature of from, r ‖ s ‖ v with v 27 or 28, and its hash.
func (t Transaction) Signed(signature [65]byte, from string) (encoded []byte, hash string, err error) {
	signer, err := t.Signer(signature)
	if err != nil || !SameAddress(signer.Hex(), from) {
		return nil, "", internal("the transaction's signature is not that of its account", err)
	}
	encoded, err = t.Encode(uint64(signature[64]-27), new(big.Int).SetBytes(signature[:32]),
		new(big.Int).SetBytes(signature[32:64]))
	if err != nil {
		return nil, "", internal("encoding the transaction", err)
	}
	return encoded, HashOf(encoded), nil
}

// Signer is whose signature of the transaction it is, r ‖ s ‖ v with v 27 or 28.
func (t Transaction) Signer(signature [65]byte) (common.Address, error) {
	unsigned, err := t.Encode()
	if err != nil {
		return common.Address{}, err
	}
	return SignerOf(crypto.Keccak256Hash(unsigned), signature)
}

// HashOf is the hash of a signed transaction by its bytes.
func HashOf(signed []byte) string { return crypto.Keccak256Hash(signed).Hex() }

// selectTransferFrom is of transferFrom(address,address,uint256).
var selectTransferFrom = []byte{0x23, 0xb8, 0x72, 0xdd}

func pullData(p x402.Pull) []byte {
	amount := p.Amount.Bytes32()
	return slices.Concat(selectTransferFrom, Word(common.HexToAddress(p.Owner)),
		Word(common.HexToAddress(p.Agent)), amount[:])
}

func PullTransaction(p x402.Pull) (tx Transaction, err error) {
	to, err := ParseAddress(p.Token)
	if err != nil {
		return tx, internal("the token's address", err)
	}
	return Transaction{ChainID: p.ChainID, Nonce: p.Nonce, Gas: p.Gas, Tip: p.Tip, MaxFee: p.MaxFee,
		To: to[:], Data: pullData(p)}, nil
}

// PullEvidence is what the chain is asked by, what became of a pull, but for its transaction's hash. Nothing
// ends a pull by itself, so that it may be over as soon as it is made.
func PullEvidence(p x402.Pull) x402.Evidence {
	return x402.Evidence{Network: p.Network, Asset: p.Token, Payer: p.Agent, PayTo: p.Agent, Source: p.Owner,
		Amount: p.Amount, Nonce: strconv.FormatUint(p.Nonce, 10), ExpiresAt: p.Made}
}

// PullHash is the hash of a pull with a signature of its agent's.
func PullHash(p x402.Pull, signature [65]byte) (hash string, err error) {
	tx, err := PullTransaction(p)
	if err != nil {
		return "", err
	}
	_, hash, err = tx.Signed(signature, p.Agent)
	return hash, err
}
