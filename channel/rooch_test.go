package channel

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

func TestAddressVectors(t *testing.T) {
	v := readVectors(t)
	for name, p := range v.Parties {
		t.Run(name, func(t *testing.T) {
			a := parse(t, p.DID)
			require.Equal(t, p.Address, a.String())
			require.Equal(t, p.DID, a.did())
		})
	}
	id := idOfChannel(parse(t, v.Parties["payer"].DID), parse(t, v.Parties["service"].DID))
	require.Equal(t, v.ChannelID, id.String())
	require.Equal(t, id, must.Get(parseObjectID(v.ChannelID))(t))
}

func TestTransactionVector(t *testing.T) {
	v := readVectors(t)
	tx := openChannel(parse(t, v.Parties["service"].DID), "key-1")
	tx.Sender, tx.ChainID = parse(t, v.Parties["payer"].DID), 4
	require.Equal(t, v.OpenTx.Data, hex.EncodeToString(tx.data()))
	id := tx.id()
	require.Equal(t, v.OpenTx.Hash, hex.EncodeToString(id[:]))
	raw := unhex(t, v.OpenTx.Raw)
	require.Equal(t, v.OpenTx.Raw, tx.raw("key-1", raw[len(raw)-65:len(raw)-1]))
}

func TestParseDIDRefuses(t *testing.T) {
	good := readVectors(t).Parties["payer"].DID
	for name, did := range map[string]string{
		"nothing":          "",
		"another method":   "did:key:z6Mkot43EEU5VHeh8iwfX7KyEStwy5CWAFu9vGRvNSMAC3Cm",
		"no account":       "did:rooch:",
		"cut":              good[:len(good)-1],
		"longer":           good + "q",
		"letters swapped":  strings.Replace(good, "nz", "zn", 1),
		"upper case":       strings.ToUpper(good),
		"too long":         "did:rooch:rooch1" + strings.Repeat("q", 60),
		"another prefix":   "did:rooch:" + strings.Replace(good[10:], "rooch1", "rooca1", 1),
		"hex":              "did:rooch:0x98a709f1299d474fee017399dd930ecd76b044bbd86e339c603ebc9c6f844859",
		"a key's fragment": good + "#key-1",
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, must.Err(parseDID(did)), did)
		})
	}
}

func TestIsRGas(t *testing.T) {
	for asset, is := range map[string]bool{
		coinRGas: true, canonicalRGas: true, "0x03::gas_coin::RGas": true,
		"3::gas_coin::RGas": false, "0x30::gas_coin::RGas": false, "0x3::gas_coin::rgas": false, "": false,
	} {
		t.Run(asset, func(t *testing.T) { require.Equal(t, is, isRGas(asset)) })
	}
}

func TestStatusWithoutNode(t *testing.T) {
	_, err := statuses{}.Status(t.Context(), x402.Evidence{Network: "rooch:main", Nonce: "1"})
	require.True(t, x402.HasCode(err, x402.RPCError), "%v", err)
}

func FuzzBCS(f *testing.F) {
	v := readVectors(f)
	for _, c := range []subRAVVector{v.Ed25519, v.Secp256k1, v.Big} {
		b := must.Get(hex.DecodeString(c.BCS))(f)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) { // what decodes encodes to the same bytes
		var s subRAVLayout
		if decodeAllBCS(data, &s) == nil {
			require.Equal(t, data, encodeBCS(s))
		}
	})
}
