// Package channel pays by payment channels: the Nuwa MCP client of seed 003, as payment-kit 0.7.0
// really speaks it (SPEC §9). The service serves first and names the cost; its proposal of a
// promise (SubRAV) is signed here and leaves with the next call.
//
// What must stay true: what a call may cost is decided before it is made, its cost is held before
// it is promised, the promise is on disk before it leaves; and no nonce of a channel is ever
// promised twice.
//
// The files: requests.go (one call, its order of steps), guard.go (which proposals are signed),
// manager.go (discovery; a channel made ready), open.go (transactions, and what became of them),
// owner.go (what the owner sees and does), adapter.go (over MCP and HTTP), wire.go, auth.go,
// subrav.go, did.go, bcs.go (what goes over the wire), rooch.go and tx.go (the chain).
package channel

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Server is a service of the owner's config.toml.
type Server struct {
	Endpoint string // of its MCP server, or any URL of an HTTP service
	Detect   bool   // nobody said that it speaks payment channels: it does if its origin publishes so
	Service  string // the DID it has to have; "": what it says itself, and said before
}

// Store is the ledger: history.Store.
type Store interface {
	Channel(ctx context.Context, service, key string) (history.Channel, error)
	Channels(ctx context.Context) ([]history.Channel, error)
	SaveChannel(ctx context.Context, c history.Channel) error
	Refuse(ctx context.Context, c history.Channel) error
	RecordVoucher(ctx context.Context, id string, signed history.Signed, c history.Channel,
		o history.Outcome) (history.Payment, error)
	LockChannel(ctx context.Context, service, key string) (func(), error)
	Submit(ctx context.Context, id string, signed history.Signed) error
	Finish(ctx context.Context, id string, o history.Outcome) (history.Payment, error)
}

// Options configure the Manager.
type Options struct {
	DID        string // the owner's
	Servers    map[string]Server
	Nodes      map[string]*Rooch // by network
	DepositCap money.Dollars     // the most that one opening may cost, its deposit included
	Keys       Keys
	Transport  Transport
	Engine     *pay.Engine
	Store      Store
	Guard      pay.Guard
	Now        func() time.Time
	Log        *slog.Logger
}

// Manager makes channels ready and keeps them (seed 003's ChannelManager): discovery, our key, the
// channel on the chain, and what was promised in it. It is safe for concurrent use.
type Manager struct {
	Options

	mu     sync.Mutex
	places map[string]*place // by name
	speaks map[string]bool   // what was detected
}

// New makes a Manager. It asks nobody anything.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{Options: o, places: map[string]*place{}, speaks: map[string]bool{}}
}

// place is a service as far as it does not change while this process runs.
type place struct {
	server  string
	mcp     Adapter
	http    Adapter
	info    Info
	network string
	node    *Rooch
	payer   Account
	payee   Account
	key     Key
}

// adapter is the way to speak with it for a request of a method.
func (p *place) adapter(method string) Adapter {
	if seller.IsMCP(method) {
		return p.mcp
	}
	return p.http
}

// own is the way to its own routes or tools: an MCP server's base path is that of its endpoint, an
// HTTP service's is another.
func (m *Manager) own(p *place) Adapter {
	at, err := url.Parse(m.Servers[p.server].Endpoint)
	if err == nil && p.info.BasePath != "" &&
		strings.TrimRight(at.Path, "/") != strings.TrimRight(p.info.BasePath, "/") {
		return p.http
	}
	return p.mcp
}

// keyID is our key's full name.
func (p *place) keyID() string { return p.payer.DID() + "#" + p.key.Fragment }

// ready is a channel that calls can be made on, with its turn held.
type ready struct {
	*place
	terms Terms
	row   history.Channel
	last  baseline
	paid  money.Amount // taken by the payee, as the chain has it
	hub   money.Amount // for this channel, less what others of our channels owe
}

// place discovers a service, once for each process: what is published at its origin first, then
// what it says itself, then what config.toml says. Where several say who it is they have to agree,
// and with what this wallet knew before (seed 003).
func (m *Manager) place(ctx context.Context, server string) (*place, error) {
	m.mu.Lock()
	known := m.places[server]
	m.mu.Unlock()
	if known != nil {
		return known, nil
	}
	fresh, err := m.discover(ctx, server)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places[server] = fresh
	return fresh, nil
}

// forget lets the next call discover anew.
func (m *Manager) forget(server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.places, server)
}

func (m *Manager) discover(ctx context.Context, server string) (*place, error) {
	config := m.Servers[server]
	origin, err := originOf(config.Endpoint)
	if err != nil {
		return nil, err
	}
	published, text, err := m.published(ctx, origin)
	if err != nil {
		return nil, err
	}
	p := &place{server: server}
	if published != nil {
		p.info = *published
	}
	p.mcp, p.http = mcpAdapter{m.Transport, config.Endpoint}, httpAdapter{m.Transport, origin,
		p.info.BasePath}
	if published == nil {
		said, err := p.mcp.Discover(ctx)
		if err != nil {
			return nil, err
		}
		if said != nil {
			p.info = *said
		}
	}
	if p.info.ServiceDID == "" {
		p.info.ServiceDID, p.info.Asset = config.Service, RGas
	}
	if p.info.ServiceDID == "" {
		return nil, x402.Errorf(x402.InvalidRequirement,
			"%s does not say that it is a service with payment channels", x402.Quote(server)).
			WithHint("where it has none, [servers.%s] in config.toml needs no channel = true; where it "+
				"has, the owner writes service = \"did:rooch:…\" beside it", server)
	}
	if err := m.oneService(ctx, p, config); err != nil {
		return nil, err
	}
	if err := m.join(ctx, p); err != nil {
		return nil, err
	}
	return p, m.authentic(ctx, p, text)
}

// published reads what is at the origin's well-known place; nil: nothing is.
func (m *Manager) published(ctx context.Context, origin string) (*Info, []byte, error) {
	if origin == "" {
		return nil, nil, nil
	}
	answer, err := m.Transport.Ask(ctx, seller.Request{Method: http.MethodGet, URL: origin + wellKnownPath})
	if err != nil {
		return nil, nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, nil, nil
	}
	var info Info
	if err := readAnswer(answer.Content, &info); err != nil {
		return nil, nil, err
	}
	if info.BasePath != "" && !strings.HasPrefix(info.BasePath, "/") {
		// behind the origin it would make another one: https://a.b + .c.d
		return nil, nil, x402.Errorf(x402.InvalidRequirement,
			"the service's description puts its routes at %s, which is no path", x402.Quote(info.BasePath))
	}
	return &info, answer.Content, nil
}

// oneService refuses a service whose name is not the same everywhere. Of what the owner writes and
// what was before, the owner's counts.
func (m *Manager) oneService(ctx context.Context, p *place, config Server) error {
	names := []string{config.Service}
	if config.Service == "" {
		rows, err := m.Store.Channels(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Server == p.server {
				names = append(names, row.Service)
			}
		}
	}
	for _, name := range names {
		if name != "" && name != p.info.ServiceDID {
			return x402.Errorf(x402.PayeeChanged, "the service says it is %s, and was %s",
				x402.Quote(p.info.ServiceDID), x402.Quote(name)).
				WithHint("tell the person: either the service moved, or somebody else stands in its "+
					"place; nothing was signed").
				WithDetail("serviceDid", x402.Brief(p.info.ServiceDID)).WithDetail("before", x402.Brief(name))
		}
	}
	return nil
}

// join finds what the service's words mean here: its network's node, its account, and our key.
func (m *Manager) join(ctx context.Context, p *place) (err error) {
	if p.info.Asset != "" && !isRGas(p.info.Asset) {
		return x402.Errorf(x402.UntrustedAsset,
			"the service wants to be paid in %s; channels are paid in RGas", x402.Quote(p.info.Asset))
	}
	if p.payee, err = ParseDID(p.info.ServiceDID); err != nil {
		return err
	}
	if m.DID == "" {
		return x402.Errorf(x402.SetupFailed, "no DID is configured for payment channels").
			WithHint("the owner puts did under [channel] in config.toml, and the key %s into that DID's "+
				"document", m.Keys.Public())
	}
	if p.payer, err = ParseDID(m.DID); err != nil {
		return x402.Errorf(x402.SetupFailed, "the owner's DID: %s", x402.AsError(err).Message).
			WithHint("the owner corrects did under [channel] in config.toml; it is written like " +
				"did:rooch:rooch1…")
	}
	if p.payer == p.payee {
		return x402.Errorf(x402.InvalidRequirement, "the service has the owner's own DID")
	}
	if p.network, p.node, err = m.node(p.info.Network); err != nil {
		return err
	}
	p.key, err = m.ourKey(ctx, p.node, p.payer)
	return err
}

// node is the owner's for the network that a service names; one that names none is on the only one
// there is.
func (m *Manager) node(name string) (string, *Rooch, error) {
	network := name
	if name != "" && !strings.HasPrefix(name, "rooch:") {
		network = "rooch:" + name
	}
	if name == "" && len(m.Nodes) == 1 {
		for only := range m.Nodes {
			network = only
		}
	}
	node := m.Nodes[network]
	if node == nil {
		return "", nil, x402.Errorf(x402.SetupFailed, "the service is on %s, for which no node is configured",
			x402.Quote(network)).
			WithHint(`the owner adds rpc under [networks."rooch:main"] in config.toml, or what the service's network is called`)
	}
	return network, node, nil
}

func (m *Manager) ourKey(ctx context.Context, node *Rooch, payer Account) (Key, error) {
	keys, err := node.Keys(ctx, payer)
	if err != nil {
		return Key{}, err
	}
	if i := slices.IndexFunc(keys, m.Keys.Owns); i >= 0 {
		return keys[i], nil
	}
	return Key{}, x402.Errorf(x402.SetupFailed, "the DID document of %s has no key of this wallet",
		payer.DID()).
		WithHint("the owner adds the key %s (%s) to it, with authentication", m.Keys.Public(), ed25519Key)
}

// authentic checks the signature over what was published, if there is one.
func (m *Manager) authentic(ctx context.Context, p *place, published []byte) error {
	if published == nil {
		return nil
	}
	message, signature, err := signedInfo(published)
	if err != nil || signature == nil {
		return err
	}
	keys, err := p.node.Keys(ctx, p.payee)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(keys, func(k Key) bool { return m.Keys.Verify(k, message, signature) }) {
		return nil
	}
	return x402.Errorf(x402.InvalidRequirement, "the service's description is signed by nobody whom its "+
		"DID document names").
		WithHint("somebody may have changed it on the way; nothing was signed")
}

// Speaks names the service that a request is for, where that is paid through a channel: one of the
// owner's config.toml, at the same endpoint, or for HTTP at the same origin. Whether one that
// nobody said it of does is asked once.
func (m *Manager) Speaks(ctx context.Context, q seller.Request) (server string, yes bool) {
	for _, name := range m.names() {
		endpoint := m.Servers[name].Endpoint
		where, _, _ := strings.Cut(q.URL, "#")
		if !seller.IsMCP(q.Method) {
			endpoint, _ = originOf(endpoint)
			where, _ = originOf(where)
		}
		if endpoint != "" && endpoint == where && (!m.Servers[name].Detect || m.detected(ctx, name)) {
			return name, true
		}
	}
	return "", false
}

func (m *Manager) detected(ctx context.Context, server string) bool {
	m.mu.Lock()
	yes, known := m.speaks[server]
	m.mu.Unlock()
	if known || m.DID == "" {
		return yes
	}
	origin, err := originOf(m.Servers[server].Endpoint)
	if err != nil {
		return false
	}
	info, _, err := m.published(ctx, origin)
	if err != nil && !x402.HasCode(err, x402.ResponseMalformed) { // ask again next time
		return false
	}
	yes = info != nil && strings.HasPrefix(info.ServiceDID, didPrefix)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.speaks[server] = yes
	return yes
}

// errUnopened says that the channel has to be opened, or our key let into it.
var errUnopened = errors.New("the channel is not open for this wallet's key")

// notActive says that the channel is closing or closed.
type notActive string

func (s notActive) Error() string { return "the channel is " + string(s) }

// ready reads the channel from the chain and the ledger. The caller holds its turn.
func (m *Manager) ready(ctx context.Context, p *place) (*ready, error) {
	r := &ready{place: p, terms: Terms{ChainID: chainIDs[p.network], Channel: ChannelID(p.payer, p.payee),
		Fragment: p.key.Fragment}}
	object, err := p.node.channel(ctx, r.terms.Channel)
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errUnopened
	}
	if object.Sender != p.payer || object.Receiver != p.payee || !isRGas(object.Coin) {
		return nil, x402.Errorf(x402.RPCError, "the node shows another channel than was asked for")
	}
	if object.Status != active {
		return nil, x402.Errorf(x402.PaymentRejected, "%w", notActive(object.status())).WithHint(
			"the owner looks at it with x402-wallet channel show %s", p.server)
	}
	sub, err := p.node.sub(ctx, object, p.key.Fragment)
	if err != nil {
		return nil, err
	}
	if sub == nil {
		return nil, errUnopened
	}
	if sub.Key.Multibase != p.key.Multibase || sub.Key.Type != p.key.Type {
		return nil, x402.Errorf(x402.SetupFailed,
			"another key than this wallet's stands for %s in the channel", x402.Quote(p.key.Fragment)).
			WithHint("the owner gives this wallet's key a name of its own in the DID document")
	}
	r.terms.Epoch, r.paid = object.Epoch, sub.Last.Amount
	if err := m.load(ctx, r, sub.Last); err != nil {
		return nil, err
	}
	return r, m.funds(ctx, r)
}

// load reads what was promised in the channel. Of a channel that the ledger does not know the chain
// does: what was claimed.
func (m *Manager) load(ctx context.Context, r *ready, claimed baseline) error {
	row, err := m.Store.Channel(ctx, r.payee.DID(), r.keyID())
	before := row
	if err != nil && !errors.Is(err, history.ErrNoChannel) {
		return err
	}
	if err == nil && row.ID == r.terms.Channel.String() && r.terms.Epoch < row.Epoch {
		return x402.Errorf(x402.RPCError,
			"the node shows epoch %d of the channel, which was in epoch %d before", r.terms.Epoch, row.Epoch)
	}
	if err != nil || row.Epoch != r.terms.Epoch {
		row = history.Channel{Nonce: claimed.Nonce, Amount: claimed.Amount}
	}
	row.Service, row.Key, row.Server, row.Network = r.payee.DID(), r.keyID(), r.server, r.network
	row.Source, row.ID, row.Epoch, row.Claimed = r.payer.DID(), r.terms.Channel.String(), r.terms.Epoch,
		claimed.Amount
	r.row, r.last = row, baseline{row.Nonce, row.Amount}.further(claimed)
	if reflect.DeepEqual(row, before) {
		return nil
	}
	if err := m.Guard.CheckConfig(ctx); err != nil {
		// whoever chooses the node could end an epoch, and what was promised in it
		return err
	}
	return m.Store.SaveChannel(ctx, row)
}

// funds is what lies in the hub for this channel: all channels of a payer draw on one hub.
func (m *Manager) funds(ctx context.Context, r *ready) (err error) {
	if r.hub, err = r.node.hub(ctx, r.payer); err != nil {
		return err
	}
	rows, err := m.Store.Channels(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Network == r.network && row.Source == r.row.Source && (row.Service != r.row.Service ||
			row.Key != r.row.Key) {
			r.hub = r.hub.SubFloor(row.Amount.SubFloor(row.Claimed))
		}
	}
	return nil
}

// charge is what a call costs, for the owner's budgets. What of the hub is free is less what this
// channel owes already.
func (m *Manager) charge(r *ready, q pay.Request) pay.Charge {
	free := r.hub.SubFloor(r.last.Amount.SubFloor(r.paid))
	return pay.Charge{
		Request: q, Network: r.network, Scheme: schemeCall, Asset: asset(r.network), PayTo: r.payee.DID(),
		Funds: x402.Funds{Source: r.row.Source, Balance: r.hub, Free: free, ReadAt: m.Now()},
	}
}

// Schemes of channels in the ledger.
const (
	schemeCall    = "nuwa"
	schemeOpen    = "nuwa-open"
	schemeDeposit = "nuwa-deposit"
)

// originOf is the origin of a URL; "" where it has none of HTTP.
func originOf(raw string) (string, error) {
	at, err := url.Parse(raw)
	if err != nil {
		return "", x402.Errorf(x402.InvalidArgument, "the service's URL cannot be read")
	}
	if at.Scheme != "http" && at.Scheme != "https" {
		return "", nil
	}
	return at.Scheme + "://" + at.Host, nil
}

// authorize makes a fresh authorization for each request: our signature over what is asked, and
// when.
func (m *Manager) authorize(p *place) Authorize {
	return func(ctx context.Context, operation string, params any) (string, error) {
		data, err := newAuth(operation, params, m.Now())
		if err != nil {
			return "", err
		}
		signature, err := m.Keys.SignAuth(ctx, p.key, data.message())
		if err != nil {
			return "", err
		}
		return data.token(p.payer.DID(), p.key.Fragment, signature)
	}
}

// refuse keeps the evidence of a proposal that is not signed; the error is why.
func (m *Manager) refuse(ctx context.Context, r *ready, p *responsePayload, why error) error {
	evidence, err := json.Marshal(map[string]any{"at": m.Now().UTC(), "why": x402.AsError(why),
		"proposal": p.SubRAV, "cost": p.Cost, "serviceTxRef": x402.Brief(p.ServiceTxRef),
		"promised": r.row.Signed})
	if err == nil {
		r.row.Refused = evidence
		err = m.Store.Refuse(context.WithoutCancel(ctx), r.row)
	}
	if err != nil {
		m.Log.Error("keep a refused proposal", "service", r.row.Service, "err", err)
	}
	return why
}

// names are the configured servers, in order.
func (m *Manager) names() []string { return slices.Sorted(maps.Keys(m.Servers)) }
