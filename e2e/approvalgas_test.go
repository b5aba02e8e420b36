package e2e

import (
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// Where the owner says what it may cost, an approval of Permit2 is signed that the seller sends in a
// transaction of the agent's account (erc20ApprovalGasSponsoring): for the price alone, which the payment
// uses up. The facilitator sends the account the coins for its gas.
func TestPaysByAnApprovalThatTheSellerSends(t *testing.T) {
	lab := Start(t)
	between := sellBy(t, lab.Seller)
	w, home := funded(t, lab, ConfigOptions{ApprovalGas: "0.01", Loopback: []string{between.url}})
	coins := func(wei string) { anvil(t, lab, "anvil_setBalance", home.EVM, wei) }

	coins("0x0")
	p := payFor(t, w, between.url+"/permit2/erc20")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(1_000_000-price), lab.EVMBalance(home.EVM))
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))
	require.Equal(t, `"0x1"`, string(anvil(t, lab, "eth_getTransactionCount", home.EVM, "latest")))
	tx := between.payments.Load().approval(t)
	require.Equal(t, []string{home.EVM, lab.EVM.Asset}, []string{tx.From, tx.To})
	require.Equal(t, "0x095ea7b3"+ // approve, of Permit2 for the price: nothing else stands in it
		"000000000000000000000000000000000022d473030f116ddee9f6b43ac78ba3"+
		"00000000000000000000000000000000000000000000000000000000000003e8", hexutil.Encode(tx.Data))

	// of several at once each has an account nonce of its own
	var all sync.WaitGroup
	for _, path := range []string{"/permit2/erc20?i=1", "/permit2/erc20?i=2", "/permit2/erc20?i=3"} {
		all.Go(func() {
			p := payFor(t, w, between.url+path)
			if p.Status != "paid" {
				t.Errorf("%s: %+v", path, p)
			}
		})
	}
	all.Wait()
	require.Equal(t, uint64(1_000_000-4*price), lab.EVMBalance(home.EVM))
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))

	// an approval that is enough is used, and none is sent
	lab.EVMApprovePermit2(home.EVM, price)
	before := string(anvil(t, lab, "eth_getTransactionCount", home.EVM, "latest"))
	p = buyAnew(t, w, between.url+"/permit2/erc20")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, before, string(anvil(t, lab, "eth_getTransactionCount", home.EVM, "latest")))

	// its gas is bounded: nothing is signed above that, and nothing held
	cheap, own := funded(t, lab, ConfigOptions{ApprovalGas: "0.000000000001"})
	p = payFor(t, cheap, lab.Seller+"/permit2/erc20")
	require.Equal(t, "POLICY_DENIED", p.Error, "%+v", p)
	require.Contains(t, p.Message, "approval_gas allows 0.000000000001")
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(own.EVM))
	require.Equal(t, "failed", history(t, cheap)[0].Status)
}

func (p *permitOf) approval(t *testing.T) payload.SignedTransaction {
	t.Helper()
	info := p.Extensions[x402.ERC20Sponsoring].Info
	require.Equal(t, message.Permit2Address, info.Spender)
	raw := must.Get(hexutil.Decode(info.SignedTransaction))(t)
	tx := must.Get(payload.RecoverTransaction(raw))(t)
	return tx
}
