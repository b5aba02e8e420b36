package edits

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/e2e/asks"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/content"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/internal/passkey/passkeytest"
	"x402-wallet/internal/sandbox"
	allowance "x402-wallet/scheme/allowance/check"
	batch "x402-wallet/scheme/batch/check"
	exact "x402-wallet/scheme/exact/check"
	permit2 "x402-wallet/scheme/permit2/check"
	"x402-wallet/scheme/signing"
	siwx "x402-wallet/scheme/siwx/check"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const (
	base       = "eip155:84532"
	baseNumber = 84532
	markFile   = "ledger.mark"

	ownersVault   = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
	ownersAccount = "0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc" // whose allowance the agent has
	channelOwner  = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"
	settler       = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C" // of the owner's facilitator
)

var (
	usdc, _       = x402.NewRegistry(nil).Named(base, "")
	usdcSolana, _ = x402.NewRegistry(nil).Named(sandbox.Solana, "")
)

// world is a home with keys and a ledger, the process that signs, and what the shell has of it.
type world struct {
	*counts
	t          *testing.T
	rand       *rand.Rand
	isFree     bool // of edits
	home       string
	keys       *wallet.Wallet
	far        *wallet.Wallet // of the team far
	ticker     ticker
	solana     exact.Solana // a payment that was built, of which others are made
	owners     *passkeytest.Authenticator
	registered passkey.Key // as the rules have it

	store  *history.Store
	umpire *umpire
	chain  *chain

	// the process that signs
	guard    *seal.Guard
	recorder *agent.Recorder
	approver *agent.Approver
	ask      asks.Asks
	isRemote bool
	end      func()

	moment     func(string) // the shell's turn
	hole       func(x wanted, why string)
	believed   history.Payment
	message    signing.Message // that was read last
	signatures []byte          // that were handed out last
	ceiling    uint64          // of the voucher that was asked for last
	// the wallet counted more for a signature than it is worth: a voucher below what was promised before
	hasCountedMore bool
}

// ticker is the time of the whole world. It begins at a noon, so that no window ends in a round.
type ticker struct {
	mu sync.Mutex
	at time.Time
}

// now is a little later each time.
func (c *ticker) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Millisecond)
	return c.at
}

func (c *ticker) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// chain is what the owner's nodes show: the truth, whatever the ledger asks by.
type chain struct {
	balance, landed uint64 // at the agent's account, and how many transactions of it were made
	claimed         map[string]uint64
	status          map[string]x402.Status // by what was signed; of all else it says that it expired
}

func (c *chain) Status(_ context.Context, e x402.Evidence) (x402.Status, error) {
	if s, known := c.status[e.Unique()]; known {
		return s, nil
	}
	return x402.Status{State: x402.Expired, Note: "nobody knows of it"}, nil
}

func (c *chain) clone() *chain {
	return &chain{balance: c.balance, landed: c.landed, claimed: maps.Clone(c.claimed),
		status: maps.Clone(c.status)}
}

func newWorld(t *testing.T) *world {
	dir, err := os.MkdirTemp("/dev/shm", "e") // in memory, if the system has that: no power is cut here
	if err != nil {
		dir = must.Get(os.MkdirTemp("", "e"))(t) // a path that a socket can have
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, counts: &counts{refused: map[string]int{}, ways: map[string]int{}},
		home: filepath.Join(dir, "h"), end: func() {}, moment: func(string) {}}
	w.hole = func(x wanted, why string) { t.Fatalf("signed without an edit, though %s: %s", why, x) }
	w.ticker.set(begin.AddDate(0, 0, -30))
	w.keys, w.far = w.newKeys(w.home), w.newKeys(filepath.Join(dir, "f"))
	w.owners, w.registered = invited(t)
	w.solana = built(t, w.keys)
	require.NoError(t, ledgers.Create(t.Context(), w.home, history.Options{Now: w.ticker.now}))
	return w
}

// newKeys makes a keystore whose clock is the world's.
func (w *world) newKeys(home string) *wallet.Wallet {
	keys := must.Get(owner.Create(w.t.Context(), home, passphrase(),
		owner.Options{N: 1 << 14, Now: w.ticker.now}))(w.t)
	keys.Idle = wallet.MaxAge
	w.t.Cleanup(func() { _ = keys.Close() })
	return keys
}

func passphrase() wallet.Passphrase { return wallet.FromValue("correct horse battery") }

// unlock unlocks what has locked itself because time went by.
func (w *world) unlock() {
	for _, keys := range []*wallet.Wallet{w.keys, w.far} {
		if keys.Locked() {
			require.NoError(w.t, keys.Unlock(w.t.Context(), passphrase()))
		}
	}
}

// account has the keys of an account. The one of the team far is of a keystore of its own here.
func (w *world) account(name string) (*wallet.Account, error) {
	if name == farTeam {
		return &w.far.Account, nil
	}
	return w.keys.AccountNamed(name)
}

// invited is an owner's passkey, and what the rules have of it.
func invited(t *testing.T) (*passkeytest.Authenticator, passkey.Key) {
	dir := must.Get(os.MkdirTemp("", "p"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := passkeytest.New("https://wallet.example")
	i := must.Get(invitation.Invite(t.Context(), dir, "phone", a.Origin))(t)
	got := make(chan passkey.Key, 1)
	go func() {
		k, _ := i.Wait(t.Context())
		got <- k
	}()
	links, token := &invitation.Links{Home: dir}, strings.TrimPrefix(i.URL, a.Origin+"/passkeys/add/")
	_, options, err := links.Options(t.Context(), token)
	require.NoError(t, err)
	must.Get(links.Made(t.Context(), token, a.Create(options)))(t)
	return a, <-got
}

// drafts keeps what it is asked to sign.
type drafts struct {
	address string
	onchain.Draft
}

func (d *drafts) Address() string { return d.address }

func (d *drafts) Sign(_ context.Context, draft onchain.Draft) ([]byte, error) {
	d.Draft = draft
	return nil, context.Canceled
}

// built is a payment of 10,000 units that package svm builds on a play chain.
func built(t *testing.T, keys *wallet.Wallet) exact.Solana {
	s := must.Get(sandbox.Start(sandbox.Options{}))(t)
	defer func() { require.NoError(t, s.Close()) }()
	address, _ := keys.Addresses()
	s.Fund(address, 1_000_000)
	kept := &drafts{address: address}
	on := svm.New(svm.Options{Signer: kept, RPC: map[string]string{sandbox.Solana: s.SolanaNodeURL}})
	funds := must.Get(on.Funds(t.Context(), sandbox.Solana, usdcSolana))(t)
	_, err := on.Authorize(t.Context(), onchain.Order{Asset: usdcSolana, Source: funds.Source,
		Now: time.Now(), Validity: time.Minute, Requirement: x402.Requirement{Version: 2, Scheme: "exact",
			Network: sandbox.Solana, Amount: money.NewAmount(10_000), Asset: usdcSolana.Address,
			PayTo: s.PayToSolana, Extra: map[string]json.RawMessage{
				"feePayer": must.Get(json.Marshal(s.FeePayer))(t)}}})
	require.ErrorIs(t, err, context.Canceled)
	return must.JSON[exact.Solana](kept.Message)(t)
}

// watched lets the shell have its turn when a message was read, and keeps what who signs believes of it.
type watched struct {
	signing.Check
	w *world
}

func (c watched) Read(ctx context.Context, q signing.Question) (signing.Message, error) {
	m, err := c.Check.Read(ctx, q)
	if err == nil {
		c.w.believed, c.w.message = q.Payment, m
		c.w.moment("read")
	}
	return m, err
}

// checks are those that package app registers, with the chain's answers from w.chain.
func (w *world) checks() map[string]signing.Check {
	transfers := exact.Check{Vaults: map[string]string{base: ownersVault},
		Height: func(context.Context, string) (uint64, error) {
			return w.solana.Evidence.LastValidBlockHeight, nil
		}}
	permits := permit2.Check{ApprovalGas: map[string]money.Amount{base: money.NewAmount(100_000)},
		KnowsFacilitator: func(_ context.Context, network, address string) bool {
			return network == base && address == settler
		}}
	list := map[string]signing.Check{
		x402.Exact: transfers, x402.MPP: transfers, x402.Permit2: permits, x402.Upto: permits,
		x402.SignInScheme: siwx.Check{},
		x402.Allowance: allowance.Check{
			Rules: map[string]x402.AllowanceRule{base: {Owner: ownersAccount,
				Float: money.Dollars(w.umpire.limits.float), MaxGas: money.NewAmount(100_000_000_000_000)}},
			Account: func(context.Context, string, string, string) (money.Amount, uint64, error) {
				return money.NewAmount(w.chain.balance), w.chain.landed, nil
			}},
		x402.BatchSettlement: batch.Check{MaxDelay: 24 * time.Hour, Permits: permits, MayPermit: true,
			FundedByOwner: w.guard.OwnChannel,
			Claimed: func(_ context.Context, _, id string) (money.Amount, error) {
				return money.NewAmount(w.chain.claimed[id]), nil
			}},
	}
	for name, check := range list {
		list[name] = watched{check, w}
	}
	return list
}

// rules are what who signs knows of the owner's rules: those of the umpire's limits.
func (w *world) rules() agent.Rules {
	return agent.Rules{Budget: w.umpire.limits.budget(),
		Schemes: []string{x402.Exact, x402.MPP, x402.Permit2, x402.Upto, x402.BatchSettlement},
		Assets:  x402.NewRegistry(nil), MaxTimeout: 5 * time.Minute, Checks: w.checks(),
		Status: func(ctx context.Context, p history.Payment) (x402.Status, error) {
			return w.chain.Status(ctx, p.Evidence)
		}}
}

// open opens the ledger.
func (w *world) open() error {
	store, err := ledgers.Open(w.t.Context(), w.home,
		history.Options{Now: w.ticker.now, Contents: content.Keeper{}, Alerts: alerts.Writer{}})
	w.store = store
	return err
}

// begin begins a process that signs: the wallet in its own, or the unlock agent, of which another one asks.
// known is what an earlier one of the same computer process knows; nil: nothing.
func (w *world) begin(isRemote bool, known *agent.Recorder) {
	w.unlock()
	w.isRemote, w.believed, w.message = isRemote, history.Payment{}, nil
	tally, cache := &agent.Tally{}, &seal.CheckpointCache{}
	if known != nil {
		tally, cache = known.Tally, known.Guard.Checkpoints
	} else {
		w.umpire.process++
	}
	sealed := must.Get(config.Parse([]byte("# none\n")))(w.t)
	w.guard = &seal.Guard{Home: w.home, Rules: sealed, Store: w.store, Key: w.keys, Checkpoints: cache}
	w.recorder = &agent.Recorder{Store: w.store, Guard: w.guard, Now: w.ticker.now, Tally: tally,
		Account: w.account}
	w.approver = &agent.Approver{Store: w.store, Guard: w.guard, Checker: passkey.NewChecker(),
		Passkeys: func(context.Context) (map[string]passkey.Key, error) {
			return map[string]passkey.Key{"phone": w.registered}, nil
		}}
	if isRemote {
		w.beginAgent()
		return
	}
	w.ask = func(ctx context.Context, d onchain.Draft) ([]byte, error) { return w.signsItself(ctx, d) }
}

// signsItself is what package pay does: the seals, the signature, and its record.
func (w *world) signsItself(ctx context.Context, d onchain.Draft) ([]byte, error) {
	if err := w.guard.VerifySeals(ctx); err != nil {
		return nil, err
	}
	p := w.umpire.asked // as this process reserved it
	w.recorder.Rules = w.rules().For(p.Agent)
	signatures, err := w.recorder.Sign(ctx, d.Payment, d.Message)
	if err != nil {
		return nil, err
	}
	signed, err := w.message.Signed(signatures)
	if err != nil {
		return nil, err
	}
	w.moment("signed")
	return signatures, w.recorder.Submit(ctx, p, history.Signed{Payload: []byte(`{}`),
		Requirement: p.Requirement, Evidence: signed.Evidence}, false)
}

// beginAgent begins an unlock agent.
func (w *world) beginAgent() {
	w.recorder.Started = w.ticker.now()
	l := must.Get(client.Listen(w.t.Context(), w.home))(w.t)
	s := &agent.Server{Locked: w.keys.Locked, Lock: func() {}, Store: w.store, Now: w.ticker.now,
		Log: slog.New(panics{slog.DiscardHandler, w.t}), Guard: w.guard, Recorder: w.recorder,
		Approver: w.approver,
		Rules: func(ctx context.Context) (agent.Rules, error) {
			return w.rules(), w.guard.VerifySeals(ctx)
		}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	w.end = func() {
		cancel()
		require.NoError(w.t, <-ended)
		w.end = func() {}
	}
	remote := client.Client{Home: w.home, Before: func() bool { return true }}
	w.ask = client.Signer{Remote: &remote, Local: &agent.Recorder{}}.Sign
}

// panics fails the test when the unlock agent says that it panicked.
type panics struct {
	slog.Handler
	t *testing.T
}

func (p panics) Enabled(context.Context, slog.Level) bool { return true }

func (p panics) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		p.t.Error(r.Message)
	}
	return nil
}

// asksRemote asks the unlock agent for something that is no signature.
func (w *world) asksRemote(q agent.Request) ([]byte, error) {
	return client.Ask(w.t.Context(), w.home, 0, q)
}

// close ends the process, and closes the ledger.
func (w *world) close() error {
	w.end()
	if w.store == nil { // it could not be opened
		return nil
	}
	return w.store.Close()
}

// snapshot is a home's ledger, closed.
type snapshot struct{ ledger, mark []byte }

func (w *world) snapshot() (s snapshot) {
	s.ledger = must.Get(os.ReadFile(filepath.Join(w.home, history.FileName)))(w.t)
	s.mark = must.Get(os.ReadFile(filepath.Join(w.home, markFile)))(w.t)
	return s
}

// put puts files back; nil: as they are.
func (w *world) put(s snapshot) {
	for name, text := range map[string][]byte{history.FileName: s.ledger, markFile: s.mark} {
		path := filepath.Join(w.home, name)
		if text == nil {
			continue
		}
		if name == history.FileName {
			for _, more := range []string{"-wal", "-shm"} {
				err := os.Remove(path + more)
				require.True(w.t, err == nil || errors.Is(err, os.ErrNotExist), err)
			}
		}
		require.NoError(w.t, os.WriteFile(path, text, 0o600))
	}
}

// config of a channel: the agent's own, one that an owner funds, or another one in which nothing is signed
// before the edits.
func (w *world) config(isOwners, isNew bool) (c x402.ChannelConfig, id string) {
	_, evm := w.keys.Addresses()
	c = x402.ChannelConfig{Payer: evm, PayerAuthorizer: evm, Receiver: payees[0],
		ReceiverAuthorizer: payees[1], Token: usdc.Address, WithdrawDelay: 900,
		Salt: "0x" + strings.Repeat("0", 64)}
	if isOwners {
		c.Payer = channelOwner
	}
	if isNew {
		c.WithdrawDelay++
	}
	sum := must.Get(message.ChannelID(base, c))(w.t)
	return c, sum.Hex()
}

// openChannel writes the row of a channel; an owner's has the owner's seal.
func (w *world) openChannel(isOwners, isNew bool, host string) {
	config, id := w.config(isOwners, isNew)
	_, evm := w.keys.Addresses()
	row := history.Channel{Service: id, Key: evm, Server: host, Network: base, Source: evm, ID: id}
	signed := history.BatchSigned{Config: config}
	book := history.BatchBook{}
	if isOwners {
		row.Source, book.Funds = id, money.NewAmount(1_000_000)
		signed.Seal = must.Get(w.guard.SealChannel(w.t.Context(), row))(w.t)
	}
	require.NoError(w.t, w.store.SaveChannel(w.t.Context(), row.WithSigned(signed).WithBook(book)))
}

// accountOf is a token account that belongs to an address.
func accountOf(t *testing.T, address string) string {
	return must.Get(decode.AssociatedAccount(address, usdcSolana.Address, usdcSolana.Token2022))(t)
}

// dayOf is the UTC day of a time.
func dayOf(at time.Time) time.Time { return budget.DayOf(at) }
