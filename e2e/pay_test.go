package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

type answer struct {
	Status, PaymentID, Content, AmountPaid, Price, UpTo, Asset, Symbol, Network, PayTo, TransactionSignature,
	Facilitator, Proof string
	Next            nextStep
	HTTPStatus      int
	Headers         map[string]string
	PaymentRequired bool
	Budget          struct{ Session, Day struct{ Spent, Held string } }

	Error, Message, FixedBy, Spent string
	SafeToRetry                    bool
	Details                        map[string]any
}

// nextStep is next of a result; in a list of the history it is the page that follows.
type nextStep struct{ Do, Why, Command string }

func (n *nextStep) UnmarshalJSON(text []byte) error {
	var said struct{ Do, Why, Command string }
	if json.Unmarshal(text, &said) == nil {
		n.Do, n.Why, n.Command = said.Do, said.Why, said.Command
	}
	return nil
}

func call(t testing.TB, w *Wallet, tool string, args map[string]any) (p answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlab.OpWait)
	defer cancel()
	r, err := w.Call(ctx, tool, args)
	require.NoError(t, err, w.Stderr())
	require.JSONEq(t, string(r.Structured), r.Text, "the same JSON in both places")
	require.NoError(t, json.Unmarshal(r.Structured, &p))
	require.Equal(t, r.IsError, p.Error != "", r.Text)
	return p
}

func payFor(t testing.TB, w *Wallet, url string, more ...any) answer {
	t.Helper()
	args := map[string]any{"url": url}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return call(t, w, "x402_pay", args)
}

const plenty = "per_call = \"1.00\"\nsession = \"5.00\"\nrate = 10000"

func funded(t testing.TB, lab *Lab, options ConfigOptions) (*Wallet, testworld.Home) {
	t.Helper()
	bin := testworld.Build(t)
	if options.Budget == "" {
		options.Budget = plenty
	}
	home := testworld.NewHome(t, lab.Config(options))
	lab.EVMMint(home.EVM, 1_000_000)
	lab.SVMFund(home.Solana, "", 1_000_000)
	return testworld.StartWallet(t, bin, home), home
}

func settled(lab *Lab, i int) (n int) {
	for _, c := range lab.FacilitatorLog(i) {
		if c.Op == "settle" && strings.Contains(string(c.Answer), `"success":true`) {
			n++
		}
	}
	return n
}

// Money moves on real chains through the reference facilitator and sellers: V2 and V1, EVM and
// Solana, SPL Token and Token-2022; HTTP 200, exact balances, a receipt, and the transaction in the
// history.
func TestPaysFromItsOwnAccounts(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})
	lab.SVMFund(home.Solana, lab.SVM.Mint2022, 1_000_000)
	lab.SVMFund(lab.SVM.PayTo, lab.SVM.Mint2022, 0)
	for _, c := range []struct {
		name, url, network, mint string
		evm                      bool
	}{
		{"V2 EVM", lab.Seller + "/evm", lab.EVM.Network, "", true},
		{"V2 Solana", lab.Seller + "/svm", lab.SVM.Network, "", false},
		{"V2 Token-2022", lab.Seller + "/svm2022", lab.SVM.Network, lab.SVM.Mint2022, false},
		{"V1 EVM", lab.SellerV1 + "/v1/evm", lab.EVM.Network, "", true},
		{"V1 Solana", lab.SellerV1 + "/v1/svm", lab.SVM.Network, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := lab.For(t)
			balances := func() (ours, theirs uint64) {
				if c.evm {
					return lab.EVMBalance(home.EVM), lab.EVMBalance(lab.EVM.PayTo)
				}
				return lab.SVMBalance(home.Solana, c.mint), lab.SVMBalance(lab.SVM.PayTo, c.mint)
			}
			ours, theirs := balances()
			p := payFor(t, w, c.url)
			require.Empty(t, p.Error, "%+v", p)
			require.Equal(t, "paid", p.Status)
			require.Equal(t, 200, p.HTTPStatus)
			require.Contains(t, p.Content, `"ok":true`)
			require.Equal(t, "1000", p.AmountPaid)
			require.Equal(t, "$0.001", p.Price)
			require.Equal(t, c.network, p.Network)
			require.Equal(t, "claimed", p.Proof)
			require.NotEmpty(t, p.TransactionSignature)
			oursNow, theirsNow := balances()
			require.Equal(t, uint64(1000), ours-oursNow)
			require.Equal(t, uint64(1000), theirsNow-theirs)

			list := history(t, w)
			require.Equal(t, p.PaymentID, list[0].PaymentID)
			require.Equal(t, p.TransactionSignature, list[0].TransactionSignature)
			require.Equal(t, "settled", list[0].Status)
		})
	}
}

type historyRow struct {
	URL, PaymentID, Status, Proof, TransactionSignature, Facilitator, Price string
}

func history(t testing.TB, w *Wallet) []historyRow {
	t.Helper()
	r := must.Get(w.Call(t.Context(), "x402_history", map[string]any{"limit": 100}))(t)
	h := must.JSON[struct{ Transactions []historyRow }](r.Structured)(t)
	return h.Transactions
}

// The X-Payment-Required dialects: the wallet settles, the first facilitator is down, the second is used with
// the same bytes.
func TestTheWalletSettlesAtTheSecondFacilitator(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})
	lab.SVMFund(lab.SVM.OzskrPayTo, "", 0)
	lab.ResetLogs()
	lab.StopPart(testlab.PartFacilitator0)
	for _, path := range []string{"/ozskr/v2evm", "/ozskr/v1evm", "/ozskr/v2", "/ozskr/v1"} {
		t.Run(path, func(t *testing.T) {
			p := payFor(t, w, lab.SellerOzskr+path)
			require.Empty(t, p.Error, "%+v", p)
			require.Equal(t, "paid", p.Status)
			require.Equal(t, "lab1", p.Facilitator)
			require.NotEmpty(t, p.TransactionSignature)
		})
	}
	require.Equal(t, 4, settled(lab, 1))
	require.Zero(t, settled(lab, 0))
	require.Len(t, lab.EVMSpentNonces(home.EVM), 2)
}

// Each refusal has its exact code; nothing is signed and nothing is spent.
func TestRefusals(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	lab.ResetLogs()
	// nothing is ever recorded in them
	broke, rich := testworld.NewHome(t, lab.Config(ConfigOptions{})),
		testworld.NewHome(t, lab.Config(ConfigOptions{}))
	lab.EVMMint(rich.EVM, 1_000_000)
	other := lab.SVMKey("somebody-else").Address
	ownerOf := func(t *testing.T, name, delegate, mint string, amount uint64) string {
		key := lab.SVMKey(name)
		lab.SVMFund(key.Address, mint, 500_000)
		return lab.SVMDelegate(name, delegate, mint, amount)
	}
	for _, c := range []struct {
		name, url, code string
		args            []any
		budget          string
		fund            bool
		account         func(t *testing.T, agent string) string
		stop            testlab.Part
	}{
		{name: "maxAmount too low", url: lab.Seller + "/evm", code: "AMOUNT_EXCEEDS_MAX",
			args: []any{"maxAmount", "999"}, fund: true},
		{name: "maxAmount in dollars too low", url: lab.Seller + "/evm", code: "AMOUNT_EXCEEDS_MAX",
			args: []any{"maxAmount", "$0.0009"}, fund: true},
		{name: "session spent", url: lab.Seller + "/evm", code: "BUDGET_EXCEEDED",
			budget: "session = \"0.0009\"", fund: true},
		{name: "above one call", url: lab.Seller + "/evm/expensive", code: "BUDGET_EXCEEDED", fund: true},
		{name: "no funds on EVM", url: lab.Seller + "/evm", code: "INSUFFICIENT_FUNDS"},
		{name: "no funds on Solana", url: lab.Seller + "/svm", code: "INSUFFICIENT_FUNDS"},
		{name: "delegation too small", url: lab.Seller + "/svm", code: "DELEGATION_EXHAUSTED",
			account: func(t *testing.T, agent string) string { return ownerOf(t, "small", agent, "", 999) }},
		{name: "wrong delegate", url: lab.Seller + "/svm", code: "DELEGATE_MISMATCH",
			account: func(t *testing.T, _ string) string { return ownerOf(t, "wrong", other, "", 10_000) }},
		{name: "wrong mint", url: lab.Seller + "/svm", code: "DELEGATE_MISMATCH",
			account: func(t *testing.T, agent string) string {
				return ownerOf(t, "mint", agent, lab.SVM.Mint2022, 10_000)
			}},
		{name: "no delegation", url: lab.Seller + "/svm", code: "NO_DELEGATION",
			account: func(t *testing.T, agent string) string {
				account := ownerOf(t, "revoked", agent, "", 10_000)
				lab.SVMRevoke("revoked", "")
				return account
			}},
		{name: "frozen", url: lab.Seller + "/svm", code: "DELEGATE_MISMATCH",
			account: func(t *testing.T, agent string) string {
				account := ownerOf(t, "frozen", agent, "", 10_000)
				lab.SVMFreeze(account)
				return account
			}},
		{name: "node down", url: lab.Seller + "/evm", code: "RPC_ERROR", fund: true, stop: testlab.PartEVM},
		{name: "seller down", url: lab.Seller + "/evm", code: "NETWORK_ERROR", fund: true,
			stop: testlab.PartSeller},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := lab.For(t)
			options := ConfigOptions{Budget: plenty}
			if c.budget != "" {
				options.Budget = c.budget
			}
			home := broke
			if c.fund {
				home = rich
			}
			if c.account != nil {
				options.TokenAccount = c.account(t, home.Solana)
			}
			withConfig(t, home, bin, lab.Config(options))
			w := testworld.StartWallet(t, bin, home)
			if c.stop != "" {
				lab.StopPart(c.stop)
			}
			p := payFor(t, w, c.url, c.args...)
			require.Equal(t, c.code, p.Error, "%+v", p)
			require.Equal(t, "0", p.Spent)
			require.True(t, p.SafeToRetry)
			require.NotEmpty(t, p.FixedBy)
			require.Empty(t, history(t, w))
		})
	}
	require.Zero(t, settled(lab, 0)+settled(lab, 1))
}

// A hundred calls at once with room for ten: ten settle, by the facilitator's count; with two
// processes as well.
func TestAHundredParallelCalls(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			lab := lab.For(t)
			home := testworld.NewHome(t,
				lab.Config(ConfigOptions{Budget: "session = \"0.01\"\nrate = 10000"}))
			lab.EVMMint(home.EVM, 1_000_000)
			lab.ResetLogs()
			var wallets []*Wallet
			for range processes {
				wallets = append(wallets, testworld.StartWallet(t, bin, home))
			}
			var wait sync.WaitGroup
			var mu sync.Mutex
			counts := map[string]int{}
			for i := range 100 {
				w := wallets[i%processes]
				wait.Go(func() {
					p := payFor(t, w, lab.Seller+"/evm")
					mu.Lock()
					counts[p.Status+p.Error]++
					mu.Unlock()
				})
			}
			wait.Wait()
			require.Equal(t, map[string]int{"paid": 10, "BUDGET_EXCEEDED": 90}, counts)
			require.Equal(t, 10, settled(lab, 0))
			require.Equal(t, uint64(1_000_000-10*1000), lab.EVMBalance(home.EVM))
		})
	}
}
