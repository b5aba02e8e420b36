package history

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What is packed is what is unpacked, and nil stays nil.
func TestPack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var texts, want [3][]byte
		for i := range texts {
			if rapid.Bool().Draw(rt, "there") {
				text := rapid.OneOf(rapid.String(), rapid.Just(dictionary)).Draw(rt, "text")
				texts[i] = append([]byte{}, text...)
			}
		}
		require.NoError(rt, unpack(pack(texts[0], texts[1], texts[2]), &want[0], &want[1], &want[2]))
		require.Equal(rt, texts, want)
	})
	kept := []byte("kept")
	require.NoError(t, unpack(nil, &kept))
	require.Equal(t, "kept", string(kept))
}

// A record that somebody else wrote is an error, of whatever bytes it is.
func TestPackedByOthers(t *testing.T) {
	deflated := func(text []byte) []byte {
		var out bytes.Buffer
		into, err := flate.NewWriter(&out, flate.BestCompression)
		require.NoError(t, err)
		_, err = into.Write(text)
		require.NoError(t, err)
		require.NoError(t, into.Close())
		return out.Bytes()
	}
	for name, packed := range map[string][]byte{
		"no text":           deflated(nil),
		"cut off":           pack([]byte("text"))[:3],
		"no packed one":     []byte("{}"),
		"a text of nothing": deflated([]byte{9, 'a'}),
		"a length too long": deflated(bytes.Repeat([]byte{0xff}, 11)),
		"the longest":       deflated(bytes.Repeat([]byte{0xff}, 9)),
	} {
		require.ErrorIs(t, unpack(packed, new([]byte)), errNotPacked, name)
	}
	const size = 20 << 20
	bomb := deflated(append(binary.AppendUvarint(nil, size+1), make([]byte, size)...))
	require.Less(t, len(bomb), 1<<17)
	require.ErrorIs(t, unpack(bomb, new([]byte)), errNotPacked)
}

// A payment's texts take little more than a third of the room.
func TestPackIsShort(t *testing.T) {
	payload := `{"x402Version":2,"payload":{"authorization":{"from":"0x64a8FDDcFA05916401A17a151b1B84170473b487","to":` +
		`"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","value":"1000","validAfter":"0","validBefore":"1795480391",` +
		`"nonce":"0x4fa00d94269d6b2ec51af5aff4c1ba4eac431b40f3eb450d3662c7c4ecf8556b"},"signature":"0x0bbfc5faf3f61c` +
		`0d8bc4e2fe26632036c79f5f30f1f57f7282c57d0c5cb91b3077bcbf52e3ab3570e45ae72b11cad8642de2f3a289e75228dc488342` +
		`7e07fc9b1b"},"resource":{"description":"Weather in Lisbon","mimeType":"application/json","url":"https://` +
		`api.example/weather"},"accepted":{"amount":"1000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e",` +
		`"extra":{"name":"USDC","version":"2"},"maxTimeoutSeconds":60,"network":"eip155:84532","payTo":` +
		`"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","scheme":"exact"}}`
	require.Less(t, len(pack([]byte(payload))), len(payload)*2/5)
	require.LessOrEqual(t, len(dictionary), 32<<10, "what DEFLATE looks back to")
}
