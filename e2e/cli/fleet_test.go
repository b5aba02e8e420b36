//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
)

var kills = flag.Int("kills", 2, "how often a service of the fleet is killed")

// fleet are two services on one ledger in PostgreSQL, each with a home of its own.
type fleet struct {
	t       *testing.T
	w       *world
	ledger  string        // its URL
	moved   chan struct{} // a payment is on the chain
	env     [2][]string
	mu      sync.Mutex
	running [2]*service
}

const (
	fleetAgent = "x402w_fleetfleetfleetfleetfleetfleetfleetfleet0"
	// In each round agents have so many purchases to make, and 16 of them make one at a time.
	perRound, buyers = 20, 16
	tenthOfCent      = 1_000 // units, which each costs
)

// newFleet starts a fleet whose budget is enough for so many purchases.
func newFleet(t *testing.T, room int) *fleet {
	f := &fleet{t: t, moved: make(chan struct{}, 10*room), ledger: pgtest.Start(t).Database(t)}
	rules := sandbox.Rules{Session: "-", Day: fmt.Sprintf("%.3f", float64(room)/1000),
		Extra: fmt.Sprintf("[ledger]\nurl = %q\n[agents.ann]\ntoken = %q\n", f.ledger,
			callers.TokenHash(fleetAgent))}
	var env []string
	o := sandbox.Options{OnPayment: func(sandbox.Settlement) { f.moved <- struct{}{} }}
	f.w, env = householdWith(t, o, func(w *world) string {
		return strings.Replace(w.rules(rules), "[budget]\n", "[budget]\nrate = 1000\n", 1)
	})
	second := filepath.Join(t.TempDir(), "home")
	require.NoError(t, os.Mkdir(second, 0o700))
	for _, name := range []string{"keystore.json", "config.toml"} {
		text := must.Get(os.ReadFile(filepath.Join(f.w.home, name)))(t)
		require.NoError(t, os.WriteFile(filepath.Join(second, name), text, 0o600))
	}
	f.env = [2][]string{append(env, passphraseFile(t)), {"X402_WALLET_HOME=" + second, passphraseFile(t)}}
	f.start(0)
	f.start(1)
	return f
}

func (f *fleet) start(i int) {
	s := startService(f.t, f.env[i], "--http", "127.0.0.1:0")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[i] = s
}

// endpoint is where a service was reached last.
func (f *fleet) endpoint(i int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[i].URL
}

// kill kills a service under load: at any moment, when some payments have moved.
func (f *fleet) kill(i int) {
	for len(f.moved) > 0 {
		<-f.moved
	}
	for range 1 + rand.IntN(perRound/2) {
		select {
		case <-f.moved:
		case <-time.After(time.Minute):
			require.FailNow(f.t, "nothing is paid any more")
		}
	}
	time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // what is under way may be anywhere
	require.NoError(f.t, f.running[i].Cmd.Process.Kill())
	f.running[i].Stop()
}

// call makes a purchase once, at one service.
func (f *fleet) call(ctx context.Context, i int, purchase string) (said struct{ Status, Error string },
	err error) {
	client, err := mcp.NewClient(&mcp.Implementation{Name: "ann", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: f.endpoint(i), DisableStandaloneSSE: true, MaxRetries: -1,
			HTTPClient: &http.Client{Transport: testworld.Bearer(fleetAgent)}}, nil)
	if err != nil {
		return said, err
	}
	defer client.Close()
	answer, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "x402_pay", Arguments: map[string]any{
		"url": f.w.SellerURL + "/weather?" + purchase, "idempotencyKey": purchase}})
	if err != nil {
		return said, err
	}
	text, err := json.Marshal(answer.StructuredContent)
	return said, errors.Join(err, json.Unmarshal(text, &said))
}

// buys makes the same call at one service after the other, until it is answered: how it was bought, or "" if
// there is no money for it.
func (f *fleet) buys(ctx context.Context, purchase string) (status string, err error) {
	var said struct{ Status, Error string }
	for i := rand.IntN(2); ctx.Err() == nil; i = 1 - i {
		said, err = f.call(ctx, i, purchase)
		switch {
		case err == nil && said.Error == "BUDGET_EXCEEDED":
			return "", nil
		case err == nil && said.Error == "":
			return said.Status, nil
		}
		time.Sleep(20 * time.Millisecond) // one is down
	}
	return "", fmt.Errorf("%s: %+v: %w", purchase, said, errors.Join(err, ctx.Err()))
}

// Services of a fleet are killed under load, in turn. Nothing is paid twice, the budget is used up and not
// passed, every payment comes to its end, and both homes find the ledger whole.
func TestServicesAreKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	room := *kills*perRound - perRound/2
	f := newFleet(t, room)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+time.Duration(*kills)*15*time.Second)
	defer cancel()
	purchases := make(chan string, *kills*perRound)
	var all sync.WaitGroup
	var mu sync.Mutex
	bought, problems := map[string]int{}, error(nil)
	for range buyers {
		all.Go(func() {
			for purchase := range purchases {
				status, err := f.buys(ctx, purchase)
				mu.Lock()
				problems = errors.Join(problems, err)
				bought[status]++
				mu.Unlock()
			}
		})
	}
	for n := range *kills {
		for i := range perRound {
			purchases <- fmt.Sprintf("%d-%d", n, i)
		}
		f.kill(n % 2)
		f.start(n % 2)
	}
	close(purchases)
	all.Wait()
	require.NoError(t, problems)
	for n, last := 0, "paid"; last != ""; n++ {
		last = must.Get(f.buys(ctx, fmt.Sprint("rest-", n)))(t)
		bought[last]++
	}
	t.Logf("%d kills; of each answer: %v", *kills, bought)
	require.Equal(t, room, bought["paid"]+bought["replayed"]+bought["paid_not_served"])
	f.isSettled(room)
	for _, env := range f.env {
		runs(t, 0, env, "history", "verify")
	}
}

// isSettled compares the ledger with the chain.
func (f *fleet) isSettled(n int) {
	store := must.Get(historytest.Open(f.t.Context(), f.t.TempDir(), f.ledger, history.Options{}))(f.t)
	defer store.Close()
	list := must.Get(store.Recent(f.t.Context(), 10*n))(f.t)
	moved := map[string]bool{}
	for _, s := range f.w.Settlements() {
		require.EqualValues(f.t, tenthOfCent, s.Amount)
		moved[s.Transaction] = true
	}
	require.Len(f.t, moved, n)
	keys := map[string]bool{}
	for _, p := range list {
		if p.State == history.Failed {
			continue
		}
		require.Equal(f.t, history.Settled, p.State, "%+v", p)
		require.True(f.t, moved[p.Transaction], "%+v", p)
		require.False(f.t, keys[p.IdempotencyKey], "%s was bought twice", p.IdempotencyKey)
		keys[p.IdempotencyKey] = true
	}
	require.Len(f.t, keys, n)
}
