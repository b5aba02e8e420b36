package paywall

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// statementVectors are the reference's (@x402/extensions 2.27), with public test keys.
type statementVectors struct {
	Now     int64
	Keys    struct{ Solana struct{ SeedHex string } }
	Vectors map[string]struct {
		Object    json.RawMessage
		Canonical string
	}
}

// What is signed is the reference's, byte for byte.
func TestStatementVectors(t *testing.T) {
	all := must.JSON[statementVectors](must.Get(os.ReadFile("../x402/testdata/extension-vectors.json"))(t))(t)
	key := ed25519.NewKeyFromSeed(must.Get(hex.DecodeString(all.Keys.Solana.SeedHex))(t))
	const url, network = "https://api.example.com/premium-data", "eip155:84532"
	now := time.Unix(all.Now, 0)
	o := offer{}
	o.terms[2] = x402.Requirement{Scheme: "exact", Network: network, Amount: money.NewAmount(10000),
		Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"}
	for name, s := range map[string]statement{
		"offer_jws_eddsa": offerStatement(o, url, now.Add(time.Minute)),
		"receipt_jws_eddsa": receiptStatement(network, url, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "",
			now),
	} {
		t.Run(name, func(t *testing.T) {
			v := all.Vectors[name]
			made := s.signed(key)
			if name == "offer_jws_eddsa" {
				made["acceptIndex"] = 0
			}
			require.JSONEq(t, string(v.Object), string(jsonOf(made)))
			require.Equal(t, v.Canonical, string(s.canonical()))
		})
	}
}

// RFC 8785 escapes what JSON must, and nothing else.
func TestCanonicalText(t *testing.T) {
	s := receiptStatement("n", "a<b>&\"\\\u2028\u2029é\\u2028", "p", "", time.Unix(1, 0))
	require.Equal(t, `{"issuedAt":1,"network":"n","payer":"p","resourceUrl":"a<b>&\"\\`+"\u2028\u2029é"+
		`\\u2028","version":1}`, string(s.canonical()))
}

func statementsIn(t *testing.T, extensions json.RawMessage) (info struct {
	Offers []struct {
		Format, Signature string
		AcceptIndex       int
	}
	Receipt *struct{ Format, Signature string }
}) {
	t.Helper()
	all := must.JSON[map[string]struct{ Info json.RawMessage }](extensions)(t)
	require.Contains(t, all, extensionStatements)
	require.NoError(t, json.Unmarshal(all[extensionStatements].Info, &info))
	return info
}

func verified(t *testing.T, key ed25519.PrivateKey, jws string) (payload map[string]any) {
	t.Helper()
	parts := strings.Split(jws, ".")
	require.Len(t, parts, 3)
	signature := must.Get(base64.RawURLEncoding.DecodeString(parts[2]))(t)
	public, _ := key.Public().(ed25519.PublicKey)
	require.True(t, ed25519.Verify(public, []byte(parts[0]+"."+parts[1]), signature))
	text := must.Get(base64.RawURLEncoding.DecodeString(parts[1]))(t)
	require.NoError(t, json.Unmarshal(text, &payload))
	return payload
}

// A buyer gets a signed offer for each way to pay, and with the goods a signed receipt: the same one when it
// asks for a lost answer. What is echoed of the offers is no payment's concern.
func TestOffersAndReceiptsAreSigned(t *testing.T) {
	for name, withTransaction := range map[string]bool{"private": false, "with the transaction": true} {
		t.Run(name, func(t *testing.T) {
			_, key, err := ed25519.GenerateKey(nil)
			require.NoError(t, err)
			l := newLab(t, func(_ *lab, o *Options) {
				o.StatementKey, o.ReceiptTransaction = key, withTransaction
			})
			c := l.call(t, nil, nil).challenge()
			offers := statementsIn(t, jsonOf(c.Extensions)).Offers
			require.Len(t, offers, 2)
			for i, o := range offers {
				said := verified(t, key, o.Signature)
				require.Equal(t, i, o.AcceptIndex)
				require.Equal(t, []any{"exact", c.Accepts[i].Network, c.Accepts[i].Asset, c.Accepts[i].PayTo,
					"1000",
					"mcp://tool/search"}, []any{said["scheme"], said["network"], said["asset"], said["payTo"],
					said["amount"], said["resourceUrl"]})
				require.InDelta(t, time.Now().Add(defaultTimeout).Unix(), said["validUntil"], 60)
			}
			payload := l.payer.sign(t, c, 0, named)
			require.Contains(t, string(payload), extensionStatements, "echoed")
			g := l.call(t, nil, meta(c, payload))
			require.Equal(t, product, g.text, "%s", g.Result)
			receipt := statementsIn(t, extensionsOf(t, g)).Receipt
			said := verified(t, key, receipt.Signature)
			require.Equal(t, []any{l.payer.Address(), "mcp://tool/search", "eip155:84532"},
				[]any{said["payer"],
					said["resourceUrl"], said["network"]})
			if withTransaction {
				require.Equal(t, g.receipt().Transaction, said["transaction"])
			} else {
				require.NotContains(t, said, "transaction")
			}
			again := l.call(t, nil, meta(c, payload))
			require.Equal(t, receipt.Signature, statementsIn(t, extensionsOf(t, again)).Receipt.Signature)
		})
	}
}

func extensionsOf(t *testing.T, g got) json.RawMessage {
	t.Helper()
	said := must.JSON[struct{ Extensions json.RawMessage }](jsonOf(g.meta[wire.MetaReceipt]))(t)
	return said.Extensions
}

// A receipt is for what was delivered.
func TestReceiptsAreForWhatIsDelivered(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	fails := false
	l := newLab(t, func(_ *lab, o *Options) { o.StatementKey, o.Tools[0].Upfront = key, true })
	given := l.tool
	l.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if fails {
			return &mcp.CallToolResult{IsError: true}, nil
		}
		return given(ctx, r)
	}
	require.NotEmpty(t, extensionsOf(t, l.buy(t, nil)))
	fails = true
	g := l.buy(t, nil)
	require.True(t, g.isError)
	require.True(t, g.receipt().Success, "the attempt was paid for")
	require.Empty(t, extensionsOf(t, g))
}

// Version 1 has no extensions.
func TestVersion1HasNoStatements(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	l := newLab(t, func(_ *lab, o *Options) { o.StatementKey, o.Version = key, 1 })
	require.Empty(t, l.call(t, nil, nil).challenge().Extensions)
	g := l.buy(t, nil)
	require.Equal(t, product, g.text)
	require.Empty(t, extensionsOf(t, g))
}

// Over HTTP they come in the same headers as the rest.
func TestStatementsOverHTTP(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	s := newMPPShop(t, false)
	s.paywall.options.StatementKey = key
	asked := s.get(t, "", "")
	c := must.Get(wire.ReadChallenge(asked.StatusCode, asked.Header, nil))(t)
	said := verified(t, key, statementsIn(t, jsonOf(c.Extensions)).Offers[0].Signature)
	require.Equal(t, s.web.URL+"/", said["resourceUrl"])
	paid := s.get(t, "PAYMENT-SIGNATURE", base64.StdEncoding.EncodeToString(s.payer.sign(t, c, 0, nil)))
	require.Equal(t, http.StatusOK, paid.StatusCode)
	text := must.Get(base64.StdEncoding.DecodeString(paid.Header.Get("PAYMENT-RESPONSE")))(t)
	receipt := must.JSON[struct{ Extensions json.RawMessage }](text)(t)
	require.Equal(t, said["resourceUrl"], verified(t, key, statementsIn(t,
		receipt.Extensions).Receipt.Signature)["resourceUrl"])
}
