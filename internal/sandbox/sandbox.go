// Package sandbox is a small world on loopback in which a wallet can be tried: a seller, a
// facilitator, and the nodes of two chains. The money is play money; the signatures are real and
// everything that real parties check is checked.
//
// What must stay true: a chain here executes only what verifies, and its own books say what
// happened, whatever the seller or the facilitator were told to claim (Inject). So tests judge a
// wallet by Settlements and balances, never by its own word. What a chain demands of a payment is this
// package's own code, not the wallet's, so that one mistake is not made twice.
package sandbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/loopback"
	"x402-wallet/x402"
)

// The two networks, and the play token on each: real names, so that a wallet treats them as it
// would treat the real ones.
const (
	EVM    = "eip155:84532"                            // Base Sepolia
	Solana = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1" // Devnet
	USDC   = 1_000_000                                 // atomic units of one token, on both
	mill   = USDC / 1000                               // a tenth of a cent
	purse  = uint64(1_000 * USDC)                      // what the owner has at the start, on each
)

// Options of Start. The zero value is right for a demo.
type Options struct {
	Finality time.Duration // how old a block is when it is final; 0 is 2 s
	Delay    time.Duration // how late the slow fault is; 0 is 2 s
	// Mainnet gives the chains the names, tokens and genesis of Base and Solana, so that what real sellers
	// ask can be paid.
	Mainnet bool
	// Port is the seller's. The facilitator, the EVM node, the Solana node and the control get the next four.
	// If it is 0, all get free ports.
	Port int
	// OnPayment, optional, is called for each payment that moved play money, before the payer has its answer.
	// Calls do not overlap.
	OnPayment func(Settlement)
	// Extend, optional, is called before the ports are opened, and adds what it returns.
	Extend func(*Sandbox) Extra
}

// Sandbox is a running world. It is safe for concurrent use.
type Sandbox struct {
	SellerURL, FacilitatorURL, EVMNodeURL, SolanaNodeURL string // http://127.0.0.1:port

	ControlURL string // where it is controlled while it runs (control.go)

	Loopback              []string // policy.loopback: the four parties' ports
	PayToEVM, PayToSolana string   // the seller's addresses
	FeePayer              string   // the facilitator's Solana address
	Settler               string   // the facilitator's EVM address, from which it settles
	Owner                 string   // a person's Solana address, whose token account can be delegated
	OwnerAccount          string   // that token account
	OwnerKeypair          []byte   // the owner's key as the Solana CLI writes it: a JSON array of 64 numbers

	options  Options
	extra    Extra
	evm      *Chain
	solana   *solanaChain
	tempo    *tempoChain
	ownerKey solana.PrivateKey
	feeKey   solana.PrivateKey

	servers []*http.Server
	client  *http.Client // the seller's, for the facilitator
	closed  chan struct{}

	telling sync.Mutex // held while a payment is booked and told

	mu          sync.Mutex // of what follows
	ahead       time.Duration
	faults      map[faultAt]int    // how many times each is still to happen
	goods       map[string]product // seller: what it sells, by path
	settlements []Settlement
	// the signed payments that reached the seller or the facilitator, by hash; how often any was presented
	presented     map[[sha256.Size]byte]bool
	presentations int

	asked  map[string]int // seller: requests per path, paid or not
	served map[string]int // seller: answers with content per path
}

// Start builds the world and opens its ports on 127.0.0.1.
func Start(o Options) (*Sandbox, error) {
	o.Finality, o.Delay = cmp.Or(o.Finality, 2*time.Second), cmp.Or(o.Delay, 2*time.Second)
	s := &Sandbox{options: o, closed: make(chan struct{}), ownerKey: newKey(), feeKey: newKey(),
		client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second},
		faults: map[faultAt]int{}, asked: map[string]int{},
		served: map[string]int{}, presented: map[[sha256.Size]byte]bool{}}
	owner := s.ownerKey.PublicKey()
	s.Owner, s.FeePayer = owner.String(), s.feeKey.PublicKey().String()
	s.OwnerKeypair, _ = json.Marshal([64]byte(s.ownerKey))             // of numbers: cannot fail
	s.Settler, _ = message.Address(HashOf("settler", s.FeePayer)[:42]) // of 20 bytes: cannot fail
	s.PayToEVM, s.PayToSolana = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", newKey().PublicKey().String()

	registry := x402.NewRegistry(nil)
	onEVM, onSolana := s.Networks()
	dollar, _ := registry.Named(onEVM, "")
	mint, _ := registry.Named(onSolana, "")
	s.evm = newChain(dollar, s.Now, o.Finality, &s.extra)
	s.solana = newSolanaChain(mint, s.Now, o.Finality)
	s.tempo = newTempo(registry, o, s.Now)
	s.OwnerAccount = s.solana.open(owner, purse).String()
	s.solana.open(solana.MPK(s.PayToSolana), 0)

	goods, err := s.makeAll(products)
	if err != nil {
		return nil, err
	}
	s.goods = goods
	if o.Extend != nil {
		s.extra = o.Extend(s)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open listens at all ports before anybody is answered.
func (s *Sandbox) open() error {
	seller := s.seller()
	if s.extra.Seller != nil {
		seller = s.extra.Seller(seller)
	}
	parties := []struct {
		url     *string
		handler http.Handler
	}{{&s.SellerURL, seller}, {&s.FacilitatorURL, s.facilitator()}, {&s.EVMNodeURL, s.evmNode()},
		{&s.SolanaNodeURL, s.solanaNode()}, {&s.ControlURL, s.control()}}
	var listeners []net.Listener
	for i, party := range parties {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.options.port(i)))
		if err != nil {
			for _, other := range listeners {
				_ = other.Close() // nothing was accepted
			}
			return err
		}
		listeners = append(listeners, listener)
		*party.url = "http://" + listener.Addr().String()
		if party.url != &s.ControlURL {
			s.Loopback = append(s.Loopback, listener.Addr().String())
		}
	}
	for i, party := range parties {
		hosts := loopback.Local
		if party.url == &s.ControlURL {
			hosts = loopback.Only(listeners[i].Addr().String())
		}
		s.serve(listeners[i], hosts, party.handler)
	}
	return nil
}

// port is the i-th port, or 0 for any that is free.
func (o Options) port(i int) int {
	if o.Port == 0 {
		return 0
	}
	return o.Port + i
}

// serve answers at a port. The Date header is the world's clock, because wallets compare it with theirs.
func (s *Sandbox) serve(listener net.Listener, hosts func(string) bool, handler http.Handler) {
	dated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
		handler.ServeHTTP(w, r)
	})
	server := loopback.Door{Hosts: hosts}.Server(dated)
	server.ErrorLog = log.New(io.Discard, "", 0)
	s.servers = append(s.servers, server)
	go server.Serve(listener)
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

// Now is the world's clock.
func (s *Sandbox) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

// Fund gives an address play dollars (atomic units), as a faucet would, and returns where they lie:
// at an EVM address itself, on Tempo as well, of a Solana address in a token account of its own.
func (s *Sandbox) Fund(address string, amount uint64) (account string) {
	if strings.HasPrefix(address, "0x") {
		for _, chain := range []*Chain{s.evm, s.tempo.Chain} {
			chain.Lock()
			chain.Balances.Put(chain.Next(), address, chain.Balance(address)+amount)
			chain.Unlock()
		}
		return address
	}
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	return s.solana.open(solana.MPK(address), amount).String()
}

// AccountOf is where an address's play dollars lie: at an EVM address itself, of a Solana address in its own
// token account.
func (s *Sandbox) AccountOf(address string) string {
	if k, err := parseKey(address); err == nil {
		return s.solana.associated(k).String()
	}
	return address
}

// Delegate lets an agent spend up to amount from the owner's token account, and returns the
// account. As on the real chain it replaces whatever was delegated before.
func (s *Sandbox) Delegate(agent string, amount uint64) (tokenAccount string) {
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	account := s.solana.accounts[solana.MPK(s.OwnerAccount)]
	account.delegate, account.delegated = solana.MPK(agent), amount
	return s.OwnerAccount
}

// Freeze sets or lifts the mint authority's freeze on a token account.
func (s *Sandbox) Freeze(tokenAccount string, frozen bool) {
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	s.solana.accounts[solana.MPK(tokenAccount)].frozen = frozen
}

// Balance is what an EVM address, a Solana token account, or a Solana address in its own token account has.
func (s *Sandbox) Balance(address string) uint64 {
	if strings.HasPrefix(address, "0x") {
		s.evm.Lock()
		defer s.evm.Unlock()
		return s.evm.Balance(address)
	}
	return max(s.solana.account(address).amount, s.solana.account(s.AccountOf(address)).amount)
}

// Delegated is what a delegate may still take from a Solana token account.
func (s *Sandbox) Delegated(tokenAccount string) uint64 {
	return s.solana.account(tokenAccount).delegated
}

func newKey() solana.PrivateKey {
	private, _ := solana.NewRandomPrivateKey() // from crypto/rand, which never fails
	return private
}

// Networks are the CAIP-2 names of the two chains.
func (s *Sandbox) Networks() (onEVM, onSolana string) {
	if s.options.Mainnet {
		return "eip155:8453", "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	}
	return EVM, Solana
}
