package pay_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/scheme"
	"x402-wallet/scheme/batch"
	"x402-wallet/scheme/exact"
	"x402-wallet/scheme/mpp"
	"x402-wallet/scheme/permit2"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// The answers of real sellers, in testdata/sellers, one in each file: how deployed sellers really ask,
// modelled on what they send, with their hosts left out. Each has above it what a good wallet makes of it:
//
//	about     whose it is
//	expect    paid, or the code of the refusal
//	option    paid: which of accepts
//	header    paid: the header that the content is given for, and no other
//	settles   paid: seller or wallet
//	next      refused: what can be done (next.do), and by whom (fixedBy)
//	says      refused: words that the answer has, in what the caller reads
//	config    refused: a piece of the lines for config.toml
//	command   refused: what the person types
//
// In the answers, b64(…) and b64url(…) are JSON to encode, and {{…}} is filled in by the test.
type saved struct {
	name, about, expect            string
	option                         int
	header, settles, next, fixedBy string
	says, config                   []string
	command                        string
	status                         int
	fields                         http.Header
	body                           []byte
	proof, settled                 int // what the wallet showed; what the seller settled
	mu                             sync.Mutex
	world                          *sellersWorld
}

var encoded = regexp.MustCompile(`(?m)(b64|b64url)\((.*)\)$`)

func readSaved(t *testing.T, w *sellersWorld, file string) *saved {
	t.Helper()
	raw := must.Get(os.ReadFile(file))(t)
	text := strings.NewReplacer("{{payToSolana}}", w.PayToSolana, "{{feePayer}}", w.FeePayer,
		"{{pad}}", strings.Repeat("sample ", 50_000)).Replace(string(raw))
	text = encoded.ReplaceAllStringFunc(text, func(match string) string {
		parts := encoded.FindStringSubmatch(match)
		if parts[1] == "b64url" {
			return base64.RawURLEncoding.EncodeToString([]byte(parts[2]))
		}
		return base64.StdEncoding.EncodeToString([]byte(parts[2]))
	})
	about, answer, _ := strings.Cut(text, "\n\n")
	s := &saved{name: strings.TrimSuffix(filepath.Base(file), ".http"), world: w}
	for line := range strings.Lines(about) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		s.set(t, key, value)
	}
	reader := bufio.NewReader(strings.NewReader(answer))
	line := must.Get(textproto.NewReader(reader).ReadLine())(t)
	s.status = must.Get(strconv.Atoi(strings.Fields(line)[1]))(t)
	head := must.Get(textproto.NewReader(reader).ReadMIMEHeader())(t)
	s.fields = http.Header(head)
	s.body = must.Get(io.ReadAll(reader))(t)
	return s
}

func (s *saved) set(t *testing.T, key, value string) {
	texts := map[string]*string{"about": &s.about, "expect": &s.expect, "header": &s.header,
		"settles": &s.settles, "next": &s.next, "fixedBy": &s.fixedBy, "command": &s.command}
	lists := map[string]*[]string{"says": &s.says, "config": &s.config}
	switch {
	case texts[key] != nil:
		*texts[key] = value
	case lists[key] != nil:
		*lists[key] = append(*lists[key], value)
	case key == "option":
		must.Get(fmt.Sscan(value, &s.option))(t)
	default:
		require.Fail(t, "no such line", "%s: %s", s.name, key)
	}
}

const bought = `{"data":"what was bought"}`

// ServeHTTP is the seller: it asks as it was saved, and takes only what its kind takes.
func (s *saved) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	proof := r.Header.Get("X-PAYMENT-SIGNATURE")
	payment := r.Header.Get(s.header)
	switch {
	case s.settles == "wallet" && proof != "":
		s.proof++
		for _, done := range s.world.Settlements() {
			if done.Transaction == proof && done.Amount == 10000 {
				_, _ = io.WriteString(w, bought)
				return
			}
		}
	case s.settles == "seller" && payment != "":
		if receipt := s.settle(payment); receipt != "" {
			w.Header().Set("PAYMENT-RESPONSE", receipt)
			_, _ = io.WriteString(w, bought)
			return
		}
	}
	for name, values := range s.fields {
		w.Header()[name] = values
	}
	w.WriteHeader(s.status)
	_, _ = w.Write(s.body)
}

// settle brings a payment to the facilitator, for the option that it has to be for; "": it was refused.
func (s *saved) settle(payment string) string {
	version := 2
	if s.header == "X-PAYMENT" {
		version = 1
	}
	payload, err := base64.StdEncoding.DecodeString(payment)
	if err != nil {
		return ""
	}
	submission := fmt.Appendf(nil, `{"x402Version":%d,"paymentPayload":%s,"paymentRequirements":%s}`, version,
		payload, s.offer(version))
	answer, err := http.Post(s.world.FacilitatorURL+"/settle", "application/json",
		bytes.NewReader(submission))
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	var receipt struct{ Success bool }
	if err != nil || json.Unmarshal(text, &receipt) != nil || !receipt.Success {
		s.world.log(string(text))
		return ""
	}
	s.settled++
	return base64.StdEncoding.EncodeToString(bytes.TrimSpace(text))
}

// offer is the option that is to be paid, found by this test's own reading: the first place that has one
// of the version.
func (s *saved) offer(version int) json.RawMessage {
	texts := [][]byte{s.body}
	for _, name := range []string{"Payment-Required", "X-Payment-Required"} {
		value := s.fields.Get(name)
		texts = append(texts, []byte(value))
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			if decoded, err := e.DecodeString(value); err == nil {
				texts = append(texts, decoded)
			}
		}
	}
	for _, text := range texts {
		var c struct {
			X402Version int
			Scheme      string
			Accepts     []json.RawMessage
		}
		if json.Unmarshal(text, &c) != nil {
			continue
		}
		if c.Scheme != "" && c.Accepts == nil {
			return text
		}
		if c.X402Version == version && s.option < len(c.Accepts) {
			return c.Accepts[s.option]
		}
	}
	return json.RawMessage("null")
}

// sellersWorld is a wallet with money on Base and Solana as the sandbox plays them.
type sellersWorld struct {
	*sandbox.Sandbox
	engine func(loopback string) *pay.Engine
	log    func(string)
}

func newSellersWorld(t *testing.T) *sellersWorld {
	s := must.Get(sandbox.Start(sandbox.Options{Mainnet: true}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	const onBase, onSolana = "eip155:8453", "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	nodes := seller.NodeClient(s.Loopback, "")
	evmKey, solanaKey := testworld.NewEVMKey(t), testworld.NewSolanaKey(t)
	s.Fund(evmKey.Address(), 50*sandbox.USDC)
	s.Fund(solanaKey.Address(), 50*sandbox.USDC)
	schemes := map[pay.SchemeKey]pay.Scheme{
		{Scheme: x402.Exact, Family: "eip155"}: evm.New(evm.Options{Signer: evmKey,
			RPC: map[string]string{onBase: s.EVMNodeURL}, HTTP: nodes, Rand: rand.Reader, Now: time.Now}),
		{Scheme: x402.Exact, Family: "solana"}: svm.New(svm.Options{Signer: solanaKey,
			RPC: map[string]string{onSolana: s.SolanaNodeURL}, HTTP: nodes, Rand: rand.Reader,
			Now: time.Now}),
	}
	store := testworld.NewStore(t, "")
	w := &sellersWorld{Sandbox: s, log: func(text string) { t.Log(text) }}
	w.engine = func(loopback string) *pay.Engine {
		return &pay.Engine{
			Rules: budget.Rules{PerCall: 1_000_000, Day: 10_000_000, Month: 100_000_000,
				ApproveAbove: 1_000_000, Rate: 1000},
			Policy: pay.Policy{Prefer: []string{onBase, onSolana}, Schemes: []string{"exact"},
				MaxTimeout: 5 * time.Minute, Deadline: 30 * time.Second},
			Ways:   []scheme.Way{exact.Way{}, mpp.Way{}, permit2.Exact{}, permit2.Upto{}, &batch.Channels{}},
			Assets: x402.NewRegistry(nil), Schemes: schemes, Store: store, Asker: asking.Asker{Store: store},
			Now:   time.Now,
			Guard: historytest.Guard{Store: store}, Log: slog.New(slog.DiscardHandler),
			Transport: seller.New(seller.Options{Loopback: []string{loopback}}),
			Settler: facilitator.New(facilitator.Options{HTTP: nodes,
				List: []facilitator.Facilitator{{Name: "sandbox", URL: s.FacilitatorURL}}}),
		}
	}
	return w
}

func TestRealSellers(t *testing.T) {
	files := must.Get(filepath.Glob("testdata/sellers/*.http"))(t)
	require.GreaterOrEqual(t, len(files), 41)
	w := newSellersWorld(t)
	var table strings.Builder
	wrong := 0
	for _, file := range files {
		s := readSaved(t, w, file)
		answer, differs := s.replay(t)
		mark := "as it should"
		if differs != "" {
			wrong++
			mark = "WRONG: " + differs
		}
		fmt.Fprintf(&table, "%-28s %-48.48s %s\n", s.name, answer, mark)
		t.Run(s.name, func(t *testing.T) { require.Empty(t, differs, s.about) })
	}
	t.Logf("%d sellers, %d wrong\n%s", len(files), wrong, table.String())
}

// replay has the wallet buy from the seller, and compares; differs is "" where it did well.
func (s *saved) replay(t *testing.T) (answer, differs string) {
	server := httptest.NewServer(s)
	defer server.Close()
	before := len(s.world.Settlements())
	engine := s.world.engine(strings.TrimPrefix(server.URL, "http://"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := engine.Pay(ctx, pay.Request{Request: seller.Request{Method: "GET",
		URL: server.URL + "/" + s.name}})
	settled := len(s.world.Settlements()) - before
	if err == nil {
		answer = strings.Join([]string{r.Status, s.header, r.Network}, " ")
		return answer, s.judgePaid(r, settled)
	}
	e := x402.AsError(err)
	answer = strings.Join([]string{string(e.Code), string(e.NextStep().Do), e.Message}, " ")
	if settled > 0 {
		return answer, fmt.Sprintf("%d settlements and no content", settled)
	}
	return answer, s.judgeRefusal(e)
}

func (s *saved) judgePaid(r pay.Result, settled int) string {
	byWallet := s.settles == "wallet"
	switch {
	case s.expect != "paid":
		return "paid, and not " + s.expect
	case r.Status != pay.StatusPaid || r.Content != bought:
		return fmt.Sprintf("%s: %s", r.Status, r.Content)
	case settled != 1:
		return fmt.Sprintf("settled %d times", settled)
	case byWallet && (s.proof != 1 || s.settled != 0):
		return "the wallet did not settle"
	case !byWallet && s.settled != 1:
		return "the seller did not settle"
	}
	return ""
}

func (s *saved) judgeRefusal(e *x402.Error) string {
	next, details := e.NextStep(), e.Details
	text, err := json.Marshal(map[string]any{"message": e.Message, "hint": e.Hint, "next": next,
		"details": details})
	if err != nil {
		return err.Error()
	}
	lines, _ := details["config"].(string)
	switch {
	case s.expect != string(e.Code):
		return "not " + s.expect
	case s.next != string(next.Do) || s.fixedBy != string(e.FixableBy()):
		return fmt.Sprintf("next is %s, by %s", next.Do, e.FixableBy())
	case s.command != "" && !strings.HasPrefix(next.Command, s.command):
		return "the command is " + strconv.Quote(next.Command)
	}
	for _, words := range s.says {
		if !bytes.Contains(text, []byte(words)) {
			return "does not say " + strconv.Quote(words)
		}
	}
	for _, line := range s.config {
		if !strings.Contains(lines, line) {
			return "no line " + strconv.Quote(line) + " for config.toml"
		}
	}
	return ""
}
