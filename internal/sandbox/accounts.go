package sandbox

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/gagliardetto/solana-go"

	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402"
)

// Accounts for whoever pays in a sandbox: keys that lie open, with play money.

// Account is one of them.
type Account struct {
	Network      string `json:"network"` // CAIP-2
	Address      string `json:"address"`
	TokenAccount string `json:"tokenAccount,omitempty"` // Solana: where its play dollars lie
	// PlayKey is the private key: on EVM 32 bytes, 0x-hex; on Solana the 64 bytes of a keypair, base58.
	PlayKey string `json:"playKey"`
	// PlayKeypair is the same as the Solana CLI writes it to id.json: an array of 64 numbers.
	PlayKeypair json.RawMessage `json:"playKeypair,omitempty"`

	evm    *secp256k1.PrivateKey
	solana solana.PrivateKey
}

// SignDigest signs a hash as an EVM account does: r ‖ s ‖ v with v 27 or 28.
func (a Account) SignDigest(digest [32]byte) [65]byte {
	compact := ecdsa.SignCompact(a.evm, digest[:], false) // v ‖ r ‖ s
	return [65]byte(append(compact[1:], compact[0]))
}

func (a Account) SignMessage(message []byte) [64]byte {
	return sign(a.solana, message)
}

// NewAccount makes an account with a random key, and gives it so much (atomic units). network is "evm",
// "solana", or the CAIP-2 name of one of the two chains; others are INVALID_ARGUMENT.
func (s *Sandbox) NewAccount(network string, amount uint64) (Account, error) {
	switch network, _ = s.networkOf(network); network {
	case s.evm.Asset.Network:
		private, err := secp256k1.GeneratePrivateKey()
		if err != nil {
			return Account{}, err
		}
		return s.evmAccount(private, amount)
	case s.solana.asset.Network:
		return s.solanaAccount(newKey(), amount), nil
	}
	return Account{}, x402.Errorf(x402.InvalidArgument, "there is no such chain here: evm and solana are")
}

// The keys of PlayAccounts are the same in every sandbox, so that tests can name them. The first is the one
// that everybody's test chains begin with (the phrase "test test … junk"), so that nobody takes it for one
// that money may lie at.
const (
	playKeyEVM     = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	playTextSolana = "x402-wallet sandbox: a play key that everybody has"
)

// PlayAccounts gives the two accounts that have the same keys in every sandbox so much (atomic units).
func (s *Sandbox) PlayAccounts(amount uint64) (onEVM, onSolana Account, err error) {
	seed := sha256.Sum256([]byte(playTextSolana))
	onSolana = s.solanaAccount(solana.PrivateKey(ed25519.NewKeyFromSeed(seed[:])), amount)
	onEVM, err = s.evmAccount(secp256k1.PrivKeyFromBytes(Unhex(playKeyEVM)), amount)
	return onEVM, onSolana, err
}

func (s *Sandbox) evmAccount(private *secp256k1.PrivateKey, amount uint64) (a Account, err error) {
	a = Account{Network: s.evm.Asset.Network, PlayKey: "0x" + hex.EncodeToString(private.Serialize()),
		evm: private}
	digest := [32]byte(Keccak("who am I"))
	a.Address, err = payload.RecoverDigest(digest, a.SignDigest(digest))
	if err == nil {
		s.Fund(a.Address, amount)
	}
	return a, err
}

func (s *Sandbox) solanaAccount(private solana.PrivateKey, amount uint64) Account {
	a := Account{Network: s.solana.asset.Network, Address: private.PublicKey().String(),
		PlayKey: private.String(), solana: private}
	a.PlayKeypair, _ = json.Marshal([64]byte(private)) // of numbers: cannot fail
	a.TokenAccount = s.Fund(a.Address, amount)
	return a
}
