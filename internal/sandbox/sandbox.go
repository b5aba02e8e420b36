// Package sandbox is a small world on loopback in which a wallet can be tried: a seller, a
// facilitator, and the nodes of two chains. The money is play money; the signatures are real and
// everything that real parties check is checked.
//
// What must stay true: a chain here executes only what verifies, and its own books say what
// happened, whatever the seller or the facilitator were told to claim (Inject). So tests judge a
// wallet by Settlements and balances, never by its own word. Solana transactions are read by this
// package's own code, not by the wallet's, so that one mistake is not made twice.
package sandbox

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"x402-wallet/x402"
)

// The two networks, and the play token on each: real names, so that a wallet treats them as it
// would treat the real ones.
const (
	EVM    = "eip155:84532" // Base Sepolia
	Solana = x402.SolanaDevnet
	USDC   = 1_000_000 // atomic units of one token, on both
	Cent   = USDC / 100
	Mill   = USDC / 1000          // a tenth of a cent
	purse  = uint64(1_000 * USDC) // what the owner's token account holds at the start
)

// Options of Start. The zero value is right for a demo.
type Options struct {
	Now      func() time.Time // nil: time.Now
	Finality time.Duration    // how old a block is when it is final; 0 is 2 s
	Delay    time.Duration    // how late the slow faults are; 0 is 2 s
}

// Sandbox is a running world. It is safe for concurrent use.
type Sandbox struct {
	SellerURL, FacilitatorURL, EVMNodeURL, SolanaNodeURL string // http://127.0.0.1:port

	PayToEVM, PayToSolana string // the seller's addresses
	FeePayer              string // the facilitator's Solana address
	Owner                 string // a person's Solana address, whose token account can be delegated

	options  Options
	evm      *evmChain
	solana   *solanaChain
	ownerKey ed25519.PrivateKey
	feeKey   ed25519.PrivateKey
	faults   faults
	records  records
	servers  []*http.Server
	client   *http.Client // the seller's, for the facilitator
	closed   chan struct{}

	mu    sync.Mutex
	ahead time.Duration // Advance
}

// Start builds the world and opens its four ports on 127.0.0.1.
func Start(o Options) (*Sandbox, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Finality == 0 {
		o.Finality = 2 * time.Second
	}
	if o.Delay == 0 {
		o.Delay = 2 * time.Second
	}
	s := &Sandbox{options: o, closed: make(chan struct{}), client: &http.Client{Transport: &http.Transport{},
		Timeout: 30 * time.Second}}
	s.ownerKey, s.feeKey = newKey(), newKey()
	s.Owner, s.FeePayer = keyOf(s.ownerKey).String(), keyOf(s.feeKey).String()
	s.PayToEVM, s.PayToSolana = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", keyOf(newKey()).String()

	registry := x402.NewRegistry(nil)
	dollar, _ := registry.Default(EVM)
	mint, _ := registry.Default(Solana)
	s.evm = newEVMChain(dollar, s.now, o.Finality)
	s.solana = newSolanaChain(mint, s.now, o.Finality)
	s.solana.open(s.Owner, purse)
	s.solana.open(s.PayToSolana, 0)

	for _, party := range []struct {
		url     *string
		handler http.Handler
	}{{&s.FacilitatorURL, s.facilitator()}, {&s.EVMNodeURL, s.evmNode()}, {&s.SolanaNodeURL, s.solanaNode()},
		{&s.SellerURL, s.seller()}} {
		url, err := s.serve(party.handler)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		*party.url = url
	}
	return s, nil
}

// serve opens a port. The Date header is the world's clock, because wallets compare it with theirs.
func (s *Sandbox) serve(handler http.Handler) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	dated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
		handler.ServeHTTP(w, r)
	})
	server := &http.Server{Handler: dated, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0)}
	s.servers = append(s.servers, server)
	go server.Serve(listener)
	return "http://" + listener.Addr().String(), nil
}

// Close stops everything; requests that hang are cut.
func (s *Sandbox) Close() error {
	close(s.closed)
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	s.client.CloseIdleConnections()
	return errors.Join(errs...)
}

// Advance puts the world's clock forward: blocks pass, authorizations and blockhashes expire. A
// wallet in another process keeps its own clock, and stops signing beyond two minutes' difference.
func (s *Sandbox) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

func (s *Sandbox) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.options.Now().Add(s.ahead)
}

// Fund gives an EVM address play dollars (atomic units), as a faucet would.
func (s *Sandbox) Fund(address string, amount uint64) { s.evm.mint(address, amount) }

// FundSolana gives a Solana address a token account of its own with play dollars in it, and returns
// the account.
func (s *Sandbox) FundSolana(address string, amount uint64) (tokenAccount string) {
	return s.solana.open(address, amount)
}

// Delegate lets an agent spend up to amount from the owner's token account, and returns the
// account. As on the real chain it replaces whatever was delegated before.
func (s *Sandbox) Delegate(agent string, amount uint64) (tokenAccount string) {
	return s.solana.approve(s.Owner, agent, amount)
}

// Balance is what an EVM address holds.
func (s *Sandbox) Balance(address string) uint64 { return s.evm.balance(address) }

// TokenAccount is the state of a Solana token account; the zero value when there is none.
func (s *Sandbox) TokenAccount(address string) TokenAccount { return s.solana.account(address) }

// TokenAccountOf is the associated token account of a Solana address for the play token, whether or
// not it exists.
func (s *Sandbox) TokenAccountOf(owner string) string { return s.solana.associated(owner) }

// Freeze sets or lifts the mint authority's freeze on a token account.
func (s *Sandbox) Freeze(tokenAccount string, frozen bool) { s.solana.freeze(tokenAccount, frozen) }

// OwnerKeypair is the owner's key as the Solana CLI writes it to a file: a JSON array of 64
// numbers.
func (s *Sandbox) OwnerKeypair() []byte {
	numbers := make([]int, len(s.ownerKey))
	for i, b := range s.ownerKey {
		numbers[i] = int(b)
	}
	text, _ := json.Marshal(numbers) // of numbers: cannot fail
	return text
}

func newKey() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // never fails (crypto/rand)
	return ed25519.NewKeyFromSeed(seed)
}

func keyOf(private ed25519.PrivateKey) key { return key(private.Public().(ed25519.PublicKey)) }
