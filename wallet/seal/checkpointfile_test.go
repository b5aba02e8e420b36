package seal

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// countingKey counts what it seals.
type countingKey struct {
	Key
	n int
}

func (k *countingKey) Seal(ctx context.Context, purpose string, data []byte) ([]byte, error) {
	k.n++
	return k.Key.Seal(ctx, purpose, data)
}

// A line of the checkpoint's file is checked once, and one that this process wrote never; one that
// changed is read and checked, whoever changed it.
func TestALineIsCheckedOnce(t *testing.T) {
	writer := sealed(t)
	reader := open(t, writer.Home, string(writer.Rules.Text()))
	counted := &countingKey{Key: reader.Key}
	reader.Key = counted
	newest := func(g *Guard) checkpoint {
		return must.Get(g.newest(t.Context()))(t)
	}
	first := newest(reader)
	require.Equal(t, 1, counted.n, "both slots have the same line")
	require.Equal(t, first, newest(reader))
	require.Equal(t, 1, counted.n)

	for i := range 3 { // both slots are written over
		account := string(rune('a' + i))
		require.NoError(t, writer.Store.Freeze(t.Context(), history.Freeze{By: "owner", Account: account}))
		require.NoError(t, writer.Checkpoint(t.Context()))
		require.Greater(t, newest(reader).Seq, first.Seq)
		require.Equal(t, newest(writer), newest(reader))
		require.Equal(t, 2+i, counted.n)
	}
	require.NoError(t, reader.Store.Freeze(t.Context(), history.Freeze{By: "owner", Account: "z"}))
	require.NoError(t, reader.Checkpoint(t.Context()))
	before := counted.n
	require.Equal(t, newest(writer), newest(reader))
	require.Equal(t, before, counted.n, "it wrote that line")

	path := filepath.Join(writer.Home, checkpointFile)
	text := must.Get(os.ReadFile(path))(t)
	forged := bytes.ReplaceAll(text, []byte(`"rules":1`), []byte(`"rules":0`))
	require.NotEqual(t, text, forged)
	require.NoError(t, os.WriteFile(path, forged, 0o600))
	_, err := reader.newest(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), err)
}

// A MAC that was made a short while ago is not made again, and nobody changes it for others; there are
// never more of them than there should be.
func TestAMACIsMadeOnce(t *testing.T) {
	g := sealed(t)
	counted := &countingKey{Key: g.Key}
	g.Key = counted
	mac := func(data string) []byte {
		k := must.Get(g.Keyholder(t.Context()))(t)
		return must.Get(k.MAC([]byte(data)))(t)
	}
	first, other := mac("a"), mac("b")
	require.NotEqual(t, first, other)
	kept := bytes.Clone(first)
	first[0]++
	second := mac("a")
	require.Equal(t, kept, second)
	second[0]++
	require.Equal(t, kept, mac("a"))
	require.Equal(t, 2, counted.n)
	for i := range 2 * maxMACs {
		mac(string(rune('c' + i)))
		require.LessOrEqual(t, len(g.macs.known), maxMACs)
	}
	g.Key = key("")
	k := must.Get(g.Keyholder(t.Context()))(t)
	require.ErrorIs(t, must.Err(k.MAC([]byte("never made"))), errLocked)
}
