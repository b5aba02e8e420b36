package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// channelOwner has money, and a key that the agent does not have.
type channelOwner struct {
	address, file, key string
}

func newChannelOwner(t *testing.T, lab *Lab) channelOwner {
	t.Helper()
	key, address := newEVMKey(t)
	o := channelOwner{address: address.Hex(), key: hexutil.Encode(crypto.FromECDSA(key)),
		file: filepath.Join(t.TempDir(), "owner.hex")}
	writePrivate(t, o.file, o.key)
	lab.EVMMint(o.address, 1_000_000)
	return o
}

// ownersWorld is a seller that is paid through channels, an owner with money, and an agent with none.
func ownersWorld(t *testing.T) (lab *Lab, seller *batchSeller, owner channelOwner, home testworld.Home) {
	t.Helper()
	lab = Start(t)
	seller = startBatch(t, lab)
	return lab, seller, newChannelOwner(t, lab), testworld.NewHome(t, lab.Config(seller.options()))
}

// fund has the owner fund the channel with a seller, in a terminal.
func (o channelOwner) fund(t *testing.T, home testworld.Home, seller *batchSeller, amount string) string {
	t.Helper()
	seen, err := atTerminal(t, home, testworld.Build(t), testworld.Passphrase, "channel", "deposit",
		seller.HTTP+"/paid", "--owner-keypair", o.file, "--amount", amount)
	require.NoError(t, err, "%s", seen)
	return seen
}

// An owner deposits, and the agent, who has neither money nor a key of theirs, pays from that: the chain
// moves nothing but the deposit, the windows count each call, and what is left goes back to the owner.
func TestAnOwnerFundsAChannel(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	seen := owner.fund(t, home, seller, "0.01")
	require.Contains(t, seen, "funded by: "+owner.address)
	require.Empty(t, seller.control(t, `{}`).Sent, "nothing is sent yet")

	w := StartWallet(t, testworld.Build(t), home)
	for n := range 10 {
		p := payFor(t, w, fmt.Sprintf("%s/paid?n=%d", seller.HTTP, n))
		require.Equal(t, "paid", p.Status, "%+v", p)
		require.Equal(t, "$0.001", p.Price)
		require.Equal(t, fmt.Sprintf("0.0%02d", n+1), (p.Budget.Session.Spent + "000")[:5])
	}
	news := seller.control(t, `{}`)
	require.Equal(t, []string{"deposit"}, news.Sent, "by the first call")
	require.Equal(t, "10000", news.Vouchers[len(news.Vouchers)-1])
	require.Equal(t, uint64(990_000), lab.EVMBalance(owner.address))
	require.Zero(t, lab.EVMBalance(home.EVM))

	p := payFor(t, w, seller.HTTP+"/paid?n=more")
	require.Equal(t, "INSUFFICIENT_FUNDS", p.Error, "%+v", p)
	require.Contains(t, p.Message, "$0.00 is left in it")
	require.Contains(t, p.Message+fmt.Sprint(p.Details), owner.address)
	lab.EVMMint(home.EVM, 1_000_000) // the agent's own money does not step in, in any way
	for _, path := range []string{"/paid?own", "/either"} {
		require.Equal(t, "INSUFFICIENT_FUNDS", payFor(t, w, seller.HTTP+path).Error)
	}
	require.Empty(t, seller.control(t, `{}`).Vouchers)

	owner.fund(t, home, seller, "0.02")
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n=more").Status)
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/either").Status, "through the channel")
	news = seller.control(t, `{}`)
	require.Equal(t, []string{"deposit"}, news.Sent)
	require.Equal(t, []string{"11000", "12000"}, news.Vouchers)
	require.Equal(t, uint64(970_000), lab.EVMBalance(owner.address))
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))
	w.Close()

	var shown struct {
		Deposits []struct {
			Payer, Deposited, Charged, Locked string
			IsOwners                          bool
		}
	}
	channelCommand(t, home, 0, &shown, "list")
	require.Len(t, shown.Deposits, 1)
	require.True(t, shown.Deposits[0].IsOwners)
	require.Equal(t, []string{owner.address, "30000", "12000", "18000"}, []string{shown.Deposits[0].Payer,
		shown.Deposits[0].Deposited, shown.Deposits[0].Charged, shown.Deposits[0].Locked})

	var refunds struct {
		Refunds []struct{ Refunded, Payer string }
	}
	channelCommand(t, home, 0, &refunds, "refund", hostPort(seller.HTTP))
	require.Len(t, refunds.Refunds, 1)
	require.Equal(t, owner.address, refunds.Refunds[0].Payer)
	require.Equal(t, "18000", refunds.Refunds[0].Refunded)
	require.Equal(t, uint64(988_000), lab.EVMBalance(owner.address))
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))
}

// signTyped is another signer of the owner's, viem: it takes what eth_signTypedData_v4 takes.
func (o channelOwner) signTyped(t *testing.T, typed json.RawMessage) string {
	t.Helper()
	options, err := json.Marshal(map[string]any{"key": o.key, "data": typed})
	require.NoError(t, err)
	var made struct{ Signature string }
	stop, err := startScript(filepath.Join("lab", "parties", "signtyped.mjs"), options, &made)
	require.NoError(t, err)
	stop()
	return made.Signature
}

// The owner signs elsewhere: what is printed is what their signer takes, and its signature comes back.
func TestAnOwnerSignsElsewhere(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	bin := testworld.Build(t)
	seen, err := atTerminal(t, home, bin, testworld.Passphrase, "channel", "deposit", seller.HTTP+"/paid",
		"--owner", owner.address, "--amount", "0.005")
	require.NoError(t, err, "%s", seen)
	w := StartWallet(t, bin, home)
	require.Equal(t, "INSUFFICIENT_FUNDS", payFor(t, w, seller.HTTP+"/paid?n=0").Error, "not signed yet")
	at := strings.Index(seen, `{"domain"`)
	require.Positive(t, at, "%s", seen)
	var typed json.RawMessage
	require.NoError(t, json.NewDecoder(strings.NewReader(seen[at:])).Decode(&typed))

	stranger := newChannelOwner(t, lab)
	var out struct{ Deposit, Error string }
	channelCommand(t, home, 2, &out, "deposit", seller.HTTP+"/paid", "--owner", owner.address, "--signature",
		stranger.signTyped(t, typed))
	channelCommand(t, home, 0, &out, "deposit", seller.HTTP+"/paid", "--owner", owner.address, "--signature",
		owner.signTyped(t, typed))
	require.Equal(t, "5000", out.Deposit)
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n=1").Status)
	require.Equal(t, []string{"deposit"}, seller.control(t, `{}`).Sent)
	require.Equal(t, uint64(995_000), lab.EVMBalance(owner.address))
}

// What is left comes back to the owner without the seller, whoever of both asks: the owner by their own key,
// the agent by its. From then on nothing is signed, and when it is back the host is paid as any other.
func TestAnOwnersMoneyComesBackWithoutTheSeller(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	for _, account := range []string{owner.address, home.EVM} {
		anvil(t, lab, "anvil_setBalance", account, "0xde0b6b3a7640000")
	}
	owner.fund(t, home, seller, "0.01")
	w := StartWallet(t, testworld.Build(t), home)
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n=1").Status)
	require.Equal(t, uint64(990_000), lab.EVMBalance(owner.address))
	host := hostPort(seller.HTTP)
	var steps struct {
		Steps []struct {
			Ready       string
			IsLast      bool
			Transaction struct{ From, Unsigned, TransactionHash string }
		}
	}
	channelCommand(t, home, 0, &steps, "withdraw", host)
	require.Equal(t, owner.address, steps.Steps[0].Transaction.From)
	require.Contains(t, steps.Steps[0].Transaction.Unsigned, "0x02")
	require.Equal(t, "POLICY_DENIED", payFor(t, w, seller.HTTP+"/paid?n=2").Error, "it is asked back")

	stranger := newChannelOwner(t, lab)
	channelCommand(t, home, 2, &struct{}{}, "withdraw", host, "--owner-keypair", stranger.file)
	channelCommand(t, home, 0, &steps, "withdraw", host, "--owner-keypair", owner.file)
	require.NotEmpty(t, steps.Steps[0].Transaction.TransactionHash)
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.NotEmpty(t, steps.Steps[0].Ready, "the delay")
	lab.EVMIncreaseTime(900)
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.True(t, steps.Steps[0].IsLast)
	require.Equal(t, home.EVM, steps.Steps[0].Transaction.From)
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(owner.address), "nothing was claimed in time")
	require.Zero(t, lab.EVMBalance(home.EVM))

	lab.EVMMint(home.EVM, 1_000_000)
	p := payFor(t, w, seller.HTTP+"/paid?n=3")
	require.Equal(t, "APPROVAL_REQUIRED", p.Error, "a deposit of the agent's: %+v", p)
	require.Contains(t, p.Message, "$0.01 is at least 3 times")
}

// A process is killed while the seller, who has charged, still holds the answer: the next one shows the same
// voucher and no other, and the deposit was made once.
func TestKilledInAnOwnersChannel(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	owner.fund(t, home, seller, "0.01")
	for n, ceilings := range [][]string{{"1000", "1000"}, {"2000", "2000"}} { // with the deposit, and without
		seller.control(t, `{"hold":1}`)
		w := StartWallet(t, testworld.Build(t), home)
		done := make(chan struct{})
		url := fmt.Sprintf("%s/paid?n=%d", seller.HTTP, n)
		go func() {
			defer close(done)
			_, _ = w.Call(t.Context(), "x402_pay", map[string]any{"url": url})
		}()
		var seen []string
		require.Eventually(t, func() bool {
			news := seller.control(t, `{}`)
			seen = append(seen, news.Vouchers...)
			return news.Hold == 0
		}, time.Minute, 20*time.Millisecond)
		w.Kill()
		<-done
		heir := StartWallet(t, testworld.Build(t), home)
		p := payFor(t, heir, url)
		require.Equal(t, "paid_not_served", p.Status, "%+v", p)
		require.Equal(t, ceilings, append(seen, seller.control(t, `{}`).Vouchers...))
		heir.Close()
	}
	w := StartWallet(t, testworld.Build(t), home)
	p := payFor(t, w, seller.HTTP+"/paid?n=3")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, "0.003", p.Budget.Session.Spent)
	require.Equal(t, []string{"3000"}, seller.control(t, `{}`).Vouchers)
	require.Equal(t, uint64(990_000), lab.EVMBalance(owner.address))
}

// A seller does not hear that the facilitator made the owner's deposit: the same call shows the voucher
// alone, and is served for it when the seller looks at the chain (the reference server does after five
// minutes, or anew).
func TestAnOwnersDepositThatItsSellerMissed(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	owner.fund(t, home, seller, "0.01")
	w := StartWallet(t, testworld.Build(t), home)
	seller.control(t, `{"deaf":1}`)
	p := payFor(t, w, seller.HTTP+"/paid?n=1")
	require.NotEqual(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(990_000), lab.EVMBalance(owner.address), "it was made")
	seller.control(t, `{"forget":1}`)
	p = payFor(t, w, seller.HTTP+"/paid?n=1")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, "0.001", p.Budget.Session.Spent)
	news := seller.control(t, `{}`)
	require.Empty(t, news.Sent)
	require.Equal(t, []string{"1000"}, news.Vouchers)
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n=2").Status)
	require.Equal(t, []string{"2000"}, seller.control(t, `{}`).Vouchers)
}

// The ledger is lost: the owner writes the channel down again, and no more is promised than was spent and the
// price. Without the owner nothing is signed in it.
func TestALostLedgerFindsAnOwnersChannel(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	owner := newChannelOwner(t, lab)
	key, _ := newEVMKey(t)
	rules, secret := lab.Config(seller.options()), hexutil.Encode(crypto.FromECDSA(key))
	first := homeOf(t, rules, secret)
	owner.fund(t, first, seller, "0.01")
	w := StartWallet(t, testworld.Build(t), first)
	for _, n := range []string{"1", "2", "3"} {
		require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n="+n).Status)
	}
	w.Close()
	seller.control(t, `{}`)

	again := homeOf(t, rules, secret)
	require.Equal(t, first.EVM, again.EVM)
	w = StartWallet(t, testworld.Build(t), again)
	require.Equal(t, "INSUFFICIENT_FUNDS", payFor(t, w, seller.HTTP+"/paid?n=4").Error, "it has none itself")
	owner.fund(t, again, seller, "0")
	p := payFor(t, w, seller.HTTP+"/paid?n=4")
	require.Equal(t, "paid", p.Status, "%+v", p)
	news := seller.control(t, `{}`)
	require.Empty(t, news.Sent)
	require.Equal(t, []string{"1000", "4000"}, news.Vouchers)
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n=5").Status)
	require.Equal(t, []string{"5000"}, seller.control(t, `{}`).Vouchers)
	require.Equal(t, uint64(990_000), lab.EVMBalance(owner.address))
}

// Two processes and many calls use one channel: no two vouchers are for the same sum, and each counts.
func TestProcessesShareAnOwnersChannel(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	owner.fund(t, home, seller, "0.012")
	one, two := StartWallet(t, testworld.Build(t), home), StartWallet(t, testworld.Build(t), home)
	const each = 7
	var calls sync.WaitGroup
	var paid, refused atomic.Int32
	for i, w := range []*Wallet{one, two} {
		for n := range each {
			calls.Go(func() {
				switch p := payFor(t, w, fmt.Sprintf("%s/paid?w=%d&n=%d", seller.HTTP, i, n)); {
				case p.Status == "paid":
					paid.Add(1)
				case p.Error == "INSUFFICIENT_FUNDS":
					refused.Add(1)
				}
			})
		}
	}
	calls.Wait()
	require.EqualValues(t, 12, paid.Load())
	require.EqualValues(t, 2*each-12, refused.Load())
	news := seller.control(t, `{}`)
	require.Equal(t, []string{"deposit"}, news.Sent)
	require.Len(t, news.Vouchers, 12)
	for i, ceiling := range news.Vouchers {
		require.Equal(t, fmt.Sprint(1000*(i+1)), ceiling)
	}
	require.Equal(t, uint64(988_000), lab.EVMBalance(owner.address))
}

// A voucher that was refused can be claimed all the same, so it counts for good, and the next ones that
// promise no more count nothing: what the windows have is what can be claimed.
func TestARefusedVoucherOfAnOwnersChannelCounts(t *testing.T) {
	_, seller, owner, home := ownersWorld(t)
	owner.fund(t, home, seller, "0.01")
	w := StartWallet(t, testworld.Build(t), home)
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n=1").Status)
	require.Equal(t, "OUTCOME_UNKNOWN", payFor(t, w, seller.HTTP+"/fail").Error)
	for n, spent := range []string{"0.003", "0.003", "0.004"} { // promised: 3000, 3000, 4000
		p := payFor(t, w, fmt.Sprintf("%s/paid?m=%d", seller.HTTP, n))
		require.Equal(t, "paid", p.Status, "%+v", p)
		require.Equal(t, spent, p.Budget.Session.Spent)
	}
	require.Equal(t, []string{"1000", "2000", "3000", "2000", "3000", "4000"},
		seller.control(t, `{}`).Vouchers)
}
