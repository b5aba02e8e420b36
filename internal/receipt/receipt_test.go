package receipt

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// genuine are receipts of payments that the sandbox's chains made; testdata/script/export.txt makes
// such.
func genuine(t *testing.T, name string) []byte {
	t.Helper()
	return must.Get(os.ReadFile("testdata/" + name + ".json"))(t)
}

func TestGenuine(t *testing.T) {
	for _, name := range []string{"evm", "solana"} {
		v := must.Get(Verify(genuine(t, name), x402.NewRegistry(nil)))(t)
		require.True(t, v.OK, "%+v", v.Checks)
		require.Len(t, v.Checks, 6)
		require.Len(t, v.Beyond, 3)
	}
}

// Whatever of a receipt is changed that it vouches for, it does not hold any more.
func TestForged(t *testing.T) {
	for _, line := range []struct {
		name, path string
		value      any
	}{
		{"evm", "payment.amount", "1001"},
		{"evm", "payment.payTo", "0x0000000000000000000000000000000000000001"},
		{"evm", "payment.payer", "0x0000000000000000000000000000000000000001"},
		{"evm", "payment.network", "eip155:8453"},
		{"evm", "payment.asset", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"},
		{"evm", "payment.price", "$1"},
		{"evm", "payment.transaction", "0x00"}, {"evm", "payment.proof", "claimed"},
		{"evm", "payment.status", "failed"},
		{"evm", "terms.amount", "1"}, {"evm", "terms.payTo", "0x0000000000000000000000000000000000000001"},
		{"evm", "terms.network", "eip155:8453"}, {"evm", "terms.asset", "0x01"},
		{"evm", "signed.payload.signature", "0x" + strings.Repeat("11", 65)},
		{"evm", "signed.payload.authorization.value", "1001"}, {"evm", "signed.payload", nil},
		{"evm", "settlement.success", false}, {"evm", "settlement.network", "eip155:8453"},
		{"evm", "settlement.amount", "7"},
		{"evm", "chain.transaction", "0x01"}, {"evm", "chain", nil},
		{"solana", "payment.amount", "1001"},
		{"solana", "payment.payTo", "HGa5771mZwzC7jfGX3GcubXgH7s221ejcJqAveMsfbEM"},
		{"solana", "payment.payer", "HGa5771mZwzC7jfGX3GcubXgH7s221ejcJqAveMsfbEM"},
		{"solana", "payment.asset", "HGa5771mZwzC7jfGX3GcubXgH7s221ejcJqAveMsfbEM"},
		{"solana", "signed.payload.transaction", "AgAA"}, {"solana", "terms.amount", "1"},
	} {
		t.Run(line.name, func(t *testing.T) {
			v, err := Verify(changed(t, genuine(t, line.name), line.path, line.value), x402.NewRegistry(nil))
			require.True(t, err != nil || !v.OK, "%s %s", line.name, line.path)
		})
	}
}

// A forgery that agrees with itself everywhere but under the signature.
func TestForgedThroughout(t *testing.T) {
	for name, signed := range map[string]string{"evm": "what is signed is 1000",
		"solana": "what is signed is 1000"} {
		text := genuine(t, name)
		for _, path := range []string{"payment.amount", "terms.amount", "signed.accepted.amount"} {
			text = changed(t, text, path, "2000")
		}
		v := must.Get(Verify(changed(t, text, "payment.price", "$0.002"), x402.NewRegistry(nil)))(t)
		require.False(t, v.OK)
		for _, c := range v.Checks {
			require.Equal(t, c.What != "the payer signed this payment", c.OK, c.What)
		}
		require.Equal(t, signed, v.Checks[0].Why)

		other := map[string]string{"evm": "0x0000000000000000000000000000000000000001",
			"solana": "HGa5771mZwzC7jfGX3GcubXgH7s221ejcJqAveMsfbEM"}[name]
		text = changed(t, changed(t, changed(t, genuine(t, name), "payment.payTo", other), "terms.payTo",
			other), "signed.accepted.payTo", other)
		v = must.Get(Verify(text, x402.NewRegistry(nil)))(t)
		require.False(t, v.Checks[0].OK)
		require.Contains(t, v.Checks[0].Why, "what is signed pays")
	}
}

// One letter of the signed Solana message, behind the two signatures.
func TestForgedTransaction(t *testing.T) {
	text := string(genuine(t, "solana"))
	i := strings.Index(text, `"transaction": "Ag`) + 300
	forged := text[:i] + map[bool]string{true: "B", false: "A"}[text[i] == 'A'] + text[i+1:]
	require.False(t, must.Get(Verify([]byte(forged), x402.NewRegistry(nil)))(t).OK)
}

func changed(t *testing.T, text []byte, path string, value any) []byte {
	t.Helper()
	whole := must.JSON[map[string]any](text)(t)
	at := whole
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		at = at[step].(map[string]any)
	}
	if value == nil {
		delete(at, steps[len(steps)-1])
	} else {
		at[steps[len(steps)-1]] = value
	}
	return must.Get(json.Marshal(whole))(t)
}

func TestNoReceipt(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", `{"format":"x402-wallet-receipt"}`,
		strings.Replace(string(genuine(t, "evm")), `"version": 1`, `"version": 2`, 1),
		strings.Replace(string(genuine(t, "evm")), `"format"`, `"x": 1, "format"`, 1),
		strings.Replace(string(genuine(t, "evm")), `"id"`, `"id": "a", "id"`, 1)} {
		t.Run(text, func(t *testing.T) {
			_, err := Verify([]byte(text), x402.NewRegistry(nil))
			require.True(t, x402.HasCode(err, x402.InvalidArgument), "%v", err)
		})
	}
}

// Each member of a receipt, changed alone, makes it not hold; but for those that Beyond speaks of,
// and what a seller is free to say.
func TestEveryMember(t *testing.T) {
	free := []string{
		// what the payer wrote down
		"payment.id", "payment.method", "payment.url", "content.bytes", "content.sha256", "content.type",
		"content.whole",
		"chain.block",                                // what its node showed
		"settlement.payer", "settlement.transaction", // the seller's words, where the chain has better ones
		"signed.resource.description", "signed.resource.mimeType", "signed.resource.url",
		"signed.x402Version",
	}
	for _, name := range []string{"evm", "solana"} {
		whole := must.JSON[map[string]any](genuine(t, name))(t)
		held := []string{}
		for path, value := range members("", whole) {
			v, err := Verify(changed(t, genuine(t, name), path, another(value)), x402.NewRegistry(nil))
			if err == nil && v.OK {
				held = append(held, path)
			}
		}
		require.ElementsMatch(t, free, held, name)
	}
}

// Without a proof of the chain a payment's time is held against its signature's alone.
func TestTimeOfAClaim(t *testing.T) {
	claim := changed(t, changed(t, genuine(t, "evm"), "chain", nil), "payment.proof", "claimed")
	v := must.Get(Verify(claim, x402.NewRegistry(nil)))(t)
	require.True(t, v.OK, "%+v", v.Checks)
	v = must.Get(Verify(changed(t, claim, "payment.time", "2027-11-22T02:14:55Z"), x402.NewRegistry(nil)))(t)
	require.False(t, v.OK)
}

func members(at string, object map[string]any) map[string]any {
	all := map[string]any{}
	for name, value := range object {
		if inner, ok := value.(map[string]any); ok {
			maps.Copy(all, members(at+name+".", inner))
		} else {
			all[at+name] = value
		}
	}
	return all
}

// another is a value of the same kind that says something else: a later day, a larger number,
// another text of the same form.
func another(value any) any {
	switch v := value.(type) {
	case bool:
		return !v
	case float64:
		return v + 1
	case string:
		if day, err := time.Parse(time.RFC3339, v); err == nil {
			return day.AddDate(1, 0, 0)
		}
		if last := v[len(v)-1]; last >= '0' && last < '9' {
			return v[:len(v)-1] + string(last+1)
		}
		return v + "1"
	}
	return "?"
}

// A token that only the payer's registry has is taken from the receipt, and that is said.
func TestUnknownToken(t *testing.T) {
	text := changed(t, genuine(t, "evm"), "payment.symbol", "EURC")
	v := must.Get(Verify(text, x402.NewRegistry(nil)))(t)
	require.False(t, v.OK, "the registry's name counts, not the receipt's")
	text = changed(t, genuine(t, "evm"), "payment.asset", "0x0000000000000000000000000000000000000009")
	v = must.Get(Verify(text, x402.NewRegistry(nil)))(t)
	require.False(t, v.OK)
	require.Contains(t, strings.Join(v.Beyond, "\n"), "what the token is")
}

// A signature that is good for money is given to nobody.
func TestNoReceiptWhileTheSignatureIsGood(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := history.Payment{
		State: history.Settled, Proof: history.Claimed, Network: "eip155:84532",
		Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Amount: money.NewAmount(1),
		Payload:     []byte("{}"),
		Requirement: []byte("{}"), Evidence: x402.Evidence{ExpiresAt: now},
	}
	for state, ok := range map[history.State]bool{history.Reserved: false, history.Submitted: false,
		history.Unknown: false, history.Failed: false, history.Settled: true} {
		t.Run(fmt.Sprint(state), func(t *testing.T) {
			p.State = state
			_, err := Of(p, nil, x402.NewRegistry(nil), scheme.Plain{}, now.Add(2*time.Minute))
			require.Equal(t, ok, err == nil, state)
		})
	}
	p.State = history.Settled
	assets := x402.NewRegistry(nil)
	require.ErrorContains(t, must.Err(Of(p, nil, assets, scheme.Plain{}, now)), "not given away")
	p.Proof, p.ChainProof = history.Chain, json.RawMessage(`{"state":"settled","transaction":"t","block":1}`)
	bought := &history.Content{Body: []byte("weather"), Truncated: true}
	r, err := Of(p, bought, assets, scheme.Plain{}, now)
	require.NoError(t, err)
	require.Equal(t, "t", r.Chain.Transaction)
	require.False(t, r.Content.Whole)
}

// A payment by MPP is checked as any other. Its challenge is under the signature: the nonce is made of it.
func TestMPP(t *testing.T) {
	text := genuine(t, "mpp")
	v := must.Get(Verify(text, x402.NewRegistry(nil)))(t)
	require.True(t, v.OK, "%+v", v.Checks)
	require.Len(t, v.Checks, 5, "the chain was not asked")

	for _, path := range []string{"id", "realm"} { // said otherwise in both places, it is not what was signed
		other := changed(t, changed(t, text, "terms."+path, "another"), "signed.challenge."+path, "another")
		v := must.Get(Verify(other, x402.NewRegistry(nil)))(t)
		require.False(t, v.OK, path)
		require.Contains(t, fmt.Sprint(v.Checks), "another challenge was answered")
	}
	free := []string{
		"payment.id", "payment.method", "payment.url", "content.bytes", "content.sha256", "content.type",
		"content.whole", "settlement.method", "settlement.timestamp", "signed.source",
	}
	whole := must.JSON[map[string]any](text)(t)
	held := []string{}
	for path, value := range members("", whole) {
		v, err := Verify(changed(t, text, path, another(value)), x402.NewRegistry(nil))
		if err == nil && v.OK {
			held = append(held, path)
		}
	}
	require.ElementsMatch(t, free, held)
}

// A payment out of a vault is signed by another key than the payer's, which has none.
func TestOfAVault(t *testing.T) {
	const vault = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
	key := must.Get(crypto.GenerateKey())(t)
	agent := crypto.PubkeyToAddress(key.PublicKey).Hex()
	text := genuine(t, "evm")
	r := must.JSON[struct {
		Payment struct{ Network, Asset string }
		Signed  struct {
			Payload struct{ Authorization json.RawMessage }
		}
	}](text)(t)
	a := must.Get(message.DecodeAuthorization(r.Signed.Payload.Authorization))(t)
	a.From = vault
	asset, known := x402.NewRegistry(nil).Asset(r.Payment.Network, r.Payment.Asset)
	require.True(t, known)
	digest := must.Get(payload.Digest(asset, a))(t)
	signature := must.Get(crypto.Sign(digest[:], key))(t)
	signature[64] += 27
	value := a.Value.Bytes32()
	wrapped := slices.Concat(common.LeftPadBytes(common.FromHex(a.To), 32), value[:], uintWord(a.ValidAfter),
		uintWord(a.ValidBefore), a.Nonce[:], uintWord(192), uintWord(65), signature, make([]byte, 31))
	for path, value := range map[string]any{
		"payment.payer": vault, "signed.payload.authorization.from": vault,
		"signed.payload.signature": "0x" + hex.EncodeToString(wrapped)} {
		text = changed(t, text, path, value)
	}
	v := must.Get(Verify(text, x402.NewRegistry(nil)))(t)
	require.Contains(t, strings.Join(v.Beyond, "\n"), agent)
	for _, c := range v.Checks {
		require.True(t, c.OK || c.What != "the payer signed this payment", "%+v", c)
	}
	v = must.Get(Verify(changed(t, text, "payment.payer", agent), x402.NewRegistry(nil)))(t)
	require.False(t, v.OK, "the key's own account paid nothing")
}

func uintWord(n int64) []byte { return common.LeftPadBytes(big.NewInt(n).Bytes(), 32) }
