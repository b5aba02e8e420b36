package books

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var update = flag.Bool("update", false, "write the golden files again")

const usdc = "0x036CbD53842c5426634e7929541eC2318f3dCF7e" // on Base Sepolia

// payments are one of each kind, and what hostile sellers would like to get into a spreadsheet or a
// ledger.
func payments() (rows []entry) {
	assets := x402.NewRegistry(nil)
	day := time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC)
	of := func(id, host, url string, state history.State, amount uint64, project string) entry {
		var proof history.Proof
		if state == history.Settled {
			proof = history.Chain
		}
		day = day.Add(20 * time.Hour)
		return entryOf(history.Payment{
			ID: id, Created: day, State: state, Proof: proof, Method: "GET", URL: url, Host: host,
			Network: "eip155:84532", Asset: strings.ToLower(usdc), Symbol: "USDC",
			Amount: money.NewAmount(amount), Price: money.Dollars(amount), PayTo: "0x1", Session: "ses_1",
			Transaction: "0xabc",
		}, project, assets)
	}
	rows = append(rows, entryOfImported(report.Imported{
		At: time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC), Transaction: "sig", Method: "GET",
		URL: "https://old.example/x", Network: "eip155:84532", Asset: usdc, Amount: money.NewAmount(500000),
	}, assets), entryOfImported(report.Imported{
		At: time.Date(2025, 12, 2, 0, 0, 0, 0, time.UTC), Transaction: "sig2", Method: "GET",
		URL: "https://old.example/y", Network: "eip155:84532", Asset: "0xdead", Amount: money.NewAmount(7),
	}, assets))
	rows = append(rows,
		of("pay_1", "api.example.com", "https://api.example.com/weather?a=1,2", history.Settled, 10000,
			"weather"),
		of("pay_2", "api.example.com", "https://api.example.com/weather", history.Unknown, 20000, "weather"),
		of("pay_3", "other.example:8443", "https://other.example:8443/", history.Failed, 1000000, ""),
		of("pay_4", "=HYPERLINK(1)", "@SUM(1)\n2026-01-01 open Assets:Mine", history.Settled, 1,
			`+cmd|' /C calc'!A0`),
		of("pay_5", `quote"\`, "https://q.example/\";  ; Assets:Mine  1000000 USD", history.Settled, 1, "-1"),
	)
	tool := of("pay_6", "mcp.example", "https://mcp.example/mcp#search%20all", history.Settled, 30000, "")
	tool = entryOf(history.Payment{ID: "pay_6", Created: tool.Time, State: history.Settled,
		Method: "tools/call",
		URL:    tool.URL, Host: "mcp.example", Network: tool.Network,
		Asset: usdc, Symbol: "USDC", Amount: money.NewAmount(30000), Price: 30000}, "", assets)
	shared := of("pay_7", "api.example.com", "https://api.example.com/weather", history.Settled, 40000, "")
	shared.Agent, shared.Label, shared.team = "research", "=team\nresearch", "lab"
	return append(rows, tool, shared)
}

// What is written is frozen: books must not change under their owner.
func TestFormats(t *testing.T) {
	for _, format := range Formats {
		var out bytes.Buffer
		w := must.Get(newWriter(&out, format, ""))(t)
		for _, r := range payments() {
			require.NoError(t, w.write(r))
		}
		require.NoError(t, w.close())
		golden(t, "all."+format, out.String())
	}
	for _, by := range Keys {
		var out bytes.Buffer
		w := must.Get(newWriter(&out, "csv", by))(t)
		for _, r := range payments() {
			require.NoError(t, w.write(r))
		}
		require.NoError(t, w.close())
		golden(t, "by-"+by+".csv", out.String())
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile("testdata/"+name, []byte(got), 0o644))
	}
	require.Equal(t, string(must.Get(os.ReadFile("testdata/"+name))(t)), got)
}

// No field of a CSV begins a formula, whatever a seller calls itself (OWASP, "CSV Injection").
func TestNoFormula(t *testing.T) {
	var out bytes.Buffer
	w := must.Get(newWriter(&out, "csv", ""))(t)
	for _, evil := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1", "＝1",
		"|calc", "%0A", "\u00a0=1", ";=1", "a,=1", "\"=1"} {
		t.Run(evil, func(t *testing.T) {
			require.NoError(t, w.write(entry{URL: evil, Host: evil, Project: evil, Tool: evil, Symbol: evil,
				Transaction: evil, PayTo: evil, Facilitator: evil, Asset: evil, Method: evil}))
		})
	}
	require.NoError(t, w.close())
	lines := must.Get(csv.NewReader(&out).ReadAll())(t)
	for _, line := range lines[1:] {
		for _, field := range line {
			require.NotRegexp(t, `^[\s\x{a0}]*[=+\-@|%＝＋－＠]`, field)
			require.NotRegexp(t, `[\t\r\n]`, field)
		}
	}
}

// An entry of the books is one entry: a stranger's text makes no line of its own.
func TestNoForgedEntry(t *testing.T) {
	for _, format := range []string{"beancount", "ledger"} {
		var out bytes.Buffer
		w := must.Get(newWriter(&out, format, ""))(t)
		require.NoError(t,
			w.write(entry{ID: "pay_1", Status: "settled", Method: "GET", Host: "x\n2026-01-01 * forged",
				URL: "\"\n  Assets:Mine  1 USD\u2028  Expenses:Forged 1 USD", Project: "p\n  q",
				Symbol: "U S\nD", Network: "n\nn"}))
		for line := range strings.Lines(out.String()) {
			require.NotRegexp(t, `^(2026|\s+Assets:Mine|\s+Expenses:Forged)`, line)
		}
	}
}

func TestReadOzskr(t *testing.T) {
	good := `[{"timestamp":"2026-01-02T03:04:05.678Z","signature":"5sig","url":"https://a.example/x","amount":"1000","asset":"4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU",` +
		`"payTo":"pay","network":"solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1","facilitator":"https://f.example","method":"GET"}]`
	list := must.Get(ReadOzskr([]byte(good)))(t)
	require.Len(t, list, 1)
	require.Equal(t, "5sig", list[0].Transaction)
	require.Equal(t, "$0.001", entryOfImported(list[0], x402.NewRegistry(nil)).Dollars.Price())

	require.Empty(t, must.Get(ReadOzskr([]byte("[]")))(t))
	for _, bad := range []string{"", "{", `{"a":1}`, `[1]`, strings.Replace(good, `"1000"`, `"-1"`, 1),
		strings.Replace(good, `"1000"`, `1000`, 1),
		strings.Replace(good, "2026-01-02T", "yesterday", 1), strings.Replace(good, "solana:EtW",
			"nowhere EtW", 1), strings.Replace(good, "5sig", "", 1)} {
		t.Run(bad, func(t *testing.T) {
			require.Error(t, must.Err(ReadOzskr([]byte(bad))), bad)
		})
	}
}

func TestRowsAreJSON(t *testing.T) {
	text := must.Get(json.Marshal(payments()[2]))(t)
	back := must.JSON[map[string]any](text)(t)
	require.Equal(t, "0.01", back["usd"])
	require.Equal(t, "10000", back["amount"])
	require.Equal(t, "0.01", back["units"])
}

// BenchmarkFormats is of one payment: what export takes apart from reading the ledger.
func BenchmarkFormats(b *testing.B) {
	assets := x402.NewRegistry(nil)
	for _, format := range Formats {
		b.Run(format, func(b *testing.B) {
			w := must.Get(newWriter(io.Discard, format, ""))(b)
			for n := 0; b.Loop(); n++ {
				host := fmt.Sprintf("host%d.example", n%100)
				require.NoError(b, w.write(entryOf(history.Payment{ID: "pay_1",
					Created: time.Unix(int64(n), 0), State: history.Settled, Proof: history.Chain,
					Method: "GET", Host: host,
					URL: "https://" + host + "/item", Network: "eip155:84532", Asset: strings.ToLower(usdc),
					Symbol: "USDC", Amount: money.NewAmount(1), Price: 1, Transaction: "0xabc"}, "", assets)))
			}
		})
	}
}

// An export may be of one agent, or of those with one label; a label is an agent's as well as a session's.
func TestExportOfAgents(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	store := must.Get(ledgers.Open(t.Context(), home, historytest.Options()))(t)
	defer store.Close()
	for n, agent := range []string{"", "ann", "bob"} {
		_, err := historytest.Reserve(t.Context(), store, history.Hold{Payment: history.Payment{Agent: agent,
			Method: "GET", URL: fmt.Sprintf("https://a.example/%d", n), Host: "a.example", Symbol: "USDC"}})
		require.NoError(t, err)
	}
	must.Get(report.Import(t.Context(), store, []report.Imported{{URL: "https://old.example/",
		Network: "eip155:1"}}))(t)
	labels := map[string]string{"ann": "team=research"}
	for want, e := range map[string]Export{
		"ann team=research":  {Within: report.Range{Agents: []string{"ann"}}},
		"bob ":               {Within: report.Range{Agents: []string{"bob"}}},
		"ann team=research ": {Label: "team=research"},
	} {
		var out bytes.Buffer
		e.Format, e.AgentLabels = "jsonl", labels
		require.NoError(t, e.Write(t.Context(), &out, store, x402.NewRegistry(nil)))
		var row entry
		require.NoError(t, json.Unmarshal(out.Bytes(), &row), "one line: %s", out.String())
		require.Equal(t, strings.TrimRight(want, " "), strings.TrimRight(row.Agent+" "+row.Label, " "))
	}
	var out bytes.Buffer
	e := Export{Format: "csv", By: "team", TeamOf: func(agent string) string {
		return map[string]string{"ann": "news", "bob": "news"}[agent]
	}}
	require.NoError(t, e.Write(t.Context(), &out, store, x402.NewRegistry(nil)))
	require.Regexp(t, `(?m)^news,2,`, out.String())
	require.Regexp(t, `(?m)^\(none\),2,`, out.String(), "without a name, and imported")
}
