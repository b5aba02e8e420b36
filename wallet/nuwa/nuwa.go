// Package nuwa signs what payment channels (Nuwa, on Rooch) have signed: three kinds, each read here from its
// very bytes and compared with what is meant. None of them can be taken for a transaction on another
// chain: Solana would read a SubRAV's first bytes as one signer and as many or more read-only ones,
// which it refuses; a Rooch transaction is signed as a hash of 32 bytes; DIDAuth begins with
// letters, which would be 68 signers. The unlock agent signs none of them: it cannot tell what they are for.
package nuwa

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/piece"
)

// The types of keys in a DID document that a wallet has. Whatever signs takes one
// of them, and unlocks the wallet.
const (
	ed25519Key   = "Ed25519VerificationKey2020"        // the Solana key
	secp256k1Key = "EcdsaSecp256k1VerificationKey2019" // the EVM key
)

// Keys are an account's, to sign for channels with.
type Keys struct {
	*wallet.Account
	Now func() time.Time // nil: time.Now
}

func (a Keys) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// ChannelKey is the Ed25519 key of a Solana address as a DID document on Rooch
// has it: z and base58, without a multicodec prefix.
func ChannelKey(solana string) string { return "z" + solana }

// OwnsChannelKey reports whether a key of a DID document is this wallet's.
func (a Keys) OwnsChannelKey(keyType, multibase string) bool {
	solana, evm := a.Addresses()
	switch keyType {
	case ed25519Key:
		return multibase == ChannelKey(solana)
	case secp256k1Key:
		key, err := secp256k1.ParsePubKey(channelKey(multibase, secp256k1.PubKeyBytesLenCompressed))
		return err == nil && curve.EVMAddressOf(key) == evm
	}
	return false
}

// channelKey is the bytes of a key of a DID document; nil is none.
func channelKey(multibase string, size int) []byte {
	if multibase == "" || multibase[0] != 'z' {
		return nil
	}
	return curve.Unbase58(multibase[1:], size)
}

// VerifyChannelKey reports whether a signature over a message is by a key of a
// DID document, whoever's it is.
func VerifyChannelKey(keyType, multibase string, message, signature []byte) bool {
	switch keyType {
	case ed25519Key:
		key := channelKey(multibase, ed25519.PublicKeySize)
		return key != nil && ed25519.Verify(key, message, signature)
	case secp256k1Key:
		key, err := secp256k1.ParsePubKey(channelKey(multibase, secp256k1.PubKeyBytesLenCompressed))
		var r, s secp256k1.ModNScalar
		if err != nil || len(signature) != 64 || r.SetByteSlice(signature[:32]) ||
			s.SetByteSlice(signature[32:]) || s.IsOverHalfOrder() {
			return false
		}
		digest := sha256.Sum256(message)
		return ecdsa.NewSignature(&r, &s).Verify(digest[:], key)
	}
	return false
}

// SubRAV is what a payer signs for a channel: the payee may take this much of it in all. Amount is
// in atomic units; a later one replaces an earlier one (its Nonce is higher).
type SubRAV struct {
	ChainID  uint64
	Channel  [32]byte
	Epoch    uint64
	Fragment string
	Amount   [32]byte // big endian
	Nonce    uint64
}

// SignSubRAV signs the BCS form of a SubRAV, version 1, that is exactly what is
// meant, and refuses any other. Errors besides: those of [wallet.Wallet.Unlock].
func (a Keys) SignSubRAV(ctx context.Context, keyType string, message []byte, meant SubRAV) (sig [64]byte,
	err error) {
	in := bcsReader{Reader: piece.Reader{Rest: message}}
	var got SubRAV
	version := in.Byte()
	got.ChainID = in.u64()
	ids := in.count()
	copy(got.Channel[:], in.Take(32))
	got.Epoch = in.u64()
	got.Fragment = string(in.Take(in.count()))
	copy(got.Amount[:], in.Take(32))
	slices.Reverse(got.Amount[:])
	got.Nonce = in.u64()
	switch {
	case !in.whole() || version != 1 || ids != 1:
		return sig, coded.Unsupported("it is no SubRAV")
	case got != meant:
		return sig, coded.Unsupported("it is not the SubRAV that is meant")
	case !roochChain(got.ChainID) || got.Nonce == 0 || got.Fragment == "":
		return sig, coded.Unsupported("the SubRAV names no chain, nonce or key")
	}
	return a.signChannel(ctx, keyType, message)
}

// roochChain reports whether an id is one of Rooch's: main, test, dev, local. It
// is also what keeps a SubRAV from being a Solana message.
func roochChain(id uint64) bool { return id >= 1 && id <= 4 }

// authSkew is how far servers let a DIDAuth's time be from theirs.
const authSkew = 5 * time.Minute

var authForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^DIDAuthV1:\{"nonce":"[0-9a-f-]{36}","operation":"(mcp_tool_call|http_request)",` +
			`"params":\{\},"timestamp":([0-9]{10})\}$`)
})

// SignDIDAuth signs a DIDAuthV1 message of now, which proves who calls and pays nothing.
// Any other message is refused. Errors besides: those of [wallet.Wallet.Unlock].
func (a Keys) SignDIDAuth(ctx context.Context, keyType string, message []byte) (sig [64]byte, err error) {
	parts := authForm().FindSubmatch(message)
	if parts == nil {
		return sig, coded.Unsupported("it is no DIDAuthV1")
	}
	var at int64
	if _, err := fmt.Sscan(string(parts[2]), &at); err != nil ||
		a.now().Sub(time.Unix(at, 0)).Abs() > authSkew {
		return sig, coded.Unsupported("its time is not now")
	}
	return a.signChannel(ctx, keyType, message)
}

// RoochCall is one call of payment_channel, the only module that is ever called.
type RoochCall struct {
	Sender   [32]byte
	Sequence uint64
	ChainID  uint64
	MaxGas   uint64
	Function string   // one of those below
	Args     [][]byte // in BCS, as the function has them
}

// roochFunctions open a channel to a payee, let a key sign for it, and put the
// owner's money into the owner's own hub. None pays anybody. Each has two arguments.
var roochFunctions = []string{"open_channel_with_sub_channel_entry", "authorize_sub_channel_entry",
	"deposit_to_hub_entry"}

// maxRoochGas is the most gas a transaction may take, in units of RGas: one RGas.
const maxRoochGas = 100_000_000

// SignRooch signs SHA3-256 of a transaction's data that is exactly the call that is meant, in RGas,
// and refuses any other. Errors besides: those of [wallet.Wallet.Unlock].
func (a Keys) SignRooch(ctx context.Context, keyType string, data []byte, meant RoochCall) (sig [64]byte,
	err error) {
	if err := checkRooch(data, meant); err != nil {
		return sig, err
	}
	hash := sha3.Sum256(data)
	return a.signChannel(ctx, keyType, hash[:])
}

// checkRooch reads a transaction's data and compares it with what is meant.
func checkRooch(data []byte, meant RoochCall) error {
	got, err := readRoochCall(data)
	switch {
	case err != nil:
		return err
	case !roochChain(got.ChainID) || got.MaxGas > maxRoochGas:
		return coded.Unsupported("it names no chain, or more gas than one RGas")
	case !got.equal(meant):
		return coded.Unsupported("it is not the call that is meant")
	case got.Function == "deposit_to_hub_entry" && !bytes.Equal(got.Args[0], got.Sender[:]):
		return coded.Unsupported("it deposits for somebody else")
	}
	return nil
}

// roochFramework is the account 0x3, in which payment_channel and RGas are.
var roochFramework = [32]byte{31: 3}

// readRoochCall reads a call of a listed function of 0x3::payment_channel for RGas, and nothing else.
func readRoochCall(data []byte) (c RoochCall, err error) {
	in := bcsReader{Reader: piece.Reader{Rest: data}}
	c.Sender = [32]byte(in.Take(32))
	c.Sequence = in.u64()
	c.ChainID = in.u64()
	c.MaxGas = in.u64()
	action := in.Byte()
	address := [32]byte(in.Take(32))
	module := in.text()
	c.Function = in.text()
	for range in.count() { // type arguments
		if !in.isRGas() {
			return c, coded.Unsupported("it is about another coin")
		}
	}
	for range in.count() {
		c.Args = append(c.Args, in.Take(in.count()))
	}
	known := slices.Contains(roochFunctions, c.Function) && len(c.Args) == 2
	switch {
	case !in.whole() || action != 1:
		return c, coded.Unsupported("it is no call on Rooch")
	case address != roochFramework || module != "payment_channel" || !known:
		return c, coded.Unsupported("it calls something else than a payment channel's opening")
	}
	return c, nil
}

func (c RoochCall) equal(other RoochCall) bool {
	return c.Sender == other.Sender && c.Sequence == other.Sequence && c.ChainID == other.ChainID &&
		c.MaxGas == other.MaxGas && c.Function == other.Function &&
		slices.EqualFunc(c.Args, other.Args, bytes.Equal)
}

// signChannel is plain Ed25519, or ECDSA over SHA-256, r ‖ s with s in the lower half.
func (a Keys) signChannel(ctx context.Context, keyType string, message []byte) (sig [64]byte, err error) {
	if keyType != ed25519Key && keyType != secp256k1Key {
		return sig, coded.Unsupported("the wallet has no key of the type %q", keyType)
	}
	o := wallet.Order{Chain: wallet.ChainSolana, Kind: wallet.Channel, Payload: message}
	if keyType == secp256k1Key {
		o.Chain, o.Digest = wallet.ChainEVM, sha256.Sum256(message)
	}
	signature, err := a.SignChannel(ctx, guarded.GiveLeave(), o)
	copy(sig[:], signature)
	return sig, err
}

// bcsReader reads Rooch's encoding, with nothing of the code that writes it.
type bcsReader struct{ piece.Reader }

func (b *bcsReader) u64() uint64 { return binary.LittleEndian.Uint64(b.Take(8)) }

func (b *bcsReader) text() string { return string(b.Take(b.count())) }

// isRGas reads a type argument and reports whether it is the struct 0x3::gas_coin::RGas.
func (b *bcsReader) isRGas() bool {
	tag := b.Byte()
	address := [32]byte(b.Take(32))
	module := b.text()
	name := b.text()
	parameters := b.count()
	return tag == 7 && address == roochFramework && module == "gas_coin" && name == "RGas" && parameters == 0
}

// count is a ULEB128 of at most two bytes, in its shortest form; 0 once it is short.
func (b *bcsReader) count() int {
	n := int(b.Byte())
	if n >= 0x80 {
		high := int(b.Byte())
		if high == 0 || high >= 0x80 {
			b.Rest, b.Truncated = nil, true
			return 0
		}
		n = n&0x7f | high<<7
	}
	if b.Truncated {
		return 0
	}
	return n
}

func (b *bcsReader) whole() bool { return !b.Truncated && len(b.Rest) == 0 }
