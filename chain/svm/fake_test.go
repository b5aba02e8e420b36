package svm

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/svm/decode"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const (
	devnet    = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	genesis   = "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG"
	nodesHash = "EZ3rST5dvHmbanh75jc4PuLfV96vp9fEYBVeNk4FfM1k"
)

// person is a key pair made of one byte: all test keys are public.
func person(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
}

func keyOf(p ed25519.PrivateKey) solana.PublicKey {
	return solana.PublicKey(p.Public().(ed25519.PublicKey))
}

var (
	owner, payer, seller = person(2), person(3), person(4)
	mint                 = solana.MPK("4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU")
	usdc                 = x402.AssetInfo{Network: devnet, Address: mint.String(), Symbol: "USDC",
		Decimals: 6, USD: 1_000_000}
	now = time.Unix(1_740_672_089, 0).UTC()
)

type signer struct {
	private ed25519.PrivateKey
	mu      sync.Mutex // asked's
	asked   int
	err     error
	wrong   bool
}

func (s *signer) Address() string { return keyOf(s.private).String() }

func (s *signer) Sign(_ context.Context, d onchain.Draft) ([]byte, error) {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	message := d.Signs[0]
	if s.wrong {
		message = append([]byte("not "), message...)
	}
	return ed25519.Sign(s.private, message), s.err
}

type listed struct {
	wire      []byte
	slot      uint64
	failed    bool
	memo      any
	withheld  bool // listed, but not shown
	version1  bool
	blockTime any
	name      string // its id; "" until it is asked for
}

func (l *listed) id() string {
	if l.name == "" {
		l.name = solana.Signature(l.wire[1:65]).String()
	}
	return l.name
}

type rpcFault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// chain is a Solana node as far as a payer asks one. It refuses what it does not know: methods,
// options, encodings.
type chain struct {
	t  *testing.T
	mu sync.Mutex

	genesis            string
	accounts           map[solana.PublicKey]map[string]any
	delegated          []solana.PublicKey
	owned              []solana.PublicKey
	lamports           uint64
	blockhash          string
	slot, height       uint64 // finalized; the confirmed tip is 30 above
	lastValid          uint64 // of the confirmed blockhash; 0: its height and 150
	alive              map[string]bool
	history            []listed // newest first
	rows               int      // the most rows of a page; 0: what was asked for
	first              uint64   // getFirstAvailableBlock
	forgetful          bool     // later pages are empty: another node behind the same URL
	skipping           bool     // later pages lack a row: another history behind the same URL
	lies               map[string]any
	asked              map[string]int
	url                string
	lastHistoryMinimum uint64
	commitments        map[string]string // with which a method was asked last
	arrived            func()            // is called, if not nil, before a question is answered
}

func newChain(t *testing.T) *chain {
	c := &chain{
		t: t, genesis: genesis, accounts: map[solana.PublicKey]map[string]any{}, blockhash: nodesHash,
		slot: 300_000_000, height: 280_000_000,
		alive: map[string]bool{}, lies: map[string]any{}, asked: map[string]int{},
	}
	c.start()
	return c
}

func (c *chain) start() {
	c.commitments = map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(c.serve))
	c.t.Cleanup(server.Close)
	c.url = server.URL
}

// locked runs f while no question is answered: one whose asker has given up may still arrive.
func (c *chain) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *chain) serve(w http.ResponseWriter, r *http.Request) {
	var q struct {
		JSONRPC, Method string
		ID              uint64
		Params          []json.RawMessage
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" ||
		json.Unmarshal(body, &q) != nil || q.JSONRPC != "2.0" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if c.arrived != nil {
		c.arrived()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[q.Method]++
	result, lied := c.lies[q.Method]
	if !lied {
		result = c.answer(q.Method, q.Params)
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": q.ID}
	switch said := result.(type) {
	case rpcFault:
		answer["error"] = said
	case http.HandlerFunc:
		said(w, r)
		return
	default:
		answer["result"] = said
	}
	json.NewEncoder(w).Encode(answer)
}

type options struct {
	Commitment, Encoding, Before      string
	Limit                             int
	MinContextSlot                    uint64
	MaxSupportedTransactionVersion    *int
	SigVerify, ReplaceRecentBlockhash bool
}

func (c *chain) answer(method string, params []json.RawMessage) any {
	var o options
	if len(params) > 0 {
		json.Unmarshal(params[len(params)-1], &o)
	}
	var address string
	if len(params) > 0 {
		json.Unmarshal(params[0], &address)
	}
	c.commitments[method] = o.Commitment
	slot, height := c.slot, c.height
	if o.Commitment == confirmed {
		slot, height = slot+30, height+30
	}
	in := func(value any) any {
		return map[string]any{"context": map[string]any{"slot": slot}, "value": value}
	}
	switch method {
	case "getGenesisHash":
		return c.genesis
	case "getBlockHeight":
		return height
	case "getBlockTime":
		return now.Unix()
	case "getFirstAvailableBlock":
		return c.first
	case "isBlockhashValid":
		return in(c.alive[address] || c.alive[address+" "+o.Commitment])
	case "getLatestBlockhash":
		last := height + decode.BlockhashLife
		if c.lastValid > 0 && o.Commitment == confirmed {
			last = c.lastValid
		}
		return in(map[string]any{"blockhash": c.blockhash, "lastValidBlockHeight": last})
	case "getMultipleAccounts":
		keys := must.JSON[[]string](params[0])(c.t)
		require.Equal(c.t, options{Commitment: confirmed, Encoding: "base64"}, o)
		list := []any{}
		for _, key := range keys {
			list = append(list, c.at(solana.MPK(key)))
		}
		return in(list)
	case "simulateTransaction":
		return in(c.simulation(address, o))
	case "getBalance":
		return in(c.lamports)
	case "getTokenAccountsByOwner", "getTokenAccountsByDelegate":
		require.Equal(c.t, options{Commitment: confirmed, Encoding: "base64"}, o)
		return in(c.listed(map[string][]solana.PublicKey{"getTokenAccountsByOwner": c.owned,
			"getTokenAccountsByDelegate": c.delegated}[method]))
	case "getSignaturesForAddress":
		return c.signatures(o)
	case "getTransaction":
		require.Equal(c.t, 0, *o.MaxSupportedTransactionVersion)
		return c.transaction(address)
	}
	return rpcFault{-32601, "Method not found"}
}

func (c *chain) listed(keys []solana.PublicKey) []any {
	list := []any{}
	for _, key := range keys {
		list = append(list, map[string]any{"pubkey": key, "account": c.at(key)})
	}
	return list
}

// simulation is of a transaction that nobody has signed.
func (c *chain) simulation(transaction string, o options) any {
	want := options{Commitment: confirmed, Encoding: "base64", ReplaceRecentBlockhash: true}
	require.Equal(c.t, want, o)
	t := must.Get(decode.Transaction(transaction))(c.t)
	require.Equal(c.t, []string{"", ""}, []string{t.Signers[0].Signature, t.Signers[1].Signature})
	return map[string]any{"err": nil, "logs": []string{}}
}

func (c *chain) at(key solana.PublicKey) any {
	if a, there := c.accounts[key]; there {
		return a
	}
	return nil
}

type shown struct {
	Signature string `json:"signature"`
	Slot      uint64 `json:"slot"`
	Memo      any    `json:"memo"`
	Err       any    `json:"err"`
	BlockTime any    `json:"blockTime"`
}

func (c *chain) signatures(o options) any {
	c.lastHistoryMinimum = o.MinContextSlot
	if o.MinContextSlot > c.slot {
		return rpcFault{-32016, "Minimum context slot has not been reached"}
	}
	list, started := []any{}, o.Before == ""
	if c.forgetful && !started {
		return list
	}
	for i := range c.history {
		l := &c.history[i]
		if started && len(list) < o.Limit && (c.rows == 0 || len(list) < c.rows) {
			list = append(list, shown{l.id(), l.slot, l.memo, nil, l.blockTime})
		}
		started = started || l.id() == o.Before
	}
	if c.skipping && o.Before != "" && len(list) > 0 {
		return list[1:]
	}
	return list
}

func (c *chain) transaction(id string) any {
	at := slices.IndexFunc(c.history, func(l listed) bool { return l.id() == id })
	if at < 0 || c.history[at].withheld {
		return nil
	}
	l := c.history[at]
	if l.version1 {
		return rpcFault{-32015, "Transaction version (1) is not supported"}
	}
	var failure any
	if l.failed {
		failure = map[string]any{"InstructionError": []any{2, map[string]any{"Custom": 1}}}
	}
	return map[string]any{"slot": l.slot, "blockTime": now.Unix(),
		"transaction": []string{base64.StdEncoding.EncodeToString(l.wire), "base64"},
		"meta":        map[string]any{"err": failure}}
}

type token struct {
	mint, owner, delegate solana.PublicKey
	amount, delegated     uint64
	frozen, is2022        bool
}

func (c *chain) put(address solana.PublicKey, a token) solana.PublicKey {
	data := make([]byte, tokenAccountSize)
	copy(data, a.mint[:])
	copy(data[32:], a.owner[:])
	binary.LittleEndian.PutUint64(data[64:], a.amount)
	if !a.delegate.IsZero() {
		data[72] = 1
		copy(data[76:], a.delegate[:])
		binary.LittleEndian.PutUint64(data[121:], a.delegated)
	}
	data[108] = stateInitialized
	if a.frozen {
		data[108] = stateFrozen
	}
	if a.is2022 {
		data = append(data, typeAccount, 7, 0, 0, 0) // ImmutableOwner
	}
	c.set(address, programOf(a.is2022), data)
	return address
}

// putMint puts a Token-2022 mint on the chain, and the clock in epoch 10.
func (c *chain) putMint(address solana.PublicKey, extensions ...[]byte) {
	data := make([]byte, mintSize)
	data[44], data[45] = 6, 1
	if len(extensions) > 0 {
		data = append(data, make([]byte, tokenAccountSize-mintSize)...)
		data = append(data, 1)
		data = append(data, slices.Concat(extensions...)...)
	}
	c.set(address, token2022, data)
	now := make([]byte, 40)
	now[16] = 10
	c.set(solana.SysVarClockPubkey, solana.SysVarPubkey, now)
}

func (c *chain) set(address, program solana.PublicKey, data []byte) {
	c.accounts[address] = map[string]any{"data": []string{base64.StdEncoding.EncodeToString(data), "base64"},
		"owner": program, "executable": false,
		"lamports": 2_039_280, "rentEpoch": uint64(1<<64 - 1), "space": len(data)}
}

func (c *chain) ata(of ed25519.PrivateKey) solana.PublicKey {
	address, _, err := solana.FindAssociatedTokenAddressWithProgram(keyOf(of), mint, tokenProgram)
	require.NoError(c.t, err)
	return address
}

// newWallet is a wallet on a chain where an owner delegated 5 of his 9 USDC to it and the seller
// has a token account.
func newWallet(t *testing.T) (*Exact, *chain, *signer) {
	c := newChain(t)
	s := &signer{private: person(1)}
	c.put(c.ata(owner), token{mint: mint, owner: keyOf(owner), delegate: keyOf(s.private), amount: 9_000_000,
		delegated: 5_000_000})
	c.put(c.ata(seller), token{mint: mint, owner: keyOf(seller)})
	c.delegated = []solana.PublicKey{c.ata(owner)}
	e := New(Options{Signer: s, RPC: map[string]string{devnet: c.url}, Now: func() time.Time { return now }})
	return e, c, s
}

func text(s string) json.RawMessage {
	raw, _ := json.Marshal(s)
	return raw
}

func asks() x402.Requirement {
	return x402.Requirement{
		Version: 2, Dialect: x402.DialectV2Header, Scheme: "exact", Network: devnet,
		Amount: money.NewAmount(1000), Asset: usdc.Address,
		PayTo: keyOf(seller).String(), MaxTimeout: time.Minute,
		Extra: map[string]json.RawMessage{"feePayer": text(keyOf(payer).String())},
	}
}

func orderFrom(source solana.PublicKey, r x402.Requirement) onchain.Order {
	return onchain.Order{Requirement: r, Asset: usdc, Source: source.String(), Validity: time.Minute,
		Now: now}
}

type vector struct {
	Version     int
	Accepts     map[string]json.RawMessage
	Transaction string
}

func vectors(t testing.TB) (list map[string]vector, key ed25519.PrivateKey) {
	data := must.Get(os.ReadFile("testdata/vectors.json"))(t)
	file := must.JSON[struct {
		Seed    string
		Vectors map[string]vector
	}](data)(t)
	seed := must.Get(hex.DecodeString(file.Seed))(t)
	return file.Vectors, ed25519.NewKeyFromSeed(seed)
}

func (c *chain) wire(key solana.PublicKey) *accountJSON {
	raw := must.Get(json.Marshal(c.accounts[key]))(c.t)
	w := must.JSON[accountJSON](raw)(c.t)
	return &w
}

func requireCode(t *testing.T, want x402.Code, err error) {
	require.True(t, x402.HasCode(err, want), "%v", err)
}
