package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"x402-wallet/internal/ownfile"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// A directory of MPP is a list of services, each with its endpoints and their prices, as
// https://mpp.dev/api/services answers. The format is tempoxyz/mpp's schemas/discovery.schema.json
// (2f8740e5); the fields that the generated list really has are in scripts/generate-discovery.ts. Read by
// mppx 0.11 (src/cli/cli.ts) and tempoxyz/wallet, too:
//
//	{"version": 1, "services": [{"id", "name", "serviceUrl", "description", "categories", "tags", "status",
//	  "methods": {"tempo": {"intents": ["charge"], "assets": ["0x…"]}},
//	  "endpoints": [{"method": "POST", "path": "/v1/x/:id", "description", "docs",
//	    "payment": {"intent", "method", "currency", "decimals", "amount" | "dynamic" and "amountHint"}}]}]}
//
// An endpoint whose payment is null is free.

const (
	maxDirectory = 4 << 20 // of 141 services with 1,449 endpoints, on 2026-08-21: 0.8 MB
	maxServices  = 1000
	maxEndpoints = 250 // of one service: the most are 107
)

// directory makes a place that a list is read from: a URL, or file:// and a full path.
func directory(at string) *remote {
	name := path.Base(at)
	if u, err := url.Parse(at); err == nil && u.Host != "" {
		name = u.Host
	}
	return &remote{Facilitator: Facilitator{Name: name, URL: at}, isDirectory: true}
}

// services reads a directory.
func (c *Client) services(ctx context.Context, f *remote) ([]Listing, error) {
	if file, isFile := strings.CutPrefix(f.URL, "file://"); isFile {
		text, _, err := ownfile.Read(file, maxDirectory)
		if err != nil {
			return nil, errors.New("its file cannot be read")
		}
		return readDirectory(text)
	}
	r := c.exchange(ctx, f, http.MethodGet, "", nil, nil)
	switch {
	case r.err != nil:
		return nil, r.err
	case r.status != http.StatusOK:
		return nil, fmt.Errorf("status %d", r.status)
	}
	return readDirectory(r.body)
}

// readDirectory reads the frame leniently and each service strictly, as readPage does.
func readDirectory(text []byte) (all []Listing, err error) {
	var answer struct {
		Version  int               `json:"version"`
		Services []json.RawMessage `json:"services"`
	}
	if json.Unmarshal(text, &answer) != nil || answer.Version != 1 || answer.Services == nil {
		return nil, errors.New("it is no list of services of MPP (version 1)")
	}
	for i, raw := range answer.Services[:min(len(answer.Services), maxServices)] {
		all = append(all, readService(raw, i+1)...)
	}
	return all, nil
}

var listedMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodHead, http.MethodOptions}

// listedService is a service, as far as it is read.
type listedService struct {
	Name        string   `json:"name"`
	ServiceURL  string   `json:"serviceUrl"`
	Description string   `json:"description"`
	Categories  []string `json:"categories"`
	Tags        []string `json:"tags"`
	Status      string   `json:"status"`
	Methods     map[string]struct {
		Intents []string `json:"intents"`
	} `json:"methods"`
	Endpoints []json.RawMessage `json:"endpoints"`
}

// listedEndpoint is an endpoint, as far as it is read. Without a payment it is free.
type listedEndpoint struct {
	Method      string `json:"method"`
	Path        string `json:"path"`
	Description string `json:"description"`
	Docs        string `json:"docs"`
	Payment     *struct {
		wire.Offer
		Dynamic    bool   `json:"dynamic"` // the amount is at most a least one
		AmountHint string `json:"amountHint"`
	} `json:"payment"`
}

// readService reads the paid endpoints of a service. There are none where it is none that could be used.
func readService(raw json.RawMessage, number int) (list []Listing) {
	var s listedService
	if x402.DecodeStrict(raw, x402.MaxBody, &s) != nil || !isWeb(s.ServiceURL) ||
		strings.ContainsAny(s.ServiceURL, "?#") || s.Status == "deprecated" || s.Status == "maintenance" {
		return nil
	}
	about := strings.Join(slices.Concat([]string{s.Name, s.Description}, s.Categories, s.Tags), " ")
	for _, raw := range s.Endpoints[:min(len(s.Endpoints), maxEndpoints)] {
		var e listedEndpoint
		err := x402.DecodeStrict(raw, x402.MaxBody, &e)
		at := strings.TrimRight(s.ServiceURL, "/") + e.Path
		isUsable := slices.Contains(listedMethods, e.Method) && isListable(at)
		if err != nil || e.Payment == nil || !strings.HasPrefix(e.Path, "/") || !isUsable {
			continue
		}
		l := Listing{URL: at, Type: "http", Method: e.Method, Description: s.Name + ": " + e.Description,
			Service: number, about: about, Offers: s.offers(e)}
		if e.Payment.AmountHint != "" {
			l.Description += " (" + e.Payment.AmountHint + ")"
		}
		call := map[string]string{"method": e.Method}
		if isWeb(e.Docs) && isListable(e.Docs) {
			call["docs"] = e.Docs
		}
		l.InputSchema, _ = json.Marshal(call)
		list = append(list, l)
	}
	return list
}

// offers are an endpoint's own, and the other methods by which the service takes the same.
func (s listedService) offers(e listedEndpoint) []wire.Offer {
	own := e.Payment.Offer
	if e.Payment.Dynamic {
		own.Amount = ""
	}
	list := []wire.Offer{own}
	for _, method := range slices.Sorted(maps.Keys(s.Methods)) {
		isOther := method != own.Method && slices.Contains(s.Methods[method].Intents, own.Intent)
		if isOther && len(list) < x402.MaxAccepts {
			list = append(list, wire.Offer{Method: method, Intent: own.Intent})
		}
	}
	return list
}
