package x402

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzMembers: what Members takes, and what it takes it for, is what DecodeStrict does, to the byte; likewise
// Text and encoding/json.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { "a" : [ 1 , {"b":2} ] ,` + "\r\n" + `"c":"}" , "d":null}` + "\t", `null`, ` null `,
		"{\"a\"\t:\r\n\t1\n}", `[]`, `"a"`, `1`, ``, `{"a":1} {}`,
		`{"a":{"a":{"a":1}}}`, `{"\u0061":"\u0061","b":"\ud83d\ude00"}`, `{"a":1,"A":2}`,
		`{"a":1,"a":2}`, "{\"é\":\"é\",\"\x7f\":\"\x7f\"}", `{"a":"a\"b","b":"\\","c":""}`, `{"a":1`,
		`{"a":tru}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want map[string]json.RawMessage
		refused := DecodeStrict(data, MaxBody, &want)
		got, err := Members(data, MaxBody, nil)
		if refused != nil {
			require.Error(t, err)
			require.Equal(t, AsError(refused).Code, AsError(err).Code)
			return
		}
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for key, value := range want {
			require.Equal(t, string(value), string(got[key]))
			var text string
			isText := json.Unmarshal(value, &text) == nil
			read, ok := Text(got[key])
			require.Equal(t, isText, ok, "%s", value)
			require.Equal(t, text, read)
		}
	})
}

// The names that are asked for are exact, as DecodeStrict's are, and the limit holds.
func TestMembersAreRefused(t *testing.T) {
	_, err := Members([]byte(`{"Amount":"1"}`), MaxBody, outer{})
	require.True(t, isAmbiguous(err), "%v", err)
	_, err = Members([]byte(`{"Amount":"1"}`), MaxBody, nil)
	require.NoError(t, err)
	_, err = Members([]byte(`{"amount":"1"}`), 13, nil)
	require.True(t, HasCode(err, ResponseTooLarge), "%v", err)
}

// Names are kept from one document to the next, and stay each what it is, also of more than are kept.
func TestNamesThatAreKept(t *testing.T) {
	for range 3 {
		for _, text := range []string{manyKeys(2*maxNames) + `"payTo":1}`,
			`{"payTo":1,"\u0070ayTo2":2,"PAY":3}`} {
			var want map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(text), &want))
			got, err := Members([]byte(text), MaxBody, nil)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err := Members([]byte(`{"payTo":1,"PayTo":2}`), MaxBody, nil)
		require.True(t, isAmbiguous(err), "%v", err)
	}
}
