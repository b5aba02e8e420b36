package nuwa

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A session from the channel's opening to its claim, over both transports: the payee's claim is the
// wallet's history, to the unit.
func TestCallsEqualClaims(t *testing.T) {
	for _, http := range []bool{false, true} {
		t.Run(fmt.Sprintf("http=%t", http), func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				w.http = http
				if http {
					w.service.base = "/payment-channel"
					w.service.wellKnown = w.service.info()
				}
			})
			_, err := w.call("echo")
			require.True(t, x402.HasCode(err, x402.ApprovalRequired),
				"an agent's first call asks the owner to open the channel: %v", err)
			require.Empty(t, w.service.calls)
			w.approve(err)

			for i := range 5 {
				if i == 3 {
					w.start() // the wallet's process is another one now
				}
				r := w.mustCall("echo")
				require.Equal(t, pay.StatusPaid, r.Status)
				require.Equal(t, "$0.001", r.Price)
				require.Equal(t, money.NewAmount(price), *r.AmountPaid)
				require.Equal(t, "RGas", r.Symbol)
				require.Contains(t, r.Content, "echo")
				require.NotContains(t, r.Content, "nuwa:payment")
				require.Equal(t, money.Dollars(1000*(i+1)+10_000), r.Budget.Session.Spent,
					"used when it is proposed, with the opening's fee")
			}
			require.EqualValues(t, 5, w.row().Nonce)
			require.EqualValues(t, 4, w.service.stored.SubRAV.Nonce,
				"the last voucher goes with the next call")

			w.service.lose = true
			_, err = w.call("echo")
			require.Error(t, err)
			require.True(t, x402.AsError(err).Unsafe)
			require.EqualValues(t, 5, w.row().Nonce)
			w.start()
			// asked for the lost call's SubRAV, it gives it and repeats the call once
			r := w.mustCall("echo")
			require.Equal(t, pay.StatusPaid, r.Status)
			require.EqualValues(t, 7, w.row().Nonce)
			require.Len(t, w.service.calls, 7)
			require.Equal(t, money.NewAmount(7*price), w.paidFor(), "the lost call is in the history too")

			w.mustRefuse(x402.AmountExceedsMax, "pricey", func(q *pay.Request) { q.MaxAmount = "$0.01" })
			require.EqualValues(t, 7, w.row().Nonce, "nothing more was signed for")

			w.mustCall("echo")
			require.EqualValues(t, 7, w.service.stored.SubRAV.Nonce)
			out := must.Get(w.m.Commit(t.Context(), "nuwa"))(t)
			require.True(t, out.Committed, "%+v", out)
			out = must.Get(w.m.Commit(t.Context(), "nuwa"))(t)
			require.Contains(t, out.Note, "nothing is outstanding")
			require.NoError(t, w.chain.claim(*w.service.stored))
			require.Equal(t, w.paidFor(), w.row().Amount)
			require.Equal(t, w.paidFor(), w.service.stored.SubRAV.Amount)

			report, err := w.m.Engine.Reconcile(t.Context()) // the chain's word takes the claims' place
			require.NoError(t, err)
			require.Equal(t, 8, report.Settled)
			list := must.Get(w.store.Recent(t.Context(), 100))(t)
			for _, p := range list {
				require.Equal(t, history.Chain, p.Proof, p.URL)
			}
			s := must.Get(w.m.Show(t.Context(), "nuwa"))(t)
			require.Equal(t, "active", s.State)
			require.Equal(t, s.Signed, s.Claimed)
			require.Equal(t, money.NewAmount(92*price), *s.Hub)
		})
	}
}

// Every wrong proposal: refused with its code, nothing signed, nothing held, the evidence kept; and
// the honest one then passes.
func TestWrongProposals(t *testing.T) {
	set := func(key, value string) func(map[string]any) {
		return func(p map[string]any) { p["subRav"].(map[string]any)[key] = value }
	}
	other := hex.EncodeToString(make([]byte, 32))
	for _, c := range []struct {
		name  string
		twist func(map[string]any)
		code  x402.Code
		guard string
	}{
		{"a unit more than it costs", set("accumulatedAmount", "20000001"), x402.InvalidRequirement, "cost"},
		{"a unit less", set("accumulatedAmount", "19999999"), x402.InvalidRequirement, "cost"},
		{"less than was signed for", func(p map[string]any) {
			set("accumulatedAmount", "9999999")(p)
			p["cost"] = "0"
		}, x402.InvalidRequirement, "amount"},
		{"the last nonce again", set("nonce", "1"), x402.InvalidRequirement, "nonce"},
		{"a nonce before", set("nonce", "0"), x402.InvalidRequirement, "nonce"},
		{"a nonce left out", set("nonce", "3"), x402.InvalidRequirement, "nonce"},
		{"another channel", set("channelId", "0x"+other), x402.InvalidRequirement, "channel"},
		{"another epoch", set("channelEpoch", "1"), x402.InvalidRequirement, "epoch"},
		{"another chain", set("chainId", "1"), x402.InvalidRequirement, "chain"},
		{"another key", set("vmIdFragment", "other"), x402.InvalidRequirement, "key"},
		{"another version", set("version", "2"), x402.InvalidRequirement, ""},
		{"above maxAmount", func(p map[string]any) {
			set("accumulatedAmount", "1010000001")(p)
			p["cost"] = "1000000001"
		}, x402.AmountExceedsMax, ""},
		{"a cost without a proposal", func(p map[string]any) {
			delete(p, "subRav")
		}, x402.InvalidRequirement, ""},
		{"a proposal without its cost", func(p map[string]any) {
			delete(p, "cost")
		}, x402.InvalidRequirement, ""},
		{"numbers that are none", set("accumulatedAmount", "1e9"), x402.ResponseMalformed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.open()
			w.mustCall("echo")
			before, spent := w.row(), w.paidFor()

			w.service.twist = c.twist
			e := w.mustRefuse(c.code, "echo")
			if c.guard != "" {
				require.Equal(t, c.guard, e.Details["guard"])
				require.Contains(t, string(w.row().Refused), `"guard":"`+c.guard+`"`)
			}
			require.Equal(t, before.Nonce, w.row().Nonce)
			require.Equal(t, before.Signed, w.row().Signed, "nothing was signed")
			require.Equal(t, spent, w.paidFor())
			require.Empty(t, must.Get(w.store.Unfinished(t.Context(), "", 10))(t), "nothing is held")

			w.service.twist = nil // and the same after a restart, with what the service really has pending
			w.start()
			w.mustCall("echo")
			require.EqualValues(t, 3, w.row().Nonce)
		})
	}
}

// A service that forgot, or pretends to, begins at what the chain knows: it is refused.
func TestReplayAfterRestart(t *testing.T) {
	w := newWorld(t)
	w.open()
	for range 3 {
		w.mustCall("echo")
	}
	first := w.service.given[0].SubRAV
	w.service.twist = func(p map[string]any) {
		text, _ := json.Marshal(first)
		var old map[string]any
		_ = json.Unmarshal(text, &old)
		p["subRav"] = old
	}
	w.start()
	w.mustRefuse(x402.InvalidRequirement, "echo")
	require.EqualValues(t, 3, w.row().Nonce)

	// an honest one that lost its memory is given the last SubRAV again, and goes on from there
	w.service.twist, w.service.pending, w.service.stored = nil, nil, nil
	w.mustCall("echo")
	require.EqualValues(t, 4, w.row().Nonce)
	require.Equal(t, money.NewAmount(4*price), w.row().Amount)

	// one that forgot a SubRAV it had taken is refused once, and reminded with the next call
	w.mustCall("hello")
	w.service.pending, w.service.stored = nil, nil
	w.mustRefuse(x402.InvalidRequirement, "echo")
	w.service.pending = nil
	w.mustCall("echo")
	require.EqualValues(t, 5, w.row().Nonce)
	require.Equal(t, money.NewAmount(5*price), w.row().Amount)
}

// A ledger that was lost knows of the channel what the chain does, and no more is signed for than
// the owner's rules let pass.
func TestRecoverAfterLostLedger(t *testing.T) {
	w := newWorld(t)
	w.open()
	for range 3 {
		w.mustCall("echo")
	}
	require.NoError(t, w.chain.claim(*w.service.stored))
	require.NoError(t, w.store.Close())
	w.store, w.home = nil, t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), w.home, history.Options{}))
	w.start()
	s, err := w.m.Recover(t.Context(), "nuwa") // the service's pending proposal, through the same guards
	require.NoError(t, err)
	require.EqualValues(t, 3, s.Nonce)
	require.Equal(t, money.NewAmount(2*price), s.Claimed)
	require.Equal(t, money.NewAmount(price), w.paidFor())
	w.mustCall("echo")

	w.service.mu.Lock()
	w.service.propose(200 * price) // $0.20: above what is paid without asking
	w.service.mu.Unlock()
	require.Error(t, must.Err(w.m.Recover(t.Context(), "nuwa")))
	require.EqualValues(t, 4, w.row().Nonce)
}

// A row that says more than was promised is not gone on from: neither before anything was signed in the
// channel, nor with another signature than the wallet's own.
func TestCall_RowPromisesMore(t *testing.T) {
	for name, edit := range map[string]string{
		"before its first voucher": `UPDATE channels SET amount = '50000000'`,
		"with a signature of another sum": `UPDATE channels SET amount = '50000000', signed =
			json_set(signed, '$.subRav.accumulatedAmount', '50000000')`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.open()
			isUsed := strings.Contains(edit, "signed")
			if isUsed {
				w.mustCall("echo")
			} else {
				must.Get(w.m.Recover(t.Context(), "nuwa"))(t) // which makes the row
			}
			f := must.Get(historytest.Forge(w.home))(t)
			require.NotZero(t, must.Get(f.Exec(edit))(t))
			require.NoError(t, f.Close())
			w.service.propose(50_000_000 + price)
			w.mustRefuse(x402.LedgerCorrupt, "echo")
		})
	}
}

func TestBudgetsHoldForChannels(t *testing.T) {
	w := newWorld(t, func(w *world) {
		session := money.Dollars(12_500) // the opening's fee of a cent, and two calls
		w.rules.Session = &session
	})
	w.open()
	for range 2 {
		w.mustCall("echo")
	}
	_, err := w.call("echo")
	require.True(t, x402.HasCode(err, x402.BudgetExceeded),
		"the service is told how little may be paid: %v", err)
	e := x402.AsError(err)
	require.Equal(t, "session", e.Details["layer"])
	require.NotEmpty(t, e.Details["resetsAt"])
	require.Equal(t, x402.AskPerson, e.NextStep().Do)
	require.Equal(t, "x402-wallet budget set session 1.02", e.NextStep().Command)
	require.Equal(t, money.NewAmount(2*price), w.paidFor())

	require.NoError(t, w.store.Freeze(t.Context(), history.Freeze{By: "owner"}))
	n := len(w.service.calls)
	w.mustRefuse(x402.WalletFrozen, "echo")
	require.Len(t, w.service.calls, n)
}

// What costs more than is paid without asking is asked about, when the service says that it does.
func TestCallAsksForApproval(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.rules.PriceJump = 0
		w.rules.PerCall = 60_000_000
		w.rules.Day = 100_000_000
		w.rules.Session = nil
	})
	w.chain.hubs[w.payer] = money.NewAmount(10_000 * price)
	w.open()
	offer := func(q *pay.Request) { q.MaxAmount = "$6" }
	w.approve(w.mustRefuse(x402.ApprovalRequired, "pricey", offer))
	r := w.mustCall("pricey", offer)
	require.Equal(t, "$5.00", r.Price)
	require.Equal(t, 2, w.guard.approved, "the approval of the opening, and this one, are looked at before "+
		"signing")
	_, err := w.call("pricey", offer)
	require.True(t, x402.HasCode(err, x402.ApprovalRequired), "an approval is for one call: %v", err)
}

func TestHubFundsLimitCalls(t *testing.T) {
	w := newWorld(t)
	w.chain.hubs[w.payer] = money.NewAmount(3*price - 1)
	w.open()
	for range 2 {
		w.mustCall("echo")
	}
	e := w.mustRefuse(x402.InsufficientFunds, "echo")
	require.Equal(t, "x402-wallet channel open nuwa --deposit 0.50", e.NextStep().Command)
	require.NoError(t, w.chain.claim(*w.service.stored)) // what was taken is no longer owed
	w.mustRefuse(x402.InsufficientFunds, "echo")
	require.Equal(t, money.NewAmount(2*price), w.paidFor())
	w.chain.hubs[w.payer] = money.Amount{}
	w.mustRefuse(x402.InsufficientFunds, "hello")
}

func TestDiscovery(t *testing.T) {
	otherDID := account{7}.did()
	for _, c := range []struct {
		name  string
		spoil func(w *world)
		code  x402.Code // "": it works
	}{
		{"published", func(*world) {}, ""},
		{"by its tool", func(w *world) {
			w.service.wellKnown, w.service.saysDiscovery = "", `{"serviceId":"x","serviceDid":"`+
				w.service.me.did()+`","defaultAssetId":"0x3::gas_coin::RGas"}`
		}, ""},
		{"by config.toml", func(w *world) { w.service.wellKnown, w.pin = "", w.service.me.did() }, ""},
		{"by nobody", func(w *world) { w.service.wellKnown = "" }, x402.InvalidRequirement},
		{"published and pinned to another", func(w *world) { w.pin = otherDID }, x402.PayeeChanged},
		{"another asset", func(w *world) {
			w.service.wellKnown = strings.Replace(w.service.wellKnown, "0x3::gas", "0x4::gas", 1)
		}, x402.UntrustedAsset},
		{"another network", func(w *world) {
			w.service.wellKnown = strings.Replace(w.service.wellKnown, `"local"`, `"main"`, 1)
		}, x402.SetupFailed},
		{"did:key", func(w *world) {
			w.service.wellKnown = strings.Replace(w.service.wellKnown, w.service.me.did(),
				"did:key:z6Mkot43EEU5VHeh8iwfX7KyEStwy5CWAFu9vGRvNSMAC3Cm", 1)
		}, x402.InvalidRequirement},
		{"two names", func(w *world) {
			w.service.wellKnown = `{"serviceDid":"a","serviceDid":"b"}`
		}, x402.ResponseMalformed},
		{"its routes on another host", func(w *world) { // allowed or denied, it would be asked there
			w.service.wellKnown = strings.Replace(w.service.wellKnown, `"basePath":"`,
				`"basePath":".evil.example`, 1)
		}, x402.InvalidRequirement},
		{"its routes on another port", func(w *world) {
			w.service.wellKnown = strings.Replace(w.service.wellKnown, `"basePath":"`, `"basePath":":8443`, 1)
		}, x402.InvalidRequirement},
		{"version 2", func(w *world) { w.says(`"version":1`, `"version":2`) }, x402.InvalidRequirement},
		{"version 2, as text", func(w *world) { w.says(`"version":1`, `"version":"2"`) }, x402.InvalidRequirement},
		{"version 1.5", func(w *world) { w.says(`"version":1`, `"version":1.5`) }, x402.InvalidRequirement},
		{"no version", func(w *world) { w.says(`"version":1,`, ``) }, ""},
		{"version 2 by its tool", func(w *world) {
			w.service.wellKnown, w.service.saysDiscovery = "", `{"version":2,"serviceDid":"`+
				w.service.me.did()+`"}`
		}, x402.InvalidRequirement},
		{"the network by its long name", func(w *world) { w.says(`"local"`, `"rooch:local"`) }, ""},
		{"another network by its long name", func(w *world) { w.says(`"local"`, `"rooch:mainnet"`) },
			x402.SetupFailed},
		{"its MCP server where it is", func(w *world) {
			w.says(`"version":1`, `"version":1,"endpoints":{"mcp":"https://nuwa.example/mcp"}`)
		}, ""},
		{"its MCP server at another path", func(w *world) {
			w.says(`"basePath":"/mcp"`, `"basePath":"/else","endpoints":{"mcp":"/else","httpBase":"https://x.example"}`)
		}, ""},
		{"its MCP server on another host", func(w *world) {
			w.says(`"version":1`, `"version":1,"endpoints":{"mcp":"https://evil.example/mcp"}`)
		}, x402.InvalidRequirement},
		{"its MCP server on another port", func(w *world) {
			w.says(`"version":1`, `"version":1,"endpoints":{"mcp":"https://nuwa.example:8443/mcp"}`)
		}, x402.InvalidRequirement},
		{"its MCP server without TLS", func(w *world) {
			w.says(`"version":1`, `"version":1,"endpoints":{"mcp":"http://nuwa.example/mcp"}`)
		}, x402.InvalidRequirement},
		{"its MCP server with a password", func(w *world) {
			w.says(`"version":1`, `"version":1,"endpoints":{"mcp":"https://a:b@nuwa.example/mcp"}`)
		}, x402.InvalidRequirement},
		{"its MCP server by another scheme", func(w *world) {
			w.says(`"version":1`, `"version":1,"endpoints":{"mcp":"//evil.example/mcp"}`)
		}, x402.InvalidRequirement},
		{"signed by its key", func(w *world) { w.sign(w.service.info(), "") }, ""},
		{"signed, and changed", func(w *world) {
			w.sign(w.service.info(), "")
			w.service.wellKnown = strings.Replace(w.service.wellKnown, `"fake"`, `"fakf"`, 1)
		}, x402.InvalidRequirement},
		{"signed without its name", func(w *world) {
			w.sign(w.service.info(), `,"signedFields":["network"]`)
		}, x402.InvalidRequirement},
		{"no key of ours", func(w *world) {
			w.chain.keys[w.payer] = w.chain.keys[w.payer][:1]
		}, x402.SetupFailed},
		{"another chain's node", func(w *world) { w.chain.id = "2" }, x402.RPCError},
		{"the owner's did:key", func(w *world) {
			w.did = "did:key:z6Mkot43EEU5VHeh8iwfX7KyEStwy5CWAFu9vGRvNSMAC3Cm"
		}, x402.SetupFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.spoil)
			_, err := w.m.Show(t.Context(), "nuwa")
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			requireCode(t, c.code, err)
			require.NotContains(t, err.Error(), `""`, "what is not there is not quoted")
		})
	}
}

// What networks are called, and by whom.
func TestNode_Names(t *testing.T) {
	m := &Manager{Nodes: Nodes{"rooch:test": {}, "rooch:main": {}}}
	for said, name := range map[string]string{"test": "rooch:test", "rooch:test": "rooch:test",
		"testnet": "rooch:test", "rooch:testnet": "rooch:test", "rooch:mainnet": "rooch:main",
		"mainnet": "rooch:main"} {
		require.Same(t, m.Nodes[name], must.Get(m.node(said))(t), said)
	}
	for _, said := range []string{"", "rooch:", "rooch:dev", "rooch:rooch:test", "ROOCH:TEST",
		"rooch:testnets"} {
		requireCode(t, x402.SetupFailed, must.Err(m.node(said)))
	}
}

// Calls go where the service says that its MCP server is.
func TestEndpoint_OfTheDescription(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.says(`"basePath":"/mcp"`, `"basePath":"/elsewhere","endpoints":{"mcp":"/elsewhere"}`)
	})
	w.open()
	w.mustCall("echo")
	require.NotEmpty(t, w.service.asked)
	for _, at := range w.service.asked {
		require.Equal(t, "https://nuwa.example/elsewhere", at)
	}
}

// says changes what is published.
func (w *world) says(old, now string) {
	require.Contains(w.t, w.service.wellKnown, old)
	w.service.wellKnown = strings.Replace(w.service.wellKnown, old, now, 1)
}

// sign puts a signature over the published description, by a key that is added to the service's
// document.
func (w *world) sign(text, more string) {
	signer := newSigner(w.t)
	w.chain.keys[w.service.me] = []Key{signer.key}
	message, _, err := signedInfo([]byte(strings.TrimSuffix(text, "}") +
		`,"signature":{"alg":"x","value":"uAA"` + strings.Replace(more, `"network"`, `"serviceDid"`, 1) +
		`}}`))
	require.NoError(w.t, err)
	w.service.wellKnown = strings.TrimSuffix(text, "}") + `,"signature":{"alg":"EdDSA","value":"` +
		multibase(signer.sign(message)) + `"` + more + `}}`
}

// A service that is another one than before is paid nothing.
func TestChangedServiceDIDIsRefused(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.mustCall("echo")
	w.service.wellKnown = strings.Replace(w.service.wellKnown, w.service.me.did(), account{7}.did(), 1)
	w.start()
	w.mustRefuse(x402.PayeeChanged, "echo")
	require.Len(t, w.service.calls, 1)
}

// Opening is a spend: bounded, held, asked about, and never sent twice.
func TestOpening(t *testing.T) {
	w := newWorld(t)
	s := must.Get(w.m.Show(t.Context(), "nuwa"))(t)
	require.Equal(t, []any{"unopened", true}, []any{s.State, s.Delivered}, "nothing is outstanding")
	requireCode(t, x402.PaymentRejected, must.Err(w.m.Commit(t.Context(), "nuwa")))
	_, err := w.m.Open(t.Context(), "nuwa", 995_000)
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "before the opening is asked about: %v", err)
	require.Contains(t, x402.AsError(err).Hint, "a deposit of $0.99 passes")
	_, err = w.m.Open(t.Context(), "nuwa", 0)
	requireCode(t, x402.ApprovalRequired, err)
	require.Equal(t, w.service.me.did(), x402.AsError(err).Details["payTo"], "whole")
	require.Empty(t, w.chain.channels)
	w.approve(err)
	w.chain.lose = true
	requireCode(t, x402.OutcomeUnknown, must.Err(w.m.Open(t.Context(), "nuwa", 0)))
	s, err = w.m.Open(t.Context(), "nuwa", 0)
	require.NoError(t, err, "it is open: nothing is asked or sent")
	require.Equal(t, "active", s.State)
	require.Equal(t, 1, w.chain.calls["rooch_executeRawTransaction"])

	_, err = w.m.Open(t.Context(), "nuwa", 995_000)
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "with its fee it is above deposit_cap: %v", err)
	_, err = w.m.Open(t.Context(), "nuwa", 500_000)
	requireCode(t, x402.ApprovalRequired, err)
	require.Equal(t, money.NewAmount(100*price), w.chain.hubs[w.payer])
	w.approve(err)
	must.Get(w.m.Open(t.Context(), "nuwa", 500_000))(t)
	require.Equal(t, money.NewAmount(600*price), w.chain.hubs[w.payer])
	report := must.Get(w.m.Engine.Reconcile(t.Context()))(t)
	require.Equal(t, 1, report.Settled, "the lost answer is looked up on the chain")
	require.Regexp(t, "^0x[0-9a-f]{64}$", must.Get(w.store.Recent(t.Context(), 1))(t)[0].Transaction)

	// a key that is not in the channel yet is let in
	w.chain.channels[idOfChannel(w.payer, w.service.me)].subs = map[string]*subChannel{}
	_, err = w.m.Open(t.Context(), "nuwa", 0)
	w.approve(err)
	must.Get(w.m.Open(t.Context(), "nuwa", 0))(t)

	w.chain.refuse = true
	w.chain.channels[idOfChannel(w.payer, w.service.me)].subs = map[string]*subChannel{}
	_, err = w.m.Open(t.Context(), "nuwa", 0)
	w.approve(err)
	requireCode(t, x402.PaymentRejected, must.Err(w.m.Open(t.Context(), "nuwa", 0)))
}

func TestUnusableChannelsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.open()
	id := idOfChannel(w.payer, w.service.me)
	w.chain.channels[id].status = 1
	w.mustRefuse(x402.PaymentRejected, "echo")
	require.Equal(t, "closing", must.Get(w.m.Show(t.Context(), "nuwa"))(t).State)
	w.chain.channels[id].status = 0
	w.chain.channels[id].subs["key-1"].Key.Multibase = "zother"
	w.mustRefuse(x402.SetupFailed, "echo")
	w.chain.channels[id].subs["key-1"].Key.Multibase = walletKeys().Public()
	w.mustCall("echo")

	// a new epoch begins again; a node that shows the old one again is not believed
	w.chain.channels[id].epoch = 1
	sub := w.chain.channels[id].subs["key-1"]
	sub.Nonce, sub.Amount = 0, money.Amount{}
	w.service.pending, w.service.stored = nil, nil
	w.mustCall("echo")
	require.EqualValues(t, 1, w.row().Epoch)
	require.Equal(t, money.NewAmount(price), w.row().Amount)
	w.chain.channels[id].epoch = 0
	w.mustRefuse(x402.RPCError, "echo")

	for code, want := range map[string]x402.Code{codeHubFunds: x402.InsufficientFunds,
		codeContextMissing: x402.PaymentRejected, "EPOCH_MISMATCH": x402.PaymentRejected} {
		t.Run(code, func(t *testing.T) {
			w := newWorld(t)
			w.open()
			w.service.fail = code
			w.mustRefuse(want, "echo")
		})
	}
}

// The same key is one purchase, and the same call whose answer nobody got is answered from the
// ledger.
func TestRepeatedCalls(t *testing.T) {
	w := newWorld(t)
	w.open()
	key := func(q *pay.Request) { q.IdempotencyKey = "k1" }
	first := w.mustCall("echo", key)
	again := w.mustCall("echo", key)
	require.Equal(t, pay.StatusReplayed, again.Status)
	require.Equal(t, first.PaymentID, again.PaymentID)
	w.mustRefuse(x402.InvalidArgument, "hello", key)
	require.Len(t, w.service.calls, 1)

	r := w.mustCall("hello")
	require.Equal(t, pay.StatusFree, r.Status)
	require.True(t, w.row().Delivered, "a free call brings the last SubRAV")
	require.Equal(t, money.NewAmount(price), w.paidFor())

	var q pay.Request // its answer was not written to the client when its process died
	q.Method, q.URL, q.Body = "tools/call", seller.Target("https://nuwa.example/mcp", "echo"),
		[]byte(`{"text":"two"}`)
	lost := must.Get(w.m.Engine.Pay(t.Context(), q))(t)
	w.start()
	found := must.Get(w.m.Engine.Pay(t.Context(), q))(t)
	require.Equal(t, pay.StatusReplayed, found.Status)
	require.Equal(t, lost.PaymentID, found.PaymentID)
}

// Calls at the same time are made one after the other: none meets a conflict.
func TestParallelCalls(t *testing.T) {
	w := newWorld(t)
	w.open()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := w.call("echo", func(q *pay.Request) {
				q.Body = []byte(fmt.Sprintf(`{"text":"%d"}`, i))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 8, w.row().Nonce)
	require.Equal(t, money.NewAmount(8*price), w.paidFor())
	require.Len(t, w.service.calls, 8)
}

// No SubRAV leaves while the ledger cannot be marked, and none is made under rules that are not
// the owner's.
func TestCheckpointBeforeSending(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.mustCall("echo")
	checks := w.guard.checks
	w.guard.bad = x402.Errorf(x402.LedgerUnavailable, "no room")
	w.mustRefuse(x402.LedgerUnavailable, "echo")
	require.Empty(t, w.service.given)
	require.Len(t, w.service.calls, 1)
	w.guard.bad = nil
	w.mustCall("echo")
	require.Equal(t, checks+3, w.guard.checks, "once before the call that failed, twice in the one that "+
		"did not: before it, and before its SubRAV")
}

// A node of rules that are not sealed ends no epoch: what was signed for in it stays on record.
func TestUnsealedRulesEndNoEpoch(t *testing.T) {
	w := newWorld(t)
	w.open()
	for range 2 {
		w.mustCall("echo")
	}
	before := w.row()
	for _, ch := range w.chain.channels {
		ch.epoch = 99
	}
	w.guard.unsealed = x402.Errorf(x402.PolicyUnsealed, "not sealed")
	requireCode(t, x402.PolicyUnsealed, must.Err(w.m.Show(t.Context(), "nuwa")))
	requireCode(t, x402.PolicyUnsealed, must.Err(w.m.Commit(t.Context(), "nuwa")))
	require.Equal(t, before, w.row())
}

// A caller that leaves while the service works has still bought what it served: the same call gets
// it.
func TestCancelledCallIsReplayed(t *testing.T) {
	w := newWorld(t)
	w.open()
	ctx, leave := context.WithCancel(t.Context())
	w.service.twist = func(map[string]any) { leave() }
	var q pay.Request
	q.Method, q.URL, q.Body = "tools/call", seller.Target("https://nuwa.example/mcp", "echo"), []byte(`{}`)
	_, _ = w.m.Engine.Pay(ctx, q)
	w.service.twist = nil
	require.EqualValues(t, 1, w.row().Nonce)
	require.Equal(t, pay.StatusReplayed, must.Get(w.m.Engine.Pay(t.Context(), q))(t).Status)
	require.Len(t, w.service.calls, 1)
}

func TestReservedNamesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.open()
	for _, tool := range []string{"nuwa.commit", "nuwa.recovery", "nuwa.admin.status"} {
		t.Run(tool, func(t *testing.T) {
			require.False(t, w.mustRefuse(x402.ToolNotFound, tool).Unsafe, "nothing was sent")
			require.Nil(t, w.row().PendingCall)
		})
	}
	e := w.mustRefuse(x402.AmountExceedsMax, "echo", func(q *pay.Request) { q.MaxAmount = "0" })
	require.Contains(t, e.Hint, "the most that the call may cost")
	w.mustRefuse(x402.InvalidArgument, "echo", func(q *pay.Request) { q.Body = []byte(`{"__nuwa_payment":{}}`) })
	require.Empty(t, w.service.calls)
	require.True(t, IsReservedArgument("__nuwa_auth") && IsReservedTool("nuwa.health") &&
		!IsReservedTool("nuwax"))

	list := must.Get(w.m.List(t.Context()))(t)
	require.Equal(t, walletKeys().Public(), list.PublicKey)
	require.Len(t, list.Channels, 1)
	requireCode(t, x402.InvalidArgument, must.Err(w.m.Show(t.Context(), "elsewhere")))
}

// A service asks for an earlier call before it serves: one that this wallet knows was lost, once,
// for at most what that call was allowed; and one of which nothing is known for at most what this
// call may cost, out of it.
func TestEarlierCallsAreBounded(t *testing.T) {
	const cent = 10 * price
	limit := func(dollars string) func(*pay.Request) { return func(q *pay.Request) { q.MaxAmount = dollars } }
	w := newWorld(t, func(w *world) { w.rules.PriceJump = 0 })
	w.open()
	propose := func(cost uint64) {
		w.service.mu.Lock()
		defer w.service.mu.Unlock()
		w.service.propose(cost)
	}
	propose(5 * cent) // nothing was ever bought here
	w.mustRefuse(x402.AmountExceedsMax, "echo", limit("$0.01"))
	require.Zero(t, w.paidFor())
	propose(cent) // it is the whole of it
	e := w.mustRefuse(x402.AmountExceedsMax, "echo", limit("$0.01"))
	require.Equal(t, money.NewAmount(cent), w.paidFor())
	require.Equal(t, money.NewAmount(cent).String(), e.Spent)
	w.mustCall("echo", limit("$0.01"))

	w.service.lose = true
	require.Error(t, must.Err(w.call("echo", limit("$0.05"))))
	propose(5 * cent)
	w.service.lose = true
	require.Error(t, must.Err(w.call("echo", limit("$0.001"))))
	paid := money.NewAmount(6*cent + price)
	require.Equal(t, paid, w.paidFor(), "the lost call cost all that it was allowed")
	propose(5 * cent)
	_, err := w.call("echo", limit("$0.001"))
	require.True(t, x402.HasCode(err, x402.AmountExceedsMax), "the one behind it was allowed less: %v", err)
	requireCode(t, x402.AmountExceedsMax, must.Err(w.m.Recover(t.Context(), "nuwa")))
	require.Equal(t, paid, w.paidFor())
	propose(price)
	must.Get(w.m.Recover(t.Context(), "nuwa"))(t)
	require.Nil(t, w.row().PendingCall, "no call is under way any more")
}
