package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/cli"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
	"x402-wallet/scheme/batch"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/publicnode"
)

// lookups counts the names that the tests of this package look up, of which they learn none. A dial may
// outlast the test that began it, so the resolver is the same for all of them.
var lookups atomic.Int32

func TestMain(m *testing.M) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn,
		error) {
		lookups.Add(1)
		return nil, errors.New("tests ask nobody")
	}}
	m.Run()
}

// newHome makes a new wallet with the rules of the template, which it returns as text.
func newHome(t *testing.T) (a *app, text []byte) {
	t.Helper()
	text = must.Get(environ.Template(environ.Env{}))(t)
	rules := must.Get(config.Parse(text))(t)
	a = &app{home: filepath.Join(t.TempDir(), "home"), log: slog.New(slog.DiscardHandler),
		checkpoints: &seal.CheckpointCache{}, tally: &agent.Tally{}}
	require.NoError(t, config.MakeHome(a.home))
	keys := must.Get(a.CreateWallet(t.Context(), cli.NewWallet{Rules: rules,
		Passphrase: []byte("correct horse battery staple")}))(t)
	require.NoError(t, keys.Close())
	return a, text
}

// A new wallet knows many networks and asks none of their nodes before somebody wants to know something.
func TestOpeningAsksNobody(t *testing.T) {
	asked := lookups.Load()
	a, _ := newHome(t)
	w := must.Get(a.OpenWallet(t.Context(), nil, nil))(t)
	defer func() { require.NoError(t, w.Close()) }()
	require.Equal(t, "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", w.Networks[0])
	require.Len(t, w.Networks, len(publicnode.Networks()))
	require.Len(t, w.Unnamed, len(w.Networks)-2)
	require.Equal(t, asked, lookups.Load(), "opening asks nobody")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.Error(t, must.Err(w.EVM.Clock(ctx, "eip155:8453")))
	require.Greater(t, lookups.Load(), asked, "and this test would see it")
}

// Beside a call the wallet is unlocked without asking anybody, and a passphrase that is wrong is tried once.
func TestUnlockingAhead(t *testing.T) {
	text := must.Get(environ.Template(environ.Env{}))(t)
	rules := must.Get(config.Parse(text))(t)
	a := &app{home: filepath.Join(t.TempDir(), "home"), log: slog.New(slog.DiscardHandler),
		checkpoints: &seal.CheckpointCache{}, tally: &agent.Tally{}}
	require.NoError(t, config.MakeHome(a.home))
	right := []byte("correct horse battery staple")
	keys, err := a.CreateWallet(t.Context(), cli.NewWallet{Rules: rules, Passphrase: bytes.Clone(right)})
	require.NoError(t, err)
	defer func() { require.NoError(t, keys.Close()) }()
	locked := toolKeys{Wallet: keys, remote: a.remote(rules, keys, nil)}
	locked.Lock()
	require.True(t, keys.Locked())
	require.Nil(t, locked.unlockAhead(nil), "nothing that it could be unlocked with")

	var tried atomic.Int32
	of := func(passphrase string) func() {
		return locked.unlockAhead([]wallet.Passphrase{func(context.Context) ([]byte, error) {
			tried.Add(1)
			return []byte(passphrase), nil
		}})
	}
	synctest.Test(t, func(t *testing.T) {
		unlock := of("wrong")
		for range 3 {
			unlock()
			synctest.Wait()
		}
		require.EqualValues(t, 1, tried.Load())
		require.True(t, keys.Locked())
	})
	unlock := of(string(right))
	unlock()
	require.Eventually(t, func() bool { return !keys.Locked() }, time.Minute, 10*time.Millisecond)
	unlock()
	require.EqualValues(t, 2, tried.Load())
}

// A mistyped account of the owner's is an error: were it passed over, the agent's own would pay instead.
func TestAMistypedAccountIsRefused(t *testing.T) {
	for _, key := range []string{"vault", "allowance_from"} {
		check := func(address string) error {
			rules := must.Get(config.Parse([]byte("[networks.base]\n" + key + " = \"" + address + "\"\n")))(t)
			return checkAddresses(rules)
		}
		require.NoError(t, check("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
		require.NoError(t, check("0x5fbdb2315678afecb367f032d93f642f64180aa3"))
		err := check("0x5fbDB2315678afecb367f032d93F642f64180aa3")
		require.ErrorContains(t, err, "EIP-55")
		require.ErrorContains(t, err, key)
	}
}

// upto at CDP and PayAI needs no person's yes, unless the owner refuses the addresses that are built in.
func TestFacilitators_KnownFacilitators(t *testing.T) {
	const cdp = "0xdbdf3d8ed80f84c35d01c6c9f9271761bad90ba6"
	for text, want := range map[string]bool{"": true, "[policy]\nknown_facilitators = false": false} {
		rules := must.Get(config.Parse([]byte(text)))(t)
		all := (&app{}).facilitators(rules, nil, nil, nil)
		require.Equal(t, want, all.HasSigner(t.Context(), config.Base, cdp))
	}
}

// Who signs reads what became of a voucher by its channel, and of anything else by its nonce.
func TestStatusOfAVoucher(t *testing.T) {
	rules := must.Get(config.Parse([]byte("# none\n")))(t)
	on := chains{evm: evm.New(evm.Options{})}
	on.addContracts(rules, settingsOf(rules, ""))
	ways := parts{chains: on, rules: rules, deposits: &batch.Channels{}}.ways()
	_, err := statusOf(ways)(t.Context(), history.Payment{Scheme: x402.BatchSettlement,
		Network: config.Base, Evidence: x402.Evidence{Network: config.Base, Channel: "0x01",
			Ceiling: money.NewAmount(1)}})
	require.True(t, x402.HasCode(err, x402.RPCError), err) // it would ask the node, of which there is none
}
