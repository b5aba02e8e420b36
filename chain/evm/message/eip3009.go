package message

import (
	"encoding/hex"
	"fmt"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Authorization3009 is the message that is signed: a bearer cheque until ValidBefore (EIP-3009).
// Who holds it can cash it, once, and only for To.
type Authorization3009 struct {
	From, To                string // EIP-55
	Value                   money.Amount
	ValidAfter, ValidBefore int64 // Unix seconds; a block counts whose time lies strictly between them
	Nonce                   [32]byte
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

// Evidence is what the chain is asked by, what became of a transfer.
func (t Transfer) Evidence() x402.Evidence {
	a := t.Authorization
	return x402.Evidence{
		Network: t.Asset.Network, Asset: t.Asset.Address, Payer: a.From, PayTo: a.To, Amount: a.Value,
		Nonce: "0x" + hex.EncodeToString(a.Nonce[:]), ValidBefore: a.ValidBefore,
		ExpiresAt: time.Unix(a.ValidBefore, 0).UTC(),
	}
}
