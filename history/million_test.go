package history

import (
	"cmp"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

var (
	kept = flag.String("million", "", "directory of the benchmarks' ledger: made there, or found there")
	size = flag.Int("payments", 100_000, "how many payments the benchmarks' ledger is made with")
)

// million is a ledger of the last thirty days, each payment of another URL, at a hundred hosts, as a wallet
// writes it: with evidence, receipts, contents and the audit chain. It is made once for all benchmarks.
func million(b *testing.B) *Store {
	b.Helper()
	home := cmp.Or(*kept, b.TempDir())
	_, missing := os.Lstat(filepath.Join(home, FileName))
	there := *kept != "" && missing == nil
	if !there {
		fillMillion(b, home)
	}
	s, err := Open(b.Context(), home, Options{Contents: Keeper})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// fillMillion makes the payments, by the thousand in a transaction.
func fillMillion(b *testing.B, home string) {
	b.Helper()
	const month = 30 * 24 * time.Hour
	begin, step := time.Now().Add(-month), month/time.Duration(*size)
	o := Options{Contents: Keeper, Now: func() time.Time { return begin }}
	if err := Create(b.Context(), home, o); err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), home, o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	first, err := reserve(s, testHold(1))
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Release(b.Context(), first.ID, "only its session is needed"); err != nil {
		b.Fatal(err)
	}
	for done := 1; done < *size; {
		err := s.tx(b.Context(), func(t *tx) error {
			for n := 0; n < 1000 && done < *size; n++ {
				done++
				t.Now = begin.Add(time.Duration(done) * step)
				if err := t.millionth(first, done); err != nil {
					return err
				}
			}
			return must.Err(t.Exec(`UPDATE sessions SET last_at = ?`, sqldb.Micros(t.Now)))
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// millionth makes one payment like p: each 997th comes to nothing, all others are settled and delivered.
func (t *tx) millionth(p Payment, n int) error {
	host := fmt.Sprintf("host%d.example", n%100)
	p.ID, p.URL, p.Host = fmt.Sprintf("pay_%032x", n), fmt.Sprintf("https://%s/item/%d", host, n), host
	p.State, p.Note, p.Created, p.Updated = Reserved, "", t.Now, t.Now
	p.Fingerprint = [32]byte(audit.Link(nil, int64(n)))
	agent, payTo := hexOfSize(20, "agent"), hexOfSize(20, host)
	p.Network, p.Asset = "eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	p.PayTo, p.Source = payTo, agent
	p.Requirement = fmt.Appendf(nil, `{"amount":"1","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","extra":`+
		`{"name":"USD Coin","version":"2"},"maxTimeoutSeconds":60,"network":"eip155:8453","payTo":"%s","scheme":"exact"}`,
		payTo)
	if err := t.insert(&p); err != nil {
		return err
	}
	if n%997 == 0 {
		return t.move(p, Failed, `{"why":"bench"}`, `note = ?`, "bench")
	}
	nonce, transaction := hexOfSize(32, "nonce", fmt.Sprint(n)), hexOfSize(32, "transaction", fmt.Sprint(n))
	payload := fmt.Sprintf(`{"x402Version":2,"payload":{"authorization":{"from":"%s","to":"%s","value":"1",`+
		`"validAfter":"0","validBefore":"1900000000","nonce":"%s"},"signature":"%s1b"},"resource":{"description":`+
		`"An item","mimeType":"application/json","url":"%s"},"accepted":%s}`, agent, payTo, nonce,
		hexOfSize(64, "signature", nonce), p.URL, p.Requirement)
	signed := Signed{Payload: []byte(payload), Requirement: p.Requirement,
		UniqueKey: p.Network + " " + p.Asset + " " + agent + " " + nonce,
		Evidence: x402.Evidence{Network: p.Network, Asset: p.Asset, Payer: agent, PayTo: payTo,
			Amount: p.Amount, Nonce: nonce, ValidBefore: 1_900_000_000,
			ExpiresAt: time.Unix(1_900_000_000, 0).UTC()}}
	err := t.submit(p, p.LeaseOwner, signed, testKeyholder())
	if err != nil {
		return err
	}
	_, err = t.outcome(p.ID, Outcome{State: Settled, Proof: Claimed,
		Transaction: transaction, Receipt: fmt.Appendf(nil, `{"network":"eip155:8453","payer":"%s","success":true,`+
			`"transaction":"%s"}`, agent, transaction),
		Content: &Content{Status: 200, Type: "application/json",
			Body: fmt.Appendf(nil, `{"item":%d,"weather":"sunny","celsius":21}`, n)}})
	if err == nil {
		err = t.deliver(p.ID)
	}
	if err == nil {
		_, err = t.outcome(p.ID, Outcome{State: Settled, Proof: Chain,
			Transaction: transaction, ChainProof: x402.Status{State: x402.Settled,
				Transaction: transaction, Block: 30_000_000, At: t.Now.Truncate(time.Second)}})
	}
	return err
}

// hexOfSize is a number of so many bytes that looks random, and is the same for the same names.
func hexOfSize(size int, names ...string) string {
	var all []byte
	for n := int64(0); len(all) < size; n++ {
		all = append(all, audit.Link(nil, n, names...)...)
	}
	return "0x" + hex.EncodeToString(all[:size])
}

// BenchmarkMillionRead is what reads a ledger as a whole.
func BenchmarkMillionRead(b *testing.B) {
	s := million(b)
	b.Run("Room", func(b *testing.B) {
		for b.Loop() {
			if _, err := rawDB(b, s).Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
				b.Fatal(err)
			}
		}
		info, err := os.Stat(filepath.Join(s.home, FileName))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/float64(*size), "B/payment")
	})
	for name, f := range map[string]func() error{
		"Ahead": func() error { _, err := Ahead(b.Context(), s); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
