package facilitator

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

const twoKinds = `200 {"kinds":[
 {"x402Version":1,"scheme":"exact","network":"base-sepolia"},
 {"x402Version":2,"scheme":"exact","network":"eip155:84532","extra":null},
 {"x402Version":2,"scheme":"exact","network":"solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
  "extra":{"feePayer":"FA"}},
 {"x402Version":2,"scheme":"exact","network":"near mainnet"}],"extensions":[],"signers":{}}`

func open2(w *fakeNetwork, names ...string) *Client {
	c := w.client(names...)
	for _, f := range c.list {
		f.Networks = nil
	}
	return c
}

func TestSupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(map[string]script{"a": {yes}})
		w.supported["a"] = twoKinds
		c := open2(w, "a")
		kinds := must.Get(c.Supported(t.Context(), ""))(t)
		assert.Len(t, kinds, 3, "a network nobody knows is left out")
		kinds = must.Get(c.Supported(t.Context(), sepolia))(t)
		require.Len(t, kinds, 2)
		assert.Equal(t, Kind{Facilitator: "a", Version: 1, Scheme: "exact", Network: sepolia}, kinds[0])
		assert.Equal(t, Kind{Facilitator: "a", Version: 2, Scheme: "exact", Network: "eip155:84532"},
			kinds[1])

		payer, who, err := c.FeePayer(t.Context(), Terms{Network: devnet}, 2, nil)
		require.NoError(t, err)
		assert.Equal(t, "FA a", payer+" "+who)
		payer, _, err = c.FeePayer(t.Context(), Terms{Network: devnet}, 2, []string{"FA"})
		require.NoError(t, err)
		assert.Equal(t, "FA", payer, "there is nobody else")
		_, _, err = c.FeePayer(t.Context(), Terms{Network: devnet}, 1, nil)
		assert.ErrorContains(t, err, "no facilitator pays the fee")
		_, _, err = c.FeePayer(t.Context(), Terms{Network: sepolia}, 2, nil)
		assert.Error(t, err)

		s := evm
		s.Network = base
		assert.Equal(t, NotSent, c.Settle(t.Context(), s).Outcome, "it says that it does not do Base")
		assert.Empty(t, w.posts)
		assert.Len(t, w.gets, 1, "asked once in five minutes")
		time.Sleep(supportFresh)
		_, _ = c.Supported(t.Context(), "")
		assert.Len(t, w.gets, 2)
	})
}

// A failed question is unknown, not "nothing", and is asked again soon.
func TestSupportedFailing(t *testing.T) {
	for _, said := range []string{"refused", "hang", "500 ", "200 ", "200 []", `200 {"kinds":[],"kinds":[]}`,
		`200 {"kinds":"all"}`} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(map[string]script{"a": {yes}, "b": {yes}})
			w.supported["a"], w.supported["b"] = said, kinds(2, devnet, "FB")
			c := open2(w, "a", "b")
			r := c.Settle(t.Context(), evm)
			assert.Equal(t, Settled, r.Outcome, said)
			assert.LessOrEqual(t, time.Since(w.start), shortCall, said)
			assert.Equal(t, "a", strings.Join(w.gets, " "), "the second is not asked before it is needed")
			payer, who, err := c.FeePayer(t.Context(), Terms{Network: devnet}, 2, nil)
			require.NoError(t, err)
			assert.Equal(t, "FB b", payer+" "+who)
			assert.Equal(t, "a b", strings.Join(w.gets, " "))
			time.Sleep(supportRetry)
			assert.Error(t, must.Err(c.Supported(t.Context(), devnet)))
			assert.Equal(t, "a b a", strings.Join(w.gets, " "))
		})
	}
}

func TestSupportedEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(nil)
		w.supported["a"] = "hang"
		c := open2(w, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = c.Supported(t.Context(), "") }()
		synctest.Wait()
		assert.ErrorIs(t, must.Err(c.Supported(ctx, "")), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(w.start))
		time.Sleep(shortCall)
	})
}

func TestServes(t *testing.T) {
	for _, row := range []struct {
		networks       []string
		network        string
		given, exactly bool
	}{
		{nil, base, true, false},
		{[]string{base}, base, true, true},
		{[]string{base}, sepolia, false, false},
		{[]string{mainnets}, base, true, false},
		{[]string{mainnets}, sepolia, false, false},
		{[]string{testnets}, sepolia, true, false},
		{[]string{testnets}, "eip155:31337", false, false}, // unknown is taken for real money
		{[]string{testnets, "eip155:31337"}, "eip155:31337", true, true},
	} {
		given, exactly := Facilitator{Networks: row.networks}.serves(row.network)
		assert.Equal(t, row.given, given, "%v %s", row.networks, row.network)
		assert.Equal(t, row.exactly, exactly, "%v %s", row.networks, row.network)
	}
}

// Who let a payment die is passed over for the next one: its fee payer is signed in, so nobody else
// could have settled that.
func TestAnotherFeePayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(map[string]script{"a": {yes}, "b": {yes}})
		w.supported["a"], w.supported["b"] = kinds(2, devnet, "FA"), kinds(2, devnet, "FB")
		c := open2(w, "a", "b")
		for _, test := range []struct {
			avoid []string
			want  string
		}{{nil, "FA a"}, {[]string{"FA"}, "FB b"}, {[]string{"FB"}, "FA a"}, {[]string{"FB", "FA"}, "FA a"}} {
			payer, who, err := c.FeePayer(t.Context(), Terms{Network: devnet}, 2, test.avoid)
			require.NoError(t, err)
			assert.Equal(t, test.want, payer+" "+who, test.avoid)
		}
	})
}

// An address is the owner's facilitators' if one of those that were given the network says so itself.
func TestHasSigner(t *testing.T) {
	const address = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	for said, want := range map[string]bool{
		`200 {"kinds":[],"signers":{"eip155:*":["0x00","` + strings.ToLower(address) + `"]}}`: true,
		`200 {"kinds":[],"signers":{"eip155:*":["0x00"]}}`:                                    false,
		`200 {"kinds":[],"signers":["` + address + `"]}`:                                      false,
		`500 `: false,
		`hang`: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(map[string]script{"a": {yes}, "b": {yes}})
			w.supported["a"], w.supported["b"] = said, kinds(2, devnet, "FB")
			assert.Equal(t, want, open2(w, "a", "b").HasSigner(t.Context(), sepolia, address), said)
			assert.False(t, open2(w, "b").HasSigner(t.Context(), sepolia, address))
		})
	}
}

// With the addresses that are built in nobody is asked about those, on their network alone.
func TestHasSigner_Hosted(t *testing.T) {
	const base, cdp, payAI = "eip155:8453", "0xdbdf3d8ed80f84c35d01c6c9f9271761bad90ba6",
		"0xC6699D2AADA6C36DFEA5C248DD70F9CB0235CB63"
	for _, hosted := range []bool{true, false} {
		c := New(Options{Hosted: hosted})
		for _, address := range []string{cdp, payAI} {
			require.Equal(t, hosted, c.HasSigner(t.Context(), base, address))
			require.False(t, c.HasSigner(t.Context(), sepolia, address))
		}
		require.False(t, c.HasSigner(t.Context(), base, "0x857b06519E91e3A54538791bDbb0E22373e36b66"))
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(settlesOnBase))), 55, "CDP 40, PayAI 15")
	for _, address := range settlesOnBase {
		require.Regexp(t, "^0x[0-9a-f]{40}$", address)
	}
}

// Whatever a facilitator answers to /settle: no panic, never "not sent", and settled only where it
// says so, with a transaction.
func FuzzJudge(f *testing.F) {
	for _, body := range []string{yes, `{"success":true}`,
		`{"success":false,"errorReason":"insufficient_funds"}`,
		`{"success":false,"errorReason":"settlement_pending","transaction":"0x1"}`,
		`{"success":"true","transaction":"0x1"}`, `{"success":true,"success":false,"transaction":"0x1"}`,
		`nonce already used`, ``, `<html>`} {
		for _, status := range []int{200, 302, 400, 402, 429, 500} {
			f.Add(status, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		j := judge(reply{status: status, body: body, connected: true}, Submission{Network: sepolia})
		require.NotEqual(t, NotSent, j.outcome)
		if j.outcome != Settled {
			require.Error(t, j.err)
			return
		}
		var said struct {
			Success     bool   `json:"success"`
			Transaction string `json:"transaction"`
		}
		require.NoError(t, x402.DecodeStrict(body, maxReply, &said))
		require.True(t, said.Success && said.Transaction != "" && status < 300, "settled by %d %s", status,
			body)
	})
}

// Whatever a facilitator says it supports: no panic, and only kinds on networks we know, under
// their CAIP-2 names.
func FuzzSupported(f *testing.F) {
	f.Add([]byte(kinds(2, sepolia, "")))
	f.Add([]byte(kinds(1, "solana-devnet", "payer")))
	f.Add([]byte(`{"kinds":[{"x402Version":2,"network":"bitcoin"},{}],"signers":{"solana:*":["a"]}}`))
	f.Add([]byte(`{"kinds":[{"extra":{"feePayer":7}}],"signers":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, _, err := readSupported(Facilitator{Name: "f"}, reply{status: http.StatusOK, body: body})
		if err != nil {
			require.Empty(t, list)
			return
		}
		require.True(t, json.Valid(body))
		require.LessOrEqual(t, len(list), maxKinds)
		for _, k := range list {
			network, known := x402.Network(k.Network)
			require.True(t, known && network == k.Network)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
