package wallet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"slices"
)

// OwnerKey is the key of a token account's owner, from their own file, for one
// transaction. It is never stored. Forget it.
type OwnerKey struct{ key Imported }

// ReadOwnerKey reads a key file of the Solana command line, as ImportSolanaJSON.
func ReadOwnerKey(path string) (OwnerKey, error) {
	key, err := ImportSolanaJSON(path)
	return OwnerKey{key}, err
}

// Address is the public key in base58.
func (o OwnerKey) Address() string { return o.key.Address() }

// Forget wipes the key.
func (o OwnerKey) Forget() { o.key.wipe() }

// DelegationChange is what an owner means to sign. Addresses are base58.
type DelegationChange struct {
	Account, Program string
	Mint, Delegate   string // "" both: the delegation is revoked
	Amount           uint64
	Decimals         uint8
}

// SignDelegation signs the message of a transaction that is read here and found
// to be exactly what is meant: version 0, the owner as its only signer, one
// instruction, ApproveChecked or Revoke, nothing else. Error: ErrKind.
func (o OwnerKey) SignDelegation(message []byte, meant DelegationChange) (sig [64]byte, err error) {
	key := ed25519.NewKeyFromSeed(o.key.secret[:])
	defer clear(key)
	if err := checkDelegation(message, key[secretSize:], meant); err != nil {
		return sig, err
	}
	copy(sig[:], ed25519.Sign(key, message))
	return sig, nil
}

func checkDelegation(message, owner []byte, meant DelegationChange) error {
	if len(message) > maxSolanaMessage {
		return notSigned("it is longer than %d bytes", maxSolanaMessage)
	}
	in := wire{rest: message}
	version, signers, readonlySigners := in.byte(), in.byte(), in.byte()
	_ = in.byte() // how many others are only read: the token program minds that
	keys := make([][]byte, 0, 8)
	for range in.count() {
		keys = append(keys, in.take(ed25519.PublicKeySize))
	}
	_ = in.take(ed25519.PublicKeySize) // blockhash
	instructions := in.count()
	program, accounts := int(in.byte()), in.take(in.count())
	data := in.take(in.count())
	if tables := in.count(); in.short || tables != 0 || len(in.rest) != 0 {
		return notSigned("it is cut off, uses lookup tables, or something stands behind its end")
	}
	if version != 0x80 || signers != 1 || readonlySigners != 0 || len(keys) == 0 ||
		!bytes.Equal(keys[0], owner) {
		return notSigned("it is not a version 0 message of the owner's alone")
	}
	if instructions != 1 || program >= len(keys) || slices.ContainsFunc(accounts, func(i byte) bool {
		return int(i) >= len(keys)
	}) {
		return notSigned("it is not one instruction")
	}
	name := base58(keys[program])
	if name != meant.Program || name != tokenProgram && name != token2022Program {
		return notSigned("it names the program %s", name)
	}
	wanted, names := []byte{5}, []string{meant.Account, base58(owner)} // Revoke: source, owner
	if meant.Delegate != "" {
		// ApproveChecked: source, mint, delegate, owner
		wanted = append(binary.LittleEndian.AppendUint64([]byte{13}, meant.Amount), meant.Decimals)
		names = []string{meant.Account, meant.Mint, meant.Delegate, base58(owner)}
	}
	if !bytes.Equal(data, wanted) || len(accounts) != len(names) {
		return notSigned("it is not the change that is meant")
	}
	for i, at := range accounts {
		if base58(keys[at]) != names[i] {
			return notSigned("its account %d is not the one that is meant", i)
		}
	}
	return nil
}
