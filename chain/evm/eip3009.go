package evm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What Recover can say of a payload that is not a payment.
var (
	// ErrPayload: the payload is not exactly an EIP-3009 payload of scheme "exact".
	ErrPayload = errors.New("not an EIP-3009 payload")
	// ErrSignature: the payload is well formed, but its signature is not one of the account that it
	// says is paying.
	ErrSignature = errors.New("not a signature of the payer")
)

// The two EIP-712 types, spelled as they are hashed (EIP-712 §encodeType, EIP-3009).
const (
	domainType   = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
	transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 " +
		"validAfter,uint256 validBefore,bytes32 nonce)"
)

// Authorization3009 is the message that is signed: a bearer cheque until ValidBefore (EIP-3009).
// Who holds it can cash it, once, and only for To.
type Authorization3009 struct {
	From, To                string // EIP-55
	Value                   money.Amount
	ValidAfter, ValidBefore int64 // Unix seconds; a block counts whose time lies strictly between them
	Nonce                   [32]byte
}

// Digest is what is signed for a: keccak256(0x1901 ‖ domainSeparator ‖ hashStruct) (EIP-712), in
// the domain that the registry knows for asset. The chain id is the one in asset.Network.
func Digest(asset x402.AssetInfo, a Authorization3009) (digest [32]byte, err error) {
	domain, err := domainSeparator(asset)
	if err != nil {
		return digest, err
	}
	from, errFrom := parseAddress(a.From)
	to, errTo := parseAddress(a.To)
	if err := errors.Join(errFrom, errTo); err != nil {
		return digest, err
	}
	if a.ValidAfter < 0 || a.ValidBefore < 0 {
		return digest, errors.New("a time before 1970")
	}
	value := a.Value.Bytes32()
	message := crypto.Keccak256(crypto.Keccak256([]byte(transferType)), wordOf(from), wordOf(to), value[:],
		wordOfUint(uint64(a.ValidAfter)), wordOfUint(uint64(a.ValidBefore)), a.Nonce[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message), nil
}

// domainSeparator is hashStruct of the token's EIP-712 domain; a token's DOMAIN_SEPARATOR() answers
// the same.
func domainSeparator(asset x402.AssetInfo) (common.Hash, error) {
	chainID, err := ChainID(asset.Network)
	if err != nil {
		return common.Hash{}, err
	}
	token, err := parseAddress(asset.Address)
	if err != nil {
		return common.Hash{}, err
	}
	if asset.Name == "" || asset.Version == "" {
		return common.Hash{}, errors.New("the asset has no EIP-712 name and version")
	}
	return crypto.Keccak256Hash(crypto.Keccak256([]byte(domainType)), crypto.Keccak256([]byte(asset.Name)),
		crypto.Keccak256([]byte(asset.Version)), wordOfUint(chainID), wordOf(token)), nil
}

// wordOf and wordOfUint are the 32-byte words of ABI and EIP-712.
func wordOf(address common.Address) []byte { return common.LeftPadBytes(address[:], 32) }

func wordOfUint(n uint64) []byte {
	return common.LeftPadBytes(binary.BigEndian.AppendUint64(nil, n), 32)
}

// Recover reads a payload strictly and says who signed it: both keys and no other, every value a
// string in canonical form, s in the lower half of the curve order and v 27 or 28 (EIP-2), the
// signature made by authorization.from over the domain of asset on network. It errs with ErrPayload
// or ErrSignature. It asks no chain: balance, nonce, times, payee and amount are the caller's to
// compare. Signatures of contracts (ERC-1271, ERC-6492) are not read: they need a node.
func Recover(network string, asset x402.AssetInfo, payload json.RawMessage) (from string,
	auth Authorization3009, err error) {
	if network != asset.Network {
		return "", auth, fmt.Errorf("%w: the asset is not of that network", ErrPayload)
	}
	auth, signature, err := decodePayload(payload)
	if err != nil {
		return "", auth, err
	}
	digest, err := Digest(asset, auth)
	if err != nil {
		return "", auth, fmt.Errorf("%w: %w", ErrPayload, err)
	}
	signer, err := signerOf(digest, signature)
	if err != nil {
		return "", auth, err
	}
	if signer.Hex() != auth.From {
		return "", auth, fmt.Errorf("%w: it is by %s", ErrSignature, signer.Hex())
	}
	return auth.From, auth, nil
}

// signerOf is ecrecover with the rules of today's tokens: no malleable twin, v 27 or 28.
func signerOf(digest [32]byte, signature [65]byte) (common.Address, error) {
	r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:64])
	v := signature[64] - 27
	if !crypto.ValidateSignatureValues(v, r, s, true) {
		return common.Address{}, fmt.Errorf("%w: r, s or v out of range", ErrSignature)
	}
	signature[64] = v
	key, err := crypto.SigToPub(digest[:], signature[:])
	if err != nil {
		return common.Address{}, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return crypto.PubkeyToAddress(*key), nil
}
