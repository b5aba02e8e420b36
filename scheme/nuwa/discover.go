package nuwa

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"x402-wallet/seller"
	"x402-wallet/x402"
)

// service is one that was discovered, as far as it does not change while this process runs.
type service struct {
	server       string // its name in config.toml
	mcp, http    adapter
	info         serviceInfo
	node         *node
	payer, payee account
	key          Key // ours
}

// adapter is the way to speak with it for a request of a method.
func (s *service) adapter(method string) adapter {
	if seller.IsMCP(method) {
		return s.mcp
	}
	return s.http
}

func (s *service) keyID() string { return s.payer.did() + "#" + s.key.Fragment }

// channelID is our channel to it; it may not be open.
func (s *service) channelID() objectID { return idOfChannel(s.payer, s.payee) }

// ownAdapter is the way to a service's own routes or tools. An MCP server's base path is that of
// its endpoint, an HTTP service's is another.
func (m *Manager) ownAdapter(s *service) adapter {
	endpoint, err := url.Parse(s.mcp.(mcpAdapter).endpoint)
	if err == nil && s.info.BasePath != "" &&
		strings.TrimRight(endpoint.Path, "/") != strings.TrimRight(s.info.BasePath, "/") {
		return s.http
	}
	return s.mcp
}

// service discovers a service, once for each process: what is published at its origin first, then
// what it says itself, then what config.toml says. Where several say who it is they have to agree,
// and with what this wallet knew before.
func (m *Manager) service(ctx context.Context, server string) (*service, error) {
	if known, ok := m.services.Load(server); ok {
		return known.(*service), nil
	}
	found, err := m.discover(ctx, server)
	if err != nil {
		return nil, err
	}
	m.services.Store(server, found)
	return found, nil
}

func (m *Manager) discover(ctx context.Context, server string) (*service, error) {
	config := m.Servers[server]
	origin, err := originOf(config.Endpoint)
	if err != nil {
		return nil, err
	}
	info, text, err := m.published(ctx, origin)
	if err != nil {
		return nil, err
	}
	over := mcpAdapter{client: m.Transport, endpoint: config.Endpoint}
	s := &service{server: server, mcp: over}
	if info == nil {
		s.http = httpAdapter{client: m.Transport, origin: origin}
		info, err = over.discover(ctx)
		if err != nil {
			return nil, err
		}
	} else {
		s.http = httpAdapter{client: m.Transport, origin: origin, base: info.BasePath}
		over.endpoint, err = info.mcpEndpoint(config.Endpoint)
		if err != nil {
			return nil, err
		}
		s.mcp = over
	}
	if info != nil {
		s.info = *info
	}
	if err := m.checkOwnWord(ctx, s, over, text != nil); err != nil {
		return nil, err
	}
	if s.info.ServiceDID == "" {
		s.info.ServiceDID, s.info.Asset = config.Service, coinRGas
	}
	if s.info.ServiceDID == "" {
		return nil, x402.Errorf(x402.InvalidRequirement,
			"%s does not say that it is a service with payment channels", x402.Quote(server)).
			WithHint("where it has none, [servers.%s] in config.toml needs no channel = true; where it has, "+
				"the owner writes service = \"did:rooch:…\" beside it", server)
	}
	if err := m.checkIdentity(ctx, s, config); err != nil {
		return nil, err
	}
	if err := m.resolve(ctx, s); err != nil {
		return nil, err
	}
	return s, m.checkSignature(ctx, s, text)
}

// checkOwnWord refuses a service that says itself, by its tool, that it is another one than its origin
// publishes: a channel would be opened, and a fee paid, to somebody that the calls are not made to.
func (m *Manager) checkOwnWord(ctx context.Context, s *service, over mcpAdapter, isPublished bool) error {
	if !isPublished || m.ownAdapter(s) != adapter(over) {
		return nil
	}
	own, err := over.discover(ctx)
	if err != nil || own == nil || own.ServiceDID == "" || own.ServiceDID == s.info.ServiceDID {
		return err
	}
	return x402.Errorf(x402.PayeeChanged,
		"the service's origin says it is %s, and the service itself that it is %s",
		x402.Quote(s.info.ServiceDID), x402.Quote(own.ServiceDID)).
		WithHint("tell the person: somebody may stand in the service's place; nothing was signed or paid").
		WithDetail("serviceDid", x402.Brief(own.ServiceDID)).
		WithDetail("published", x402.Brief(s.info.ServiceDID))
}

// published reads what is at the origin's well-known URL; nil: nothing is.
func (m *Manager) published(ctx context.Context, origin string) (*serviceInfo, []byte, error) {
	if origin == "" {
		return nil, nil, nil
	}
	q := seller.Request{Method: http.MethodGet, URL: origin + wellKnownPath}
	answer, err := m.Transport.Ask(ctx, q)
	if err != nil || answer.Status != http.StatusOK {
		return nil, nil, err
	}
	var info serviceInfo
	if err := readStrict("an answer", answer.Content, &info); err != nil {
		return nil, nil, err
	}
	// Behind the origin, what is no path would make another origin: https://a.b + .c.d
	if info.BasePath != "" && !strings.HasPrefix(info.BasePath, "/") {
		return nil, nil, x402.Errorf(x402.InvalidRequirement,
			"the service's description puts its routes at %s, which is no path", x402.Quote(info.BasePath))
	}
	return &info, answer.Content, info.check()
}

// mcpEndpoint is where the service's MCP server is: where it says itself, which has to be at the origin that
// config.toml names, or else there.
func (i serviceInfo) mcpEndpoint(configured string) (string, error) {
	if i.Endpoints.MCP == "" {
		return configured, nil
	}
	at, err := url.Parse(configured)
	if err != nil {
		return "", err
	}
	said, err := at.Parse(i.Endpoints.MCP)
	isPlain := err == nil && said.User == nil && said.Fragment == ""
	if !isPlain || said.Scheme != at.Scheme || !strings.EqualFold(said.Host, at.Host) {
		return "", x402.Errorf(x402.InvalidRequirement, "the service's description puts its MCP server at "+
			"%s, which is not at the origin that config.toml names", x402.Quote(i.Endpoints.MCP)).
			WithHint("the owner corrects url under [servers] in config.toml, if it moved")
	}
	return said.String(), nil
}

// checkIdentity refuses a service whose name is not the same everywhere. Of what the owner writes
// and what the ledger knows from before, the owner's word counts.
func (m *Manager) checkIdentity(ctx context.Context, s *service, config Server) error {
	names := []string{config.Service}
	if config.Service == "" {
		rows, err := m.Store.Channels(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Server == s.server {
				names = append(names, row.Service)
			}
		}
	}
	for _, name := range names {
		if name == "" || name == s.info.ServiceDID {
			continue
		}
		return x402.Errorf(x402.PayeeChanged,
			"the service says it is %s, and was %s", x402.Quote(s.info.ServiceDID), x402.Quote(name)).
			WithHint("tell the person: either the service moved, or somebody else stands in its place; "+
				"nothing was signed").
			WithDetail("serviceDid", x402.Brief(s.info.ServiceDID)).WithDetail("before", x402.Brief(name))
	}
	return nil
}

// resolve finds what the service's words mean here: its network's node, its account, and our key.
func (m *Manager) resolve(ctx context.Context, s *service) (err error) {
	if s.info.Asset != "" && !isRGas(s.info.Asset) {
		return x402.Errorf(x402.UntrustedAsset,
			"the service wants to be paid in %s; channels are paid in RGas", x402.Quote(s.info.Asset))
	}
	s.payee, err = parseDID(s.info.ServiceDID)
	if err != nil {
		return err
	}
	if m.DID == "" {
		return x402.Errorf(x402.SetupFailed, "no DID is configured for payment channels").
			WithHint("the owner puts did under [channel] in config.toml, and the key %s into that DID's "+
				"document", m.Keys.Public())
	}
	s.payer, err = parseDID(m.DID)
	if err != nil {
		return x402.Errorf(x402.SetupFailed, "the owner's DID: %s", x402.AsError(err).Message).
			WithHint("the owner corrects did under [channel] in config.toml; it is written like " +
				"did:rooch:rooch1…")
	}
	if s.payer == s.payee {
		return x402.Errorf(x402.InvalidRequirement, "the service has the owner's own DID")
	}
	s.node, err = m.node(s.info.Network)
	if err != nil {
		return err
	}
	keys, err := s.node.keys(ctx, s.payer)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(keys, m.Keys.Owns)
	if i < 0 {
		return x402.Errorf(x402.SetupFailed,
			"the DID document of %s has no key of this wallet", s.payer.did()).
			WithHint("the owner adds the key %s (%s) to it, with authentication", m.Keys.Public(), ed25519Key)
	}
	s.key = keys[i]
	return nil
}

// longNames are what some services call networks, with the names that they have here.
var longNames = map[string]string{"testnet": "test", "mainnet": "main"}

// node is the owner's for the network that a service names; one that names none is on the only one
// there is.
func (m *Manager) node(network string) (*node, error) {
	if network == "" && len(m.Nodes) == 1 {
		for _, only := range m.Nodes {
			return only, nil
		}
	}
	if network != "" {
		name := strings.TrimPrefix(network, "rooch:")
		network = "rooch:" + cmp.Or(longNames[name], name)
	}
	if node := m.Nodes[network]; node != nil {
		return node, nil
	}
	return nil, x402.Errorf(x402.SetupFailed,
		"the service is on %s, for which no node is configured", x402.Quote(network)).
		WithHint(`the owner adds rpc under [networks."rooch:main"] in config.toml, or what the ` +
			`service's network is called`)
}

// checkSignature checks the signature over what was published, if there is one.
func (m *Manager) checkSignature(ctx context.Context, s *service, published []byte) error {
	if published == nil {
		return nil
	}
	message, signature, err := signedInfo(published)
	if err != nil || signature == nil {
		return err
	}
	keys, err := s.node.keys(ctx, s.payee)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(keys, func(k Key) bool { return m.Keys.Verify(k, message, signature) }) {
		return nil
	}
	return x402.Errorf(x402.InvalidRequirement,
		"the service's description is signed by nobody whom its DID document names").
		WithHint("somebody may have changed it on the way; nothing was signed")
}

// Serves names the service that a request is for, where that is paid through a channel: one of the
// owner's config.toml, at the same endpoint, or for HTTP at the same origin. Whether one that
// nobody said it of does is asked once.
func (m *Manager) Serves(ctx context.Context, q seller.Request) (server string, ok bool) {
	if q.Method == seller.Initialize { // the way in is paid for as at any other MCP server
		return "", false
	}
	for _, name := range m.names() {
		endpoint := m.Servers[name].Endpoint
		asked, _, _ := strings.Cut(q.URL, "#")
		if !seller.IsMCP(q.Method) {
			endpoint, _ = originOf(endpoint)
			asked, _ = originOf(asked)
		}
		if endpoint == "" || endpoint != asked {
			continue
		}
		if !m.Servers[name].Detect || m.detected(ctx, name) {
			return name, true
		}
	}
	return "", false
}

func (m *Manager) detected(ctx context.Context, server string) bool {
	if speaks, known := m.speaks.Load(server); known || m.DID == "" {
		return known && speaks.(bool)
	}
	origin, err := originOf(m.Servers[server].Endpoint)
	if err != nil {
		return false
	}
	info, _, err := m.published(ctx, origin)
	if err != nil && !x402.HasCode(err, x402.ResponseMalformed) { // ask again next time
		return false
	}
	speaks := info != nil && strings.HasPrefix(info.ServiceDID, didPrefix)
	m.speaks.Store(server, speaks)
	return speaks
}

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
