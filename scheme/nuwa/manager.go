// Package nuwa pays by payment channels: as a Nuwa client, in the form that @nuwa-ai/payment-kit 0.7.0
// really speaks. The service serves first and names the cost; the voucher that it
// proposes (a SubRAV) is signed here and leaves with the next call.
//
// What must stay true: what a call may cost is decided before it is made; its cost is held before
// its SubRAV is signed; the signed SubRAV is on disk before it leaves; and no nonce of a channel is
// ever signed for twice. Package wallet/nuwa checks what is signed, in its very bytes, and imports nothing of
// what builds it here.
//
// The files: requests.go (one call, its order of steps), guard.go (which proposals are signed),
// discover.go (who the service is), manager.go (a channel made ready), open.go (transactions),
// owner.go (what the owner sees and does), adapter.go (over MCP and HTTP), wire.go and auth.go
// (what goes over the wire). The chain is Rooch: rooch.go (what a node is asked), transaction.go
// (what is signed for it, and its bytes), did.go (accounts and the ids of objects).
package nuwa

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Server is a service of the owner's config.toml.
type Server struct {
	Endpoint string // of its MCP server, or any URL of an HTTP service
	Detect   bool   // nobody said that it speaks payment channels: it does if its origin publishes so
	Service  string // the DID it has to have; "": what it says itself, and said before
}

type Store interface {
	Channel(ctx context.Context, service, key string) (history.Channel, error)
	Channels(ctx context.Context) ([]history.Channel, error)
	SaveChannel(ctx context.Context, c history.Channel) error
	Refuse(ctx context.Context, c history.Channel) error
	LockChannel(ctx context.Context, service, key string) (func(), error)
	Finish(ctx context.Context, id string, o history.Outcome) (history.Payment, error)
}

// Manager makes channels ready and keeps them: discovery, our key, the channel on the chain, and what was
// signed for in it. Every exported field is needed. It is safe for concurrent use.
type Manager struct {
	DID        string // the owner's
	Servers    map[string]Server
	Nodes      Nodes
	DepositCap money.Dollars // the most that one opening may cost, its deposit included
	Keys       Keys
	Transport  pay.Transport
	Engine     *pay.Engine
	Store      Store
	Guard      pay.Guard
	Now        func() time.Time
	Log        *slog.Logger

	services sync.Map // by name: *service
	speaks   sync.Map // by name: what was detected, a bool
}

func (m *Manager) names() []string { return slices.Sorted(maps.Keys(m.Servers)) }

// readyChannel is a channel that calls can be made on. Whoever has one holds its lock.
type readyChannel struct {
	*service
	row     history.Channel
	last    subRAV       // the furthest that this wallet signed for, or the chain has seen claimed
	claimed money.Amount // taken by the payee, as the chain has it
	hub     money.Amount // for this channel, less what others of our channels owe
}

// errUnopened says that the channel has to be opened, or our key let into it.
var errUnopened = errors.New("the channel is not open for this wallet's key")

// notActive says that the channel is closing or closed.
type notActive string

func (s notActive) Error() string { return "the channel is " + string(s) }

// ready reads the channel from the chain and the ledger. The caller holds its lock.
func (m *Manager) ready(ctx context.Context, s *service) (*readyChannel, error) {
	onChain, err := s.node.channel(ctx, s.channelID())
	if err != nil {
		return nil, err
	}
	if onChain == nil {
		return nil, errUnopened
	}
	if onChain.Sender != s.payer || onChain.Receiver != s.payee || !isRGas(onChain.Coin) {
		return nil, x402.Errorf(x402.RPCError, "the node shows another channel than was asked for")
	}
	if state := onChain.state(); state != stateActive {
		return nil, x402.Errorf(x402.PaymentRejected, "%w", notActive(state)).
			WithHint("the owner looks at it with x402-wallet channel show %s", s.server)
	}
	sub, err := s.node.subChannel(ctx, onChain, s.key.Fragment)
	if err != nil {
		return nil, err
	}
	if sub == nil {
		return nil, errUnopened
	}
	if sub.Key.Multibase != s.key.Multibase || sub.Key.Type != s.key.Type {
		return nil, x402.Errorf(x402.SetupFailed,
			"another key than this wallet's stands for %s in the channel", x402.Quote(s.key.Fragment)).
			WithHint("the owner gives this wallet's key a name of its own in the DID document")
	}
	r := &readyChannel{service: s, claimed: sub.Amount, last: subRAV{
		ChainID: s.node.chainID(), Channel: s.channelID(), Epoch: onChain.Epoch, Fragment: s.key.Fragment,
		Amount: sub.Amount, Nonce: sub.Nonce,
	}}
	if err := m.load(ctx, r); err != nil {
		return nil, err
	}
	return r, m.readFunds(ctx, r)
}

// load reads what was signed for in the channel. Of a channel that the ledger does not know the
// chain does: what was claimed, which is r.last so far.
func (m *Manager) load(ctx context.Context, r *readyChannel) error {
	row, err := m.Store.Channel(ctx, r.payee.did(), r.keyID())
	if err != nil && !errors.Is(err, history.ErrNotFound) {
		return err
	}
	before := row
	id, epoch := r.channelID().String(), r.last.Epoch
	if err == nil && row.ID == id && epoch < row.Epoch {
		return x402.Errorf(x402.RPCError,
			"the node shows epoch %d of the channel, which was in epoch %d before", epoch, row.Epoch)
	}
	if err != nil || row.Epoch != epoch {
		row = history.Channel{Nonce: r.last.Nonce, Amount: r.last.Amount}
	}
	row.Service, row.Key = r.payee.did(), r.keyID()
	row.Server, row.Network = r.server, r.node.Network
	row.Source, row.Claimed = r.payer.did(), r.claimed
	row.ID, row.Epoch = id, epoch
	if row.Amount.Cmp(r.claimed) > 0 && !m.isSigned(r, row) {
		return x402.Errorf(x402.LedgerCorrupt, "by the ledger %s were promised in the channel, and neither "+
			"a signature of this wallet nor the chain proves that", dollars(row.Amount))
	}
	r.row, r.last = row, r.last.further(row.Nonce, row.Amount)
	if reflect.DeepEqual(row, before) {
		return nil
	}
	// Whoever chooses the node could end an epoch, and with it what was signed for in it.
	if err := m.Guard.CheckConfig(ctx); err != nil {
		return err
	}
	return m.Store.SaveChannel(ctx, row)
}

// isSigned reports whether a row has this wallet's signature of what it says was promised. What is signed
// next goes on from that, and the row alone can be edited.
func (m *Manager) isSigned(r *readyChannel, row history.Channel) bool {
	var last signedSubRAV
	if json.Unmarshal(row.Signed, &last) != nil {
		return false
	}
	promised := r.last
	promised.Nonce, promised.Amount = row.Nonce, row.Amount
	signature, err := unMultibase(last.Signature)
	return err == nil && last.SubRAV == promised && m.Keys.Verify(r.key, SubRAV(promised).bytes(), signature)
}

// readFunds reads what lies in the hub for this channel: all channels of a payer draw on one hub.
func (m *Manager) readFunds(ctx context.Context, r *readyChannel) (err error) {
	r.hub, err = r.node.hub(ctx, r.payer)
	if err != nil {
		return err
	}
	rows, err := m.Store.Channels(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		isThis := row.Service == r.row.Service && row.Key == r.row.Key
		if !isThis && row.Network == r.node.Network && row.Source == r.row.Source {
			r.hub = r.hub.SubFloor(row.Amount.SubFloor(row.Claimed))
		}
	}
	return nil
}

// charge is what a call costs, for the owner's budgets. What of the hub is free is less what this
// channel owes already.
func (m *Manager) charge(r *readyChannel, c pay.Charge) pay.Charge {
	c = c.At(r.node.Network, r.payee.did())
	free := r.hub.SubFloor(r.last.Amount.SubFloor(r.claimed))
	c.Scheme, c.Asset = schemeCall, assetRGas(r.node.Network)
	c.Funds = x402.Funds{Source: r.row.Source, Balance: r.hub, Free: free, ReadAt: m.Now()}
	c.Refill = x402.Command("channel", "open", r.server, "--deposit", "0.50")
	return c
}

// Schemes of channels in the ledger.
const (
	schemeCall    = "nuwa"
	schemeOpen    = "nuwa-open"
	schemeDeposit = "nuwa-deposit"
)

// refuse keeps the evidence of a proposal that is not signed; the error is why.
func (m *Manager) refuse(ctx context.Context, r *readyChannel, p *responsePayload, why error) error {
	evidence, err := json.Marshal(map[string]any{
		"at": m.Now().UTC(), "why": x402.AsError(why), "proposal": p.SubRAV, "cost": p.Cost,
		"serviceTxRef": x402.Brief(p.ServiceTxRef), "promised": r.row.Signed,
	})
	if err == nil {
		r.row.Refused = evidence
		err = m.Store.Refuse(context.WithoutCancel(ctx), r.row)
	}
	if err != nil {
		m.Log.Error("keep a refused proposal", "service", r.row.Service, "err", err)
	}
	return why
}
