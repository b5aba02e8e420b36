//go:build unix

package cli

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/internal/socket"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// An attacker here is an agent with a shell: it runs as the wallet's user, writes to the ledger as it
// likes, knows how a ledger is made, and can call the program. It does not know the passphrase,
// which the wallet reads from a file of the owner's.

type victim struct {
	*world
	t      *testing.T
	env    []string
	forger *historytest.Forger
}

// attacked is a wallet with $0.003 for a session, that has made some payments of $0.001.
func attacked(t *testing.T, payments int, r sandbox.Rules) *victim {
	t.Helper()
	w, env := household(t, sandbox.Options{}, r)
	v := &victim{world: w, t: t, env: append(env, passphraseFile(t))}
	v.open()
	for range payments {
		v.pays(0, `"status": "paid"`)
	}
	return v
}

func (v *victim) open() {
	v.t.Helper()
	v.forger = must.Get(historytest.Forge(v.home))(v.t)
	v.t.Cleanup(func() { _ = v.forger.Close() })
}

func (v *victim) pays(code int, text string, flags ...string) {
	v.t.Helper()
	out, _ := runs(v.t, code, v.env, append(append([]string{"pay", "--json"}, flags...),
		v.SellerURL+"/weather")...)
	require.Contains(v.t, out, text)
}

func (v *victim) sql(query string, args ...any) {
	v.t.Helper()
	n := must.Get(v.forger.Exec(query, args...))(v.t)
	if strings.HasPrefix(query, "UPDATE") || strings.HasPrefix(query, "DELETE") {
		require.NotZero(v.t, n, "it changed nothing: %s", query)
	}
}

func (v *victim) get(query string, args ...any) (s string) {
	v.t.Helper()
	require.NoError(v.t, v.forger.Get(&s, query, args...))
	return s
}

func (v *victim) appends(payment, event, detail string) {
	v.t.Helper()
	require.NoError(v.t, v.forger.Append(time.Now().UnixMicro(), payment, event, detail))
}

func (v *victim) owner(args ...string) { withPassphrase(v.t, 0, v.env[:1], args...) }

// unlocks starts the unlock agent, after which no file unlocks the wallet any more.
func (v *victim) unlocks() {
	v.t.Helper()
	file := strings.TrimPrefix(v.env[1], "X402_WALLET_PASSPHRASE_FILE=")
	v.env = v.env[:1]
	out, _ := runs(v.t, 0, v.env, "unlock", "--passphrase-file", file)
	agent := must.JSON[struct{ PID int }]([]byte(out))(v.t)
	v.t.Cleanup(func() { _ = syscall.Kill(agent.PID, syscall.SIGTERM) })
}

func (v *victim) accepts() {
	v.t.Helper()
	c := sit(v.t, nil, v.env, "policy", "seal")
	c.answers("Passphrase, to seal these rules: ", testPassphrase,
		"Passphrase again, to accept the ledger as it is: ", testPassphrase)
	c.ends(0)
}

// restores puts the rows of an older ledger back, under whoever has the ledger open.
func (v *victim) restores(older string) {
	v.t.Helper()
	v.sql(`ATTACH ? AS older`, older)
	tables := v.get(`SELECT group_concat(name) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'`)
	var fill strings.Builder
	for table := range strings.SplitSeq(tables, ",") {
		fill.WriteString("DELETE FROM main." + table + ";")
		fill.WriteString("INSERT INTO main." + table + " SELECT * FROM older." + table + ";")
	}
	must.Get(v.forger.Exec("BEGIN;" + fill.String() + "COMMIT"))(v.t)
	v.sql(`DETACH older`)
}

const (
	last       = `(SELECT id FROM payments ORDER BY seq DESC LIMIT 1)`
	lastNumber = `(SELECT max(seq) FROM payments)`
)

// What decides is the sealed chain: a table, or a row of the chain, that says something else stops
// the next payment, whoever makes it, until the owner has looked.
func TestAForgedLedgerPaysNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		attack func(v *victim)
		code   string // of the next payment
	}{ // TestTheNextSignatureFindsWhatWasForged in package history has the others
		{"sums at zero", func(v *victim) { v.sql(`UPDATE totals SET spent = 0, held = 0`) }, "LEDGER_CORRUPT"},
		{"the chain's end cut off", func(v *victim) {
			v.sql(`DELETE FROM audit WHERE payment = ` + lastNumber)
			v.sql(`DELETE FROM payments WHERE id = ` + last)
			v.sql(`UPDATE totals SET spent = spent - 1000`)
		}, "LEDGER_CORRUPT"},
		{"the chain made anew", func(v *victim) {
			v.sql(`UPDATE audit SET detail = '{}' WHERE payment = ` + lastNumber)
			require.NoError(v.t, v.forger.Relink(2))
		}, "LEDGER_CORRUPT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := attacked(t, 2, sandbox.Rules{Session: "0.003"})
			c.attack(v)
			v.pays(4, `"error": "`+c.code+`"`)
			v.pays(4, `"error": "`+c.code+`"`)
			require.Equal(t, 2, v.Signatures(), "nothing was signed")
			out, _ := runs(t, 4, v.env, "policy", "seal") // the attacker has no terminal with the owner at it
			require.Contains(t, out, "WALLET_LOCKED")
			v.accepts()
			v.pays(0, `"status": "paid"`)
		})
	}
}

// An older ledger that is put back with its checkpoint is noticed by a server that has met the newer one.
// (testdata/script/policy.txt puts back the ledger alone.)
func TestAnOldLedgerPaysNothing(t *testing.T) {
	t.Parallel()
	v := attacked(t, 1, sandbox.Rules{})
	mark := filepath.Join(v.home, "ledger.mark")
	checkpoint := must.Get(os.ReadFile(mark))(t)
	older := filepath.Join(t.TempDir(), "older.db")
	v.sql(`VACUUM INTO ?`, older)
	a := serve(t, v.env...)
	call := `{"url":"` + v.SellerURL + `/weather"}`
	require.Contains(t, a.call("x402_pay", call), `"status":"paid"`)
	v.restores(older)
	require.NoError(t, os.WriteFile(mark, checkpoint, 0o600))
	require.Contains(t, a.call("x402_pay", call), `"error":"LEDGER_CORRUPT"`)
	require.Equal(t, 2, v.Signatures())
}

// Who changes a rule is asked once more where the ledger is older than its checkpoint.
func TestAnOldLedgerIsNotSealedWithAChange(t *testing.T) {
	t.Parallel()
	v := attacked(t, 1, sandbox.Rules{})
	older := filepath.Join(t.TempDir(), "older.db")
	v.sql(`VACUUM INTO ?`, older)
	v.pays(0, "paid")
	v.restores(older)
	c := sit(t, nil, v.env, "budget", "set", "session", "7.50")
	c.answers("Passphrase, to seal these rules: ", testPassphrase,
		"Passphrase again, to accept the ledger as it is: ", "not the passphrase")
	require.Contains(t, c.ends(4), "older than its checkpoint")
	v.pays(4, `"error": "LEDGER_CORRUPT"`)
}

// A yes of the owner's is good once, and an idempotency key for one purchase.
func TestNothingIsUsedTwice(t *testing.T) {
	t.Parallel()
	t.Run("an approval", func(t *testing.T) {
		t.Parallel()
		v := attacked(t, 0, sandbox.Rules{ApproveAbove: "0.0005"})
		v.pays(4, "APPROVAL_REQUIRED")
		v.owner("approve", v.get(`SELECT id FROM approvals`))
		v.pays(0, "paid")
		v.sql(`UPDATE approvals SET state = 'approved', payment = ''`)
		v.pays(4, `"error": "APPROVAL_REQUIRED"`)
		v.appends(v.get(`SELECT id FROM payments ORDER BY seq LIMIT 1`), "approval returned", `{}`)
		v.sql(`UPDATE approvals SET state = 'approved', payment = ''`)
		v.pays(4, `"error": "APPROVAL_REQUIRED"`)
		require.Equal(t, 1, v.Signatures())
	})
	t.Run("an idempotency key", func(t *testing.T) {
		t.Parallel()
		v := attacked(t, 0, sandbox.Rules{})
		v.pays(0, "paid", "--idempotency-key", "k")
		v.sql(`UPDATE payments SET idempotency_key = NULL`)
		v.pays(4, `"error": "LEDGER_CORRUPT"`, "--idempotency-key", "k")
		require.Equal(t, 1, v.Signatures())
	})
	t.Run("a session of the owner's", func(t *testing.T) {
		t.Parallel()
		v := attacked(t, 0, sandbox.Rules{Session: "0.001"})
		v.owner("session", "new")
		first := v.get(`SELECT id FROM sessions`)
		v.pays(0, "paid")
		v.owner("session", "new")
		v.pays(0, "paid")
		v.pays(3, "BUDGET_EXCEEDED")
		v.sql(`UPDATE sessions SET ended = id <> ?`, first)
		v.sql(`UPDATE totals SET spent = 0, held = 0 WHERE scope = 'session' AND key = ?`, first)
		v.pays(4, "was over in it, and is open again")
		require.Equal(t, 2, v.Signatures())
	})
}

// What is delegated is the cap of a session, also where the ledger says another one before anything was
// signed.
func TestSessionCap_Raised(t *testing.T) {
	t.Parallel()
	for name, isRemote := range map[string]bool{"own process": false, "unlock agent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := attacked(t, 0, sandbox.Rules{Session: "-"})
			v.Delegate(v.addresses()["solana"], 2_500) // $0.0025
			if isRemote {
				v.unlocks()
			}
			v.owner("session", "new")
			require.Equal(t, "2500", v.get(`SELECT cap FROM sessions`))
			v.sql(`UPDATE sessions SET cap = NULL`)
			v.pays(0, "paid", "--idempotency-key", "1")
			v.pays(0, "paid", "--idempotency-key", "2")
			v.pays(3, "session budget", "--idempotency-key", "3")
			require.Equal(t, 2, v.Signatures())
		})
	}
}

// agentSigns asks the unlock agent's socket, as any process of the user can.
func (v *victim) agentSigns(id string, amount uint64, payTo string) (signed bool, why string) {
	v.t.Helper()
	authorization := must.Get(payload.EncodeAuthorization(evm.Authorization3009{
		From:        v.evm,
		To:          payTo,
		Value:       money.NewAmount(amount),
		ValidBefore: time.Now().Unix() + 60,
		Nonce:       sha256.Sum256([]byte(id)),
	}))(v.t)
	c := must.Get(socket.Dial(v.t.Context(), filepath.Join(v.home, "agent.sock"), v.home))(v.t)
	defer c.Close()
	require.NoError(v.t, json.NewEncoder(c).Encode(map[string]any{"op": "sign", "payment": id,
		"message": authorization}))
	var answer struct {
		Signature []byte
		Error     struct{ Code, Message string }
	}
	require.NoError(v.t, json.NewDecoder(c).Decode(&answer))
	return len(answer.Signature) > 0, answer.Error.Code + ": " + answer.Error.Message
}

// forgedPayment is a row for a payment that nobody asked for, like the last one.
func (v *victim) forgedPayment(id, units, payTo string) {
	v.t.Helper()
	v.sql(`CREATE TEMP TABLE one AS SELECT * FROM payments WHERE id = ` + last)
	must.Get(v.forger.Exec(`UPDATE temp.one SET id = ?, pay_to = ?, amount = ?, usd = ?, created_at = ?,
		state = 'reserved', payload = NULL, evidence = NULL, unique_key = NULL, transaction_id = '',
		seq = (SELECT max(seq) + 1 FROM payments)`, id, payTo, units, units, time.Now().UnixMicro()))(v.t)
	v.sql(`INSERT INTO payments SELECT * FROM one`)
	must.Get(v.forger.Exec(`DROP TABLE one`))(v.t)
	require.NoError(v.t, v.forger.Recount())
}

// The unlock agent holds the key for hours, next to an attacker: it signs what stands on the sealed
// chain, and what it signed cannot be taken out of it.
func TestTheUnlockAgentUnderAttack(t *testing.T) {
	t.Parallel()
	const nobody = "0x000000000000000000000000000000000000dEaD"
	begin := func(t *testing.T) *victim {
		v := attacked(t, 0, sandbox.Rules{Session: "0.004"})
		v.unlocks()
		v.pays(0, "paid")
		return v
	}
	t.Run("forged rows", func(t *testing.T) {
		t.Parallel()
		v := begin(t)
		for _, id := range []string{"pay_forged1", "pay_forged2"} {
			v.forgedPayment(id, "990000", nobody)
			asset := v.get(`SELECT asset FROM payments LIMIT 1`)
			v.appends(id, "reserved", `{"amount":"990000","microdollars":990000,"asset":"`+asset+
				`","network":"`+sandbox.EVM+`","payTo":"`+nobody+`","key":""}`)
			must.Get(v.forger.Exec(
				`UPDATE payments SET created_at = (SELECT max(at) FROM audit) WHERE id = ?`, id))(t)
			v.sql(`UPDATE totals SET spent = 0, held = 0`)
			v.sql(`UPDATE sessions SET last_at = 0`)
			signed, why := v.agentSigns(id, 990_000, nobody)
			require.False(t, signed)
			require.Contains(t, why, x402.LedgerCorrupt)
		}
	})
	t.Run("forged to the last byte", func(t *testing.T) {
		t.Parallel()
		v := begin(t)
		signatures := 0
		for _, id := range []string{"pay_forged1", "pay_forged2"} { // $0.002 each of the $0.003 left
			v.forgedPayment(id, "2000", v.PayToEVM)
			require.NoError(t, v.forger.Reserve(id))
			v.sql(`UPDATE totals SET spent = 0 WHERE held > 0`)
			if signed, _ := v.agentSigns(id, 2000, v.PayToEVM); signed {
				signatures++
			}
		}
		require.LessOrEqual(t, signatures, 1)
	})
	t.Run("a signature taken out again", func(t *testing.T) {
		t.Parallel()
		v := begin(t)
		seq := v.get(`SELECT max(seq) FROM audit`)
		v.sql(`CREATE TEMP TABLE kept AS SELECT * FROM totals`)
		v.forgedPayment("pay_forged", "2000", v.PayToEVM)
		require.NoError(t, v.forger.Reserve("pay_forged"))
		signed, why := v.agentSigns("pay_forged", 2000, v.PayToEVM)
		require.True(t, signed, "within every limit it is what anybody may ask for: %s", why)
		v.sql(`DELETE FROM audit WHERE seq > ?`, seq)
		v.sql(`DELETE FROM payments WHERE id = 'pay_forged'`)
		v.sql(`DELETE FROM totals; INSERT INTO totals SELECT * FROM kept; DROP TABLE kept`)
		v.pays(4, `"error": "LEDGER_CORRUPT"`)
		out, _ := runs(t, 4, v.env, "history", "verify")
		require.Contains(t, out, "LEDGER_CORRUPT")
		v.accepts()
		v.pays(0, "paid")
	})
}

// A node whose chain is ahead, latest and finalized block alike, says that a payment has expired which
// is alive: nothing is released, neither by a process that comes later nor by the unlock agent, whom
// any process of the user can ask for it.
func TestANodeThatIsAheadReleasesNothing(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/weather", "/solana"} {
		for _, byAgent := range []bool{false, true} {
			t.Run(path+map[bool]string{true: " by the unlock agent"}[byAgent], func(t *testing.T) {
				t.Parallel()
				v := attacked(t, 0, sandbox.Rules{})
				solana := v.addresses()["solana"]
				v.Fund(solana, sandbox.USDC)
				if byAgent {
					v.unlocks()
				}
				v.Inject("seller cuts before", 1)
				out, _ := runs(t, 5, v.env, "pay", "--json", v.SellerURL+path)
				require.Contains(t, out, "OUTCOME_UNKNOWN")
				v.Advance(10 * time.Minute)
				out, _ = runs(t, 0, v.env, "reconcile")
				require.Contains(t, out, `"failed": 0`)
				require.Equal(t, "unknown", v.get(`SELECT state FROM payments`))
				if byAgent {
					c := must.Get(socket.Dial(v.t.Context(), filepath.Join(v.home, "agent.sock"), v.home))(t)
					defer c.Close()
					require.NoError(t, json.NewEncoder(c).Encode(map[string]string{"op": "expire",
						"payment": v.get(`SELECT id FROM payments`)}))
					var answer struct{ Error struct{ Message string } }
					require.NoError(t, json.NewDecoder(c).Decode(&answer))
					require.Contains(t, answer.Error.Message, "by this machine's clock")
					require.Equal(t, "unknown", v.get(`SELECT state FROM payments`))
				}
			})
		}
	}
}

func (v *victim) addresses() map[string]string {
	v.t.Helper()
	out, _ := runs(v.t, 0, v.env, "address")
	var list struct {
		Addresses []struct{ Chain, Address string }
	}
	require.NoError(v.t, json.Unmarshal([]byte(out), &list), "%s", out)
	by := map[string]string{}
	for _, a := range list.Addresses {
		by[a.Chain] = a.Address
	}
	return by
}
