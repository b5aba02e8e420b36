//go:build linux || darwin || windows

package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/svm"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/e2e/asks"
	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/verify"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/internal/socket"
	allowance "x402-wallet/scheme/allowance/check"
	batch "x402-wallet/scheme/batch/check"
	exact "x402-wallet/scheme/exact/check"
	permit2 "x402-wallet/scheme/permit2/check"
	"x402-wallet/scheme/signing"
	siwx "x402-wallet/scheme/siwx/check"
	tempo "x402-wallet/scheme/tempo/check"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const base = "eip155:84532"

var usdc, _ = x402.NewRegistry(nil).Named(base, "")

// world is a home with an agent in it, and what an attacker of the same user has: the ledger
// and the socket.
type world struct {
	t      *testing.T
	home   string
	keys   *wallet.Wallet
	solana string // their addresses
	evm    string
	store  *history.Store
	rules  atomic.Pointer[Rules]
	bad    atomic.Pointer[x402.Error]
	client remote
	ended  chan error
	guard  *seal.Guard // with the owner's key
	marks  atomic.Int32
	assets []x402.AssetInfo
	agent  *seal.Guard                 // the agent's, which remembers by itself what it met
	status atomic.Pointer[x402.Status] // what the owner's node says of any payment
	// a chain with a height
	onSolana atomic.Pointer[svm.Exact]
	asked    atomic.Int32 // how often
	ahead    atomic.Int64 // how much the machine's clock is, for the agent
	tally    *Tally       // the agent's

	settings settings

	approve bool           // a person approves each payment
	later   *wallet.Wallet // as it was opened when it had other accounts; nil: it has none
}

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func newWorld(t *testing.T, assets ...x402.AssetInfo) *world {
	w := &world{t: t, home: filepath.Join(shortDir(t), "h"), ended: make(chan error, 1), assets: assets}
	keys := must.Get(owner.Create(t.Context(), w.home, wallet.FromValue("correct horse battery"),
		owner.Options{N: 1 << 14}))(t)
	w.keys = keys
	w.solana, w.evm = keys.Addresses()
	w.store = testworld.NewStore(t, w.home)
	sealed := must.Get(config.Parse([]byte("# none\n")))(t)
	w.guard = &seal.Guard{Home: w.home, Rules: sealed, Store: w.store, Key: keys}
	require.NoError(t, w.guard.Seal(t.Context(), false))
	w.allow(func(*Rules) {})
	w.client = asksOf(&client.Client{Home: w.home})
	w.start()
	return w
}

// counted counts marks.
type counted struct {
	*seal.Guard
	marks *atomic.Int32
}

func (c counted) Checkpoint(ctx context.Context) error {
	c.marks.Add(1)
	return c.Guard.Checkpoint(ctx)
}

func (w *world) start() {
	l := must.Get(client.Listen(w.t.Context(), w.home))(w.t)
	w.tally = &Tally{}
	w.agent = &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: w.keys}
	s := &Server{
		Locked: w.keys.Locked, Lock: w.keys.Lock,
		Store: w.store, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Guard:  counted{w.agent, &w.marks},
		Verify: func(ctx context.Context) error { return verify.Owned(ctx, w.store, w.agent) },
		Recorder: &Recorder{Store: w.store, Guard: w.agent, Now: w.now, Tally: w.tally,
			Account: w.account, Started: time.Now()},
		Rules: func(context.Context) (Rules, error) {
			if e := w.bad.Load(); e != nil {
				return Rules{}, e
			}
			return *w.rules.Load(), nil
		},
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.ended <- s.Run(ctx, l) }()
	w.t.Cleanup(func() { end(); <-done })
}

// account has the keys of an account.
func (w *world) account(name string) (*wallet.Account, error) {
	return cmp.Or(w.later, w.keys).AccountNamed(name)
}

// lock reports whether there was an agent that it ended.
func (w *world) lock() bool {
	w.t.Helper()
	return must.Get(w.client.Lock(w.t.Context()))(w.t)
}

// ask asks the agent for something that has no signature.
func (w *world) ask(op, payment string) error {
	return must.Err(client.Ask(w.t.Context(), w.home, 0, Request{Op: op, Payment: payment}))
}

// allow sets the owner's rules: $1 a call, $2 a session and day, $5 a month, and 60 a minute.
func (w *world) allow(change func(*Rules)) {
	session := money.Dollars(2_000_000)
	r := Rules{Budget: budget.Rules{PerCall: 1_000_000, Session: &session, Day: 2_000_000, Month: 5_000_000,
		ApproveAbove: 1_000_000, Rate: 60},
		Schemes: []string{x402.Exact, x402.MPP, x402.Tempo, x402.Permit2, x402.Upto, x402.BatchSettlement},
		Assets:  x402.NewRegistry(w.assets), MaxTimeout: 5 * time.Minute, Checks: w.checks()}
	r.Status = func(context.Context, history.Payment) (x402.Status, error) {
		w.asked.Add(1)
		if s := w.status.Load(); s != nil {
			return *s, nil
		}
		return x402.Status{Note: "not seen"}, nil
	}
	change(&r)
	w.rules.Store(&r)
}

// settings are those of the owner's rules that a scheme alone knows.
type settings struct {
	vaults        map[string]string
	tokenAccounts map[string]string
	approvalGas   map[string]money.Amount
	noPermits     bool // the owner leaves Permit2 out
	allowances    map[string]x402.AllowanceRule
	networkFee    money.Dollars
	knows         func(ctx context.Context, network, address string) bool
	channelDelay  time.Duration
	claimed       money.Amount // in a channel, by the chain
	balance       money.Amount // at the agent's account, by the chain
	count         uint64       // of its transactions, likewise
}

// set changes the settings.
func (w *world) set(change func(*settings)) {
	change(&w.settings)
	r := *w.rules.Load()
	r.Checks = w.checks()
	w.rules.Store(&r)
}

func (w *world) checks() map[string]signing.Check {
	s := w.settings
	transfers := exact.Check{Vaults: s.vaults, TokenAccounts: s.tokenAccounts,
		Height: func(ctx context.Context, network string) (uint64, error) {
			return w.onSolana.Load().Height(ctx, network)
		}}
	permits := permit2.Check{ApprovalGas: s.approvalGas, KnowsFacilitator: s.knows}
	return map[string]signing.Check{
		x402.Exact: transfers, x402.MPP: transfers, x402.Permit2: permits, x402.Upto: permits,
		x402.SignInScheme: siwx.Check{}, x402.Tempo: tempo.Check{MaxFee: s.networkFee},
		x402.Allowance: allowance.Check{Rules: s.allowances,
			Account: func(context.Context, string, string, string) (money.Amount, uint64, error) {
				return s.balance, s.count, nil
			}},
		x402.BatchSettlement: batch.Check{MaxDelay: s.channelDelay, FundedByOwner: w.guard.OwnChannel,
			Permits: permits, MayPermit: !s.noPermits,
			Claimed: func(context.Context, string, string) (money.Amount, error) { return s.claimed, nil }},
	}
}

const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

// sql is somebody else's hand in the ledger.
func (w *world) sql(query string, args ...any) {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.home, history.FileName)+"?_pragma=busy_timeout(5000)")
	require.NoError(w.t, err)
	_, err = db.Exec(query, args...)
	require.NoError(w.t, errors.Join(err, db.Close()))
}

// reserve puts a payment into the ledger as anybody who writes to its file can: no rule is asked.
func (w *world) reserve(units uint64, change func(*history.Payment)) history.Payment {
	w.t.Helper()
	p := history.Payment{
		Fingerprint: sha256.Sum256([]byte(history.NewID(time.Now()))), Method: "GET",
		URL:    "https://api.example/x",
		Target: "https://api.example/x", Host: "api.example",
		Network: base, Scheme: "exact", Asset: usdc.Address, Symbol: "USDC", Amount: money.NewAmount(units),
		Price: money.Dollars(units), PayTo: payee,
		Source: w.evm, Requirement: json.RawMessage("{}"),
	}
	if change != nil {
		change(&p)
	}
	p.ID = history.NewID(time.Now())
	if w.approve {
		a := must.Get(asking.Asker{Store: w.store}.AskApproval(w.t.Context(), history.Approval{
			Quote: p.Fingerprint, Host: p.Host,
			Method: p.Method, URL: p.URL, Network: p.Network,
			Asset: p.Asset, Symbol: p.Symbol, Amount: p.Amount, Price: p.Price, PayTo: p.PayTo}))(w.t)
		must.Get(w.guard.Approve(w.t.Context(), a, "owner"))(w.t)
	}
	most, _ := money.ParseAmount("1" + strings.Repeat("0", 30))
	funds := x402.Funds{Source: p.Source, Free: most, Balance: most, ReadAt: time.Now()}
	p = must.Get(historytest.Reserve(w.t.Context(), w.store, history.Hold{Payment: p, Funds: funds},
		p.Fingerprint))(w.t)
	return p
}

// transfer is the honest message for a payment.
func (w *world) transfer(p history.Payment) message.Transfer {
	return message.Transfer{Payment: p.ID, Asset: usdc, Authorization: message.Authorization3009{
		From: w.evm, To: p.PayTo, Value: p.Amount, ValidBefore: w.now().Unix() + 60,
		Nonce: sha256.Sum256([]byte(p.ID)),
	}}
}

// ownersVault is a contract that the owner's rules may name.
const ownersVault = "0x5FbDB2315678afecb367f032d93F642f64180aa3"

func (w *world) refused(err error, why string) {
	w.t.Helper()
	requireCode(w.t, err, x402.PolicyDenied)
	require.Contains(w.t, x402.AsError(err).Message, why)
}

func TestTheAgentSignsWhatIsReserved(t *testing.T) {
	w := newWorld(t)
	if runtime.GOOS != "windows" { // where it is no file
		info := must.Get(os.Stat(filepath.Join(w.home, SocketName)))(t)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.NoError(t, w.client.Status(t.Context()))

	p := w.reserve(10_000, nil)
	locked := must.Get(wallet.Open(w.home))(t)
	signer := w.signer(locked, &client.Client{Home: w.home, Before: locked.Locked})
	transfer := w.transfer(p)
	signature := must.Get(signer.SignTransfer(t.Context(), transfer))(t)
	require.True(t, locked.Locked(), "the key stays where it is")
	requireSignedBy(t, w.evm, transfer, signature)

	// once: not the same message, and not another one for the same payment
	_, err := signer.SignTransfer(t.Context(), transfer)
	w.refused(err, "the payment is submitted, not reserved")
	transfer.Authorization.Nonce[0] ^= 1
	_, err = signer.SignTransfer(t.Context(), transfer)
	w.refused(err, "the payment is submitted, not reserved")

	_, err = client.Listen(t.Context(), w.home)
	require.True(t, x402.HasCode(err, x402.SetupFailed), "a second agent")
	require.True(t, w.lock())
	require.NoError(t, <-w.ended)
	require.True(t, w.keys.Locked())
	require.NoFileExists(t, filepath.Join(w.home, SocketName))
	require.False(t, w.lock(), "there is none")
	_, err = signer.SignTransfer(t.Context(), w.transfer(w.reserve(10_000, nil)))
	require.True(t, x402.HasCode(err, x402.WalletLocked), "without an agent the wallet itself is asked: %v",
		err)
}

func requireCode(t *testing.T, err error, want x402.Code) {
	t.Helper()
	require.True(t, x402.HasCode(err, want), "%v", err)
}

// requireSignedBy has the chain's code recover who signed a transfer.
func requireSignedBy(t *testing.T, address string, transfer message.Transfer, signature [65]byte) {
	t.Helper()
	object := must.Get(payload.EncodeAuthorization(transfer.Authorization))(t)
	sent := must.Get(json.Marshal(map[string]any{"authorization": json.RawMessage(object),
		"signature": "0x" + hex.EncodeToString(signature[:])}))(t)
	from, _, err := payload.Recover(base, usdc, sent)
	require.NoError(t, err)
	require.Equal(t, address, from)
}

// Whoever was told that the wallet is locked can unlock it: nothing of the old agent is in the way.
func TestLockedIsOver(t *testing.T) {
	home := shortDir(t)
	for range 100 {
		l := must.Get(client.Listen(t.Context(), home))(t)
		s := &Server{Locked: func() bool {
			return false
		}, Lock: func() {}, Log: slog.New(slog.DiscardHandler)}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context(), l) }()
		require.True(t, must.Get((&client.Client{Home: home}).Lock(t.Context()))(t))
		require.NoFileExists(t, filepath.Join(home, SocketName))
		require.NoError(t, client.Free(t.Context(), home))
		require.NoError(t, <-ended)
	}
}

// shortDir is a directory of the test's, with a path that a socket can have.
func shortDir(t *testing.T) string {
	dir := must.Get(os.MkdirTemp("", "a"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestTheAgentSignsNothingElse(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Unix()
	for _, c := range []struct {
		name, why string
		row       func(*history.Payment)
		message   func(*message.Transfer)
	}{
		{"another payee", "its payee", nil, func(m *message.Transfer) { m.Authorization.To = usdc.Address }},
		{"one unit more", "its amount", nil, func(m *message.Transfer) {
			m.Authorization.Value = money.NewAmount(10_001)
		}},
		{"one unit less", "its amount", nil, func(m *message.Transfer) {
			m.Authorization.Value = money.NewAmount(9_999)
		}},
		{"another payer", "its payer", nil, func(m *message.Transfer) { m.Authorization.From = payee }},
		{"for too long", "its validity", nil, func(m *message.Transfer) {
			m.Authorization.ValidBefore = now + 3600
		}},
		{"over", "its validity", nil, func(m *message.Transfer) { m.Authorization.ValidBefore = now - 1 }},
		{"not yet", "its validity", nil, func(m *message.Transfer) { m.Authorization.ValidAfter = now + 30 }},
		{"no such payment", "no such payment", nil, func(m *message.Transfer) { m.Payment = "pay_00" }},
		{"no payment named", "no such payment", nil, func(m *message.Transfer) { m.Payment = "" }},
		{"a price that is not the amount's", "not what its amount is worth", func(p *history.Payment) {
			p.Price = 1
		}, nil},
		{"an unknown asset", "does not know its asset", func(p *history.Payment) { p.Asset = payee }, nil},
		{"another scheme", "cannot be read", func(p *history.Payment) { p.Scheme = "upto" }, nil},
		{"another network", "does not know its asset", func(p *history.Payment) {
			p.Network = "eip155:1234567"
		}, nil},
		{"somebody else's money", "its payer", func(p *history.Payment) { p.Source = payee }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := w.transfer(w.reserve(10_000, c.row))
			if c.message != nil {
				c.message(&m)
			}
			_, err := w.client.SignTransfer(t.Context(), m)
			w.refused(err, c.why)
		})
	}
	// out of the owner's vault, and no other: neither of another contract, nor of one that the owner did not
	// name
	fromVault := func(p *history.Payment) { p.Source = ownersVault }
	outOf := func(from string) func(*message.Transfer) {
		return func(m *message.Transfer) { m.Authorization.From, m.OfVault = from, true }
	}
	m := w.transfer(w.reserve(10_000, fromVault))
	outOf(ownersVault)(&m)
	_, err := w.client.SignTransfer(t.Context(), m)
	w.refused(err, "its payer")
	w.set(func(s *settings) { s.vaults = map[string]string{base: ownersVault} })
	must.Get(w.client.SignTransfer(t.Context(), m))(t)
	for _, from := range []string{usdc.Address, w.evm} {
		m := w.transfer(w.reserve(10_000, fromVault))
		outOf(from)(&m)
		_, err := w.client.SignTransfer(t.Context(), m)
		w.refused(err, "its payer")
	}
	m = w.transfer(w.reserve(10_000, nil)) // the row says whose money is held
	outOf(ownersVault)(&m)
	_, err = w.client.SignTransfer(t.Context(), m)
	w.refused(err, "its payer")

	p := w.reserve(10_000, nil)
	require.NoError(t, w.store.Release(t.Context(), p.ID, "x"))
	_, err = w.client.SignTransfer(t.Context(), w.transfer(p))
	w.refused(err, "failed, not reserved")

	w.bad.Store(x402.Errorf(x402.PolicyUnsealed, "changed"))
	_, err = w.client.SignTransfer(t.Context(), w.transfer(w.reserve(10_000, nil)))
	requireCode(t, err, x402.PolicyUnsealed)
	require.True(t, x402.HasCode(w.ask("check", ""), x402.PolicyUnsealed))
	require.True(t, x402.HasCode(w.client.Checkpoint(t.Context()), x402.PolicyUnsealed),
		"a ledger that is not believed is not marked")
	require.Zero(t, w.marks.Load())
	w.bad.Store(nil)
	require.NoError(t, w.ask("check", ""))
	require.NoError(t, w.client.Checkpoint(t.Context()))
	require.EqualValues(t, 1, w.marks.Load())

	// what was reserved before may have been signed by the agent before
	old := w.reserve(10_000, nil)
	require.True(t, w.lock())
	require.NoError(t, <-w.ended)
	require.NoError(t, w.keys.Unlock(t.Context(), wallet.FromValue("correct horse battery")))
	time.Sleep(time.Millisecond)
	w.start()
	_, err = w.client.SignTransfer(t.Context(), w.transfer(old))
	w.refused(err, "before the wallet was unlocked")
	must.Get(w.client.SignTransfer(t.Context(), w.transfer(w.reserve(10_000, nil))))(t)
}

// Whoever writes to the ledger as they like gets signatures up to the owner's limits, and not one unit
// more: whether the rows stay there, or are released after each signature.
func TestNobodyGetsPastALimitThroughTheAgent(t *testing.T) {
	sign := func(w *world, units uint64, change func(*history.Payment)) (history.Payment, error) {
		p := w.reserve(units, change)
		_, err := w.client.SignTransfer(t.Context(), w.transfer(p))
		return p, err
	}
	for name, after := range map[string]func(w *world, p history.Payment){
		"rows that stay":    func(*world, history.Payment) {},
		"rows that go away": func(w *world, p history.Payment) { w.sql(`UPDATE payments SET state = 'failed'`) },
		"sessions again": func(w *world, p history.Payment) {
			w.sql(`UPDATE payments SET state = 'failed'`)
			must.Get(w.store.NewSession(t.Context(), nil, nil))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			signed := 0
			for range 12 {
				p, err := sign(w, 400_000, nil)
				if err == nil {
					signed++
				} else {
					require.Contains(t, []x402.Code{x402.BudgetExceeded, x402.LedgerCorrupt},
						x402.AsError(err).Code, "%v", err)
				}
				after(w, p)
			}
			require.LessOrEqual(t, signed, 5, "$2.00 is the limit of session and day")
			require.Positive(t, signed)
		})
	}
	w := newWorld(t)
	_, err := sign(w, 1_000_001, nil)
	require.True(t, x402.HasCode(err, x402.BudgetExceeded), "above per_call: %v", err)
	w = newWorld(t)
	w.allow(func(r *Rules) { r.Budget.DenyHosts = []string{"api.example"} })
	requireCode(t, must.Err(sign(w, 1, nil)), x402.PolicyDenied)
	w.allow(func(r *Rules) { r.Budget.Payees = []string{"0x00000000000000000000000000000000000000aa"} })
	requireCode(t, must.Err(sign(w, 1, nil)), x402.PolicyDenied)
	w.allow(func(r *Rules) {
		r.Budget.AllowHosts = []string{"api.example"}
		r.Budget.Ends = map[string]time.Time{"api.example": time.Now()}
	})
	requireCode(t, must.Err(sign(w, 1, nil)), x402.PolicyDenied)
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	requireCode(t, must.Err(sign(w, 1001, nil)), x402.ApprovalRequired)
	w.approve = true
	must.Get(sign(w, 1001, nil))(t)
	w.approve = false
	w.allow(func(r *Rules) { r.Budget.Rate = 2 })
	must.Get(sign(w, 1, nil))(t)
	requireCode(t, must.Err(sign(w, 1, nil)), x402.RateLimited)
}

// An approval that somebody wrote into the ledger is none for the agent; the owner's is.
func TestAnUnsealedApprovalInTheLedgerIsRefused(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	w.approve = true
	sign := func(spoil string) error {
		p := w.reserve(2000, nil)
		if spoil != "" {
			w.sql(spoil)
		}
		return must.Err(w.client.SignTransfer(t.Context(), w.transfer(p)))
	}
	require.NoError(t, sign(""))
	for _, spoil := range []string{`UPDATE approvals SET seal = NULL`,
		`UPDATE approvals SET seal = zeroblob(32)`, `UPDATE approvals SET expires_at = expires_at + 1`,
		`UPDATE approvals SET payment = ''`} {
		t.Run(spoil, func(t *testing.T) {
			err := sign(spoil)
			require.True(t, x402.HasCode(err, x402.ApprovalRequired), "%s: %v", spoil, err)
		})
	}
}

// A session that the owner began is one for the agent at once; one that a payment began, or
// somebody wrote, is not.
func TestASessionOfTheOwners(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.Day, r.Budget.Month = 100_000_000, 100_000_000 })
	sign := func() error {
		return must.Err(w.client.SignTransfer(t.Context(), w.transfer(w.reserve(1_000_000, nil))))
	}
	full := func() {
		t.Helper()
		require.NoError(t, sign())
		require.NoError(t, sign())
		require.True(t, x402.HasCode(sign(), x402.BudgetExceeded))
	}
	full()
	must.Get(w.store.NewSession(t.Context(), nil, func(budget.Session) ([]byte, error) {
		return make([]byte, 32), nil
	}))(t)
	require.True(t, x402.HasCode(sign(), x402.LedgerCorrupt))
	must.Get(w.guard.NewSession(t.Context(), nil))(t)
	full()
}

// A freeze is marked as soon as it is seen, so that taking it out of the ledger is noticed.
func TestTheAgentWitnessesAFreeze(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.store.Freeze(t.Context(), history.Freeze{By: "owner", Why: "stop"}))
	(&Server{Store: w.store, Guard: w.guard, Log: slog.New(slog.DiscardHandler)}).Witness(t.Context())
	w.sql(`DELETE FROM freezes`)
	require.True(t, x402.HasCode(w.guard.VerifySeals(t.Context()), x402.LedgerCorrupt))
}

func TestTheAgentVerifiesTheLedger(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.ask("verify", ""))
	w.sql(`UPDATE audit SET at = at + 1 WHERE event = 'sealed'`)
	requireCode(t, w.ask("verify", ""), x402.LedgerCorrupt)
}

// What else can be sent to the socket.
func TestNonsenseOnTheSocket(t *testing.T) {
	w := newWorld(t)
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "hello\n", "unknown": `{"op":"key"}`,
		"unknown field": `{"op":"status","all":true}`, "no op": "{}",
		"a digest": `{"op":"evm","payment":"x","digest":"00"}`, "endless": `{"op":"` +
			strings.Repeat("a", 1<<20), "nested": strings.Repeat("[", 1<<16),
		"no authorization": `{"op":"evm","payment":"` + w.reserve(1, nil).ID + `"}`,
		"no message":       `{"op":"solana","payment":"` + w.reserve(1, nil).ID + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := must.Get(socket.Dial(t.Context(), filepath.Join(w.home, SocketName), w.home))(t)
			defer c.Close()
			go func() {
				_, _ = c.Write([]byte(text))
				if half, ok := c.(*net.UnixConn); ok {
					_ = half.CloseWrite()
				} else { // a pipe has no end that is closed alone
					_ = c.Close()
				}
			}()
			var out Reply
			if json.NewDecoder(c).Decode(&out) == nil { // or it hung up
				require.Nil(t, out.Signature)
				require.NotNil(t, out.Error)
			}
		})
	}
	for range 2 * MaxCalls { // a silent client does not block for ever; the next client is served
		c := must.Get(socket.Dial(t.Context(), filepath.Join(w.home, SocketName), w.home))(t)
		defer c.Close()
		require.NoError(t, c.Close())
	}
	require.NoError(t, w.client.Status(t.Context()))
	if runtime.GOOS != "windows" { // where a pipe's name has one length
		_, err := client.Listen(t.Context(), "/"+strings.Repeat("x", 200))
		require.Contains(t, x402.AsError(err).Message, "the system allows")
	}
	require.ErrorIs(t, (&client.Client{Home: t.TempDir()}).Status(t.Context()), client.ErrNone)
}

// recorder lets a signature be asked for, and keeps the question.
type recorder struct {
	address string
	onchain.Draft
}

func (r *recorder) Address() string { return r.address }
func (r *recorder) Sign(_ context.Context, d onchain.Draft) ([]byte, error) {
	r.Draft = d
	return nil, context.Canceled
}

// draft is a transaction for 10,000 units that waits for its signature, and what its payment's row says.
func (w *world) draft(s *sandbox.Sandbox, asset x402.AssetInfo) (asks.Transaction, func(*history.Payment)) {
	asked := &recorder{address: w.solana}
	chain := svm.New(svm.Options{Signer: asked, RPC: map[string]string{sandbox.Solana: s.SolanaNodeURL}})
	w.onSolana.Store(chain)
	funds := must.Get(chain.Funds(w.t.Context(), sandbox.Solana, asset))(w.t)
	row := func(p *history.Payment) {
		p.Network, p.Asset, p.Symbol, p.PayTo, p.Source = sandbox.Solana, asset.Address, asset.Symbol,
			s.PayToSolana, funds.Source
	}
	extra := must.Get(json.Marshal(s.FeePayer))(w.t)
	_, err := chain.Authorize(w.t.Context(), onchain.Order{Asset: asset, Source: funds.Source,
		Now: time.Now(), Validity: time.Minute, Requirement: x402.Requirement{
			Version: 2, Scheme: "exact", Network: sandbox.Solana, Amount: money.NewAmount(10_000),
			Asset: asset.Address, PayTo: s.PayToSolana,
			Extra: map[string]json.RawMessage{"feePayer": extra},
		}})
	require.ErrorIs(w.t, err, context.Canceled)
	require.NotEmpty(w.t, asked.Message)
	return asks.Transaction{Solana: must.JSON[exact.Solana](asked.Message)(w.t)}, row
}

func TestTheAgentOnSolana(t *testing.T) {
	s := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	asset, _ := x402.NewRegistry(nil).Named(sandbox.Solana, "")
	w := newWorld(t)
	s.Fund(w.solana, 1_000_000)
	draft, row := w.draft(s, asset)
	of := func(p history.Payment) asks.Transaction {
		d := draft
		d.Payment = p.ID
		return d
	}

	for name, change := range map[string]func(*history.Payment){
		"amount": func(p *history.Payment) { p.Amount, p.Price = money.NewAmount(10_001), 10_001 },
		"payee":  func(p *history.Payment) { p.PayTo = s.FeePayer },
		"source": func(p *history.Payment) { p.Source = s.FeePayer },
		"asset":  func(p *history.Payment) { p.Network, p.Asset = base, usdc.Address },
	} {
		t.Run(name, func(t *testing.T) {
			p := w.reserve(10_000, func(p *history.Payment) { row(p); change(p) })
			_, err := w.client.SignSolana(t.Context(), of(p))
			require.True(t, x402.HasCode(err, x402.PolicyDenied), "%s: %v", name, err)
		})
	}
	for i := range draft.Transaction { // no bit of what is paid may differ
		flipped := bytes.Clone(draft.Transaction)
		flipped[i] ^= 1
		got, err := decode.Message(flipped)
		if err != nil || (i%7 != 0 && got.Amount == money.NewAmount(10_000)) {
			// blockhash, memo and computing are not the payment
			continue
		}
		if got.Amount != money.NewAmount(10_000) || got.Mint != asset.Address ||
			got.Source != draft.Evidence.Source {
			d := of(w.reserve(10_000, row))
			d.Transaction = flipped
			require.Error(t, must.Err(w.client.SignSolana(t.Context(), d)), "byte %d", i)
		}
	}
	w.set(func(x *settings) { x.tokenAccounts = map[string]string{sandbox.Solana: s.FeePayer} })
	_, err := w.client.SignSolana(t.Context(), of(w.reserve(10_000, row)))
	w.refused(err, "its source")
	w.set(func(x *settings) { x.tokenAccounts = nil })
	p := w.reserve(10_000, row)
	must.Get(w.client.SignSolana(t.Context(), of(p)))(t)
	_, err = w.client.SignSolana(t.Context(), of(p))
	w.refused(err, "the payment is submitted, not reserved")
}

// Who connects and says nothing does not keep an agent that is ended.
func TestASilentCallerKeepsNoAgent(t *testing.T) {
	w := newWorld(t)
	silent := must.Get(socket.Dial(t.Context(), filepath.Join(w.home, SocketName), w.home))(t)
	defer silent.Close()
	require.True(t, w.lock())
	select {
	case err := <-w.ended:
		require.NoError(t, err)
	case <-time.After(CallTime / 2):
		t.Fatal("it still runs")
	}
	require.Empty(t, must.Get(io.ReadAll(silent))(t), "it asked nothing that could be wrong")
}

// An agent that ends while it is asked to lock is locked.
func TestLockOfAnAgentThatEnds(t *testing.T) {
	home := t.TempDir()
	l := must.Get(socket.Listen(t.Context(), filepath.Join(home, SocketName), 0o600, home))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		_ = l.Close()
		if err == nil {
			_ = c.Close()
		}
	}()
	require.True(t, must.Get((&client.Client{Home: home}).Lock(t.Context()))(t))
	<-done
}

// An agent whose wallet has locked itself is of no use, and ends.
func TestTheAgentEndsWithTheKeys(t *testing.T) {
	w := newWorld(t)
	w.keys.Lock()
	require.NoError(t, <-w.ended)
	require.NoFileExists(t, filepath.Join(w.home, SocketName))
	require.ErrorIs(t, w.client.Status(t.Context()), client.ErrNone)
}

// A freeze stops the agent before its next signature.
func TestTheAgentIsFrozen(t *testing.T) {
	w := newWorld(t)
	p := w.reserve(10_000, nil)
	require.NoError(t, w.store.Freeze(t.Context(), history.Freeze{By: "the owner"}))
	requireCode(t, must.Err(w.client.SignTransfer(t.Context(), w.transfer(p))), x402.WalletFrozen)
	must.Get(w.guard.Unfreeze(t.Context()))(t)
	must.Get(w.client.SignTransfer(t.Context(), w.transfer(p)))(t)
}

// Of an account the agent signs what is reserved for those whom the rules have pay from it, and nothing by
// another's key.
func TestAccountsSignForTheirAgentsAlone(t *testing.T) {
	w := newWorld(t)
	passphrase := wallet.FromValue("correct horse battery")
	research, err := owner.AddAccount(t.Context(), w.keys, passphrase, owner.NewAccount{Name: "research"})
	require.NoError(t, err)
	w.later = must.Get(wallet.Open(w.home))(t)
	defer func() { _ = w.later.Close() }()
	require.NoError(t, w.later.Unlock(t.Context(), passphrase))
	w.allow(func(r *Rules) {
		r.Budget.Agents = map[string]budget.Agent{"research": {}, "bot": {}, "late": {}, "anna": {}}
		r.Budget.Teams = budget.Teams{"research": {Agents: []string{"research", "bot"}, Account: true},
			"late": {Agents: []string{"late"}, Account: true}}
	})
	w.set(func(s *settings) { s.vaults = map[string]string{base: ownersVault} })
	reserved := func(agent, source string) message.Transfer {
		p := w.reserve(10_000, func(p *history.Payment) { p.Agent, p.Source = agent, source })
		transfer := w.transfer(p)
		transfer.Authorization.From, transfer.OfVault = source, source == ownersVault
		return transfer
	}
	for agent, source := range map[string]string{"research": research.EVM, "bot": research.EVM, "anna": w.evm,
		"": w.evm} {
		transfer := reserved(agent, source)
		signature, err := w.client.SignTransfer(t.Context(), transfer)
		require.NoError(t, err, agent)
		requireSignedBy(t, source, transfer, signature)
	}
	for _, c := range [][2]string{{"bot", w.evm}, {"anna", research.EVM}, {"", research.EVM},
		{"bot", ownersVault}} {
		_, err := w.client.SignTransfer(t.Context(), reserved(c[0], c[1]))
		w.refused(err, "its payer is not that of the reserved payment")
	}
	must.Get(w.client.SignTransfer(t.Context(), reserved("", ownersVault)))(t)
	_, err = w.client.SignTransfer(t.Context(), reserved("late", w.evm))
	require.ErrorContains(t, err, `the keystore has no account "late"`)
}
