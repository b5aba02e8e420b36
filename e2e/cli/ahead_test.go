//go:build unix

package cli

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

// A node whose chain is ahead, latest and finalized block alike, says that a payment has expired which
// is alive: nothing is released, neither by a process that comes later nor by the unlock agent, whom
// any process of the user can ask for it.
func TestANodeThatIsAheadReleasesNothing(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/weather", "/solana"} {
		for _, byAgent := range []bool{false, true} {
			t.Run(path+map[bool]string{true: " by the unlock agent"}[byAgent], func(t *testing.T) {
				t.Parallel()
				v := attacked(t, 0, sandbox.Rules{})
				solana := v.addresses()["solana"]
				v.Fund(solana, sandbox.USDC)
				if byAgent {
					v.unlocks()
				}
				v.Inject("seller cuts before", 1)
				out, _ := runs(t, 5, v.env, "pay", v.SellerURL+path)
				require.Contains(t, out, "OUTCOME_UNKNOWN")
				v.Advance(10 * time.Minute)
				out, _ = runs(t, 0, v.env, "reconcile")
				require.Contains(t, out, `"failed": 0`)
				require.Equal(t, "unknown", v.get(`SELECT state FROM payments`))
				if byAgent {
					c, err := net.Dial("unix", filepath.Join(v.home, "agent.sock"))
					require.NoError(t, err)
					defer c.Close()
					require.NoError(t, json.NewEncoder(c).Encode(map[string]string{"op": "expire",
						"payment": v.get(`SELECT id FROM payments`)}))
					var answer struct{ Error struct{ Message string } }
					require.NoError(t, json.NewDecoder(c).Decode(&answer))
					require.Contains(t, answer.Error.Message, "by this machine's clock")
					require.Equal(t, "unknown", v.get(`SELECT state FROM payments`))
				}
			})
		}
	}
}

func (v *victim) addresses() map[string]string {
	v.t.Helper()
	out, _ := runs(v.t, 0, v.env, "address")
	var list struct {
		Addresses []struct{ Chain, Address string }
	}
	require.NoError(v.t, json.Unmarshal([]byte(out), &list), "%s", out)
	by := map[string]string{}
	for _, a := range list.Addresses {
		by[a.Chain] = a.Address
	}
	return by
}
