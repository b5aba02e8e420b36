//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

// A batch as a person makes it: a file, one ceiling, one yes, a line for each; and once more for what is
// missing.
func TestABatchAtATerminal(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{ApproveAbove: "0.0005"})
	env = append(env, passphraseFile(t))
	file := filepath.Join(t.TempDir(), "pages.jsonl")
	text := `"SELLER/weather"
{"url": "SELLER/weather?city=Porto", "method": "GET", "headers": {"Accept": "text/plain"}}
"SELLER/weather"
"SELLER/free"
"SELLER/expensive"
`
	text = strings.ReplaceAll(text, "SELLER", w.SellerURL)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	buy := []string{"pay", "--batch", file, "--max", "0.01", "--idempotency-key", "tuesday"}

	said := sit(t, nil, env, buy...).ends(4)
	require.Contains(t, said, "2 payments, $0.002 in all")
	id := regexp.MustCompile(`apr_[0-9a-f]{32}`).FindString(said)
	require.Empty(t, w.Settlements())

	c := sit(t, nil, env, "approve", id)
	c.sees("Passphrase, to approve this payment: ", 1)
	require.Contains(t, c.text(), "$0.002 in all, for 2 payments")
	require.Contains(t, c.text(), "/weather?city=Porto")
	c.types(testPassphrase + "\n")
	c.ends(0)

	said = sit(t, nil, env, buy...).ends(3) // one costs more than all may
	t.Log(said)
	require.Regexp(t, `1 +paid +\$0\.001 +http`, said)
	require.Regexp(t, `3 +same as 1`, said)
	require.Regexp(t, `4 +free`, said)
	require.Regexp(t, `5 +AMOUNT_EXCEEDS_MAX`, said)
	require.Contains(t, said, "4 served, 1 not; $0.002 taken from the budgets")
	require.Len(t, w.Settlements(), 2)

	said = sit(t, nil, env, buy...).ends(3)
	require.Regexp(t, `2 +replayed`, said)
	require.Len(t, w.Settlements(), 2)
}

func TestABatchThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, env := household(t, sandbox.Options{}, sandbox.Rules{})
	for text, says := range map[string]string{
		``:                         "the batch is empty",
		`[]`:                       "the batch is empty",
		`"https://a.example" {`:    "request 2 of the batch",
		`{"url":"ftp://a"}`:        "request 1 of the batch",
		`{"uri":"https://a"}`:      "request 1 of the batch",
		`["https://a.example", 7]`: "request 2 of the batch",
	} {
		file := filepath.Join(t.TempDir(), "batch")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Contains(t, sit(t, nil, env, "pay", "--batch", file, "--max", "1").ends(2), says, "%s", text)
	}
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "none").ends(2), "needs --max")
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "none", "--max", "1").ends(2), "no such file")
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "-", "--max", "1", "--network", "base").ends(2),
		"--network is about one request")
	require.Contains(t, sit(t, nil, env, "pay", "--batch", "-", "https://a.example").ends(2), "no argument")
}
