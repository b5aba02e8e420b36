package nuwa

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/locks"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/wallet"
	"x402-wallet/wallet/nuwa"
	"x402-wallet/wallet/owner"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// fakeService is a strict one, of ours: it verifies every signature, where the npm server takes
// wrong ones. Its way to the wallet is a Transport that speaks as an MCP server and as an HTTP
// service do.
type fakeService struct {
	t     *testing.T
	chain *chain
	me    account
	base  string

	mu                       sync.Mutex
	used                     map[string]bool // nonces of authorizations
	pending                  *subRAV         // proposed, not signed yet
	stored                   *signedSubRAV   // the last verified SubRAV
	calls                    []string        // tools that ran
	asked                    []string        // at which URLs, for tools
	given                    []signedSubRAV  // every SubRAV that came
	wellKnown, saysDiscovery string

	twist func(p map[string]any) // spoils an answer
	lose  bool                   // serves, and its answer is lost
	fail  string                 // an error instead of an answer
	bad   bool                   // tools fail on their own, and cost nothing
}

const price = 10_000_000 // units: $0.001

func (s *fakeService) info() string {
	return fmt.Sprintf(`{"version":1,"serviceId":"fake","serviceDid":%q,"network":"local",`+
		`"defaultAssetId":"0x3::gas_coin::RGas","basePath":%q,"more":[1]}`, s.me.did(), s.base)
}

func (s *fakeService) Check(seller.Request) error { return nil }

func (s *fakeService) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	at := must.Get(url.Parse(r.URL))(s.t)
	switch {
	case at.Path == wellKnownPath && s.wellKnown == "":
		return &seller.Answer{Status: http.StatusNotFound}, nil
	case at.Path == wellKnownPath:
		return &seller.Answer{Status: http.StatusOK, Content: []byte(s.wellKnown)}, nil
	case r.Method == seller.CallTool:
		before, _, _ := strings.Cut(r.URL, "#")
		s.asked = append(s.asked, before)
		return s.tool(at.Fragment, r.Body)
	case strings.HasPrefix(at.Path, "/payment-channel/"):
		return s.route(strings.TrimPrefix(at.Path, "/payment-channel"), r)
	}
	return nil, errors.New("the wallet asks for something else")
}

func (s *fakeService) Present(_ context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	require.Equal(s.t, paymentHeader, with.Header)
	text := must.Get(unMultibase(with.Value))(s.t)
	at := must.Get(url.Parse(r.URL))(s.t)
	if at.Path == "/payment-channel/recovery" {
		s.carried(text)
		return s.route("/recovery", r)
	}
	out, err := s.serve(strings.TrimPrefix(at.Path, "/api"), r.Header.Get("Authorization"), text)
	if err != nil {
		return nil, &seller.SendError{Sent: true, Err: x402.Errorf(x402.NetworkError, "%w", err)}
	}
	a := &seller.Answer{Status: http.StatusOK, Content: []byte(`{"echo":"1"}`),
		ContentType: "application/json", Header: http.Header{}}
	if out != nil {
		if _, bad := out["error"]; bad {
			a.Status = http.StatusPaymentRequired
		}
		text, _ := json.Marshal(out)
		a.Header.Set(paymentHeader, multibase(text))
	}
	return a, nil
}

func (s *fakeService) route(route string, r seller.Request) (*seller.Answer, error) {
	if known := s.authorized(r.Header.Get("Authorization"), opHTTP) == nil; !known {
		return &seller.Answer{Status: http.StatusInternalServerError,
			Content: []byte(`{"error":"Payment processing failed"}`)}, nil
	}
	data := s.recovery()
	switch {
	case route == "/commit":
		data = []byte(`{"success":false}`)
	case strings.HasPrefix(route, "/subrav"):
		data = s.query()
	}
	return &seller.Answer{Status: http.StatusOK, Content: []byte(`{"success":true,"data":` + string(data) +
		`}`)}, nil
}

func (s *fakeService) tool(name string, body []byte) (*seller.Answer, error) {
	q := must.JSON[struct {
		Auth    string          `json:"__nuwa_auth"`
		Payment json.RawMessage `json:"__nuwa_payment"`
		SubRAV  signedSubRAV    `json:"subRav"`
	}](body)(s.t)
	text := func(v []byte) (*seller.Answer, error) {
		content, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text",
			"text": string(v)}}})
		return &seller.Answer{Status: http.StatusOK, Content: content,
			ContentType: "application/vnd.mcp.result+json"}, nil
	}
	switch name {
	case toolDiscovery:
		if s.saysDiscovery == "" {
			return nil, x402.Errorf(x402.ToolNotFound, "no such tool")
		}
		return text([]byte(s.saysDiscovery))
	case toolRecovery, toolCommit:
		if err := s.authorized(q.Auth, opTool); err != nil {
			return nil, err
		}
		if name == toolRecovery {
			s.carried(q.Payment)
			return text(s.recovery())
		}
		return text([]byte(`{"success":false}`)) // as 0.7.0
	case toolQuery:
		if err := s.authorized(q.Auth, opTool); err != nil {
			return nil, err
		}
		return text(s.query())
	}
	out, err := s.serve(name, q.Auth, q.Payment)
	if err != nil {
		return nil, x402.Errorf(x402.NetworkError, "the connection broke: %w", err)
	}
	items := []any{map[string]string{"type": "text", "text": `{"echo":"1"}`}}
	if out != nil {
		frame, _ := json.Marshal(out)
		if _, bad := out["error"]; bad {
			items = nil
		}
		items = append(items, map[string]any{"type": "resource",
			"resource": map[string]any{"uri": resourceURI, "mimeType": resourceType, "text": string(frame)}})
	}
	content, _ := json.Marshal(map[string]any{"content": items})
	answer := &seller.Answer{Status: http.StatusOK, Content: content,
		ContentType: "application/vnd.mcp.result+json"}
	if s.bad {
		answer.Status, answer.ToolFailed = http.StatusInternalServerError, true
	}
	return answer, nil
}

// authorized verifies a DIDAuthV1, whose nonce is good once.
func (s *fakeService) authorized(token, operation string) error {
	text, ok := strings.CutPrefix(token, "DIDAuthV1 u")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var a authObject
	if !ok || err != nil || json.Unmarshal(raw, &a) != nil {
		return errors.New("no DIDAuthV1")
	}
	signer := parse(s.t, a.Signature.SignerDID)
	s.chain.mu.Lock()
	i := slices.IndexFunc(s.chain.keys[signer], func(k Key) bool {
		return a.Signature.KeyID == a.Signature.SignerDID+"#"+k.Fragment
	})
	var key Key
	if i >= 0 {
		key = s.chain.keys[signer][i]
	}
	s.chain.mu.Unlock()
	signature := must.Get(unMultibase(a.Signature.Value))(s.t)
	require.False(s.t, s.used[a.SignedData.Nonce], "an authorization is used twice")
	s.used[a.SignedData.Nonce] = true
	age := time.Since(time.Unix(a.SignedData.Timestamp, 0)).Abs()
	if a.SignedData.Operation != operation || age > 5*time.Minute ||
		!nuwa.VerifyChannelKey(key.Type, key.Multibase, a.SignedData.message(), signature) {
		return errors.New("bad DIDAuthV1")
	}
	return nil
}

func (s *fakeService) carried(payment []byte) {
	var q requestPayload
	if len(payment) == 0 {
		return
	}
	require.NoError(s.t, json.Unmarshal(payment, &q))
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Signed != nil {
		require.NoError(s.t, s.take(q.Signed))
	}
}

// query shows the last verified SubRAV, with numbers as 0.7.0 writes them.
func (s *fakeService) query() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		return []byte(`null`)
	}
	r := s.stored.SubRAV
	return fmt.Appendf(nil,
		`{"subRav":{"version":1,"chainId":4,"channelId":%q,"accumulatedAmount":%s,"nonce":%d},"signature":{"0":8}}`, objectID(r.Channel).String(), r.Amount, r.Nonce)
}

func (s *fakeService) recovery() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _ := json.Marshal(map[string]any{"channel": nil, "pendingSubRav": s.pending, "subChannel": nil})
	return text
}

func (s *fakeService) take(given *signedSubRAV) error {
	s.given = append(s.given, *given)
	s.chain.mu.Lock()
	sub := s.chain.channels[given.SubRAV.Channel].subs[given.SubRAV.Fragment]
	s.chain.mu.Unlock()
	signature := must.Get(unMultibase(given.Signature))(s.t)
	require.True(s.t, nuwa.VerifyChannelKey(sub.Key.Type, sub.Key.Multibase, SubRAV(given.SubRAV).bytes(),
		signature), "a SubRAV's signature is wrong")
	for _, other := range s.given {
		require.False(s.t, other.SubRAV.Nonce == given.SubRAV.Nonce && other != *given,
			"two SubRAVs under nonce %d", given.SubRAV.Nonce)
	}
	switch {
	case s.pending != nil && *s.pending != given.SubRAV:
		return errors.New(codeConflict)
	case s.pending == nil && s.last().Nonce >= given.SubRAV.Nonce:
		return errors.New(codeConflict)
	}
	s.pending, s.stored = nil, given
	return nil
}

func (s *fakeService) last() subRAV {
	if s.stored != nil {
		return s.stored.SubRAV
	}
	s.chain.mu.Lock()
	defer s.chain.mu.Unlock()
	for _, ch := range s.chain.channels {
		for _, sub := range ch.subs {
			return subRAV{Nonce: sub.Nonce, Amount: sub.Amount}
		}
	}
	return subRAV{}
}

// serve is one call: what the service proposes, or its error; nil for a free tool.
func (s *fakeService) serve(tool, auth string, payment []byte) (map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NoError(s.t,
		s.authorized(auth, map[bool]string{true: opHTTP, false: opTool}[strings.HasPrefix(tool, "/")]))
	q := must.JSON[requestPayload](payment)(s.t)
	failure := func(code string) map[string]any {
		return map[string]any{"version": 1, "clientTxRef": q.ClientTxRef, "subRav": s.pending,
			"error": map[string]string{"code": code, "message": "as the real one says"}}
	}
	if s.fail != "" {
		return failure(s.fail), nil
	}
	if q.Signed != nil {
		if err := s.take(q.Signed); err != nil {
			return failure(err.Error()), nil
		}
	}
	if s.pending != nil {
		return failure(codePaymentRequired), nil
	}
	s.calls = append(s.calls, tool)
	if strings.TrimPrefix(tool, "/") == "hello" {
		return nil, nil
	}
	cost := uint64(price)
	if strings.TrimPrefix(tool, "/") == "pricey" {
		cost = 5000 * price
	}
	most, err := money.ParseAmount(q.MaxAmount)
	require.NoError(s.t, err, "no limit is sent")
	if money.NewAmount(cost).Cmp(most) > 0 {
		return failure(codeMaxExceeded), nil
	}
	s.propose(cost)
	out := map[string]any{"version": 1, "clientTxRef": q.ClientTxRef, "serviceTxRef": "srv-1",
		"subRav": s.pending, "cost": decimal(cost), "costUsd": "1000000000"}
	if s.twist != nil {
		text, _ := json.Marshal(out)
		out = nil
		_ = json.Unmarshal(text, &out)
		s.twist(out)
	}
	if s.lose {
		s.lose = false
		return nil, errors.New("cut")
	}
	return out, nil
}

func (s *fakeService) propose(cost uint64) {
	for id, ch := range s.chain.channels {
		for name := range ch.subs {
			last := s.last()
			amount, _ := last.Amount.Add(money.NewAmount(cost))
			s.pending = &subRAV{ChainID: 4, Channel: id, Epoch: ch.epoch, Fragment: name, Amount: amount,
				Nonce: last.Nonce + 1}
		}
	}
}

type guardStub struct {
	historytest.Guard
	checks, marks, approved int
	bad                     error // of the ledger's checkpoint
	unsealed                error
}

func (g *guardStub) CheckConfig(context.Context) error { return g.unsealed }
func (g *guardStub) VerifySeals(context.Context) error { g.checks++; return nil }
func (g *guardStub) Checkpoint(context.Context) error  { g.marks++; return g.bad }

func (g *guardStub) look(ctx context.Context, p history.Payment) error {
	_, approved, err := g.Store.ApprovalUsedBy(ctx, p)
	if approved {
		g.approved++
	}
	return err
}

func (g *guardStub) Submit(ctx context.Context, p history.Payment, signed history.Signed, here bool) error {
	if err := g.look(ctx, p); err != nil {
		return err
	}
	return g.Guard.Submit(ctx, p, signed, here)
}

func (g *guardStub) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (history.Payment, error) {
	if err := g.look(ctx, p); err != nil {
		return p, err
	}
	p, err := g.Guard.RecordVoucher(ctx, p, signed, c, o, here)
	if err != nil {
		return p, err
	}
	return p, g.Checkpoint(ctx)
}

func walletKeys() keysOf { return keysOf{nuwa.Keys{Account: &theWallet().Account}} }

type keysOf struct{ nuwa.Keys }

func (k keysOf) Public() string {
	solana, _ := k.Addresses()
	return nuwa.ChannelKey(solana)
}
func (k keysOf) Owns(q Key) bool { return k.OwnsChannelKey(q.Type, q.Multibase) }
func (keysOf) Verify(k Key, message, signature []byte) bool {
	return nuwa.VerifyChannelKey(k.Type, k.Multibase, message, signature)
}
func (k keysOf) SignSubRAV(ctx context.Context, key Key, message []byte, s SubRAV) ([]byte, error) {
	sig, err := k.Keys.SignSubRAV(ctx, key.Type, message, nuwa.SubRAV{ChainID: s.ChainID,
		Channel: s.Channel, Epoch: s.Epoch, Fragment: s.Fragment, Amount: s.Amount.Bytes32(), Nonce: s.Nonce})
	return sig[:], err
}
func (k keysOf) SignAuth(ctx context.Context, key Key, message []byte) ([]byte, error) {
	sig, err := k.SignDIDAuth(ctx, key.Type, message)
	return sig[:], err
}
func (k keysOf) SignTransaction(ctx context.Context, key Key, message []byte, t Transaction) ([]byte, error) {
	sig, err := k.SignRooch(ctx, key.Type, message, nuwa.RoochCall{Sender: t.Sender,
		Sequence: t.Sequence, ChainID: t.ChainID, MaxGas: t.MaxGas, Function: t.Function, Args: t.Args})
	return sig[:], err
}

// theWallet is one for all tests: its key derivation costs as much as all of them.
var theWallet = sync.OnceValue(func() *wallet.Wallet {
	dir, err := filepath.Abs(filepath.Join(testDir, "w"))
	if err == nil {
		var w *wallet.Wallet
		if w, err = owner.Create(context.Background(), dir, wallet.FromValue("correct horse battery"),
			owner.Options{N: 1 << 14}); err == nil {
			return w
		}
	}
	panic(err)
})

var testDir string

type world struct {
	t       *testing.T
	home    string
	chain   *chain
	service *fakeService
	guard   *guardStub
	payer   account
	rules   budget.Rules
	m       *Manager
	store   *history.Store
	http    bool
	pin     string
	did     string // the owner's, as config.toml has it; "": the payer's
}

func newWorld(t *testing.T, change ...func(*world)) *world {
	session := money.Dollars(5_000_000)
	w := &world{t: t, home: t.TempDir(), chain: newChain(t), guard: &guardStub{}, payer: account{1, 2, 3},
		rules: budget.Rules{PerCall: 1_000_000, Session: &session, Day: 10_000_000, Month: 100_000_000,
			ApproveAbove: 100_000, Rate: 60, PriceJump: 3, NewPayee: budget.RuleAllow,
			PayeeChange: budget.RuleAsk}}
	w.service = &fakeService{t: t, chain: w.chain, me: account{9, 9}, used: map[string]bool{}}
	w.service.base = "/mcp"
	w.service.wellKnown = w.service.info()
	w.chain.keys[w.payer] = []Key{{Fragment: "other", Type: ed25519Key,
		Multibase: "zCnSC6nQEJNEhk6F8n1YnpLK1dP5oANtxcXFnnNeUJEnk"},
		{Fragment: "key-1", Type: ed25519Key, Multibase: walletKeys().Public()}}
	w.chain.hubs[w.payer] = money.NewAmount(100 * price)
	for _, f := range change {
		f(w)
	}
	require.NoError(t, ledgers.Create(t.Context(), w.home, history.Options{}))
	w.start()
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

// start is a process of the wallet; called again it is the next one, after the first died.
func (w *world) start() {
	if w.store != nil {
		require.NoError(w.t, w.store.Close())
	}
	w.store = must.Get(ledgers.Open(w.t.Context(), w.home, historytest.Options()))(w.t)
	w.guard.Store = w.store
	nodes := NewNodes(map[string]string{"rooch:local": w.chain.url}, http.DefaultClient, nil)
	engine := &pay.Engine{Rules: w.rules, Policy: pay.Policy{Deadline: 10 * time.Second},
		Assets:   x402.NewRegistry(nodes.Assets()),
		Statuses: nodes.Statuses(), Store: w.store, Asker: asking.Asker{Store: w.store},
		Guard: w.guard, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)}
	w.m = &Manager{DID: cmp.Or(w.did, w.payer.did()),
		Servers: map[string]Server{"nuwa": {Endpoint: "https://nuwa.example/mcp", Service: w.pin}},
		Nodes:   nodes, DepositCap: 1_000_000, Keys: walletKeys(), Transport: w.service, Engine: engine,
		Store: locks.New(w.store), Guard: w.guard, Now: time.Now, Log: engine.Log}
	engine.Transport, engine.Deferred = w.service, w.m
}

func (w *world) call(tool string, change ...func(*pay.Request)) (pay.Result, error) {
	var q pay.Request
	q.Method, q.URL, q.Body = seller.CallTool, seller.Target("https://nuwa.example/mcp", tool),
		[]byte(`{"text":"one"}`)
	if w.http {
		q.Method, q.URL, q.Body = http.MethodGet, "https://nuwa.example/api/"+tool, nil
	}
	for _, f := range change {
		f(&q)
	}
	r, err := w.m.Engine.Pay(w.t.Context(), q)
	if err == nil {
		w.m.Engine.Delivered(w.t.Context(), r.Status, r.PaymentID)
	}
	return r, err
}

func (w *world) mustCall(tool string, change ...func(*pay.Request)) pay.Result {
	w.t.Helper()
	return must.Get(w.call(tool, change...))(w.t)
}

func (w *world) mustRefuse(want x402.Code, tool string, change ...func(*pay.Request)) *x402.Error {
	w.t.Helper()
	_, err := w.call(tool, change...)
	require.True(w.t, x402.HasCode(err, want), "%v", err)
	return x402.AsError(err)
}

func (w *world) open() {
	w.t.Helper()
	_, err := w.m.Open(w.t.Context(), "nuwa", 0)
	require.True(w.t, x402.HasCode(err, x402.ApprovalRequired), "%v", err)
	w.approve(err)
	must.Get(w.m.Open(w.t.Context(), "nuwa", 0))(w.t)
}

func (w *world) approve(err error) {
	w.t.Helper()
	id, _ := x402.AsError(err).Details["approvalId"].(string)
	require.NotEmpty(w.t, id, "%v", err)
	require.NoError(w.t, w.m.Engine.Accept(w.t.Context(), id, "owner"))
}

// paidFor is the sum of what the ledger says was paid for calls, in units.
func (w *world) paidFor() (sum money.Amount) {
	list := must.Get(w.store.Recent(w.t.Context(), 1000))(w.t)
	for _, p := range list {
		if p.Scheme == schemeCall && p.State == history.Settled {
			sum, _ = sum.Add(p.Amount)
		}
	}
	return sum
}

func (w *world) row() history.Channel {
	rows := must.Get(w.store.Channels(w.t.Context()))(w.t)
	require.Len(w.t, rows, 1)
	return rows[0]
}

func requireCode(t *testing.T, want x402.Code, err error) {
	require.True(t, x402.HasCode(err, want), "%v", err)
}
