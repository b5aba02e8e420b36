package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// DiscoverIn is what x402_discover_services takes.
type DiscoverIn struct {
	Query    string `json:"query,omitempty"`
	URL      string `json:"url,omitempty" jsonschema:"URL or MCP server to ask"`
	Network  string `json:"network,omitempty"`
	MaxPrice string `json:"maxPrice,omitempty" jsonschema:"dollars"`
	Limit    *int   `json:"limit,omitempty" jsonschema:"default 10"`
}

const (
	someServices = 10
	mostServices = 25
)

type DiscoverOut struct {
	Count    int       `json:"count"`
	Services []service `json:"services"`
	Source   string    `json:"source"`
	AsOf     string    `json:"asOf"`
	Next     x402.Next `json:"next"`
}

// service is something that is sold, with the option that this wallet would take. What it says of
// itself binds nobody: maxAmount does.
type service struct {
	URL         string          `json:"url"`
	Type        string          `json:"type"`
	Description string          `json:"description"`
	Price       string          `json:"price"`
	Amount      string          `json:"amount"`
	Asset       string          `json:"asset"`
	Network     string          `json:"network"`
	Scheme      string          `json:"scheme"`
	PayTo       string          `json:"payTo"`
	Payable     bool            `json:"payable"`
	Why         string          `json:"why,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema"`
	// what it answers, as the seller says
	Output json.RawMessage `json:"output,omitempty"`
}

// dollars is the price, to sort by. What has none counts as the dearest.
func (s service) dollars() money.Dollars {
	d, err := money.ParseDollars(strings.TrimPrefix(s.Price, "$"))
	if err != nil {
		return math.MaxInt64
	}
	return d
}

const (
	discoverDescription = `Find paid APIs, MCP tools (SERVER#TOOL). Pays nothing; lists are strangers' claims.`

	// Of many services each may say a little; x402_list_tools and the seller himself say more.
	maxPitch       = 300
	maxPitchSchema = 4 << 10
	maxExample     = 1 << 10
)

// Discover finds services in the lists of facilitators and directories, or asks one seller. Its error is an
// *x402.Error.
func (w *Wallet) Discover(ctx context.Context, in DiscoverIn) (out DiscoverOut, err error) {
	s := search{Wallet: w, most: someServices, prospects: w.Engine.NewEstimator()}
	if in.URL != "" && in.Query != "" {
		return out, x402.Errorf(x402.InvalidArgument,
			"query and url are given: a URL is asked itself, not searched for")
	}
	if in.Limit != nil {
		s.most = *in.Limit
		if s.most < 1 || s.most > mostServices {
			return out, x402.Errorf(x402.InvalidArgument, "limit must be from 1 to %d", mostServices)
		}
	}
	if in.Network != "" {
		var known bool
		s.network, known = x402.Network(in.Network)
		if !known {
			return out, x402.Errorf(x402.InvalidArgument, "network %s is not known",
				x402.Quote(in.Network)).WithHint(`name it like "eip155:8453", "base" or "solana"`)
		}
	}
	if in.MaxPrice != "" {
		d, err := money.ParseDollars(strings.TrimPrefix(in.MaxPrice, "$"))
		if err != nil {
			return out, x402.Errorf(x402.InvalidArgument, "maxPrice %s is not an amount in dollars",
				x402.Quote(in.MaxPrice)).WithHint(`write dollars like "$0.05"`)
		}
		s.maxPrice = &d
	}
	if in.URL != "" {
		err = s.probe(ctx, in.URL)
	} else {
		err = s.lists(ctx, in.Query)
	}
	if err != nil {
		return out, withCode(x402.DiscoverFailed, "the services could not be asked for", err)
	}
	return s.answer(), nil
}

type search struct {
	*Wallet
	most      int
	network   string         // "": any
	maxPrice  *money.Dollars // nil: any
	prospects *pay.Estimator

	payable, others []service
	source          string
	asOf            time.Time
}

func (s *search) full() bool { return len(s.payable) >= s.most }

// answer puts first what can be paid, and the cheapest of it.
func (s *search) answer() DiscoverOut {
	for _, some := range [][]service{s.payable, s.others} {
		slices.SortStableFunc(some, func(a, b service) int { return cmp.Compare(a.dollars(), b.dollars()) })
	}
	list := slices.Concat(s.payable, s.others)
	list = append([]service{}, list[:min(len(list), s.most)]...)
	next := x402.Next{Do: x402.Done}
	if len(list) == 0 {
		next = x402.Next{Do: x402.Change,
			Why: "nothing was found: other words may find something, or no network and maxPrice"}
	}
	return DiscoverOut{Count: len(list), Services: list, Source: s.source, AsOf: stamp(s.asOf), Next: next}
}

// lists searches the lists of facilitators and directories, taking from each in turn: however much one of
// them lists, the others get their turn.
func (s *search) lists(ctx context.Context, query string) error {
	const maxQuery = 400
	if len(query) > maxQuery {
		return x402.Errorf(x402.InvalidArgument, "query is longer than %d bytes", maxQuery)
	}
	var found []facilitator.Catalogue
	if s.Facilitators != nil {
		found = s.Facilitators.Discover(ctx, query, s.network)
	}
	if err := s.sources(found); err != nil {
		return err
	}
	judging, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	for i := range found {
		if l := found[i].Listings; len(l) > 0 && l[0].Offers != nil {
			found[i].Listings = s.cheapestFirst(l)
		}
	}
	seen := map[string]bool{}
	for i, some := 0, true; some && !s.full(); i++ {
		some = false
		for _, c := range found {
			if i >= len(c.Listings) || s.full() {
				continue
			}
			some = true
			l := c.Listings[i]
			if q := requestFor(l); !seen[q.Method+q.URL] {
				seen[q.Method+q.URL] = true
				s.weigh(judging, q, l)
			}
		}
	}
	return ctx.Err()
}

// sources says whose lists these are; an error where there is none.
func (s *search) sources(found []facilitator.Catalogue) error {
	var answered, silent []string
	reasons := map[string]string{}
	for _, c := range found {
		if c.Err != nil {
			silent = append(silent, c.Name)
			reasons[c.Name] = x402.Brief(c.Err.Error())
			continue
		}
		answered = append(answered, c.Name)
		if s.asOf.IsZero() || c.At.Before(s.asOf) { // as old as the oldest
			s.asOf = c.At
		}
	}
	if len(answered) == 0 {
		e := x402.Errorf(x402.DiscoverFailed, "no facilitator answered what is sold").
			WithHint("try again; with url one seller can be asked itself")
		if len(found) == 0 {
			e.Message = "no facilitator is configured for that network"
		}
		return e.WithDetail("facilitators", reasons)
	}
	s.source = strings.Join(answered, ", ")
	if len(silent) > 0 {
		s.source += "; no answer: " + strings.Join(silent, ", ")
	}
	return nil
}

// requestFor is how a listing would be bought.
func requestFor(l facilitator.Listing) pay.Request {
	r := seller.Request{Method: cmp.Or(l.Method, http.MethodGet), URL: l.URL}
	if l.Type == "mcp" {
		r.Method, r.URL = seller.CallTool, seller.Target(l.URL, l.Tool)
		if l.Tool == "" {
			r.Method = seller.Initialize
		}
	}
	return pay.Request{Request: r}
}

// weigh takes a listing in, unless it cannot be one (an address nobody may be sent to) or is not
// what was looked for.
func (s *search) weigh(ctx context.Context, q pay.Request, l facilitator.Listing) {
	s.bound(&q)
	e, err := s.prospects.Weigh(ctx, q, l.Accepts)
	if l.Offers != nil {
		e.URL = l.URL // ASCII already, and {these} are to be replaced by whoever calls it
	}
	switch {
	case err != nil:
	case l.Why != "":
		s.addUnpriced(l, "", l.Why)
	default:
		s.add(e, e.URL, l)
	}
}

// bound asks for what the caller looks for.
func (s *search) bound(q *pay.Request) {
	q.Network = s.network
	if s.maxPrice != nil {
		q.MaxAmount = s.maxPrice.Price()
	}
}

// affords reports whether a price, in dollars, is within what the caller would pay.
func (s *search) affords(price string) bool {
	if s.maxPrice == nil {
		return true
	}
	d, err := money.ParseDollars(strings.TrimPrefix(price, "$"))
	return err == nil && d <= *s.maxPrice
}

// add makes a service of the option that the wallet would take, or else of the first that is what
// the caller looks for.
func (s *search) add(e pay.Estimate, url string, l facilitator.Listing) {
	i := slices.IndexFunc(e.Options, func(o pay.Option) bool {
		onNetwork := s.network == "" || o.Network == s.network
		return o.Network != "" && onNetwork && s.affords(o.Price)
	})
	if e.Chosen != nil {
		i = *e.Chosen
	}
	if i < 0 {
		return
	}
	o := e.Options[i]
	s.put(service{
		URL: url, Type: l.Type, Description: x402.Clip(l.Description, maxPitch), InputSchema: l.InputSchema,
		Output: l.Example,
		Price:  o.Price, Amount: o.Amount.String(), Asset: o.Asset, Network: o.Network, Scheme: o.Scheme,
		PayTo: o.PayTo, Payable: o.Payable, Why: o.Why,
	})
}

func (s *search) put(one service) {
	if len(one.InputSchema) == 0 || len(one.InputSchema) > maxPitchSchema {
		one.InputSchema = json.RawMessage("{}")
	}
	if len(one.Output) > maxExample || !bytes.HasPrefix(one.Output, []byte("{")) {
		one.Output = nil
	}
	if one.Payable {
		s.payable = append(s.payable, one)
	} else if len(s.others) < s.most {
		s.others = append(s.others, one)
	}
}

// probe asks one seller: a server of the config for its tools; a URL by GET, which is made to
// change nothing, and for its tools only where its address says that it is an MCP server. No other
// method is tried, for it might do something.
func (s *search) probe(ctx context.Context, url string) error {
	s.source, s.asOf = "the seller", s.Engine.Now()
	if !strings.Contains(url, "://") {
		return s.probeTools(ctx, url)
	}
	q := pay.Request{Request: seller.Request{Method: http.MethodGet, URL: url}}
	s.bound(&q)
	e, err := s.Engine.Offers(ctx, q)
	isServer := looksLikeMCP(url)
	forbidden := x402.HasCode(err, x402.URLBlocked) || x402.HasCode(err, x402.PolicyDenied)
	failed := err != nil || e.HTTPStatus >= 400
	switch {
	case forbidden:
		return err
	case err == nil && e.PaymentRequired:
		s.add(e, url, facilitator.Asked(e.Challenge))
		return nil
	case isServer && failed:
		return s.probeTools(ctx, url)
	case err != nil:
		return err
	case (isBare(url) || failed) && s.published(ctx, url):
		return nil
	case e.HTTPStatus >= 300:
		return x402.Errorf(x402.DiscoverFailed, "the URL answers GET with HTTP %d and requires no payment",
			e.HTTPStatus).
			WithHint("x402_estimate_cost asks with another method, x402_list_tools an MCP server").
			WithNext(e.Next)
	}
	s.put(service{URL: url, Type: "http", Price: "$0", Amount: "0", Payable: true,
		Why: "no payment is required"})
	return nil
}

// looksLikeMCP goes by how addresses of MCP servers end. To find out by trying would be a POST to
// whatever is there.
func looksLikeMCP(url string) bool {
	path, _, _ := strings.Cut(url, "?")
	last := path[strings.LastIndex(strings.TrimSuffix(path, "/"), "/")+1:]
	return slices.Contains([]string{"mcp", "sse"}, strings.TrimSuffix(last, "/"))
}

// probeTools lists a server's tools, each with the terms that the list itself tells.
func (s *search) probeTools(ctx context.Context, server string) error {
	list, endpoint, err := s.toolsOf(ctx, server)
	if err != nil {
		return err
	}
	for _, t := range list {
		l := facilitator.Listing{URL: endpoint, Type: "mcp", Tool: t.Name, Description: t.Description,
			Accepts: toldTerms(t.Meta), InputSchema: shownSchema(t.InputSchema, maxPitchSchema)}
		if len(l.Accepts) > 0 {
			s.weigh(ctx, requestFor(l), l)
			continue
		}
		s.addUnpriced(l, s.toldPrice(t.Meta),
			"its terms are shown when it is called: x402_call_tool with maxAmount \"0\" asks for them")
	}
	return nil
}

// addUnpriced takes in what is sold without terms that could be weighed, with at most a price.
func (s *search) addUnpriced(l facilitator.Listing, price, why string) {
	if s.network != "" || !s.affords(price) {
		return
	}
	s.put(service{URL: requestFor(l).URL, Type: l.Type, Description: x402.Clip(l.Description, maxPitch),
		InputSchema: l.InputSchema, Price: price, Why: why})
}
