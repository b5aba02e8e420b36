package imported

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// DelegationChange is what an owner means to sign. Addresses are base58.
type DelegationChange struct {
	Account, Program string
	Mint, Delegate   string // "" both: the delegation is revoked
	Amount           uint64
	Decimals         uint8
}

// SignDelegation signs the message of a transaction that is read here and found to be exactly what
// is meant: version 0, the owner as its only signer, one instruction, ApproveChecked or Revoke,
// nothing else; any other is refused. i is the key of the account's owner, from their own file and
// never stored; the wallet's own key signs no such message.
func (i Key) SignDelegation(message []byte, meant DelegationChange) (sig [64]byte, err error) {
	if guarded.SecretOf(i.PrivateKey) == nil || i.Chain != wallet.ChainSolana {
		return sig, coded.Unsupported("it takes the owner's Solana key")
	}
	key := ed25519.NewKeyFromSeed(guarded.SecretOf(i.PrivateKey)[:])
	defer clear(key)
	if err := checkDelegation(message, key[guarded.Size:], meant); err != nil {
		return sig, err
	}
	return curve.SignEd25519(key, message)
}

func checkDelegation(message, owner []byte, meant DelegationChange) error {
	m, err := wallet.ReadSolanaMessage(message)
	if err != nil {
		return err
	}
	if m.Signers != 1 || m.ReadonlySigners != 0 || len(m.Keys) == 0 || !bytes.Equal(m.Keys[0], owner) {
		return coded.Unsupported("the owner is not its only signer")
	}
	if len(m.Instructions) != 1 {
		return coded.Unsupported("it is not one instruction")
	}
	in := m.Instructions[0]
	isTokenProgram := in.Program == wallet.TokenProgram || in.Program == wallet.Token2022Program
	if in.Program != meant.Program || !isTokenProgram {
		return coded.Unsupported("it names the program %s", in.Program)
	}
	data, accounts := meant.instruction(curve.Base58(owner))
	if !bytes.Equal(in.Data, data) || len(in.Accounts) != len(accounts) {
		return coded.Unsupported("it is not the change that is meant")
	}
	for i, at := range in.Accounts {
		if curve.Base58(m.Keys[at]) != accounts[i] {
			return coded.Unsupported("its account %d is not the one that is meant", i)
		}
	}
	return nil
}

// instruction is the data and the accounts of c: Revoke of source and owner, or ApproveChecked of
// source, mint, delegate and owner.
func (c DelegationChange) instruction(owner string) (data []byte, accounts []string) {
	if c.Delegate == "" {
		return []byte{5}, []string{c.Account, owner}
	}
	data = append(binary.LittleEndian.AppendUint64([]byte{13}, c.Amount), c.Decimals)
	return data, []string{c.Account, c.Mint, c.Delegate, owner}
}

// SignDeposit is that of an owner, into a channel that they fund, in which agent signs the vouchers. i is
// their key, from their own file and never stored.
func (i Key) SignDeposit(agent string, d wallet.ChannelDeposit) (sig [65]byte, err error) {
	if guarded.SecretOf(i.PrivateKey) == nil || i.Chain != wallet.ChainEVM {
		return sig, coded.Unsupported("it takes the owner's EVM key")
	}
	if !bytes.Equal(curve.AddressWord(d.Channel.Payer), curve.AddressWord(i.Address)) {
		return sig, coded.Unsupported("the channel is funded by another account")
	}
	o, err := d.Order(agent, i.Address)
	if err != nil {
		return sig, err
	}
	return i.signDigest(o.Digest)
}
