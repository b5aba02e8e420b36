package paywall

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// What a hostile buyer shows never runs the tool and never moves money. spoil changes a good
// payment; want is how it is answered: "asks" for what another payment would mend, a code for what
// is none.
func TestForgedPayments(t *testing.T) {
	l := newLab(t, func(l *lab, o *Options) {
		dear := o.Tools[0]
		dear.Name = "dear"
		dear.Accepts = []Option{{Network: sandbox.EVM, PayTo: l.PayToEVM, Price: "0.05"}}
		o.Tools = append(o.Tools, dear)
	})
	c := l.call(t, nil, nil).challenge()
	const other = "0x1111111111111111111111111111111111111111"
	for name, row := range map[string]struct {
		spoil func(text string) string
		want  string
	}{
		"a signature of nobody": {func(s string) string { return flip(t, s, `"signature":"0x`) }, "asks"},
		"to another payee": {func(s string) string {
			return strings.Replace(s, `"to":"`+l.PayToEVM, `"to":"`+other, 1)
		}, "asks"},
		"a smaller value": {func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"value":"1"`, 1)
		}, "asks"},
		"a larger value": {func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"value":"9999"`, 1)
		}, "asks"},
		"a negative value": {func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"value":"-1000"`, 1)
		}, "-32602"},
		"a value in hex": {func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"value":"0x3e8"`, 1)
		}, "-32602"},
		"a number for a value": {func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"value":1000`, 1)
		}, "-32602"},
		"from another payee": {func(s string) string {
			return strings.Replace(s, `"from":"`+l.payer.Address(), `"from":"`+other, 1)
		}, "asks"},
		"accepted: payTo": {func(s string) string {
			return strings.Replace(s, `"payTo":"`+l.PayToEVM, `"payTo":"`+other, 1)
		}, "asks"},
		"accepted: amount": {func(s string) string {
			return strings.Replace(s, `"amount":"1000"`, `"amount":"1"`, 1)
		}, "asks"},
		"accepted: asset": {func(s string) string {
			return strings.Replace(s, `"asset":"0x036CbD`, `"asset":"0x136CbD`, 1)
		}, "asks"},
		"accepted: letter case": {func(s string) string {
			return strings.Replace(s, `"asset":"0x036CbD`, `"asset":"0x036cbd`, 1)
		}, "asks"},
		"accepted: network": {func(s string) string {
			return strings.ReplaceAll(s, "eip155:84532", "eip155:8453")
		}, "asks"},
		"accepted: scheme": {func(s string) string {
			return strings.Replace(s, `"scheme":"exact"`, `"scheme":"upto"`, 1)
		}, "asks"},
		"accepted: a domain": {func(s string) string {
			return strings.Replace(s, `"name":"USDC"`, `"name":"Fake"`, 1)
		}, "asks"},
		"accepted: no extra": {func(s string) string {
			return strings.Replace(s, `"extra":`, `"other":`, 1)
		}, "asks"},
		"accepted: a year": {func(s string) string {
			return strings.Replace(s, `"maxTimeoutSeconds":300`, `"maxTimeoutSeconds":31536000`, 1)
		}, "asks"},
		"expired": {func(s string) string {
			return number(s, "validBefore", time.Now().Unix()-1)
		}, "asks"},
		"not yet good": {func(s string) string {
			return number(s, "validAfter", time.Now().Unix()+60)
		}, "asks"},
		"no payload": {func(s string) string {
			return strings.Replace(s, `"payload":`, `"load":`, 1)
		}, "-32602"},
		"no accepted": {func(s string) string {
			return strings.Replace(s, `"accepted":`, `"taken":`, 1)
		}, "-32602"},
		"version 3": {func(s string) string {
			return strings.Replace(s, `"x402Version":2`, `"x402Version":3`, 1)
		}, "-32602"},
		"version in words": {func(s string) string {
			return strings.Replace(s, `"x402Version":2`, `"x402Version":"2"`, 1)
		}, "-32602"},
		"a key twice": {func(s string) string {
			return strings.Replace(s, `"x402Version":2`, `"x402Version":2,"x402Version":2`, 1)
		}, "-32602"},
		"twins in an object": {func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"value":"1","value":"1000"`, 1)
		}, "-32602"},
		"twins but for case": {func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"Value":"1","value":"1000"`, 1)
		}, "-32602"},
		"an echo that lies": {func(s string) string {
			return strings.Replace(s, `"required":false`, `"required":true`, 1)
		}, "asks"},
		"more than there may be": {func(s string) string {
			return strings.Replace(s, `"payload":`, `"pad":"`+strings.Repeat("x", maxPayment)+`","payload":`,
				1)
		}, "-32602"},
		"too deep": {func(s string) string {
			return strings.Replace(s, `"payload":`, `"pad":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)+
				`,"payload":`, 1)
		}, "-32602"},
		"not JSON": {func(s string) string { return s[1:] }, "-32700"},
		"nothing":  {func(string) string { return "" }, "-32700"},
	} {
		t.Run(name, func(t *testing.T) {
			good := string(l.payer.sign(t, c, 0, nil))
			bad := row.spoil(good)
			require.NotEqual(t, good, bad, name)
			g := l.call(t, nil,
				map[string]any{"x402/payment": base64.StdEncoding.EncodeToString([]byte(bad))})
			if row.want == "asks" {
				require.NotEmpty(t, g.challenge().Error, name)
			} else {
				require.Equal(t, row.want, fmt.Sprint(g.Code), "%s: %s %s", name, g.Result, g.text)
			}
			l.nothingMoved(t, g)
			require.Zero(t, l.runs.Load(), name)
		})
	}
	require.Empty(t, l.sales(t))

	// A payment for the cheap tool does not buy the dear one.
	result, err := l.client.CallTool(t.Context(), callOf("dear", meta(c, l.payer.sign(t, c, 0, nil))))
	g := read(t, result, err)
	require.Equal(t, "50000", g.challenge().Accepts[0].Amount.String())
	l.nothingMoved(t, g)
}

// In version 1 a payment names only scheme and network: of two tokens of one network the signature
// tells which it is for, and of two prices the amount does.
func TestVersion1TellsOptionsApart(t *testing.T) {
	registry := x402.NewRegistry([]x402.AssetInfo{{Network: sandbox.EVM,
		Address: "0x00000000000000000000000000000000000000Aa", Symbol: "FAKE",
		Decimals: 6, USD: 1_000_000, Name: "USDC", Version: "2"}})
	l := newLab(t, func(l *lab, o *Options) {
		o.Version, o.Assets = 1, registry
		o.Tools[0].Accepts = []Option{
			{Network: sandbox.EVM, PayTo: l.PayToEVM, Price: "0.001", Asset: "FAKE"},
			{Network: sandbox.EVM, PayTo: l.PayToEVM, Price: "0.003"},
			{Network: sandbox.EVM, PayTo: l.PayToEVM, Price: "0.001"},
		}
	})
	c := l.call(t, nil, nil).challenge()
	g := l.call(t, nil, meta(c, l.payer.sign(t, c, 2, nil)))
	require.Equal(t, product, g.text, "%s", g.Result)
	require.EqualValues(t, 1000, l.Settlements()[0].Amount)
	require.Equal(t, c.Accepts[2].Asset, l.sales(t)[0].Asset, "not the first one of that price")
	g = l.call(t, nil, meta(c, l.payer.sign(t, c, 1, nil)))
	require.Equal(t, product, g.text)
	require.EqualValues(t, 3000, l.Settlements()[1].Amount)
}

// The same on Solana, where a transaction is read by this package's own eyes before a facilitator
// is asked.
func TestForgedSolanaPayments(t *testing.T) {
	l := newLab(t, func(l *lab, o *Options) {
		dear := o.Tools[0]
		dear.Name = "dear"
		dear.Accepts = []Option{{Network: sandbox.Solana, PayTo: l.PayToSolana, Price: "0.05"}}
		elsewhere := dear
		elsewhere.Name, elsewhere.Accepts = "elsewhere",
			[]Option{{Network: sandbox.Solana, PayTo: l.Owner, Price: "0.001"}}
		o.Tools = append(o.Tools, dear, elsewhere)
	})
	l.payer.openSolana(t)
	cheap := l.call(t, nil, nil).challenge()
	for _, name := range []string{"dear", "elsewhere"} {
		t.Run(name, func(t *testing.T) {
			result, err := l.client.CallTool(t.Context(), callOf(name, nil))
			asked := read(t, result, err).challenge()
			// The transaction of the cheap one, under the words of the other.
			payload := without(t, l.payer.signSolana(t, cheap, 1), "accepted")
			forged := json.RawMessage(strings.Replace(string(payload), `{`, `{"accepted":`+
				string(asked.Accepts[0].Raw)+`,`, 1))
			result, err = l.client.CallTool(t.Context(), callOf(name, map[string]any{"x402/payment": forged}))
			g := read(t, result, err)
			require.Contains(t, g.challenge().Error, map[string]string{"dear": "another amount",
				"elsewhere": "another payee"}[name])
			l.nothingMoved(t, g)
		})
	}
	for _, bad := range []string{"", "AA==", "%%%", base64.StdEncoding.EncodeToString(make([]byte, 2000))} {
		t.Run(bad, func(t *testing.T) {
			payload := without(t, l.payer.signSolana(t, cheap, 1), "payload")
			forged := json.RawMessage(strings.Replace(string(payload), `{`, `{"payload":{"transaction":"`+bad+
				`"},`, 1))
			g := l.call(t, nil, map[string]any{"x402/payment": forged})
			require.EqualValues(t, -32602, g.Code, bad)
		})
	}
	require.Zero(t, l.runs.Load())
}

// The same payment in another spelling is the same payment.
func TestTwinsOfAPayment(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	payload := string(l.payer.sign(t, c, 0, nil))
	require.Equal(t, product, l.call(t, nil, meta(c, json.RawMessage(payload))).text)
	i := strings.Index(payload, `"nonce":"0x`) + len(`"nonce":"0x`)
	for name, twin := range map[string]string{
		"blanks":              strings.ReplaceAll(payload, `,"`, ` , "`),
		"a nonce in capitals": payload[:i] + strings.ToUpper(payload[i:i+64]) + payload[i+64:],
		"an address in small": strings.Replace(payload, l.payer.Address(), strings.ToLower(l.payer.Address()),
			1),
		"another member": strings.Replace(payload, `"x402Version":2`, `"x402Version":2,"note":"mine"`,
			1),
		"without extensions": string(without(t, json.RawMessage(payload), "extensions")),
	} {
		t.Run(name, func(t *testing.T) {
			g := l.call(t, nil,
				map[string]any{"x402/payment": base64.StdEncoding.EncodeToString([]byte(twin))})
			require.EqualValues(t, -32602, g.Code, "%s: %s", name, g.Result)
			g.asksNothing()
		})
	}
	require.EqualValues(t, 1, l.runs.Load())
	require.Len(t, l.Settlements(), 1)
}

// A ledger that cannot be written sells nothing.
func TestNoBookNoSale(t *testing.T) {
	l := newLab(t, func(_ *lab, o *Options) {
		store, err := openStore(t.TempDir())
		require.NoError(t, err)
		require.NoError(t, store.Close())
		o.Store = store
	})
	g := l.buy(t, nil)
	require.True(t, g.isError)
	g.asksNothing()
	require.Zero(t, l.runs.Load())
	l.nothingMoved(t, g)
}

// flip changes one hex digit behind a mark.
func flip(t *testing.T, text, mark string) string {
	t.Helper()
	i := strings.Index(text, mark)
	require.Positive(t, i)
	at := i + len(mark) + 10
	digit := byte('0')
	if text[at] == '0' {
		digit = '1'
	}
	return text[:at] + string(digit) + text[at+1:]
}

// number replaces a decimal string.
func number(text, key string, by int64) string {
	head, rest, _ := strings.Cut(text, `"`+key+`":"`)
	_, tail, _ := strings.Cut(rest, `"`)
	return fmt.Sprintf(`%s"%s":"%d"%s`, head, key, by, tail)
}

// yes is a facilitator that finds everything good: what is signed is read here as well.
type yes struct{ *facilitator.Client }

func (yes) Verify(context.Context, facilitator.Submission) (bool, string, error) {
	return true, "", nil
}

func TestAFacilitatorThatLooksAtNothing(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	l.paywall.options.Facilitators = yes{newFacilitators(l.Sandbox)}
	for name, spoil := range map[string]func(string) string{
		"to another payee": func(s string) string {
			return strings.Replace(s, `"to":"`+l.PayToEVM, `"to":"0x1111111111111111111111111111111111111111`,
				1)
		},
		"a smaller value": func(s string) string {
			return strings.Replace(s, `"value":"1000"`, `"value":"1"`, 1)
		},
		"expired":      func(s string) string { return number(s, "validBefore", time.Now().Unix()-1) },
		"not yet good": func(s string) string { return number(s, "validAfter", time.Now().Unix()+60) },
	} {
		t.Run(name, func(t *testing.T) {
			good := string(l.payer.sign(t, c, 0, nil))
			bad := spoil(good)
			require.NotEqual(t, good, bad, name)
			g := l.call(t, nil, map[string]any{"x402/payment": json.RawMessage(bad)})
			g.challenge()
			require.Zero(t, l.runs.Load(), name)
		})
	}
}

// A payment that another call uses while a facilitator verifies it is used, not invalid: its buyer is not
// asked to pay again.
func TestUsedWhileItWasVerified(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	shown := meta(c, l.payer.sign(t, c, 0, nil))
	inner := false
	l.paywall.options.Hooks.BeforeVerify = func(context.Context, *Sale) error {
		if !inner {
			inner = true
			require.Equal(t, product, l.call(t, nil, shown).text)
		}
		return nil
	}
	g := l.call(t, nil, shown)
	require.EqualValues(t, -32602, g.Code, "%s", g.Result)
	g.asksNothing()
	require.EqualValues(t, 1, l.runs.Load())
}
