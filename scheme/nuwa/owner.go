package nuwa

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

// Report is one channel, as `channel list` and `channel show` print it. Amounts are units of RGas; the prices
// are the same in dollars.
type Report struct {
	Server    string          `json:"server"`
	Service   string          `json:"serviceDid"`
	Key       string          `json:"key,omitempty"`
	Network   string          `json:"network"`
	Channel   string          `json:"channelId"`
	State     string          `json:"state"` // unopened | active | closing | closed | unknown
	Epoch     uint64          `json:"epoch"`
	Nonce     uint64          `json:"nonce"`
	Signed    money.Amount    `json:"promised"` // signed for, in all
	Claimed   money.Amount    `json:"claimed"`
	Hub       *money.Amount   `json:"hub,omitempty"`
	Prices    Prices          `json:"prices"`
	Delivered bool            `json:"delivered"` // the service has the last SubRAV
	UnderWay  json.RawMessage `json:"underWay,omitempty"`
	Refused   json.RawMessage `json:"refused,omitempty"`
	Updated   *time.Time      `json:"updated,omitempty"`
}

// Prices are a channel's amounts in dollars.
type Prices struct {
	Signed  string `json:"promised"`
	Claimed string `json:"claimed"`
	Hub     string `json:"hub,omitempty"`
}

// List is every channel that the ledger knows.
type List struct {
	DID       string   `json:"did"`
	PublicKey string   `json:"publicKey"` // Ed25519VerificationKey2020, for the DID document
	Servers   []string `json:"servers"`
	Channels  []Report `json:"channels"`
}

// List asks nobody.
func (m *Manager) List(ctx context.Context) (List, error) {
	out := List{DID: m.DID, PublicKey: m.Keys.Public(), Servers: append([]string{}, m.names()...),
		Channels: []Report{}}
	rows, err := m.Store.Channels(ctx)
	for _, row := range rows {
		out.Channels = append(out.Channels, report(row))
	}
	return out, err
}

func report(row history.Channel) Report {
	r := Report{
		Server: row.Server, Service: row.Service, Key: row.Key, Network: row.Network, Channel: row.ID,
		State: "unknown", Epoch: row.Epoch, Nonce: row.Nonce, Signed: row.Amount, Claimed: row.Claimed,
		Delivered: row.Delivered || row.Signed == nil, UnderWay: row.PendingCall, Refused: row.Refused,
		Prices: Prices{Signed: dollars(row.Amount), Claimed: dollars(row.Claimed)},
	}
	if !row.Updated.IsZero() {
		r.Updated = &row.Updated
	}
	return r
}

// Show asks the service who it is, and the chain what became of the channel.
func (m *Manager) Show(ctx context.Context, server string) (out Report, err error) {
	err = m.with(ctx, server, func(s *service) error {
		out = Report{
			Server: server, Service: s.payee.did(), Key: s.keyID(), Network: s.node.Network,
			Channel: s.channelID().String(), State: "unopened", Delivered: true,
			Prices: Prices{Signed: dollars(money.Amount{}), Claimed: dollars(money.Amount{})},
		}
		r, err := m.ready(ctx, s)
		if errors.Is(err, errUnopened) {
			return nil
		}
		if over, ok := errors.AsType[notActive](err); ok { // what was signed for in it is in the ledger
			if row, err := m.Store.Channel(ctx, out.Service, out.Key); err == nil {
				out = report(row)
			}
			out.State = string(over)
			return nil
		}
		if err != nil {
			return err
		}
		out = report(r.row)
		out.State, out.Hub, out.Prices.Hub = stateActive, &r.hub, dollars(r.hub)
		return nil
	})
	return out, err
}

// Open opens the channel to a service, with a deposit into the owner's hub first where one is
// wanted. A channel that is open and wants no deposit is left as it is. APPROVAL_REQUIRED names the
// question that the owner has to approve.
func (m *Manager) Open(ctx context.Context, server string, deposit money.Dollars) (Report, error) {
	return m.change(ctx, server, func(s *service) error {
		_, err := m.ready(ctx, s)
		if err != nil && !errors.Is(err, errUnopened) {
			return err
		}
		if err == nil && deposit == 0 {
			return nil
		}
		return m.open(ctx, s, assetRGas(s.node.Network).Units(deposit))
	})
}

// Recover asks a service what it knows of the channel, and adopts the proposal that it waits for,
// through the same guards and budgets as one that comes with a call.
func (m *Manager) Recover(ctx context.Context, server string) (Report, error) {
	return m.change(ctx, server, func(s *service) error {
		r, err := m.readyOpened(ctx, s)
		if err != nil {
			return err
		}
		var found recovery
		if err := m.ownAdapter(s).own(ctx, m.tokens(s), recoveryQuestion(nil), &found); err != nil {
			return err
		}
		if found.Channel != nil && found.Channel.ChannelID != r.row.ID {
			return x402.Errorf(x402.InvalidRequirement,
				"the service knows another channel: %s", x402.Quote(found.Channel.ChannelID))
		}
		if found.Pending == nil {
			return nil
		}
		var q pay.Request // it stands in the ledger for a call of which nothing is known any more
		q.Method, q.URL, q.Body = "CHANNEL/RECOVER", m.Servers[server].Endpoint, []byte("{}")
		charge, err := m.Engine.NewCharge(ctx, q)
		if err != nil {
			return err
		}
		c := &call{m: m, r: r, charge: m.charge(r, charge), before: readPending(r.row)}
		return c.payEarlier(ctx, &responsePayload{SubRAV: found.Pending})
	})
}

// change runs f like with, under the sealed config, and shows the channel after it.
func (m *Manager) change(ctx context.Context, server string, f func(s *service) error) (Report, error) {
	err := m.with(ctx, server, func(s *service) error {
		if err := m.Guard.CheckConfig(ctx); err != nil {
			return err
		}
		return f(s)
	})
	if err != nil {
		return Report{}, err
	}
	return m.Show(ctx, server)
}

// readyOpened is ready, for what needs an open channel and does not open one.
func (m *Manager) readyOpened(ctx context.Context, s *service) (*readyChannel, error) {
	r, err := m.ready(ctx, s)
	if errors.Is(err, errUnopened) {
		return nil, x402.Errorf(x402.PaymentRejected,
			"there is no channel to %s that this wallet's key is in", x402.Quote(s.server)).
			WithHint("x402-wallet channel open %s opens it", s.server)
	}
	return r, err
}

// Committed is what became of a commit.
type Committed struct {
	Server    string `json:"server"`
	Nonce     uint64 `json:"nonce"`
	Committed bool   `json:"committed"`
	Note      string `json:"note,omitempty"`
}

// Commit gives the service the last SubRAV, without a call. Committed is only what the service says
// it has, or shows.
func (m *Manager) Commit(ctx context.Context, server string) (out Committed, err error) {
	err = m.with(ctx, server, func(s *service) error {
		r, err := m.readyOpened(ctx, s)
		if err != nil {
			return err
		}
		out = Committed{Server: server, Nonce: r.row.Nonce}
		if r.row.Signed == nil || r.row.Delivered {
			out.Committed, out.Note = true, "nothing is outstanding: the service has every voucher"
			return nil
		}
		if err := m.Guard.VerifySeals(ctx); err != nil {
			return err
		}
		if err := m.Guard.Checkpoint(ctx); err != nil {
			return err
		}
		var signed signedSubRAV
		if err := json.Unmarshal(r.row.Signed, &signed); err != nil {
			return err
		}
		out.Committed, err = commit(ctx, m.ownAdapter(s), m.tokens(s), signed)
		if err == nil && !out.Committed {
			out.Note = "the service did not commit it; the voucher stays here and goes with the next call"
		}
		if err != nil || !out.Committed {
			return err
		}
		r.row.Delivered = true
		return m.Store.SaveChannel(ctx, r.row)
	})
	return out, err
}

// with runs f on a discovered service, holding the lock of its channel: no other call, of any
// process of the wallet, is made on it.
func (m *Manager) with(ctx context.Context, server string, f func(s *service) error) error {
	if _, known := m.Servers[server]; !known {
		hint := "these speak payment channels: " + strings.Join(m.names(), ", ")
		if len(m.Servers) == 0 {
			hint = "config.toml has none: add [servers.NAME] with its url and channel = true"
		}
		return x402.Errorf(x402.InvalidArgument,
			"no service of config.toml is called %s", x402.Quote(server)).WithHint("%s", hint)
	}
	ctx, cancel := context.WithTimeout(ctx, m.Engine.Policy.Deadline)
	defer cancel()
	s, err := m.service(ctx, server)
	if err != nil {
		return err
	}
	unlock, err := m.Store.LockChannel(ctx, s.payee.did(), s.keyID())
	if err != nil && ctx.Err() != nil {
		return x402.Errorf(x402.Timeout, "other calls on this channel took too long").
			WithHint("calls on one channel are made one after the other; try again")
	}
	if err != nil {
		return err
	}
	defer unlock()
	return f(s)
}
