package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// batchSeller is the reference server and facilitator of batch-settlement (e2e/lab/parties/batch.mjs).
type batchSeller struct {
	HTTP    string `json:"http"`
	Control string `json:"control"`
}

func startBatch(t *testing.T, lab *Lab) *batchSeller {
	t.Helper()
	options, err := json.Marshal(map[string]string{"evm": lab.EVM.URL, "payTo": lab.EVM.PayTo})
	require.NoError(t, err)
	s := &batchSeller{}
	stop, err := startScript(filepath.Join("lab", "parties", "batch.mjs"), options, s)
	require.NoError(t, err, "run make test (or e2e/lab/prep.sh) first")
	t.Cleanup(stop)
	return s
}

// batchNews is what happened at the seller since it was asked last.
type batchNews struct {
	Sent     []string // what the facilitator called
	Asked    int
	Vouchers []string // their ceilings
}

func (s *batchSeller) control(t *testing.T, state string) (news batchNews) {
	t.Helper()
	response, err := http.Post(s.Control, "application/json", bytes.NewReader([]byte(state)))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, response)), &news))
	return news
}

func (s *batchSeller) host() string { return hostPort(s.HTTP) }

// A deposit with the first call, then vouchers alone: the deposit is the seller's minimum, no transaction is
// made for the calls after it, and the budgets count it once.
func TestPaysThroughAChannelWithADeposit(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{seller.host()}})

	p := payFor(t, w, seller.HTTP+"/paid?n=1")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
	require.Equal(t, []string{"deposit"}, seller.control(t, `{}`).Sent)
	for _, n := range []string{"2", "3", "4"} {
		p = payFor(t, w, seller.HTTP+"/paid?n="+n)
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	news := seller.control(t, `{}`)
	require.Empty(t, news.Sent)
	require.Equal(t, []string{"2000", "3000", "4000"}, news.Vouchers)
	require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
	require.Len(t, history(t, w), 4)
}
