package solana

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
)

// Instruction is one call of a program.
type Instruction struct {
	Program  PublicKey
	Accounts []Account // in the order in which the program takes them
	Data     []byte
}

// Account is one that an instruction names, and what it has to be; both false: it is only read.
type Account struct {
	Key              PublicKey
	Signer, Writable bool
}

const (
	maxAccounts = 0xff // the header counts them in bytes
	maxCompact  = 0xffff
)

var errTooLong = errors.New("more than a message can say")

// Message is what is signed of a version 0 transaction without address lookup tables. The accounts are
// those that the instructions name and their programs, each once, as all that it has to be anywhere: the
// payer of the fee, then signers before others, in both the writable ones before those that are only read,
// and among the same by their bytes (the runtime does not look at that; solana-go orders them so).
func Message(payer PublicKey, blockhash Hash, instructions ...Instruction) ([]byte, error) {
	accounts := accountsOf(payer, instructions)
	if len(accounts) > maxAccounts || len(instructions) > maxCompact {
		return nil, errTooLong
	}
	message := append([]byte{0x80}, header(accounts)...) // version 0
	message = appendCompact(message, len(accounts))
	index := map[PublicKey]byte{}
	for i, a := range accounts {
		message = append(message, a.Key[:]...)
		index[a.Key] = byte(i)
	}
	message = append(message, blockhash[:]...)
	message = appendCompact(message, len(instructions))
	for _, in := range instructions {
		if len(in.Accounts) > maxCompact || len(in.Data) > maxCompact {
			return nil, errTooLong
		}
		message = appendCompact(append(message, index[in.Program]), len(in.Accounts))
		for _, a := range in.Accounts {
			message = append(message, index[a.Key])
		}
		message = append(appendCompact(message, len(in.Data)), in.Data...)
	}
	return appendCompact(message, 0), nil // lookup tables
}

// accountsOf is every account of a message, once, in its order.
func accountsOf(payer PublicKey, instructions []Instruction) []Account {
	roles := map[PublicKey]Account{}
	add := func(a Account) {
		known := roles[a.Key]
		roles[a.Key] = Account{a.Key, a.Signer || known.Signer, a.Writable || known.Writable}
	}
	for _, in := range instructions {
		add(Account{Key: in.Program})
		for _, a := range in.Accounts {
			add(a)
		}
	}
	delete(roles, payer)
	accounts := []Account{{payer, true, true}}
	for _, a := range roles {
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts[1:], func(a, b Account) int {
		return cmp.Or(first(a.Signer, b.Signer), first(a.Writable, b.Writable),
			bytes.Compare(a.Key[:], b.Key[:]))
	})
	return accounts
}

// first compares so that true comes before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// header counts the signers, those of them that are only read, and the others that are.
func header(accounts []Account) []byte {
	var signers, readonlySigners, readonly byte
	for _, a := range accounts {
		switch {
		case a.Signer:
			signers++
			if !a.Writable {
				readonlySigners++
			}
		case !a.Writable:
			readonly++
		}
	}
	return []byte{signers, readonlySigners, readonly}
}

// appendCompact writes Solana's compact-u16 ("short vec"): 7 bits a byte, the lowest first.
func appendCompact(data []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		data = append(data, byte(n)|0x80)
	}
	return append(data, byte(n))
}
