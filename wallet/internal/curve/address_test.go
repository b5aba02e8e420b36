package curve

import (
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBase58(t *testing.T) {
	for in, want := range map[string]string{ // draft-msporny-base58-03, and Bitcoin Core's table
		"": "", "00": "1", "61": "2g", "626262": "a3gV", "636363": "aPEr",
		"0000287fb4cd":             "11233QC4",
		"48656c6c6f20576f726c6421": "2NEpo7TZRRrLZSi2U",
		"00000000000000000000":     "1111111111",
	} {
		t.Run(in, func(t *testing.T) {
			require.Equal(t, want, Base58(unhex(t, in)), in)
		})
	}
	require.Equal(t, strings.Repeat("1", 32), Base58(make([]byte, 32)))
}

// Against the definition: the number in base 58, a 1 for each leading zero byte.
func TestBase58IsThePositionalSystem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "data")
		text := Base58(data)
		n := new(big.Int)
		for _, c := range text {
			n.Mul(n, big.NewInt(58)).Add(n, big.NewInt(int64(strings.IndexRune(base58Alphabet, c))))
		}
		zeros := len(text) - len(strings.TrimLeft(text, "1"))
		back := append(make([]byte, zeros), n.Bytes()...)
		if string(back) != string(data) {
			t.Fatalf("%x became %x", data, back)
		}
		if IsSolanaAddress(text) != (len(data) == 32) {
			t.Fatalf("%s of %d bytes: address %v", text, len(data), IsSolanaAddress(text))
		}
	})
}

func TestEVMAddressIsGoEthereums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		account := [20]byte(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "account"))
		want := common.Address(account).Hex()
		if got := EVMAddress(account); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		if !IsEVMAddress(want) {
			t.Fatal("not an address")
		}
	})
	for _, bad := range []string{"", "0x", strings.ToLower(goldenEVM), goldenEVM[2:], "0X" + goldenEVM[2:],
		goldenEVM + "0", "0x" + strings.Repeat("g", 40)} {
		t.Run(bad, func(t *testing.T) {
			require.False(t, IsEVMAddress(bad), bad)
		})
	}
}
