package wallet

import (
	"math/big"
	"strconv"
)

// What is signed as EIP-712, in the form that a device or a service shows to a person. The digest beside it
// is hashed apart from it (kinds.go, permit2.go, batch.go), and is what the wallet verifies a signature by.

func (t *TransferWithAuthorization) order() (Order, error) {
	return typedOrder(t.digest(), typedDomain(t.Name, t.Version, t.ChainID, t.Token),
		map[string]any{"from": t.From, "to": t.To, "value": decimal(t.Value),
			"validAfter": number(t.ValidAfter), "validBefore": number(t.ValidBefore),
			"nonce": hex0x(t.Nonce[:])}, domainType, transferType)
}

func (t *PermitTransfer) order() (Order, error) {
	domain := map[string]any{"name": "Permit2", "chainId": number(t.ChainID),
		"verifyingContract": permit2Contract}
	w := t.witness()
	message := map[string]any{
		"permitted": map[string]any{"token": t.Token, "amount": decimal(t.Value)},
		"spender":   w.spender, "nonce": decimal(t.Nonce), "deadline": number(t.Deadline),
		"witness": w.members,
	}
	return typedOrder(t.digest(), domain, message, append([]string{permit2DomainType}, w.types...)...)
}

func (t *PermitTransfer) approvalOrder() (Order, error) {
	a := t.Approval
	return typedOrder(t.approvalDigest(), typedDomain(a.Name, a.Version, t.ChainID, t.Token),
		map[string]any{"owner": t.From, "spender": permit2Contract, "value": decimal(t.Value),
			"nonce": decimal(a.Nonce), "deadline": number(t.Deadline)}, domainType, approvalType)
}

func typedDomain(name, version string, chainID uint64, contract string) map[string]any {
	return map[string]any{"name": name, "version": version, "chainId": number(chainID),
		"verifyingContract": contract}
}

// decimal is a number of 256 bits, big endian, as typed data writes it.
func decimal(word [32]byte) string { return new(big.Int).SetBytes(word[:]).String() }

func number(n uint64) string { return strconv.FormatUint(n, 10) }
