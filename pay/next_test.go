package pay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A higher maxAmount is offered by the number that passes, after a question to whoever set it; and never
// where another rule stands in its way.
func TestAHigherOffer(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*bench)
		most, hint string
		do         x402.Step
	}{
		"in dollars": {nil, "$0.001", `maxAmount "$0.01" covers it, and the owner's rules allow it`,
			x402.Change},
		"in atomic units": {nil, "1000", `maxAmount "10000" covers it, and the owner's rules allow it`,
			x402.Change},
		"an approval is needed": {func(b *bench) { b.Rules.ApproveAbove = 9_999 }, "$0.001",
			`maxAmount "$0.01" covers it, and then a person is asked to approve it`, x402.Change},
		"per call": {func(b *bench) { b.Rules.PerCall = 9_999 }, "$0.001",
			"a higher maxAmount alone does not help", x402.AskPerson},
		"the rate": {func(b *bench) { b.Rules.Rate = 0 }, "$0.001", "a higher maxAmount alone does not help",
			x402.Wait},
		"frozen": {func(b *bench) {
			require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{By: "owner", Why: "stop"}))
		}, "$0.001", "a higher maxAmount alone does not help", x402.AskPerson},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			if c.change != nil {
				c.change(b)
			}
			q := get(testURL)
			q.MaxAmount = c.most
			e := code(t, x402.AmountExceedsMax, must.Err(b.Pay(t.Context(), q)))
			require.Equal(t, "the seller asks $0.01, maxAmount is $0.001", e.Message)
			require.Contains(t, e.Hint, c.hint)
			next := e.NextStep()
			require.Equal(t, c.do, next.Do)
			if c.do == x402.Change {
				require.Contains(t, next.Why, "ask them before you offer more")
				require.Contains(t, next.Say, "$0.01, above the limit of $0.001")
			}
		})
	}
}

// What is short is said in tokens, with contract, network and address, and only that.
func TestWhatIsShort(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.chain.balance = 4_000
	e := b.mustRefuse(t, x402.InsufficientFunds, testURL)
	next := e.NextStep()
	require.Equal(t, []any{x402.AskPerson, "x402-wallet address --qr"}, []any{next.Do, next.Command})
	for _, part := range []string{"0.006 USDC", testUSDC, "Base Sepolia", "to 0xagent", "$0.01"} {
		require.Contains(t, next.Say, part)
	}
	require.Contains(t, e.Message, "the price $0.01: $0.00")
	b.Rules.Account = "research"
	b.Rules.Teams = budget.Teams{"research": {Account: true, Agents: []string{"one"}}}
	b.Rules.Agents = map[string]budget.Agent{"one": {}}
	_, err := b.Pay(WithAgent(t.Context(), "one"), get(testURL))
	require.Equal(t, "x402-wallet address --qr --account research",
		code(t, x402.InsufficientFunds, err).NextStep().Command)
	require.Equal(t, money.NewAmount(6_000), e.Details["short"])

	const solana = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	usdc, _ := x402.NewRegistry(nil).Named(solana, "")
	o := option{asset: usdc, price: 2_500_000, Requirement: x402.Requirement{Network: solana,
		Amount: money.NewAmount(2_500_000)}}
	delegated := money.NewAmount(1_000_000)
	funds := x402.Funds{Source: "Acc", Address: "Acc", Delegated: &delegated,
		Balance: money.NewAmount(9_000_000), Free: delegated}
	lack := &history.ShortOfFunds{Free: delegated, Held: money.NewAmount(600_000), Wanted: o.Amount}
	e = x402.AsError(new(Engine).insufficient(t.Context(), o, funds, lack))
	next = e.NextStep()
	require.Equal(t, x402.DelegationExhausted, e.Code)
	require.Equal(t, "x402-wallet delegation approve --owner-keypair FILE --network "+solana+
		" --token-account Acc --asset USDC --amount 4", next.Command)
	require.Contains(t, next.Say, "at least 3.1 USDC")
	require.NotContains(t, e.Hint+next.Say, "send", "there is money enough")
	funds.Balance = money.NewAmount(3_000_000)
	e = x402.AsError(new(Engine).insufficient(t.Context(), o, funds, lack))
	require.Contains(t, e.NextStep().Say, "and send at least 0.1 USDC")
	delegated = money.NewAmount(9_000_000)
	e = x402.AsError(new(Engine).insufficient(t.Context(), o, funds, lack))
	require.Equal(t, x402.InsufficientFunds, e.Code)
	require.Equal(t, "x402-wallet delegation show --network "+solana+" --token-account Acc",
		e.NextStep().Command)
}

// As long as a signed payment can be settled the same call brings it again; when it has expired nobody is
// told so, but what really happens then.
func TestWhatIsHeldHasANextStep(t *testing.T) {
	for name, answers := range map[string]script{
		"rejected": refuses("no"), "no answer": silent, "unreachable": unreachable,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", answers)
			_, err := b.Pay(t.Context(), get(testURL))
			e := x402.AsError(err)
			next, ends := e.NextStep(), b.only(t).Evidence.ExpiresAt.Add(maxSkew)
			require.Equal(t, []any{x402.Repeat, x402.Stamp(ends)}, []any{next.Do, next.At})
			require.Contains(t, next.Why, "same signed payment")
			require.Equal(t, money.NewAmount(10_000), e.Details["held"])

			_, err = b.Pay(t.Context(), get(testURL)) // at once: in vain
			next = x402.AsError(err).NextStep()
			soon := b.Now().Add(leastPause)
			if name == "rejected" {
				soon = ends
			}
			require.Equal(t, []any{x402.Wait, x402.Stamp(soon)}, []any{next.Do, next.At})
			b.Now = func() time.Time { return ends.Add(-time.Second) }
			_, err = b.Pay(t.Context(), get(testURL))
			next = x402.AsError(err).NextStep()
			require.Equal(t, []any{x402.Wait, x402.Stamp(ends)}, []any{next.Do, next.At})

			b.later()
			_, err = b.Pay(t.Context(), get(testURL))
			e = x402.AsError(err)
			next = e.NextStep()
			require.Equal(t, []any{x402.Repeat, ""}, []any{next.Do, next.At})
			require.Contains(t, next.Why, "has expired")
			require.NotContains(t, strings.ToLower(e.Hint+next.Why), "same signed payment")

			b.chain.dead[b.only(t).Evidence.Nonce] = true // and the chain says so
			b.seller.script = honest
			r, err := b.Pay(t.Context(), get(testURL))
			require.NoError(t, err, "a new payment")
			require.NotEqual(t, e.PaymentID, r.PaymentID)
		})
	}
}

// A decision that is the person's has the line they type and a sentence for them; one that was made is final.
func TestApprovalsHaveANextStep(t *testing.T) {
	b := strict(t)
	e := b.mustRefuse(t, x402.ApprovalRequired, testURL)
	id := e.Details["approvalId"].(string)
	next := e.NextStep()
	require.Equal(t, []any{x402.AskPerson, "x402-wallet approve " + id}, []any{next.Do, next.Command})
	require.Contains(t, next.Say, "Please approve paying $0.01 to api.example")
	must.Get(b.store.Deny(t.Context(), id, "owner"))(t)
	e = code(t, x402.ApprovalDeclined, must.Err(b.Pay(t.Context(), get(testURL))))
	require.NotContains(t, e.Hint+e.Message, "approve "+id, "an agent is not shown how to lift a denial")
	require.Zero(t, b.chain.signed)
	next = e.NextStep()
	require.Equal(t, x402.GiveUp, next.Do)
	require.Contains(t, next.Why, "repeating the call does not help")
	require.Empty(t, next.Command)
}

func serves(status int, text string) script {
	return func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		a, err := honest(s, nonce, amount)
		if err == nil {
			a.Status, a.Content = status, []byte(text)
		}
		return a, err
	}
}

// Every answer that is no error says what can be done next, and none of them sends anybody to pay twice.
func TestWhatComesNext(t *testing.T) {
	b := newBench(t, "10000", serves(200, "sunny"))
	q := get(testURL)
	q.IdempotencyKey = "one"
	r := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, x402.Next{Do: x402.Done}, r.Next)
	b.Delivered(t.Context(), r.Status, r.PaymentID)
	bought := b.only(t).Created.UTC().Format(time.RFC3339)
	r = must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, x402.Done, r.Next.Do)
	require.Equal(t, "nothing paid now; bought "+bought, r.Next.Why)

	b.seller.script = serves(200, strings.Repeat("é", MaxPiece))
	r = b.mustPay(t, testURL+"?long")
	require.Equal(t, []any{firstPiece, 2 * MaxPiece, true, "x402://payments/" + r.PaymentID + "/content"},
		[]any{len(r.Content), r.ContentLength, r.ContentTruncated, r.ContentURI})
	require.Equal(t, step(x402.Change, "already bought, do not pay again: x402_history with paymentId %q "+
		"and offset 8192 reads on, with find it searches", r.PaymentID), r.Next)

	b.seller.script = serves(200, "\x89PNG\xff")
	r = b.mustPay(t, testURL+"?picture")
	require.Equal(t, []any{"", 5, true}, []any{r.Content, r.ContentLength, r.ContentTruncated})
	require.Equal(t, "x402-wallet show "+r.PaymentID+" --content", r.Next.Command)

	b.seller.script = serves(500, "sorry")
	r = b.mustPay(t, testURL+"?broken")
	require.Equal(t, []any{StatusUnserved, x402.Repeat}, []any{r.Status, r.Next.Do})
	b.later()
	r = b.mustPay(t, testURL+"?broken")
	require.Equal(t, []any{StatusUnserved, x402.AskPerson, "x402-wallet show " + r.PaymentID + " --receipt"},
		[]any{r.Status, r.Next.Do, r.Next.Command}, "nobody serves a payment that has expired")
}

func TestNotServedAndNotPaid(t *testing.T) {
	b := newBench(t, "", honest)
	for _, c := range []struct {
		seller.Answer
		status string
		next   x402.Step
	}{
		{seller.Answer{Status: 200}, StatusFree, x402.Done},
		{seller.Answer{Status: 204}, StatusFree, x402.Done},
		{seller.Answer{Status: 304}, StatusNotPaid, x402.Change},
		{seller.Answer{Status: 404}, StatusNotPaid, x402.Change},
		{seller.Answer{Status: 429}, StatusNotPaid, x402.Wait},
		{seller.Answer{Status: 503}, StatusNotPaid, x402.Wait},
		{seller.Answer{Status: 500, ToolFailed: true}, StatusNotPaid, x402.Change},
	} {
		r := b.Free(t.Context(), &c.Answer)
		require.Equal(t, []any{c.status, c.next}, []any{r.Status, r.Next.Do}, "%+v", c.Answer)
	}
	long := b.Free(t.Context(), &seller.Answer{Status: 200, Content: []byte(strings.Repeat("a", MaxPiece+1))})
	require.Equal(t, []any{MaxPiece, MaxPiece + 1, true, "", x402.Change},
		[]any{len(long.Content), long.ContentLength, long.ContentTruncated, long.ContentURI, long.Next.Do},
		"nothing keeps the rest: as much of it as an answer carries")
}

// No piece cuts a character in two, and the pieces in a row are the whole.
func TestPieces(t *testing.T) {
	text := strings.Repeat("aé€😀", 50)
	for length := 1; length < 12; length++ {
		var all strings.Builder
		for at, n := 0, 0; ; n++ {
			require.Less(t, n, len(text))
			p := Part(contentOf(&seller.Answer{Content: []byte(text)}), at, length)
			require.LessOrEqual(t, len(p.Text), max(length, 4))
			all.WriteString(p.Text)
			at = p.Next
			if at == 0 {
				break
			}
		}
		require.Equal(t, text, all.String(), length)
	}
	c := contentOf(&seller.Answer{Content: []byte(text)})
	require.Equal(t, Piece{Text: "é", Offset: 1, Next: 3}, Part(c, 2, 2), "from its first byte")
	require.Equal(t, Piece{Offset: len(text)}, Part(c, len(text), 9))
	require.Equal(t, "a\uFFFDb", Part(contentOf(&seller.Answer{Content: []byte("a\xffb")}), 0, 9).Text)
}
