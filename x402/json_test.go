package x402

import (
	"bytes"
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// What strict JSON is not, and whether the trouble is a key that two readers read differently.
func TestStrictRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		ambiguous bool
	}{
		"duplicate key":               {`{"amount":"1","amount":"999"}`, true},
		"duplicate, escaped":          {`{"amount":"1","\u0061mount":"999"}`, true},
		"duplicate, nested":           {`{"a":[{"b":{"payTo":1,"payTo":1}}]}`, true},
		"case twin":                   {`{"amount":"1","Amount":"1"}`, true},
		"case twin in capitals":       {`{"AMOUNT":"1","amount":"1"}`, true},
		"twin by the long s":          {"{\"scheme\":1,\"\u017fcheme\":1}", true},
		"twin by the Kelvin sign":     {"{\"network\":1,\"networ\u212a\":1}", true},
		"twin after many keys":        {manyKeys(40) + `"K7":0}`, true},
		"empty":                       {``, false},
		"white space":                 {" \n", false},
		"byte order mark":             {"\ufeff{}", false},
		"second document":             {`{} {}`, false},
		"trailing comma":              {`{"a":1,}`, false},
		"trailing text":               {`{}x`, false},
		"NUL at the end":              {"{}\x00", false},
		"invalid UTF-8 in a value":    {"{\"a\":\"\xff\"}", false},
		"invalid UTF-8 in a key":      {"{\"\xc3\":1}", false},
		"overlong UTF-8":              {"\"\xc0\xaf\"", false},
		"lone high surrogate":         {`"\ud800"`, false},
		"lone low surrogate":          {`"\udc00"`, false},
		"high surrogate before text":  {`"\ud800a"`, false},
		"high before high":            {`"\ud800\ud800"`, false},
		"raw newline":                 {"\"a\nb\"", false},
		"bad escape":                  {`"\x41"`, false},
		"short escape":                {`"\u12"`, false},
		"escape at the end":           {`"\`, false},
		"open string":                 {`"a`, false},
		"open object":                 {`{"a":1`, false},
		"open array":                  {`[1`, false},
		"key without value":           {`{"a"}`, false},
		"key without quotes":          {`{a:1}`, false},
		"single quotes":               {`{'a':1}`, false},
		"comment":                     {`{}//`, false},
		"leading zero":                {`01`, false},
		"plus":                        {`+1`, false},
		"bare minus":                  {`-`, false},
		"point without digits":        {`1.`, false},
		"point first":                 {`.5`, false},
		"exponent without digits":     {`1e`, false},
		"hexadecimal":                 {`0x10`, false},
		"NaN":                         {`NaN`, false},
		"capital literal":             {`True`, false},
		"65 levels":                   {strings.Repeat("[", 65) + strings.Repeat("]", 65), false},
		"65 levels, objects":          {strings.Repeat(`{"a":`, 64) + "{}" + strings.Repeat("}", 64), false},
		"10,001 levels":               {strings.Repeat("[", 10_001), false},
		"literal with more behind it": {`nullx`, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := DecodeStrict([]byte(c.text), MaxBody, nil)
			require.True(t, HasCode(err, ResponseMalformed), "%v", err)
			require.Equal(t, c.ambiguous, isAmbiguous(err), "%v", err)
			require.Less(t, len(err.Error()), 200, "an error never repeats an endless input")
		})
	}
}

func isAmbiguous(err error) bool { return AsError(err).Err == ErrAmbiguous }

// manyKeys is an open object with n keys k0, k1, …: more than are compared one by one.
func manyKeys(n int) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		b.WriteString(`"k` + strings.Repeat("x", i/10) + string(rune('0'+i%10)) + `":0,`)
	}
	return b.String()
}

func TestStrictAccepts(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, ` { "a" : [ 1 , -0 , 0.5e+10 , 1E-2 , true , false , null ] } ` + "\r\n\t",
		`"\ud83d\ude00 \u00e9 \/\b\f\n\r\t\"\\"`,
		`[{"a":1},{"a":1},{"A":1}]`, `{"a":{"a":{"a":1}}}`, `{"":1," ":2}`, "\"\ufffd\"", `"` + "\x7f" + `"`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64), manyKeys(40) + `"last":0}`, `1e999999`,
	} {
		t.Run(text, func(t *testing.T) {
			require.NoError(t, DecodeStrict([]byte(text), MaxBody, nil), "%.60s", text)
		})
	}
}

func TestStrictSize(t *testing.T) {
	require.NoError(t, DecodeStrict([]byte(`"abc"`), 5, nil))
	err := DecodeStrict([]byte(`"abcd"`), 5, nil)
	require.True(t, HasCode(err, ResponseTooLarge))
	require.Equal(t, 5, AsError(err).Details["limit"], "the number that would have passed")
	bomb := []byte(strings.Repeat("[", 5_000_000))
	require.True(t, HasCode(DecodeStrict(bomb, MaxBody, nil), ResponseMalformed),
		"a bomb is named as one, whatever its size")
}

// Hostile sizes cost neither time nor memory. What grows with the square of such a text would
// take minutes; BenchmarkStrict has the figures.
func TestStrictIsCheapOnHostileInput(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			data := []byte(text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_ = DecodeStrict(data, 64<<20, nil)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			require.Less(t, took, 10*time.Second)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		})
	}
}

func hostile() map[string]string {
	return map[string]string{
		"5M levels":           strings.Repeat("[", 5_000_000),
		"5M levels, objects":  strings.Repeat(`{"a":`, 1_000_000),
		"1M elements":         "[" + strings.Repeat("0,", 1_000_000) + "0]",
		"1M objects":          "[" + strings.Repeat(`{"a":1},`, 1_000_000) + "0]",
		"1M quotes":           `"` + strings.Repeat(`\"`, 1_000_000) + `"`,
		"4 MiB in one string": `"` + strings.Repeat("a", 4<<20) + `"`,
	}
}

func BenchmarkStrict(b *testing.B) {
	for name, text := range hostile() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = DecodeStrict([]byte(text), 64<<20, nil)
			}
		})
	}
}

type inner struct {
	PayTo string `json:"payTo"`
}

type outer struct {
	Amount        string           `json:"amount"`
	Options       []inner          `json:"options"`
	One           *inner           `json:"one,omitempty"`
	ByName        map[string]inner `json:"byName"`
	Raw           json.RawMessage  `json:"raw"`
	Plain, hidden int
}

// encoding/json would take "Amount" for "amount": names are exact at every depth.
func TestDecodeStrictTakesExactNamesOnly(t *testing.T) {
	var v outer
	good := `{"amount":"1","options":[{"payTo":"x"}],"one":{"payTo":"y"},"byName":{"A":{"payTo":"z"}},"raw":{"PayTo":1},"Plain":3,"unknown":1,"hidden":2}`
	require.NoError(t, DecodeStrict([]byte(good), MaxBody, &v))
	require.Equal(t, "1x y z", v.Amount+v.Options[0].PayTo+" "+v.One.PayTo+" "+v.ByName["A"].PayTo)
	require.Equal(t, []int{3, 0}, []int{v.Plain, v.hidden})
	for _, bad := range []string{
		`{"Amount":"1"}`, `{"AMOUNT":"1"}`, `{"options":[{"payTo":"x"},{"payto":"x"}]}`,
		`{"one":{"PayTo":"y"}}`,
		`{"byName":{"a":{"payTO":"z"}}}`, `{"plain":3}`,
	} {
		t.Run(bad, func(t *testing.T) {
			v := outer{Amount: "1", Plain: 3} // as a reader in any case leaves it
			err := DecodeStrict([]byte(bad), MaxBody, &v)
			require.True(t, HasCode(err, ResponseMalformed) && isAmbiguous(err), "%s: %v", bad, err)
		})
	}
	err := DecodeStrict([]byte(`{"amount":1}`), MaxBody, &v)
	require.True(t, HasCode(err, ResponseMalformed), "a number is no string")
}

func TestDecodeStrictTakesManyNames(t *testing.T) {
	for _, text := range []string{manyKeys(512) + `"payTo":1}`, `{"payTo":1,"\u0070ayTo2":2,"PAY":3}`} {
		var want, got map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.NoError(t, DecodeStrict([]byte(text), MaxBody, &got))
		require.Equal(t, want, got)
	}
}

func TestQuoteIsBoundedASCII(t *testing.T) {
	require.Equal(t, `"a\u202e\x1b"`, QuoteName("a\u202e\x1b"))
	require.Less(t, len(QuoteName(strings.Repeat("\u202e", 1000))), 123)
}

// The seeds of these targets lie in testdata/fuzz; `go test` runs them every time.

// What Strict accepts, encoding/json reads too, and reads in one way only: a struct gets what
// stands under the exact key.
func FuzzStrict(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		strict := DecodeStrict(data, MaxBody, nil)
		if strict == nil {
			require.True(t, json.Valid(data))
		}
		type probe struct {
			Amount json.RawMessage `json:"amount"`
			Deep   *struct {
				PayTo json.RawMessage `json:"payTo"`
			} `json:"deep"`
		}
		var p probe
		if DecodeStrict(data, MaxBody, &p) != nil {
			return
		}
		require.NoError(t, strict)
		m := must.JSON[map[string]json.RawMessage](data)(t)
		require.Equal(t, string(m["amount"]), string(p.Amount))
		if p.Deep != nil {
			require.NoError(t, json.Unmarshal(m["deep"], &m))
			require.Equal(t, string(m["payTo"]), string(p.Deep.PayTo))
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var first, second any
		require.NoError(t, decoder.Decode(&first))
		again := must.Get(json.Marshal(first))(t)
		decoder = json.NewDecoder(bytes.NewReader(again))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&second))
		require.True(t, reflect.DeepEqual(first, second))
	})
}

// An amount that is accepted is the canonical decimal that was sent, more than 0, and fits Solana's
// 64 bits there.
func FuzzAmount(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, solana bool) {
		network := "eip155:8453"
		if solana {
			network = SolanaDevnet
		}
		a, err := Object{"amount": json.RawMessage(text)}.amount("amount", network)
		if err != nil {
			return
		}
		require.Equal(t, must.JSON[string]([]byte(text))(t), a.String())
		require.False(t, a.IsZero())
		_, fits := a.Uint64()
		require.True(t, fits || !solana)
	})
}
