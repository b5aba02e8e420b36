package books

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Formats are what rows can be written as.
var Formats = []string{"csv", "jsonl", "beancount", "ledger"}

// Keys are what payments can be summed up by.
var Keys = []string{"host", "tool", "project", "agent", "team", "month"}

func (r entry) key(by string) string {
	switch by {
	case "host":
		return r.Host
	case "tool":
		return r.Tool
	case "project":
		return cmp.Or(r.Project, "(none)")
	case "agent":
		return cmp.Or(r.Agent, "(none)")
	case "team":
		return cmp.Or(r.team, "(none)")
	case "month":
		return r.Time.UTC().Format("2006-01")
	}
	return ""
}

// keySum is what payments come to that have something in common.
type keySum struct {
	Key      string        `json:"key"`
	Payments int           `json:"payments"`
	Spent    money.Dollars `json:"spent"` // settled or imported
	Held     money.Dollars `json:"held"`  // reserved, submitted, unknown
	Unvalued int           `json:"unvalued,omitempty"`
}

// writer writes entries, one after the other, or what they sum up to.
type writer struct {
	out    io.Writer
	format string
	by     string // "": each entry
	csv    *csv.Writer
	open   map[string]bool // beancount: accounts that were opened
	sums   map[string]*keySum
}

func newWriter(out io.Writer, format, by string) (w *writer, err error) {
	w = &writer{out: out, format: format, by: by, csv: csv.NewWriter(out), open: map[string]bool{},
		sums: map[string]*keySum{}}
	switch {
	case format == "csv" && by != "":
		err = w.csv.Write([]string{by, "payments", "spent", "held", "unvalued"})
	case format == "csv":
		err = w.csv.Write([]string{"time", "id", "status", "proof", "method", "url", "host", "tool",
			"project", "session", "network", "asset", "symbol", "amount", "units", "usd", "payTo",
			"transaction", "facilitator", "agent", "label"})
	case format == "beancount":
		_, err = fmt.Fprint(out, "; what x402-wallet paid; the books are the ledger's, this is a copy\n\n")
	case !slices.Contains(Formats, format):
		err = fmt.Errorf("no format %q", format)
	}
	return w, err
}

// write takes an entry. Sums and books of double entry have only what moved (*) or may have (!).
func (w *writer) write(r entry) error {
	switch {
	case w.by != "":
		w.sum(r)
		return nil
	case w.format == "csv":
		usd := r.Dollars.String()
		if r.Unvalued {
			usd = ""
		}
		return w.line(r.Time.UTC().Format(time.RFC3339), r.ID, r.Status, r.Proof, r.Method, r.URL, r.Host,
			r.Tool, r.Project, r.Session, r.Network, r.Asset, r.Symbol, r.Amount.String(), r.Units, usd,
			r.PayTo, r.Transaction, r.Facilitator, r.Agent, r.Label)
	case w.format == "jsonl":
		return lineOf(w.out, r)
	case !r.counts() || r.Prepaid:
		return nil
	case w.format == "beancount":
		return w.beancount(r)
	}
	return w.ledger(r)
}

// sum counts an entry; what failed counts nothing.
func (w *writer) sum(r entry) {
	if !r.counts() || r.isTransfer {
		return
	}
	key := r.key(w.by)
	sum := w.sums[key]
	if sum == nil {
		sum = &keySum{Key: key}
		w.sums[key] = sum
	}
	sum.Payments++
	switch {
	case r.Unvalued:
		sum.Unvalued++
	case r.sure():
		sum.Spent = sum.Spent.Add(r.Dollars)
	default:
		sum.Held = sum.Held.Add(r.Dollars)
	}
}

// close writes the sums, months in their order and everything else with the dearest first, and ends
// the writing.
func (w *writer) close() error {
	list := slices.SortedFunc(maps.Values(w.sums), func(a, b *keySum) int {
		if w.by == "month" {
			return cmp.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(b.Spent.Add(b.Held), a.Spent.Add(a.Held)), cmp.Compare(a.Key, b.Key))
	})
	for _, sum := range list {
		var err error
		if w.format == "csv" {
			err = w.line(sum.Key, strconv.Itoa(sum.Payments), sum.Spent.String(), sum.Held.String(),
				strconv.Itoa(sum.Unvalued))
		} else {
			err = lineOf(w.out, sum)
		}
		if err != nil {
			return err
		}
	}
	w.csv.Flush()
	return w.csv.Error()
}

func lineOf(out io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", text)
	}
	return err
}

// line writes a line of CSV (RFC 4180). A field that a spreadsheet would take for a formula gets an
// apostrophe, which shows it as the text it is (OWASP, "CSV Injection"): the signs in their
// full-width forms too. None of our own numbers begins with one.
func (w *writer) line(fields ...string) error {
	for i, field := range fields {
		fields[i] = harmless(field)
	}
	return w.csv.Write(fields)
}

func harmless(field string) string {
	field = strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' || r == '\t' || r == 0 {
			return ' '
		}
		return r
	}, field)
	if first := strings.TrimLeftFunc(field, unicode.IsSpace); first != "" &&
		strings.ContainsRune("=+-@|%＝＋－＠", []rune(first)[0]) {
		return "'" + field
	}
	return field
}

// beancount writes an entry (https://beancount.github.io/docs/beancount_language_syntax.html).
func (w *writer) beancount(r entry) error {
	day, from, to := r.Time.UTC().Format(time.DateOnly), r.from(), r.to()
	var b strings.Builder
	for _, account := range []string{from, to} {
		if !w.open[account] {
			fmt.Fprintf(&b, "%s open %s\n", day, account)
			w.open[account] = true
		}
	}
	fmt.Fprintf(&b, "%s %s %s %s", day, r.flag(), quoted(r.Host), quoted(r.Method+" "+r.URL))
	if r.Project != "" {
		b.WriteString(" #" + word(r.Project))
	}
	fmt.Fprintf(&b, "\n  id: %s\n  status: %s\n", quoted(r.ID), quoted(r.status()))
	for _, of := range r.whose() {
		fmt.Fprintf(&b, "  %s: %s\n", of[0], quoted(of[1]))
	}
	if r.Transaction != "" {
		fmt.Fprintf(&b, "  transaction: %s\n", quoted(r.Transaction))
	}
	amount, commodity := r.money()
	fmt.Fprintf(&b, "  %s  %s %s\n  %s  -%s %s\n\n", to, amount, commodity, from, amount, commodity)
	_, err := io.WriteString(w.out, b.String())
	return err
}

// ledger writes an entry (https://ledger-cli.org/doc/ledger3.html#Journal-Format); hledger reads it
// too.
func (w *writer) ledger(r entry) error {
	amount, commodity := r.money()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (%s) %s\n", r.Time.UTC().Format(time.DateOnly), r.flag(), r.ID, plain(r.Host))
	fmt.Fprintf(&b, "    ; %s\n    ; status: %s\n", plain(r.Method+" "+r.URL), r.status())
	if r.Project != "" {
		fmt.Fprintf(&b, "    ; project: %s\n", word(r.Project))
	}
	for _, of := range r.whose() {
		fmt.Fprintf(&b, "    ; %s: %s\n", of[0], plain(of[1]))
	}
	if r.Transaction != "" {
		fmt.Fprintf(&b, "    ; transaction: %s\n", plain(r.Transaction))
	}
	fmt.Fprintf(&b, "    %s  %s %s\n    %s\n\n", r.to(), amount, commodity, r.from())
	_, err := io.WriteString(w.out, b.String())
	return err
}

// whose are the agent and its label, as far as there are any.
func (r entry) whose() (list [][2]string) {
	for _, of := range [][2]string{{"agent", r.Agent}, {"label", r.Label}} {
		if of[1] != "" {
			list = append(list, of)
		}
	}
	return list
}

func (r entry) flag() string {
	if r.sure() {
		return "*"
	}
	return "!"
}

func (r entry) status() string {
	if r.Proof != "" {
		return r.Status + " " + r.Proof
	}
	return r.Status
}

// money is whole tokens, or atomic units of a token that nobody knows.
func (r entry) money() (amount, commodity string) {
	commodity = strings.ToUpper(notCommodity().ReplaceAllString(r.Symbol, ""))
	if commodity == "" || commodity[0] < 'A' || commodity[0] > 'Z' {
		commodity = "TOKEN"
	}
	if r.Units == "" {
		return r.Amount.String(), "ATOMIC" + commodity[:min(len(commodity), 10)]
	}
	return r.Units, commodity[:min(len(commodity), 20)]
}

var (
	notCommodity = pattern.Lazy(`[^A-Za-z0-9]`)
	notWord      = pattern.Lazy(`[^A-Za-z0-9-]+`)
)

func word(text string) string {
	text = strings.Trim(notWord().ReplaceAllString(text, "-"), "-")
	if text == "" {
		return "none"
	}
	return text[:min(len(text), 60)]
}

// account is a word as beancount's accounts want it: its first letter large.
func account(text string) string {
	w := word(text)
	return strings.ToUpper(w[:1]) + w[1:]
}

// from and to are the accounts of an entry: the agent's money pays a seller, or comes from its owner.
func (r entry) from() string {
	if r.isTransfer {
		return "Equity:X402:Owner"
	}
	return r.assets()
}

func (r entry) to() string {
	if r.isTransfer {
		return r.assets()
	}
	return "Expenses:X402:" + account(r.Host)
}

func (r entry) assets() string { return "Assets:X402:" + account(x402.NetworkName(r.Network)) }

// quoted is a beancount string: one line, with its quotes escaped.
func quoted(text string) string { return `"` + escapeQuotes.Replace(plain(text)) + `"` }

var escapeQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// plain is a text in one line without control characters; a semicolon would begin a comment in
// ledger's payee.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), ";", ",")
}
