package wallet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
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
func (i Imported) SignDelegation(message []byte, meant DelegationChange) (sig [64]byte, err error) {
	if SecretOf(i.PrivateKey) == nil || i.Chain != ChainSolana {
		return sig, unsupported("it takes the owner's Solana key")
	}
	key := ed25519.NewKeyFromSeed(SecretOf(i.PrivateKey)[:])
	defer clear(key)
	if err := checkDelegation(message, key[secretSize:], meant); err != nil {
		return sig, err
	}
	return signEd25519(key, message)
}

func checkDelegation(message, owner []byte, meant DelegationChange) error {
	m, err := readSolanaMessage(message)
	if err != nil {
		return err
	}
	if m.signers != 1 || m.readonlySigners != 0 || len(m.keys) == 0 || !bytes.Equal(m.keys[0], owner) {
		return unsupported("the owner is not its only signer")
	}
	if len(m.instructions) != 1 {
		return unsupported("it is not one instruction")
	}
	in := m.instructions[0]
	isTokenProgram := in.program == tokenProgram || in.program == token2022Program
	if in.program != meant.Program || !isTokenProgram {
		return unsupported("it names the program %s", in.program)
	}
	data, accounts := meant.instruction(base58(owner))
	if !bytes.Equal(in.data, data) || len(in.accounts) != len(accounts) {
		return unsupported("it is not the change that is meant")
	}
	for i, at := range in.accounts {
		if base58(m.keys[at]) != accounts[i] {
			return unsupported("its account %d is not the one that is meant", i)
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
