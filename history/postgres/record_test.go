package postgres

import (
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecords(t *testing.T) {
	for text, want := range map[string]Record{
		`(1)`:                      {"1"},
		`()`:                       {nil},
		`(,)`:                      {nil, nil},
		`(1,"",,t)`:                {"1", "", nil, "t"},
		`("a ""b"" \\ c","d,(e)")`: {`a "b" \ c`, "d,(e)"},
		`("""",x)`:                 {`"`, "x"},
		`("\\x6162",,"\\x")`:       {`\x6162`, nil, `\x`},
	} {
		got, err := parseRecord(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{``, `1`, `(`, `(1`, `("1`, `("1"`, `("1"x)`, `(1)2`, `("a\b")`} {
		_, err := parseRecord(text)
		require.ErrorIs(t, err, errRecord, text)
	}
}

func TestBytesOfARecord(t *testing.T) {
	r := Record{`\x6162`, nil, `ab`}
	for i, want := range []driver.Value{[]byte("ab"), []byte(nil)} {
		got, err := r.Bytes(i)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := r.Bytes(2)
	require.Error(t, err)
}

// Each query has its arguments behind those of the others, however it names them.
func TestQueriesTogetherHaveTheirArguments(t *testing.T) {
	require.Equal(t, `WITH m AS (SELECT $1 AS now) SELECT 0, part FROM (SELECT $2, '?', $3) AS part UNION ALL`+
		` SELECT 1, part FROM (SELECT $5, $4, $5) AS part`,
		together(Statement{`m AS (SELECT ? AS now)`, []any{1}}, []Statement{
			{`SELECT ?, '?', ?`, []any{2, 3}},
			{`SELECT ?2, ?1, ?2`, []any{4, 5}},
		}))
}
