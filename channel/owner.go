package channel

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What the owner's commands show and do.

// Status is one channel, as `channel list` and `channel show` print it. Amounts are units of RGas.
type Status struct {
	Server    string          `json:"server"`
	Service   string          `json:"serviceDid"`
	Key       string          `json:"key,omitempty"`
	Network   string          `json:"network"`
	Channel   string          `json:"channelId"`
	State     string          `json:"state"` // unopened | active | closing | closed | unknown
	Epoch     uint64          `json:"epoch"`
	Nonce     uint64          `json:"nonce"`
	Promised  money.Amount    `json:"promised"`
	Claimed   money.Amount    `json:"claimed"`
	Hub       *money.Amount   `json:"hub,omitempty"`
	Delivered bool            `json:"delivered"` // the service has the last promise
	UnderWay  json.RawMessage `json:"underWay,omitempty"`
	Refused   json.RawMessage `json:"refused,omitempty"`
	Updated   *time.Time      `json:"updated,omitempty"`
	Problem   string          `json:"problem,omitempty"`
}

// List is every channel that the ledger knows.
type List struct {
	DID       string   `json:"did"`
	PublicKey string   `json:"publicKey"` // Ed25519VerificationKey2020, for the DID document
	Servers   []string `json:"servers"`
	Channels  []Status `json:"channels"`
}

// List asks nobody.
func (m *Manager) List(ctx context.Context) (List, error) {
	out := List{DID: m.DID, PublicKey: m.Keys.Public(), Servers: append([]string{}, m.names()...),
		Channels: []Status{}}
	rows, err := m.Store.Channels(ctx)
	for _, row := range rows {
		out.Channels = append(out.Channels, status(row))
	}
	return out, err
}

func status(row history.Channel) Status {
	s := Status{Server: row.Server, Service: row.Service, Key: row.Key, Network: row.Network, Channel: row.ID,
		State: "unknown", Epoch: row.Epoch,
		Nonce: row.Nonce, Promised: row.Amount, Claimed: row.Claimed, Delivered: row.Known ||
			row.Signed == nil, UnderWay: row.Call, Refused: row.Refused}
	if !row.Updated.IsZero() {
		s.Updated = &row.Updated
	}
	return s
}

// Show asks the service who it is, and the chain what became of the channel.
func (m *Manager) Show(ctx context.Context, server string) (s Status, err error) {
	err = m.with(ctx, server, func(p *place) error {
		s = Status{Server: server, Service: p.payee.DID(), Key: p.keyID(), Network: p.network,
			Channel: ChannelID(p.payer, p.payee).String(), State: "unopened", Delivered: true}
		r, err := m.ready(ctx, p)
		if errors.Is(err, errUnopened) {
			return nil
		}
		var over notActive
		if errors.As(err, &over) { // what was promised in it is in the ledger
			if row, err := m.Store.Channel(ctx, s.Service, s.Key); err == nil {
				s = status(row)
			}
			s.State = string(over)
			return nil
		}
		if err != nil {
			return err
		}
		s = status(r.row)
		s.State, s.Hub = "active", &r.hub
		return nil
	})
	return s, err
}

// Open opens the channel to a service, with a deposit into the owner's hub first where one is
// wanted. A channel that is open and wants no deposit is left alone. APPROVAL_REQUIRED names the
// question that the owner has to say yes to.
func (m *Manager) Open(ctx context.Context, server string, deposit money.Dollars) (Status, error) {
	err := m.with(ctx, server, func(p *place) error {
		if err := m.Guard.CheckConfig(ctx); err != nil {
			return err
		}
		_, err := m.ready(ctx, p)
		if err == nil && deposit == 0 || err != nil && !errors.Is(err, errUnopened) {
			return err
		}
		return m.open(ctx, p, asset(p.network).Units(deposit))
	})
	if err != nil {
		return Status{}, err
	}
	return m.Show(ctx, server)
}

// Recover asks a service what it knows of the channel, and adopts the proposal that it waits for,
// through the same guards and budgets as one that comes with a call.
func (m *Manager) Recover(ctx context.Context, server string) (Status, error) {
	err := m.with(ctx, server, func(p *place) error {
		if err := m.Guard.CheckConfig(ctx); err != nil {
			return err
		}
		r, err := m.ready(ctx, p)
		if errors.Is(err, errUnopened) {
			return noChannel(server)
		}
		if err != nil {
			return err
		}
		found, err := m.own(p).Recover(ctx, m.authorize(p))
		if err != nil {
			return err
		}
		if found.Channel != nil && found.Channel.ChannelID != r.row.ID {
			return x402.Errorf(x402.InvalidRequirement, "the service knows another channel: %s",
				x402.Quote(found.Channel.ChannelID))
		}
		if found.Pending == nil {
			return nil
		}
		c := &call{m: m, r: r, charge: m.charge(r, m.opening(server))}
		if before := new(underWay); r.row.Call != nil && json.Unmarshal(r.row.Call, before) == nil {
			c.before = before
		}
		return c.settle(ctx, &responsePayload{SubRAV: found.Pending})
	})
	if err != nil {
		return Status{}, err
	}
	return m.Show(ctx, server)
}

func noChannel(server string) error {
	return x402.Errorf(x402.PaymentRejected, "there is no channel to %s that this wallet's key is in",
		x402.Quote(server)).WithHint("x402-wallet channel open %s opens it", server)
}

// opening is the request that stands in the ledger for a call of which nothing is known any more.
func (m *Manager) opening(server string) (q pay.Request) {
	q.Method, q.URL, q.Body = "CHANNEL/RECOVER", m.Servers[server].Endpoint, []byte("{}")
	return q
}

// Committed is what became of a commit.
type Committed struct {
	Server    string `json:"server"`
	Nonce     uint64 `json:"nonce"`
	Committed bool   `json:"committed"`
	Note      string `json:"note,omitempty"`
}

// Commit gives the service the last promise, without a call. Committed is only what the service
// says it has, or shows.
func (m *Manager) Commit(ctx context.Context, server string) (out Committed, err error) {
	err = m.with(ctx, server, func(p *place) error {
		r, err := m.ready(ctx, p)
		if errors.Is(err, errUnopened) {
			return noChannel(server)
		}
		if err != nil {
			return err
		}
		out = Committed{Server: server, Nonce: r.row.Nonce}
		if r.row.Signed == nil || r.row.Known {
			out.Committed, out.Note = true, "nothing is outstanding: the service has every promise"
			return nil
		}
		if err := m.Guard.VerifySeals(ctx); err != nil {
			return err
		}
		if err := m.Guard.Checkpoint(ctx); err != nil {
			return err
		}
		var signed Signed
		if err := json.Unmarshal(r.row.Signed, &signed); err != nil {
			return err
		}
		if out.Committed, err = m.own(p).Commit(ctx, m.authorize(p), signed); err != nil {
			return err
		}
		if !out.Committed {
			out.Note = "the service did not commit it; the promise stays here and goes with the next call"
			return nil
		}
		r.row.Known = true
		return m.Store.SaveChannel(ctx, r.row)
	})
	return out, err
}

// with runs f on a discovered service, with its channel's turn.
func (m *Manager) with(ctx context.Context, server string, f func(p *place) error) error {
	if _, known := m.Servers[server]; !known {
		hint := "these speak payment channels: " + strings.Join(m.names(), ", ")
		if len(m.Servers) == 0 {
			hint = "config.toml has none: add [servers.NAME] with its url and channel = true"
		}
		return x402.Errorf(x402.InvalidArgument, "no service of config.toml is called %s",
			x402.Quote(server)).WithHint("%s", hint)
	}
	ctx, cancel := context.WithTimeout(ctx, m.Engine.Policy.Deadline)
	defer cancel()
	p, err := m.place(ctx, server)
	if err != nil {
		return err
	}
	give, err := m.turn(ctx, p)
	if err != nil {
		return err
	}
	defer give()
	return f(p)
}

func cutKey(keyID string) (did, fragment string, ok bool) { return strings.Cut(keyID, "#") }
