package history

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRules(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		r, err := s.Rules(t.Context())
		require.NoError(t, err)
		require.Zero(t, r.Version)
		require.NoError(t, s.SealRules(t.Context(), SealedRules{Version: 1, Config: []byte("a"),
			Seal: []byte("s")}, "/home", false, testKeyholder()))
		require.ErrorIs(t, s.SealRules(t.Context(), SealedRules{Version: 1, Config: []byte("b"),
			Seal: []byte("s")}, "/home", false, testKeyholder()), ErrRulesMoved)
		require.NoError(t, s.SealRules(t.Context(), SealedRules{Version: 2, Config: []byte("b"),
			Seal: []byte("t")}, "/home", false, testKeyholder()))
		r, err = s.Rules(t.Context())
		require.NoError(t, err)
		require.Equal(t, "b", string(r.Config))
		require.Equal(t, "t", string(r.Seal))

		head, err := s.Head(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, head.Seq, "created, sealed, sealed")
		pay(t, s, testHold(1), Reserved)
		has, err := s.Has(t.Context(), head)
		require.NoError(t, err)
		require.True(t, has)
		head.Seq++
		has, err = s.Has(t.Context(), head)
		require.NoError(t, err)
		require.False(t, has)
	})
}
