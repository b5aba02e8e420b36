package tools

import (
	"cmp"
	"encoding/json"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/report"
	"x402-wallet/internal/formtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/seller"
)

type asker struct {
	*client
	era   string
	forms any    // the capability
	tool  string // "": x402_pay
}

// askingEras are protocols of both ways to ask.
var askingEras = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

func serveAsker(t *testing.T, s *Server, era string, forms any) *asker {
	if era < stateless {
		return &asker{client: serveAs(t, s, era, capabilities(forms)), era: era, forms: forms}
	}
	return &asker{client: connect(t, s), era: era, forms: forms}
}

func capabilities(forms any) map[string]any {
	if forms == nil {
		return map[string]any{}
	}
	return map[string]any{"elicitation": forms}
}

type wireMessage struct {
	ID             json.RawMessage
	Method         string
	Params, Result json.RawMessage
	Error          *struct{ Message string }
}

func (c *asker) next() (m wireMessage) {
	c.t.Helper()
	require.NoError(c.t, json.Unmarshal([]byte(c.hear()), &m))
	return m
}

type toolResult struct {
	IsError           bool
	ResultType        string
	StructuredContent json.RawMessage
	RequestState      string
	InputRequests     map[string]struct {
		Method string
		Params question
	}
}

type question struct {
	Mode, Message      string
	RequestedSchema    json.RawMessage
	URL, ElicitationID string
}

// start makes a call, with what belongs to its era.
func (c *asker) start(arguments any, more map[string]any) {
	c.client.next++
	params := map[string]any{"name": cmp.Or(c.tool, payName), "arguments": arguments}
	if c.era >= stateless {
		params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": c.era,
			"io.modelcontextprotocol/clientCapabilities": capabilities(c.forms),
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"}}
	}
	for key, value := range more {
		params[key] = value
	}
	c.send(map[string]any{"jsonrpc": "2.0", "id": c.client.next, "method": "tools/call", "params": params})
}

func (c *asker) result() (r toolResult) {
	c.t.Helper()
	m := c.next()
	require.Nil(c.t, m.Error, "%v", m.Error)
	require.Empty(c.t, m.Method)
	require.NoError(c.t, json.Unmarshal(m.Result, &r))
	return r
}

// pay makes a call to whose question the person answers; answer is what they do, and what happens
// meanwhile is in between.
func (c *asker) pay(arguments any, action string, meanwhile func()) (asked question, r toolResult) {
	c.t.Helper()
	q := c.startAsking(arguments)
	meanwhile()
	c.answers(arguments, q, action)
	return q.question, c.result()
}

type waiting struct {
	question
	id    json.RawMessage // of elicitation/create
	state string
}

func (c *asker) startAsking(arguments any) waiting {
	c.t.Helper()
	c.start(arguments, nil)
	return c.hearQuestion()
}

func (c *asker) hearQuestion() (q waiting) {
	c.t.Helper()
	if c.era < stateless {
		m := c.next()
		require.Equal(c.t, "elicitation/create", m.Method, "%s", m.Result)
		require.NoError(c.t, json.Unmarshal(m.Params, &q.question))
		q.id = m.ID
		return q
	}
	r := c.result()
	require.Equal(c.t, "input_required", r.ResultType, "%s", r.StructuredContent)
	require.Equal(c.t, "elicitation/create", r.InputRequests[questionID].Method)
	q.question, q.state = r.InputRequests[questionID].Params, r.RequestState
	return q
}

func (c *asker) answers(arguments any, q waiting, action string) {
	answer := map[string]any{"action": action}
	if action == "accept" && q.Mode == "form" {
		answer["content"] = formtest.Content(q.Message)
	}
	c.replies(arguments, q, answer)
}

func (c *asker) replies(arguments any, q waiting, answer map[string]any) {
	if c.era < stateless {
		c.send(map[string]any{"jsonrpc": "2.0", "id": q.id, "result": answer})
		return
	}
	c.start(arguments, map[string]any{"requestState": q.state,
		"inputResponses": map[string]any{questionID: answer}})
}

func (r toolResult) code(t *testing.T) (f Failure) {
	t.Helper()
	require.True(t, r.IsError, "%s", r.StructuredContent)
	require.NoError(t, json.Unmarshal(r.StructuredContent, &f))
	return f
}

func askingWorld(t *testing.T) *world {
	w := richWorld(t)
	w.wallet.Engine.Rules.ApproveAbove = 0
	return w
}

func nothing() {}

type fickle struct {
	url  string
	path atomic.Value
}

func (w *world) front(t *testing.T) *fickle {
	f := &fickle{}
	f.path.Store("/weather")
	upstream := must.Get(url.Parse(w.SellerURL))(t)
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		r.Out.URL.Path = f.path.Load().(string)
	}})
	t.Cleanup(front.Close)
	f.url = front.URL + "/"
	w.wallet.Engine.Transport = seller.New(seller.Options{Loopback: append(w.Loopback,
		strings.TrimPrefix(front.URL, "http://"))})
	return f
}

// One flow, in every era: accepting pays, once; declining does not; no answer leaves the command line.
func TestApprovalInEveryEra(t *testing.T) {
	for _, era := range askingEras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			arguments := map[string]any{"url": w.SellerURL + "/weather"}

			asked, r := c.pay(arguments, "decline", nothing)
			require.Equal(t, "form", asked.Mode)
			require.JSONEq(t, `{"type":"object","required":["price"],"properties":{"price":{"type":"string",`+
				`"title":"Price","description":"To approve it, type $0.001"}}}`, string(asked.RequestedSchema))
			host := strings.TrimPrefix(w.SellerURL, "http://")
			for _, part := range []string{`Pay $0.001 to "` + host + `"?`, `Payee: "` + w.PayToEVM +
				`" on Base Sepolia (eip155:84532), 1000 atomic units of USDC`,
				`For: GET "` + w.SellerURL + `/weather"`,
				"the price $0.001 is above what is paid without asking, $0.00",
				"Left before this payment: $5.00 of $5.00 for the session, $10.00 of $10.00 for the day"} {
				require.Contains(t, asked.Message, part)
			}
			f := r.code(t)
			require.EqualValues(t, "APPROVAL_DECLINED", f.Error)
			require.EqualValues(t, "person", f.FixedBy)
			require.Zero(t, w.Signatures())

			_, r = c.pay(arguments, "cancel", nothing)
			f = r.code(t)
			require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
			require.Contains(t, f.Hint, "x402-wallet approve apr_")
			require.Zero(t, w.Signatures())

			_, r = c.pay(arguments, "accept", nothing)
			require.False(t, r.IsError, "%s", r.StructuredContent)
			require.Equal(t, "paid", must.JSON[struct{ Status string }](r.StructuredContent)(t).Status)
			require.Len(t, w.Settlements(), 1)

			for _, query := range []string{"?again", "?and=again"} {
				_, r = c.pay(map[string]any{"url": w.SellerURL + "/weather" + query}, "decline", nothing)
				require.EqualValues(t, "APPROVAL_DECLINED", r.code(t).Error)
			}
			for _, query := range []string{"", "?again", "?and=again", "?please"} {
				c.start(map[string]any{"url": w.SellerURL + "/weather" + query}, nil)
				f = c.result().code(t)
				require.EqualValues(t, "APPROVAL_DECLINED", f.Error, "who said no twice is left alone")
				require.Contains(t, f.Message, "nobody is asked again before")
				require.NotContains(t, f.Hint+f.Message, "x402-wallet approve")
			}
			require.Len(t, w.Settlements(), 1)
		})
	}
}

// Who cannot be asked is refused, with the person's command.
func TestNobodyToApprove(t *testing.T) {
	for _, era := range askingEras {
		for name, forms := range map[string]any{"no elicitation": nil,
			"only URLs": map[string]any{"url": map[string]any{}}} {
			t.Run(era+" "+name, func(t *testing.T) {
				w := askingWorld(t)
				c := serveAsker(t, w.server(), era, forms)
				c.start(map[string]any{"url": w.SellerURL + "/weather"}, nil)
				f := c.result().code(t)
				require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
				require.Contains(t, f.Details["command"], "x402-wallet approve apr_")
				require.Zero(t, w.Signatures())
			})
		}
	}
}

// Accepting what the owner denied meanwhile, or to terms that the seller changed meanwhile, is none.
func TestMeanwhile(t *testing.T) {
	for _, era := range askingEras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			_, r := c.pay(map[string]any{"url": w.SellerURL + "/weather"}, "accept", func() {
				list := must.Get(report.OpenApprovals(t.Context(), w.wallet.Store))(t)
				must.Get(w.wallet.Store.Deny(t.Context(), list[0].ID, "owner"))(t)
			})
			require.EqualValues(t, "APPROVAL_REQUIRED", r.code(t).Error)

			front := w.front(t)
			_, r = c.pay(map[string]any{"url": front.url}, "accept", func() { front.path.Store("/report") })
			require.EqualValues(t, "PRICE_CHANGED", r.code(t).Error)

			_, r = c.pay(map[string]any{"url": w.SellerURL + "/report?frozen"}, "accept", func() {
				require.NoError(t, w.wallet.Store.Freeze(t.Context(),
					history.Freeze{By: "owner", Why: "stop"}))
			})
			require.EqualValues(t, "WALLET_FROZEN", r.code(t).Error)
			require.Zero(t, w.Signatures())
		})
	}
}

// A question's state that was changed, belongs to another call, was used or comes from
// elsewhere is no answer.
func TestStatesAreSealed(t *testing.T) {
	w := askingWorld(t)
	c := serveAsker(t, w.server(), "2026-07-28", map[string]any{})
	arguments := map[string]any{"url": w.SellerURL + "/weather"}
	accepted := map[string]any{}
	ask := func() string {
		q := c.startAsking(arguments)
		accepted[questionID] = map[string]any{"action": "accept", "content": formtest.Content(q.Message)}
		return q.state
	}
	state := ask()
	for i := 0; i < len(state); i += 7 {
		changed := []byte(state)
		changed[i] ^= 1
		c.start(arguments, map[string]any{"requestState": string(changed), "inputResponses": accepted})
		require.EqualValues(t, "APPROVAL_REQUIRED", c.result().code(t).Error, "byte %d", i)
	}
	other := newStates().seal(pending{ID: "apr_x", Call: digest(payName, PayIn{}),
		Until: time.Now().Add(time.Hour)})
	list := must.Get(report.OpenApprovals(t.Context(), w.wallet.Store))(t)
	for name, more := range map[string]map[string]any{
		"no state":           {"inputResponses": accepted},
		"the approval's id":  {"requestState": list[0].ID, "inputResponses": accepted},
		"of another process": {"requestState": other, "inputResponses": accepted},
		"of another call": {"requestState": state, "inputResponses": accepted,
			"arguments": map[string]any{"url": w.SellerURL + "/report"}},
		"no answer": {"requestState": state},
		"another answer": {"requestState": state,
			"inputResponses": map[string]any{"approved": map[string]any{"action": "accept"}}},
		"an odd answer": {"requestState": state,
			"inputResponses": map[string]any{questionID: map[string]any{"action": "ACCEPT",
				"content": map[string]any{"approve": true}}}},
		"not an elicitation": {"requestState": state,
			"inputResponses": map[string]any{questionID: map[string]any{"roots": []any{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.start(arguments, more)
			require.EqualValues(t, "APPROVAL_REQUIRED", c.result().code(t).Error, name)
		})
	}
	require.Zero(t, w.Signatures())

	answered := map[string]any{"requestState": state, "inputResponses": accepted}
	c.start(arguments, answered)
	require.False(t, c.result().IsError)
	for range 2 {
		c.start(arguments, answered)
		require.EqualValues(t, "APPROVAL_REQUIRED", c.result().code(t).Error, "used")
	}
	require.Len(t, w.Settlements(), 1)
}

func TestStatesExpire(t *testing.T) {
	w := askingWorld(t)
	s := w.server()
	c := serveAsker(t, s, "2026-07-28", map[string]any{})
	arguments := map[string]any{"url": w.SellerURL + "/weather"}
	c.start(arguments, nil)
	state := c.result().RequestState
	asked, ok := s.states.open(state)
	require.True(t, ok)
	require.WithinDuration(t, time.Now().Add(questionTimeout), asked.Until, 10*time.Second)
	asked.Until = time.Now()
	late := s.states.seal(asked)
	c.start(arguments, map[string]any{"requestState": late,
		"inputResponses": map[string]any{questionID: map[string]any{"action": "accept"}}})
	require.EqualValues(t, "APPROVAL_REQUIRED", c.result().code(t).Error)
	require.Zero(t, w.Signatures())
}

// What a seller or an agent wrote cannot make up lines of the question, or drive what shows it.
func TestTheQuestionIsOurs(t *testing.T) {
	w := askingWorld(t)
	a := must.Get(asking.Asker{Store: w.wallet.Store}.AskApproval(t.Context(), history.Approval{
		Host:  "evil\nPay $0",
		PayTo: "0x\u202eabc\x1b[2J", Method: "GET",
		URL:     "https://x.example/" + strings.Repeat("long", 1000) + "\nYou are asked because it is free.",
		Network: sandbox.EVM, Why: "why", Agent: "ann"}))(t)
	lines, _, err := w.server().terms(t.Context(), a.ID)
	require.NoError(t, err)
	message := strings.Join(lines, "\n")
	require.Len(t, strings.Split(message, "\n"), 5)
	require.Contains(t, message, "\nThe agent ann asks for it. You are asked because why.\n")
	require.Less(t, len(message), 1000)
	for _, r := range message {
		require.True(t, r == '\n' || (r >= ' ' && r <= '~') || r == '…', "%q", r)
	}
}

// A person who approves a payment of a locked wallet unlocks it next, and is not asked about the
// payment again.
func TestApproveAndUnlock(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			var asked []string
			_, client, w, forms := lockedServer(t, era, func(t *testing.T, page string) string {
				asked = append(asked, page)
				if page == "" {
					return "accept"
				}
				go func() { _ = types(t, page, url.Values{"passphrase": {"correct horse"}}) }()
				return "accept"
			})
			w.wallet.Engine.Rules.ApproveAbove = 0
			require.Equal(t, "paid", payLocked(t, client, w)["status"])
			require.Len(t, *forms, 2)
			require.Equal(t, []string{"form", "url"}, []string{(*forms)[0].Mode, (*forms)[1].Mode})
			require.Len(t, w.Settlements(), 1)
		})
	}
}

// A form that is accepted without its price, as by a host that accepts every form, approves nothing.
func TestApproval_PriceIsTyped(t *testing.T) {
	for i, content := range []map[string]any{nil, {}, {"price": ""}, {"price": "yes"}, {"price": true},
		{"price": "$0.002"}, {"price": 0.001}, {"price": "0.01"}, {"approve": "$0.001"}, {"price": " 0.001 "},
		{"price": "$0.001"}} {
		for _, era := range eras {
			w := askingWorld(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			arguments := map[string]any{"url": w.SellerURL + "/weather"}
			q := c.startAsking(arguments)
			c.replies(arguments, q, map[string]any{"action": "accept", "content": content})
			r := c.result()
			if i >= 9 {
				require.False(t, r.IsError, content)
				require.Equal(t, 1, w.Signatures())
				continue
			}
			f := r.code(t)
			require.EqualValues(t, "APPROVAL_REQUIRED", f.Error, content)
			require.NotEmpty(t, f.Next.Command, "the other way to approve it")
			require.Zero(t, w.Signatures(), content)
		}
	}
}
