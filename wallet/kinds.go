package wallet

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The kinds of messages that are ever signed, and nothing else: one transfer of
// one token, by EIP-3009 on EVM chains and by TransferChecked on Solana. They
// are read here once more, with nothing of the code that made them, so that a
// fault anywhere else, or a stranger who reaches this far, gets no approval, no
// permit, no change of authority and no second transfer signed (catalogue B7,
// B11, B18).

// maxLife is the longest a transfer may stay good, whatever the owner's rules.
const maxLife = 24 * time.Hour

// ErrUnsupportedMessage is what asking for any other signature is answered with.
var ErrUnsupportedMessage = errors.New("the wallet does not sign this")

func notSigned(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupportedMessage, fmt.Sprintf(format, args...))
}

// TransferWithAuthorization is EIP-3009's message and its EIP-712 domain.
type TransferWithAuthorization struct {
	ChainID                 uint64
	Token                   string // verifyingContract
	Name, Version           string // of the domain
	From, To                string
	Value                   [32]byte // big endian
	ValidAfter, ValidBefore uint64   // Unix seconds
	Nonce                   [32]byte
}

// SignTransfer signs t: r ‖ s ‖ v, with v 27 or 28 and s in the lower half of the
// order (EIP-2). Errors: ErrKind for what is not a transfer from this wallet
// that ends within a day; those of [Wallet.Unlock].
func (s EVMSigner) SignTransfer(ctx context.Context, t TransferWithAuthorization) (sig [65]byte, err error) {
	digest, err := t.digest(s.Address(), s.w.now())
	if err != nil {
		return sig, err
	}
	return s.signDigest(ctx, digest)
}

// digest is keccak256(0x1901 ‖ domainSeparator ‖ hashStruct) (EIP-712).
func (t *TransferWithAuthorization) digest(self string, now time.Time) (digest [32]byte, err error) {
	token, from, to := addressWord(t.Token), addressWord(t.From), addressWord(t.To)
	seconds, zero := uint64(max(now.Unix(), 0)), [32]byte{}
	switch {
	case token == nil || from == nil || to == nil || bytes.Equal(token, zero[:]):
		return digest, notSigned("an address in it is not one")
	case !bytes.Equal(from, addressWord(self)):
		return digest, notSigned("it spends from another account than this wallet's")
	case bytes.Equal(to, from) || bytes.Equal(to, zero[:]) || bytes.Equal(to, token):
		return digest, notSigned("it pays nobody")
	case t.Value == zero:
		return digest, notSigned("it pays nothing")
	case t.ChainID == 0 || t.Name == "" || t.Version == "":
		return digest, notSigned("it names no token")
	case t.ValidBefore <= seconds || t.ValidBefore > seconds+uint64(maxLife/time.Second) ||
		t.ValidAfter > seconds:
		return digest, notSigned("it is not good now, or for longer than %v", maxLife)
	}
	domain := words(
		keccak256([]byte("EIP712Domain(string name,string version,uint256 chainId,address "+
			"verifyingContract)")),
		keccak256([]byte(t.Name)), keccak256([]byte(t.Version)), uintWord(t.ChainID), token)
	message := words(
		keccak256([]byte("TransferWithAuthorization(address from,address to,uint256 value,uint256 "+
			"validAfter,uint256 validBefore,bytes32 nonce)")),
		from, to, t.Value[:], uintWord(t.ValidAfter), uintWord(t.ValidBefore), t.Nonce[:])
	return [32]byte(keccak256(slices.Concat([]byte{0x19, 0x01}, domain, message))), nil
}

func words(list ...[]byte) []byte { return keccak256(slices.Concat(list...)) }

func uintWord(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24, 32), n) }

// addressWord reads an address in any case into its 32 bytes; nil is none.
func addressWord(text string) []byte {
	if len(text) != 42 || text[:2] != "0x" {
		return nil
	}
	word := make([]byte, 32)
	if _, err := hex.Decode(word[12:], []byte(text[2:])); err != nil {
		return nil
	}
	return word
}

// maxSolanaMessage is the size of Solana's packets, in bytes.
const maxSolanaMessage = 1232

// The programs a signed Solana message may name.
const (
	computeBudgetProgram = "ComputeBudget111111111111111111111111111111"
	tokenProgram         = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA" //nolint:gosec // a public address
	token2022Program     = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb" //nolint:gosec // a public address
	memoProgram          = "MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr"
)

// SignTransfer signs the message of a transaction (RFC 8032, pure): version 0,
// this wallet as the second signer, who pays no fee and is written to by
// nothing; one TransferChecked under its authority; besides that only limits of
// computing and memos, which touch no account; no lookup tables. Errors: ErrKind
// for everything else; those of [Wallet.Unlock].
func (s SolanaSigner) SignTransfer(ctx context.Context, message []byte) (sig [64]byte, err error) {
	if err := checkTransfer(message, unbase58(s.Address(), ed25519.PublicKeySize)); err != nil {
		return sig, err
	}
	return s.signMessage(ctx, message)
}

// checkTransfer reads a message against the list above.
func checkTransfer(message, self []byte) error {
	if len(message) > maxSolanaMessage {
		return notSigned("it is longer than %d bytes", maxSolanaMessage)
	}
	in := wire{rest: message}
	version, signers, readonlySigners := in.byte(), in.byte(), in.byte()
	_ = in.byte() // how many others are only read: the token program minds that
	keys := make([][]byte, 0, 16)
	for range in.count() {
		keys = append(keys, in.take(ed25519.PublicKeySize))
	}
	_ = in.take(ed25519.PublicKeySize) // blockhash
	switch {
	case in.short || version != 0x80:
		return notSigned("it is not a version 0 message")
	case signers != 2 || readonlySigners != 1 || len(keys) < 3 || !bytes.Equal(keys[1], self) ||
		bytes.Equal(keys[0], self):
		return notSigned("this wallet is not its second signer of two, and read only")
	}
	transfers := 0
	for range in.count() {
		program, accounts := int(in.byte()), in.take(in.count())
		data := in.take(in.count())
		if in.short || program >= len(keys) {
			return notSigned("it is cut off")
		}
		switch name := base58(keys[program]); name {
		case computeBudgetProgram:
			limit, price := len(data) == 5 && data[0] == 2, len(data) == 9 && data[0] == 3
			if len(accounts) != 0 || !limit && !price {
				return notSigned("it asks more of computing than a limit and a price")
			}
		case memoProgram:
			if len(accounts) != 0 {
				return notSigned("its memo names accounts")
			}
		case tokenProgram, token2022Program: // TransferChecked: source, mint, destination, authority
			if len(data) != 10 || data[0] != 12 || len(accounts) != 4 || accounts[3] != 1 {
				return notSigned("it asks something of the token program that is not one TransferChecked " +
					"by this wallet")
			}
			if slices.Contains(accounts[:3], 0) || slices.Contains(accounts[:3], 1) {
				return notSigned("a signer is one of the transfer's accounts")
			}
			transfers++
		default:
			return notSigned("it names the program %s", name)
		}
	}
	if tables := in.count(); in.short || tables != 0 || len(in.rest) != 0 {
		return notSigned("it uses lookup tables, or something stands behind its end")
	}
	if transfers != 1 {
		return notSigned("it makes %d transfers", transfers)
	}
	return nil
}

// wire reads the pieces of a message; short is set when it ended before.
type wire struct {
	rest  []byte
	short bool
}

func (w *wire) take(n int) []byte {
	if n > len(w.rest) {
		w.rest, w.short = nil, true
		return make([]byte, n) // at most 65535: a count
	}
	out := w.rest[:n]
	w.rest = w.rest[n:]
	return out
}

func (w *wire) byte() byte { return w.take(1)[0] }

// count is Solana's compact-u16, in its shortest form; 0 once it is short.
func (w *wire) count() int {
	n := 0
	for shift := 0; shift < 21; shift += 7 {
		b := w.byte()
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			w.short = w.short || shift > 0 && b == 0 || n > 0xffff
			break
		}
		w.short = w.short || shift == 14
	}
	if w.short {
		return 0
	}
	return n
}
