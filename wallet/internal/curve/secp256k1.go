package curve

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"x402-wallet/wallet/internal/guarded"
)

// ECDSA on secp256k1 in constant time. The library's own signer multiplies and inverts the secret
// nonce in variable time (ScalarBaseMultNonConst, InverseValNonConst), and a few bits of many
// nonces are the key. Its field and scalar arithmetic is in constant time, so that is taken, and
// what lies between it and a signature is here: which instructions run and which memory is read
// depends on nothing secret, or, where a number is inverted, on a random multiple of it.
//
// No signature leaves before the library has verified it: a fault in here, or in the machine's
// memory, costs a payment and gives nothing away (r and s of a faulty signature tell the key).
// What is signed is the same as the library's, to the byte (RFC 6979).

// Signer is the secp256k1 key: a scalar above zero and below the order of the curve.
type Signer struct {
	Secret *[guarded.Size]byte // big endian, in locked memory
	Work   *[NonceWork]byte    // as well, for what is made of it
	Public *secp256k1.PublicKey
}

func PublicKey(secret *[guarded.Size]byte) (*secp256k1.PublicKey, error) {
	var d secp256k1.ModNScalar
	defer d.Zero()
	if overflow := d.SetBytes(secret); overflow != 0 || d.IsZero() {
		return nil, errNotAScalar
	}
	point := baseMult(secret)
	return secp256k1.NewPublicKey(&point.X, &point.Y), nil
}

var (
	errNotAScalar = errors.New("not a secp256k1 private key: it must be above zero and below the order of " +
		"the curve")
	ErrFaulty = errors.New("the signature that was made does not verify: a fault of this machine's memory " +
		"or of this program; it was dropped")
)

// Sign is r ‖ s ‖ v over a digest: s in the lower half of the order, v 0 to 3, by which the public
// key is recovered.
func (k Signer) Sign(digest *[32]byte) (sig [65]byte, err error) {
	var d, nonce, inverse, s secp256k1.ModNScalar
	defer func() {
		clear(k.Work[:])
		for _, secret := range []*secp256k1.ModNScalar{&d, &nonce, &inverse} {
			secret.Zero()
		}
	}()
	d.SetBytes(k.Secret)
	k.nonce(digest, &nonce)
	nonce.PutBytes((*[32]byte)(k.Work[:]))
	point := baseMult((*[32]byte)(k.Work[:]))

	var r, e secp256k1.ModNScalar
	overflow := r.SetBytes(point.X.Bytes())
	v := byte(overflow<<1) | byte(point.Y.IsOddBit())
	e.SetBytes(digest)
	invert(&nonce, &inverse)
	s.Mul2(&d, &r).Add(&e).Mul(&inverse)
	if s.IsOverHalfOrder() { // no secret: v tells it
		s.Negate()
		v ^= 1
	}
	if !ecdsa.NewSignature(&r, &s).Verify(digest[:], k.Public) { // zeros, too
		return sig, ErrFaulty
	}
	r.PutBytesUnchecked(sig[:32])
	s.PutBytesUnchecked(sig[32:64])
	sig[64] = v
	return sig, nil
}

// NonceWork is room for the longest that is hashed to make a nonce.
const NonceWork = sha256.BlockSize + 32 + 1 + 2*32

// nonce is that of RFC 6979 §3.2 with HMAC-SHA-256, for a hash of 32 bytes. As the library and
// libsecp256k1 it takes a digest above the order, one of 2^128, as it is. Secrets are hashed where
// they lie in locked memory: crypto/hmac would copy them into blocks of its own.
func (k Signer) nonce(digest *[32]byte, nonce *secp256k1.ModNScalar) {
	var key, v [32]byte
	defer func() { key, v = [32]byte{}, [32]byte{} }()
	for i := range v {
		v[i] = 1
	}
	for _, separator := range []byte{0, 1} {
		k.hmac(&key, &key, v[:], []byte{separator}, k.Secret[:], digest[:])
		k.hmac(&v, &key, v[:])
	}
	for {
		k.hmac(&v, &key, v[:])
		if overflow := nonce.SetBytes(&v); overflow == 0 && !nonce.IsZero() {
			return
		}
		k.hmac(&key, &key, v[:], []byte{0})
		k.hmac(&v, &key, v[:])
	}
}

// hmac puts HMAC-SHA-256 of the parts, one after the other, into out, which may be the key.
func (k Signer) hmac(out, key *[32]byte, parts ...[]byte) {
	pad := func(with byte) []byte {
		for i := range sha256.BlockSize {
			k.Work[i] = with
		}
		subtle.XORBytes(k.Work[:], k.Work[:32], key[:])
		return k.Work[:sha256.BlockSize]
	}
	text := pad(0x36)
	for _, part := range parts {
		text = append(text, part...)
	}
	inner := sha256.Sum256(text)
	*out, inner = sha256.Sum256(append(pad(0x5c), inner[:]...)), [32]byte{}
}

// invert sets out to 1/k modulo the order. The library does that in variable time, so it is given k times a
// random scalar: whatever its time tells is of that product, which tells nothing of k.
func invert(k, out *secp256k1.ModNScalar) {
	var blind secp256k1.ModNScalar
	var drawn [32]byte
	defer func() {
		blind.Zero()
		drawn = [32]byte{}
	}()
	for blind.IsZero() { // a number above the order, one of 2^128, is reduced
		_, _ = rand.Read(drawn[:]) // does not fail (crypto/rand)
		blind.SetBytes(&drawn)
	}
	out.Mul2(k, &blind).InverseNonConst().Mul(&blind)
}

// projective is a point X/Z, Y/Z; the one at infinity is 0, 1, 0.
type projective struct{ x, y, z secp256k1.FieldVal }

// add sets p to a + b, whatever they are: equal, opposite or at infinity. The formulas have no
// exception on a curve of odd order, so there is nothing to ask (Renes, Costello, Batina: Complete
// addition formulas for prime order elliptic curves, 2015, §3.3, with a = 0 and 3b = 21).
//
// The coordinates of points are of magnitude 3 at most, and what is multiplied of 5; the library's limit
// is 8.
func (p *projective) add(a, b *projective) {
	var xx, yy, zz, xy, yz, xz, t secp256k1.FieldVal
	xx.Mul2(&a.x, &b.x)
	yy.Mul2(&a.y, &b.y)
	zz.Mul2(&a.z, &b.z)
	cross := func(out, a1, a2, b1, b2, first, second *secp256k1.FieldVal) { // a₁b₂ + a₂b₁
		out.Add2(a1, a2).Mul(t.Add2(b1, b2))
		out.Add(t.NegateVal(first, 1)).Add(t.NegateVal(second, 1))
	}
	cross(&xy, &a.x, &a.y, &b.x, &b.y, &xx, &yy)
	cross(&yz, &a.y, &a.z, &b.y, &b.z, &yy, &zz)
	cross(&xz, &a.x, &a.z, &b.x, &b.z, &xx, &zz)
	xz.Normalize().MulInt(21).Normalize()
	zz.MulInt(21).Normalize()
	xx.MulInt(3)
	var less, more secp256k1.FieldVal
	less.NegateVal(&zz, 1).Add(&yy) // Y₁Y₂ − 21·Z₁Z₂
	more.Add2(&yy, &zz)             // Y₁Y₂ + 21·Z₁Z₂

	p.x.Mul2(&xy, &less).Add(t.Mul2(&xz, &yz).Negate(1))
	p.y.Mul2(&more, &less).Add(t.Mul2(&xx, &xz))
	p.z.Mul2(&yz, &more).Add(t.Mul2(&xx, &xy))
}

// words are the three coordinates of a point, big endian, so that one of many is chosen by few instructions.
type words [12]uint64

func (p projective) words() (w words) {
	for i, v := range []*secp256k1.FieldVal{&p.x, &p.y, &p.z} {
		coordinate := v.Normalize().Bytes()
		for j := range 4 {
			w[4*i+j] = binary.BigEndian.Uint64(coordinate[8*j:])
		}
	}
	return w
}

// multiples are j·16^i·G for each of the 64 digits of a scalar, public and made once.
var multiples = sync.OnceValue(func() *[64][16]words {
	var out [64][16]words
	var one secp256k1.ModNScalar
	var g secp256k1.JacobianPoint
	secp256k1.ScalarBaseMultNonConst(one.SetInt(1), &g)
	step := projective{x: g.X, y: g.Y, z: g.Z} // Z is 1
	for i := range out {
		var sum projective
		sum.y.SetInt(1)
		for j := range out[i] {
			out[i][j] = sum.words()
			sum.add(&sum, &step)
		}
		step = sum
	}
	return &out
})

// choose sets p to the one of list that has the number digit. It reads all of them.
func (p *projective) choose(list *[16]words, digit byte) {
	var chosen words
	for j := range list {
		mask := -uint64(subtle.ConstantTimeByteEq(digit, byte(j)))
		for i, word := range &list[j] {
			chosen[i] |= word & mask
		}
	}
	var coordinate [32]byte
	for i, v := range []*secp256k1.FieldVal{&p.x, &p.y, &p.z} {
		for j := range 4 {
			binary.BigEndian.PutUint64(coordinate[8*j:], chosen[4*i+j])
		}
		v.SetBytes(&coordinate)
	}
	clear(chosen[:])
	clear(coordinate[:])
}

// baseMult is k·G, with k big endian; it is affine, and normal. Each of the 64 digits adds one
// multiple, zero times G too.
func baseMult(k *[32]byte) secp256k1.JacobianPoint {
	table := multiples()
	var sum, next projective
	sum.y.SetInt(1)
	for i := range table {
		next.choose(&table[i], k[31-i/2]>>(4*(i%2))&0xf)
		sum.add(&sum, &next)
	}
	sum.z.Inverse()
	var point secp256k1.JacobianPoint
	point.X.Mul2(&sum.x, &sum.z).Normalize()
	point.Y.Mul2(&sum.y, &sum.z).Normalize()
	point.Z.SetInt(1)
	sum, next = projective{}, projective{} // the projective form of a point tells of its scalar
	return point
}

// SignEd25519 verifies what it signed, as [Signer] does: two signatures of one message, of which one
// is faulty, tell the key.
func SignEd25519(key ed25519.PrivateKey, message []byte) (sig [64]byte, err error) {
	raw := ed25519.Sign(key, message)
	if !ed25519.Verify(ed25519.PublicKey(key[guarded.Size:]), message, raw) {
		return sig, ErrFaulty
	}
	return [64]byte(raw), nil
}
