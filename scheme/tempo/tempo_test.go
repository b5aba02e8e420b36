package tempo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/tempo/decode"
	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

const (
	network = x402.TempoTestnet
	pathUSD = "0x20c0000000000000000000000000000000000000"
	payee   = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
)

var token, _ = x402.NewRegistry(nil).Named(network, "")

// world is a play Tempo with its seller, and a payer with a dollar.
type world struct {
	*sandbox.Sandbox
	Payer
	t    *testing.T
	self string
}

func newWorld(t *testing.T) *world {
	s := must.Get(sandbox.Start(sandbox.Options{Finality: time.Second}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	key := testworld.NewEVMKey(t)
	s.Fund(key.Address(), sandbox.USDC)
	on := evm.New(evm.Options{Signer: key, RPC: map[string]string{network: s.TempoNodeURL()}, Now: s.Now})
	return &world{Sandbox: s, Payer: NewPayer(on), t: t, self: key.Address()}
}

const path = "/tempo/weather"

func (w *world) order(c *wire.Challenge) onchain.Order {
	r := c.Accepts[0]
	return onchain.Order{Payment: "pay_1", Requirement: r, Asset: token, Source: w.self,
		Validity: r.MaxTimeout, Now: w.Now()}
}

func (w *world) authorize(c *wire.Challenge) onchain.Authorization {
	return must.Get(w.Authorize(w.t.Context(), w.order(c)))(w.t)
}

func (w *world) status(a onchain.Authorization) x402.Status {
	return must.Get(w.Status(w.t.Context(), a.Evidence))(w.t)
}

// A seller takes several transactions for one challenge. All have one name in the ledger, which records one.
func TestAPaymentAndItsStatus(t *testing.T) {
	w := newWorld(t)
	c := testworld.Challenge(t, w.SellerURL+path)
	a := w.authorize(c)
	open := w.status(a)
	require.Equal(t, x402.Open, open.State)
	require.True(t, open.Unused)

	answer := testworld.Pay(t, w.SellerURL+path, c, a.Payload)
	require.Equal(t, 200, answer.Status, "%+v", answer)
	done := w.Settlements()[0]
	require.Equal(t, sandbox.Price(path), done.Amount)
	status := w.status(a)
	require.Equal(t, x402.Settled, status.State)
	require.Equal(t, done.Transaction, status.Transaction)
	require.Nil(t, status.Amount)

	w.Advance(time.Second)
	second := w.authorize(c)
	require.Equal(t, a.Evidence.Unique(), second.Evidence.Unique())
	require.Equal(t, 200, testworld.Pay(t, w.SellerURL+path, c, second.Payload).Status)
	require.Len(t, w.Settlements(), 2)
	other := w.authorize(testworld.Challenge(t, w.SellerURL+path))
	require.NotEqual(t, a.Evidence.Unique(), other.Evidence.Unique())
}

// A transaction that nobody sent is open until a final block after its end.
func TestAPaymentThatIsNeverSent(t *testing.T) {
	w := newWorld(t)
	a := w.authorize(testworld.Challenge(t, w.SellerURL+path))
	life := time.Until(a.Evidence.ExpiresAt)
	require.InDelta(t, 25, life.Seconds(), 2)
	w.Advance(life)
	require.Equal(t, x402.Open, w.status(a).State, "its end is not final yet")
	w.Advance(10 * time.Second)
	status := w.status(a)
	require.Equal(t, x402.Expired, status.State, "%+v", status)
	require.NotZero(t, status.Block)
	answer := testworld.Pay(t, w.SellerURL+path, testworld.Challenge(t, w.SellerURL+path), a.Payload)
	require.Equal(t, 402, answer.Status)
}

func TestOrdersThatAreNotSigned(t *testing.T) {
	w := newWorld(t)
	const invalid = x402.InvalidRequirement
	in := func(life time.Duration) func(o *onchain.Order) {
		return func(o *onchain.Order) { o.Requirement.Charge.Expires = o.Now.Add(life) }
	}
	for name, c := range map[string]struct {
		change func(o *onchain.Order)
		code   x402.Code
	}{
		"no charge":         {func(o *onchain.Order) { o.Requirement.Charge = nil }, invalid},
		"another scheme":    {func(o *onchain.Order) { o.Requirement.Scheme = "mpp" }, invalid},
		"another network":   {func(o *onchain.Order) { o.Requirement.Network = "eip155:8453" }, invalid},
		"without a node":    {func(o *onchain.Order) { o.Requirement.Network = x402.TempoMainnet }, invalid},
		"another token":     {func(o *onchain.Order) { o.Requirement.Asset = payee }, x402.UntrustedAsset},
		"nothing":           {func(o *onchain.Order) { o.Requirement.Amount = money.Amount{} }, invalid},
		"to itself":         {func(o *onchain.Order) { o.Requirement.PayTo = w.self }, invalid},
		"to the token":      {func(o *onchain.Order) { o.Requirement.PayTo = pathUSD }, invalid},
		"from another":      {func(o *onchain.Order) { o.Source = payee }, x402.Internal},
		"for one second":    {func(o *onchain.Order) { o.Validity = time.Second }, invalid},
		"ends in 5 seconds": {in(5 * time.Second), invalid}, "ended": {in(-time.Hour), invalid},
	} {
		o := w.order(testworld.Challenge(t, w.SellerURL+path))
		c.change(&o)
		require.True(t, x402.HasCode(must.Err(w.Authorize(t.Context(), o)), c.code), name)
	}
	o := w.order(testworld.Challenge(t, w.SellerURL+path))
	o.Now, o.Requirement.Charge.Expires = o.Now.Add(time.Hour), o.Now.Add(2*time.Hour)
	require.True(t, x402.HasCode(must.Err(w.Authorize(t.Context(), o)), x402.ClockSuspect))
}

// Where the buyer pays the fee, the transaction may cost exactly what is held for it, in the token that is
// paid, and its hash is known.
func TestAPaymentWithItsFee(t *testing.T) {
	w := newWorld(t)
	o := w.order(testworld.Challenge(t, w.SellerURL+path))
	way := Way{MaxFee: 20_000}
	option := scheme.Option{Requirement: o.Requirement, Token: token}
	require.Zero(t, way.Fee(option))
	o.Requirement.Charge.SellerPaysFee, option.Charge.SellerPaysFee = false, false
	o.Requirement.Fee = way.Fee(option)
	require.Equal(t, "20000", o.Requirement.Fee.String())
	o.Requirement.Amount, _ = o.Requirement.Amount.Add(o.Requirement.Fee)
	a := must.Get(w.Authorize(t.Context(), o))(t)
	var sent wire.TempoPayment
	require.NoError(t, json.Unmarshal(a.Payload, &sent))
	tx := must.Get(decode.Rules{}.Transaction(hexutil.MustDecode(sent.Transaction)))(t)
	require.False(t, tx.SellerPaysFee)
	require.Equal(t, pathUSD, tx.FeeToken)
	require.Equal(t, "1000", tx.Total.String())
	require.Equal(t, o.Requirement.Fee, tx.Fee())
	require.Equal(t, tx.Hash, a.Evidence.Hash)
	require.Equal(t, "21000", a.Evidence.Amount.String())
}

func TestWhyNot(t *testing.T) {
	r := x402.Requirement{Network: network, Charge: &x402.Charge{Realm: "a.example", Pull: true}}
	call := scheme.Call{Host: "a.example", Now: time.Now()}
	why := func(way Way) error { return way.WhyNot(call, scheme.Option{Requirement: r, Token: token}) }
	require.ErrorContains(t, why(Way{}), "policy.network_fee")
	require.NoError(t, why(Way{MaxFee: 1}))
	r.Charge.SellerPaysFee = true
	require.NoError(t, why(Way{}))
	r.Charge.Pull, r.Charge.Push = false, true
	require.ErrorContains(t, why(Way{MaxFee: 1}), "both cannot be")
	r.Charge.SellerPaysFee = false
	require.NoError(t, why(Way{MaxFee: 1}))
	r.Charge.Realm = "b.example"
	require.ErrorContains(t, why(Way{MaxFee: 1}), "b.example")
}

// liar is a node that says what a test wants.
type liar struct {
	answers map[string]any // by method
	asked   []string
}

func (n *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Method string
		ID     json.RawMessage
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	n.asked = append(n.asked, q.Method)
	answer := map[string]any{"jsonrpc": "2.0", "id": q.ID, "result": n.answers[q.Method]}
	if refusal, is := n.answers[q.Method].(error); is {
		delete(answer, "result")
		answer["error"] = map[string]any{"code": -32000, "message": refusal.Error()}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (n *liar) payer(t *testing.T) Payer {
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	n.answers["eth_chainId"] = "0xa5bf"
	if n.answers["eth_getBlockByNumber"] == nil {
		n.answers["eth_getBlockByNumber"] = map[string]any{"number": "0x64", "timestamp": "0x100"}
	}
	return NewPayer(evm.New(evm.Options{Signer: testworld.NewEVMKey(t),
		RPC: map[string]string{network: server.URL}}))
}

const (
	ourMemo = "0x00000000000000000000000000000000000000000000000000000000000000ef"
	ourHash = "0x00000000000000000000000000000000000000000000000000000000000000aa"
	payer   = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	other   = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
)

func evidence() x402.Evidence {
	return x402.Evidence{Network: network, Asset: pathUSD, Payer: payer, PayTo: payee,
		Amount: money.NewAmount(1000), Memo: ourMemo, ValidBefore: 0x200, Way: x402.Tempo}
}

// event is one of TransferWithMemo.
func event(from, to, memo string, amount uint64) map[string]any {
	word := func(address string) string { return common.BytesToHash(common.FromHex(address)).Hex() }
	return map[string]any{"address": pathUSD, "transactionHash": ourHash, "blockNumber": "0x64",
		"topics": []string{topicMemo.Hex(), word(from), word(to), memo},
		"data":   common.Hash(money.NewAmount(amount).Bytes32()).Hex()}
}

// blocked is the guard's event, with the receipt of a transfer that a receive policy stopped: the token, who
// may claim it, the payer, the payee, when, the guard's nonce, why, the kind, and the memo.
func blocked(from, memo string) map[string]any {
	word := func(text string) string { return common.BytesToHash(common.FromHex(text)).Hex()[2:] }
	data := "0x" + word("0x3e8") + word("0x1") + word("0x60") + word("0x140") + word("0x1") + word(pathUSD) +
		word("0x0") + word(from) + word(payee) + word("0x100") + word("0x1") + word("0x2") + word("0x0") +
		word(memo)
	return map[string]any{"address": guard.Hex(), "transactionHash": ourHash, "blockNumber": "0x64",
		"data":   data,
		"topics": []string{topicBlocked.Hex(), "0x" + word(pathUSD), "0x" + word(payee), "0x" + word("0x1")}}
}

func receipt(status string, logs ...any) map[string]any {
	return map[string]any{"transactionHash": ourHash, "status": status, "blockNumber": "0x64",
		"gasUsed": "0xc857", "effectiveGasPrice": "0x4a817c800", "logs": append([]any{}, logs...)}
}

// What a node says of a transaction is compared with what was signed.
func TestANodeThatLies(t *testing.T) {
	const settled = x402.Settled
	good, fee := event(payer, payee, ourMemo, 1000), money.NewAmount(5000)
	cheap, diverted := receipt("0x1", event(payer, payee, ourMemo, 1)),
		receipt("0x1", event(payer, other, ourMemo, 1000))
	for name, c := range map[string]struct {
		logs    any
		receipt any
		fee     bool
		state   x402.StatusState
		note    string
		amount  string
	}{
		"it is there":          {logs: good, receipt: receipt("0x1", good), state: settled},
		"nothing is found":     {note: "in no block yet"},
		"an event of another":  {logs: event(other, payee, ourMemo, 1000), note: "in no block yet"},
		"an event of before":   {logs: event(payer, payee, ourHash, 1000), note: "in no block yet"},
		"no receipt of it":     {logs: good, note: "in no block yet"},
		"a receipt without it": {logs: good, receipt: receipt("0x1"), note: "contradicts itself"},
		"another amount":       {logs: good, receipt: cheap, state: settled, note: "1 to " + payee},
		"to another":           {logs: good, receipt: diverted, state: settled, note: "1000 to " + other},
		"a policy stopped it": {logs: blocked(payer, ourMemo), state: settled, note: "receive policy",
			receipt: receipt("0x1", blocked(payer, ourMemo))},
		"a policy stopped another":  {logs: blocked(other, ourMemo), note: "in no block yet"},
		"a policy stopped an older": {logs: blocked(payer, ourHash), note: "in no block yet"},
		"with a fee, stopped": {fee: true, receipt: receipt("0x1", blocked(payer, ourMemo)), state: settled,
			note: "receive policy", amount: "2026"},
		"it failed":    {logs: good, receipt: receipt("0x0"), note: "failed"},
		"with its fee": {fee: true, receipt: receipt("0x1", good), state: settled, amount: "2026"},
		"its fee alone": {fee: true, receipt: receipt("0x0"), state: settled, note: "took its fee",
			amount: "1026"},
		"its fee, and no event": {fee: true, receipt: receipt("0x1"), note: "contradicts itself"},
	} {
		t.Run(name, func(t *testing.T) {
			logs := []any{}
			if c.logs != nil {
				logs = append(logs, c.logs)
			}
			n := &liar{answers: map[string]any{"eth_getLogs": logs, "eth_getTransactionReceipt": c.receipt}}
			e := evidence()
			if c.fee {
				e.Hash, e.Fee = ourHash, fee
				e.Amount, _ = e.Amount.Add(fee)
			}
			status := must.Get(n.payer(t).Status(t.Context(), e))(t)
			require.Equal(t, c.state, status.State, "%+v", status)
			require.Contains(t, status.Note, c.note)
			if c.amount == "" {
				require.Nil(t, status.Amount)
			} else {
				require.Equal(t, c.amount, status.Amount.String())
			}
		})
	}
	anothers := receipt("0x1", good)
	anothers["transactionHash"] = ourMemo
	n := &liar{answers: map[string]any{"eth_getLogs": []any{good}, "eth_getTransactionReceipt": anothers}}
	require.True(t, x402.HasCode(must.Err(n.payer(t).Status(t.Context(), evidence())), x402.RPCError))
	broken := evidence()
	broken.Memo = "0x"
	require.True(t, x402.HasCode(must.Err(n.payer(t).Status(t.Context(), broken)), x402.Internal))
}

// A transaction that the seller wants to be sent is sent as it was signed, and shown by its hash when it is
// in a block; also where the node has it already. Any other is shown as it is, and not sent.
func TestPushed(t *testing.T) {
	request := `{"amount":"1000","currency":"` + pathUSD + `","recipient":"` + payee + `",` +
		`"methodDetails":{"chainId":42431,"supportedModes":["push"]}}`
	terms := func(request string) json.RawMessage {
		return json.RawMessage(`{"id":"a","realm":"b","method":"tempo","intent":"charge","expires":` +
			`"2026-12-01T12:00:00Z","request":` + request + `}`)
	}
	credential := json.RawMessage(`{"challenge":{},"payload":{"signature":"0x76f0","type":"transaction"}}`)
	e := evidence()
	e.Hash, e.Fee = ourHash, money.NewAmount(5000)
	e.Amount, _ = e.Amount.Add(e.Fee)
	p := history.Payment{Network: network, Payload: credential, Requirement: terms(request), Evidence: e}
	good := receipt("0x1", event(payer, payee, ourMemo, 1000))
	for name, sent := range map[string]any{"new": ourHash, "known": errKnown{}} {
		n := &liar{answers: map[string]any{"eth_sendRawTransaction": sent,
			"eth_getTransactionReceipt": good}}
		shown := must.Get(n.payer(t).Pushed(t.Context(), p))(t)
		require.JSONEq(t, `{"challenge":{},"payload":{"type":"hash","hash":"`+ourHash+`"}}`, string(shown), name)
		require.Contains(t, n.asked, "eth_sendRawTransaction")
	}
	n := &liar{answers: map[string]any{}}
	settled := p
	settled.State = history.Settled
	shown := must.Get(n.payer(t).Pushed(t.Context(), settled))(t)
	require.JSONEq(t, `{"challenge":{},"payload":{"type":"hash","hash":"`+ourHash+`"}}`, string(shown))
	require.NotContains(t, n.asked, "eth_sendRawTransaction")
	p.Requirement = terms(strings.Replace(request, `["push"]`, `["push","pull"]`, 1))
	require.Equal(t, credential, must.Get(n.payer(t).Pushed(t.Context(), p))(t))
	require.NotContains(t, n.asked, "eth_sendRawTransaction")
	p.Requirement, p.Payload = terms(request), json.RawMessage(`{"payload":{}}`)
	require.True(t, x402.HasCode(must.Err(n.payer(t).Pushed(t.Context(), p)), x402.Internal))
	// over, and in no block: the chain is asked no longer
	n = &liar{answers: map[string]any{"eth_sendRawTransaction": ourHash,
		"eth_getBlockByNumber": map[string]any{"number": "0x64", "timestamp": "0x201"}}}
	p.Payload = credential
	require.ErrorContains(t, must.Err(n.payer(t).Pushed(t.Context(), p)), "in no block")
}

type errKnown struct{}

func (errKnown) Error() string { return "already known" }
