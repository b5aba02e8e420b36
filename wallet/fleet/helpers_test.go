package fleet

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// The seeds of testdata/golden.py.
const (
	ownerSeed        = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
	orchestratorSeed = "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"
)

// testKey signs anything.
type testKey ed25519.PrivateKey

func (k testKey) Public() ed25519.PublicKey {
	return ed25519.PrivateKey(k).Public().(ed25519.PublicKey)
}

func (k testKey) Sign(purpose wallet.Purpose, statement []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), purpose.Message(statement)), nil
}

func keyOf(t testing.TB, seed string) testKey {
	raw, err := hex.DecodeString(seed)
	require.NoError(t, err)
	return testKey(ed25519.NewKeyFromSeed(raw))
}

// goldenFile is testdata/golden.json.
type goldenFile struct {
	Owner  Key
	Ledger string
	Signed map[wallet.Purpose]struct {
		Signed
		Hash Hash
	}
}

func golden(t testing.TB) (g goldenFile, a Anchor) {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &g))
	return g, Anchor{Owner: g.Owner, Ledger: g.Ledger}
}

// noon is when the golden statements were made.
var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// firstBundle is one without lists, for the rules of an empty config.toml.
func firstBundle(t testing.TB, a Anchor) Bundle {
	rules, err := config.Parse([]byte("# mine\n"))
	require.NoError(t, err)
	return Bundle{}.Next(Hash{}, a, rules, noon, 30*24*time.Hour)
}

// requireFault checks that an error is of a code and has a fault, a hint and a command.
func requireFault(t testing.TB, err error, code x402.Code, fault Fault) *x402.Error {
	t.Helper()
	require.ErrorIs(t, err, fault)
	e := x402.AsError(err)
	require.Equal(t, code, e.Code)
	require.Equal(t, string(fault), e.Details["fault"])
	require.NotEmpty(t, e.Hint)
	if fault != NotYet {
		require.NotEmpty(t, e.NextStep().Command)
	}
	return e
}
