package wallet

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// Signer makes signatures with one key. The keystore's two keys are signers, and so is whatever keeps a key
// itself and gives none away: a device, a company's service, a cloud's KMS (package wallet/signer).
type Signer interface {
	// Account is what the owner calls the signer, and the address of its key.
	Account() (name, address string)
	// Sign carries out an order. For an EVM key it answers r ‖ s or r ‖ s ‖ v, for a Solana key the 64 bytes
	// of RFC 8032. Its answer is believed by nobody: the wallet verifies it.
	Sign(ctx context.Context, o Order) ([]byte, error)
	// Check reports why the signer could not sign now: it is not there, or has another key.
	Check(ctx context.Context) error
}

// Kind says what the payload of an [Order] is, so that a device can show it.
type Kind string

// The kinds of payloads.
const (
	// TypedData is EIP-712, in JSON as eth_signTypedData_v4 takes it.
	TypedData Kind = "typed-data"
	// Transaction is an unsigned EVM transaction (0x02 ‖ RLP, EIP-1559), or the message of a Solana one.
	Transaction Kind = "transaction"
	// Text is for people to read. On EVM it is signed behind the prefix of EIP-191 (personal_sign).
	Text Kind = "text"
	// Channel is a message of a Nuwa payment channel (package nuwa): binary, or ASCII where it proves who
	// calls.
	Channel Kind = "channel"
)

// Order is one message to sign, which the wallet has read and found to be one of those it signs.
type Order struct {
	Chain   string // [ChainEVM] or [ChainSolana]
	Kind    Kind
	Payload []byte
	// Digest is what an EVM key signs: the hash of the payload, as its kind has it. A Solana key signs the
	// payload itself.
	Digest [32]byte
}

// keystoreSigner is a Signer: one of the keystore's own keys.
type keystoreSigner struct {
	account *Account
	chain   string
}

func (s keystoreSigner) Account() (name, address string) {
	if s.chain == ChainEVM {
		return "keystore", s.account.evm
	}
	return "keystore", s.account.solana
}

// Check implements Signer: a keystore that was read needs nothing but its passphrase.
func (keystoreSigner) Check(context.Context) error { return nil }

// Sign implements Signer. It unlocks the wallet, and verifies what it made: two signatures of one message, of
// which one is faulty, tell the key.
func (s keystoreSigner) Sign(ctx context.Context, o Order) (signature []byte, err error) {
	var faulty error
	err = s.account.wallet.withKeys(ctx, func(all *keystore.Keys) {
		k := s.account.pair(all)
		if s.chain == ChainSolana {
			var sig [64]byte
			sig, faulty = curve.SignEd25519(k.Solana, o.Payload)
			signature = sig[:]
			return
		}
		var sig [65]byte
		sig, faulty = k.EVM.Sign(&o.Digest)
		sig[64] += 27
		signature = sig[:]
	})
	if err := cmp.Or(err, faulty); err != nil {
		return nil, err
	}
	return signature, nil
}

// Signer is who signs on a chain: the owner's, for the wallet's own account ([Wallet.Signers]), or else the
// keystore.
func (a *Account) Signer(chain string) Signer {
	if s := a.wallet.Signers[chain]; s != nil && a.place == ownAccount {
		return s
	}
	return keystoreSigner{account: a, chain: chain}
}

// self are the addresses of whoever signs.
func (a *Account) self() (h addresses) {
	_, h.solana = a.Signer(ChainSolana).Account()
	_, h.evm = a.Signer(ChainEVM).Account()
	return h
}

// signEVM has an order signed: r ‖ s ‖ v, v 27 or 28, s in the lower half of the order (EIP-2).
func (a *Account) signEVM(ctx context.Context, o Order) (sig [65]byte, err error) {
	signature, err := a.sign(ctx, o)
	copy(sig[:], signature)
	return sig, err
}

// signSolana has an order signed by the Ed25519 key.
func (a *Account) signSolana(ctx context.Context, kind Kind, message []byte) (sig [64]byte, err error) {
	signature, err := a.sign(ctx, Order{Chain: ChainSolana, Kind: kind, Payload: message})
	copy(sig[:], signature)
	return sig, err
}

// SignChannel has an order of the kind [Channel] signed, which package nuwa has read and found to be one of
// those it signs. Nobody else has a leave. It unlocks the wallet. Errors: those of [Wallet.Unlock].
func (a *Account) SignChannel(ctx context.Context, leave guarded.Leave, o Order) ([]byte, error) {
	if o.Kind != Channel || !leave.IsGiven() {
		return nil, coded.Unsupported("nothing has read it")
	}
	return a.sign(ctx, o)
}

// sign carries out an order by whoever signs on its chain. Whoever keeps the key, a locked wallet signs
// nothing; and one that was locked while a signer was asked gives its signature to nobody.
func (a *Account) sign(ctx context.Context, o Order) ([]byte, error) {
	s, w := a.Signer(o.Chain), a.wallet
	if own, isOurs := s.(keystoreSigner); isOurs {
		return own.Sign(ctx, o)
	}
	var locks locking
	if err := w.withKeys(ctx, func(*keystore.Keys) { locks = w.lockedSoFar() }); err != nil {
		return nil, err
	}
	signature, err := SignBy(ctx, s, o)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.lockedSoFar() != locks {
		return nil, coded.Locked(
			"the wallet was locked while the signer was asked; its signature was dropped")
	}
	return signature, nil
}

// lockedSoFar is how often the wallet was locked by somebody; mu is held.
func (w *Wallet) lockedSoFar() locking { return locking{here: w.locks, lockToken: w.readLockToken()} }

// SignBy has an order carried out by a signer, and verifies the answer against the order: 65 bytes with v 27
// or 28, or 64 for Solana. An answer that comes when the time of ctx is over is dropped.
func SignBy(ctx context.Context, s Signer, o Order) ([]byte, error) {
	name, address := s.Account()
	answer, err := s.Sign(ctx, o)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	var signature []byte
	if o.Chain == ChainEVM {
		signature = recoverable(answer, o.Digest, address)
	} else if key := curve.Unbase58(address, ed25519.PublicKeySize); len(answer) == ed25519.SignatureSize &&
		key != nil && ed25519.Verify(key, o.Payload, answer) {
		signature = answer
	}
	if signature == nil {
		e := coded.Setup(fmt.Sprintf(
			"the signer %s answered with no signature of %s over what it was to sign; "+
				"it was dropped", name, address), nil)
		e.Advice = "run: x402-wallet signer test " + name
		return nil, e
	}
	return signature, nil
}

// recoverable completes an ECDSA signature, r ‖ s with or without v, to r ‖ s ‖ v: s in the lower half of the
// order (EIP-2), and v the one of 27 and 28 by which the address is recovered. nil: there is none, so it is
// another's signature, or of something else.
func recoverable(answer []byte, digest [32]byte, address string) []byte {
	if len(answer) != 64 && len(answer) != 65 {
		return nil
	}
	var s secp256k1.ModNScalar
	if s.SetByteSlice(answer[32:64]) {
		return nil
	}
	if s.IsOverHalfOrder() {
		s.Negate()
	}
	sBytes := s.Bytes()
	for v := byte(27); v <= 28; v++ {
		compact := append([]byte{v}, answer[:32]...)
		compact = append(compact, sBytes[:]...)
		public, _, err := ecdsa.RecoverCompact(compact, digest[:])
		if err == nil && curve.EVMAddressOf(public) == address {
			return append(compact[1:], v)
		}
	}
	return nil
}

// TestSigner has a signer sign a text that is no payment, and verifies the signature. It unlocks no wallet.
func TestSigner(ctx context.Context, s Signer, chain string, now time.Time) error {
	name, _ := s.Account()
	// by its first letter no Solana transaction (signin.go); random, so that no answer can be an old one
	text := fmt.Sprintf("A test of the signer %s by x402-wallet, %s.\nThis pays nobody.\n%s", name,
		now.UTC().Format(time.RFC3339), rand.Text())
	_, err := SignBy(ctx, s, textOrder(chain, text))
	return err
}

// textOrder is a text to sign; on EVM behind the prefix of EIP-191, so that it is no typed message and no
// transaction.
func textOrder(chain, text string) Order {
	o := Order{Chain: chain, Kind: Text, Payload: []byte(text)}
	if chain == ChainEVM {
		signed := fmt.Appendf(nil, "\x19Ethereum Signed Message:\n%d%s", len(text), text)
		o.Digest = [32]byte(curve.Keccak256(signed))
	}
	return o
}

// transactionOrder is an unsigned EVM transaction to sign.
func transactionOrder(unsigned []byte) Order {
	return Order{Chain: ChainEVM, Kind: Transaction, Payload: unsigned,
		Digest: [32]byte(curve.Keccak256(unsigned))}
}

// typed is EIP-712 typed data, as eth_signTypedData_v4 takes it: numbers as decimal text, bytes and addresses
// as 0x and hex digits.
type typed struct {
	Types       map[string][]typedMember `json:"types"`
	PrimaryType string                   `json:"primaryType"`
	Domain      map[string]any           `json:"domain"`
	Message     map[string]any           `json:"message"`
}

type typedMember struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// typedOrder is typed data to sign, whose digest was hashed apart from it. encoded are the types that are
// used, spelled as they are hashed (EIP-712, encodeType): the domain's, the message's, and those inside it.
func typedOrder(digest [32]byte, domain, message map[string]any, encoded ...string) (Order, error) {
	t := typed{Types: map[string][]typedMember{}, Domain: domain, Message: message}
	for i, text := range encoded {
		name, list, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
		if i == 1 {
			t.PrimaryType = name
		}
		for member := range strings.SplitSeq(list, ",") {
			kind, called, _ := strings.Cut(member, " ")
			t.Types[name] = append(t.Types[name], typedMember{Name: called, Type: kind})
		}
	}
	payload, err := json.Marshal(t)
	return Order{Chain: ChainEVM, Kind: TypedData, Payload: payload, Digest: digest}, err
}

func hex0x(b []byte) string { return "0x" + hex.EncodeToString(b) }
