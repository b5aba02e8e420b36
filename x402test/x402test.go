// Package x402test lets programs that sell or buy by x402 be tested without a chain: New starts, on
// 127.0.0.1, a seller, a facilitator, and nodes of the two play chains Base Sepolia and Solana Devnet. The
// bytes are those of the real protocol and what real parties check is checked: signatures, nonces, validity,
// balances; only the money is play money, and the chains are this process.
//
//   - A seller's author gives their server FacilitatorURL, and buys from it by Client.
//   - An agent's or a wallet's author lets it buy at SellerURL, and scripts the seller: Sell, Fail.
//   - Both then ask Payments what really moved, or assert it: AssertPaidOnce, AssertNothingPaid,
//     AssertBalance.
//
// For other languages the same is the command x402-wallet sandbox; both are told in docs/selling.md.
package x402test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"x402-wallet/internal/sandbox"
)

// The two networks, by their CAIP-2 names. A Sandbox of Options.Mainnet has those of Base and Solana: it says
// which in its fields EVM and Solana.
const (
	BaseSepolia  = "eip155:84532"
	SolanaDevnet = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
)

// Options of Start. The zero value is right for most tests.
type Options struct {
	// Mainnet gives the chains the names and tokens of Base and Solana, for programs that are set to sell
	// there.
	Mainnet bool
	// Finality is how old a block is when it is final; 0 is two seconds.
	Finality time.Duration
	// Delay is how late fault.SellerSlow is; 0 is two seconds.
	Delay time.Duration
}

// Sandbox is what New starts. It is safe for concurrent use.
type Sandbox struct {
	SellerURL      string // of a seller of sample products and of what Sell adds: http://127.0.0.1:port
	FacilitatorURL string // verify, settle, supported and discovery
	EVMNodeURL     string // the nodes, JSON-RPC
	SolanaNodeURL  string
	EVM, Solana    string // the networks' CAIP-2 names

	// The seller's addresses. On Solana a payment goes to the payee's token account.
	PayToEVM, PayToSolana string

	world *sandbox.Sandbox
	dials *http.Transport // of the clients that pay
}

// New starts a sandbox that ends with the test.
func New(t testing.TB, options ...Options) *Sandbox {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	s, err := Start(o)
	if err != nil {
		t.Fatalf("x402test: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("x402test: close the sandbox: %v", err)
		}
	})
	return s
}

// Start is New where there is no test: in TestMain, or in an example. Whoever calls it calls Close.
func Start(o Options) (*Sandbox, error) {
	world, err := sandbox.Start(sandbox.Options{Mainnet: o.Mainnet, Finality: o.Finality, Delay: o.Delay})
	if err != nil {
		return nil, err
	}
	s := &Sandbox{SellerURL: world.SellerURL, FacilitatorURL: world.FacilitatorURL,
		EVMNodeURL: world.EVMNodeURL, SolanaNodeURL: world.SolanaNodeURL, PayToEVM: world.PayToEVM,
		PayToSolana: world.PayToSolana, world: world, dials: &http.Transport{}}
	s.EVM, s.Solana = world.Networks()
	return s, nil
}

// Close stops it; requests that hang are cut.
func (s *Sandbox) Close() error {
	s.dials.CloseIdleConnections()
	return s.world.Close()
}

// Product is something that the seller sells.
type Product = sandbox.Product

// Sell sells something at a path, in place of what was sold there, and returns its URL. It fails the test
// where that cannot be sold: the message says why.
func (s *Sandbox) Sell(t testing.TB, path string, p Product) (url string) {
	t.Helper()
	if err := s.world.Sell(path, p); err != nil {
		t.Fatalf("x402test: %v", err)
	}
	return s.SellerURL + path
}

// Always is how many times a fault happens that is to go on until Heal.
const Always = math.MaxInt

// Fail makes a fault of package fault happen the next times that it can, at any path of the seller's.
func (s *Sandbox) Fail(t testing.TB, name string, times int) {
	t.Helper()
	s.FailAt(t, name, "", times)
}

// FailAt is Fail for what is sold at one path of the seller's.
func (s *Sandbox) FailAt(t testing.TB, name, path string, times int) {
	t.Helper()
	if err := s.world.InjectAt(name, path, times); err != nil {
		t.Fatalf("x402test: %v", err)
	}
}

// Heal ends all faults.
func (s *Sandbox) Heal() { s.world.Heal() }

// Fund gives an address play dollars, as in "10.00", and returns where they lie: at an EVM address itself, of
// a Solana address in its token account, which is opened. "0" only opens it, so that it can be paid.
func (s *Sandbox) Fund(t testing.TB, address, dollars string) (account string) {
	t.Helper()
	gift := sandbox.Gift{Address: address, Amount: dollars}
	if err := s.world.Run(sandbox.Script{Fund: []sandbox.Gift{gift}}); err != nil {
		t.Fatalf("x402test: %v", err)
	}
	return s.world.AccountOf(address)
}

// Delegate lets an agent spend dollars from a Solana token account of somebody else's, which it returns.
func (s *Sandbox) Delegate(t testing.TB, agent, dollars string) (tokenAccount string) {
	t.Helper()
	gift := &sandbox.Gift{Address: agent, Amount: dollars}
	if err := s.world.Run(sandbox.Script{Delegate: gift}); err != nil {
		t.Fatalf("x402test: %v", err)
	}
	return s.world.OwnerAccount
}

// Advance puts the clock of the chains forward: blocks pass, authorizations and blockhashes expire.
func (s *Sandbox) Advance(d time.Duration) { s.world.Advance(d) }

// Balance is what an address has, in atomic units of the play dollar (six decimals): an EVM address, a Solana
// address, or a Solana token account.
func (s *Sandbox) Balance(address string) uint64 { return s.world.Balance(address) }

// WalletConfig is a config.toml for x402-wallet init --config: a wallet that lives in this sandbox, with its
// nodes, its facilitator, and budgets of dollars.
func (s *Sandbox) WalletConfig() string { return s.world.Config(sandbox.Rules{}) }
