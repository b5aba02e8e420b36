package matrix

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/recovery"
)

// world is what all cells share: the lab, and a door before each of its sellers.
type world struct {
	t     *testing.T
	lab   *testlab.Lab
	bin   string
	doors map[string]*door
	nuwa  *nuwa
	tempo *testlab.Tempo // it is nil until a test asks for its sellers
}

// stand is a wallet in a set-up, which pays in one way.
type stand struct {
	*world
	pair        *testing.T // the test of all cells of this stand
	t           *testing.T // of the cell that runs
	lab         *testlab.Lab
	way         way
	setup       setup
	tables      string // of config.toml, for the set-up
	home        testworld.Home
	evm, solana string // the account that pays
	owner       string // whose money it is, where that is not the agent's
	door        *door
	agents      []agent
	turn        int    // whose turn it is to buy
	bought      int    // calls that are a purchase of their own, so far
	paid        int    // those that cost something
	used        uint64 // of the budget, by the test's own count
	promised    uint64 // by the vouchers that the seller got
}

const funds = 1_000_000 // of each account that pays, in units

// newStand makes the wallet, and starts it.
func newStand(t *testing.T, w *world, way way, setup setup) *stand {
	t.Helper()
	way.price, way.covers = cmp.Or(way.price, price), max(way.covers, 1)
	way.counts, way.goods = cmp.Or(way.counts, way.price), cmp.Or(way.goods, goods)
	way.unheard, way.lost = cmp.Or(way.unheard, "OUTCOME_UNKNOWN"), cmp.Or(way.lost, "paid_not_served")
	way.after, way.serves = cmp.Or(way.after, "settled"), max(way.serves, 1)
	s := &stand{world: w, pair: t, t: t, lab: w.lab.For(t), way: way, setup: setup}
	s.door = w.doorOf(way.seller)
	if setup.rules != nil {
		s.tables = setup.rules(s)
	}
	s.home = testworld.NewHome(t, s.config(testlab.ConfigOptions{}))
	s.evm, s.solana = s.home.EVM, s.home.Solana
	if setup.account != "" {
		keys := must.Get(wallet.Open(s.home.Dir))(t)
		account := must.Get(owner.AddAccount(t.Context(), keys, wallet.FromValue(testworld.Passphrase),
			owner.NewAccount{Name: setup.account, Derive: recovery.Derive}))(t)
		s.evm, s.solana = account.EVM, account.Solana
	}
	s.seal(way.prepare(s))
	if setup.prepare != nil {
		setup.prepare(s)
	}
	for i := range max(setup.count, 1) {
		s.agents = append(s.agents, setup.start(s, i))
	}
	s.door.sent() // of who was here before
	return s
}

// config is config.toml with what is said of this way to pay.
func (s *stand) config(o testlab.ConfigOptions) string {
	o.Budget, o.More = plenty, o.More+s.tables
	o.Loopback = append(o.Loopback, s.door.URL)
	return s.lab.Config(o)
}

// seal makes these the owner's rules.
func (s *stand) seal(o testlab.ConfigOptions) {
	file := filepath.Join(s.home.Dir, "config.toml")
	require.NoError(s.t, os.WriteFile(file, []byte(s.config(o)), 0o600))
	keys := must.Get(wallet.Open(s.home.Dir))(s.t)
	require.NoError(s.t, keys.Unlock(s.t.Context(), wallet.FromValue(testworld.Passphrase)))
	require.NoError(s.t, testworld.SealHome(s.home.Dir, keys))
	require.NoError(s.t, keys.Close())
}

// cell runs a case as a test of its own. Those after one that failed would say nothing new.
func (s *stand) cell(name string, run func(*stand)) {
	if s.pair.Failed() {
		return
	}
	s.pair.Run(name, func(t *testing.T) {
		s.t, s.lab = t, s.world.lab.For(t)
		run(s)
	})
	s.t, s.lab = s.pair, s.world.lab.For(s.pair)
}

const plenty = "per_call = \"1.00\"\napprove_above = \"1.00\"\nsession = \"5.00\"\nrate = 10000"

// run runs a command of the owner's.
func (s *stand) run(out any, args ...string) {
	s.t.Helper()
	s.home.Run(s.t, s.bin, 0, out, args...)
}

// answer is what a tool says.
type answer struct {
	Status, PaymentID, Content string
	Error, Message             string
	SafeToRetry                bool
	Transactions               []struct{ URL, PaymentID, Status string }
}

// call calls a tool at the process whose turn it is.
func (s *stand) call(tool string, args map[string]any) (a answer, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), testlab.OpWait)
	defer cancel()
	r, err := s.agents[s.turn%len(s.agents)].Call(ctx, tool, args)
	if err == nil {
		err = json.Unmarshal(r.Structured, &a)
	}
	return a, err
}

// url is where the n-th purchase is made. A call for the same is the same call.
func (s *stand) url(n int) string {
	sign := "?"
	if strings.Contains(s.way.path, "?") {
		sign = "&"
	}
	return fmt.Sprint(s.door.URL, s.way.path, sign, "n=", n)
}

func (s *stand) buy(n int) (answer, error) {
	args := map[string]any{"url": s.url(n)}
	if len(s.agents) > 1 { // at another replica a call without a key is another purchase
		args["idempotencyKey"] = s.url(n)
	}
	defer func() { s.turn++ }()
	return s.call("x402_pay", args)
}

// follows buys at a process that goes by the newest rules: a replica does within a second.
func (s *stand) follows(n int) (p answer) {
	s.t.Helper()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		p = must.Get(s.buy(n))(s.t)
		if p.Error != "POLICY_UNSEALED" || time.Now().After(until) {
			return p
		}
	}
}

// states are those of the payments that the history has of the n-th purchase, the newest first, but for those
// of which nothing was signed, as of a wallet that was still locked.
func (s *stand) states(n int) (states []string) {
	s.t.Helper()
	list := must.Get(s.call("x402_history", map[string]any{"limit": 100}))(s.t)
	for _, row := range list.Transactions {
		if row.URL == s.url(n) && row.Status != "failed" {
			states = append(states, row.Status)
		}
	}
	return states
}

// signsIn reports whether the n-th purchase is had again for nothing.
func (s *stand) signsIn(n int) bool { return s.way.dear != "" && s.way.path != s.way.dear && n > 0 }

func (s *stand) price(n int) uint64 {
	if s.signsIn(n) {
		return 0
	}
	return s.way.price
}

// status is how a purchase is answered.
func (s *stand) status(n int) string {
	if s.signsIn(n) {
		return "free"
	}
	return "paid"
}

// doorOf is the door before a seller, which starts when the first test asks for it.
func (w *world) doorOf(seller string) *door {
	w.t.Helper()
	if w.doors[seller] == nil {
		d := openDoor(w.t)
		d.seller = must.Get(url.Parse(w.start(seller, d.URL)))(w.t)
		w.doors[seller] = d
	}
	return w.doors[seller]
}

// start starts a seller behind a door.
func (w *world) start(seller, door string) (at string) {
	var party struct{ HTTP string }
	payTo := map[string]string{"evm": w.lab.EVM.PayTo, "svm": w.lab.SVM.PayTo}
	switch seller {
	case "batch":
		testlab.StartParty(w.t, "parties/batch.mjs", map[string]string{"evm": w.lab.EVM.URL,
			"payTo": w.lab.EVM.PayTo}, &party)
	case "mpp":
		testlab.StartParty(w.t, "mpp/seller.mjs", map[string]any{"evm": w.lab.EVM.URL, "svm": w.lab.SVM.URL,
			"payTo": payTo}, &party)
	case "tempo":
		w.tempo = testlab.StartTempo(w.t)
		return w.tempo.HTTP
	case "sign-in":
		testlab.StartParty(w.t, "parties/seller-extensions.mjs", map[string]string{"origin": door,
			"facilitator": w.lab.Facilitators[0], "evmPayTo": payTo["evm"], "svmPayTo": payTo["svm"]}, &party)
	case "nuwa":
		testlab.StartParty(w.t, "nuwa/up.mjs", nil, w.nuwa)
		return w.nuwa.HTTP
	default:
		return w.lab.Seller
	}
	return party.HTTP
}
