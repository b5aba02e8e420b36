package wallet

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// elsewhere is a signer that keeps keys of its own, and can lie.
type elsewhere struct {
	evm    *ecdsa.PrivateKey // one of both
	solana ed25519.PrivateKey
	orders []Order
	lie    func(o *Order)                // before it signs
	answer func(signature []byte) []byte // after it
	during func(ctx context.Context) error
}

func (s *elsewhere) Account() (name, address string) {
	if s.evm != nil {
		return "hsm", crypto.PubkeyToAddress(s.evm.PublicKey).Hex()
	}
	return "hsm", curve.Base58(s.solana[32:])
}

func (s *elsewhere) Check(context.Context) error { return nil }

func (s *elsewhere) Sign(ctx context.Context, o Order) (signature []byte, err error) {
	s.orders = append(s.orders, o)
	if s.during != nil {
		err = s.during(ctx)
	}
	if s.lie != nil {
		s.lie(&o)
	}
	if s.evm != nil {
		signature, _ = crypto.Sign(o.Digest[:], s.evm)
	} else {
		signature = ed25519.Sign(s.solana, o.Payload)
	}
	if s.answer != nil {
		signature = s.answer(signature)
	}
	return signature, err
}

// walletElsewhere is a wallet whose signing keys are not in its keystore.
func walletElsewhere(t *testing.T) (w *Wallet, onEVM, onSolana *elsewhere) {
	w = goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	key := must.Get(crypto.HexToECDSA("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"))(t)
	onEVM = &elsewhere{evm: key}
	onSolana = &elsewhere{solana: ed25519.NewKeyFromSeed(make([]byte, 32))}
	w.Signers = map[string]Signer{ChainEVM: onEVM, ChainSolana: onSolana}
	solana, evm := w.Addresses()
	_, isSolana := onSolana.Account()
	_, isEVM := onEVM.Account()
	require.Equal(t, []string{isSolana, isEVM}, []string{solana, evm})
	return w, onEVM, onSolana
}

// Whatever the wallet signs on an EVM chain goes to the signer, with what it is for, which hashes to what was
// signed: the judge of that is a hasher of typed data that knows none of the wallet's messages.
func TestEverySignatureIsTheSigners(t *testing.T) {
	w, onEVM, _ := walletElsewhere(t)
	_, self := onEVM.Account()
	transfer, permit, pull, deposit := goodTransfer(), goodPermit(t), goodPull(), goodDeposit(t)
	permitDeposit := goodPermitDeposit(t)
	transfer.From, permit.From, pull.Owner, permitDeposit.From = self, self, keytest.EVM, self
	upto, approved, byTransaction := permit, permit, permit
	upto.Facilitator = keytest.EVM
	approved.Approval = &TokenApproval{Name: "USD Coin", Version: "2", Nonce: [32]byte{31: 7}}
	byTransaction.ApprovalGas = &ApprovalGas{Gas: 60_000, Nonce: 3, Tip: [32]byte{31: 1},
		MaxFee: [32]byte{30: 1}}
	for name, sign := range map[string]struct {
		do      func(ctx context.Context) error
		kinds   []Kind
		primary string
	}{
		"transfer": {func(ctx context.Context) error { _, err := w.SignEVM(ctx, transfer); return err },
			[]Kind{TypedData}, "TransferWithAuthorization"},
		"permit": {func(ctx context.Context) error { _, _, err := w.SignPermit2(ctx, permit); return err },
			[]Kind{TypedData}, "PermitWitnessTransferFrom"},
		"upto": {func(ctx context.Context) error { _, _, err := w.SignPermit2(ctx, upto); return err },
			[]Kind{TypedData}, "PermitWitnessTransferFrom"},
		"permit with approval": {func(ctx context.Context) error {
			_, _, err := w.SignPermit2(ctx,
				approved)
			return err
		},
			[]Kind{TypedData, TypedData}, "PermitWitnessTransferFrom"},
		"permit with a transaction": {
			func(ctx context.Context) error { _, _, err := w.SignPermit2(ctx, byTransaction); return err },
			[]Kind{TypedData, Transaction}, "PermitWitnessTransferFrom"},
		"voucher": {func(ctx context.Context) error {
			return must.Err(w.SignVoucher(ctx, goodChannel(), [32]byte{31: 9}))
		}, []Kind{TypedData}, "Voucher"},
		"deposit": {func(ctx context.Context) error { _, err := w.SignDeposit(ctx, deposit); return err },
			[]Kind{TypedData}, "ReceiveWithAuthorization"},
		"deposit by Permit2": {func(ctx context.Context) error {
			_, _, err := w.SignPermit2(ctx, permitDeposit)
			return err
		}, []Kind{TypedData}, "PermitWitnessTransferFrom"},
		"float": {func(ctx context.Context) error { _, err := w.SignPull(ctx, pull); return err },
			[]Kind{Transaction}, ""},
		"approval": {func(ctx context.Context) error {
			return must.Err(w.SignPermit2Approval(ctx,
				goodApproval()))
		}, []Kind{Transaction}, ""},
		"withdrawal": {func(ctx context.Context) error {
			return must.Err(w.SignWithdrawal(ctx, Withdrawal{Channel: goodChannel(), Gas: 1,
				MaxFee: [32]byte{31: 1}}))
		}, []Kind{Transaction}, ""},
		"sign-in": {func(ctx context.Context) error {
			return must.Err(w.SignIn(ctx, signInText("Ethereum", self, "8453")))
		}, []Kind{Text}, ""},
		"SubRAV": {func(ctx context.Context) error {
			return must.Err(w.signChannel(ctx, secp256k1Key, []byte("x")))
		}, []Kind{Channel}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onEVM.orders = nil
			require.NoError(t, sign.do(t.Context()))
			require.Len(t, onEVM.orders, len(sign.kinds))
			for i, o := range onEVM.orders {
				require.Equal(t, []any{ChainEVM, sign.kinds[i]}, []any{o.Chain, o.Kind})
				require.Equal(t, hashOf(t, o), o.Digest)
			}
			if sign.primary != "" {
				require.Contains(t, string(onEVM.orders[0].Payload), `"primaryType":"`+sign.primary+`"`)
			}
		})
	}
}

// On Solana the payload itself is what is signed.
func TestEverySolanaSignatureIsTheSigners(t *testing.T) {
	w, _, onSolana := walletElsewhere(t)
	_, self := onSolana.Account()
	must.Get(w.SignIn(t.Context(), signInText("Solana", self, signInSolanaChain)))(t)
	must.Get(w.signSolana(t.Context(), Transaction, []byte("message")))(t) // SignSolana's, behind its check
	must.Get(w.signChannel(t.Context(), ed25519Key, []byte("x")))(t)
	var kinds []Kind
	for _, o := range onSolana.orders {
		kinds = append(kinds, o.Kind)
	}
	require.Equal(t, []Kind{Text, Transaction, Channel}, kinds)
	require.True(t, Outside.Owns(&w.Account, ed25519Key, "z"+self))
	require.False(t, Outside.Owns(&w.Account, ed25519Key, "z"+keytest.Solana),
		"the keystore's own key signs nothing now")
	_, err := w.SignIn(t.Context(), signInText("Solana", keytest.Solana, signInSolanaChain))
	require.ErrorIs(t, err, coded.ErrUnsupported)
}

// hashOf is the digest that a device makes of an order by itself.
func hashOf(t *testing.T, o Order) [32]byte {
	switch o.Kind {
	case TypedData:
		return hashTyped(t, o.Payload)
	case Transaction:
		return unsignedHash(t, o.Payload)
	case Text:
		return [32]byte(crypto.Keccak256([]byte("\x19Ethereum Signed Message:\n" +
			big.NewInt(int64(len(o.Payload))).String() + string(o.Payload))))
	}
	return sha256.Sum256(o.Payload)
}

// unsignedHash is the hash of an unsigned transaction of EIP-1559, which has nine parts.
func unsignedHash(t *testing.T, unsigned []byte) [32]byte {
	require.Equal(t, byte(2), unsigned[0])
	var parts struct {
		ChainID, Nonce uint64
		Tip, MaxFee    *big.Int
		Gas            uint64
		To             common.Address
		Value          *big.Int
		Data           []byte
		Access         []rlp.RawValue
	}
	require.NoError(t, rlp.DecodeBytes(unsigned[1:], &parts))
	require.Zero(t, parts.Value.Sign())
	return [32]byte(crypto.Keccak256(unsigned))
}

// hashTyped is EIP-712's encode(domainSeparator, message) of any typed data without lists.
func hashTyped(t *testing.T, payload []byte) [32]byte {
	data := must.JSON[struct {
		Types           map[string][]struct{ Name, Type string }
		PrimaryType     string
		Domain, Message map[string]any
	}](payload)(t)
	encodeType := func(name string) string {
		var members []string
		for _, m := range data.Types[name] {
			members = append(members, m.Type+" "+m.Name)
		}
		return name + "(" + strings.Join(members, ",") + ")"
	}
	var hashStruct func(name string, value map[string]any) []byte
	hashStruct = func(name string, value map[string]any) []byte {
		text := encodeType(name)
		// in the order of the alphabet
		for _, inner := range []string{"DepositWitness", "TokenPermissions", "Witness"} {
			if _, has := data.Types[inner]; has && strings.HasPrefix(name, "Permit") {
				text += encodeType(inner)
			}
		}
		encoded := crypto.Keccak256([]byte(text))
		require.Len(t, value, len(data.Types[name]), name)
		for _, m := range data.Types[name] {
			switch v := value[m.Name].(type) {
			case map[string]any:
				encoded = append(encoded, hashStruct(m.Type, v)...)
			case string:
				switch m.Type {
				case "string":
					encoded = append(encoded, crypto.Keccak256([]byte(v))...)
				case "address":
					require.True(t, common.IsHexAddress(v), v)
					encoded = append(encoded, common.LeftPadBytes(common.HexToAddress(v).Bytes(), 32)...)
				case "bytes32":
					raw := must.Get(hex.DecodeString(strings.TrimPrefix(v, "0x")))(t)
					require.Len(t, raw, 32)
					encoded = append(encoded, raw...)
				default:
					require.True(t, strings.HasPrefix(m.Type, "uint"), m.Type)
					n, ok := new(big.Int).SetString(v, 10)
					require.True(t, ok, v)
					encoded = append(encoded, math.U256Bytes(n)...)
				}
			default:
				t.Fatalf("%s of %s is %T", m.Name, name, v)
			}
		}
		return crypto.Keccak256(encoded)
	}
	return [32]byte(crypto.Keccak256([]byte{0x19, 0x01}, hashStruct("EIP712Domain", data.Domain),
		hashStruct(data.PrimaryType, data.Message)))
}

// An answer that is no signature of the signer's key over what was ordered leaves the wallet never.
func TestALyingSignerIsNotBelieved(t *testing.T) {
	otherKey := must.Get(crypto.GenerateKey())(t)
	flip := func(at int) func([]byte) []byte {
		return func(signature []byte) []byte { signature[at] ^= 1; return signature }
	}
	for name, spoil := range map[string]func(s *elsewhere){
		"another order": func(s *elsewhere) {
			s.lie = func(o *Order) { o.Digest[0] ^= 1; o.Payload = append([]byte{0}, o.Payload...) }
		},
		"another key": func(s *elsewhere) {
			if s.evm == nil {
				_, other, _ := ed25519.GenerateKey(nil)
				s.answer = func([]byte) []byte { return ed25519.Sign(other, s.orders[0].Payload) }
				return
			}
			s.answer = func([]byte) []byte {
				signature, _ := crypto.Sign(s.orders[0].Digest[:], otherKey)
				return signature
			}
		},
		"r":          func(s *elsewhere) { s.answer = flip(3) },
		"s":          func(s *elsewhere) { s.answer = flip(40) },
		"nothing":    func(s *elsewhere) { s.answer = func([]byte) []byte { return nil } },
		"zeros":      func(s *elsewhere) { s.answer = func(b []byte) []byte { return make([]byte, len(b)) } },
		"too much":   func(s *elsewhere) { s.answer = func(b []byte) []byte { return append(b, 0, 0) } },
		"too little": func(s *elsewhere) { s.answer = func(b []byte) []byte { return b[:63] } },
	} {
		t.Run(name, func(t *testing.T) {
			w, onEVM, onSolana := walletElsewhere(t)
			spoil(onEVM)
			spoil(onSolana)
			_, self := onEVM.Account()
			transfer := goodTransfer()
			transfer.From = self
			sig, err := w.SignEVM(t.Context(), transfer)
			require.Contains(t, keytest.RequireCode(t, err, coded.SetupFailed).Error(), "signer hsm")
			require.Zero(t, sig)
			signature, err := w.signSolana(t.Context(), Transaction, []byte("message"))
			keytest.RequireCode(t, err, coded.SetupFailed)
			require.Zero(t, signature)
		})
	}
}

// An HSM knows nothing of v, nor of low s (EIP-2): the wallet completes what it answers.
func TestASignatureIsCompleted(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"v of 0 and 1": func(b []byte) []byte { return b },
		"no v":         func(b []byte) []byte { return b[:64] },
		"another v":    func(b []byte) []byte { b[64] ^= 1; return b },
		"v of 27":      func(b []byte) []byte { b[64] += 27; return b },
		"high s": func(b []byte) []byte {
			var s secp256k1.ModNScalar
			s.SetByteSlice(b[32:64])
			s.Negate()
			s.PutBytesUnchecked(b[32:64])
			return b[:64]
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, onEVM, _ := walletElsewhere(t)
			_, self := onEVM.Account()
			for i := range 8 { // both values of v
				onEVM.answer = nil
				transfer := goodTransfer()
				transfer.From, transfer.Nonce = self, [32]byte{byte(i)}
				want := must.Get(w.SignEVM(t.Context(), transfer))(t)
				onEVM.answer = change
				require.Equal(t, want, must.Get(w.SignEVM(t.Context(), transfer))(t))
			}
		})
	}
}

// A locked wallet has nothing signed, whoever keeps the key, and one that was locked meanwhile neither.
func TestALockedWalletAsksNoSigner(t *testing.T) {
	w, onEVM, _ := walletElsewhere(t)
	w.Sources = nil
	_, self := onEVM.Account()
	transfer := goodTransfer()
	transfer.From = self
	keytest.RequireCode(t, must.Err(w.SignEVM(t.Context(), transfer)), coded.WalletLocked)
	require.Empty(t, onEVM.orders)
	for name, lock := range map[string]func() error{
		"by itself":          func() error { w.Lock(); return nil },
		"by another process": func() error { return Outside.LockAll(w.dir) },
	} {
		t.Run(name, func(t *testing.T) {
			_, passphrase := keytest.Golden(t)
			w.Sources = []Passphrase{value(string(passphrase))}
			onEVM.during = func(context.Context) error { return lock() }
			sig, err := w.SignEVM(t.Context(), transfer)
			keytest.RequireCode(t, err, coded.WalletLocked)
			require.Zero(t, sig)
		})
	}
}

// An answer that comes when the call's time is over is dropped, right as it may be.
func TestALateSignatureIsDropped(t *testing.T) {
	w, onEVM, _ := walletElsewhere(t)
	_, self := onEVM.Account()
	transfer := goodTransfer()
	transfer.From = self
	ctx, cancel := context.WithCancelCause(t.Context())
	onEVM.during = func(context.Context) error { cancel(errors.New("time is over")); return nil }
	sig, err := w.SignEVM(ctx, transfer)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, sig)
}

// The test of a signer signs what pays nobody, and finds a wrong key.
func TestTestSigner(t *testing.T) {
	_, onEVM, onSolana := walletElsewhere(t)
	for chain, s := range map[string]*elsewhere{ChainEVM: onEVM, ChainSolana: onSolana} {
		require.NoError(t, TestSigner(t.Context(), s, chain, kindsNow))
		o := s.orders[0]
		require.Equal(t, Text, o.Kind)
		require.Contains(t, string(o.Payload), "This pays nobody")
		require.NoError(t, TestSigner(t.Context(), s, chain, kindsNow))
		require.NotEqual(t, o.Payload, s.orders[1].Payload, "no answer can be kept for the next test")
		s.lie = func(o *Order) { o.Digest[0] ^= 1; o.Payload = []byte("x") }
		keytest.RequireCode(t, TestSigner(t.Context(), s, chain, kindsNow), coded.SetupFailed)
	}
}
