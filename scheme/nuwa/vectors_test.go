package nuwa

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// vectors are what @nuwa-ai/payment-kit 0.7.0 and identity-kit 0.6.0 made.
type vectors struct {
	Parties map[string]struct {
		DID     string `json:"did"`
		Address string `json:"addressHex"`
		Key     string `json:"publicKeyMultibase_inDIDDoc"`
	} `json:"parties"`
	Ed25519   subRAVVector `json:"subrav_ed25519"`
	Secp256k1 subRAVVector `json:"subrav_secp256k1"`
	Big       subRAVVector `json:"subrav_big"`
	Auth      struct {
		Data       signedData `json:"signed_data"`
		Preimage   string     `json:"preimage"`
		Signature  string     `json:"signatureHex"`
		Header     string     `json:"header"`
		HeaderJSON string     `json:"headerJson"`
	} `json:"didauth_ed25519"`
	Request  wireVector      `json:"http_request_header"`
	Response wireVector      `json:"http_response_header"`
	Resource json.RawMessage `json:"mcp_payment_resource"`
	OpenTx   struct {
		Data string `json:"txDataHex"`
		Hash string `json:"txDataSha3_256"`
		Raw  string `json:"rawTransactionHex"`
	} `json:"rooch_open_tx"`
	ChannelID string `json:"channelId"`
}

type subRAVVector struct {
	JSON   json.RawMessage `json:"json"`
	BCS    string          `json:"bcsHex"`
	Sig    string          `json:"signatureHex"`
	Signed json.RawMessage `json:"signedJson"`
}

type wireVector struct {
	JSON  string `json:"json"`
	Value string `json:"value"`
}

func readVectors(t testing.TB) (v vectors) {
	text := must.Get(os.ReadFile("testdata/vectors.json"))(t)
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

func unhex(t testing.TB, s string) []byte {
	return must.Get(hex.DecodeString(strings.TrimPrefix(s, "0x")))(t)
}

func parse(t testing.TB, did string) account { return must.Get(parseDID(did))(t) }

func TestVectors(t *testing.T) {
	v := readVectors(t)
	payer, payee := parse(t, v.Parties["payer"].DID), parse(t, v.Parties["service"].DID)
	for i, c := range []subRAVVector{v.Ed25519, v.Secp256k1, v.Big} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := must.JSON[subRAV](c.JSON)(t)
			require.Equal(t, c.BCS, hex.EncodeToString(SubRAV(s).bytes()))
			text := must.Get(json.Marshal(signedSubRAV{s, multibase(unhex(t, c.Sig))}))(t)
			require.JSONEq(t, string(c.Signed), string(text))
		})
	}

	require.Equal(t, v.Auth.Preimage, string(v.Auth.Data.message()))
	data := v.Auth.Data
	var err error
	data.Params = must.Get(compact(toolParams{"echo", "11111111-2222-4333-8444-555555555555"}))(t)
	token := must.Get(data.token(v.Parties["payer"].DID, "key-1", unhex(t, v.Auth.Signature)))(t)
	require.Equal(t, v.Auth.Header, token)

	signed := must.JSON[signedSubRAV](v.Ed25519.Signed)(t)
	request := requestPayload{Version: 1, ClientTxRef: "11111111-2222-4333-8444-555555555555",
		MaxAmount: "50000000", Signed: &signed}
	text := must.Get(compact(request))(t)
	require.Equal(t, v.Request.JSON, string(text))
	require.Equal(t, v.Request.Value, multibase(text))

	answer := must.Get(readHeader(v.Response.Value))(t)
	require.Equal(t, "srv-1-abc", answer.ServiceTxRef)
	require.Equal(t, money.NewAmount(10_000_000), *answer.Cost)
	require.Equal(t, subRAV{ChainID: 4, Channel: idOfChannel(payer, payee), Fragment: "key-1",
		Amount: money.NewAmount(20_000_000), Nonce: 2}, *answer.SubRAV)
	rest, paid, err := splitContent([]json.RawMessage{json.RawMessage(`{"type":"text","text":"x"}`),
		v.Resource})
	require.NoError(t, err)
	require.Len(t, rest, 1)
	require.Equal(t, answer, paid)
}

func TestSubRAVJSONIsStrict(t *testing.T) {
	good := string(readVectors(t).Ed25519.JSON)
	var s subRAV
	for name, c := range map[string][2]string{
		"a number for a string": {`"4"`, `4`},
		"another version":       {`"version": "1"`, `"version": "2"`},
		"a leading zero":        {`"10000000"`, `"010000000"`},
		"a negative nonce":      {`"nonce": "1"`, `"nonce": "-1"`},
		"a nonce of 65 bits":    {`"nonce": "1"`, `"nonce": "18446744073709551616"`},
		"a short channel":       {`ca1809"`, `ca18"`},
		"no key":                {`"key-1"`, `""`},
		"an amount of 257 bits": {`"10000000"`,
			`"115792089237316195423570985008687907853269984665640564039457584007913129639936"`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, c[0], c[1], 1)
			require.NotEqual(t, good, bad, name)
			require.Error(t, json.Unmarshal([]byte(bad), &s), name)
		})
	}
	require.NoError(t, json.Unmarshal([]byte(good), &s))
}

func TestLastPaymentFrameWins(t *testing.T) {
	frame := func(n string) json.RawMessage {
		return json.RawMessage(
			`{"type":"resource","resource":{"uri":"x","mimeType":"application/vnd.nuwa.payment+json","text":"{\"version\":1,\"cost\":\"` + n + `\"}"}}`)
	}
	rest, paid, err := splitContent([]json.RawMessage{frame("1"),
		json.RawMessage(`{"type":"text","text":"a"}`), frame("2")})
	require.NoError(t, err)
	require.Equal(t, money.NewAmount(2), *paid.Cost)
	require.Len(t, rest, 1)
	_, _, err = splitContent([]json.RawMessage{frame(`1\",\"cost\":\"2`)})
	require.Error(t, err, "what says two things is not read")
}

func TestReservedArguments(t *testing.T) {
	text := must.Get(withReserved(json.RawMessage(`{"text":"<one>"}`), "DIDAuthV1 uX",
		&requestPayload{Version: 1, ClientTxRef: "r"}))(t)
	require.Equal(t,
		`{"__nuwa_auth":"DIDAuthV1 uX","__nuwa_payment":{"version":1,"clientTxRef":"r"},"text":"<one>"}`,
		string(text))
	require.Error(t, must.Err(withReserved(json.RawMessage(`{"__nuwa_payment":{}}`), "", nil)))
	require.Error(t, must.Err(withReserved(json.RawMessage(`[]`), "", nil)))
}

// signer is a key of somebody else's: that of the vectors' service.
type signer struct {
	key  Key
	sign func(message []byte) []byte
}

func newSigner(t *testing.T) signer {
	v := readVectors(t)
	private := ed25519.NewKeyFromSeed(unhex(t,
		"ee2bf8098ea5dafb95ade63354db3ad99fbcee1a1bc8546cf89db4ef35b45913"))
	k := Key{Fragment: "key-1", Type: ed25519Key, Multibase: v.Parties["service"].Key}
	require.True(t, keysOf{}.Verify(k, []byte("x"), ed25519.Sign(private, []byte("x"))))
	return signer{k, func(message []byte) []byte { return ed25519.Sign(private, message) }}
}

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
	requireCode(t, x402.RPCError, err)
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
