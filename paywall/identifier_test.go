package paywall

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/x402/wire"
)

func namedAs(id string) map[string]json.RawMessage {
	return map[string]json.RawMessage{extensionIdentifier: jsonOf(map[string]any{"info": map[string]string{
		"id": id}})}
}

func TestWhatIdentifiersAreTaken(t *testing.T) {
	for id, isTaken := range map[string]bool{
		strings.Repeat("a", 15): false, strings.Repeat("a", 16): true, strings.Repeat("Z", 128): true,
		strings.Repeat("a", 129): false, "pay_0123-456789_AZ": true, "pay 0123456789ab": false,
		"pay.0123456789ab": false, "päy_0123456789ab": false, "": false, "pay_0123456789ab\n": false,
	} {
		t.Run(id, func(t *testing.T) {
			got, err := (&payment{Extensions: namedAs(id)}).identifier()
			if isTaken {
				require.NoError(t, err)
				require.Equal(t, id, got)
				return
			}
			require.ErrorIs(t, err, ErrInvalidRequest)
			require.Empty(t, got)
		})
	}
	for said, isNone := range map[string]bool{`null`: true, `{}`: true, `{"info":{}}`: true,
		`{"info":{"required":false}}`: true, `{"info":{"id":null}}`: true, `{"info":{"id":7}}`: false,
		`{"info":"x"}`: false, `[]`: false} {
		_, err := (&payment{Extensions: map[string]json.RawMessage{
			extensionIdentifier: json.RawMessage(said)}}).identifier()
		require.Equal(t, isNone, err == nil, said)
	}
}

// A name in another form is refused, and one that is missing where it is required: nothing is used.
func TestIdentifiersThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		required bool
		ext      map[string]json.RawMessage
	}{
		"too short":            {false, namedAs("pay_0")},
		"missing":              {true, nil},
		"missing in the echo":  {true, map[string]json.RawMessage{}},
		"too long, if it must": {true, namedAs(strings.Repeat("a", 129))},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(_ *lab, o *Options) { o.Tools[0].RequireIdentifier = c.required })
			ch := l.call(t, nil, nil).challenge()
			payload := l.payer.sign(t, ch, 0, c.ext)
			if c.ext == nil {
				payload = without(t, payload, "extensions")
			}
			g := l.call(t, nil, meta(ch, payload))
			require.EqualValues(t, -32602, g.Code, "%s", g.Result)
			g.asksNothing()
			require.Contains(t, g.text, "payment-identifier")
			l.nothingMoved(t, g)
			require.Empty(t, l.sales(t))
			require.Zero(t, l.runs.Load())
		})
	}
	_, err := New(Options{Version: 1, Facilitators: newFacilitators(newLab(t, nil).Sandbox), Tools: []Tool{{
		Name: "a", RequireIdentifier: true, Accepts: []Option{{Network: "84532", Price: "1",
			PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"}}}}})
	require.ErrorContains(t, err, "no payment-identifier")
}

func TestARequiredIdentifierIsDeclared(t *testing.T) {
	l := newLab(t, func(_ *lab, o *Options) { o.Tools[0].RequireIdentifier = true })
	c := l.call(t, nil, nil).challenge()
	var said struct {
		Info   struct{ Required bool }
		Schema struct{ Required []string }
	}
	require.NoError(t, json.Unmarshal(c.Extensions[extensionIdentifier], &said))
	require.True(t, said.Info.Required)
	require.Equal(t, []string{"required"}, said.Schema.Required)
	require.Equal(t, product, l.call(t, nil, meta(c, l.payer.sign(t, c, 0, named))).text)
}

// Who lost an answer and pays anew under the same name gets the first answer: it pays once. Another call
// under the name is refused. Somebody else's name is another one.
func TestTwoPaymentsOfOneName(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, map[string]any{"q": 1}, nil).challenge()
	pay := func(p *payer, q int) got {
		return l.call(t, map[string]any{"q": q}, meta(c, p.sign(t, c, 0, named)))
	}
	first := pay(l.payer, 1)
	require.Equal(t, product, first.text)
	again := pay(l.payer, 1)
	require.Equal(t, product, again.text, "%s", again.Data)
	require.Equal(t, first.receipt().Transaction, again.receipt().Transaction)
	other := pay(l.payer, 2)
	require.EqualValues(t, -32602, other.Code, "%s", other.Result)
	other.asksNothing()
	require.Contains(t, other.text, "names another call")
	require.Len(t, l.Settlements(), 1)
	require.EqualValues(t, 1, l.runs.Load())

	require.Equal(t, product, pay(newPayer(t, l.Sandbox), 2).text)
	require.Len(t, l.Settlements(), 2)
}

// A made-up payment under a buyer's name does not get the answer: it has to be the buyer's own signature.
func TestANameIsNoPayment(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	require.Equal(t, product, l.call(t, nil, meta(c, l.payer.sign(t, c, 0, named))).text)
	forged := newPayer(t, l.Sandbox).sign(t, c, 0, named)
	var from struct {
		Payload struct{ Authorization struct{ From string } }
	}
	require.NoError(t, json.Unmarshal(forged, &from))
	g := l.call(t, nil, meta(c, replaced(t, forged, from.Payload.Authorization.From, l.payer.Address())))
	require.NotContains(t, string(g.Result), product)
	require.Len(t, l.Settlements(), 1)
}

func TestNamesTogether(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	var all sync.WaitGroup
	for range 8 {
		shown := meta(c, l.payer.sign(t, c, 0, named))
		all.Go(func() { _, _ = l.client.CallTool(t.Context(), callOf("search", shown)) })
	}
	all.Wait()
	require.Len(t, l.Settlements(), 1)
	require.EqualValues(t, 1, l.runs.Load())
}

func TestANameAfterAFailure(t *testing.T) {
	l := newLab(t, func(_ *lab, o *Options) { o.Tools[0].MaxTimeout = minTimeout })
	c := l.call(t, nil, nil).challenge()
	given := l.tool
	l.tool = failing("no such city")
	require.True(t, l.call(t, nil, meta(c, l.payer.sign(t, c, 0, named))).isError)
	require.Equal(t, book.SaleFailed, l.sales(t)[0].State)
	l.tool = given
	require.Equal(t, product, l.call(t, nil, meta(c, l.payer.sign(t, c, 0, named))).text)
}

// Over HTTP another call under the name is 409, as the extension's specification has it.
func TestANameOverHTTP(t *testing.T) {
	s := newMPPShop(t, false)
	response := s.get(t, "", "")
	c, err := wire.ReadChallenge(response.StatusCode, response.Header, nil)
	require.NoError(t, err)
	header := func() string { return base64.StdEncoding.EncodeToString(s.payer.sign(t, c, 0, named)) }
	require.Equal(t, http.StatusOK, s.get(t, "PAYMENT-SIGNATURE", header()).StatusCode)
	require.Equal(t, http.StatusOK, s.get(t, "PAYMENT-SIGNATURE", header()).StatusCode)
	s.web.URL += "/other"
	require.Equal(t, http.StatusConflict, s.get(t, "PAYMENT-SIGNATURE", header()).StatusCode)
	require.Len(t, s.Settlements(), 1)
}

type saying struct {
	*facilitator.Client
	valid bool
	err   error
	asked atomic.Int32
}

func (f *saying) Verify(context.Context, facilitator.Submission) (facilitator.Verdict, error) {
	f.asked.Add(1)
	return facilitator.Verdict{Valid: f.valid, Reason: "so it is"}, f.err
}

// A payment that had its run in another process, or before this one began, has no other, whatever the
// facilitator says of it, and its buyer gets the answer again. The second time no facilitator is asked.
func TestWhatWasUsedInAnotherProcess(t *testing.T) {
	for name, facilitators := range map[string]*saying{
		"valid": {valid: true}, "invalid": {}, "no answer": {err: errors.New("down")},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			c := l.call(t, nil, nil).challenge()
			payload := l.payer.sign(t, c, 0, named)
			first := l.call(t, nil, meta(c, payload))
			require.Equal(t, product, first.text)

			other := &lab{Sandbox: l.Sandbox, payer: l.payer, tool: l.tool}
			o := l.paywall.options
			facilitators.Client = newFacilitators(l.Sandbox)
			o.Facilitators = facilitators
			var err error
			other.paywall, err = New(o)
			require.NoError(t, err)
			other.client, _ = connect(t, other.server(), nil)
			for range 2 {
				again := other.call(t, nil, meta(c, payload))
				require.Equal(t, product, again.text, "%s", again.Data)
				require.Equal(t, first.receipt().Transaction, again.receipt().Transaction)
				unnamed := other.call(t, nil, meta(c, without(t, payload, "extensions")))
				require.EqualValues(t, -32602, unnamed.Code, "%s", unnamed.Result)
				unnamed.asksNothing()
			}
			require.EqualValues(t, 1, facilitators.asked.Load())
			require.Zero(t, other.runs.Load())
			require.Len(t, l.Settlements(), 1)
		})
	}
}

type counted struct {
	SaleStore
	lookUps atomic.Int32
}

func (s *counted) SaleByKey(ctx context.Context, key string) (book.Sale, error) {
	s.lookUps.Add(1)
	return s.SaleStore.SaleByKey(ctx, key)
}

func TestANewPaymentIsNotLookedUp(t *testing.T) {
	store := &counted{SaleStore: testBook}
	l := newLab(t, func(_ *lab, o *Options) { o.Store = store })
	c := l.call(t, nil, nil).challenge()
	payload := l.payer.sign(t, c, 0, nil)
	require.Equal(t, product, l.call(t, nil, meta(c, payload)).text)
	require.Zero(t, store.lookUps.Load())
	require.EqualValues(t, -32602, l.call(t, nil, meta(c, payload)).Code)
	require.EqualValues(t, 1, store.lookUps.Load())
}

// The newest payments are remembered, and not all that there ever were.
func TestSeenPaymentsAreBounded(t *testing.T) {
	p := newSeenPayments()
	require.False(t, p.has("0"))
	const many = 3*maxSeen + maxSeen/2
	for i := range many {
		p.add(strconv.Itoa(i))
	}
	for i := many - maxSeen; i < many; i++ {
		require.True(t, p.has(strconv.Itoa(i)))
	}
	require.False(t, p.has("0"))
	require.LessOrEqual(t, len(p.now)+len(p.older), 2*maxSeen)
}
