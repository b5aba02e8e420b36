package x402

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	theirs "github.com/gagliardetto/solana-go/base58"
	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
)

// signInVector is what @x402/extensions 2.27 made, and what its verifier said.
type signInVector struct {
	Info            SignIn
	Message         string
	Payload         SignIn
	Header, Refused string
	Validate        struct {
		IsValid       bool
		InvalidReason string
	}
}

func extensionVectors[V any](t testing.TB, prefix string) map[string]V {
	t.Helper()
	data := must.Get(os.ReadFile("testdata/extension-vectors.json"))(t)
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

func signInVectors(t testing.TB) map[string]signInVector {
	t.Helper()
	return extensionVectors[signInVector](t, "siwx_")
}

var vectorNow = time.Unix(1740672089, 0)

// Texts are the reference client's to the byte. Package signatures verifies its signatures.
func TestSignInsEqualTheReference(t *testing.T) {
	for _, name := range []string{"siwx_evm_minimal", "siwx_evm_full", "siwx_evm_agent_key",
		"siwx_solana_minimal", "siwx_solana_full", "siwx_too_old"} {
		v := signInVectors(t)[name]
		text, err := v.Payload.Text()
		require.NoError(t, err, name)
		require.Equal(t, v.Message, text, name)
		back, err := ReadSignInText(text)
		require.NoError(t, err, name)
		back.Signature = v.Payload.Signature
		require.Equal(t, v.Payload, back, name)

		err = v.Payload.CheckBound("https://api.example.com", vectorNow)
		if v.Validate.IsValid {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, v.Validate.InvalidReason, name)
		}
	}
}

// Other domains and origins are refused, as the reference client refuses to sign for them.
func TestSignInsForOthers(t *testing.T) {
	for _, name := range []string{"siwx_other_domain", "siwx_other_origin"} {
		v := signInVectors(t)[name]
		require.NotEmpty(t, v.Refused)
		require.Error(t, v.Info.CheckBound("https://api.example.com", vectorNow), name)
	}
}

func TestSignInIsBoundToPlaceAndTime(t *testing.T) {
	good := signInVectors(t)["siwx_evm_full"].Payload
	require.NoError(t, good.CheckBound("https://api.example.com", vectorNow))
	require.NoError(t, good.CheckBound("https://API.example.com:443", vectorNow))
	for why, change := range map[string]func(s *SignIn){
		"domain_mismatch":        func(s *SignIn) { s.Domain = "api.example.com.evil.example" },
		"uri_mismatch":           func(s *SignIn) { s.URI = "http://api.example.com/data" },
		"issued_at:":             func(s *SignIn) { s.IssuedAt = "yesterday" },
		"issued_at_too_old":      func(s *SignIn) { s.IssuedAt = "2025-02-27T15:56:28Z" },
		"issued_at_in_future":    func(s *SignIn) { s.IssuedAt = "2025-02-27T16:04:29Z" },
		"expired":                func(s *SignIn) { s.ExpirationTime = "2025-02-27T16:01:29Z" },
		"expiration_time: its":   func(s *SignIn) { s.ExpirationTime = "never" },
		"expiration_time: it w":  func(s *SignIn) { s.ExpirationTime = "2025-03-27T16:01:29Z" },
		"not_yet_valid":          func(s *SignIn) { s.NotBefore = "2025-02-27T16:04:29Z" },
		"not_before":             func(s *SignIn) { s.NotBefore = "soon" },
		"uri_mismatch: it is fo": func(s *SignIn) { s.URI = "https://u:p@api.example.com/data" },
	} {
		s := good
		change(&s)
		require.ErrorContains(t, s.CheckBound("https://api.example.com", vectorNow), why)
	}
	require.Error(t, good.CheckBound("https://api.example.com:8443", vectorNow))
	require.Error(t, good.CheckBound("http://api.example.com", vectorNow))
	require.Error(t, good.CheckBound("", vectorNow))
}

// No member of a message can pretend to be another one.
func TestSignInTextCannotBeForged(t *testing.T) {
	good := signInVectors(t)["siwx_evm_full"].Payload
	for name, change := range map[string]func(s *SignIn){
		"line break in the statement": func(s *SignIn) { s.Statement = "x\n\nURI: https://evil.example" },
		"line break in a resource":    func(s *SignIn) { s.Resources = []string{"a\nNonce: 1"} },
		"line break in the uri":       func(s *SignIn) { s.URI += "\nVersion: 2" },
		"carriage return":             func(s *SignIn) { s.RequestID = "a\rb" },
		"invisible letters":           func(s *SignIn) { s.Statement = "a\u202eb" },
		"a space in the domain":       func(s *SignIn) { s.Domain = "a b" },
		"short nonce":                 func(s *SignIn) { s.Nonce = "1234567" },
		"nonce with signs":            func(s *SignIn) { s.Nonce = "1234-5678" },
		"another version":             func(s *SignIn) { s.Version = "2" },
		"another chain's type":        func(s *SignIn) { s.Type = "ed25519" },
		"no chain":                    func(s *SignIn) { s.ChainID = "eip155:08453" },
		"a chain nobody signs in on":  func(s *SignIn) { s.ChainID, s.Type = "stellar:pubnet", "" },
		"too long":                    func(s *SignIn) { s.Statement = strings.Repeat("a", MaxSignIn) },
	} {
		s := good
		change(&s)
		require.Error(t, must.Err(s.Text()), name)
	}
}

// The vectors of draft-msporny-base58 §5, and the ends of what has a length.
func TestBase58Vectors(t *testing.T) {
	ff := func(n int) string { return strings.Repeat("ff", n) }
	for text, inHex := range map[string]string{
		"1": "00", "11": "0000", "2": "01", "z": "39", "21": "3a", "5Q": "ff", "15Q": "00ff",
		"2NEpo7TZRRrLZSi2U": hex.EncodeToString([]byte("Hello World!")),
		"11233QC4":          "0000287fb4cd",
		"USm3fpXnKG5EUBx2ndxBDMPVciP5hGey2Jh4NDv6gmeo1LkMeiKrLJUUBk6Z": hex.EncodeToString([]byte(
			"The quick brown fox jumps over the lazy dog.")),
		strings.Repeat("1", 32):                        strings.Repeat("00", 32),
		"JEKNVnkbo3jma5nREBBJCDoXFVeKkD56V3xKrvRmWxFG": ff(32),
		"67rpwLCuS5DGA8KGZXKsVQ7dnPb9goRLoKfgGbLfQg9WoLUgNY77E2jT11fem3coV9nAkguBACzrU1iyZM4B8roQ": ff(64),
	} {
		data := must.Get(hex.DecodeString(inHex))(t)
		require.Equal(t, text, base58.Encode(data))
		require.Equal(t, data, DecodeBase58(text, len(data)), text)
	}
}

func TestBase58HasOneSpellingOfOneLength(t *testing.T) {
	key := base58.Encode(bytes.Repeat([]byte{7}, 32))
	require.NotNil(t, DecodeBase58(key, 32))
	for name, text := range map[string]string{
		"empty": "", "a zero less": strings.Repeat("1", 31), "a zero more": strings.Repeat("1", 33),
		"in front":   "1" + key,
		"cut":        key[1:],
		"no digit":   "0" + key[1:],
		"O":          key[:9] + "O" + key[10:],
		"I":          key[:9] + "I" + key[10:],
		"l":          key[:9] + "l" + key[10:],
		"space":      key + " ",
		"line break": key + "\n",
		"not ASCII":  key[:42] + "é",
		"2^256":      "JEKNVnkbo3jma5nREBBJCDoXFVeKkD56V3xKrvRmWxFH",
		"far over":   strings.Repeat("z", 44),
		"64 bytes":   base58.Encode(bytes.Repeat([]byte{7}, 64)),
	} {
		require.Nil(t, DecodeBase58(text, 32), name)
	}
}

// A text that is too long is refused by its length: to decode this one would take minutes.
func TestLongBase58IsNotDecoded(t *testing.T) {
	text := strings.Repeat("z", 1<<24)
	require.Zero(t, testing.AllocsPerRun(1, func() { require.Nil(t, DecodeBase58(text, 32)) }))
}

// Whatever the text: it is read if solana-go reads it, as the same bytes, and has no other spelling.
func FuzzDecodeBase58(f *testing.F) {
	for _, text := range []string{"", "1", "JEKNVnkbo3jma5nREBBJCDoXFVeKkD56V3xKrvRmWxFG",
		"JEKNVnkbo3jma5nREBBJCDoXFVeKkD56V3xKrvRmWxFH", "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA",
		strings.Repeat("1", 32), strings.Repeat("1", 33), strings.Repeat("z", 90), "0", "é",
		"67rpwLCuS5DGA8KGZXKsVQ7dnPb9goRLoKfgGbLfQg9WoLUgNY77E2jT11fem3coV9nAkguBACzrU1iyZM4B8roQ"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var of32 [32]byte
		var of64 [64]byte
		for size, want := range map[int][]byte{32: of32[:], 64: of64[:]} {
			err := theirs.Decode32(text, &of32)
			if size == 64 {
				err = theirs.Decode64(text, &of64)
			}
			if err != nil {
				want = nil
			}
			got := DecodeBase58(text, size)
			require.Equal(t, want, got)
			if got != nil {
				require.Equal(t, text, base58.Encode(got))
			}
		}
	})
}

// Bytes that begin with zeros are as likely as others.
func TestBase58IsReadAsSolanaGoWritesIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "data")
		data = append(make([]byte, rapid.IntRange(0, 8).Draw(t, "zeros")), data...)
		text := theirs.Encode(data)
		require.Equal(t, base58.Encode(data), text)
		require.Equal(t, data, DecodeBase58(text, len(data)))
		require.Nil(t, DecodeBase58(text, len(data)+1))
		require.Nil(t, DecodeBase58(text, len(data)-1))
	})
}
