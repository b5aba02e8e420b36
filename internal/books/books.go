// Package books writes what was paid for a person's accounts: CSV, JSON lines, beancount and
// ledger, payment by payment or summed up.
//
// What must stay true: a stranger's text (URLs, hosts) can neither become a formula of a
// spreadsheet nor another entry of the books.
package books

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// entry is one payment as books have it.
type entry struct {
	Time        time.Time     `json:"time"`
	ID          string        `json:"id"`
	Status      string        `json:"status"` // a state of the ledger's, or "imported"
	Proof       string        `json:"proof,omitempty"`
	Method      string        `json:"method"`
	URL         string        `json:"url"`
	Host        string        `json:"host"`
	Tool        string        `json:"tool"` // of a paid MCP server; a URL that was paid for is x402_pay's
	Project     string        `json:"project,omitempty"`
	Session     string        `json:"session,omitempty"`
	Network     string        `json:"network"`
	Asset       string        `json:"asset"`
	Symbol      string        `json:"symbol"`
	Amount      money.Amount  `json:"amount"`             // atomic units
	Units       string        `json:"units,omitempty"`    // whole tokens; "" where the token is not known
	Dollars     money.Dollars `json:"usd"`                // what it was worth when it was paid
	Unvalued    bool          `json:"unvalued,omitempty"` // nobody knows what the token is worth
	PayTo       string        `json:"payTo"`
	Transaction string        `json:"transaction,omitempty"`
	Facilitator string        `json:"facilitator,omitempty"`
}

// statusImported is the status of what another wallet wrote down; nothing proves it.
const statusImported = "imported"

// Counts says whether money moved, as far as is known, or may still move.
func (r entry) Counts() bool { return r.Status != string(history.Failed) }

// Sure says that it moved.
func (r entry) Sure() bool { return r.Status == string(history.Settled) || r.Status == statusImported }

// entryOf is a payment of the ledger; project is its session's label.
func entryOf(p history.Payment, project string, assets *x402.Registry) entry {
	r := entry{
		Time: p.Created, ID: p.ID, Status: string(p.State), Proof: string(p.Proof), Method: p.Method,
		URL: p.URL, Host: p.Host, Tool: "x402_pay", Project: project,
		Session: p.Session, Network: p.Network, Asset: p.Asset, Symbol: p.Symbol, Amount: p.Amount,
		Dollars: p.Price, PayTo: p.PayTo,
		Transaction: p.Transaction, Facilitator: p.Facilitator,
	}
	if _, name, ok := strings.Cut(p.URL, "#"); ok && strings.Contains(p.Method, "/") {
		// an MCP method: history.Payment.Resource
		if tool, err := url.PathUnescape(name); err == nil {
			r.Tool = tool
		}
	}
	if asset, ok := assets.Asset(p.Network, p.Asset); ok {
		r.Asset, r.Units = asset.Address, p.Amount.Units(asset.Decimals)
	}
	return r
}

// entryOfImported is a payment of another wallet.
func entryOfImported(i history.Imported, assets *x402.Registry) entry {
	r := entry{
		Time: i.At, ID: i.ID(), Status: statusImported, Method: i.Method, URL: i.URL, Tool: "x402_pay",
		Network: i.Network, Asset: i.Asset, Amount: i.Amount,
		PayTo: i.PayTo, Transaction: i.Transaction, Facilitator: i.Facilitator, Unvalued: true,
		Symbol: "TOKEN",
	}
	if u, err := url.Parse(i.URL); err == nil {
		r.Host = u.Host
	}
	if asset, ok := assets.Asset(i.Network, i.Asset); ok {
		r.Asset, r.Symbol, r.Units, r.Dollars, r.Unvalued = asset.Address, asset.Symbol,
			i.Amount.Units(asset.Decimals), asset.Dollars(i.Amount), false
	}
	return r
}

// Keys are what payments can be summed up by.
var Keys = []string{"host", "tool", "project", "month"}

func (r entry) key(by string) string {
	switch by {
	case "host":
		return r.Host
	case "tool":
		return r.Tool
	case "project":
		return cmp.Or(r.Project, "(none)")
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

// keySums adds rows up.
type keySums struct {
	By  string
	all map[string]*keySum
}

// Add counts a row; what failed counts nothing.
func (s *keySums) Add(r entry) {
	if !r.Counts() {
		return
	}
	if s.all == nil {
		s.all = map[string]*keySum{}
	}
	key := r.key(s.By)
	sum := s.all[key]
	if sum == nil {
		sum = &keySum{Key: key}
		s.all[key] = sum
	}
	sum.Payments++
	switch {
	case r.Unvalued:
		sum.Unvalued++
	case r.Sure():
		sum.Spent = sum.Spent.Add(r.Dollars)
	default:
		sum.Held = sum.Held.Add(r.Dollars)
	}
}

// List is the sums: months in their order, everything else with the dearest first.
func (s *keySums) List() []keySum {
	list := []keySum{}
	for _, sum := range s.all {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b keySum) int {
		if s.By == "month" {
			return cmp.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(b.Spent.Add(b.Held), a.Spent.Add(a.Held)), cmp.Compare(a.Key, b.Key))
	})
	return list
}
