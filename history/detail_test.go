package history

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sameDetail reads a detail in all the ways.
func sameDetail(t require.TestingT, text string) {
	same(t, text, readStep)
	same(t, text, readSignature)
}

func same[T any](t require.TestingT, text string, read func(string) (T, error)) {
	var want T
	failed := json.Unmarshal([]byte(text), &want)
	is, err := read(text)
	require.Equal(t, failed == nil, err == nil, "%s", text)
	if failed == nil {
		require.Equal(t, want, is, "%s", text)
	}
}

// What is read without encoding/json is what that reads, of our own details and of anybody's.
func TestReadDetails(t *testing.T) {
	for _, text := range []string{
		``, `{`, `{}`, `{} `, `{"n":1}`, `{"n":-1}`, `{"n":01}`, `{"n":-0}`, `{"n":1.5}`, `{"n":1e3}`, `{"n":"1"}`,
		`{"n":null}`, `{"N":7}`, `{"Row":"x"}`, `{"row":"x","ROW":"y"}`, `{"row":1}`, `{"row":null}`, `{"row":"a\u0041"}`,
		`{"row":"é"}`, `{"row":"x",}`, `{,"row":"x"}`, `{"row""x"}`, `{"row":"x"}}`, `{"row":"x"} {}`, `{"falseReceipt":true}`,
		`{"falseReceipt":false}`, `{"falseReceipt":null}`, `{"falseReceipt":1}`, `{"falseReceipt":"true"}`,
		`{"chain":{"state":"settled"}}`, `{"chain":1}`, `{"chain":null}`, `{"row":tru}`, `{"amount":}`, `{"amount":true,"row":"z"}`,
		`{"row":"x","voucher":{"row":"y"}}`, `{"n":9223372036854775807}`, `{"n":92233720368547758079}`, `[]`, `"x"`, `null`,
		`{"sessionCap":null,"bytes":1,"httpStatus":200}`, `{"sessionCap":"1.5"}`, `{"sessionCap":1}`,
		`{"sessionCap":"x"}`, `{"sessionCap":"null"}`, `{"bytes":"-1"}`, `{"httpStatus":200.5}`, `{"truncated":"true"}`, `{"submitted":true}`, `{"created":1,"n":2}`, `{"contentDigest":"x","type":"y","truncated":true}`, `{"stored":"x","proof":1}`,
		`{"created":"1"}`, `{"voucher":{"service":"s"}}`, `{"voucher":null}`, `{"Session":"x"}`, `{"delivered":true,"n":2}`,
		`{"delivered":1}`, `{"delivered":"true"}`, `{"delivered":null}`, `{"why":"x","n":3}`, `{"why":1,"n":3}`, `{"sums":"x","n":3}`,
		`{"sessionCap":"1","sessionCap":null}`, `{"sessionCap":null,"sessionCap":"1"}`, `{"n":3,"Delivered":true}`,
		`{"n":-}`, `{"bytes":-,"n":3}`, `{"bytes":nul}`, "{\"row\":\"\x7f\"}", "{\"row\":\"\t\"}", "{\"row\":\"\xff\"}",
	} {
		sameDetail(t, text)
	}
	s, _, _ := fullLedger(t)
	require.NoError(t, s.view(t.Context(), func(tx *tx) error {
		return tx.walk(0, Head{}, func(row auditRow) error { sameDetail(t, row.detail); return nil })
	}))
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SampledFrom([]string{"n", "row", "note", "chain", "falseReceipt", "stored",
			"Key", "bytes", "x", "sessionCap", "contentDigest", "created", "delivered",
			"submitted", "sums", "voucher", "terms"})
		values := rapid.OneOf(rapid.SampledFrom([]string{`1`, `-7`, `"7"`, `"0.25"`, `"a"`, `""`, `true`, `null`, `{}`, `{"a":[1]}`, `1.0`,
			`00`, `"\\n"`, `tru`, `-`}), rapid.Map(rapid.String(), func(s string) string { return fmt.Sprintf("%q", s) }))
		text := "{"
		for i := range rapid.IntRange(0, 4).Draw(rt, "names") {
			if i > 0 {
				text += ","
			}
			text += `"` + names.Draw(rt, "name") + `":` + values.Draw(rt, "value")
		}
		sameDetail(rt, text+"}")
	})
}
