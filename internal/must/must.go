// must ends a test where a call of its own setup or scenario returns an error.
package must

import (
	"encoding/json"

	"github.com/stretchr/testify/require"
)

// T is the test, or the run of a property.
type T interface {
	require.TestingT
	Helper()
}

// Get returns a call's value, as in must.Get(store.Find(ctx, id))(t). An error of the call fails the test.
func Get[V any](value V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

// JSON returns what a text says, as in must.JSON[Failure](text)(t).
func JSON[V any](text []byte) func(T) V {
	var value V
	err := json.Unmarshal(text, &value)
	return Get(value, err)
}

// Err returns a call's error alone, as in require.ErrorIs(t, must.Err(store.Find(ctx, id)), ErrNotFound).
func Err[V any](_ V, err error) error { return err }
