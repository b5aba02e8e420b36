package history

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is read without a transaction is read again, with one, where the database failed, and only there.
func TestReadAgainWhereTheDatabaseFailed(t *testing.T) {
	s, _, _ := newStore(t)
	times := 0
	n, err := readOnce(t.Context(), s, func(t *tx) (n int, err error) {
		times++
		query := `SELECT 7`
		if times == 1 {
			query = `SELECT 7 FROM nothing`
		}
		err = t.row(query).Scan(&n)
		return n, err
	})
	require.NoError(t, err)
	require.Equal(t, 7, n)
	require.Equal(t, 2, times)

	times = 0
	_, err = readOnce(t.Context(), s, func(*tx) (int, error) { times++; return 0, ErrNotFound })
	require.ErrorIs(t, err, ErrNotFound)
	require.Equal(t, 1, times)
}

// A short reading takes the connection that writes, and another one while somebody writes.
func TestAShortReadingWaitsForNoWriter(t *testing.T) {
	s, _, _ := newStore(t)
	var writer *conn
	require.NoError(t, s.write.with(t.Context(), func(c *conn) error { writer = c; return nil }))
	isWarm := func() (once, warm bool) {
		isWriter := func(t *tx) (bool, error) { return t.conn == writer, nil }
		once, err := readOnce(t.Context(), s, isWriter)
		require.NoError(t, err)
		warm, err = readWarm(t.Context(), s, isWriter)
		require.NoError(t, err)
		return once, warm
	}
	once, warm := isWarm()
	require.True(t, once && warm)
	require.NoError(t, s.write.with(t.Context(), func(*conn) error {
		once, warm = isWarm()
		return nil
	}))
	require.False(t, once || warm)
}
