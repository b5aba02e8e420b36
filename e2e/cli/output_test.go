//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// What a file or a program gets is what came, byte for byte and whole: bought, bought earlier, free, a
// tool's.
func TestContentIsWrittenAsItCame(t *testing.T) {
	t.Parallel()
	w, env := quotaHousehold(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "got")
	large := strings.Repeat("large content ", largeSize/14)
	for _, c := range []struct{ path, want string }{
		{"/sells/binary", "\x00\x01\xff\xfe\n\r\n"}, {"/sells/evil", evilText}, {"/sells/large", large},
		{"/evil", evilText},
	} {
		url, named := w.front.URL+c.path, []string{"pay", "--idempotency-key", "of" + c.path}
		out, said := runs(t, 0, env, append(named, url)...)
		require.True(t, c.want == out, "%s: %d bytes on stdout", c.path, len(out))
		require.NotContains(t, said, "not all of the content")
		_, said = runs(t, 0, env, append(named, "-o", file, url)...)
		require.True(t, c.want == string(must.Get(os.ReadFile(file))(t)), c.path)
		require.Contains(t, said, "written: "+file)
		out, _ = runs(t, 0, env, append(named, "--json", "-o", file, url)...)
		var r struct{ Content, Status string }
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Empty(t, r.Content)
		out, _ = runs(t, 0, env, append(named, "-o", "-", url)...)
		require.True(t, c.want == out, c.path)
		screen := sit(t, nil, env, append(named, "-o", file, url)...).ends(0)
		require.NotContains(t, screen, "content ")
	}
	require.Equal(t, os.FileMode(0o600), must.Get(os.Stat(file))(t).Mode())
	require.Len(t, must.Get(os.ReadDir(dir))(t), 1, "nothing lies beside it")
	require.Len(t, w.Settlements(), 3, "the rest was free, or bought earlier")

	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(file, link))
	runs(t, 0, env, "pay", "-o", link, w.front.URL+"/evil")
	require.Equal(t, file, must.Get(os.Readlink(link))(t))
	runs(t, 0, env, "pay", "-o", os.DevNull, w.front.URL+"/evil")
	require.NotZero(t, must.Get(os.Stat(os.DevNull))(t).Mode()&os.ModeDevice)
}

// A part of the content is a failure that is told, and no file: nor is what a seller says of its own failure.
func TestAPartOfTheContentIsAFailure(t *testing.T) {
	t.Parallel()
	w, env := quotaHousehold(t)
	file := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.WriteFile(file, []byte("before"), 0o600))
	url := w.front.URL + "/sells/large?twice"
	named := []string{"pay", "--idempotency-key", "part"}
	for _, flags := range [][]string{{"-o", file}, {"-o", file, "--json"}, nil} {
		out, said := runs(t, 1, env, append(append(named, flags...), url)...)
		require.Contains(t, said, "this is not all of the content: its first 33554432 bytes came")
		if flags == nil {
			require.Len(t, out, 32<<20)
		} else {
			require.Contains(t, said, file+" is not written")
		}
	}
	var list struct{ Transactions []struct{ PaymentID string } }
	out, _ := runs(t, 0, env, "history", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	out, said := runs(t, 1, env, "show", list.Transactions[0].PaymentID, "--content")
	require.Len(t, out, 32<<20)
	require.Contains(t, said, "only its beginning is stored")

	out, _ = runs(t, 1, env, "pay", "-o", file, w.SellerURL+"/nothing")
	require.NotEmpty(t, out)
	require.Equal(t, "before", string(must.Get(os.ReadFile(file))(t)))
	require.Len(t, w.Settlements(), 1)
}

// What cannot be written is refused before anything is paid, on stderr and as text.
func TestWhereContentCannotGo(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	dir := t.TempDir()
	url := w.SellerURL + "/weather"
	for says, args := range map[string][]string{
		"is a directory":      {"pay", "-o", dir, url},
		"no such file":        {"pay", "-o", filepath.Join(dir, "none", "x"), url},
		"is empty":            {"pay", "-o", "", url},
		"cannot be used":      {"pay", "-o", "x", "--dry-run", url},
		"one request":         {"pay", "-o", "x", "--batch", "y", "--max", "1"},
		"is for the content":  {"call", "shop", "-o", "x"},
		"not a directory":     {"call", "shop", "tool", "-o", "/dev/null/x"},
		"that is no https":    {"pay", "a.example"},
		"is written \"Name: ": {"pay", "-H", "x", url},
	} {
		out, said := runs(t, 2, env, args...)
		require.Empty(t, out, says)
		require.Contains(t, said, says)
		require.NotContains(t, said, `"error"`)
	}
	out, said := runs(t, 3, env, "pay", "--max", "0.0001", "-o", filepath.Join(dir, "x"), url)
	require.Empty(t, out)
	require.Contains(t, said, "AMOUNT_EXCEEDS_MAX:")
	require.Empty(t, must.Get(os.ReadDir(dir))(t))
	require.Empty(t, w.Settlements())
}
