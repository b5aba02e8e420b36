package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever bytes the owner's key signed are read as one statement or refused, without a panic; what is read
// is written by the same bytes, and is never one of another kind.
func fuzzStatement[S statement](f *testing.F, k kind) {
	g, a := golden(f)
	for _, s := range g.Signed {
		f.Add(s.Statement)
	}
	f.Add([]byte("null"))
	f.Add([]byte(`{"format":1}`))
	owner := keyOf(f, ownerSeed)
	f.Fuzz(func(t *testing.T, data []byte) {
		sig, err := owner.Sign(k.purpose, data)
		require.NoError(t, err)
		s, err := authentic[S](k, Signed{Statement: data, Signature: sig}, a)
		if err != nil {
			var fault Fault
			require.ErrorAs(t, err, &fault)
			return
		}
		again, err := encode(s)
		require.NoError(t, err)
		require.Equal(t, string(data), string(again))
		require.Equal(t, a.Ledger, s.head().Ledger)
		require.Equal(t, a.Owner, s.head().By)
	})
}

func FuzzBundle(f *testing.F)    { fuzzStatement[Bundle](f, kindBundle) }
func FuzzApproval(f *testing.F)  { fuzzStatement[Approval](f, kindApproval) }
func FuzzLift(f *testing.F)      { fuzzStatement[Lift](f, kindLift) }
func FuzzSession(f *testing.F)   { fuzzStatement[Session](f, kindSession) }
func FuzzEnrolment(f *testing.F) { fuzzStatement[Enrolment](f, kindEnrolment) }
