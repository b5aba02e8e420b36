package wallet

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"slices"
	"strings"
	"time"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/keystore"
)

// The kinds of messages that are ever signed, and nothing else (beside these batch.go, pull.go, approve.go,
// signin.go and package nuwa have some of their own): one transfer of one token, by EIP-3009 or Permit2
// (permit2.go) on EVM chains and by TransferChecked on Solana. They are decoded here once more, with none of
// the code that made them, so that a fault anywhere else, or an attacker who reaches this far, gets no other
// approval or permit, no change of authority and no second transfer signed. No method signs a digest or any
// other bytes, but SignChannel, for package nuwa alone.

// maxLife is the longest a transfer may stay valid, whatever the owner's rules.
const maxLife = 24 * time.Hour

// TransferWithAuthorization is EIP-3009's message and its EIP-712 domain. Addresses are 0x and 40
// hex digits in any letter case.
type TransferWithAuthorization struct {
	ChainID                 uint64
	Token                   string // verifyingContract
	Name, Version           string // of the domain
	From, To                string
	Value                   [32]byte // atomic units, big endian
	ValidAfter, ValidBefore uint64   // Unix seconds
	Nonce                   [32]byte
	// OfVault: From is a contract of the owner's that takes this key's signatures (ERC-1271). For any other
	// account the signature is worth nothing.
	OfVault bool
}

// SignEVM signs t with the secp256k1 key: r ‖ s ‖ v, with v 27 or 28 and s in the lower half of the
// order (EIP-2). The same t has the same signature (RFC 6979). It unlocks the wallet. Errors:
// "the wallet does not sign this" for what is not a transfer from this wallet, or from a vault, that ends
// within a day; those of [Wallet.Unlock].
func (a *Account) SignEVM(ctx context.Context, t TransferWithAuthorization) (sig [65]byte, err error) {
	if err := t.check(a.self().evm, a.wallet.now()); err != nil {
		return sig, err
	}
	o, err := t.order()
	if err != nil {
		return sig, err
	}
	return a.signEVM(ctx, o)
}

// gatewayDomain is the domain of Circle Gateway, whose messages are of the same type and are no transfers of
// a token: they draw on a balance that lies with Circle, and are good for a week.
const gatewayDomain = "GatewayWalletBatched"

// check refuses everything but a payment out of the account self, or out of a vault, that is valid now.
func (t *TransferWithAuthorization) check(self string, now time.Time) error {
	token, from, to := curve.AddressWord(t.Token), curve.AddressWord(t.From), curve.AddressWord(t.To)
	seconds := uint64(max(now.Unix(), 0))
	latest := seconds + uint64(maxLife/time.Second)
	var zero [32]byte
	switch {
	case token == nil || from == nil || to == nil || bytes.Equal(token, zero[:]):
		return coded.Unsupported("an address in it is not one")
	case bytes.Equal(from, curve.AddressWord(self)) == t.OfVault || bytes.Equal(from, zero[:]):
		return coded.Unsupported("it spends from another account than this wallet's")
	case bytes.Equal(to, from) || bytes.Equal(to, curve.AddressWord(self)), bytes.Equal(to, zero[:]) ||
		bytes.Equal(to, token):
		return coded.Unsupported("it pays nobody")
	case t.Value == zero:
		return coded.Unsupported("it pays nothing")
	case t.ChainID == 0 || t.Name == "" || t.Version == "":
		return coded.Unsupported("it names no token")
	case strings.EqualFold(t.Name, gatewayDomain):
		return coded.Unsupported("it spends from Circle Gateway, not a token")
	case t.ValidBefore <= seconds || t.ValidBefore > latest || t.ValidAfter > seconds:
		return coded.Unsupported("it is not valid now, or for longer than %v", maxLife)
	}
	return nil
}

// The two EIP-712 types, spelled as they are hashed (EIP-712 §encodeType, EIP-3009).
const (
	domainType   = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
	transferType = "TransferWithAuthorization(address from,address to,uint256 value," +
		"uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)

// digest is keccak256(0x1901 ‖ domainSeparator ‖ hashStruct) (EIP-712), of a message that
// check has accepted.
func (t *TransferWithAuthorization) digest() [32]byte {
	domain := curve.HashWords(
		curve.Keccak256([]byte(domainType)), curve.Keccak256([]byte(t.Name)),
		curve.Keccak256([]byte(t.Version)),
		curve.UintWord(t.ChainID), curve.AddressWord(t.Token))
	message := curve.HashWords(
		curve.Keccak256([]byte(transferType)), curve.AddressWord(t.From), curve.AddressWord(t.To), t.Value[:],
		curve.UintWord(t.ValidAfter), curve.UintWord(t.ValidBefore), t.Nonce[:])
	return [32]byte(curve.HashWords([]byte{0x19, 0x01}, domain, message))
}

// The programs a signed Solana message may name.
const (
	computeBudgetProgram = "ComputeBudget111111111111111111111111111111"
	TokenProgram         = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA" //nolint:gosec // a public address
	Token2022Program     = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb" //nolint:gosec // a public address
	memoProgram          = "MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr"
)

// SignSolana signs the message of a transaction with the Ed25519 key (RFC 8032, pure): version 0,
// this wallet as the second signer, which pays no fee and is written to by nothing; one
// TransferChecked under its authority; besides that only limits of computing and memos, which touch
// no account; no lookup tables. It unlocks the wallet. Errors: "the wallet does not sign this" for
// everything else; those of [Wallet.Unlock].
func (a *Account) SignSolana(ctx context.Context, message []byte) (sig [64]byte, err error) {
	if err := checkTransfer(message, curve.Unbase58(a.self().solana, ed25519.PublicKeySize)); err != nil {
		return sig, err
	}
	return a.signSolana(ctx, Transaction, message)
}

// checkTransfer holds a message to the rules of SignSolana; self is this wallet's public key.
func checkTransfer(message, self []byte) error {
	m, err := ReadSolanaMessage(message)
	if err != nil {
		return err
	}
	isOurs := m.Signers == 2 && m.ReadonlySigners == 1 && len(m.Keys) >= 3 && bytes.Equal(m.Keys[1], self)
	if !isOurs || bytes.Equal(m.Keys[0], self) {
		return coded.Unsupported("this wallet is not its second signer of two, and read only")
	}
	transfers := 0
	for _, in := range m.Instructions {
		switch in.Program {
		case computeBudgetProgram:
			limit := len(in.Data) == 5 && in.Data[0] == 2
			price := len(in.Data) == 9 && in.Data[0] == 3
			if len(in.Accounts) != 0 || (!limit && !price) {
				return coded.Unsupported("it asks more of computing than a limit and a price")
			}
		case memoProgram:
			if len(in.Accounts) != 0 {
				return coded.Unsupported("its memo names accounts")
			}
		case TokenProgram, Token2022Program:
			if err := in.checkTransferChecked(); err != nil {
				return err
			}
			transfers++
		default:
			return coded.Unsupported("it names the program %s", in.Program)
		}
	}
	if transfers != 1 {
		return coded.Unsupported("it makes %d transfers", transfers)
	}
	return nil
}

// checkTransferChecked wants [12, amount u64, decimals u8] over source, mint, destination and
// authority, where the second signer is the authority and no signer is anything else.
func (in SolanaInstruction) checkTransferChecked() error {
	if len(in.Data) != 10 || in.Data[0] != 12 || len(in.Accounts) != 4 || in.Accounts[3] != 1 {
		return coded.Unsupported(
			"it asks something of the token program that is not one TransferChecked by " +
				"this wallet")
	}
	if slices.Contains(in.Accounts[:3], 0) || slices.Contains(in.Accounts[:3], 1) {
		return coded.Unsupported("a signer is one of the transfer's accounts")
	}
	return nil
}

// Seal is a MAC over data that only an unlocked wallet can make: HMAC-SHA-256, with a key from inside
// the keystore, over the length of purpose (8 bytes, big endian) ‖ purpose ‖ data. A seal made for
// one purpose is none for another. To check a seal, make it again and compare with hmac.Equal.
func (w *Wallet) Seal(ctx context.Context, purpose string, data []byte) (seal []byte, err error) {
	err = w.withKeys(ctx, func(k *keystore.Keys) { seal = k.MAC(purpose, data) })
	return seal, err
}
