package evm

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What Recover can say of a payload that is not a payment: errPayload when it is not exactly an
// EIP-3009 payload of scheme "exact", ErrSignature when it is well formed, but its signature is not
// one of the account that it says is paying.
var (
	errPayload   = errors.New("not the payload of a payment")
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
	return digestOf(transferType, asset, a)
}

// digestOf is Digest of one of EIP-3009's two messages, which differ in their names alone.
func digestOf(messageType string, asset x402.AssetInfo, a Authorization3009) (digest [32]byte, err error) {
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
	message := crypto.Keccak256(crypto.Keccak256([]byte(messageType)), wordOf(from), wordOf(to), value[:],
		wordOfUint(uint64(a.ValidAfter)), wordOfUint(uint64(a.ValidBefore)), a.Nonce[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message), nil
}

// domainSeparator is hashStruct of the token's EIP-712 domain; a token's DOMAIN_SEPARATOR() answers
// the same.
func domainSeparator(asset x402.AssetInfo) (common.Hash, error) {
	chain, err := chainID(asset.Network)
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
		crypto.Keccak256([]byte(asset.Version)), wordOfUint(chain), wordOf(token)), nil
}

// wordOf and wordOfUint are the 32-byte words of ABI and EIP-712.
func wordOf(address common.Address) []byte { return common.LeftPadBytes(address[:], 32) }

func wordOfUint(n uint64) []byte {
	return common.LeftPadBytes(binary.BigEndian.AppendUint64(nil, n), 32)
}

// Recover reads a payload strictly and says who signed it: both keys and no other, every value a
// string in canonical form, s in the lower half of the curve order and v 27 or 28 (EIP-2), the
// signature made by authorization.from over the domain of asset on network. A well formed payload
// that somebody else signed is an ErrSignature. It asks no chain: balance, nonce, times, payee and
// amount are the caller's to compare. Signatures of contracts (ERC-1271, ERC-6492) are not read:
// they need a node.
func Recover(network string, asset x402.AssetInfo, payload []byte) (from string, auth Authorization3009,
	err error) {
	if network != asset.Network {
		return "", auth, fmt.Errorf("%w: the asset is not of that network", errPayload)
	}
	auth, text, err := decodePayload(payload)
	if err != nil {
		return "", auth, err
	}
	if len(text) != 65 {
		return "", auth, fmt.Errorf("%w: signature: not 65 bytes", errPayload)
	}
	signature := [65]byte(text)
	digest, err := Digest(asset, auth)
	if err != nil {
		return "", auth, fmt.Errorf("%w: %w", errPayload, err)
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

// RecoverDigest is who signed a digest, in EIP-55, with the rules of today's tokens (signerOf).
func RecoverDigest(digest [32]byte, signature [65]byte) (address string, err error) {
	by, err := signerOf(digest, signature)
	if err != nil {
		return "", err
	}
	return by.Hex(), nil
}

// maxPayload bounds a payload object that is read, in bytes: the longest honest one, with
// 78-digit numbers, is under 700.
const maxPayload = 4 << 10

// authorizationJSON is the message in JSON, its keys in the reference client's order.
type authorizationJSON struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"`
}

// EncodeAuthorization writes the `authorization` object.
func EncodeAuthorization(a Authorization3009) ([]byte, error) {
	return json.Marshal(authorizationJSON{
		From: a.From, To: a.To, Value: a.Value.String(),
		ValidAfter: strconv.FormatInt(a.ValidAfter, 10), ValidBefore: strconv.FormatInt(a.ValidBefore, 10),
		Nonce: "0x" + hex.EncodeToString(a.Nonce[:]),
	})
}

// encodePayload joins the very bytes that were checked with the signature over them.
func encodePayload(authorization, signature []byte) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"authorization": json.RawMessage(authorization), "signature": "0x" + hex.EncodeToString(signature),
	})
}

// decodePayload reads {"authorization":{…},"signature":"0x…"}, in any order.
func decodePayload(payload []byte) (a Authorization3009, signature []byte, err error) {
	if len(payload) > maxPayload {
		return a, signature, fmt.Errorf("%w: longer than %d bytes", errPayload, maxPayload)
	}
	parts, err := members(payload, "authorization", "signature")
	if err != nil {
		return a, signature, err
	}
	a, err = DecodeAuthorization(parts[0])
	if err != nil {
		return a, signature, err
	}
	var text string
	err = json.Unmarshal(parts[1], &text)
	if err == nil {
		signature = make([]byte, max(len(text)-2, 0)/2)
		err = fixedHex(signature, text)
	}
	if err != nil {
		return a, signature, fmt.Errorf("%w: signature: %w", errPayload, err)
	}
	return a, signature, nil
}

// DecodeAuthorization reads the `authorization` object: exactly its six strings.
func DecodeAuthorization(object []byte) (a Authorization3009, err error) {
	names := []string{"from", "to", "value", "validAfter", "validBefore", "nonce"}
	said, err := textMembers(object, names...)
	if err != nil {
		return a, err
	}
	from, errFrom := parseAddress(said[0])
	to, errTo := parseAddress(said[1])
	value, errValue := money.ParseAmount(said[2])
	after, errAfter := parseSeconds(said[3])
	before, errBefore := parseSeconds(said[4])
	errNonce := fixedHex(a.Nonce[:], said[5])
	for i, err := range []error{errFrom, errTo, errValue, errAfter, errBefore, errNonce} {
		if err != nil {
			return a, fmt.Errorf("%w: %s: %w", errPayload, names[i], err)
		}
	}
	a.From, a.To, a.Value, a.ValidAfter, a.ValidBefore = from.Hex(), to.Hex(), value, after, before
	return a, nil
}

// members reads a JSON object that has exactly the given keys, each once, in any order.
func members(object []byte, names ...string) ([]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := x402.DecodeStrict(object, maxPayload, &all); err != nil {
		return nil, fmt.Errorf("%w: not one JSON object: %w", errPayload, err)
	}
	values := make([]json.RawMessage, len(names))
	for i, name := range names {
		value, present := all[name]
		if !present {
			return nil, fmt.Errorf("%w: no %s", errPayload, name)
		}
		values[i] = value
	}
	if len(all) != len(names) {
		return nil, fmt.Errorf("%w: an unknown key", errPayload)
	}
	return values, nil
}

// textMembers is members of an object of strings.
func textMembers(object []byte, names ...string) ([]string, error) {
	values, err := members(object, names...)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(names))
	for i, value := range values {
		text, ok := x402.Text(value)
		if !ok {
			return nil, fmt.Errorf("%w: %s is no string", errPayload, names[i])
		}
		all[i] = text
	}
	return all, nil
}

// fixedHex fills into from 0x and exactly two hex digits a byte.
func fixedHex(into []byte, text string) error {
	digits, found := strings.CutPrefix(text, "0x")
	if !found || len(digits) != 2*len(into) {
		return fmt.Errorf("not 0x and %d hex digits", 2*len(into))
	}
	_, err := hex.Decode(into, []byte(digits))
	return err
}

// parseSeconds reads Unix seconds, a canonical decimal up to 2^63-1.
func parseSeconds(text string) (int64, error) {
	amount, err := money.ParseAmount(text)
	if err != nil {
		return 0, err
	}
	seconds, fits := amount.Uint64()
	if !fits || seconds > 1<<63-1 {
		return 0, errors.New("more than 2^63-1 seconds")
	}
	return int64(seconds), nil
}

// errAddress says that a text is not 0x and 40 hex digits, or that its EIP-55 checksum is wrong.
var errAddress = errors.New("not an EVM address")

// parseAddress reads 0x and 40 hex digits. All lower or all upper case carries no checksum; mixed
// case does, and it must be right (EIP-55), because a wrong one is how a mistyped or tampered
// address shows itself.
func parseAddress(text string) (common.Address, error) {
	digits, found := strings.CutPrefix(text, "0x")
	if !found || len(digits) != 2*common.AddressLength || !common.IsHexAddress(digits) {
		return common.Address{}, errAddress
	}
	address := common.HexToAddress(text)
	if digits != strings.ToLower(digits) && digits != strings.ToUpper(digits) && text != address.Hex() {
		return common.Address{}, fmt.Errorf("%w: its mixed case is a wrong EIP-55 checksum", errAddress)
	}
	return address, nil
}

// chainID reads the reference of an eip155 CAIP-2 id: a canonical decimal from 1 to 2^63-1.
func chainID(network string) (uint64, error) {
	id, ok := x402.ChainID(network)
	if !ok || id > math.MaxInt64 {
		return 0, errors.New("not an eip155 network, or one with a chain id above 2^63-1")
	}
	return id, nil
}

// sameAddress compares two spellings of an address.
func sameAddress(a, b string) bool { return strings.EqualFold(a, b) }

// Address reads an address and gives its EIP-55 spelling; mixed case has to have the right
// checksum.
func Address(text string) (string, error) {
	address, err := parseAddress(text)
	if err != nil {
		return "", err
	}
	return address.Hex(), nil
}
