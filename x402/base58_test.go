package x402

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	theirs "github.com/gagliardetto/solana-go/base58"
	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

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
		data, err := hex.DecodeString(inHex)
		require.NoError(t, err)
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
