package paywall

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"x402-wallet/x402"
)

// The paywall's own list of what can be found here, in the form in which facilitators list what they know
// (GET /discovery/resources of x402 version 2).

const (
	defaultPage = 20  // the specification's
	maxPage     = 100 // likewise
	// listFresh is how long the list is not made anew: it is public, and names who settles.
	listFresh = 30 * time.Second
	// listWrite is how long a visitor has to read it.
	listWrite = 10 * time.Second
	// maxReaders is how many are answered at a time; others are told to come again.
	maxReaders = 16
)

type listed struct {
	Resource    string                     `json:"resource"`
	Type        string                     `json:"type"` // "http" or "mcp"
	Version     int                        `json:"x402Version"`
	Accepts     []json.RawMessage          `json:"accepts"`
	LastUpdated string                     `json:"lastUpdated"` // RFC 3339
	Description string                     `json:"description,omitempty"`
	MimeType    string                     `json:"mimeType,omitempty"`
	Extensions  map[string]json.RawMessage `json:"extensions"`

	about []x402.Requirement
}

type listing struct {
	mu      sync.Mutex
	items   []listed
	until   time.Time
	readers chan struct{}
}

// Resources lists the tools that have a Discovery with a URL, for GET; put it at /discovery/resources. It
// takes limit (1 to 100), offset, type, network, scheme and payTo. Prices that are computed for each call
// are not on it. It is safe for concurrent use.
func (w *Paywall) Resources() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			rw.Header().Set("Allow", "GET, HEAD")
			http.Error(rw, "GET", http.StatusMethodNotAllowed)
			return
		}
		select {
		case w.list.readers <- struct{}{}:
			defer func() { <-w.list.readers }()
		default:
			rw.Header().Set("Retry-After", "1")
			http.Error(rw, "too many ask for this list", http.StatusServiceUnavailable)
			return
		}
		asked := r.URL.Query()
		limit, isLimit := pageNumber(asked.Get("limit"), defaultPage)
		offset, isOffset := pageNumber(asked.Get("offset"), 0)
		if !isLimit || !isOffset || limit < 1 || limit > maxPage {
			writeJSON(rw, http.StatusBadRequest, map[string]string{"error": "limit is from 1 to 100, and " +
				"offset 0 or more"})
			return
		}
		found := slices.DeleteFunc(w.resources(r.Context()), func(l listed) bool {
			return !l.isAbout(asked.Get("type"), asked.Get("network"), asked.Get("scheme"),
				asked.Get("payTo"))
		})
		page := append([]listed{}, found[min(offset, len(found)):min(offset+limit, len(found))]...)
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(listWrite)) // where there is one
		rw.Header().Set("Cache-Control", "public, max-age=30")
		writeJSON(rw, http.StatusOK, map[string]any{"x402Version": 2, "items": page,
			"pagination": map[string]int{"limit": limit, "offset": offset, "total": len(found)}})
	})
}

// pageNumber reads a number that may be left out; what is beyond every list is cut.
func pageNumber(text string, preset int) (n int, ok bool) {
	if text == "" {
		return preset, true
	}
	const most = 1 << 20
	n, err := strconv.Atoi(text)
	return min(n, most), err == nil && n >= 0
}

// isAbout reports whether an item is what was asked for; "" is anything.
func (l listed) isAbout(kind, network, scheme, payTo string) bool {
	if kind != "" && kind != l.Type {
		return false
	}
	return slices.ContainsFunc(l.about, func(r x402.Requirement) bool {
		isPayee := payTo == "" || r.PayTo == payTo || (strings.HasPrefix(payTo, "0x") &&
			strings.EqualFold(r.PayTo, payTo))
		return (network == "" || r.Network == network) && (scheme == "" || r.Scheme == scheme) && isPayee
	})
}

// resources are the items, in the order of the tools; the caller may change the list.
func (w *Paywall) resources(ctx context.Context) []listed {
	w.list.mu.Lock()
	defer w.list.mu.Unlock()
	if w.now().Before(w.list.until) {
		return slices.Clone(w.list.items)
	}
	var items []listed
	for _, said := range w.options.Tools {
		if item, ok := w.listed(ctx, w.tools[said.label()]); ok {
			items = append(items, item)
		}
	}
	w.list.items, w.list.until = items, w.now().Add(listFresh)
	return slices.Clone(items)
}

// listed is a tool as it is listed; false: it is not, or nobody can say now who settles it.
func (w *Paywall) listed(ctx context.Context, t *tool) (l listed, ok bool) {
	declared := t.declared.Load()
	if t.Free || declared == nil || t.Discovery.URL == "" {
		return l, false
	}
	l = listed{Resource: t.Discovery.URL, Type: "http", Version: 2, Description: t.Description,
		LastUpdated: w.now().UTC().Format(time.RFC3339), Extensions: map[string]json.RawMessage{
			extensionBazaar: *declared}}
	if t.Discovery.isMCP() {
		l.Type = "mcp"
	} else {
		l.MimeType = t.mimeType()
	}
	for _, o := range t.options {
		made, err := w.offer(ctx, t, o, t.Resource, []int{2})
		if err == nil && made.terms[2].Raw != nil && o.isX402() {
			l.Accepts, l.about = append(l.Accepts, made.terms[2].Raw), append(l.about, made.terms[2])
		}
	}
	return l, len(l.Accepts) > 0
}
