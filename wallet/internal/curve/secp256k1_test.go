package curve

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"x402-wallet/internal/must"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/stretchr/testify/require"
)

func scalar(t testing.TB, secret string) *[32]byte {
	t.Helper()
	b := unhex(t, strings.Repeat("0", 64-len(secret))+secret)
	return (*[32]byte)(b)
}

func testSigner(t testing.TB, secret *[32]byte) Signer {
	t.Helper()
	public := must.Get(PublicKey(secret))(t)
	return Signer{Secret: secret, Work: new([NonceWork]byte), Public: public}
}

// Scalars with every kind of digit at every place, and those at which formulas that are not complete
// break: doubling, opposite points, the point at infinity in between.
func scalars(t testing.TB) (list []*[32]byte) {
	order := secp256k1.Params().N
	add := func(n *big.Int) {
		if n.Sign() > 0 && n.Cmp(order) < 0 {
			list = append(list, (*[32]byte)(n.FillBytes(make([]byte, 32))))
		}
	}
	for i := range uint(256) {
		bit := new(big.Int).Lsh(big.NewInt(1), i)
		for _, d := range []int64{-2, -1, 0, 1} {
			add(new(big.Int).Add(bit, big.NewInt(d)))
			add(new(big.Int).Sub(order, new(big.Int).Add(bit, big.NewInt(d))))
		}
	}
	half := new(big.Int).Rsh(order, 1)
	for d := range int64(8) {
		add(new(big.Int).Add(half, big.NewInt(d-4)))
		add(new(big.Int).Sub(order, big.NewInt(d)))
		add(big.NewInt(d))
	}
	for i := range uint64(300) {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, i))
		add(new(big.Int).SetBytes(sum[:]))
	}
	require.Greater(t, len(list), 1500)
	return list
}

// Every multiple is the library's, which takes another way (windowed non-adjacent forms).
func TestMultiplesOfTheBasePoint(t *testing.T) {
	for _, k := range scalars(t) {
		var n secp256k1.ModNScalar
		n.SetBytes(k)
		var want secp256k1.JacobianPoint
		secp256k1.ScalarBaseMultNonConst(&n, &want)
		want.ToAffine()
		got := baseMult(k)
		require.Equal(t, want, got, "%x", *k)

		var inverse, one secp256k1.ModNScalar
		invert(&n, &inverse)
		require.True(t, one.SetInt(1).Equals(inverse.Mul(&n)), "%x", *k)
	}
}

// Each inversion draws its own blind, and draws again where that is zero.
func TestBlindsAreDrawn(t *testing.T) {
	var k, inverse, one secp256k1.ModNScalar
	k.SetInt(7)
	random := rand.Reader
	t.Cleanup(func() { rand.Reader = random })
	drawn := bytes.NewBuffer(append(make([]byte, 32), bytes.Repeat([]byte{5}, 64)...))
	rand.Reader = drawn
	for _, left := range []int{32, 0} {
		invert(&k, &inverse)
		require.Equal(t, left, drawn.Len())
		require.True(t, one.SetInt(1).Equals(inverse.Mul(&k)))
	}
}

// The formulas have no exceptions: a point and itself, its opposite, infinity with each.
func TestAdditionHasNoExceptions(t *testing.T) {
	g := secp256k1.Params()
	var p, opposite, infinity projective
	p.x.SetByteSlice(g.Gx.Bytes())
	p.y.SetByteSlice(g.Gy.Bytes())
	p.z.SetInt(1)
	opposite = p
	opposite.y.Negate(1).Normalize()
	infinity.y.SetInt(1)
	isInfinity := func(a projective) bool {
		return a.z.Normalize().IsZero() && a.x.Normalize().IsZero() && !a.y.Normalize().IsZero()
	}
	affineX := func(a projective) []byte { return a.x.Mul(a.z.Inverse()).Normalize().Bytes()[:] }

	var sum projective
	sum.add(&p, &opposite)
	require.True(t, isInfinity(sum))
	sum.add(&sum, &sum)
	require.True(t, isInfinity(sum))
	for _, pair := range [][2]projective{{p, infinity}, {infinity, p}} {
		sum.add(&pair[0], &pair[1])
		require.Equal(t, g.Gx.Bytes(), affineX(sum))
	}
	sum.add(&p, &p)
	two := baseMult(scalar(t, "2"))
	require.Equal(t, two.X.Bytes()[:], affineX(sum))
	require.True(t, isInfinity(projective{y: infinity.y}))
}

// The same signature as the library's, to the byte, for many keys and digests, among these such
// that are not below the order.
func TestTheSameSignaturesAsTheLibrary(t *testing.T) {
	digests := [][32]byte{{}, {31: 1},
		*scalar(t, "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"),
		[32]byte(bytes.Repeat([]byte{0xff}, 32))}
	for i := range byte(8) {
		digests = append(digests, sha256.Sum256([]byte{i}))
	}
	for i, secret := range scalars(t) {
		k := testSigner(t, secret)
		key := secp256k1.PrivKeyFromBytes(secret[:])
		require.True(t, key.PubKey().IsEqual(k.Public))
		digest := digests[i%len(digests)]
		got := must.Get(k.Sign(&digest))(t)
		want := ecdsa.SignCompact(key, digest[:], false) // v ‖ r ‖ s
		require.Equal(t, want[1:], got[:64], "%x %x", *secret, digest)
		require.Equal(t, want[0]-27, got[64])
		require.Equal(t, [NonceWork]byte{}, *k.Work, "nothing is left")
	}
}

// RFC 6979's nonces for secp256k1 from another implementation: Trezor's vectors, as in many test suites.
func TestNonces(t *testing.T) {
	for _, v := range []struct{ secret, message, nonce string }{
		{"1", "Satoshi Nakamoto", "8f8a276c19f4149656b280621e358cce24f5f52542772691ee69063b74f15d15"},
		{"1", "All those moments will be lost in time, like tears in rain. Time to die...",
			"38aa22d72376b4dbc472e06c3ba403ee0a394da63fc58d88686c611aba98d6b3"},
		{"fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364140", "Satoshi Nakamoto",
			"33a19b60e25fb6f4435af53a3d42d493644827367e6453928554f43e49aa6f90"},
		{"f8b8af8ce3c7cca5e300d33939540c10d45ce001b8f252bfbc57ba0342904181", "Alan Turing",
			"525a82b70e67874398067543fd84c83d30c175fdc45fdeee082fe13b1d7cfdf1"},
	} {
		digest := sha256.Sum256([]byte(v.message))
		var nonce secp256k1.ModNScalar
		testSigner(t, scalar(t, v.secret)).nonce(&digest, &nonce)
		require.Equal(t, v.nonce, nonce.String())
	}
}

// A fault in memory, at the worst place: what comes out of it is not given away.
func TestAFaultySignatureIsDroppedSignatureIsDropped(t *testing.T) {
	k := testSigner(t, scalar(t, goldenEVMSecret))
	other := testSigner(t, scalar(t, "2"))
	k.Public = other.Public
	sig, err := k.Sign(&[32]byte{1})
	require.ErrorIs(t, err, ErrFaulty)
	require.Equal(t, [65]byte{}, sig)
}

func TestNoScalars(t *testing.T) {
	for _, secret := range []string{"0", "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
		"fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364142", strings.Repeat("f", 64)} {
		require.ErrorIs(t, must.Err(PublicKey(scalar(t, secret))), errNotAScalar, secret)
	}
}

// What is not constant time in the library says so in its name: what handles secrets uses none of
// it. Verifying is about public things, the generator is public, and what is inverted is blinded.
func TestNothingSecretInVariableTime(t *testing.T) {
	text := must.Get(os.ReadFile("secp256k1.go"))(t)
	for line := range strings.Lines(string(text)) {
		if code, _, _ := strings.Cut(line, "//"); strings.Contains(code, "NonConst") {
			require.Contains(t, []string{"secp256k1.ScalarBaseMultNonConst(one.SetInt(1), &g)",
				"out.Mul2(k, &blind).InverseNonConst().Mul(&blind)"}, strings.TrimSpace(code))
		}
	}
	for _, name := range []string{"../keystore/keys.go", "../../kinds.go", "../../nuwa/nuwa.go",
		"../keystore/keystore.go", "../../owner/create.go", "../../owner/account.go",
		"../../imported/import.go", "../../imported/formats.go", "../../recovery/hdpath.go"} {
		text := must.Get(os.ReadFile(name))(t)
		for _, variable := range []string{"NonConst", "ecdsa.Sign", "PrivKeyFromBytes",
			"secp256k1.PrivateKey"} {
			require.NotContains(t, string(text), variable, name)
		}
	}
}

func BenchmarkSignEVM(b *testing.B) {
	k := testSigner(b, scalar(b, goldenEVMSecret))
	key := secp256k1.PrivKeyFromBytes(k.Secret[:])
	for name, sign := range map[string]func(*[32]byte){
		"ours, verified": func(d *[32]byte) { _, _ = k.Sign(d) },
		"library":        func(d *[32]byte) { ecdsa.SignCompact(key, d[:], false) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				digest := sha256.Sum256([]byte(fmt.Sprint(i)))
				sign(&digest)
			}
		})
	}
}
