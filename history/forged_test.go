package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/schema"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Whoever runs as the same user writes what they like into ledger.db. The next signature finds it.

// guarded is a ledger in which a few payments were signed, with the holder of its key: no more than cap a
// day is signed.
type guarded struct {
	*Store
	t     *testing.T
	clock *clock
	k     Keyholder
}

const guardedCap = 1000

// eachGuarded runs a test on a guarded ledger of each engine.
func eachGuarded(t *testing.T, test func(t *testing.T, g *guarded)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, s *Store, c *clock) { test(t, guard(t, s, c)) })
}

func guard(t *testing.T, s *Store, c *clock) *guarded {
	t.Helper()
	g := &guarded{Store: s, t: t, clock: c, k: testKeyholder()}
	g.k.Query = func(p Payment) budget.Query {
		return budget.Query{HostEntries: []string{"api.example"}, Host: p.Host,
			Payee: budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()}}
	}
	g.k.Permit = func(p Payment, f budget.Facts, _ Sealed) (*Fact, error) {
		if f.Used.Day.Total()+p.Price > guardedCap {
			return nil, x402.Errorf(x402.BudgetExceeded, "over")
		}
		return nil, nil
	}
	g.k.OwnSession = func(_ budget.Session, seal []byte) (bool, error) { return string(seal) == "owner", nil }
	rules := SealedRules{Version: 1, Config: []byte("c"), Seal: []byte("s")}
	require.NoError(t, s.SealRules(t.Context(), rules, s.home, true, g.k))
	g.sign(g.reserve(testHold(10)))
	g.settle(g.sign(g.reserve(testHold(20))))
	return g
}

func (g *guarded) sql(query string, args ...any) {
	g.t.Helper()
	forge(g.t, g.Store, query, args...)
}

// sumUp makes the sums those of the payments.
func (g *guarded) sumUp() {
	g.t.Helper()
	g.sql(`DELETE FROM totals`)
	g.sql(`INSERT INTO totals (scope, key, day, spent, held) ` + schema.Totals)
}

// fail says of a payment that it failed, in the sums, too.
func (g *guarded) fail(payment string) {
	g.t.Helper()
	g.sql(`UPDATE payments SET state = 'failed' WHERE id = ?`, payment)
	g.sumUp()
}

func (g *guarded) reserve(h Hold) Payment {
	g.t.Helper()
	return must.Get(reserve(g.Store, h))(g.t)
}

func (g *guarded) signed(p Payment) Signed {
	return Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: "nonce " + p.ID}
}

func (g *guarded) sign(p Payment) Payment {
	g.t.Helper()
	require.NoError(g.t, g.Submit(g.t.Context(), p, g.signed(p), g.k))
	return p
}

func (g *guarded) settle(p Payment) {
	g.t.Helper()
	must.Get(g.Finish(g.t.Context(), p.ID, Outcome{State: Settled, Proof: Claimed}))(g.t)
}

// next is one payment more.
func (g *guarded) next(h Hold) error {
	p, err := reserve(g.Store, h)
	if err != nil {
		return err
	}
	return g.Submit(g.t.Context(), p, g.signed(p), g.k)
}

// relink makes the chain hold together again behind a row, as anybody can without the key.
func (g *guarded) relink(after int64) {
	g.t.Helper()
	var previous []byte
	require.NoError(g.t, ask(g.t, g.Store, `SELECT hash FROM audit WHERE seq = ?`, after).Scan(&previous))
	for seq := after + 1; ; seq++ {
		var at int64
		var payment, event, detail string
		if ask(g.t, g.Store, `SELECT at, payment, event, detail FROM audit WHERE seq = ?`, seq).
			Scan(&at, &payment, &event, &detail) != nil {
			return
		}
		previous = audit.Link(previous, at, payment, event, detail)
		g.sql(`UPDATE audit SET hash = ? WHERE seq = ?`, previous, seq)
	}
}

// forge appends a row to the chain.
func (g *guarded) forge(payment, event, detail string) {
	g.t.Helper()
	g.sql(`INSERT INTO audit (seq, at, payment, event, detail, hash) VALUES ((SELECT max(seq) + 1 FROM audit), ?,
		coalesce((SELECT seq FROM payments WHERE id = ?), 0), ?, ?, ?)`,
		sqldb.Micros(g.clock.now()), payment, event, detail, []byte{})
	var last int64
	require.NoError(g.t, ask(g.t, g.Store, `SELECT max(seq) FROM audit`).Scan(&last))
	g.relink(last - 1)
}

// reservedAs is what the chain says of a payment that was reserved as it is.
func reservedAs(p Payment) string {
	return audit.JSON(audit.ReservedDetail{Row: p.digest(), Key: p.IdempotencyKey,
		Stored: audit.StoredDigest(string(p.Requirement), "", "")})
}

// signedAs is what the chain says of a payment that was signed as it is.
func signedAs(p Payment) seals.Signature {
	return seals.Signature{ID: p.ID, Row: p.digest(), Created: sqldb.Micros(p.Created), Key: p.IdempotencyKey,
		Evidence: audit.Digest([]byte(audit.JSON(p.Evidence))), Terms: p.terms()}
}

// unsign signs a payment and takes it back, in everything that needs no key for it.
func (g *guarded) unsign() (payment string) {
	g.t.Helper()
	old := g.text(`SELECT sums FROM sealed_sums`)
	g.sql(`CREATE TEMP TABLE old_memory AS SELECT * FROM memory;
		CREATE TEMP TABLE old_nodes AS SELECT * FROM memory_nodes`)
	p := g.sign(g.reserve(testHold(500)))
	g.fail(p.ID)
	g.sql(`DELETE FROM memory; INSERT INTO memory SELECT * FROM old_memory; DELETE FROM memory_nodes;
		INSERT INTO memory_nodes SELECT * FROM old_nodes`)
	g.sql(`UPDATE sealed_sums SET sums = ?`, old)
	return p.ID
}

func (g *guarded) text(query string, args ...any) (text string) {
	g.t.Helper()
	require.NoError(g.t, ask(g.t, g.Store, query, args...).Scan(&text))
	return text
}

// signedAs changes what the chain says of a signed payment.
func (g *guarded) signedAs(payment, name string, value any) {
	g.t.Helper()
	const row = ` WHERE event = 'signed' AND payment = (SELECT seq FROM payments WHERE id = ?)`
	detail := must.JSON[map[string]any]([]byte(g.text(`SELECT detail FROM audit`+row, payment)))(g.t)
	detail[name] = value
	g.sql(`UPDATE audit SET detail = ?`+row, audit.JSON(detail), payment)
}

func TestTheNextSignatureFindsWhatWasForged(t *testing.T) {
	const nineHours = int64(9 * time.Hour / time.Microsecond)
	for name, attack := range map[string]func(g *guarded) Hold{
		"the sums are set to nothing": func(g *guarded) Hold {
			g.sql(`UPDATE totals SET spent = 0, held = 0`)
			return testHold(5)
		},
		"a host's sum alone": func(g *guarded) Hold {
			g.sql(`UPDATE totals SET spent = 0, held = 0 WHERE scope = 'host'`)
			return testHold(5)
		},
		"a session's sum alone": func(g *guarded) Hold {
			g.sql(`UPDATE totals SET spent = 0, held = 0 WHERE scope = 'session'`)
			return testHold(5)
		},
		"the sessions are deleted": func(g *guarded) Hold {
			g.sql(`DELETE FROM sessions`)
			return testHold(5)
		},
		"the session is ended": func(g *guarded) Hold {
			g.sql(`UPDATE sessions SET ended = 1`)
			return testHold(5)
		},
		"the session was idle": func(g *guarded) Hold {
			g.sql(`UPDATE sessions SET last_at = last_at - ?`, nineHours)
			return testHold(5)
		},
		"the session was idle, and the next one is the owner's": func(g *guarded) Hold {
			g.sql(`UPDATE sessions SET ended = 1`)
			g.sql(`INSERT INTO sessions VALUES ('ses_forged', ?1, ?1, NULL, 0, ?2)`, sqldb.Micros(g.clock.now()), []byte{0})
			return testHold(5)
		},
		"the memory is deleted": func(g *guarded) Hold {
			g.sql(`DELETE FROM memory`)
			return testHold(5)
		},
		"the memory is deleted with its digests": func(g *guarded) Hold {
			g.sql(`DELETE FROM memory; DELETE FROM memory_nodes`)
			return testHold(5)
		},
		"a seller is remembered with another payee": func(g *guarded) Hold {
			p := testHold(1).Payment
			g.sql(`UPDATE memory SET value = '0xother' WHERE key = ?`, seals.SellerKey(p.Host, p.Network, p.Asset))
			return testHold(5)
		},
		"a payee is remembered that was never paid": func(g *guarded) Hold {
			h := testHold(5)
			h.Payment.PayTo = "0xthief"
			key := seals.PayeeKey(h.Payment.Network, h.Payment.PayTo)
			g.sql(`INSERT INTO memory VALUES (?, ?, ?)`, memory.BucketOf(key), key, []byte{1})
			return h
		},
		"the memory is put back to an older one": func(g *guarded) Hold {
			g.sql(`CREATE TEMP TABLE old_memory AS SELECT * FROM memory;
				CREATE TEMP TABLE old_nodes AS SELECT * FROM memory_nodes`)
			h := testHold(5)
			h.Payment.IdempotencyKey = "once"
			g.sign(g.reserve(h))
			g.sql(`DELETE FROM memory; INSERT INTO memory SELECT * FROM old_memory; DELETE FROM memory_nodes;
				INSERT INTO memory_nodes SELECT * FROM old_nodes; UPDATE payments SET idempotency_key = NULL`)
			return h
		},
		"the sealed sums are put back to older ones": func(g *guarded) Hold {
			old := g.text(`SELECT sums FROM sealed_sums`)
			g.sign(g.reserve(testHold(5)))
			g.sql(`UPDATE sealed_sums SET sums = ?`, old)
			return testHold(5)
		},
		"the newest seal is taken off, and all is as it was before": func(g *guarded) Hold {
			g.sql(`UPDATE audit SET seal = NULL WHERE payment = (SELECT seq FROM payments WHERE id = ?) AND event = 'signed'`, g.unsign())
			return testHold(600)
		},
		"the newest seal is over older sums, and all is as it was before": func(g *guarded) Hold {
			p := g.unsign()
			g.signedAs(p, "sums", audit.Digest([]byte(g.text(`SELECT sums FROM sealed_sums`))))
			g.relink(3)
			return testHold(600)
		},
		"the sealed sums are edited with the tables": func(g *guarded) Hold {
			p := g.sign(g.reserve(testHold(500)))
			g.fail(p.ID)
			s := must.JSON[seals.Sums]([]byte(g.text(`SELECT sums FROM sealed_sums`)))(g.t)
			s.Lower(signedAs(p), p.Price)
			g.sql(`UPDATE sealed_sums SET sums = ?`, string(s.Encode()))
			return testHold(600)
		},
		"every seal is taken off": func(g *guarded) Hold {
			g.sql(`UPDATE audit SET seal = NULL; DELETE FROM sealed_sums; DELETE FROM memory; DELETE FROM memory_nodes;
				UPDATE payments SET state = 'failed'`)
			g.sumUp()
			return testHold(5)
		},
		"a payment is gone with its signature, and the chain is linked anew": func(g *guarded) Hold {
			old, before := g.text(`SELECT sums FROM sealed_sums`), g.head()
			p := g.sign(g.reserve(testHold(500)))
			g.k.After = g.head()
			g.sql(`DELETE FROM payments WHERE id = ?`, p.ID)
			g.sumUp()
			g.sql(`DELETE FROM audit WHERE seq > ?`, before.Seq)
			g.sql(`UPDATE sealed_sums SET sums = ?`, old)
			return testHold(600)
		},
		"a signed payment failed, says a row": func(g *guarded) Hold {
			p := g.sign(g.reserve(testHold(500)))
			g.fail(p.ID)
			g.forge(p.ID, "failed", `{"n":3}`)
			return testHold(600)
		},
		"a signed payment expired, says a row": func(g *guarded) Hold {
			p := g.sign(g.reserve(testHold(500)))
			g.fail(p.ID)
			g.forge(p.ID, audit.ExpiredEvent, `{"n":3}`)
			return testHold(600)
		},
		"a row of the chain is edited": func(g *guarded) Hold {
			p := g.sign(g.reserve(testHold(5)))
			must.Get(g.Finish(g.t.Context(), p.ID, Outcome{State: Unknown}))(g.t)
			g.sql(`UPDATE audit SET detail = '{"delivered":true}' WHERE event = 'unknown'`)
			return testHold(5)
		},
		"the checkpoint is ahead of the chain": func(g *guarded) Hold {
			g.k.After = g.head()
			g.k.After.Seq += 100
			return testHold(5)
		},
		"the checkpoint is another chain's": func(g *guarded) Hold {
			g.k.After = g.head()
			g.k.After.Hash = make([]byte, 32)
			return testHold(5)
		},
		"an idempotency key is taken off its payment": func(g *guarded) Hold {
			h := testHold(5)
			h.Payment.IdempotencyKey = "once"
			g.sign(g.reserve(h))
			g.sql(`UPDATE payments SET idempotency_key = NULL`)
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				require.NoError(t, g.next(testHold(1)), "as it is it goes on")
				h := attack(g)
				if err := g.next(h); !x402.HasCode(err, x402.LedgerCorrupt) {
					t.Errorf("%v", err)
				}
				require.NotEqual(t, "submitted", g.text(`SELECT state FROM payments ORDER BY seq DESC LIMIT 1`),
					"nothing was signed")
			})
		})
	}
}

func (g *guarded) head() Head {
	return must.Get(g.Head(g.t.Context()))(g.t)
}

// What is held for less than nothing makes room in the tables, and none in what was signed.
func TestAForgedHoldMakesNoRoom(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		require.NoError(t, g.next(testHold(900)))
		p := g.reserve(testHold(1))
		g.sql(`UPDATE payments SET usd = -5000 WHERE id = ?`, p.ID)
		g.sumUp()
		requireCode(t, g.next(testHold(200)), x402.BudgetExceeded)
	})
}

// The payment that is signed is the one that was reserved, to the last column.
func TestAPaymentThatChangedAfterItWasReserved(t *testing.T) {
	for name, change := range map[string]string{
		"cheaper":         `usd = 1`,
		"another amount":  `amount = '9999'`,
		"another payee":   `pay_to = '0xthief'`,
		"another host":    `host = 'cheap.example'`,
		"another session": `session = 'ses_other'`,
		"another time":    `created_at = created_at - 86400000000`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, swapped := range []bool{false, true} { // after the process read it, and before
				eachGuarded(t, func(t *testing.T, g *guarded) {
					p := g.reserve(testHold(500))
					g.sql(`UPDATE payments SET `+change+` WHERE id = ?`, p.ID)
					g.sumUp()
					if swapped {
						p = must.Get(g.Payment(t.Context(), p.ID))(t)
					}
					requireCode(t, g.Submit(t.Context(), p, g.signed(p), g.k), x402.LedgerCorrupt)
				})
			}
		})
	}
	t.Run("with its row of the chain", func(t *testing.T) {
		eachGuarded(t, func(t *testing.T, g *guarded) {
			p := g.reserve(testHold(500))
			cheap := p
			cheap.Price = 1
			g.sql(`UPDATE payments SET usd = 1 WHERE id = ?`, p.ID)
			g.sql(`UPDATE audit SET detail = ? WHERE payment = ?`, reservedAs(cheap), p.Number)
			var last int64
			require.NoError(t, ask(g.t, g.Store, `SELECT max(seq) FROM audit`).Scan(&last))
			g.relink(last - 1)
			g.sumUp()
			requireCode(t, g.Submit(t.Context(), p, g.signed(p), g.k), x402.LedgerCorrupt)
		})
	})
	t.Run("with its row of the chain, which this process had followed", func(t *testing.T) {
		for _, isLinked := range []bool{false, true} {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				p := g.reserve(testHold(500))
				g.sign(g.reserve(testHold(5)))
				cheap := p
				cheap.Price = 1
				var row int64
				require.NoError(t, ask(g.t, g.Store, `SELECT seq FROM audit WHERE payment = ?`, p.Number).Scan(&row))
				require.NotNil(t, g.followed.hash(row))
				g.sql(`UPDATE payments SET usd = 1 WHERE id = ?`, p.ID)
				g.sql(`UPDATE audit SET detail = ? WHERE payment = ?`, reservedAs(cheap), p.Number)
				if isLinked {
					g.relink(row - 1)
				}
				g.sumUp()
				requireCode(t, g.Submit(t.Context(), cheap, g.signed(cheap), g.k), x402.LedgerCorrupt)
			})
		}
	})
}

// What a process followed of the chain is what leads to a row that is still the same.
func TestFollowed(t *testing.T) {
	row := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	var f followed
	require.Less(t, f.last(), int64(1))
	f.keep(5, [][]byte{row(5), row(6), row(7)})
	f.keep(6, [][]byte{row(6), row(7), row(8)})
	for seq := range int64(12) {
		want := row(int(seq))
		if seq < 5 || seq > 8 {
			want = nil
		}
		require.Equal(t, want, f.hash(seq))
	}
	f.keep(7, [][]byte{row(7)}) // what was behind it was rolled back
	require.Equal(t, int64(7), f.last())
	f.keep(7, [][]byte{row(70), row(80)})
	require.Nil(t, f.hash(6), "it leads to another row")
	f.keep(100, [][]byte{row(100)})
	require.Nil(t, f.hash(8), "nothing is known of what is between")
	for seq := 100; seq < 3*maxFollowed; seq++ {
		f.keep(int64(seq), [][]byte{row(seq), row(seq + 1)})
	}
	require.Equal(t, row(3*maxFollowed), f.hash(f.last()))
	require.NotNil(t, f.hash(2*maxFollowed+1))
	require.Nil(t, f.hash(2*maxFollowed))
}

// A channel goes on from its last voucher, whatever its row says.
func TestAChannelThatWasMovedByHand(t *testing.T) {
	for name, change := range map[string]string{
		"amount": `amount = '5000'`, "nonce": `nonce = '1'`, "epoch": `epoch = '1', nonce = '0', amount = '100'`,
		"another channel": `channel = '0x02', amount = '5000'`, "network": `network = 'rooch:main'`,
	} {
		t.Run(name, func(t *testing.T) {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				require.NoError(t, g.SaveChannel(t.Context(), testChannel(0)))
				for n := range uint64(2) {
					must.Get(byVoucher(t, g.Store, testChannel(n+1)))(t)
				}
				g.sql(`UPDATE channels SET ` + change)
				c := must.Get(g.Channel(t.Context(), testChannel(0).Service, testChannel(0).Key))(t)
				c.Nonce, c.Amount, c.Signed = c.Nonce+2, money.NewAmount(6000), []byte(`{"nonce":"more"}`)
				requireCode(t, must.Err(byVoucher(t, g.Store, c)), x402.LedgerCorrupt)
				_, err := g.RecordVoucher(t.Context(), Payment{}, Signed{Payload: c.Signed}, c,
					Outcome{}, g.k)
				requireCode(t, err, x402.LedgerCorrupt)
			})
		})
	}
}

// Two processes sign at once: none loses the other's sums.
func TestTwoProcessesSignAtOnce(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		other := besides(t, g.Store)
		var wait sync.WaitGroup
		failed := make(chan error, 40)
		for i := range 40 {
			s := []*Store{g.Store, other}[i%2]
			wait.Go(func() {
				for {
					p, err := reserve(s, testHold(1))
					if errors.Is(err, ErrMoved) {
						continue
					}
					if err == nil {
						err = s.Submit(context.Background(), p, g.signed(p), g.k)
					}
					failed <- err
					return
				}
			})
		}
		wait.Wait()
		close(failed)
		for err := range failed {
			require.NoError(t, err)
		}
		require.Equal(t, money.Dollars(10+20+40), g.sums().Days[0].Sum)
		must.Get(g.VerifySealed(t.Context(), g.k))(t)
	})
}

func (g *guarded) sums() (s seals.Sums) {
	g.t.Helper()
	require.NoError(g.t, g.view(g.t.Context(), func(t *tx) error {
		last, err := t.lastSealed(g.k, nil)
		if err == nil {
			s = last.Sums
		}
		return err
	}))
	return s
}

// The agent signed, and the process that asked for it died before it knew: the money is held until
// the chain says that it expired.
func TestACrashBetweenTheAgentsSignatureAndItsSubmission(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		h := testHold(40)
		h.Payment.IdempotencyKey = "once"
		p := g.reserve(h)
		require.NoError(t, g.Sign(t.Context(), p, g.signed(p), []byte("message"), g.k))
		require.NoError(t, g.Close())
		g.Store = besides(t, g.Store)
		require.Equal(t, money.Dollars(70), g.sums().Days[0].Sum)
		must.Get(g.VerifySealed(t.Context(), g.k))(t)
		require.ErrorIs(t, g.Release(t.Context(), p.ID, "gone"), ErrNotLeaseOwner)
		require.ErrorIs(t, must.Err(g.Finish(t.Context(), p.ID, Outcome{State: Failed})), ErrUnsealed)
		left := must.Get(g.Payment(t.Context(), p.ID))(t)
		require.Equal(t, Submitted, left.State)

		asked := askedBy(p, x402.Evidence{FeePayer: "another"})
		_, err := g.Expire(t.Context(), asked, Outcome{State: Failed}, g.k)
		require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "the chain was asked by something else: %v",
			err)
		expired := x402.Status{State: x402.Expired}
		left = must.Get(g.Expire(t.Context(), left, Expiry(left, expired), g.k))(t)
		require.Equal(t, Failed, left.State)
		require.Equal(t, money.Dollars(30), g.sums().Days[0].Sum)
		require.NoError(t, g.next(h), "its key is free again")
		_, err = g.Expire(t.Context(), left, Expiry(left, expired), g.k)
		require.Error(t, err, "once")
		must.Get(g.VerifySealed(t.Context(), g.k))(t)
	})
}

// askedBy is a payment as it was read with some evidence.
func askedBy(p Payment, e x402.Evidence) Payment {
	p.Evidence = e
	return p
}

// What the agent signed for is submitted once.
func TestTheAgentsSignatureIsSubmittedOnce(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		p := g.reserve(testHold(7))
		signed := g.signed(p)
		require.NoError(t, g.Sign(t.Context(), p, signed, []byte("message"), g.k))
		require.NoError(t, g.Submit(t.Context(), p, signed, g.k))
		other := signed
		other.Payload = []byte(`{"other":1}`)
		require.ErrorIs(t, g.Submit(t.Context(), p, other, g.k), ErrSignedBefore)
		now := must.Get(g.Payment(t.Context(), p.ID))(t)
		require.JSONEq(t, string(signed.Payload), string(now.Payload))
		must.Get(g.VerifySealed(t.Context(), g.k))(t)
	})
}

// Expiry gives money back for what this wallet signed, and only for that.
func TestAForgedSignatureDoesNotExpire(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		p := g.reserve(testHold(700))
		g.sql(`UPDATE payments SET state = 'submitted', evidence = '{}', unique_key = ? WHERE id = ?`, []byte{0},
			p.ID)
		g.forge(p.ID, audit.SignedEvent, audit.JSON(signedAs(p)))
		_, err := g.Expire(t.Context(), p, Outcome{State: Failed}, g.k)
		requireCode(t, err, x402.LedgerCorrupt)
	})
	for _, linked := range []bool{false, true} {
		eachGuarded(t, func(t *testing.T, g *guarded) {
			p := g.sign(g.reserve(testHold(7)))
			g.sign(g.reserve(testHold(8))) // nobody looks at what is before the newest seal
			big := p
			big.Price = 700
			g.sql(`UPDATE payments SET usd = 700 WHERE id = ?`, p.ID)
			_, err := g.Expire(t.Context(), p, Outcome{State: Failed}, g.k)
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "its terms are under the seal: %v", err)
			detail := audit.JSON(signedAs(big))
			g.sql(`UPDATE audit SET detail = ? WHERE payment = ? AND event = 'signed'`, detail, p.Number)
			if linked {
				var at int64
				var previous []byte
				require.NoError(t, ask(t, g.Store, `SELECT a.at, b.hash FROM audit a, audit b
					WHERE a.payment = ? AND a.event = 'signed' AND b.seq = a.seq - 1`, p.Number).Scan(&at, &previous))
				g.sql(`UPDATE audit SET hash = ? WHERE payment = ? AND event = 'signed'`,
					audit.Row{At: at, Payment: p.Number, Event: audit.SignedEvent,
						Detail: detail}.Linked(previous), p.Number)
			}
			_, err = g.Expire(t.Context(), p, Outcome{State: Failed}, g.k)
			requireCode(t, err, x402.LedgerCorrupt)
		})
	}
}

// A payment that nobody signed for too long, or whose session the owner ended, is refused with what to
// do, and the ledger is good as before.
func TestAHoldThatIsTooOldToBeSigned(t *testing.T) {
	for name, meanwhile := range map[string]func(g *guarded){
		"days went by": func(g *guarded) {
			for range 10 { // in one session
				g.clock.set(g.clock.now().Add(6 * time.Hour))
				require.NoError(g.t, g.next(testHold(1)))
			}
		},
		"another session began": func(g *guarded) {
			must.Get(g.NewSession(g.t.Context(), nil,
				func(budget.Session) ([]byte, error) { return []byte("owner"), nil }))(g.t)
			require.NoError(g.t, g.next(testHold(1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				old := g.reserve(testHold(1))
				meanwhile(g)
				requireCode(t, g.Submit(t.Context(), old, g.signed(old), g.k), x402.LedgerUnavailable)
				require.NoError(t, g.next(testHold(1)))
				must.Get(g.VerifySealed(t.Context(), g.k))(t)
			})
		})
	}
}

// Without the key nothing can be recorded as signed, and nothing is.
func TestWithoutAKeyNothingIsSigned(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		p := g.reserve(testHold(1))
		requireCode(t, g.Submit(t.Context(), p, g.signed(p), Keyholder{}), x402.WalletLocked)
		k := g.k
		k.MAC = func([]byte) ([]byte, error) { return make([]byte, 32), nil } // another's
		requireCode(t, g.Submit(t.Context(), p, g.signed(p), k), x402.LedgerCorrupt)
		k.MAC = func([]byte) ([]byte, error) { return nil, fmt.Errorf("gone") }
		require.ErrorContains(t, g.Submit(t.Context(), p, g.signed(p), k), "gone")
		g.sign(p)
	})
}

// A session that somebody ended stops payments, and Verify finds it as long as it does: also after a refused
// payment, with which another session began.
func TestVerifyFindsAnEndedSession(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		pay(t, s, testHold(1), Submitted)
		must.Get(s.Verify(t.Context(), Head{}))(t)
		forge(t, s, `UPDATE sessions SET ended = 1`)
		p := pay(t, s, testHold(1), Reserved)
		err := s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID},
			testKeyholder())
		requireCode(t, err, x402.LedgerCorrupt)
		require.NoError(t, s.Release(t.Context(), p.ID, "refused"))
		_, err = s.Verify(t.Context(), Head{})
		requireCode(t, err, x402.LedgerCorrupt)
		require.ErrorContains(t, err, "the owner did not begin it")
	})
}
