package seal

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// key seals like a wallet with this secret.
type key string

var errLocked = errors.New("locked")

func (k key) Seal(_ context.Context, purpose string, data []byte) ([]byte, error) {
	if k == "" {
		return nil, errLocked
	}
	mac := hmac.New(sha256.New, []byte(k))
	mac.Write([]byte(purpose + "\x00"))
	mac.Write(data)
	return mac.Sum(nil), nil
}

func (k key) Locked() bool { return k == "" }

func rules(t *testing.T, text string) *config.Config {
	t.Helper()
	return must.Get(config.Parse([]byte(text)))(t)
}

// sealed is a home whose rules say day = "5", sealed.
func sealed(t *testing.T) *Guard {
	t.Helper()
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	g := open(t, home, "[budget]\nday = '5'\n")
	require.True(t, x402.HasCode(g.CheckConfig(t.Context()), x402.PolicyUnsealed), "never sealed")
	require.True(t, x402.HasCode(g.VerifySeals(t.Context()), x402.PolicyUnsealed), "never sealed")
	require.NoError(t, g.Seal(t.Context(), false))
	require.NoError(t, g.VerifySeals(t.Context()))
	return g
}

// open is another process on a home.
func open(t *testing.T, home, text string) *Guard {
	t.Helper()
	store := must.Get(ledgers.Open(t.Context(), home, historytest.Options()))(t)
	t.Cleanup(func() { store.Close() })
	return &Guard{Home: home, Rules: rules(t, text), Store: store, Key: key("ours")}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		name, rules string
		key         key
		compare     bool // passes without the key
		check       bool // passes with it
	}{
		{"as sealed", "[budget]\nday = '5'\n", "ours", true, true},
		{"a comment more", "# mine\n[budget]\nday = '5.00'\n", "ours", true, true},
		{"tighter", "[budget]\nday = '4.99'\n", "ours", true, true},
		{"looser", "[budget]\nday = '5.01'\n", "ours", false, false},
		{"looser by leaving it out", "", "ours", false, false},
		{"tighter and looser", "[budget]\nday = '1'\nmonth = '200'\n", "ours", false, false},
		{"another wallet's seal", "[budget]\nday = '5'\n", "theirs", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := open(t, sealed(t).Home, c.rules)
			g.Key = c.key
			for name, err := range map[string]error{"compare": g.CheckConfig(t.Context()),
				"check": g.VerifySeals(t.Context())} {
				if map[string]bool{"compare": c.compare, "check": c.check}[name] {
					require.NoError(t, err, name)
				} else {
					require.True(t, x402.HasCode(err, x402.PolicyUnsealed), "%s: %v", name, err)
				}
			}
		})
	}
	g := open(t, sealed(t).Home, "[budget]\nday = '5.01'\nrate = 5\n[networks.'eip155:8453']\nrpc = "+
		"'https://node.example/hunter2'\n")
	err := g.CheckConfig(t.Context())
	require.ErrorContains(t, err, "loosened since the owner sealed it: budget.day, networks")
	require.Equal(t, []string{"budget.day", "networks"}, x402.AsError(err).Details["keys"])
	require.NotContains(t, fmt.Sprint(x402.AsError(err).Details), "hunter2", "an agent reads this")
}

// Rules that were tightened stay so, although nobody typed a passphrase: the way back is a loosening.
func TestTightenedRulesAreSealed(t *testing.T) {
	first := sealed(t)
	tighter := open(t, first.Home, "[budget]\nday = '1'\n")
	require.NoError(t, tighter.VerifySeals(t.Context()))
	require.True(t, x402.HasCode(first.CheckConfig(t.Context()), x402.PolicyUnsealed))
	require.NoError(t, tighter.VerifySeals(t.Context()))
	require.EqualValues(t, 2, must.Get(first.Store.Rules(t.Context()))(t).Version, "sealed once")
}

// A call that began under rules which the owner has tightened since is told to come again, and not
// that its owner has something to seal.
func TestACallUnderStaleRulesIsRefused(t *testing.T) {
	first := sealed(t)
	text := "[budget]\nday = '1'\n"
	require.NoError(t, os.WriteFile(filepath.Join(first.Home, config.FileName), []byte(text), 0o600))
	again := func() {
		t.Helper()
		err := x402.AsError(first.VerifySeals(t.Context()))
		require.Equal(t, x402.PolicyUnsealed, err.Code)
		require.Contains(t, err.Hint, "the same call again")
		require.Equal(t, x402.ByTime, err.FixedBy)
	}
	// from the moment on in which the file says so: who lowers a budget without a passphrase at
	// hand seals nothing
	again()
	require.NoError(t, open(t, first.Home, text).VerifySeals(t.Context()))
	again()
	for _, harmless := range []string{"# mine\n[budget]\nday = '5'\n", "[budget]\nday = '6'\n"} {
		g := sealed(t)
		require.NoError(t, os.WriteFile(filepath.Join(g.Home, config.FileName), []byte(harmless), 0o600))
		require.NoError(t, g.VerifySeals(t.Context()),
			"a call under way ends by the rules it began with, which are sealed")
	}
}

// A seal holds for one home, one ledger, one version.
func TestSealsCannotBeMoved(t *testing.T) {
	t.Run("home", func(t *testing.T) {
		g := sealed(t)
		require.NoError(t, g.Store.Close())
		copied := t.TempDir()
		for _, name := range []string{history.FileName, checkpointFile} {
			text := must.Get(os.ReadFile(filepath.Join(g.Home, name)))(t)
			require.NoError(t, os.WriteFile(filepath.Join(copied, name), text, 0o600))
		}
		elsewhere := open(t, copied, "[budget]\nday = '5'\n")
		require.True(t, x402.HasCode(elsewhere.VerifySeals(t.Context()), x402.PolicyUnsealed))
		elsewhere.Key = key("")
		require.ErrorContains(t, elsewhere.CheckConfig(t.Context()), "copied or moved",
			"told without the key")
		elsewhere.Key = key("ours")
		require.NoError(t, elsewhere.Seal(t.Context(), false))
		require.NoError(t, elsewhere.CheckConfig(t.Context()))
		require.NoError(t, elsewhere.VerifySeals(t.Context()))
	})
	t.Run("ledger", func(t *testing.T) {
		g := sealed(t)
		r := must.Get(g.Store.Rules(t.Context()))(t)
		require.NoError(t, g.Store.Close())
		require.NoError(t, os.Remove(filepath.Join(g.Home, history.FileName)))
		require.NoError(t, ledgers.Create(t.Context(), g.Home, history.Options{}))
		fresh := open(t, g.Home, "[budget]\nday = '5'\n")
		require.Error(t, fresh.CheckConfig(t.Context()), "an empty ledger is a full budget")
		require.NoError(t, fresh.Store.SealRules(t.Context(), r, "", true, historytest.Keyholder()))
		require.True(t, x402.HasCode(fresh.VerifySeals(t.Context()), x402.LedgerCorrupt),
			"nor with the old ledger's seal")
	})
	t.Run("version", func(t *testing.T) {
		g := sealed(t)
		old := must.Get(g.Store.Rules(t.Context()))(t)
		tighter := open(t, g.Home, "[budget]\nday = '1'\n")
		require.NoError(t, tighter.Seal(t.Context(), false))
		old.Version = 3
		require.NoError(t, g.Store.SealRules(t.Context(), old, "", true, historytest.Keyholder()),
			"an agent writes the old seal into the ledger again")
		require.True(t, x402.HasCode(g.VerifySeals(t.Context()), x402.PolicyUnsealed))
	})
}

// execute is somebody else's hand in the ledger.
func execute(g *Guard, query string) error {
	db, err := sql.Open("sqlite", filepath.Join(g.Home, history.FileName))
	if err != nil {
		return err
	}
	defer db.Close()
	return must.Err(db.Exec(query))
}

func reserve(t *testing.T, s *history.Store) {
	t.Helper()
	must.Get(historytest.Reserve(t.Context(), s, history.Hold{
		Payment: history.Payment{URL: "https://a.example/", Host: "a.example", Amount: money.NewAmount(1),
			Price: 1},
		Funds: x402.Funds{Free: money.NewAmount(1000)},
	}))(t)
}

func requireCode(t *testing.T, err error, want x402.Code) {
	t.Helper()
	require.True(t, x402.HasCode(err, want), "%v", err)
}

func TestCheckpoint(t *testing.T) {
	path := func(g *Guard) string { return filepath.Join(g.Home, checkpointFile) }
	read := func(t *testing.T, name string) []byte {
		return must.Get(os.ReadFile(name))(t)
	}
	write := func(t *testing.T, name string, text []byte) {
		require.NoError(t, os.WriteFile(name, text, 0o600))
	}
	for _, c := range []struct {
		name   string
		spoil  func(t *testing.T, g *Guard)
		passes bool
	}{
		{"untouched", func(*testing.T, *Guard) {}, true},
		{"older than the ledger", func(t *testing.T, g *Guard) {
			old := read(t, path(g))
			reserve(t, g.Store)
			require.NoError(t, g.Checkpoint(t.Context()))
			write(t, path(g), old)
		}, true},
		{"torn", func(t *testing.T, g *Guard) { // by a power cut, in the place that was being written
			reserve(t, g.Store)
			require.NoError(t, g.Checkpoint(t.Context()))
			text := read(t, path(g))
			first, second := text[:slotSize], text[slotSize:]
			require.NotEqual(t, first, second)
			newer := text[:slotSize]
			if bytes.Contains(second, []byte(`"seq":3`)) {
				newer = second
			}
			copy(newer[100:], make([]byte, 100))
			write(t, path(g), text)
		}, true},
		{"both torn", func(t *testing.T, g *Guard) { write(t, path(g), make([]byte, 2*slotSize)) }, false},
		{"half", func(t *testing.T, g *Guard) { write(t, path(g), read(t, path(g))[:slotSize-1]) }, false},
		{"long", func(t *testing.T, g *Guard) { write(t, path(g), make([]byte, 3*slotSize)) }, false},
		{"gone", func(t *testing.T, g *Guard) { require.NoError(t, os.Remove(path(g))) }, false},
		{"empty", func(t *testing.T, g *Guard) { write(t, path(g), nil) }, false},
		{"another one's", func(t *testing.T, g *Guard) {
			write(t, path(g), read(t, path(sealed(t))))
		}, false},
		{"edited", func(t *testing.T, g *Guard) {
			text := read(t, path(g))
			write(t, path(g), bytes.ReplaceAll(text, []byte(`"rules":1`), []byte(`"rules":0`)))
		}, false},
		{"a ledger from a backup", func(t *testing.T, g *Guard) {
			require.NoError(t, g.Store.Close())
			file := filepath.Join(g.Home, history.FileName)
			backup := read(t, file)
			again := open(t, g.Home, string(g.Rules.Text()))
			reserve(t, again.Store)
			require.NoError(t, again.Checkpoint(t.Context()))
			require.NoError(t, again.Store.Close())
			write(t, file, backup)
			*g = Guard{Home: g.Home, Rules: g.Rules, Key: g.Key, Store: open(t, g.Home, "").Store}
		}, false},
		{"a ledger without its write-ahead log", func(t *testing.T, g *Guard) {
			reserve(t, g.Store)
			require.NoError(t, g.Checkpoint(t.Context()))
			file := filepath.Join(g.Home, history.FileName)
			whole := read(t, file) // what is not checkpointed is not in it
			require.NoError(t, g.Store.Close())
			write(t, file, whole)
			*g = Guard{Home: g.Home, Rules: g.Rules, Key: g.Key, Store: open(t, g.Home, "").Store}
		}, false},
		{"rules taken back in the ledger", func(t *testing.T, g *Guard) {
			require.NoError(t, g.Seal(t.Context(), false)) // version 2
			require.NoError(t, execute(g, `DELETE FROM rules WHERE version = 2`))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := sealed(t)
			c.spoil(t, g)
			err := g.VerifySeals(t.Context())
			if c.passes {
				require.NoError(t, err)
				return
			}
			code := x402.AsError(err).Code
			require.Contains(t, []x402.Code{x402.LedgerCorrupt, x402.PolicyUnsealed}, code, "%v", err)
			reserve(t, g.Store)
			require.True(t, x402.HasCode(g.Checkpoint(t.Context()), x402.LedgerCorrupt),
				"no checkpoint makes it good")
			require.Equal(t, code, x402.AsError(g.VerifySeals(t.Context())).Code)
			require.NoError(t, g.Seal(t.Context(), false), "the owner looked, and accepts it")
			require.NoError(t, g.VerifySeals(t.Context()))
		})
	}
}

// Many payments at once, of several processes: the checkpoint ends at the newest.
func TestConcurrentCheckpoints(t *testing.T) {
	one := sealed(t)
	other := open(t, one.Home, string(one.Rules.Text()))
	var all sync.WaitGroup
	for range 10 {
		for _, g := range []*Guard{one, other} {
			all.Go(func() {
				reserve(t, g.Store)
				if err := errors.Join(g.Checkpoint(t.Context()), g.VerifySeals(t.Context())); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	head := must.Get(one.Store.Head(t.Context()))(t)
	require.Equal(t, head.Seq, must.Get(one.newest(t.Context()))(t).Seq)
	info := must.Get(os.Stat(filepath.Join(one.Home, checkpointFile)))(t)
	require.EqualValues(t, 2*slotSize, info.Size())
}

// slowKey seals when it is let go, like a wallet that is waiting for its passphrase.
type slowKey struct {
	key
	begun, letGo chan struct{}
}

func (k slowKey) Seal(ctx context.Context, purpose string, data []byte) ([]byte, error) {
	select {
	case k.begun <- struct{}{}:
	default:
	}
	<-k.letGo
	return k.key.Seal(ctx, purpose, data)
}

// A call waits for another one's checkpoint as long as it has time itself, and no longer.
func TestACheckpointOfACallWithMoreTime(t *testing.T) {
	g := sealed(t)
	cache := &CheckpointCache{}
	slow := slowKey{key: "ours", begun: make(chan struct{}, 1), letGo: make(chan struct{})}
	long := &Guard{Home: g.Home, Rules: g.Rules, Store: g.Store, Key: slow, Checkpoints: cache}
	short := &Guard{Home: g.Home, Rules: g.Rules, Store: g.Store, Key: g.Key, Checkpoints: cache}
	reserve(t, g.Store)
	longer := make(chan error, 1)
	go func() { longer <- long.Checkpoint(t.Context()) }()
	<-slow.begun
	seals := func(ctx context.Context) error { return short.Seal(ctx, false) }
	for name, call := range map[string]func(context.Context) error{"checkpoint": short.Checkpoint,
		"check": short.VerifySeals, "seal": seals} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			answered := make(chan error, 1)
			go func() { answered <- call(ctx) }()
			select {
			case err := <-answered:
				requireCode(t, err, x402.LedgerUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			case <-time.After(5 * time.Second):
				t.Error("it waits for the other call")
			}
		})
	}
	close(slow.letGo)
	require.NoError(t, <-longer)
	require.NoError(t, short.Checkpoint(t.Context()))
	require.NoError(t, short.VerifySeals(t.Context()))
}

// Without the key nothing is believed and nothing is marked.
func TestLocked(t *testing.T) {
	g := sealed(t)
	g.Key = key("")
	require.NoError(t, g.CheckConfig(t.Context()))
	require.ErrorIs(t, g.VerifySeals(t.Context()), errLocked)
	reserve(t, g.Store)
	require.ErrorIs(t, g.Checkpoint(t.Context()), errLocked)
	require.ErrorIs(t, g.Seal(t.Context(), false), errLocked)
}

// recordingKey keeps what it was asked to seal.
type recordingKey struct {
	key
	sealed map[string][]byte
}

func (k recordingKey) Seal(ctx context.Context, purpose string, data []byte) ([]byte, error) {
	k.sealed[purpose] = data
	return k.key.Seal(ctx, purpose, data)
}

// What each seal is over, put together by hand.
func TestSealedBytes(t *testing.T) {
	g := sealed(t)
	k := recordingKey{key: "ours", sealed: map[string][]byte{}}
	g.Key = k
	ledger := must.Get(g.Store.LedgerID(t.Context()))(t)
	home := must.Get(filepath.EvalSymlinks(g.Home))(t)
	number := func(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	text := func(s string) string { return number(int64(len(s))) + s }
	where := text(ledger)

	s := must.Get(g.NewSession(t.Context(), nil))(t)
	require.Equal(t, where+text(s.ID)+number(s.Started.UnixMicro()), string(k.sealed[purposeSession]))

	for _, agent := range []string{"", "ann"} {
		p := wanted(5000)
		p.Agent = agent
		shown := asked(t, g, byte(7+len(agent)), p)
		a := must.Get(g.Approve(t.Context(), shown, "owner"))(t)
		fields := ""
		for _, field := range []string{a.ID, string(a.Quote[:]), a.Host, a.Method, a.URL, a.Network, a.Asset,
			"5000",
			a.Price.String(), a.PayTo, agent} {
			fields += text(field)
		}
		require.Equal(t, where+fields+number(a.Expires.UnixMicro())+number(a.Since),
			string(k.sealed[purposeApproval]))
	}

	require.NoError(t, g.Store.Freeze(t.Context(), history.Freeze{By: "owner"}))
	require.NoError(t, g.Checkpoint(t.Context()))
	m := must.Get(g.newest(t.Context()))(t)
	require.Positive(t, m.Frozen)
	require.NotEmpty(t, m.Freezes)
	must.Get(g.sealOfCheckpoint(t.Context(), m))(t)
	require.Equal(t, where+text(m.Head)+text(m.Freezes)+number(m.Seq)+number(m.Rules)+
		number(m.Frozen)+number(m.Lifted), string(k.sealed[purposeCheckpoint]))

	must.Get(g.Unfreeze(t.Context()))(t)
	lift := must.Get(g.Store.Lifted(t.Context()))(t)
	require.Equal(t, where+number(lift.UpTo)+number(lift.At.UnixMicro()), string(k.sealed[purposeLift]))

	require.NoError(t, g.Seal(t.Context(), false))
	rules := must.Get(g.Store.Rules(t.Context()))(t)
	require.Equal(t, text(home)+where+number(rules.Version)+string(rules.Config),
		string(k.sealed[purposeRules]))
}
