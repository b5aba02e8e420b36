package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// ManyIn is what x402_pay_many takes.
type ManyIn struct {
	Requests       []ManyRequest `json:"requests" jsonschema:"each as in x402_pay"`
	MaxAmount      string        `json:"maxAmount" jsonschema:"for all"`
	IdempotencyKey string        `json:"idempotencyKey,omitempty"`
}

// ManyRequest is one of them: an x402_pay without a key of its own.
type ManyRequest struct {
	URL        string            `json:"url"`
	Method     string            `json:"method,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       string            `json:"body,omitempty"`
	BodyBase64 string            `json:"bodyBase64,omitempty"`
	MaxAmount  string            `json:"maxAmount,omitempty"`
	Network    string            `json:"network,omitempty"`
	Asset      string            `json:"asset,omitempty"`
}

func (ManyIn) shape(s *jsonschema.Schema) {
	p := s.Properties
	most := pay.MaxMany
	p["requests"].MaxItems = &most
	// x402_pay says what there is; every byte of a schema is read by a model each time
	p["requests"].Items = &jsonschema.Schema{Type: "object"}
}

const manyName = "x402_pay_many"

const manyDescription = `Get up to 100 URLs as x402_pay does, under one maxAmount and one yes: ` +
	`all are held or nothing is bought, then each is bought or not. Repeating buys what is missing.`

// ManyOut is what became of a batch.
type ManyOut struct {
	Rows []json.RawMessage `json:"rows"` // each as x402_pay's answer or error, with its url
	// how many were served, replayed ones included, and how many not
	Served int           `json:"served"`
	Failed int           `json:"failed"`
	Spent  money.Dollars `json:"spent"` // by this call, what is held included
	Repeat string        `json:"repeat,omitempty"`
	Next   x402.Next     `json:"next"`

	Bought pay.Bought `json:"-"`
}

// about is what a row says before its answer.
type about struct {
	URL    string `json:"url"`
	SameAs *int   `json:"sameAs,omitempty"` // the row whose purchase it is, too
}

// MaxContents is how much content the rows of a batch have together, in bytes; what is longer is cut as
// evenly as it can be, and x402_history has the rest.
const MaxContents = 64 << 10

// PayMany makes a batch of purchases. Its error is an *x402.Error, and says that nothing was bought.
func (w *Wallet) PayMany(ctx context.Context, in ManyIn) (ManyOut, error) {
	q := pay.Many{MaxAmount: in.MaxAmount, IdempotencyKey: in.IdempotencyKey}
	if in.MaxAmount == "" {
		return ManyOut{}, x402.AsError(missing("maxAmount")).
			WithHint(`say what all of it may cost together, like "$0.50"`)
	}
	for i, r := range in.Requests {
		one, err := PayIn{URL: r.URL, Method: r.Method, Headers: r.Headers, Body: r.Body,
			BodyBase64: r.BodyBase64, MaxAmount: r.MaxAmount, Network: r.Network, Asset: r.Asset}.request(w)
		if err != nil {
			coded := x402.AsError(err)
			coded.Message = fmt.Sprintf("request %d: %s", i+1, coded.Message)
			return ManyOut{}, coded.WithDetail("request", i)
		}
		q.Requests = append(q.Requests, one)
	}
	b, err := w.Engine.PayMany(ctx, q)
	if err != nil {
		return ManyOut{}, err
	}
	return shownMany(b), nil
}

// shownMany are the rows as the outside sees them.
func shownMany(b pay.Bought) ManyOut {
	out := ManyOut{Rows: []json.RawMessage{}, Spent: b.Spent, Repeat: b.Repeat, Bought: b,
		Next: x402.Next{Do: x402.Done}}
	most := evenly(b.Rows)
	for _, row := range b.Rows {
		of := about{URL: row.URL}
		if row.SameAs >= 0 {
			of.SameAs = &row.SameAs
		}
		var shown any
		switch r := row.Result; {
		case row.Err != nil:
			out.Failed++
			shown = struct {
				about
				Failure
			}{of, ErrorOf(row.Err)}
		default:
			if r.Status == pay.StatusUnserved || r.Status == pay.StatusNotPaid {
				out.Failed++
			} else {
				out.Served++
			}
			r.Shorten(most)
			if row.SameAs >= 0 {
				r.Content, r.ContentBegin, r.ContentEnd, r.ContentTruncated = "", "", "", r.ContentLength > 0
				r.Next = x402.Next{Do: x402.Done, Why: fmt.Sprintf("the content is in row %d", row.SameAs)}
			}
			shown = struct {
				about
				pay.Result
			}{of, r}
		}
		out.Rows = append(out.Rows, sure(encode(shown)))
	}
	switch {
	case !b.Complete:
		out.Next = x402.Next{Do: x402.Repeat, Why: "it buys what is missing, and nothing twice; each row's " +
			"own next says what stands in its way"}
	case out.Failed > 0:
		out.Next = x402.Next{Do: x402.Change, Why: "the rows that failed say in their next what would help"}
	}
	return out
}

// evenly is how long a content may be that all of a batch's contents together stay within MaxContents.
func evenly(rows []pay.Outcome) int {
	var lengths []int
	for _, row := range rows {
		if row.SameAs < 0 {
			lengths = append(lengths, len(row.Result.Content))
		}
	}
	slices.Sort(lengths)
	left := MaxContents
	for i, length := range lengths {
		share := left / (len(lengths) - i)
		if length > share {
			return share
		}
		left -= length
	}
	return MaxContents
}

func (s *Server) addMany(t *mcp.Tool) {
	s.buyers.Store(t.Name, true)
	t.Meta = longAnswers()
	register[ManyIn, ManyOut](s, t, func(ctx context.Context, request *mcp.CallToolRequest,
		in ManyIn) *mcp.CallToolResult {
		ctx, done := s.progress(ctx, request)
		defer done()
		ctx = pay.OnStage(ctx, func(pay.Stage, history.Payment) {}) // of so many only their ends are told
		return s.approving(ctx, request, digest(t.Name, in), newFees(), func() (*mcp.CallToolResult, error) {
			return s.buyMany(ctx, request, in)
		})
	})
}

func (s *Server) buyMany(ctx context.Context, request *mcp.CallToolRequest, in ManyIn) (*mcp.CallToolResult,
	error) {
	var out ManyOut
	began := time.Now()
	w, done, err := s.Wallet(ctx)
	if err == nil {
		defer done()
		out, err = w.PayMany(ctx, in)
	}
	if err != nil {
		s.counted(ctx, began, pay.Result{}, err)
		s.addPage(err)
		return s.result(request, nil, err), err
	}
	for _, row := range out.Bought.Rows {
		if row.SameAs < 0 {
			s.counted(ctx, began, row.Result, row.Err)
		}
	}
	given := s.result(request, out, nil)
	ends := out.Bought.WithoutContents()
	s.onEnd(ctx, func(w *Wallet, delivered bool) {
		if delivered {
			w.Engine.DeliveredMany(context.Background(), ends)
		} else {
			w.Engine.LostMany(context.Background(), ends)
		}
	})
	return given, nil
}
