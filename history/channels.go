package history

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

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

func scanChannel(row scanner) (c Channel, err error) {
	var epoch, nonce, signed, call, refused string
	var updated int64
	err = row.Scan(&c.Service, &c.Key, &c.Server, &c.Network, &c.Source, &c.ID, &epoch, &nonce, &c.Amount,
		&c.Claimed, &signed, &c.Delivered, &call, &refused, &updated)
	if err != nil {
		return c, err
	}
	c.Signed, c.PendingCall, c.Refused, c.Updated = raw(signed), raw(call), raw(refused), fromMicros(updated)
	c.Epoch, err = strconv.ParseUint(epoch, 10, 64)
	if err == nil {
		c.Nonce, err = strconv.ParseUint(nonce, 10, 64)
	}
	return c, err
}

// Channel returns one channel, or ErrNotFound.
func (s *Store) Channel(ctx context.Context, service, key string) (Channel, error) {
	return read(ctx, s, func(t *tx) (Channel, error) {
		c, err := scanChannel(t.row(selectChannel+` WHERE service = ? AND key = ?`, service, key))
		return c, none(err, errNoChannel)
	})
}

// Channels returns all of them.
func (s *Store) Channels(ctx context.Context) ([]Channel, error) {
	return read(ctx, s, func(t *tx) ([]Channel, error) {
		return collect(t, scanChannel, selectChannel+` ORDER BY service, key`)
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
		_, err := t.exec(`UPDATE channels SET refused = ?, updated_at = ? WHERE service = ? AND key = ?`,
			string(c.Refused), micros(t.Now), c.Service, c.Key)
		if err != nil {
			return err
		}
		return t.audit("", "proposal refused",
			map[string]any{"service": c.Service, "channel": c.ID, "proposal": c.Refused})
	})
}

// RecordVoucher puts a signed voucher on disk: only when it returns nil may a byte of it leave. It
// takes the channel one nonce further, with the payment it is for, which is submitted and, as its
// seller named its price and served it, settled by claim; o is that outcome. id "" is a voucher
// that costs nothing more. Two vouchers under one nonce are errVoucherConflict: the second is never
// kept, because the nonce is the payment's unique key and the channel's row only goes forward.
func (s *Store) RecordVoucher(ctx context.Context, id string, signed Signed, c Channel,
	o Outcome) (p Payment, err error) {
	if err := s.InPlace(); err != nil {
		return p, err
	}
	err = s.tx(ctx, func(t *tx) error {
		old, err := t.channel(c)
		if err != nil {
			return err
		}
		goesOn := c.Nonce > old.Nonce && c.Amount.Cmp(old.Amount) >= 0
		if c.Epoch < old.Epoch || (c.Epoch == old.Epoch && !goesOn) {
			return errVoucherConflict
		}
		if err := t.putChannel(c); err != nil || id == "" {
			return err
		}
		if err := t.submit(id, s.Self(), signed); err != nil {
			return err
		}
		p, err = t.outcome(id, o)
		return err
	})
	return p, err
}

// channel is the row as it stands; the zero one where there is none.
func (t *tx) channel(c Channel) (Channel, error) {
	old, err := find(t, scanChannel, selectChannel+` WHERE service = ? AND key = ?`, c.Service, c.Key)
	if old == nil {
		return Channel{Epoch: c.Epoch}, err
	}
	return *old, err
}

func (t *tx) putChannel(c Channel) error {
	_, err := t.exec(
		`INSERT INTO channels VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
		server = excluded.server, network = excluded.network, source = excluded.source,
		channel = excluded.channel, epoch = excluded.epoch, nonce = excluded.nonce, amount = excluded.amount,
		claimed = excluded.claimed, signed = excluded.signed, known = excluded.known, call = excluded.call,
		refused = excluded.refused, updated_at = excluded.updated_at`,
		c.Service, c.Key, c.Server, c.Network, c.Source, c.ID, strconv.FormatUint(c.Epoch, 10),
		strconv.FormatUint(c.Nonce, 10), c.Amount, c.Claimed, nullable(string(c.Signed)), c.Delivered,
		nullable(string(c.PendingCall)), nullable(string(c.Refused)), micros(t.Now))
	return err
}

// LockChannel lets one call at a time use a channel, of all processes: each voucher builds on the
// one before. It waits for as long as ctx lives, but for another process no longer than
// channelTimeout. The lock is held until unlock is called.
func (s *Store) LockChannel(ctx context.Context, service, key string) (unlock func(), err error) {
	name := fmt.Sprintf("channel-%x", sha256.Sum256([]byte(service+" "+key)))[:24]
	s.channelLocks.mu.Lock()
	if s.channelLocks.byName == nil {
		s.channelLocks.byName = map[string]*fileLock{}
	}
	l := s.channelLocks.byName[name]
	if l == nil {
		l = newFileLock(s.home, name)
		l.timeout, l.poll = channelTimeout, channelPoll
		s.channelLocks.byName[name] = l
	}
	s.channelLocks.mu.Unlock()
	return l.Lock(ctx)
}

// A call may take its whole deadline, so whoever waits for another process's call looks less often
// than a writer does.
const (
	channelTimeout = 10 * time.Minute
	channelPoll    = 20 * time.Millisecond
)

// channelLocks are those of the channels used by this process.
type channelLocks struct {
	mu     sync.Mutex
	byName map[string]*fileLock
}

func (c *channelLocks) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all error
	for _, l := range c.byName {
		all = errors.Join(all, l.close())
	}
	return all
}
