package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/wallet/imported"
)

// batchSeller is the reference server and facilitator of batch-settlement (e2e/lab/parties/batch.mjs).
type batchSeller struct {
	HTTP    string `json:"http"`
	Control string `json:"control"`
	// of the facilitator alone, for sellers elsewhere
	Facilitator string `json:"facilitator"`
}

func startBatch(t testing.TB, lab *Lab) *batchSeller {
	t.Helper()
	options := map[string]string{"evm": lab.EVM.URL, "payTo": lab.EVM.PayTo}
	s := &batchSeller{}
	testlab.StartParty(t, "parties/batch.mjs", options, s)
	return s
}

type batchNews struct {
	Sent     []string // what the facilitator called
	Asked    int
	Vouchers []string // their ceilings
	Hold     int      // answers that are still to be held
}

func (s *batchSeller) control(t *testing.T, state string) (news batchNews) {
	t.Helper()
	response := must.Get(http.Post(s.Control, "application/json", bytes.NewReader([]byte(state))))(t)
	text := bodyOf(t, response)
	require.NoError(t, json.Unmarshal([]byte(text), &news), "%s", text)
	return news
}

func (s *batchSeller) options() ConfigOptions {
	return ConfigOptions{Budget: plenty, Loopback: []string{testlab.HostPort(s.HTTP)}}
}

// Accounts of anvil's, with ether for gas. Each is one test's: a channel is known by its payer.
const (
	batchLostKey = "0x92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e"
	batchExitKey = "0x4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356"
)

// homeOf is a wallet with a key that there is already, and an empty ledger.
func homeOf(t *testing.T, rules, key string) testworld.Home {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.hex")
	writePrivate(t, file, key)
	imported := must.Get(imported.Read(t.Context(), "key-file:evm", file, nil))(t)
	home := testworld.NewHome(t, "")
	var err error
	home.EVM, home.Solana, err = testworld.MakeHome(home.Dir, rules, testworld.Passphrase, imported)
	require.NoError(t, err)
	return home
}

func channelCommand(t *testing.T, home testworld.Home, code int, into any, args ...string) {
	t.Helper()
	endWallet(t, home, testworld.Build(t), code, into, append([]string{"channel"}, args...)...)
}

type depositsAnswer struct {
	Deposits []struct{ Server, Deposited, Charged, Promised, Locked, Stopped string }
}

// A deposit with the first call, then vouchers alone: the deposit is the seller's minimum, no transaction is
// made for the calls after it, and the budgets count it once.
func TestPaysThroughAChannelWithADeposit(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	w, home := funded(t, lab, seller.options())

	p := payFor(t, w, seller.HTTP+"/paid?n=1")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
	require.Equal(t, []string{"deposit"}, seller.control(t, `{}`).Sent)
	for _, n := range []string{"2", "3", "4"} {
		p = payFor(t, w, seller.HTTP+"/paid?n="+n)
		require.Equal(t, "paid", p.Status, "%+v", p)
		require.Equal(t, "$0.001", p.Price)
		require.Equal(t, "0.01", p.Budget.Session.Spent, "counted when it was deposited, and once")
	}
	news := seller.control(t, `{}`)
	require.Empty(t, news.Sent)
	require.Equal(t, []string{"2000", "3000", "4000"}, news.Vouchers)
	require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
	require.Len(t, history(t, w), 4)

	var shown depositsAnswer
	channelCommand(t, home, 0, &shown, "list")
	require.Len(t, shown.Deposits, 1)
	require.Equal(t, []string{"10000", "4000", "4000", "6000"}, []string{shown.Deposits[0].Deposited,
		shown.Deposits[0].Charged, shown.Deposits[0].Promised, shown.Deposits[0].Locked})

	for n := range 7 { // the tenth call is the last that the deposit covers
		p = payFor(t, w, fmt.Sprintf("%s/paid?m=%d", seller.HTTP, n))
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	require.Equal(t, []string{"deposit"}, seller.control(t, `{}`).Sent)
	require.Equal(t, uint64(980_000), lab.EVMBalance(home.EVM))

	seller.control(t, `{"claim":true}`)
	var report struct{ Settled, Failed int }
	runWallet(t, home, testworld.Build(t), &report, "reconcile")
	require.Zero(t, report.Failed)
}

// What was not charged comes back: from the seller, and without it.
func TestADepositComesBack(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	home := homeOf(t, lab.Config(seller.options()), batchExitKey)
	lab.EVMMint(home.EVM, 1_000_000)
	before := lab.EVMBalance(home.EVM)
	host := testlab.HostPort(seller.HTTP)
	pay := func(n int) {
		t.Helper()
		w := testworld.StartWallet(t, testworld.Build(t), home)
		defer w.Close()
		p := payFor(t, w, fmt.Sprintf("%s/paid?n=%d", seller.HTTP, n))
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	pay(1)
	pay(2)
	var refunds struct {
		Refunds []struct{ Refunded, Transaction string }
	}
	channelCommand(t, home, 0, &refunds, "refund", host)
	require.Len(t, refunds.Refunds, 1)
	require.Equal(t, "8000", refunds.Refunds[0].Refunded)
	require.Equal(t, before-2_000, lab.EVMBalance(home.EVM))
	channelCommand(t, home, 0, &refunds, "refund", host)
	require.Empty(t, refunds.Refunds)

	pay(3)
	require.Equal(t, before-12_000, lab.EVMBalance(home.EVM))
	var steps struct {
		Steps []struct {
			Amount, Ready string
			IsLast        bool
			Transaction   struct{ Unsigned, TransactionHash string }
		}
	}
	channelCommand(t, home, 0, &steps, "withdraw", host)
	require.Len(t, steps.Steps, 1)
	require.Contains(t, steps.Steps[0].Transaction.Unsigned, "0x02")
	w := testworld.StartWallet(t, testworld.Build(t), home)
	require.Equal(t, "POLICY_DENIED", payFor(t, w, seller.HTTP+"/paid?n=4").Error, "it is asked back")
	w.Close()
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.NotEmpty(t, steps.Steps[0].Transaction.TransactionHash)
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.NotEmpty(t, steps.Steps[0].Ready, "the delay")
	lab.EVMIncreaseTime(900)
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.True(t, steps.Steps[0].IsLast)
	require.Equal(t, before-2_000, lab.EVMBalance(home.EVM), "all that the seller did not claim in time")
}

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

	w := testworld.StartWallet(t, testworld.Build(t), home)
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
	channelCommand(t, home, 0, &refunds, "refund", testlab.HostPort(seller.HTTP))
	require.Len(t, refunds.Refunds, 1)
	require.Equal(t, owner.address, refunds.Refunds[0].Payer)
	require.Equal(t, "18000", refunds.Refunds[0].Refunded)
	require.Equal(t, uint64(988_000), lab.EVMBalance(owner.address))
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))
}

// signTyped is another signer of the owner's, viem: it takes what eth_signTypedData_v4 takes.
func (o channelOwner) signTyped(t *testing.T, typed json.RawMessage) string {
	t.Helper()
	options := map[string]any{"key": o.key, "data": typed}
	var made struct{ Signature string }
	testlab.StartParty(t, "parties/signtyped.mjs", options, &made)
	return made.Signature
}

// The owner signs elsewhere: what is printed is what their signer takes, and its signature comes back.
func TestAnOwnerSignsElsewhere(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	bin := testworld.Build(t)
	seen, err := atTerminal(t, home, bin, testworld.Passphrase, "channel", "deposit", seller.HTTP+"/paid",
		"--owner", owner.address, "--amount", "0.005")
	require.NoError(t, err, "%s", seen)
	w := testworld.StartWallet(t, bin, home)
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
	w := testworld.StartWallet(t, testworld.Build(t), home)
	require.Equal(t, "paid", payFor(t, w, seller.HTTP+"/paid?n=1").Status)
	require.Equal(t, uint64(990_000), lab.EVMBalance(owner.address))
	host := testlab.HostPort(seller.HTTP)
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

// A seller does not hear that the facilitator made the owner's deposit: the same call shows the voucher
// alone, and is served for it when the seller looks at the chain (the reference server does after five
// minutes, or anew).
func TestAnOwnersDepositThatItsSellerMissed(t *testing.T) {
	lab, seller, owner, home := ownersWorld(t)
	owner.fund(t, home, seller, "0.01")
	w := testworld.StartWallet(t, testworld.Build(t), home)
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
