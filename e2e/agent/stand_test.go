package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall"
)

const (
	mill = sandbox.USDC / 1000
	cent = sandbox.USDC / 100
)

// validity is how long a payment to a stand is good: longer than any trial, but where the goods say so.
const validity = 60

// goods are something that a stand sells, honestly unless a field says otherwise. n counts from 1: the
// requests that came for them, or of answers the sales.
type goods struct {
	price    uint64 // atomic units; 0: free
	network  string // "": Base Sepolia
	content  string
	kind     string // its media type; "": text/plain
	validity int    // seconds; 0: validity

	answers   func(n int) string                           // the content, instead of content
	offers    func(n int, offer map[string]any)            // changes the offer
	instead   func(w http.ResponseWriter, r *http.Request) // all of it is answered so
	refuses   int                                          // so many payments, each however often it comes
	hesitates bool                                         // refuses each payment when it comes first
	breaks    int                                          // so many times after settling, and serves nothing
	lingers   time.Duration                                // between settling and serving
}

type sale struct {
	n                 int // of this path
	path, transaction string
	tries             int // to serve it
}

// stand is a trial's own place in the market: a seller with books of its own, settled on the sandbox's
// chains by its facilitator, at an address of its own.
type stand struct {
	world    *world
	prefix   string // of its paths
	onEVM    string // where it is paid
	onSolana string
	goods    map[string]goods
	mcp      http.Handler // its MCP server, at /mcp; nil: none

	mu      sync.Mutex
	asked   map[string]int
	sales   []*sale
	byHash  map[[sha256.Size]byte]*sale // by the payment, so that the same bytes are the same sale
	refused map[[sha256.Size]byte]bool
}

func (s *stand) url(path string) string { return s.world.shop + s.prefix + path }

func (s *stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, s.prefix)
	if path == "/mcp" && s.mcp != nil {
		s.mcp.ServeHTTP(w, r)
		return
	}
	g, known := s.goods[path]
	if !known {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	s.mu.Lock()
	s.asked[path]++
	n := s.asked[path]
	s.mu.Unlock()
	payment := r.Header.Get("PAYMENT-SIGNATURE")
	switch {
	case g.instead != nil:
		g.instead(w, r)
	case g.price == 0:
		g.serve(n, w)
	case payment == "":
		s.ask(w, g, n, path)
	default:
		s.sell(w, g, n, path, payment)
	}
}

func (g goods) serve(n int, w http.ResponseWriter) {
	content := g.content
	if g.answers != nil {
		content = g.answers(n)
	}
	kind := g.kind
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, content)
}

func (s *stand) offer(g goods, n int) map[string]any {
	network, payTo := sandbox.EVM, s.onEVM
	extra := map[string]any{"name": "USDC", "version": "2"}
	if g.network == sandbox.Solana {
		network, payTo, extra = g.network, s.onSolana, map[string]any{"feePayer": s.world.FeePayer}
	}
	lives := validity
	if g.validity != 0 {
		lives = g.validity
	}
	o := map[string]any{"scheme": "exact", "network": network, "amount": fmt.Sprint(g.price),
		"asset": s.world.token(network), "payTo": payTo, "maxTimeoutSeconds": lives, "extra": extra}
	if g.offers != nil {
		g.offers(n, o)
	}
	return o
}

func (s *stand) ask(w http.ResponseWriter, g goods, n int, path string) {
	text, _ := json.Marshal(map[string]any{"x402Version": 2, "error": "Payment required",
		"resource": map[string]any{"url": s.url(path), "description": "goods", "mimeType": "text/plain"},
		"accepts":  []any{s.offer(g, n)}})
	w.Header().Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString(text))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusPaymentRequired)
	_, _ = io.WriteString(w, "{}")
}

// sell takes a payment: settles it, or finds that it did before, and serves.
func (s *stand) sell(w http.ResponseWriter, g goods, n int, path, payment string) {
	text, err := base64.StdEncoding.DecodeString(payment)
	var read struct {
		Accepted json.RawMessage `json:"accepted"`
	}
	if err != nil || json.Unmarshal(text, &read) != nil {
		http.Error(w, "that is no payment", http.StatusBadRequest)
		return
	}
	made := s.collect(g, text, read.Accepted, path)
	if made == nil {
		s.ask(w, g, n, path)
		return
	}
	var terms struct{ Network string }
	_ = json.Unmarshal(read.Accepted, &terms)
	receipt, _ := json.Marshal(map[string]any{"success": true, "transaction": made.transaction,
		"network": terms.Network})
	w.Header().Set("PAYMENT-RESPONSE", base64.StdEncoding.EncodeToString(receipt))
	time.Sleep(g.lingers)
	s.mu.Lock()
	made.tries++
	breaks := made.tries <= g.breaks
	s.mu.Unlock()
	if breaks {
		http.Error(w, "the printer is on fire", http.StatusInternalServerError)
		return
	}
	g.serve(made.n, w)
}

// collect settles a payment and enters the sale, once for the same payment; nil: it was refused.
func (s *stand) collect(g goods, payment, terms []byte, path string) *sale {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := sha256.Sum256(payment)
	made := s.byHash[hash]
	if made != nil {
		return made
	}
	refusedBefore := s.refused[hash]
	if refusedBefore != g.hesitates || len(s.refused) < g.refuses {
		s.refused[hash] = true
		return nil
	}
	transaction, why := s.world.settle(payment, terms)
	if why != "" {
		return nil
	}
	made = &sale{n: 1, path: path, transaction: transaction}
	for _, before := range s.sales {
		if before.path == path {
			made.n++
		}
	}
	s.byHash[hash], s.sales = made, append(s.sales, made)
	return made
}

func (w *world) settle(payment, terms []byte) (transaction, why string) {
	submission := fmt.Appendf(nil, `{"x402Version":2,"paymentPayload":%s,"paymentRequirements":%s}`,
		payment, terms)
	var done struct {
		Success                  bool
		Transaction, ErrorReason string
	}
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Post(w.FacilitatorURL+"/settle", "application/json", bytes.NewReader(submission))
	if err != nil {
		return "", err.Error()
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&done); err != nil || !done.Success {
		return "", "refused: " + done.ErrorReason
	}
	return done.Transaction, ""
}

type tool struct {
	name  string
	price string // dollars; "": free
	says  string
}

// sells makes a paid MCP server with the wallet's own paywall: a tool that fails settles nothing.
func (w *world) sells(t *testing.T, at *stand, tools []tool) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	var priced []paywall.Tool
	for _, one := range tools {
		if one.price != "" {
			priced = append(priced, paywall.Tool{Name: one.name, Accepts: []paywall.Option{
				{Network: sandbox.EVM, PayTo: at.onEVM, Price: one.price}}})
		}
		schema := map[string]any{"type": "object", "required": []string{"city"},
			"properties": map[string]any{"city": map[string]any{"type": "string"}}}
		server.AddTool(&mcp.Tool{Name: one.name, Description: "Weather of a city", InputSchema: schema},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ City string }
				_ = json.Unmarshal(r.Params.Arguments, &in)
				if in.City == "" {
					return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{
						&mcp.TextContent{Text: "the argument city is missing"}}}, nil
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: one.says}}}, nil
			})
	}
	wall := must.Get(paywall.New(paywall.Options{Tools: priced, Store: testworld.NewBook(t, t.TempDir()),
		Facilitators: facilitator.New(facilitator.Options{
			List: []facilitator.Facilitator{{Name: "sandbox", URL: w.FacilitatorURL}}})}))(t)
	wall.Protect(server)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}
