package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

const (
	listingsFresh = 5 * time.Minute  // how long a listing is not asked for again
	listingsStale = time.Hour        // how long an old one still stands in for one that cannot be had
	listCall      = 10 * time.Second // for all pages of one facilitator
	listPage      = 100              // the most that the protocol lets anybody ask for
	listPages     = 3                // more is not read: whoever looks for something has words for it
	listMemory    = 8                // questions remembered of each facilitator
)

// Listing is what a facilitator says that somebody sells, or a seller of itself. All of it is strangers'
// text, and binds nobody.
type Listing struct {
	URL         string
	Type        string // "http" or "mcp"
	Tool        string // of an MCP server
	Method      string // of the request, over HTTP; GET if empty
	Description string
	Accepts     []x402.Requirement // the options that could be read: of a facilitator's listing never none
	Offers      []wire.Offer       // of MPP: whoever knows the tokens makes Accepts of them
	Why         string             // no option could be made of them, and why; "" from here
	InputSchema json.RawMessage    // how it is called: an object, or nil
	Example     json.RawMessage    // of what it answers, or nil
	Service     int                // of a directory: the same for all endpoints of a service

	about string // what else is searched
}

// Catalogue has the listings of one facilitator or directory.
type Catalogue struct {
	Name     string
	Listings []Listing
	At       time.Time // when it was asked
	Err      error
}

// listingCache remembers what one facilitator listed.
type listingCache struct {
	mu    sync.Mutex
	known map[string]Catalogue // by question
}

// Discover asks all facilitators that the owner gave the network, and all directories, at once, for what is
// sold; "" is anything, on any network. What one of them says, or fails to say, changes nothing about the
// others.
func (c *Client) Discover(ctx context.Context, query, network string) []Catalogue {
	return askAll(append(c.given(network), c.directories...), func(f *remote) Catalogue {
		if !f.isDirectory {
			return c.catalogue(ctx, f, query, network)
		}
		found := c.catalogue(ctx, f, "", "")
		found.Listings = matching(slices.Clone(found.Listings), query)
		return found
	})
}

// catalogue is what f lists, asked at most every five minutes; where it cannot be asked, what it
// said within the hour.
func (c *Client) catalogue(ctx context.Context, f *remote, query, network string) Catalogue {
	question := network + " " + query
	f.listings.mu.Lock()
	old, known := f.listings.known[question]
	f.listings.mu.Unlock()
	age := c.now().Sub(old.At)
	if known && age < listingsFresh {
		return old
	}
	short, cancel := context.WithTimeout(ctx, listCall)
	defer cancel()
	fresh := Catalogue{Name: f.Name, At: c.now()}
	fresh.Listings, fresh.Err = c.listed(short, f, query, network)
	if len(fresh.Listings) > 0 {
		fresh.Err = nil // some pages are better than none
	}
	if fresh.Err != nil {
		if known && age < listingsStale {
			return old
		}
		return fresh
	}
	f.listings.put(question, fresh)
	return fresh
}

// put remembers an answer in the place of the oldest.
func (s *listingCache) put(question string, c Catalogue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]Catalogue{}
	}
	if _, again := s.known[question]; !again && len(s.known) >= listMemory {
		oldest := ""
		for q, k := range s.known {
			if oldest == "" || k.At.Before(s.known[oldest].At) {
				oldest = q
			}
		}
		delete(s.known, oldest)
	}
	s.known[question] = c
}

var errNoDiscovery = errors.New("it offers no discovery")

// listed asks one facilitator: its search, or, where it has none, its list, in which the words are
// then looked for here.
func (c *Client) listed(ctx context.Context, f *remote, query, network string) ([]Listing, error) {
	if f.isDirectory {
		return c.services(ctx, f)
	}
	if query != "" {
		found, err := c.pages(ctx, f, "discovery/search", url.Values{"query": {query}}, network)
		if !errors.Is(err, errNoDiscovery) {
			return found, err
		}
	}
	all, err := c.pages(ctx, f, "discovery/resources", url.Values{}, network)
	return matching(all, query), err
}

func matching(all []Listing, query string) []Listing {
	return slices.DeleteFunc(all, func(l Listing) bool { return !l.matches(query) })
}

func (l Listing) matches(query string) bool {
	text := strings.ToLower(l.URL + " " + l.Tool + " " + l.Description + " " + l.about)
	for word := range strings.FieldsSeq(strings.ToLower(query)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// pages reads a few pages. One that cannot be read ends them; with the error come those before it.
func (c *Client) pages(ctx context.Context, f *remote, path string, ask url.Values,
	network string) ([]Listing, error) {
	var all []Listing
	if network != "" {
		ask.Set("network", network)
	}
	ask.Set("limit", strconv.Itoa(listPage))
	for page := range listPages {
		p := readPage(c.call(ctx, f, http.MethodGet, path, ask, nil))
		if p.err != nil {
			return all, p.err
		}
		for _, item := range p.items {
			if l, ok := ReadListing(item); ok {
				l.Accepts = slices.DeleteFunc(l.Accepts, func(r x402.Requirement) bool {
					given, _ := f.serves(r.Network)
					return !given
				})
				if len(l.Accepts) > 0 {
					all = append(all, l)
				}
			}
		}
		switch seen := (page + 1) * listPage; {
		case p.cursor != "":
			ask.Set("cursor", p.cursor)
		case seen < p.total && len(p.items) > 0:
			ask.Set("offset", strconv.Itoa(seen))
		default:
			return all, nil
		}
	}
	return all, nil
}

// page is one answer, its items unread.
type page struct {
	items  []json.RawMessage
	total  int
	cursor string
	err    error // it could not be read
}

// readPage reads the frame leniently and leaves each item to be read strictly by itself: one seller
// who writes nonsense does not take the others off the list.
func readPage(r reply) page {
	switch {
	case r.err != nil:
		return page{err: r.err}
	case r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed ||
		r.status == http.StatusNotImplemented:
		return page{err: errNoDiscovery}
	case r.status != http.StatusOK:
		return page{err: fmt.Errorf("status %d", r.status)}
	}
	var answer struct {
		Items      []json.RawMessage `json:"items"`
		Resources  []json.RawMessage `json:"resources"`
		Pagination struct {
			Total  json.Number `json:"total"`
			Cursor string      `json:"cursor"`
		} `json:"pagination"`
	}
	if err := json.Unmarshal(r.body, &answer); err != nil {
		return page{err: errors.New("its list is not what discovery says")}
	}
	p := page{items: append(answer.Items, answer.Resources...), cursor: answer.Pagination.Cursor}
	p.items = p.items[:min(len(p.items), listPage)] // more than was asked for
	total, _ := answer.Pagination.Total.Int64()     // 0 where there is none
	p.total = int(min(max(total, 0), listPage*listPages))
	return p
}

const maxListedURL = 2 << 10 // a real one has a hundred characters

func isWeb(url string) bool {
	return strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://")
}

// isListable reports whether an address is short, and of characters that nobody reads in two ways.
func isListable(url string) bool {
	isHidden := func(r rune) bool { return r <= ' ' || r > '~' || r == '#' || r == '\\' }
	return len(url) <= maxListedURL && !strings.ContainsFunc(url, isHidden)
}

// ReadListing reads one item, V2 or with V1's options in it; false where it is none that could be
// used.
func ReadListing(raw json.RawMessage) (l Listing, ok bool) {
	var item struct {
		Resource    string            `json:"resource"`
		Type        string            `json:"type"`
		Description string            `json:"description"`
		Accepts     []json.RawMessage `json:"accepts"`
		Extensions  json.RawMessage   `json:"extensions"`
	}
	if x402.DecodeStrict(raw, x402.MaxBody, nil) != nil || json.Unmarshal(raw, &item) != nil {
		return l, false
	}
	if !isWeb(item.Resource) || len(item.Resource) > maxListedURL || strings.Contains(item.Resource, "#") ||
		len(item.Accepts) > x402.MaxAccepts {
		return l, false
	}
	l = Listing{URL: item.Resource, Type: "http", Description: item.Description}
	if item.Type == "mcp" {
		l.Type = "mcp"
	}
	for _, option := range item.Accepts {
		version := l.noteOption(option)
		if r, err := x402.DecodeRequirement(option, version); err == nil {
			r.Dialect = x402.DialectV2Header
			l.Accepts = append(l.Accepts, r)
		}
	}
	var extensions struct {
		Bazaar json.RawMessage `json:"bazaar"`
	}
	_ = json.Unmarshal(item.Extensions, &extensions) // what is missing stays empty
	l.noteBazaar(extensions.Bazaar)
	return l, len(l.Accepts) > 0
}

// Asked is what a seller's challenge says of what it sells; the options stay in the challenge.
func Asked(c *wire.Challenge) Listing {
	l := Listing{Type: "http", Description: c.Resource.Description}
	for _, r := range c.Accepts {
		l.noteOption(r.Raw)
	}
	l.noteBazaar(c.Extensions["bazaar"])
	return l
}

// noteOption takes what V1 says in an option: what the thing is, and how it is called. It returns the
// option's version.
func (l *Listing) noteOption(option json.RawMessage) (version int) {
	var v1 struct {
		Amount       json.RawMessage `json:"maxAmountRequired"`
		Description  string          `json:"description"`
		OutputSchema struct {
			Input json.RawMessage `json:"input"`
		} `json:"outputSchema"`
	}
	_ = json.Unmarshal(option, &v1) // what is missing stays empty
	if l.Description == "" {
		l.Description = v1.Description
	}
	l.noteInput(v1.OutputSchema.Input)
	if v1.Amount != nil {
		return 1
	}
	return 2
}

// noteBazaar takes what V2 says in the extension bazaar of how the thing is called, and what it answers. Over
// HTTP the input has examples, and the schema beside it says what may be there instead.
func (l *Listing) noteBazaar(extension json.RawMessage) {
	var bazaar struct {
		Info struct {
			Input  json.RawMessage `json:"input"`
			Output struct {
				Example json.RawMessage `json:"example"`
			} `json:"output"`
		} `json:"info"`
		Schema struct {
			Properties struct {
				Input struct {
					Properties struct {
						Query json.RawMessage `json:"queryParams"`
						Body  json.RawMessage `json:"body"`
					} `json:"properties"`
				} `json:"input"`
			} `json:"properties"`
		} `json:"schema"`
	}
	if json.Unmarshal(extension, &bazaar) != nil {
		return
	}
	l.noteInput(bazaar.Info.Input)
	l.Example = bazaar.Info.Output.Example
	parts := bazaar.Schema.Properties.Input.Properties
	if l.Type == "http" && len(l.InputSchema) > 0 {
		l.noteSchema(parts.Query)
		l.noteSchema(parts.Body)
	}
}

// noteSchema adds the schema of a request's parameters to how it is called, where that says anything.
func (l *Listing) noteSchema(schema json.RawMessage) {
	var said struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var input map[string]json.RawMessage
	if json.Unmarshal(schema, &said) != nil || len(said.Properties) == 0 ||
		json.Unmarshal(l.InputSchema, &input) != nil {
		return
	}
	input["schema"] = schema
	if text, err := json.Marshal(input); err == nil {
		l.InputSchema = text
	}
}

// noteInput notes how a thing is called (the bazaar extension's info.input, or V1's
// outputSchema.input): of an MCP tool its name and schema.
func (l *Listing) noteInput(input json.RawMessage) {
	var answer struct {
		Tool   string          `json:"toolName"`
		Schema json.RawMessage `json:"inputSchema"`
	}
	if len(input) == 0 || input[0] != '{' || json.Unmarshal(input, &answer) != nil {
		return
	}
	l.InputSchema = input
	if l.Type == "mcp" {
		l.Tool, l.InputSchema = answer.Tool, nil
		if len(answer.Schema) > 0 && answer.Schema[0] == '{' {
			l.InputSchema = answer.Schema
		}
	}
}
