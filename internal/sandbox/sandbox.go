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
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
)

// The two networks, and the play token on each: real names, so that a wallet treats them as it
// would treat the real ones.
const (
	EVM    = "eip155:84532"                            // Base Sepolia
	Solana = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1" // Devnet
	USDC   = 1_000_000                                 // atomic units of one token, on both
	cent   = USDC / 100
	mill   = USDC / 1000          // a tenth of a cent
	purse  = uint64(1_000 * USDC) // what the owner has at the start, on each
)

// Options of Start. The zero value is right for a demo.
type Options struct {
	Finality time.Duration // how old a block is when it is final; 0 is 2 s
	Delay    time.Duration // how late the slow fault is; 0 is 2 s
	// Mainnet gives the chains the names, tokens and genesis of Base and Solana, so that what real sellers
	// ask can be paid. The sandbox's own seller sells on the test networks alone.
	Mainnet bool
}

// networks are the names of the two chains.
func (o Options) networks() (evm, solana string) {
	if o.Mainnet {
		return "eip155:8453", "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	}
	return EVM, Solana
}

// Sandbox is a running world. It is safe for concurrent use.
type Sandbox struct {
	SellerURL, FacilitatorURL, EVMNodeURL, SolanaNodeURL string // http://127.0.0.1:port

	Loopback              []string // policy.loopback: the four parties' ports
	PayToEVM, PayToSolana string   // the seller's addresses
	FeePayer              string   // the facilitator's Solana address
	Settler               string   // the facilitator's EVM address, from which it settles
	Owner                 string   // a person's Solana address, whose token account can be delegated
	OwnerAccount          string   // that token account
	OwnerEVM              string   // the person's account on EVM, out of which an agent may be let take floats
	VaultEVM              string   // where the person's vault on EVM is, once they have opened it
	OwnerKeypair          []byte   // the owner's key as the Solana CLI writes it: a JSON array of 64 numbers

	options  Options
	evm      *evmChain
	solana   *solanaChain
	ownerKey ed25519.PrivateKey
	feeKey   ed25519.PrivateKey

	authorizer authorizer // the seller's, of channels

	servers []*http.Server
	client  *http.Client // the seller's, for the facilitator
	closed  chan struct{}

	mu          sync.Mutex // of what follows
	ahead       time.Duration
	faults      map[string]int // how many times each is still to happen
	settlements []Settlement
	presented   [][sha256.Size]byte       // the signed payments that reached the seller or the facilitator
	redeemed    map[string]bool           // transactions that the seller has served for (seed dialects)
	challenges  map[string]mppChallenge   // seller, in MPP: by id
	asked       map[string]int            // seller: requests per path, paid or not
	served      map[string]int            // seller: answers with content per path
	nonces      map[string]signInNonce    // seller: sign-in messages that it made, by nonce
	buyers      map[string]bool           // seller: path and account of those who paid for it
	signIns     int                       // seller: those that it let in
	records     map[string]*channelRecord // seller: its count of each channel
	books       map[string]*channelBook   // what was shown and charged in each channel, for a judge
	// seller: the nonces of what was shown to it, let in or not
	signInsShown []string
}

// Start builds the world and opens its four ports on 127.0.0.1.
func Start(o Options) (*Sandbox, error) {
	o.Finality, o.Delay = cmp.Or(o.Finality, 2*time.Second), cmp.Or(o.Delay, 2*time.Second)
	s := &Sandbox{options: o, closed: make(chan struct{}), ownerKey: newKey(), feeKey: newKey(),
		client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second},
		faults: map[string]int{}, redeemed: map[string]bool{}, asked: map[string]int{},
		challenges: map[string]mppChallenge{}, nonces: map[string]signInNonce{}, buyers: map[string]bool{},
		served: map[string]int{}, records: map[string]*channelRecord{}, books: map[string]*channelBook{}}
	owner := keyOf(s.ownerKey)
	s.Owner, s.FeePayer = owner.String(), keyOf(s.feeKey).String()
	s.OwnerKeypair, _ = json.Marshal([ed25519.PrivateKeySize]byte(s.ownerKey)) // of numbers: cannot fail
	s.Settler, _ = evm.Address(hashOf("settler", s.FeePayer)[:42])             // of 20 bytes: cannot fail
	s.OwnerEVM, _ = evm.Address(hashOf("owner", s.Owner)[:42])
	s.PayToEVM, s.PayToSolana = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", keyOf(newKey()).String()

	var err error
	s.authorizer, err = newAuthorizer()
	if err != nil {
		return nil, err
	}

	registry := x402.NewRegistry(nil)
	onEVM, onSolana := o.networks()
	dollar, _ := registry.Named(onEVM, "")
	mint, _ := registry.Named(onSolana, "")
	s.evm = newEVMChain(dollar, s.now, o.Finality)
	s.evm.balances.put(firstBlock, s.OwnerEVM, purse)
	s.evm.vault.address, _ = evm.Address(hashOf("vault", s.Owner)[:42])
	s.VaultEVM = s.evm.vault.address
	s.solana = newSolanaChain(mint, s.now, o.Finality)
	s.OwnerAccount = s.solana.open(owner, purse).String()
	s.solana.open(mustKey(s.PayToSolana), 0)

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
		s.Loopback = append(s.Loopback, strings.TrimPrefix(url, "http://"))
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
	return time.Now().Add(s.ahead)
}

// Fund gives an address play dollars (atomic units), as a faucet would, and returns where they lie:
// at an EVM address itself, of a Solana address in a token account of its own.
func (s *Sandbox) Fund(address string, amount uint64) (account string) {
	if strings.HasPrefix(address, "0x") {
		s.evm.mu.Lock()
		defer s.evm.mu.Unlock()
		s.evm.balances.put(s.evm.next(), address, s.evm.balance(address)+amount)
		return address
	}
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	return s.solana.open(mustKey(address), amount).String()
}

// Delegate lets an agent spend up to amount from the owner's token account, and returns the
// account. As on the real chain it replaces whatever was delegated before.
func (s *Sandbox) Delegate(agent string, amount uint64) (tokenAccount string) {
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	account := s.solana.accounts[mustKey(s.OwnerAccount)]
	account.delegate, account.delegated = mustKey(agent), amount
	return s.OwnerAccount
}

// Approve lets Permit2 move up to amount of an EVM address's tokens, as its owner's own transaction would.
func (s *Sandbox) Approve(owner string, amount uint64) {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	s.evm.allow(s.evm.next(), owner, evm.Permit2Address, amount)
}

// Approved is what Permit2 may still move of an EVM address's tokens.
func (s *Sandbox) Approved(owner string) uint64 {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return s.evm.allowance(owner, evm.Permit2Address, math.MaxUint64)
}

// Freeze sets or lifts the mint authority's freeze on a token account.
func (s *Sandbox) Freeze(tokenAccount string, frozen bool) {
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	s.solana.accounts[mustKey(tokenAccount)].frozen = frozen
}

// Balance is what an EVM address or a Solana token account holds.
func (s *Sandbox) Balance(account string) uint64 {
	if strings.HasPrefix(account, "0x") {
		s.evm.mu.Lock()
		defer s.evm.mu.Unlock()
		return s.evm.balance(account)
	}
	return s.solana.account(account).amount
}

// Delegated is what a delegate may still take from a Solana token account.
func (s *Sandbox) Delegated(tokenAccount string) uint64 {
	return s.solana.account(tokenAccount).delegated
}

func newKey() ed25519.PrivateKey {
	_, private, _ := ed25519.GenerateKey(nil) // from crypto/rand, which never fails
	return private
}

func keyOf(private ed25519.PrivateKey) key { return key(private.Public().(ed25519.PublicKey)) }
