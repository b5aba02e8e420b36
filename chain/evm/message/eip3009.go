package message

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// transferType is the EIP-712 type, spelled as it is hashed (EIP-3009).
const transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 " +
	"validAfter,uint256 validBefore,bytes32 nonce)"

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
	domain, err := DomainSeparator(asset)
	if err != nil {
		return digest, err
	}
	from, errFrom := ParseAddress(a.From)
	to, errTo := ParseAddress(a.To)
	if err := errors.Join(errFrom, errTo); err != nil {
		return digest, err
	}
	if a.ValidAfter < 0 || a.ValidBefore < 0 {
		return digest, errors.New("a time before 1970")
	}
	value := a.Value.Bytes32()
	message := crypto.Keccak256(crypto.Keccak256([]byte(messageType)), Word(from), Word(to), value[:],
		WordOfUint(uint64(a.ValidAfter)), WordOfUint(uint64(a.ValidBefore)), a.Nonce[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message), nil
}

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

// DecodeAuthorization reads the `authorization` object: exactly its six strings.
func DecodeAuthorization(object []byte) (a Authorization3009, err error) {
	names := []string{"from", "to", "value", "validAfter", "validBefore", "nonce"}
	said, err := textMembers(object, names...)
	if err != nil {
		return a, err
	}
	from, errFrom := ParseAddress(said[0])
	to, errTo := ParseAddress(said[1])
	value, errValue := money.ParseAmount(said[2])
	after, errAfter := ParseSeconds(said[3])
	before, errBefore := ParseSeconds(said[4])
	errNonce := DecodeHex(a.Nonce[:], said[5])
	for i, err := range []error{errFrom, errTo, errValue, errAfter, errBefore, errNonce} {
		if err != nil {
			return a, fmt.Errorf("%w: %s: %w", ErrPayload, names[i], err)
		}
	}
	a.From, a.To, a.Value, a.ValidAfter, a.ValidBefore = from.Hex(), to.Hex(), value, after, before
	return a, nil
}

// Transfer is what is signed of EIP-3009. It carries what a signer needs to judge it by itself.
type Transfer struct {
	Payment       string            // its id in the ledger
	Asset         x402.AssetInfo    // the EIP-712 domain, from the registry
	Authorization Authorization3009 // read back from the bytes that are sent
	Digest        [32]byte          // of the two
	OfVault       bool              // the payer is the owner's vault, and not the signer's own account
}

// ChargeNonce is the nonce of the only payment that a challenge of MPP can be answered with: of two, the
// token takes one (draft-evm-charge; mppx 0.11).
func ChargeNonce(c *x402.Charge) [32]byte {
	return crypto.Keccak256Hash([]byte(c.ID), []byte(c.Realm))
}

// Evidence is what the chain is asked by, what became of a transfer.
func (t Transfer) Evidence() x402.Evidence {
	a := t.Authorization
	return x402.Evidence{
		Network: t.Asset.Network, Asset: t.Asset.Address, Payer: a.From, PayTo: a.To, Amount: a.Value,
		Nonce: "0x" + hex.EncodeToString(a.Nonce[:]), ValidBefore: a.ValidBefore,
		ExpiresAt: time.Unix(a.ValidBefore, 0).UTC(),
	}
}
