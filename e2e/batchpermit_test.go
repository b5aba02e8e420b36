package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
)

// The reference seller takes a deposit by Permit2: with an approval that is signed with it, with one that it
// brings in a transaction of the payer's, where the owner lets that be signed, and with one that was there.
// Vouchers follow without a transaction, and nothing of an approval is left behind.
func TestDepositsByPermit2(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	for path, c := range map[string]struct {
		approved uint64
		gas      string
		sent     []string
	}{
		"/permit2/sponsored": {0, "", []string{"deposit"}},
		// the coins for the approval's gas, and the deposit
		"/permit2/erc20": {0, "0.01", []string{"transaction", "transaction"}},
		"/permit2":       {10_000, "", []string{"deposit"}},
	} {
		t.Run(path, func(t *testing.T) {
			options := seller.options()
			options.ApprovalGas = c.gas
			w, home := funded(t, lab, options)
			lab.EVMApprovePermit2(home.EVM, c.approved)
			anvil(t, lab, "anvil_setBalance", home.EVM, "0x0")
			for n := range 10 {
				p := payFor(t, w, fmt.Sprintf("%s%s?n=%d", seller.HTTP, path, n))
				require.Equal(t, "paid", p.Status, "%+v", p)
				require.Equal(t, "0.01", p.Budget.Session.Spent, "counted when it was deposited, and once")
			}
			news := seller.control(t, `{}`)
			require.Equal(t, c.sent, news.Sent)
			require.Equal(t, "10000", news.Vouchers[len(news.Vouchers)-1])
			require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
			require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))
			require.Empty(t, lab.EVMSpentNonces(home.EVM), "nothing by EIP-3009")

			bin := testworld.Build(t)
			lab.EVMMine(0)
			var report struct{ Failed int }
			runWallet(t, home, bin, &report, "reconcile")
			require.Zero(t, report.Failed)
			runWallet(t, home, bin, nil, "history", "verify")
			var refunds struct{ Refunds []struct{ Refunded string } }
			channelCommand(t, home, 0, &refunds, "refund", testlab.HostPort(seller.HTTP))
			require.Empty(t, refunds.Refunds, "all of it was charged")
		})
	}
}

// Where Permit2 may not move a deposit, and nobody brings an approval that the owner lets be signed, nothing
// is signed, and what is said is how to approve it.
func TestADepositThatPermit2MayNotMove(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	w, home := funded(t, lab, seller.options())
	p := payFor(t, w, seller.HTTP+"/permit2")
	require.Equal(t, "NO_DELEGATION", p.Error, "%+v", p)
	require.Equal(t, "x402-wallet delegation permit2 --network "+lab.EVM.Network+
		" --asset USDC --amount 0.01", p.Next.Command)
	p = payFor(t, w, seller.HTTP+"/permit2/erc20")
	require.Equal(t, "NO_DELEGATION", p.Error, "%+v", p)
	require.Contains(t, p.Message, "erc20ApprovalGasSponsoring")
	lab.EVMApprovePermit2(home.EVM, 9_999)
	p = payFor(t, w, seller.HTTP+"/permit2")
	require.Equal(t, "DELEGATION_EXHAUSTED", p.Error, "%+v", p)
	require.Empty(t, history(t, w))
	news := seller.control(t, `{}`)
	require.Empty(t, append(news.Sent, news.Vouchers...))
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))

	owner := newChannelOwner(t, lab) // who signs by EIP-3009 alone
	var out struct{ Error, Message string }
	channelCommand(t, home, 1, &out, "deposit", seller.HTTP+"/permit2", "--owner", owner.address, "--amount",
		"0.01")
	require.Equal(t, "INVALID_REQUIREMENT", out.Error)
	require.Contains(t, out.Message, "an owner's deposit is by EIP-3009 alone")
}

// The answer to a deposit is lost, after the seller served or before it heard of the deposit: the same call
// shows that it was charged, or is served, as with a deposit by EIP-3009. There is one deposit, and it is
// counted once.
func TestALostAnswerToADepositByPermit2(t *testing.T) {
	for name, c := range map[string]struct{ state, end string }{
		"after it served":    {`{"lose":1}`, "paid_not_served"}, // the reference server serves once
		"before it heard of": {`{"deaf":1}`, "paid"},
	} {
		t.Run(name, func(t *testing.T) {
			lab := Start(t)
			seller := startBatch(t, lab)
			w, home := funded(t, lab, seller.options())
			seller.control(t, c.state)
			p := payFor(t, w, seller.HTTP+"/permit2/sponsored")
			require.NotEqual(t, "paid", p.Status, "%+v", p)
			if c.end == "paid" { // it looks at the chain
				seller.control(t, `{"forget":1}`)
			}
			require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM), "it was made")
			p = payFor(t, w, seller.HTTP+"/permit2/sponsored")
			require.Equal(t, c.end, p.Status, "%+v", p)
			p = payFor(t, w, seller.HTTP+"/permit2?n=2")
			require.Equal(t, "paid", p.Status, "by a voucher: %+v", p)
			require.Equal(t, "0.01", p.Budget.Session.Spent)
			require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
			require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))
			bin := testworld.Build(t)
			lab.EVMMine(0)
			runWallet(t, home, bin, nil, "reconcile", "--json")
			runWallet(t, home, bin, nil, "history", "verify")
			var shown depositsAnswer
			channelCommand(t, home, 0, &shown, "list")
			require.Len(t, shown.Deposits, 1)
			require.Equal(t, []string{"10000", ""}, []string{shown.Deposits[0].Deposited,
				shown.Deposits[0].Stopped})
		})
	}
}
