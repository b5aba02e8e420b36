// Package payload has what is sent for a payment on EVM chains, in its JSON and with its signatures: by
// EIP-3009, out of a vault, by Permit2 with an approval, by a channel. It says who signed one, and asks no
// chain: balance, nonce, times, payee and amount are the caller's to compare.
//
// What must stay true: a payload is read in one way only, and whatever is read is exactly what its signer
// signed. Signatures of contracts (ERC-1271, ERC-6492) but those of the vault are not read: they need a node.
package payload

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
)

// Recover reads a payload strictly and says who signed it: both keys and no other, every value a
// string in canonical form, s in the lower half of the curve order and v 27 or 28 (EIP-2), the
// signature made by authorization.from over the domain of asset on network. A well formed payload
// that somebody else signed is an ErrSignature. It asks no chain: balance, nonce, times, payee and
// amount are the caller's to compare. Signatures of contracts (ERC-1271, ERC-6492) are not read:
// they need a node.
func Recover(network string, asset x402.AssetInfo, payload []byte) (from string,
	auth message.Authorization3009,
	err error) {
	if network != asset.Network {
		return "", auth, fmt.Errorf("%w: the asset is not of that network", message.ErrPayload)
	}
	auth, text, err := decodePayload(payload)
	if err != nil {
		return "", auth, err
	}
	if len(text) != 65 {
		return "", auth, fmt.Errorf("%w: signature: not 65 bytes", message.ErrPayload)
	}
	signature := [65]byte(text)
	digest, err := Digest(asset, auth)
	if err != nil {
		return "", auth, fmt.Errorf("%w: %w", message.ErrPayload, err)
	}
	signer, err := message.SignerOf(digest, signature)
	if err != nil {
		return "", auth, err
	}
	if signer.Hex() != auth.From {
		return "", auth, fmt.Errorf("%w: it is by %s", message.ErrSignature, signer.Hex())
	}
	return auth.From, auth, nil
}

// Encode joins the very bytes that were checked with the signature over them.
func Encode(authorization, signature []byte) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"authorization": json.RawMessage(authorization), "signature": "0x" + hex.EncodeToString(signature),
	})
}

// decodePayload reads {"authorization":{…},"signature":"0x…"}, in any order.
func decodePayload(payload []byte) (a message.Authorization3009, signature []byte, err error) {
	if len(payload) > message.MaxPayload {
		return a, signature, fmt.Errorf("%w: longer than %d bytes", message.ErrPayload, message.MaxPayload)
	}
	parts, err := message.Members(payload, "authorization", "signature")
	if err != nil {
		return a, signature, err
	}
	a, err = message.DecodeAuthorization(parts[0])
	if err != nil {
		return a, signature, err
	}
	var text string
	err = json.Unmarshal(parts[1], &text)
	if err == nil {
		signature = make([]byte, max(len(text)-2, 0)/2)
		err = message.DecodeHex(signature, text)
	}
	if err != nil {
		return a, signature, fmt.Errorf("%w: signature: %w", message.ErrPayload, err)
	}
	return a, signature, nil
}

// RecoverAgent is Recover for a payment out of a vault: who signed for the account that pays. Whether the
// contract takes that key's signature only the chain says.
func RecoverAgent(network string, asset x402.AssetInfo, payload []byte) (agent string,
	auth message.Authorization3009, err error) {
	if network != asset.Network {
		return "", auth, fmt.Errorf("%w: the asset is not of that network", message.ErrPayload)
	}
	auth, wrapped, err := decodePayload(payload)
	if err != nil {
		return "", auth, err
	}
	signature, err := unwrap(auth, wrapped)
	if err != nil {
		return "", auth, fmt.Errorf("%w: signature: %w", message.ErrPayload, err)
	}
	digest, err := Digest(asset, auth)
	if err != nil {
		return "", auth, fmt.Errorf("%w: %w", message.ErrPayload, err)
	}
	signer, err := message.SignerOf(digest, signature)
	return signer.Hex(), auth, err
}

// Layout of a wrapped signature, in words: abi.encode(to, value, validAfter, validBefore, nonce,
// signature), the signature at the end: its length, and 65 bytes padded to three words.
const (
	wrappedHead    = 6
	wrappedSize    = (wrappedHead + 1 + 3) * 32
	signatureStart = (wrappedHead + 1) * 32
)

// Wrap is the signature that a vault takes for a.
func Wrap(a message.Authorization3009, signature [65]byte) ([]byte, error) {
	to, err := message.ParseAddress(a.To)
	if err != nil {
		return nil, err
	}
	value := a.Value.Bytes32()
	head := slices.Concat(message.Word(to), value[:],
		message.WordOfUint(uint64(a.ValidAfter)), message.WordOfUint(uint64(a.ValidBefore)), a.Nonce[:],
		message.WordOfUint(wrappedHead*32), message.WordOfUint(uint64(len(signature))), signature[:])
	return append(head, make([]byte, wrappedSize-len(head))...), nil
}

// unwrap reads the agent's signature out of a wrapped one, which has to be exactly that of a.
func unwrap(a message.Authorization3009, wrapped []byte) (signature [65]byte, err error) {
	if len(wrapped) != wrappedSize {
		return signature, errors.New("not a vault's signature")
	}
	copy(signature[:], wrapped[signatureStart:])
	same, err := Wrap(a, signature)
	if err == nil && !bytes.Equal(same, wrapped) {
		err = errors.New("a vault's signature of another authorization")
	}
	return signature, err
}
