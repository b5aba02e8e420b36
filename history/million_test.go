package history

import (
	"cmp"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	there := *kept != "" && isDatabase(filepath.Join(home, FileName)) == nil
	if !there {
		if err := Create(b.Context(), home, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	s, err := Open(b.Context(), home, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if !there {
		fillMillion(b, s)
	}
	return s
}

// fillMillion makes the payments, by the thousand in a transaction that waits for no disk.
func fillMillion(b *testing.B, s *Store) {
	b.Helper()
	const month = 30 * 24 * time.Hour
	begin, step := time.Now().Add(-month), month/time.Duration(*size)
	if _, err := s.write.Exec(`PRAGMA synchronous = OFF`); err != nil {
		b.Fatal(err)
	}
	s.now = func() time.Time { return begin }
	first, err := reserve(s, testHold(1))
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Release(b.Context(), first.ID, "only its session is needed"); err != nil {
		b.Fatal(err)
	}
	s.now = time.Now
	for done := 1; done < *size; {
		err := s.tx(b.Context(), func(t *tx) error {
			for n := 0; n < 1000 && done < *size; n++ {
				done++
				t.Now = begin.Add(time.Duration(done) * step)
				if err := t.millionth(first, done); err != nil {
					return err
				}
			}
			_, err := t.exec(`UPDATE sessions SET last_at = ?`, micros(t.Now))
			return err
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
	p.Fingerprint = [32]byte(link(nil, int64(n)))
	p.Requirement = []byte(`{"scheme":"exact","network":"eip155:84532","amount":"1","asset":"0xasset",` +
		`"payTo":"0xpayee","maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}`)
	if err := t.insert(&p); err != nil {
		return err
	}
	if n%997 == 0 {
		return t.move(p, Failed, `{"why":"bench"}`, `note = ?`, "bench")
	}
	nonce := fmt.Sprintf("0x%064x", n)
	payload := fmt.Sprintf(`{"x402Version":2,"payload":{"signature":"0x%s","authorization":{"from":"0xagent",`+
		`"to":"0xpayee","value":"1","validAfter":"0","validBefore":"1900000000","nonce":"%s"}}}`,
		strings.Repeat("5a", 65), nonce)
	err := t.submit(p, p.LeaseOwner, Signed{Payload: []byte(payload), Requirement: p.Requirement,
		UniqueKey: nonce, Evidence: x402.Evidence{Network: p.Network, Asset: p.Asset, Payer: "0xagent",
			PayTo: p.PayTo, Amount: p.Amount, Nonce: nonce, ValidBefore: 1_900_000_000}}, nil,
		testKeyholder())
	if err != nil {
		return err
	}
	_, err = t.outcome(p.ID, Outcome{State: Settled, Proof: Claimed, Transaction: nonce,
		Receipt: fmt.Appendf(nil, `{"success":true,"transaction":"%s","network":"eip155:84532"}`, nonce),
		Content: &Content{Status: 200, Type: "application/json",
			Body: fmt.Appendf(nil, `{"item":%d,"weather":"sunny","celsius":21}`, n)}})
	if err == nil {
		err = t.deliver(p.ID)
	}
	if err == nil {
		_, err = t.outcome(p.ID, Outcome{State: Settled, Proof: Chain, Transaction: nonce,
			ChainProof: x402.Status{State: x402.Settled}})
	}
	return err
}

// BenchmarkMillionRead is what reads a ledger as a whole.
func BenchmarkMillionRead(b *testing.B) {
	s := million(b)
	for name, f := range map[string]func() error{
		"Verify":  func() error { _, err := s.Verify(b.Context(), Head{}); return err },
		"Sealed":  func() error { _, err := s.VerifySealed(b.Context(), testKeyholder()); return err },
		"Content": func() error { _, err := s.VerifyContent(b.Context()); return err },
		"Sample":  func() error { _, err := s.Sample(b.Context()); return err },
		"Ahead":   func() error { _, err := s.Ahead(b.Context()); return err },
		"Export":  func() error { return s.Each(b.Context(), Range{}, func(Payment) error { return nil }) },
		"Prune":   func() error { _, _, err := s.Prune(b.Context(), time.Unix(1, 0), false); return err },
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
