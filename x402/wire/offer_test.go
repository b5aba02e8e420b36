package wire

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	decred "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// attestedVector is an offer or a receipt that @x402/extensions 2.27 made, and what its verifiers say.
type attestedVector struct {
	Object  json.RawMessage
	Signer  string
	Header  struct{ Kid string }
	Accepts []json.RawMessage
	Offer   json.RawMessage
	Found   int
	Receipt json.RawMessage
	Bad     struct {
		Verify struct{ Accepted *struct{ Signer string } }
	}
}

func offering(offers ...json.RawMessage) json.RawMessage {
	text, _ := json.Marshal(map[string]any{"info": map[string]any{"offers": offers}})
	return text
}

func settling(receipt json.RawMessage) json.RawMessage {
	return json.RawMessage(`{"success":true,"extensions":{"offer-receipt":{"info":{"receipt":` +
		string(receipt) + `}}}}`)
}

var offered = x402.Requirement{Scheme: "exact", NetworkName: "eip155:84532", Network: "eip155:84532",
	Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
	Amount: money.NewAmount(10000)}

func TestOffersAndReceiptsOfTheReference(t *testing.T) {
	for name, v := range extensionVectors[attestedVector](t, "offer_") {
		if v.Object == nil {
			continue
		}
		a, raw := offerIn(offering(v.Object), offered)
		require.NotNil(t, raw, name)
		did, _, _ := strings.Cut(v.Header.Kid, "#")
		require.Equal(t, []any{true, "", did + v.Signer}, []any{a.Verified, a.Why, a.Signer}, name)
		require.Equal(t, int64(1740672149), a.ValidUntil, name)
	}
	for name, v := range extensionVectors[attestedVector](t, "receipt_") {
		a := ReceiptIn(settling(v.Object))
		did, _, _ := strings.Cut(v.Header.Kid, "#")
		require.Equal(t, []any{true, "", did + v.Signer}, []any{a.Verified, a.Why, a.Signer}, name)
		at, payer := time.Unix(1740672089, 0), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
		urls := []string{"https://api.example.com/premium-data"}
		good := *a
		good.Compare("eip155:84532", strings.ToLower(payer), a.Transaction, urls, at)
		require.Empty(t, good.Why, name)
		for why, compare := range map[string]func(*Attested){
			"network": func(a *Attested) { a.Compare("eip155:8453", payer, "", urls, at) },
			"payer":   func(a *Attested) { a.Compare("eip155:84532", "0xAgent", "", urls, at) },
			"URL":     func(a *Attested) { a.Compare("eip155:84532", payer, "", nil, at) },
			"time":    func(a *Attested) { a.Compare("eip155:84532", payer, "", urls, at.Add(2*time.Hour)) },
		} {
			other := *a
			compare(&other)
			require.Contains(t, other.Why, why, name)
		}
		if a.Transaction != "" {
			a.Compare("eip155:84532", payer, "0xother", urls, at)
			require.Contains(t, a.Why, "transaction")
		}
	}
}

// acceptIndex is a hint: what counts are the five members.
func TestOffersAreMatchedByWhatTheyAreFor(t *testing.T) {
	v := extensionVectors[attestedVector](t, "offer_receipt_matching")["offer_receipt_matching"]
	for i, raw := range v.Accepts {
		r := must.Get(x402.DecodeRequirement(raw, 2))(t)
		a, _ := offerIn(offering(v.Offer), r)
		require.Equal(t, i == v.Found, a.Verified && a.Why == "", "option %d: %s", i, a.Why)
		if i != v.Found {
			require.Contains(t, a.Why, "none of the seller's signed offers")
		}
	}
	for _, change := range []func(*x402.Requirement){func(r *x402.Requirement) { r.Scheme = "upto" },
		func(r *x402.Requirement) { r.NetworkName = "base-sepolia" },
		func(r *x402.Requirement) { r.Asset = "0x1" },
		func(r *x402.Requirement) { r.PayTo = "0x1" },
		func(r *x402.Requirement) { r.Amount = money.NewAmount(10001) }} {
		r := offered
		change(&r)
		a, raw := offerIn(offering(v.Offer), r)
		require.Nil(t, raw)
		require.NotEmpty(t, a.Why)
	}
	require.Nil(t, (&Challenge{}).Offer(offered))
}

// By EIP-712 a changed member is another signer's; by JWS it is nobody's.
func TestAChangedOfferIsAnotherSigners(t *testing.T) {
	all := extensionVectors[attestedVector](t, "offer_")
	v := all["offer_eip712"]
	changed := json.RawMessage(strings.Replace(string(v.Object), "https://api.example.com/premium-data",
		"https://evil.example/", 1))
	a, _ := offerIn(offering(changed), offered)
	require.True(t, a.Verified)
	require.Equal(t, v.Bad.Verify.Accepted.Signer, a.Signer)
	require.NotEqual(t, v.Signer, a.Signer)

	for _, name := range []string{"offer_jws_eddsa", "offer_jws_es256"} {
		o := must.JSON[attestedJSON](all[name].Object)(t)
		parts := strings.Split(o.Signature, ".")
		payload := must.Get(base64.RawURLEncoding.DecodeString(parts[1]))(t)
		cheaper := strings.Replace(string(payload), "premium", "cheaper", 1)
		parts[1] = base64.RawURLEncoding.EncodeToString([]byte(cheaper))
		o.Signature = strings.Join(parts, ".")
		raw, _ := json.Marshal(o)
		a, _ := offerIn(offering(raw), offered)
		require.False(t, a.Verified, name)
		require.Contains(t, a.Why, "not by the key", name)
	}
}

// Keys of all three kinds, in both ways of writing them.
func TestKeysOfDIDs(t *testing.T) {
	message := base64.RawURLEncoding.EncodeToString([]byte(`{"version":1}`))
	sign := func(alg, kid string, by func([]byte) []byte) string {
		header, _ := json.Marshal(map[string]string{"alg": alg, "kid": kid})
		input := base64.RawURLEncoding.EncodeToString(header) + "." + message
		return input + "." + base64.RawURLEncoding.EncodeToString(by([]byte(input)))
	}
	jwk := func(members map[string]string) string {
		text, _ := json.Marshal(members)
		return "did:jwk:" + base64.RawURLEncoding.EncodeToString(text)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	byEd := func(m []byte) []byte { return ed25519.Sign(private, m) }
	p256 := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	point := must.Get(p256.PublicKey.Bytes())(t)
	byP256 := func(m []byte) []byte {
		digest := sha256.Sum256(m)
		r, s, err := ecdsa.Sign(rand.Reader, p256, digest[:])
		require.NoError(t, err)
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	k1 := must.Get(secp256k1.GeneratePrivateKey())(t)
	k1Point := k1.PubKey().SerializeUncompressed()
	byK1 := func(m []byte) []byte {
		digest := sha256.Sum256(m)
		return decred.SignCompact(k1, digest[:], true)[1:]
	}
	okp := jwk(map[string]string{"kty": "OKP", "crv": "Ed25519", "x": b64(public)})
	ec := jwk(map[string]string{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])})
	ecK1 := jwk(map[string]string{"kty": "EC", "crv": "secp256k1", "x": b64(k1Point[1:33]),
		"y": b64(k1Point[33:])})
	keyK1 := "did:key:z" + base58.Encode(append([]byte{0xe7, 0x01}, k1.PubKey().SerializeCompressed()...))
	keyP256 := "did:key:z" + base58.Encode(append([]byte{0x80, 0x24},
		elliptic.MarshalCompressed(elliptic.P256(), p256.X, p256.Y)...))
	keyEd := "did:key:z" + base58.Encode(append([]byte{0xed, 0x01}, public...))
	for _, jws := range []string{sign("EdDSA", okp, byEd), sign("EdDSA", okp+"#0", byEd),
		sign("ES256", ec, byP256), sign("ES256K", ecK1, byK1), sign("ES256K", keyK1, byK1),
		sign("ES256", keyP256, byP256), sign("EdDSA", keyEd+"#"+keyEd[8:], byEd)} {
		_, did, err := verifyJWS(jws)
		require.NoError(t, err, jws)
		require.Contains(t, []string{okp, ec, ecK1, keyK1, keyP256, keyEd}, did)
	}
	for name, jws := range map[string]string{
		"another algorithm":     sign("ES256", okp, byEd),
		"none":                  sign("none", okp, func([]byte) []byte { return nil }),
		"HMAC with the key":     sign("HS256", okp, byEd),
		"another key":           sign("ES256K", ec, byK1),
		"another curve's":       sign("ES256", ecK1, byP256),
		"a fragment of another": sign("EdDSA", keyEd+"#z6Mkother", byEd),
		"a symmetric key":       sign("EdDSA", jwk(map[string]string{"kty": "oct", "k": "AAAA"}), byEd),
		"no point": sign("ES256", jwk(map[string]string{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]),
			"y": b64(point[1:33])}), byP256),
		"no key":     sign("EdDSA", "", byEd),
		"did:web":    sign("EdDSA", "did:web:evil.example", byEd),
		"two parts":  "a.b",
		"not base64": "!.!.!",
		"no JSON":    "YQ.YQ.YQ",
		"too long":   sign("EdDSA", okp+strings.Repeat("a", maxJWS), byEd),
		"small order": sign("EdDSA", "did:key:z"+base58.Encode(append([]byte{0xed, 1, 1},
			make([]byte, 31)...)), byEd),
	} {
		_, _, err := verifyJWS(jws)
		require.Error(t, err, name)
	}
	_, _, err = verifyJWS(sign("EdDSA", "did:web:evil.example", byEd))
	require.ErrorIs(t, err, errDIDWeb)
}

// Our payments carry the identifier as the reference client's do.
func TestPaymentIdentifiersEqualTheReference(t *testing.T) {
	type vector struct{ DeclaredFull, Sent map[string]json.RawMessage }
	for name, v := range extensionVectors[vector](t, "payment_id_") {
		var sent struct{ Info struct{ ID string } }
		if v.Sent == nil || json.Unmarshal(v.Sent["payment-identifier"], &sent) != nil || sent.Info.ID == "" {
			continue
		}
		ours := map[string]json.RawMessage{"payment-identifier": json.RawMessage(
			`{"info":{"id":"` + sent.Info.ID + `"}}`)}
		var got, want map[string]map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(extensions(v.DeclaredFull, ours, echoAll), &got))
		text, _ := json.Marshal(v.Sent)
		require.NoError(t, json.Unmarshal(text, &want))
		require.JSONEq(t, string(want["payment-identifier"]["info"]),
			string(got["payment-identifier"]["info"]), name)
	}
}

func FuzzAttested(f *testing.F) {
	for _, prefix := range []string{"offer_", "receipt_"} {
		for _, v := range extensionVectors[attestedVector](f, prefix) {
			f.Add([]byte(v.Object))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, hash := range []func(claims) [32]byte{offerHash, receiptHash} {
			if a, err := attestation(raw, hash); err == nil && a.Verified {
				require.NotEmpty(t, a.Signer)
			}
		}
		_ = OfferIn(raw)
		_ = ReceiptIn(raw)
	})
}

// extensionVectors reads those of the vectors whose names begin so.
func extensionVectors[V any](t testing.TB, prefix string) map[string]V {
	t.Helper()
	data := must.Get(os.ReadFile("../testdata/extension-vectors.json"))(t)
	all := must.JSON[struct{ Vectors map[string]json.RawMessage }](data)(t)
	chosen := map[string]V{}
	for name, raw := range all.Vectors {
		if strings.HasPrefix(name, prefix) {
			var v V
			require.NoError(t, json.Unmarshal(raw, &v), name)
			chosen[name] = v
		}
	}
	require.NotEmpty(t, chosen)
	return chosen
}
