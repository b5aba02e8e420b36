package imported

import (
	"bytes"
	"slices"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// VaultTransaction is a transaction of EIP-1559 with which an owner makes a vault, or changes one, approves
// what an agent may take of a token, or takes back what they put into a channel: no coin of the network moves
// with it.
type VaultTransaction struct {
	ChainID, Nonce, Gas uint64
	Tip, MaxFee         [32]byte // wei for each gas, big endian
	To                  string   // "": it makes a contract
	Data                []byte
}

// ownerCalls are the calls that an owner signs, by their selectors: of the vault allow, revoke, deposit and
// withdraw, of the token approve, of the contract of channels both steps of a withdrawal.
var ownerCalls = [][]byte{{0x28, 0x14, 0x2c, 0xf7}, {0xb6, 0x54, 0x9f, 0x75}, {0xb6, 0xb5, 0x5f, 0x25},
	{0x2e, 0x1a, 0x7d, 0x4d}, {0x09, 0x5e, 0xa7, 0xb3}, wallet.InitiateWithdraw(), wallet.FinalizeWithdraw()}

// SignVaultTransaction signs t: r ‖ s ‖ v, v 27 or 28. i is the key of the vault's owner, from their own
// file and never stored; the wallet's own key signs none of these. Other calls than
// these are refused.
func (i Key) SignVaultTransaction(t VaultTransaction) (sig [65]byte, err error) {
	if guarded.SecretOf(i.PrivateKey) == nil || i.Chain != wallet.ChainEVM {
		return sig, coded.Unsupported("it takes the owner's EVM key")
	}
	to := curve.AddressWord(t.To)
	switch {
	case t.To == "" && len(t.Data) == 0, t.To != "" && to == nil:
		return sig, coded.Unsupported("it is for nobody")
	case t.To != "" && !slices.ContainsFunc(ownerCalls, t.calls):
		return sig, coded.Unsupported("it is no call of an owner's")
	case t.ChainID == 0:
		return sig, coded.Unsupported("it names no chain")
	}
	if t.To != "" {
		to = to[12:]
	}
	return i.signDigest([32]byte(curve.Keccak256(
		wallet.EncodeTransaction(t.ChainID, t.Nonce, t.Gas, t.Tip, t.MaxFee, to, t.Data))))
}

func (i Key) signDigest(digest [32]byte) (sig [65]byte, err error) {
	guarded.WithCleanStack(func() {
		k := curve.Signer{Secret: guarded.SecretOf(i.PrivateKey), Work: new([curve.NonceWork]byte)}
		k.Public, err = curve.PublicKey(k.Secret)
		if err == nil {
			sig, err = k.Sign(&digest)
		}
	})
	if err != nil {
		return sig, err
	}
	sig[64] += 27
	return sig, err
}

func (t VaultTransaction) calls(selector []byte) bool { return bytes.HasPrefix(t.Data, selector) }
