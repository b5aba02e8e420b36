package guarded

import "bytes"

// Seeds are the private keys of one account on their way into a keystore, or its recovery phrase on its way
// out of one. They print as [redacted]. Nobody outside of the packages of the wallet can read them:
// [PartsOf] is in an internal package.
type Seeds struct {
	Redacted
	// Solana and EVM are the addresses of the account.
	Solana, EVM string
	Home        string // of the keystore that they come from
	memory      *Memory
}

// NewSeeds has room for the keys, and for a phrase of so many bytes.
func NewSeeds(phrase int) *Seeds { return &Seeds{memory: New(2*Size + phrase)} }

// PartsOf are the secrets, where they lie.
func PartsOf(s *Seeds) (solana, evm *[Size]byte, phrase []byte) {
	all := s.memory.Bytes
	return (*[Size]byte)(all[:Size]), (*[Size]byte)(all[Size : 2*Size]),
		all[2*Size:]
}

// Wipe clears the secrets. A nil s is fine.
func (s *Seeds) Wipe() {
	if s != nil {
		s.memory.Wipe()
	}
}

// PrivateKey is one private key outside of a keystore, such as one from a file of another wallet. It prints
// as [redacted]. As of Seeds, nobody outside of the packages of the wallet can read it.
type PrivateKey struct {
	Redacted
	Chain   string
	Address string // Create compares it with what its keystore returns
	secret  *[Size]byte
}

// NewPrivateKey copies the secret.
func NewPrivateKey(chain, address string, secret []byte) PrivateKey {
	return PrivateKey{Chain: chain, Address: address, secret: (*[Size]byte)(bytes.Clone(secret))}
}

// SecretOf returns nil if there is none.
func SecretOf(k PrivateKey) *[Size]byte { return k.secret }

// Wipe clears the key.
func (k PrivateKey) Wipe() {
	if k.secret != nil {
		clear(k.secret[:])
	}
}
