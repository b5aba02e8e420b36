package payload

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var errPayload, errSignature = message.ErrPayload, message.ErrSignature

// The example of x402's specs/transports-v2/mcp.md carries a real signature.
func TestRecoverToolCall(t *testing.T) {
	call := readJSON[struct {
		Params struct {
			Meta map[string]struct{ Payload json.RawMessage } `json:"_meta"`
		}
	}](t, "../testdata/mcp-tool-call.json")
	from, auth, err := Recover(sepolia, usdc, call.Params.Meta["x402/payment"].Payload)
	require.NoError(t, err)
	require.Equal(t, "0x857b06519E91e3A54538791bDbb0E22373e36b66", from)
	require.Equal(t, message.Authorization3009{From: stranger, To: payee, Value: money.NewAmount(10000),
		ValidAfter: 1740672089, ValidBefore: 1740672154,
		Nonce: common.HexToHash("0xf3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480")},
		auth)
}

func goodPayload(t testing.TB) string {
	v := readJSON[struct {
		Vectors map[string]struct {
			Payload struct{ Payload json.RawMessage }
		}
	}](t, "../testdata/x402-vectors-eip3009.json")
	var compact struct{ Authorization, Signature json.RawMessage }
	require.NoError(t, json.Unmarshal(v.Vectors["v2_exact_eip3009"].Payload.Payload, &compact))
	made := must.Get(json.Marshal(map[string]json.RawMessage{"authorization": compact.Authorization,
		"signature": compact.Signature}))(t)
	return string(made)
}

func TestRecoverRefuses(t *testing.T) {
	good := goodPayload(t)
	_, _, err := Recover(sepolia, usdc, json.RawMessage(good))
	require.NoError(t, err)
	signature := good[strings.Index(good, `"signature":"`)+13:][:132]
	for name, test := range map[string]struct {
		old, new string
		want     error
	}{
		"unknown key":             {`{"auth`, `{"extra":1,"auth`, errPayload},
		"unknown inner key":       {`{"from"`, `{"extra":"1","from"`, errPayload},
		"repeated key":            {`"value":`, `"value":"1","value":`, errPayload},
		"repeated signature":      {`"signature":`, `"signature":"0x","signature":`, errPayload},
		"key in another case":     {`"value"`, `"Value"`, errPayload},
		"missing key":             {`"validAfter":"0",`, ``, errPayload},
		"number for string":       {`"10000"`, `10000`, errPayload},
		"null":                    {`"10000"`, `null`, errPayload},
		"amount with sign":        {`"10000"`, `"+10000"`, errPayload},
		"amount with zero":        {`"10000"`, `"010000"`, errPayload},
		"amount in hex":           {`"10000"`, `"0x2710"`, errPayload},
		"negative time":           {`"validAfter":"0"`, `"validAfter":"-1"`, errPayload},
		"endless time":            {`"1740672149"`, `"9223372036854775808"`, errPayload},
		"short nonce":             {`1f20"`, `1f"`, errPayload},
		"nonce not hex":           {`1f20"`, `1fzz"`, errPayload},
		"bad checksum":            {`312287C`, `312287c`, errPayload},
		"trailing text":           {`"}`, `"} x`, errPayload},
		"not an object":           {`{"auth`, `[{"auth`, errPayload},
		"endless":                 {`{"auth`, `{` + strings.Repeat(" ", message.MaxPayload) + `"auth`, errPayload},
		"short signature":         {signature, signature[:130], errPayload},
		"contract's signature":    {signature, signature + "00", errPayload},
		"v 0":                     {signature, signature[:130] + "00", errSignature},
		"v 29":                    {signature, signature[:130] + "1d", errSignature},
		"other v":                 {signature, signature[:130] + "1c", errSignature},
		"malleable twin":          {signature, twin(t, signature), errSignature},
		"r 0":                     {signature, "0x" + strings.Repeat("0", 64) + signature[66:], errSignature},
		"another amount":          {`"10000"`, `"10001"`, errSignature},
		"another payee":           {payee, stranger, errSignature},
		"another payer":           {us, stranger, errSignature},
		"another end":             {`"1740672149"`, `"1740672150"`, errSignature},
		"another nonce":           {`1f20"`, `1f21"`, errSignature},
		"empty":                   {good, ``, errPayload},
		"permit2":                 {`"authorization"`, `"permit2Authorization"`, errPayload},
		"key spelled by escapes":  {`"value"`, "\"v\\u0061lue\",\"value\"", errPayload},
		"broken inside":           {`"value":`, `"value"`, errPayload},
		"a string that is broken": {`"10000"`, "\"10\xff00\"", errPayload},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, test.old, test.new, 1)
			require.NotEqual(t, good, bad, "the test changed nothing")
			from, _, err := Recover(sepolia, usdc, json.RawMessage(bad))
			require.ErrorIs(t, err, test.want)
			require.Empty(t, from)
		})
	}
}

// twin is the other signature of the same message, which old contracts took too (EIP-2).
func twin(t *testing.T, signature string) string {
	raw := common.FromHex(signature)
	s := new(big.Int).Sub(crypto.S256().Params().N, new(big.Int).SetBytes(raw[32:64]))
	copy(raw[32:64], common.LeftPadBytes(s.Bytes(), 32))
	raw[64] = 27 + 28 - raw[64]
	return message.Hex(raw)
}

func TestRecoverInAnotherDomain(t *testing.T) {
	good := json.RawMessage(goodPayload(t))
	for name, asset := range map[string]x402.AssetInfo{
		"name":    {Network: sepolia, Address: usdc.Address, Name: "USD Coin", Version: "2"},
		"version": {Network: sepolia, Address: usdc.Address, Name: "USDC", Version: "1"},
		"token":   {Network: sepolia, Address: stranger, Name: "USDC", Version: "2"},
		"chain":   {Network: "eip155:8453", Address: usdc.Address, Name: "USDC", Version: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Recover(asset.Network, asset, good)
			require.ErrorIs(t, err, errSignature, name)
		})
	}
	_, _, err := Recover("eip155:8453", usdc, good)
	require.ErrorIs(t, err, errPayload)
}

// Whatever Recover takes is one message only: written again in our own form it is the same payment.
func FuzzRecover(f *testing.F) {
	good := goodPayload(f)
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, `"from"`, `"from":"0x","from"`, 1)))
	f.Add(vaultPayload(f))
	f.Add([]byte(`{"signature":"0x` + hex.EncodeToString(make([]byte, 65)) + `","authorization":{}}`))
	f.Add([]byte(`{"authorization":{"from":[[[[` + strings.Repeat("[", 300)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		auth, signature, err := decodePayload(payload)
		from, recovered, errRecover := Recover(sepolia, usdc, payload)
		if err != nil {
			require.ErrorIs(t, err, errPayload)
			require.ErrorIs(t, errRecover, errPayload)
			return
		}
		switch {
		case errRecover == nil:
			require.Equal(t, from, recovered.From)
		case len(signature) != 65:
			require.ErrorIs(t, errRecover, errPayload)
		default:
			require.ErrorIs(t, errRecover, errSignature)
			require.Empty(t, from)
		}
		agent, ofVault, errAgent := RecoverAgent(sepolia, usdc, payload)
		if errAgent == nil {
			own := must.Get(unwrap(auth, signature))(t)
			require.Equal(t, signature, must.Get(Wrap(ofVault, own))(t), "%s signed one message", agent)
			require.Error(t, errRecover, "no signature is both")
		}
		object := must.Get(EncodeAuthorization(auth))(t)
		again := must.Get(Encode(object, signature))(t)
		auth2, signature2, err := decodePayload(again)
		require.NoError(t, err)
		require.Equal(t, auth, auth2)
		require.Equal(t, signature, signature2)
	})
}

// Whatever is read as a payload of a channel: no panic, and written again it is read as the same.
func FuzzDecodeChannel(f *testing.F) {
	for name, v := range readJSON[map[string]struct {
		Payload struct{ Payload json.RawMessage }
	}](f, "../testdata/batch-vectors.json") {
		if strings.HasPrefix(name, "batch_deposit") || strings.Contains(name, "voucher") {
			f.Add([]byte(v.Payload.Payload))
		}
	}
	f.Add([]byte(`{"type":"voucher","channelConfig":{},"voucher":{}}`))
	f.Add([]byte(`{"type":"deposit","deposit":{"amount":"1","authorization":{}}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, s, err := DecodeChannel(usdc, payload)
		if err != nil {
			return
		}
		again := must.Get(EncodeChannel(m, s))(t)
		n, s2, err := DecodeChannel(usdc, again)
		require.NoError(t, err)
		require.Equal(t, m, n)
		require.Equal(t, s, s2)
	})
}

func TestRecoverAgentIsStrict(t *testing.T) {
	made := vaultPayload(t)
	agent, _, err := RecoverAgent(sepolia, usdc, made)
	require.NoError(t, err)
	require.Equal(t, us, agent)
	a, wrapped, err := decodePayload(made)
	require.NoError(t, err)
	object := must.Get(EncodeAuthorization(a))(t)
	for i := range wrapped {
		if i >= signatureStart && i < signatureStart+65 {
			continue // the agent's signature itself: another one is another agent's, or none
		}
		bad := bytes.Clone(wrapped)
		bad[i] ^= 1
		payload := must.Get(Encode(object, bad))(t)
		_, _, err = RecoverAgent(sepolia, usdc, payload)
		require.Error(t, err, "byte %d", i)
	}
	for _, bad := range [][]byte{nil, wrapped[:319], append(bytes.Clone(wrapped), 0), wrapped[:65]} {
		payload := must.Get(Encode(object, bad))(t)
		_, _, err = RecoverAgent(sepolia, usdc, payload)
		require.Error(t, err)
	}
}

const (
	sepolia  = "eip155:84532"
	payee    = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	stranger = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	us       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	vault    = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
)

var usdc = x402.AssetInfo{Network: sepolia, Address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
	Symbol: "USDC", Decimals: 6, Name: "USDC", Version: "2"}

func readJSON[T any](t testing.TB, path string) (v T) {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	require.NoError(t, json.Unmarshal(content, &v))
	return v
}

// vaultPayload is a payment out of a vault, signed by the vectors' key, which is its agent's.
func vaultPayload(t testing.TB) []byte {
	key := must.Get(crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))(t)
	a := message.Authorization3009{From: vault, To: payee, Value: money.NewAmount(10_000),
		ValidBefore: 1740672149, Nonce: [32]byte{1, 2, 3}}
	digest := must.Get(Digest(usdc, a))(t)
	signature := must.Get(crypto.Sign(digest[:], key))(t)
	signature[64] += 27
	wrapped := must.Get(Wrap(a, [65]byte(signature)))(t)
	object := must.Get(EncodeAuthorization(a))(t)
	return must.Get(Encode(object, wrapped))(t)
}

// Appendix A.9 of the protocol reference, and EIP-20.
func TestTypeHashesAndSelectors(t *testing.T) {
	require.Equal(t, "0x7c7c6cdb67a18743f49ec6fa9b35f50d52ed05cbed4cc592e13b44501c1a2267",
		message.Hex(crypto.Keccak256([]byte(transferType))))
	require.Equal(t, crypto.Keccak256([]byte("approve(address,uint256)"))[:4], selectApprove)
}
