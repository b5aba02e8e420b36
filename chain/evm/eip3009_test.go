package evm

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Appendix A.9 of the protocol reference, and the ABI of EIP-20 and EIP-3009.
func TestTypeHashesAndSelectors(t *testing.T) {
	keccak := func(s string) string { return hexOf(crypto.Keccak256([]byte(s))) }
	require.Equal(t, "0x7c7c6cdb67a18743f49ec6fa9b35f50d52ed05cbed4cc592e13b44501c1a2267",
		keccak(transferType))
	require.Equal(t, "0x8b73c3c69bb8fe3d512ecc4cf759cc79239f7b179b0ffacaa9a75d522b39400f", keccak(domainType))
	require.Equal(t, keccak("balanceOf(address)")[:10], hexOf(selectBalanceOf))
	require.Equal(t, keccak("authorizationState(address,bytes32)")[:10], hexOf(selectAuthorizationState))
	require.Equal(t, keccak("state()")[:10], hexOf(selectState))
	require.Equal(t, keccak("AuthorizationUsed(address,bytes32)"), topicUsed.Hex())
	require.Equal(t, keccak("AuthorizationCanceled(address,bytes32)"), topicCanceled.Hex())
	require.Equal(t, keccak("Transfer(address,address,uint256)"), topicTransfer.Hex())

	const permit, approval = "((address,uint256),uint256,uint256)", "(uint256,uint256,bytes32,bytes32,uint8)"
	require.Equal(t, keccak("allowance(address,address)")[:10], hexOf(selectAllowance))
	require.Equal(t, keccak("nonces(address)")[:10], hexOf(selectNonces))
	require.Equal(t, keccak("nonceBitmap(address,uint256)")[:10], hexOf(selectNonceBitmap))
	require.Equal(t, keccak("UnorderedNonceInvalidation(address,uint256,uint256)"), topicInvalidated.Hex())
	for i, call := range []string{"settle(" + permit + ",address,(address,uint256),bytes)",
		"settleWithPermit(" + approval + "," + permit + ",address,(address,uint256),bytes)",
		"settle(" + permit + ",uint256,address,(address,address,uint256),bytes)",
		"settleWithPermit(" + approval + "," + permit + ",uint256,address,(address,address,uint256),bytes)"} {
		require.Equal(t, keccak(call)[:10], hexOf(settleCalls[i].selector()))
	}
}

// DOMAIN_SEPARATOR() of USDC as the chain answers it (lab/LAB.md): the chain id comes from CAIP-2,
// the rest from the registry. testdata/domains.json is what tokens of the registry answered others, who
// published it in 2026 with the block or the date.
func TestDomainSeparatorIsTheTokens(t *testing.T) {
	base := x402.AssetInfo{Network: "eip155:8453", Address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		Name: "USD Coin", Version: "2"}
	for want, asset := range map[string]x402.AssetInfo{
		"0x71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818": usdc,
		"0x02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f": base,
	} {
		got, err := domainSeparator(asset)
		require.NoError(t, err)
		require.Equal(t, want, got.Hex())
	}
	var said []struct{ Network, Asset, Separator string }
	read, err := os.ReadFile("testdata/domains.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(read, &said))
	registry := x402.NewRegistry(nil)
	for _, token := range said {
		asset, known := registry.Asset(token.Network, token.Asset)
		require.True(t, known, token.Asset)
		got, err := domainSeparator(asset)
		require.NoError(t, err)
		require.Equal(t, token.Separator, got.Hex(), "%s on %s", asset.Symbol, x402.Title(asset.Network))
	}
	for i, bad := range []x402.AssetInfo{
		{Network: "eip155:08453", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: "eip155:", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: "eip155:18446744073709551616", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: "solana:x", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: base.Network, Address: base.Address, Version: "2"},
		{Network: base.Network, Address: base.Address, Name: "USD Coin"},
		{Network: base.Network, Address: "0x83", Name: "USD Coin", Version: "2"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			_, err := domainSeparator(bad)
			require.Error(t, err, "%+v", bad)
		})
	}
}

func TestParseAddress(t *testing.T) {
	for _, good := range []string{payee, strings.ToLower(payee), "0x" + strings.ToUpper(payee[2:])} {
		t.Run(good, func(t *testing.T) {
			got, err := parseAddress(good)
			require.NoError(t, err)
			require.Equal(t, payee, got.Hex())
		})
	}
	for _, bad := range []string{"", "0x", payee[2:], payee[:41], payee + "0", "0X" + payee[2:], " " + payee,
		payee[:41] + "g",
		strings.Replace(payee, "B", "b", 1), "0x" + strings.Repeat("é", 20)} {
		t.Run(bad, func(t *testing.T) {
			_, err := parseAddress(bad)
			require.ErrorIs(t, err, errAddress, bad)
		})
	}
}

// The example of x402's specs/transports-v2/mcp.md carries a real signature.
func TestRecoverToolCall(t *testing.T) {
	call := readJSON[struct {
		Params struct {
			Meta map[string]struct{ Payload json.RawMessage } `json:"_meta"`
		}
	}](t, "testdata/mcp-tool-call.json")
	from, auth, err := Recover(sepolia, usdc, call.Params.Meta["x402/payment"].Payload)
	require.NoError(t, err)
	require.Equal(t, "0x857b06519E91e3A54538791bDbb0E22373e36b66", from)
	require.Equal(t, Authorization3009{From: stranger, To: payee, Value: money.NewAmount(10000),
		ValidAfter:  1740672089,
		ValidBefore: 1740672154,
		Nonce:       common.HexToHash("0xf3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480")},
		auth)
}

func goodPayload(t testing.TB) string {
	v := readJSON[vectors](t, "testdata/x402-vectors-eip3009.json")
	var compact struct{ Authorization, Signature json.RawMessage }
	require.NoError(t, json.Unmarshal(v.Vectors["v2_exact_eip3009"].Payload.Payload, &compact))
	made, err := json.Marshal(map[string]json.RawMessage{"authorization": compact.Authorization,
		"signature": compact.Signature})
	require.NoError(t, err)
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
		"endless":                 {`{"auth`, `{` + strings.Repeat(" ", maxPayload) + `"auth`, errPayload},
		"short signature":         {signature, signature[:130], errPayload},
		"contract's signature":    {signature, signature + "00", errPayload},
		"v 0":                     {signature, signature[:130] + "00", ErrSignature},
		"v 29":                    {signature, signature[:130] + "1d", ErrSignature},
		"other v":                 {signature, signature[:130] + "1c", ErrSignature},
		"malleable twin":          {signature, twin(t, signature), ErrSignature},
		"r 0":                     {signature, "0x" + strings.Repeat("0", 64) + signature[66:], ErrSignature},
		"another amount":          {`"10000"`, `"10001"`, ErrSignature},
		"another payee":           {payee, stranger, ErrSignature},
		"another payer":           {us, stranger, ErrSignature},
		"another end":             {`"1740672149"`, `"1740672150"`, ErrSignature},
		"another nonce":           {`1f20"`, `1f21"`, ErrSignature},
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
	return hexOf(raw)
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
			require.ErrorIs(t, err, ErrSignature, name)
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
	o := order(2)
	o.Source = vault
	made, err := newFakeNode(f).payingFromVault(f, testSigner(f)).Authorize(f.Context(), o)
	require.NoError(f, err)
	f.Add([]byte(made.Payload))
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
			require.ErrorIs(t, errRecover, ErrSignature)
			require.Empty(t, from)
		}
		agent, ofVault, errAgent := RecoverAgent(sepolia, usdc, payload)
		if errAgent == nil {
			own, err := unwrap(auth, signature)
			require.NoError(t, err)
			same, err := wrap(ofVault, own)
			require.NoError(t, err)
			require.Equal(t, signature, same, "%s signed one message", agent)
			require.Error(t, errRecover, "no signature is both")
		}
		object, err := EncodeAuthorization(auth)
		require.NoError(t, err)
		again, err := encodePayload(object, signature)
		require.NoError(t, err)
		auth2, signature2, err := decodePayload(again)
		require.NoError(t, err)
		require.Equal(t, auth, auth2)
		require.Equal(t, signature, signature2)
	})
}
