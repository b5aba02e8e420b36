package decode

import (
	"encoding/base64"
	"flag"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	theirs "github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
)

// points is how many random points TestOnCurve compares: with millions it takes minutes.
var points = flag.Int("points", 4_000, "random points that are compared with solana-go")

// What is no key of anybody's decides where money goes: the same as another implementation at the ends of
// the field, where y is spelled in two ways, around them, and at random.
func TestOnCurve(t *testing.T) {
	on := 0
	compare := func(key publicKey) {
		for _, sign := range []byte{0, 0x80} {
			key[31] = key[31]&0x7f | sign
			require.Equal(t, theirs.PublicKey(key).IsOnCurve(), key.isOnCurve(), "%x", key)
			if key.isOnCurve() {
				on++
			}
		}
	}
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	for d := int64(-1000); d < 19; d++ { // from p up: a second spelling
		compare(littleEndian(new(big.Int).Add(p, big.NewInt(d))))
	}
	for y := range int64(1000) {
		compare(littleEndian(big.NewInt(y)))
	}
	for bit := range uint(255) {
		compare(littleEndian(new(big.Int).Lsh(big.NewInt(1), bit)))
	}
	zeroX := littleEndian(new(big.Int).Add(p, big.NewInt(1))) // y = 1 in its second spelling, so x = 0
	zeroX[31] |= 0x80                                         // with the sign that RFC 8032 refuses
	require.True(t, zeroX.isOnCurve(), "the runtime takes it")
	on = 0
	random := rand.NewChaCha8([32]byte{1})
	for range *points {
		var key publicKey
		random.Read(key[:])
		compare(key)
	}
	require.InDelta(t, *points, on, float64(*points)/10, "half of all points are on the curve")
}

func littleEndian(n *big.Int) (key publicKey) {
	n.FillBytes(key[:])
	slices.Reverse(key[:])
	return key
}

func TestAssociatedAccountIsSolanaGos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) theirs.PublicKey {
			return theirs.PublicKey(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, name))
		}
		owner, mint := draw("owner"), draw("mint")
		for is2022, program := range map[bool]theirs.PublicKey{false: theirs.TokenProgramID,
			true: theirs.Token2022ProgramID} {
			want, _, err := theirs.FindAssociatedTokenAddressWithProgram(owner, mint, program)
			require.NoError(t, err)
			got := must.Get(AssociatedAccount(owner.String(), mint.String(), is2022))(t)
			require.Equal(t, want.String(), got)
		}
	})
}

func TestProgramsAreSolanaGos(t *testing.T) {
	require.Equal(t, []theirs.PublicKey{theirs.ComputeBudget, theirs.MemoProgramID, theirs.TokenProgramID,
		theirs.Token2022ProgramID, theirs.SPLAssociatedTokenAccountProgramID},
		[]theirs.PublicKey{theirs.MPK(computeBudget), theirs.MPK(memoProgram), theirs.MPK(splProgram),
			theirs.MPK(spl2022Program), theirs.MPK(associatedProgram)})
}

// The reference client's payments are from the payer's associated token account.
func TestAssociatedAccount(t *testing.T) {
	for name, transaction := range vectors(t) {
		got := must.Get(Transaction(transaction))(t)
		source := must.Get(AssociatedAccount(got.Authority, got.Mint, name == "v2_exact_svm_token2022"))(t)
		require.Equal(t, got.Source, source, name)
		other := must.Get(AssociatedAccount(got.Authority, got.Mint, name != "v2_exact_svm_token2022"))(t)
		require.NotEqual(t, got.Source, other)
	}
	for _, bad := range []string{"", "x", strings.Repeat("1", 45), strings.Repeat("z", 1<<20)} {
		t.Run(bad, func(t *testing.T) {
			require.ErrorIs(t, must.Err(AssociatedAccount(bad, mint.String(), false)), errAddress)
			require.ErrorIs(t, must.Err(AssociatedAccount(mint.String(), bad, false)), errAddress)
		})
	}
}

func vectors(t testing.TB) map[string]string {
	data := must.Get(os.ReadFile("../testdata/vectors.json"))(t)
	file := must.JSON[struct {
		Vectors map[string]struct{ Transaction string }
	}](data)(t)
	transactions := map[string]string{}
	for name, v := range file.Vectors {
		must.Get(base64.StdEncoding.DecodeString(v.Transaction))(t)
		transactions[name] = v.Transaction
	}
	require.NotEmpty(t, transactions)
	return transactions
}
