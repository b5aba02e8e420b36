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
		got, err := Members(data, MaxBody)
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

func TestMembersAreLimited(t *testing.T) {
	_, err := Members([]byte(`{"amount":"1"}`), 13)
	require.True(t, HasCode(err, ResponseTooLarge), "%v", err)
}

func TestMembersOfManyNames(t *testing.T) {
	for _, text := range []string{manyKeys(512) + `"payTo":1}`, `{"payTo":1,"\u0070ayTo2":2,"PAY":3}`} {
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		got, err := Members([]byte(text), MaxBody)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := Members([]byte(`{"payTo":1,"PayTo":2}`), MaxBody)
	require.True(t, isAmbiguous(err), "%v", err)
}
