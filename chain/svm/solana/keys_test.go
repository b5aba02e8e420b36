package solana

import (
	"encoding/json"
	"flag"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	theirs "github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// points is how many random points TestOnCurve compares: with millions it takes minutes.
var points = flag.Int("points", 4_000, "random points that are compared with solana-go")

func TestKeysAreSpelledAsInSolanaGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var signature Signature
		zeros := rapid.IntRange(0, 40).Draw(t, "zeros")
		copy(signature[zeros:], rapid.SliceOfN(rapid.Byte(), 64, 64).Draw(t, "bytes"))
		key := PublicKey(signature[:32])
		require.Equal(t, theirs.PublicKey(key).String(), key.String())
		require.Equal(t, theirs.Hash(key).String(), Hash(key).String())
		require.Equal(t, theirs.Signature(signature).String(), signature.String())
		require.Equal(t, theirs.PublicKey(key).IsZero(), key.IsZero())
		require.Equal(t, theirs.Signature(signature).IsZero(), signature.IsZero())
		readKey, err := ParseKey(key.String())
		require.NoError(t, err)
		require.Equal(t, key, readKey)
		readSignature, err := ParseSignature(signature.String())
		require.NoError(t, err)
		require.Equal(t, signature, readSignature)
		want, err := json.Marshal([]theirs.PublicKey{theirs.PublicKey(key)})
		require.NoError(t, err)
		got, err := json.Marshal([]PublicKey{key})
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	})
}

func TestWhatIsNoKey(t *testing.T) {
	good := PublicKey{1, 31: 9}.String()
	for _, text := range []string{"", "x", "1" + good, good[1:], good + " ", "0" + good[1:],
		Signature{1}.String(), strings.Repeat("1", 31), strings.Repeat("1", 33), strings.Repeat("z", 1<<20)} {
		_, err := ParseKey(text)
		require.ErrorIs(t, err, ErrAddress)
		require.Panics(t, func() { MustKey(text) })
	}
	for _, text := range []string{"", good, strings.Repeat("1", 63), strings.Repeat("1", 65),
		"1" + Signature{63: 1}.String(), strings.Repeat("z", 88), strings.Repeat("z", 1<<20)} {
		_, err := ParseSignature(text)
		require.ErrorIs(t, err, errSignature)
	}
	require.Equal(t, good, MustKey(good).String())
}

// What is no key of anybody's decides where money goes: the same as another implementation at the ends of
// the field, where y is spelled in two ways, around them, and at random.
func TestOnCurve(t *testing.T) {
	on := 0
	compare := func(key PublicKey) {
		for _, sign := range []byte{0, 0x80} {
			key[31] = key[31]&0x7f | sign
			require.Equal(t, theirs.PublicKey(key).IsOnCurve(), key.IsOnCurve(), "%x", key)
			if key.IsOnCurve() {
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
	require.True(t, zeroX.IsOnCurve(), "the runtime takes it")
	on = 0
	random := rand.NewChaCha8([32]byte{1})
	for range *points {
		var key PublicKey
		random.Read(key[:])
		compare(key)
	}
	require.InDelta(t, *points, on, float64(*points)/10, "half of all points are on the curve")
}

func littleEndian(n *big.Int) (key PublicKey) {
	n.FillBytes(key[:])
	slices.Reverse(key[:])
	return key
}

func TestAssociatedAccountIsSolanaGos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) PublicKey {
			return PublicKey(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, name))
		}
		owner, mint := draw("owner"), draw("mint")
		for _, program := range []PublicKey{TokenProgram, Token2022} {
			want, _, err := theirs.FindAssociatedTokenAddressWithProgram(theirs.PublicKey(owner),
				theirs.PublicKey(mint), theirs.PublicKey(program))
			require.NoError(t, err)
			got, err := AssociatedAccount(owner, mint, program)
			require.NoError(t, err)
			require.Equal(t, PublicKey(want), got)
			require.False(t, got.IsOnCurve())
		}
	})
}

func TestProgramsAreSolanaGos(t *testing.T) {
	require.Equal(t, []theirs.PublicKey{theirs.TokenProgramID, theirs.Token2022ProgramID,
		theirs.SPLAssociatedTokenAccountProgramID}, []theirs.PublicKey{theirs.PublicKey(TokenProgram),
		theirs.PublicKey(Token2022), theirs.PublicKey(AssociatedProgram)})
}
