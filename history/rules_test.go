package history

import (
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

func TestRules(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		r := must.Get(s.Rules(t.Context()))(t)
		require.Zero(t, r.Version)
		require.NoError(t, s.SealRules(t.Context(), SealedRules{Version: 1, Config: []byte("a"),
			Seal: []byte("s")}, "/home", false, testKeyholder()))
		require.ErrorIs(t, s.SealRules(t.Context(), SealedRules{Version: 1, Config: []byte("b"),
			Seal: []byte("s")}, "/home", false, testKeyholder()), ErrRulesMoved)
		require.NoError(t, s.SealRules(t.Context(), SealedRules{Version: 2, Config: []byte("b"),
			Seal: []byte("t")}, "/home", false, testKeyholder()))
		r = must.Get(s.Rules(t.Context()))(t)
		require.Equal(t, "b", string(r.Config))
		require.Equal(t, "t", string(r.Seal))

		head := must.Get(s.Head(t.Context()))(t)
		require.EqualValues(t, 3, head.Seq, "created, sealed, sealed")
		pay(t, s, testHold(1), Reserved)
		has := must.Get(s.Has(t.Context(), head))(t)
		require.True(t, has)
		head.Seq++
		has = must.Get(s.Has(t.Context(), head))(t)
		require.False(t, has)
	})
}
