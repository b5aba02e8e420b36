package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Channel is what the wallet signed in one payment channel, by one of its keys.
type Channel struct {
	Service, Key string // who is paid, and who signs: a DID, and one with a fragment
	Server       string // where it was met: a name in config.toml, or an origin
	Network      string
	Source       string // whose hub is drawn on
	ID           string // on the chain
	Epoch        uint64
	Nonce        uint64          // of the last voucher
	Amount       money.Amount    // signed for in all, in atomic units of RGas
	Claimed      money.Amount    // taken of that, as it was last seen on the chain
	Signed       json.RawMessage // the last voucher, with its signature
	Delivered    bool            // the service has it; else it goes with the next call
	PendingCall  json.RawMessage // the call under way; nil: none is
	Refused      json.RawMessage // the last proposal that was refused, and why
	Updated      time.Time
}

// errVoucherConflict says that another voucher stands where this one would.
var errVoucherConflict = errors.New(
	"more than that, or something else under that nonce, was signed in this channel already")

const selectChannel = `SELECT service, key, server, network, source, channel, epoch, nonce, amount, claimed,
	coalesce(signed, ''), known, coalesce(call, ''), coalesce(refused, ''), updated_at FROM channels`

func scanChannel(row sqldb.Row) (c Channel, err error) {
	var epoch, nonce, signed, call, refused string
	var updated int64
	err = row.Scan(&c.Service, &c.Key, &c.Server, &c.Network, &c.Source, &c.ID, &epoch, &nonce, &c.Amount,
		&c.Claimed, &signed, &c.Delivered, &call, &refused, &updated)
	if err != nil {
		return c, err
	}
	c.Signed, c.PendingCall, c.Refused = raw(signed), raw(call), raw(refused)
	c.Updated = sqldb.FromMicros(updated)
	c.Epoch, err = strconv.ParseUint(epoch, 10, 64)
	if err == nil {
		c.Nonce, err = strconv.ParseUint(nonce, 10, 64)
	}
	return c, err
}

// Channel returns one channel, or ErrNotFound.
func (s *Store) Channel(ctx context.Context, service, key string) (Channel, error) {
	return read(ctx, s, func(t *tx) (Channel, error) {
		c, err := scanChannel(t.Row(selectChannel+` WHERE service = ? AND key = ?`, service, key))
		return c, sqldb.Otherwise(err, errNoChannel)
	})
}

// Channels returns all of those whose services are paid later (Nuwa, on Rooch).
func (s *Store) Channels(ctx context.Context) ([]Channel, error) {
	return s.channels(ctx, `NOT LIKE 'eip155:%'`)
}

// BatchChannels returns all of those with a deposit (batch-settlement, on EVM).
func (s *Store) BatchChannels(ctx context.Context) ([]Channel, error) {
	return s.channels(ctx, `LIKE 'eip155:%'`)
}

// BatchChannelsWith returns those of them that were met at a host.
func (s *Store) BatchChannelsWith(ctx context.Context, host string) ([]Channel, error) {
	return s.channels(ctx, `LIKE 'eip155:%' AND server = ?`, host)
}

func (s *Store) channels(ctx context.Context, where string, args ...any) ([]Channel, error) {
	return readOnce(ctx, s, func(t *tx) ([]Channel, error) {
		return sqldb.Collect(t.Tx, scanChannel, selectChannel+` WHERE network `+where+` ORDER BY service, key`,
			args...)
	})
}

// SaveChannel records what is known of a channel, durably. It adds no voucher: nonce and
// amount stay as they are but in a new epoch, in which both start from zero.
func (s *Store) SaveChannel(ctx context.Context, c Channel) error {
	return s.tx(ctx, func(t *tx) error {
		old, err := t.channel(c)
		if err != nil {
			return err
		}
		if old.ID != "" && old.Epoch == c.Epoch && (old.Nonce != c.Nonce || old.Amount != c.Amount ||
			string(old.Signed) != string(c.Signed)) {
			return fmt.Errorf("save a channel: %w", errVoucherConflict)
		}
		return t.putChannel(c)
	})
}

// Refuse keeps a proposal that was refused, as evidence, also in the audit chain.
func (s *Store) Refuse(ctx context.Context, c Channel) error {
	return s.tx(ctx, func(t *tx) error {
		known, err := t.channel(c)
		if err != nil {
			return err
		}
		if known.Service != "" {
			known.Refused = c.Refused
			if err := t.putChannel(known); err != nil {
				return err
			}
		}
		return t.audit(0, "proposal refused",
			map[string]any{"service": c.Service, "channel": c.ID, "proposal": c.Refused})
	})
}

// RecordVoucher puts a signed voucher on disk: only when it returns nil may a byte of it leave. It
// takes the channel one nonce further, with the payment it is for, which is submitted and, as its
// seller named its price and served it, settled by claim; o is that outcome. The zero p is a voucher
// that costs nothing more. Two vouchers under one nonce are errVoucherConflict: the second is never
// kept, because the nonce is the payment's unique key and the channel's row only goes forward.
//
// k seals it, as a signature or, where it costs nothing, as a voucher: the channel has to be where
// the last one left it.
func (s *Store) RecordVoucher(ctx context.Context, p Payment, signed Signed, c Channel, o Outcome,
	k Keyholder) (recorded Payment, err error) {
	if err := s.InPlace(); err != nil {
		return p, err
	}
	signed.Channel = &c
	err = s.tx(ctx, func(t *tx) error {
		if p.ID == "" {
			return t.signVoucher(signed, k)
		}
		if err := t.submit(p, s.Self(), signed, k); err != nil {
			return err
		}
		if o.State == Failed {
			return ErrUnsealed
		}
		recorded, err = t.outcome(p.ID, o)
		return err
	})
	return recorded, err
}

// signVoucher records a voucher that costs nothing more.
func (t *tx) signVoucher(signed Signed, k Keyholder) error {
	step, err := t.channelStep(signed.Channel)
	if err != nil {
		return err
	}
	last, err := t.lastSealed(k, nil)
	if err == nil {
		err = step.follows(last.memory.Get)
	}
	v := step.To.voucher()
	if err == nil {
		e := v.Entry()
		err = last.memory.Put(e.Key, e.Value)
	}
	if err != nil {
		return err
	}
	err = t.seal(k, last, 0, audit.VoucherEvent, map[string]any{"voucher": v,
		"sha256": audit.Digest(signed.Payload)})
	if err != nil {
		return err
	}
	return t.putChannel(step.To)
}

// newStep refuses a voucher that does not go on from what a channel is: it only goes forward.
func newStep(from, to Channel) (*Step, error) {
	goesOn := to.Nonce > from.Nonce && to.Amount.Cmp(from.Amount) >= 0
	if to.Epoch < from.Epoch || (to.Epoch == from.Epoch && !goesOn) {
		return nil, errVoucherConflict
	}
	return &Step{From: from, To: to}, nil
}

// channelStep is the step to a channel, or nil if the payment goes through none.
func (t *tx) channelStep(to *Channel) (*Step, error) {
	if to == nil {
		return nil, nil
	}
	old, err := t.channel(*to)
	if err != nil {
		return nil, err
	}
	return newStep(old, *to)
}

func (c Channel) voucher() *seals.Voucher {
	return &seals.Voucher{Service: c.Service, Key: c.Key, Position: string(c.position())}
}

// position is how far a channel has come, as the memory has it.
func (c Channel) position() []byte {
	return []byte(audit.JSON(map[string]any{"network": c.Network, "channel": c.ID, "epoch": c.Epoch,
		"nonce": c.Nonce, "amount": c.Amount}))
}

// follows refuses a step from a row that is not where the last sealed voucher left the channel: what is
// signed next adds to its amount. In a new epoch it begins from zero.
func (s *Step) follows(get func(key []byte) ([]byte, error)) error {
	position, err := get(seals.ChannelKey(s.To.Service, s.To.Key))
	if err != nil || position == nil {
		return err
	}
	s.IsKnown = true
	var left struct {
		Channel string `json:"channel"`
		Epoch   uint64 `json:"epoch"`
	}
	if json.Unmarshal(position, &left) != nil {
		return memory.Forgotten()
	}
	from := s.From
	fromZero := from.Nonce == 0 && from.Amount.IsZero()
	isNew := from.Epoch > left.Epoch || from.ID != left.Channel
	if string(from.position()) == string(position) || (isNew && fromZero) {
		return nil
	}
	return audit.Corrupt("the channel to %s is not where the last voucher left it", from.Service)
}

// channel is the row as it stands; the zero one where there is none.
func (t *tx) channel(c Channel) (Channel, error) {
	old, err := sqldb.Find(t.Tx, scanChannel, selectChannel+` WHERE service = ? AND key = ?`, c.Service, c.Key)
	if old == nil {
		return Channel{Epoch: c.Epoch}, err
	}
	return *old, err
}

func (t *tx) putChannel(c Channel) error {
	_, err := t.Exec(
		`INSERT INTO channels VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (service, key) DO UPDATE SET
		server = excluded.server, network = excluded.network, source = excluded.source,
		channel = excluded.channel, epoch = excluded.epoch, nonce = excluded.nonce, amount = excluded.amount,
		claimed = excluded.claimed, signed = excluded.signed, known = excluded.known, call = excluded.call,
		refused = excluded.refused, updated_at = excluded.updated_at`,
		c.Service, c.Key, c.Server, c.Network, c.Source, c.ID, strconv.FormatUint(c.Epoch, 10),
		strconv.FormatUint(c.Nonce, 10), c.Amount, c.Claimed, nullable(string(c.Signed)), c.Delivered,
		nullable(string(c.PendingCall)), nullable(string(c.Refused)), sqldb.Micros(t.Now))
	if err != nil {
		return err
	}
	return t.audit(0, audit.ChannelEvent, map[string]any{"service": c.Service, "key": c.Key,
		"position": string(c.position()), "signed": c.Signed != nil, "row": c.digest()})
}

// digest is over every column but the time of the change.
func (c Channel) digest() string {
	known := int64(0)
	if c.Delivered {
		known = 1
	}
	return audit.EncodeDigest(audit.Link(nil, known, c.Service, c.Key, c.Server, c.Network, c.Source, c.ID,
		strconv.FormatUint(c.Epoch, 10), strconv.FormatUint(c.Nonce, 10), c.Amount.String(),
		c.Claimed.String(), string(c.Signed), string(c.PendingCall), string(c.Refused)))
}
