package sandbox

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

// maxTransaction is the size of the longest Solana transaction, in bytes: what fits an IPv6 packet.
const maxTransaction = 1232

var (
	errTransaction = errors.New("not a transaction")
	errKey         = errors.New("not a Solana address")
)

// transaction is a Solana transaction: legacy or version 0, without lookup tables.
type transaction struct {
	*solana.Transaction
	message []byte // what is signed
	steps   []step
}

// step is an instruction with its accounts in place of their indexes.
type step struct {
	program  solana.PublicKey
	accounts []*solana.AccountMeta
	data     []byte
}

func decodeTransaction(base64Text string) (*transaction, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(base64Text)
	if err != nil || len(raw) > maxTransaction {
		return nil, errTransaction
	}
	return parseTransaction(raw)
}

// parseTransaction refuses what a validator refuses to read, lookup tables, and bytes behind the end.
func parseTransaction(raw []byte) (*transaction, error) {
	read, err := solana.TransactionFromBytes(raw)
	if err != nil {
		return nil, errTransaction
	}
	m := &read.Message
	written, errWrite := read.MarshalBinary()
	message, errMessage := m.MarshalBinary()
	switch {
	case errors.Join(errWrite, errMessage) != nil || !bytes.Equal(written, raw):
		return nil, errTransaction
	case m.GetVersion() == solana.MessageVersionV1 || len(m.AddressTableLookups) > 0:
		return nil, errTransaction
	case read.Sanitize() != nil || m.HasDuplicates():
		return nil, errTransaction
	}

	metas, err := m.AccountMetaList()
	if err != nil {
		return nil, errTransaction
	}
	tx := &transaction{Transaction: read, message: message}
	for _, ix := range m.Instructions { // Sanitize has checked the indexes
		s := step{program: m.AccountKeys[ix.ProgramIDIndex], data: ix.Data}
		for _, i := range ix.Accounts {
			s.accounts = append(s.accounts, metas[i])
		}
		tx.steps = append(tx.steps, s)
	}
	return tx, nil
}

// signed reports whether the i-th required signature is there and good.
func (tx *transaction) signed(i int) bool {
	return ed25519.Verify(tx.Message.AccountKeys[i][:], tx.message, tx.Signatures[i][:])
}

func sign(private solana.PrivateKey, message []byte) solana.Signature {
	return solana.Signature(ed25519.Sign(ed25519.PrivateKey(private), message))
}

func (tx *transaction) memo() string {
	for _, s := range tx.steps {
		if s.program == solana.MemoProgramID {
			return string(s.data)
		}
	}
	return ""
}

// parseKey reads base58 of exactly 32 bytes.
func parseKey(text string) (solana.PublicKey, error) {
	raw := x402.DecodeBase58(text, solana.PublicKeyLength)
	if raw == nil {
		return solana.PublicKey{}, errKey
	}
	return solana.PublicKey(raw), nil
}

// associatedAccount is an owner's token account for a mint under one of the token programs.
func associatedAccount(owner, program, mint solana.PublicKey) solana.PublicKey {
	account, _, err := solana.FindAssociatedTokenAddressWithProgram(owner, mint, program)
	if err != nil {
		panic("sandbox: " + err.Error()) // has a probability of 2^-255
	}
	return account
}

func u64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
