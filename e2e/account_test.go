package e2e

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

type accountRow struct {
	Name, Solana, EVM, Problem string
	Index                      int
	Day                        struct{ Spent, Limit string }
}

func addAccount(t *testing.T, home testworld.Home, bin, name string, more ...string) accountRow {
	t.Helper()
	seen, err := atTerminal(t, home, bin, testworld.Passphrase,
		append([]string{"account", "add", name}, more...)...)
	require.NoError(t, err, seen)
	require.Equal(t, 1, strings.Count(seen, "Passphrase"), "asked once: %s", seen)
	return account(t, home, bin, name)
}

func account(t *testing.T, home testworld.Home, bin, name string) accountRow {
	t.Helper()
	var list struct{ Accounts []accountRow }
	runWallet(t, home, bin, &list, "account", "list", "--json")
	for _, row := range list.Accounts {
		if row.Name == name {
			return row
		}
	}
	t.Fatalf("no account %s: %+v", name, list)
	return accountRow{}
}

// Two accounts and the wallet's own on one ledger, each in an editor of its own: the money that moves is each
// one's, and so are the limits, below the owner's.
func TestAccounts(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty}))
	lab.EVMMint(home.EVM, 1_000_000)
	lab.SVMFund(home.Solana, "", 1_000_000)
	own := testworld.StartWallet(t, bin, home)
	// below approve_above; a payment is $0.001
	research := addAccount(t, home, bin, "research", "--budget", "day=0.004", "--agent", "bot-*")
	travel := addAccount(t, home, bin, "travel")
	for _, a := range []accountRow{research, travel} {
		require.NotEqual(t, home.EVM, a.EVM)
		lab.EVMMint(a.EVM, 1_000_000)
		lab.SVMFund(a.Solana, "", 1_000_000)
	}
	from := func(name string) *Wallet {
		return testworld.StartWalletWith(t, bin, home, WalletOptions{Args: []string{"--account", name}})
	}
	byResearch, byTravel := from("research"), from("travel")

	pays := func(t *testing.T, w *Wallet, evm, solana string) {
		lab := lab.For(t)
		query := "?by=" + evm
		p := buyAnew(t, w, lab.Seller+"/evm"+query)
		require.Equal(t, "paid", p.Status, "%+v", p)
		require.Equal(t, []EVMTransfer{{From: evm, To: lab.EVM.PayTo, Amount: price}},
			lab.EVMTransfers(p.TransactionSignature))
		p = buyAnew(t, w, lab.Seller+"/svm")
		require.Equal(t, "paid", p.Status, "%+v", p)
		changes := map[string]int64{}
		for _, change := range lab.SVMChanges(p.TransactionSignature) {
			changes[change.Owner] = change.Change
		}
		require.Equal(t, map[string]int64{solana: -price, lab.SVM.PayTo: price}, changes)
	}
	t.Run("each pays from its own keys", func(t *testing.T) {
		pays(t, own, home.EVM, home.Solana) // it was opened before there was another
		pays(t, byResearch, research.EVM, research.Solana)
		pays(t, byTravel, travel.EVM, travel.Solana)
	})
	t.Run("and within its own limits", func(t *testing.T) {
		lab := lab.For(t)
		var wg sync.WaitGroup
		answers := make([]answer, 8)
		for i := range answers {
			wg.Go(func() { answers[i] = payFor(t, byResearch, lab.Seller+"/evm?n="+strconv.Itoa(i)) })
		}
		wg.Wait()
		paid := 0
		for _, p := range answers {
			if p.Status == "paid" {
				paid++
				continue
			}
			require.Equal(t, []any{"BUDGET_EXCEEDED", "team"}, []any{p.Error, p.Details["layer"]}, "%+v", p)
		}
		require.Equal(t, 2, paid, "of $0.004 a day two were spent before")
		require.Equal(t, "0.004", account(t, home, bin, "research").Day.Spent)
		p := payFor(t, own, lab.Seller+"/evm?own")
		require.Equal(t, "paid", p.Status, "%+v", p)
		p = payFor(t, byTravel, lab.Seller+"/evm?travel")
		require.Equal(t, "paid", p.Status, "%+v", p)
	})
	t.Run("the same call is a purchase of each", func(t *testing.T) {
		lab := lab.For(t)
		had := lab.EVMBalance(travel.EVM)
		for _, w := range []*Wallet{own, byTravel} {
			p := payFor(t, w, lab.Seller+"/evm?same")
			require.Equal(t, "paid", p.Status, "%+v", p)
		}
		require.Equal(t, had-price, lab.EVMBalance(travel.EVM))
	})
	t.Run("what a person sees", func(t *testing.T) {
		lab := lab.For(t)
		var paid answer
		runWallet(t, home, bin, &paid, "pay", "--json", "--account", "travel", lab.Seller+"/evm?cli")
		require.Equal(t, []EVMTransfer{{From: travel.EVM, To: lab.EVM.PayTo, Amount: price}},
			lab.EVMTransfers(paid.TransactionSignature))
		var history struct {
			Transactions []struct{ Agent, PaymentID string }
		}
		runWallet(t, home, bin, &history, "history", "--json", "--account", "travel")
		require.Equal(t, paid.PaymentID, history.Transactions[0].PaymentID)
		for _, row := range history.Transactions {
			require.Equal(t, "travel", row.Agent)
		}
		var addresses struct {
			Addresses []struct{ Chain, Address string }
		}
		runWallet(t, home, bin, &addresses, "address", "--json", "--account", "travel")
		require.Equal(t, travel.Solana, addresses.Addresses[0].Address)
		require.Equal(t, travel.EVM, addresses.Addresses[1].Address)
		seen, err := atTerminal(t, home, bin, testworld.Passphrase, "pay", "--account", "nobody",
			lab.Seller+"/evm?nobody")
		require.Error(t, err)
		require.Contains(t, seen, `the wallet has no account "nobody"`)
	})
	t.Run("unlocked by the unlock agent", func(t *testing.T) {
		seen, err := atTerminal(t, home, bin, testworld.Passphrase, "unlock")
		require.NoError(t, err, seen)
		defer runWallet(t, home, bin, nil, "lock")
		locked := WalletOptions{Env: []string{"X402_WALLET_PASSPHRASE_FILE="},
			Args: []string{"--account", "travel"}}
		w := testworld.StartWalletWith(t, bin, home, locked)
		pays(t, w, travel.EVM, travel.Solana)
	})
	require.NoError(t, own.Close())
	require.NoError(t, byResearch.Close())
	require.NoError(t, byTravel.Close())
	t.Run("at a service", func(t *testing.T) {
		accountsAtAService(t, lab.For(t), bin, home, research, travel)
	})
}

// accountsAtAService: a service's agents pay from where the rules say, and who has no name from where the
// host says.
func accountsAtAService(t *testing.T, lab *Lab, bin string, home testworld.Home, research,
	travel accountRow) {
	seen, err := atTerminal(t, home, bin, testworld.Passphrase, "budget", "set", "day", "1.00", "--account",
		"research")
	require.NoError(t, err, seen)
	token := map[string]string{}
	for _, name := range []string{"bot-1", "clerk"} {
		seen, err := atTerminal(t, home, bin, testworld.Passphrase, "agents", "add", name)
		require.NoError(t, err, seen)
		_, token[name], _ = strings.Cut(seen, "x402w_")
		token[name] = "x402w_" + strings.Fields(token[name])[0]
	}
	service := testworld.StartService(t, bin, home.Env())
	defer service.Stop()
	at := func(token string, args ...string) *Wallet {
		return testworld.StartWalletWith(t, bin, home, WalletOptions{Args: args,
			Env: []string{"X402_WALLET_SERVICE=" + service.Socket, "X402_WALLET_TOKEN=" + token}})
	}
	for name, c := range map[string]struct {
		w   *Wallet
		evm string
	}{
		"an agent of an account":          {at(token["bot-1"]), research.EVM},
		"one that says so":                {at(token["bot-1"], "--account", "research"), research.EVM},
		"another agent":                   {at(token["clerk"]), home.EVM},
		"a caller without a name":         {at(""), home.EVM},
		"one whose host names an account": {at("", "--account", "travel"), travel.EVM},
	} {
		p := payFor(t, c.w, lab.Seller+"/evm?service="+strings.ReplaceAll(name, " ", "-"))
		require.Equal(t, "paid", p.Status, "%s: %+v", name, p)
		require.Equal(t, []EVMTransfer{{From: c.evm, To: lab.EVM.PayTo, Amount: price}},
			lab.EVMTransfers(p.TransactionSignature), name)
		require.NoError(t, c.w.Close(), name)
	}
	for name, args := range map[string][]string{
		"do not have the agent \"clerk\" pay": {"--account", "research"},
		"has no account":                      {"--account", "nobody"},
	} {
		cmd := home.Command(t.Context(), bin, append([]string{"mcp"}, args...)...)
		cmd.Env = append(cmd.Env, "X402_WALLET_SERVICE="+service.Socket, "X402_WALLET_TOKEN="+token["clerk"])
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), name)
	}
}
