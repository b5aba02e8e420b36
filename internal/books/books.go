// Package books writes what was paid for a person's accounts: CSV, JSON lines, beancount and
// ledger, payment by payment or summed up.
//
// What must stay true: a stranger's text (URLs, hosts) can neither become a formula of a
// spreadsheet nor another entry of the books.
package books

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Export is which payments are written, and how.
type Export struct {
	Format string // one of Formats
	By     string // one of Keys: sums instead of payments; "": payments
	Label  string // only of sessions, or of agents, with this one
	Within report.Range
	// AgentLabels are the agents' labels, by their names.
	AgentLabels map[string]string
	// TeamOf is the team that an agent is in, by the owner's rules as they are now; nil: there are no teams.
	TeamOf func(agent string) string
}

// Write writes what was imported first, because it is from before this wallet, and then what the
// ledger has, oldest first.
func (e Export) Write(ctx context.Context, out io.Writer, store *history.Store, assets *x402.Registry) error {
	labels, err := report.Labels(ctx, store)
	if err != nil {
		return err
	}
	imported, err := report.AllImported(ctx, store)
	if err != nil {
		return err
	}
	slices.SortStableFunc(imported, func(a, b report.Imported) int { return a.At.Compare(b.At) })
	buffered := bufio.NewWriterSize(out, 64<<10)
	w, err := newWriter(buffered, e.Format, e.By)
	if err != nil {
		return err
	}
	for _, i := range imported {
		if row := entryOfImported(i, assets); e.wants(row) {
			if err := w.write(row); err != nil {
				return err
			}
		}
	}
	err = report.Each(ctx, store, e.Within, func(p history.Payment) error {
		label := e.AgentLabels[p.Agent]
		if e.Label != "" && labels[p.Session] != e.Label && label != e.Label {
			return nil
		}
		if p.IsSignIn() && (e.By != "" || (e.Format != "csv" && e.Format != "jsonl")) {
			return nil // it moved nothing, in no token: no entry in accounts, and in no sum
		}
		row := entryOf(p, labels[p.Session], assets)
		row.Label = label
		if e.TeamOf != nil {
			row.team = e.TeamOf(p.Agent)
		}
		return w.write(row)
	})
	if err != nil {
		return err
	}
	return errors.Join(w.close(), buffered.Flush())
}

// wants is the range, for what the ledger does not select: an imported payment has no session, no agent and
// no state of the ledger's.
func (e Export) wants(r entry) bool {
	w := e.Within
	return e.Label == "" && w.Session == "" && w.Agents == nil && w.State == "" && !r.Time.Before(w.After) &&
		(w.Until.IsZero() || r.Time.Before(w.Until)) &&
		(w.Host == "" || r.Host == w.Host) && strings.Contains(strings.ToLower(r.URL), strings.ToLower(w.URL))
}

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
	Agent       string        `json:"agent,omitempty"` // of those that share the wallet
	Label       string        `json:"label,omitempty"` // of that agent
	team        string        // of that agent, as the rules have it now

	// what it spends was deposited before, and is in the books as the deposit
	Prepaid bool `json:"prepaid,omitempty"`

	isTransfer bool // from the owner's account to the agent's: nothing was bought
}

// statusImported is the status of what another wallet wrote down; nothing proves it.
const statusImported = "imported"

// counts says whether money moved, as far as is known, or may still move.
func (r entry) counts() bool { return r.Status != string(history.Failed) }

// sure says that it moved.
func (r entry) sure() bool { return r.Status == string(history.Settled) || r.Status == statusImported }

// entryOf is a payment of the ledger; project is its session's label.
func entryOf(p history.Payment, project string, assets *x402.Registry) entry {
	r := entry{Time: p.Created, ID: p.ID, Status: string(p.State), Proof: string(p.Proof),
		Method: p.Method, URL: p.URL, Host: p.Host, Tool: "x402_pay", Project: project, Session: p.Session,
		Network: p.Network, Asset: p.Asset, Symbol: p.Symbol, Amount: p.Paid(), Dollars: p.Worth(),
		PayTo: p.PayTo, Transaction: p.Transaction, Facilitator: p.Facilitator, Agent: p.Agent}
	if p.IsSignIn() {
		r.Tool = x402.SignInScheme
	}
	if _, name, ok := strings.Cut(p.URL, "#"); ok && strings.Contains(p.Method, "/") {
		// an MCP method: history.Payment.Resource
		if tool, err := url.PathUnescape(name); err == nil {
			r.Tool = tool
		}
	}
	if asset, ok := assets.Asset(p.Network, p.Asset); ok {
		r.Asset, r.Units = asset.Address, p.Paid().Units(asset.Decimals)
	}
	r.Prepaid = p.Prepaid()
	if p.IsPull() {
		r.Tool, r.isTransfer = "", true
	}
	return r
}

// entryOfImported is a payment of another wallet.
func entryOfImported(i report.Imported, assets *x402.Registry) entry {
	r := entry{Time: i.At, ID: i.ID(), Status: statusImported, Method: i.Method, URL: i.URL,
		Tool: "x402_pay", Network: i.Network, Asset: i.Asset, Symbol: "TOKEN", Amount: i.Amount,
		Unvalued: true, PayTo: i.PayTo, Transaction: i.Transaction, Facilitator: i.Facilitator}
	if u, err := url.Parse(i.URL); err == nil {
		r.Host = u.Host
	}
	if asset, ok := assets.Asset(i.Network, i.Asset); ok {
		r.Asset, r.Symbol, r.Units = asset.Address, asset.Symbol, i.Amount.Units(asset.Decimals)
		if asset.Rated() {
			r.Dollars, r.Unvalued = asset.Dollars(i.Amount), false
		}
	}
	return r
}

// ReadOzskr reads .x402-history.json of @ozskr/x402-solana-mcp: an array of payments. A file with anything
// in it that is none is refused as a whole.
func ReadOzskr(text []byte) ([]report.Imported, error) {
	var list []struct {
		Timestamp, Signature, URL, Amount, Asset, PayTo, Network, Facilitator, Method string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, errors.New("it is not the array of payments that x402-solana-mcp writes")
	}
	out := make([]report.Imported, 0, len(list))
	for n, p := range list {
		at, err := time.Parse(time.RFC3339, p.Timestamp)
		if err != nil {
			return nil, fmt.Errorf("payment %d has no time", n+1)
		}
		amount, err := money.ParseAmount(p.Amount)
		if err != nil {
			return nil, fmt.Errorf("payment %d has no amount in atomic units", n+1)
		}
		network, ok := x402.Network(p.Network)
		if !ok {
			return nil, fmt.Errorf("payment %d names a network that is not known", n+1)
		}
		if p.URL == "" || len(p.URL) > 8192 || p.Signature == "" || len(p.Signature) > 200 {
			return nil, fmt.Errorf("payment %d has no URL or no signature", n+1)
		}
		out = append(out, report.Imported{At: at.UTC(), Transaction: p.Signature, Method: p.Method,
			URL: p.URL, Network: network, Asset: p.Asset, Amount: amount, PayTo: p.PayTo,
			Facilitator: p.Facilitator})
	}
	return out, nil
}
